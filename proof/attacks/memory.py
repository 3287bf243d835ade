"""What agents know: blocks, refs, snapshots, images, archives."""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

from harness.attacks import MEMORY
from holdproof import errors, sync
from holdproof.memory.images import image_files
from proof.attacks.attacked_store import OTHER, Place
from proof.attacks.matrix import CARRIER, LOADING, REFUSED, ROWS, Attack, Got, refused

AREA: Final = "memory"
_BLOCK: Final = "(SELECT max(length(data)) FROM objects)"


def attacks() -> Iterator[Attack]:
    """Everything that memory is made of."""
    for name, statement in MEMORY.items():
        yield Attack(AREA, name, ROWS, partial(_run, statement))
    for name, change in _BLOCKS.items():
        yield Attack(AREA, name, ROWS, change)
    for name, damage in _IMAGES.items():
        loading, refusals = partial(_load, damage), (REFUSED, "DEGRADED")
        yield Attack("image", name, CARRIER, loading, refusals, (LOADING,), locks=False, shares=True)
    for archive in ("memory.car", "sealed.car"):
        for name, damage in _DAMAGE.items():
            act = partial(_import, archive, damage)
            yield Attack("archive", f"{archive} {name}", CARRIER, act, (REFUSED,), (LOADING,), locks=False, shares=True)


def _run(statement: str, place: Place) -> None:
    place.past.run(statement)


# --- blocks ------------------------------------------------------------------------------------------------------


def _flip(place: Place) -> None:
    [(h, data)] = place.past.ask("SELECT h, data FROM objects ORDER BY h LIMIT 1")
    data = bytes(data)
    place.past.ask("UPDATE objects SET data = ? WHERE h = ?", data[:-1] + bytes([data[-1] ^ 1]), bytes(h))


def _remove(place: Place) -> None:
    [(h,)] = place.past.ask("SELECT h FROM objects ORDER BY h LIMIT 1")
    place.past.ask("DELETE FROM objects WHERE h = ?", bytes(h))


def _exchange(place: Place) -> None:
    (one, first), (two, second) = place.past.ask("SELECT h, data FROM objects ORDER BY h LIMIT 2")
    for h, data in ((one, second), (two, first)):
        place.past.ask("UPDATE objects SET data = ? WHERE h = ?", bytes(data), bytes(h))


def _borrow(place: Place) -> None:
    """Another namespace's tree is put under the usual name."""
    [(cid,)] = place.past.ask("SELECT cid FROM refs WHERE ns = ? AND name LIKE 'work/%'", OTHER)
    place.past.ask("UPDATE refs SET cid = ? WHERE name = 'work/main'", cid)


_BLOCKS: Final[dict[str, Callable[[Place], None]]] = {
    "a byte of a block flipped": _flip,
    "a block removed": _remove,
    "two blocks under each other's name": _exchange,
    "the tree of another namespace": _borrow,
}


# --- images and archives -----------------------------------------------------------------------------------------


def _middle(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def _short(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def _longer(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"more")


def _empty(path: Path) -> None:
    path.write_bytes(b"")


_DAMAGE: Final[dict[str, Callable[[Path], None]]] = {
    "with a byte flipped": _middle,
    "cut short": _short,
    "with more at its end": _longer,
    "emptied": _empty,
}


def _newest(folder: Path, kind: str) -> Path:
    return max(folder.glob(f"*.{kind}"))


def _older_as_newest(folder: Path) -> None:
    older = image_files.manifests(folder)[-1]
    (folder / f"zzzzzzzzzzzz2{image_files.MANIFEST}").write_bytes(older.read_bytes())
    for path in image_files.manifests(folder)[1:]:
        path.unlink()


_IMAGES: Final[dict[str, Callable[[Path], None]]] = {
    **{
        f"its {kind} {name}": partial(lambda kind, damage, folder: damage(_newest(folder, kind)), kind, damage)
        for kind in ("base.car", "delta.car", "image.json")
        for name, damage in _DAMAGE.items()
    },
    "its base deleted": lambda folder: _newest(folder, "base.car").unlink(),
    "its delta deleted": lambda folder: _newest(folder, "delta.car").unlink(),
    "an older one under the name of the newest": _older_as_newest,
}


def _load(act: Callable[[Path], object], place: Place) -> Got:
    """Load the image after it was tampered with, into a store that has forgotten what it holds."""
    act(place.elsewhere / "image")
    with place.open() as store:
        before = _everything(store)
        try:
            done = store.image.load(place.elsewhere / "image")
        except errors.HoldproofError as error:
            assert _everything(store) == before, "a bad image changes nothing"
            return refused(error, LOADING)
        if done.degraded:
            return Got("DEGRADED", 0, False, LOADING, done.degraded[0].rpartition("/")[2][:200])
        return Got("LOADED", 0, False, LOADING, done.how)


def _import(archive: str, damage: Callable[[Path], None], place: Place) -> Got:
    damage(place.elsewhere / archive)
    secret = "a passphrase of some length" if archive.startswith("sealed") else None
    with place.open() as store:
        did, before = store.snapshots.get().did, _everything(store)
        try:
            store.archive.import_car(place.elsewhere / archive, did=did, passphrase=secret)
        except errors.HoldproofError as error:
            assert _everything(store) == before, "a bad archive changes nothing"
            return refused(error, LOADING)
    return Got("LOADED", 0, False, LOADING, "")


def _everything(store: sync.Holdproof) -> Any:
    return store.objects.list(limit=1000).items, [each.cid for each in store.snapshots.list().items]
