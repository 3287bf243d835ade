"""Files of a store: DBOMs, blobs, rows of services, keys, trust files, the flag of a lockdown, backups."""

import shutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

import psycopg

from harness import attacks as known
from harness.filling import submit
from harness.raw_access import behind
from holdproof import errors, sync
from holdproof.crypto import dsse, keys
from holdproof.evidence import trust as trusts
from holdproof.evidence.key_files import ROLES, KeyFolder
from holdproof.model.keys import Role
from holdproof.model.verdicts import Verdict
from holdproof.upkeep import unlock
from holdproof.upkeep.backups import manifest
from proof.attacks.attacked_store import Place
from proof.attacks.matrix import (
    CARRIER,
    FILES,
    LOADING,
    MACHINE,
    NOTHING,
    OPENING,
    PLAIN,
    REFUSED,
    ROWS,
    STRANGER,
    Attack,
    Got,
    examine,
    gravest,
    is_locked,
    refused,
)

_SERVICES: Final = "services run SQL of their own there; no leaf covers it"


def attacks(database: str) -> Iterator[Attack]:
    """All attacks on files that lie beside the database."""
    yield from _dboms()
    yield from _services()
    yield from _keys(database)
    yield from _lockdowns()
    yield from _backups()


# --- DBOM files --------------------------------------------------------------------------------------------------


def _dboms() -> Iterator[Attack]:
    for name, change in known.FILES.items():
        if name in known.FILE_VERDICTS:
            act = partial(_dbom_lost, change)
            yield Attack("DBOM file", name, FILES, act, (known.FILE_VERDICTS[name].word,), locks=False)
        else:
            yield Attack("DBOM file", name, FILES, partial(_dbom, change))
    yield Attack("DBOM file", "one of nobody added", FILES, _invent, ("UNLOGGED",), locks=False)
    yield Attack("DBOM file", "row and file replaced by a legacy one", MACHINE, _downgrade)


def _dbom(change: Callable[[Path], object], place: Place) -> None:
    change(place.home / "dboms" / "dbom_b3.json")


def _dbom_lost(change: Callable[[Path], object], place: Place) -> Got:
    """Nothing is lost with the file, whose text the row has: it is named, and written again by a repair."""
    _dbom(change, place)
    report = sync.verify(place.home, place.url)
    sync.verify(place.home, place.url, lock=True)
    assert (place.home / "dboms" / "dbom_b3.json").exists(), "it was not written again"
    return Got(report.verdict.word, report.verdict.exit_code, is_locked(place), PLAIN, gravest(report))


def _invent(place: Place) -> None:
    shutil.copy(place.home / "dboms" / "dbom_b3.json", place.home / "dboms" / "dbom_invented.json")


def _downgrade(place: Place) -> None:
    path = place.home / "dboms" / "dbom_b3.json"
    path.write_bytes(known.legacy(path))
    place.past.ask("UPDATE battles SET dbom = ? WHERE battle_id = 'b3'", path.read_text())


# --- services ----------------------------------------------------------------------------------------------------


def _services() -> Iterator[Attack]:
    for name, damage in _BLOBS.items():
        yield Attack("blob", name, FILES, partial(_blob, damage), locks=False)
    for what, statement in _SQL.items():
        yield Attack("blob", what, ROWS, partial(_membrane, statement), locks=False)
    for what, statement in _UNSEEN.items():
        act = partial(_membrane, statement)
        yield Attack("services", what, ROWS, act, ("VALID",), (NOTHING,), locks=False, design=_SERVICES)


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


_BLOBS: Final[dict[str, Callable[[Path], object]]] = {
    "a byte flipped": _flip,
    "deleted": lambda path: path.unlink(),
    "cut short": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "replaced": lambda path: path.write_bytes(b"another"),
}
_SQL: Final = {
    "the bytes of a small one changed in its row": "UPDATE membrane.blobs SET data = {blob} WHERE key = 'small'",
    "the hash of a small one changed in its row": "UPDATE membrane.blobs SET sha256 = 'ff' || sha256",
    "the address of a large one changed": "UPDATE membrane.blobs SET address = address || 'x' WHERE key = 'large'",
}
_UNSEEN: Final = {
    "a blob deleted with its row": "DELETE FROM membrane.blobs WHERE key = 'small'",
    "a vector exchanged": (
        "UPDATE membrane.vectors SET vector = (SELECT vector FROM membrane.vectors WHERE id = 'v00001')"
        " WHERE id = 'v00002'"
    ),
    "a vector deleted": "DELETE FROM membrane.vectors WHERE id = 'v00002'",
}


def _blob(damage: Callable[[Path], object], place: Place) -> None:
    [path] = [path for path in (place.home / "blobs").rglob("*") if path.is_file()]
    path.chmod(0o600)
    damage(path)


def _membrane(statement: str, place: Place) -> None:
    if place.url is None:
        with behind(place.home, "membrane.db") as connection:
            connection.execute(statement.replace("membrane.", "").format(blob="x'00'"))
        return
    with psycopg.connect(place.url, autocommit=True) as server:
        server.execute("SET session_replication_role = replica")  # whoever owns the database is above its constraints
        server.execute(statement.format(blob="decode('00', 'hex')").encode())


# --- keys and trust files ----------------------------------------------------------------------------------------


def _keys(database: str) -> Iterator[Attack]:
    roles: tuple[Role, ...] = ("log", "judge", "memory")
    for role in roles:
        for name, damage in _KEYS.items():
            waits = database == "postgres" and role == "log" and damage in _AWAY
            yield Attack(
                "keys",
                f"the {role} key {name}",
                FILES,
                partial(_work, role, damage),
                ("PENDING",) if waits else (REFUSED,),
                (LOADING,),
                locks=None,
                design=_WAITS if waits else "",
            )
        if role != "log":
            for name, damage in (("replaced by a stranger's", _replace), ("deleted", Path.unlink)):
                act = partial(_work, role, damage, rooted=True)
                what = f"the {role} key {name}, with root at hand"
                yield Attack("keys", what, MACHINE, act, (REFUSED,), (LOADING,), locks=None)
    yield Attack("keys", "a root key laid beside the store ends no lockdown", FILES, _unlock, (REFUSED,), (LOADING,))
    for name, change in _TRUST.items():
        yield Attack(
            "trust file", name, CARRIER, partial(_trust, change), (REFUSED,), (STRANGER,), locks=None, shares=True
        )


def _replace(path: Path) -> None:
    role: Role = path.stem  # type: ignore[assignment]
    path.write_bytes(keys.generate(ROLES[role]).to_pem(None))
    path.chmod(0o600)


def _loosen(path: Path) -> None:
    path.chmod(0o644)


def _halve(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:60])


_KEYS: Final[dict[str, Callable[[Path], object]]] = {
    "replaced by a stranger's": _replace,
    "deleted": Path.unlink,
    "readable by others": _loosen,
    "cut": _halve,
}
_AWAY: Final = (_replace, Path.unlink)
_WAITS: Final = "another process may hold the key: what was written waits for it, and verify says so"


def _work(role: Role, damage: Callable[[Path], object], place: Place, *, rooted: bool = False) -> Got:
    """Do what needs that key, with root away: a store must not go on with another one."""
    if not rooted:
        (place.home / "config" / "keys" / "root.pem").unlink()
    damage(place.home / "config" / "keys" / f"{role}.pem")
    try:
        with place.open() as store:
            if role == "memory":
                store.objects.put("new", type="t", content="new")
                store.snapshots.create("new")
            else:
                submit(store, "new", 0.5)
    except errors.HoldproofError as error:
        return refused(error, LOADING)
    found, verdict = examine(place), sync.verify(place.home, place.url, lock=False).verdict
    word = verdict.word if verdict == Verdict.PENDING else "SIGNED"
    return Got(word, 0, found.locked, LOADING, f"then {found.verdict}: {found.detector}")


def _unlock(place: Place) -> Got:
    with place.open() as store:
        store.lockdown.lock(reason="try")
        draft = store.lockdown.statement(reason="a stranger says so")
        try:
            store.lockdown.unlock(unlock.sign(draft.encode(), keys.generate("ed25519")).decode())
        except errors.HoldproofError as error:
            return refused(error, LOADING, locked=store.lockdown.status() is not None)
    return Got("UNLOCKED", 0, False, LOADING, "")


def _payload(old: bytes, new: bytes, data: bytes) -> bytes:
    """The payload edited, the signature left as it was."""
    envelope = dsse.parse(data)
    assert old in envelope.payload
    return dsse.encode(dsse.Envelope(envelope.payload_type, envelope.payload.replace(old, new), envelope.signatures))


def _resigned(data: bytes) -> bytes:
    envelope = dsse.parse(data)
    return dsse.encode(dsse.sign(envelope.payload_type, envelope.payload, keys.generate("ed25519")))


_TRUST: Final[dict[str, Callable[[bytes], bytes]]] = {
    "a revocation taken out": lambda data: _payload(b'"until":', b'"until":null,"unti":', data),
    "a role changed": lambda data: _payload(b'"role":"memory"', b'"role":"judge"', data),
    "signed by a stranger": _resigned,
    "cut short": lambda data: data[:-20],
}


def _trust(change: Callable[[bytes], bytes], place: Place) -> Got:
    root = KeyFolder(place.home / "config" / "keys").load("root").public
    data = (place.elsewhere / "trust.json").read_bytes()
    trusts.parse(data, root=root)
    try:
        trusts.parse(change(data), root=root)
    except errors.HoldproofError as error:
        return refused(error, STRANGER)
    return Got("TRUSTED", 0, False, STRANGER, "")


# --- the lockdown ------------------------------------------------------------------------------------------------


def _lockdowns() -> Iterator[Attack]:
    yield Attack("lockdown", "its flag deleted", FILES, partial(_freed, True, False), ("LOCKED",), (OPENING,))
    yield Attack("lockdown", "its row deleted", ROWS, partial(_freed, False, True), ("LOCKED",), (OPENING,))
    yield Attack("lockdown", "its flag and its row deleted", MACHINE, _freed_at_all, names="lockdowns")
    yield Attack("lockdown", "its flag scratched", FILES, _scratched, ("LOCKED",), (OPENING,))
    yield Attack("lockdown", "a link to nothing in the place of its flag", FILES, _linked, ("LOCKED",), (OPENING,))


def _lock(place: Place) -> None:
    with place.open() as store:
        store.lockdown.lock(reason="try")


def _still(place: Place) -> Got:
    with place.open() as store:
        try:
            submit(store, "while locked", 0.5)
        except errors.LockedError as error:
            return Got("LOCKED", error.exit_code, True, OPENING, error.message[:200])
    return Got("OPEN", 0, False, NOTHING, "")


def _freed(flag: bool, row: bool, place: Place) -> Got:
    _lock(place)
    _free(place, flag=flag, row=row)
    return _still(place)


def _freed_at_all(place: Place) -> None:
    _lock(place)
    _free(place, flag=True, row=True)


def _free(place: Place, *, flag: bool, row: bool) -> None:
    if flag:
        (place.home / "state" / "lockdown.json").unlink()
    if row:
        place.past.ask("DELETE FROM lockdowns WHERE unlocked_at IS NULL")


def _scratched(place: Place) -> Got:
    _lock(place)
    (place.home / "state" / "lockdown.json").write_text("{torn")
    return _still(place)


def _linked(place: Place) -> Got:
    (place.home / "state" / "lockdown.json").symlink_to("nowhere")
    return _still(place)


# --- backups -----------------------------------------------------------------------------------------------------


def _backups() -> Iterator[Attack]:
    for name, change in _BACKUP.items():
        yield Attack(
            "backup", name, CARRIER, partial(_restore, change), (REFUSED,), (LOADING,), locks=False, shares=True
        )

    name, has = "signed by a stranger whose key was put into the store's keyring", f"{ROWS} and a backup"
    yield Attack("backup", name, has, _admitted, (REFUSED,), (LOADING,), locks=False)


def _admitted(place: Place) -> Got:
    stranger = keys.generate("ed25519")
    columns = "role, alg, statement, added_at, leaf_id, leaf_ver, leaf_salt"
    place.past.ask(
        f"INSERT INTO keyring (keyid, public, {columns}) SELECT ?, ?, {columns} FROM keyring WHERE role = 'log'",
        stranger.keyid,
        stranger.public.to_pem().decode(),
    )
    return _restore(partial(_sign, stranger), place)


def _sign(key: keys.PrivateKey, folder: Path) -> None:
    made, data, _ = manifest.read(folder)
    (folder / "manifest.sig").write_bytes(manifest.sign(data, made.store_id, key))


def _any(folder: Path) -> Path:
    """The largest file of a backup: its database, or the largest table of one on a server."""
    return max((path for path in folder.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)


_BACKUP: Final[dict[str, Callable[[Path], object]]] = {
    "a byte of its database flipped": lambda folder: _flip(_any(folder)),
    "its database cut short": lambda folder: _any(folder).write_bytes(_any(folder).read_bytes()[:-4096]),
    "a DBOM deleted": lambda folder: next((folder / "dboms").iterdir()).unlink(),
    "a file added": lambda folder: (folder / "dboms" / "dbom_new.json").write_text("{}"),
    "its manifest edited": lambda folder: _edit(folder / "manifest.json", b'"size":1', b'"size":2'),
    "its signature deleted": lambda folder: (folder / "manifest.sig").unlink(),
    "its manifest deleted": lambda folder: (folder / "manifest.json").unlink(),
    "a key of it exchanged": lambda folder: _replace(folder / "keys" / "judge.pem"),
    "a blob of it flipped": lambda folder: _flip(next(p for p in (folder / "blobs").rglob("*") if p.is_file())),
}


def _edit(path: Path, old: bytes, new: bytes) -> None:
    data = path.read_bytes()
    assert old in data
    path.write_bytes(data.replace(old, new))


def _restore(change: Callable[[Path], object], place: Place) -> Got:
    backup = place.elsewhere / "backup"
    change(backup)
    before = place.past.ask("SELECT head FROM log_state")
    try:
        sync.restore(backup, place.home, place.url)
    except errors.HoldproofError as error:
        assert place.past.ask("SELECT head FROM log_state") == before, "a bad backup changes nothing"
        return refused(error, LOADING)
    return Got("RESTORED", 0, False, LOADING, "")
