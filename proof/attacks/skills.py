"""Skills: changed on disk, in the database, with signatures of others, old and stolen ones; loaded and verified."""

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

from holdproof import errors
from holdproof.crypto import keys as keypairs
from holdproof.evidence.key_files import KeyFolder
from holdproof.memory.skills import proofs
from proof.attacks.attacked_store import OTHER, Place
from proof.attacks.matrix import LOADING, PLAIN, REFUSED, SKILLS, SKILLS_ROWS, Attack, Got, refused

FIRST: Final = b"* Deploy\n#+begin_src sh\nship --careful\n#+end_src\n"
SECOND: Final = FIRST.replace(b"--careful", b"--now")
EVIL: Final = FIRST.replace(b"ship", b"rm -rf /; ship")
_COLUMNS: Final = (*proofs.SIGNED, "blocks", "keyid", "statement")


def _approved(place: Place) -> Path:
    """A skill whose second version counts, and another one beside it."""
    folder = place.folder.resolve() / "skills"
    folder.mkdir()
    for name, data in (("deploy.org", FIRST), ("other.org", b"* Other\n"), ("deploy.org", SECOND)):
        (folder / name).write_bytes(data)
        with place.open() as store:
            store.skills.approve(str(folder / name), by="ada")
    return folder / "deploy.org"


def _tried(act: Callable[[Place, Path], object], place: Place) -> Got:
    """Whether the skill is handed out afterwards."""
    path = _approved(place)
    act(place, path)
    with place.open() as store:
        try:
            loaded = store.skills.load(str(path))
        except errors.SkillLockedError as error:
            return refused(error, LOADING, locked=True)
        except errors.HoldproofError as error:
            return refused(error, LOADING)
    return Got("LOADED", 0, False, LOADING, loaded.data.decode()[:40])


def _verified(act: Callable[[Place, Path], object], place: Place) -> None:
    act(place, _approved(place))


def _evil(_: Place, path: Path) -> None:
    path.write_bytes(EVIL)


def _link(_: Place, path: Path) -> None:
    path.rename(path.with_name("copy.org"))
    path.symlink_to(path.with_name("copy.org"))


def _back(_: Place, path: Path) -> None:
    path.write_bytes(FIRST)


def _row(place: Place, path: Path, n: int) -> dict[str, Any]:
    [row] = place.past.ask(f"SELECT {', '.join(_COLUMNS)} FROM skill_approvals WHERE path = ? AND n = ?", str(path), n)
    return dict(zip(_COLUMNS, row, strict=True))


def _put(place: Place, row: dict[str, Any]) -> None:
    """Write an approval into the database, under the leaf of another."""
    names = (*row, "id", "leaf_id", "leaf_ver", "leaf_salt")
    [mark] = place.past.ask("SELECT leaf_id, leaf_ver, leaf_salt FROM skill_approvals ORDER BY id LIMIT 1")
    marks = ", ".join("?" * len(names))
    values = (*row.values(), "forged", mark[0], mark[1], bytes(mark[2]))
    place.past.ask(f"INSERT INTO skill_approvals ({', '.join(names)}) VALUES ({marks})", *values)


def _of(place: Place, path: Path) -> dict[str, Any]:
    """What an approval of the evil file would say."""
    path.write_bytes(EVIL)
    with place.open() as store:
        seen = store.skills.fingerprint(str(path))
    blocks = json.dumps([[*each.to_dict().values()] for each in seen.blocks])
    return {"root": seen.root, "size": seen.size, "blocks": blocks}


def _edited(place: Place, path: Path) -> None:
    said = _of(place, path)
    place.past.ask(
        "UPDATE skill_approvals SET root = ?, size = ?, blocks = ? WHERE path = ? AND n = 2", *said.values(), str(path)
    )


def _borrowed(place: Place, path: Path) -> None:
    """The approval of another skill, signature and all, in the name of this one."""
    path.write_bytes(path.with_name("other.org").read_bytes())
    _put(place, _row(place, path.with_name("other.org"), 1) | {"path": str(path), "n": 3})


def _replayed(place: Place, path: Path) -> None:
    _back(place, path)
    _put(place, _row(place, path, 1) | {"n": 3})


def _downgraded(place: Place, path: Path) -> None:
    _back(place, path)
    place.past.ask("DELETE FROM skill_approvals WHERE path = ? AND n = 2", str(path))


def _abroad(place: Place, path: Path) -> None:
    """An approval of another namespace is copied into this one, for a file that nobody approved here."""
    strange = path.with_name("blue.org")
    strange.write_bytes(EVIL)
    with place.open(ns=OTHER) as store:
        store.skills.approve(str(strange), by="bob")
    _put(place, _row(place, strange, 1) | {"ns": "main", "path": str(path), "n": 3, "place": str(strange)})
    path.write_bytes(EVIL)


def _signed(signer: Callable[[Place], keypairs.PrivateKey], place: Place, path: Path) -> None:
    """An approval of the evil file, signed anew."""
    row, key = _row(place, path, 2) | {"n": 3} | _of(place, path), signer(place)
    with place.open() as store:
        origin = store.log.head().checkpoint.origin
    row |= {"keyid": key.keyid}
    said = {name: _said(value) for name, value in row.items()}
    _put(place, row | {"statement": proofs.sign(said, origin, key)})


def _said(value: Any) -> Any:
    """A value as a statement has it: PostgreSQL's driver gives moments a type of their own."""
    return value.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ") if isinstance(value, datetime) else value


def _stranger(_: Place) -> keypairs.PrivateKey:
    return keypairs.generate("ecdsa-p256-sha256")


def _memory_key(place: Place) -> keypairs.PrivateKey:
    return KeyFolder(place.home / "config" / "keys").load("memory")


def _forgiven(place: Place, path: Path) -> None:
    """It was locked; the good file is put back and the lockdown deleted."""
    path.write_bytes(EVIL)
    with place.open() as store:
        store.skills.verify(str(path))
    path.write_bytes(SECOND)
    place.past.ask("DELETE FROM skill_lockdowns WHERE path = ?", str(path))


_ON_DISK: Final[dict[str, Callable[[Place, Path], object]]] = {
    "an approved skill changed on disk": _evil,
    "an approved skill replaced by a link to itself": _link,
    "an older approved version put back on disk": _back,
}
_IN_ROWS: Final[dict[str, Callable[[Place, Path], object]]] = {
    "an approval edited to fit another file": _edited,
    "the approval of another skill put in its place": _borrowed,
    "an old approval played again": _replayed,
    "an approval taken from another namespace": _abroad,
    "an approval signed by a stranger": partial(_signed, _stranger),
}


def attacks() -> Iterator[Attack]:
    """All attacks on skills."""
    for name, act in _ON_DISK.items():
        yield Attack("skills", f"{name}: loaded", SKILLS, partial(_tried, act), (REFUSED,), (LOADING,))
    for name, act in _IN_ROWS.items():
        yield Attack("skills", f"{name}: loaded", SKILLS_ROWS, partial(_tried, act), (REFUSED,), (LOADING,))
        yield Attack("skills", f"{name}: verified", SKILLS_ROWS, partial(_verified, act), names="skill_approvals")
    name = "the newest approval deleted, the older file put back"
    yield Attack(
        "skills",
        f"{name}: loaded",
        SKILLS_ROWS,
        partial(_tried, _downgraded),
        ("LOADED",),
        (LOADING,),
        locks=False,
        design="it was approved once; that a newer approval is gone is seen by verify, not by a load",
    )
    yield Attack("skills", f"{name}: verified", SKILLS_ROWS, partial(_verified, _downgraded), names="skill_approvals")
    name = "an approval signed with the stolen memory key"
    yield Attack(
        "skills",
        f"{name}: loaded",
        "the database and the memory key",
        partial(_tried, partial(_signed, _memory_key)),
        ("LOADED",),
        (LOADING,),
        locks=False,
        design="the signature is good; that it stands in no log is seen by verify, not by a load",
    )
    yield Attack(
        "skills",
        f"{name}: verified",
        "the database and the memory key",
        partial(_verified, partial(_signed, _memory_key)),
        by=(PLAIN,),
        names="skill_approvals",
    )
    yield Attack(
        "skills",
        "a lockdown of a skill deleted: verified",
        SKILLS_ROWS,
        partial(_verified, _forgiven),
        names="skill_lockdowns",
    )
