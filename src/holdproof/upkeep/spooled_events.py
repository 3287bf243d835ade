"""Events of hooks that wait for their recorder, as an erasure reaches them: files of this machine, in clear.

A hook whose recorder does not run stores its event in `state/hooks/spool` (adapters/hooks/client.py); what a recorder
could not read stays there as `*.damaged`.

Rules:
- An event is a person's if it names them, or if its session does: in another event here, or as a flow in the store.
- What cannot be read goes too if the name stands in it. Else nobody can say whose it is: it is told as what remains.
- The files are renamed before the erasure is committed, shredded after it, and put back if it is refused. A crash in
  between leaves names that no recorder reads; the next opening of the store shreds those files.
- Not reached: the spools of other machines, and a folder that was given to hooks with `--state`.
"""

import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from holdproof.config import Paths
from holdproof.content import disk, encryption
from holdproof.crypto.canonical import sha256_hex
from holdproof.db import Call, Read, Tx, Work, Write, ask, sql
from holdproof.errors import HoldproofError, OutcomeUnknownError
from holdproof.model.erasure import Erasure
from holdproof.store.context import Context

FOLDER: Final = "hooks/spool"
_ERASING: Final = ".erasing"
_MOST_BYTES: Final = 256 << 20
_WHOSE: Final = ("subject", "ns", "tool", "session")
_IS_SESSION_OF = sql("SELECT 1 FROM decision_flows WHERE dfid = :dfid AND ns = :ns AND subject = :handle")


class SpooledEvents(NamedTuple):
    """The files that are a person's, and those of which nobody can say whose they are."""

    own: tuple[Path, ...] = ()
    unclear: tuple[Path, ...] = ()


class _Session(NamedTuple):
    tool: str
    name: str

    def flows(self) -> tuple[str, str]:
        """Return the ids that the flow of such a session may have."""
        return f"{self.tool}.{self.name}", f"{self.tool}.{sha256_hex(self.name.encode('utf-8', 'replace'))}"


class _Waiting(NamedTuple):
    """A file of the spool: whose event it is, or where it cannot be read, its bytes."""

    path: Path
    data: bytes
    event: dict[str, Any] | None

    def session(self) -> _Session:
        event = self.event or {}
        return _Session(str(event.get("tool")), str(event.get("session")))


def find(context: Context, name: str, *, ns: str) -> Work[SpooledEvents]:
    """Find the events of a person that wait on this machine."""
    if context.head_file is None:
        return SpooledEvents()
    files: list[_Waiting] = yield from ask(Call(partial(_read, context.paths)))
    if not files:
        return SpooledEvents()
    sessions = {each.session() for each in files if each.event is not None}
    own = yield from ask(Read(partial(_sessions_of, name=name, sessions=sessions, ns=ns)))
    return _sorted_out(files, name, own, ns=ns)


def _read(paths: Paths) -> list[_Waiting]:
    folder = paths.state / FOLDER
    if not folder.is_dir():
        return []
    files: list[_Waiting] = []
    with disk.translated(folder):
        for path in sorted(folder.iterdir()):
            # One that is gone by now was written into the store by its recorder.
            with suppress(FileNotFoundError):
                if path.is_file() and path.suffix != _ERASING:
                    files.append(_parsed(path, disk.read(path, _MOST_BYTES)))
    return files


def _parsed(path: Path, data: bytes) -> _Waiting:
    try:
        event = json.loads(data)
    except (ValueError, RecursionError):
        return _Waiting(path, data, None)
    if not isinstance(event, dict) or "subject" not in event:
        return _Waiting(path, data, None)
    # Not what happened, only whose it is: thousands may wait.
    return _Waiting(path, b"", {name: event[name] for name in _WHOSE if name in event})


def _sessions_of(tx: Tx, *, name: str, sessions: Iterable[_Session], ns: str) -> frozenset[_Session]:
    """Return the sessions whose flow in the store is the person's."""
    handle = encryption.find(tx, name, ns=ns)
    if handle is None:
        return frozenset()
    rows = {
        (each, flow_id): tx.one(_IS_SESSION_OF, dfid=flow_id, ns=ns, handle=handle)
        for each in sessions
        for flow_id in each.flows()
    }
    return frozenset(session for (session, _), row in rows.items() if row is not None)


def _sorted_out(files: Sequence[_Waiting], name: str, sessions: frozenset[_Session], *, ns: str) -> SpooledEvents:
    here = [each for each in files if each.event is not None and each.event.get("ns", ns) == ns]
    named = sessions | {each.session() for each in here if each.event is not None and each.event["subject"] == name}
    own = [each.path for each in here if each.session() in named]
    unreadable = [each for each in files if each.event is None]
    forms = (name.encode(), json.dumps(name)[1:-1].encode())
    matching = [each.path for each in unreadable if any(form in each.data for form in forms)]
    unclear = [each.path for each in unreadable if each.path not in matching]
    return SpooledEvents((*own, *matching), tuple(unclear))


def erase(files: Sequence[Path], erasure: Write[Erasure]) -> Work[Erasure]:
    """Commit an erasure, and shred these files with it; they are back where they were if it is refused."""
    if not files:
        return (yield from ask(erasure))
    aside: list[Path] = yield from ask(Call(partial(_set_aside, files)))
    try:
        done = yield from ask(erasure)
    except OutcomeUnknownError:
        # It may be committed: the next opening shreds them.
        raise
    except HoldproofError:
        yield from ask(Call(partial(_put_back, aside)))
        raise
    yield from ask(Call(partial(_shred, aside)))
    return done


def _set_aside(files: Sequence[Path]) -> list[Path]:
    aside: list[Path] = []
    try:
        for path in files:
            target = path.with_name(f"{path.name}{_ERASING}")
            # One that is gone by now was written into the store by its recorder.
            with disk.translated(path), suppress(FileNotFoundError):
                path.rename(target)
                aside.append(target)
    except HoldproofError:
        # Nothing is erased: the next opening would shred them all the same.
        _put_back(aside)
        raise
    return aside


def _put_back(aside: Sequence[Path]) -> None:
    for path in aside:
        with disk.translated(path):
            if path.exists():
                path.rename(path.with_name(path.name.removesuffix(_ERASING)))


def _shred(files: Iterable[Path]) -> None:
    for path in files:
        with disk.translated(path):
            disk.shred(path)


def at_opening(paths: Paths) -> None:
    """Shred what an erasure set aside whose process died."""
    folder = paths.state / FOLDER
    if folder.is_dir():
        _shred(sorted(folder.glob(f"*{_ERASING}")))
