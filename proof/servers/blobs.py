"""Blobs at a place that fails half-way: put, got, streamed, deleted, erased; each fault in the middle of some calls.

After each fault the place is good again: every key has bytes that were put under it, the ones acknowledged last unless
a later call may have changed them; the store verifies; a sweep leaves nothing at the place but what keys have.
"""

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from harness.http_proxy import KINDS, Fault, Proxy
from holdproof import errors, sync
from proof.servers.tally import Tally

SIZES: Final = (500, 40_000, 120_000, 700_000)
_CALLS: Final = 6
_HUNG_S: Final = 120.0
_BYTES: Final = random.Random(1).randbytes(SIZES[-1])


def stored_keys(store: sync.Holdproof) -> list[str]:
    """Return the keys of all blobs, page by page."""
    page = store.blobs.list(limit=1_000)
    keys = [*page]
    while page.next_cursor is not None:
        page = store.blobs.list(cursor=page.next_cursor, limit=1_000)
        keys += page
    return keys


class Bucket(Protocol):
    """The place itself, past the proxy."""

    name: str

    def open(self) -> sync.Holdproof:
        """The store, by way of the proxy."""
        ...

    def lying(self) -> set[str] | None:
        """Every address there is at the place; None where it cannot say."""
        ...


@dataclass
class Known:
    """What each key may hold, and whose it is."""

    may: dict[str, list[bytes | None]] = field(default_factory=dict)
    whose: dict[str, str] = field(default_factory=dict)

    def done(self, key: str, value: bytes | None) -> None:
        """That was acknowledged."""
        self.may[key] = [value]

    def tried(self, key: str, value: bytes | None) -> None:
        """That may have been done."""
        self.may.setdefault(key, [None]).append(value)


class Rounds:
    """Rounds of calls on one store behind one proxy."""

    def __init__(self, tally: Tally, bucket: Bucket, proxy: Proxy, seed: int) -> None:
        self._tally, self._bucket, self._proxy, self._seed = tally, bucket, proxy, seed
        self._known, self._done, self._refused = Known(), 0, list[Exception]()

    def run(self, rounds: int, first: int = 0, kinds: tuple[str, ...] = tuple(KINDS)) -> None:
        """So many rounds, each kind of fault in turn."""
        with self._bucket.open() as store:
            for number in range(first, first + rounds):
                if not self._round(store, number, kinds[number % len(kinds)]):
                    return

    def _round(self, store: sync.Holdproof, number: int, kind: str) -> bool:
        chance = random.Random(f"{self._seed} {number}")
        calls = [self._call(store, chance, number) for _ in range(_CALLS)]
        self._done, self._refused = 0, []
        self._proxy.arm(Fault(kind, chance.randrange(8), chance.choice((1, 2, 5, 20))))
        calling = threading.Thread(target=self._try_all, args=(kind, number, calls), daemon=True)
        calling.start()
        calling.join(_HUNG_S)
        struck = self._proxy.heal()
        if calling.is_alive():
            self._blame(kind, number, "hung", f"no end in {_HUNG_S:g} s")
            return False
        self._count(kind, injected=struck, acknowledged=self._done, refused=len(self._refused))
        for error in self._refused:
            if not isinstance(error, errors.HoldproofError):
                self._blame(kind, number, "untyped", repr(error))
        self._inspect(store, kind, number)
        return True

    def _try_all(self, kind: str, number: int, calls: list[Callable[[], str | None]]) -> None:
        for call in calls:
            try:
                wrong = call()
            except Exception as error:
                self._refused.append(error)
                continue
            self._done += 1
            if wrong is not None:
                self._blame(kind, number, "undetected", wrong)

    # --- calls -------------------------------------------------------------------------------------------------------

    def _call(self, store: sync.Holdproof, chance: random.Random, number: int) -> Callable[[], str | None]:
        """One call; what it tells if it was answered wrongly."""
        key, size, start = f"k{chance.randrange(6)}", chance.choice(SIZES), chance.randrange(1000)
        data = _BYTES[start : start + size]
        what = chance.choice(("put", "put", "stream", "get", "read", "delete", "erase"))
        match what:
            case "put":
                return lambda: self._put(key, data, lambda: store.blobs.put(key, data))
            case "stream":
                pieces = [data[at : at + 65_536] for at in range(0, len(data), 65_536)]
                return lambda: self._put(key, data, lambda: store.blobs.open_write(key, pieces))
            case "get":
                return lambda: self._seen(key, store.blobs.get(key))
            case "read":
                return lambda: self._read(store, key)
            case "delete":
                return lambda: self._put(key, None, lambda: store.blobs.delete(key))
        person = f"person {number}"
        return lambda: self._erase(store, person, f"hers-{number}", person.encode() * 5000)

    def _put(self, key: str, value: bytes | None, call: Callable[[], Any]) -> None:
        self._known.tried(key, value)
        call()
        self._known.done(key, value)

    def _seen(self, key: str, value: bytes | None) -> str | None:
        return None if value in self._known.may.get(key, [None]) else f"{key} has bytes that nobody put"

    def _read(self, store: sync.Holdproof, key: str) -> str | None:
        try:
            return self._seen(key, b"".join(store.blobs.open_read(key)))
        except errors.NotFoundError:
            return self._seen(key, None)

    def _erase(self, store: sync.Holdproof, person: str, key: str, data: bytes) -> str | None:
        """A person's blob goes, with all its bytes, if nobody says that something remains."""
        self._known.whose[key] = person
        self._put(key, data, lambda: store.blobs.put(key, data, subject=person))
        blob = store.blobs.stat(key)
        assert blob is not None
        self._known.tried(key, None)
        made = store.erase.subject(person)
        self._known.done(key, None)
        lying = self._bucket.lying()
        if lying is not None and blob.address in lying and not made.remains:
            return f"{key} was erased, and its bytes are there"
        return None

    # --- afterwards --------------------------------------------------------------------------------------------------

    def _inspect(self, store: sync.Holdproof, kind: str, number: int) -> None:
        """Everything acknowledged is there, and nothing else is."""
        for key, may in self._known.may.items():
            try:
                value = store.blobs.get(key)
            except errors.HoldproofError as error:
                self._blame(kind, number, "lost", f"{key}: {error}")
                continue
            if value not in may:
                self._blame(kind, number, "lost" if value is None else "partial", f"{key} is not what was put")
            self._known.may[key] = [value]
        for key, person in self._known.whose.items():
            if self._known.may[key] != [None]:
                store.erase.subject(person)
                self._known.may[key] = [None]
        report = store.verify.run(full=True, lock=False)
        if not report.verdict.sound:
            self._blame(kind, number, "undetected", f"{report.verdict.word}: {report.findings[:2]}")
        store.blobs.sweep(older_than_s=0)
        rows = [store.blobs.stat(key) for key in stored_keys(store)]
        named = {row.address for row in rows if row is not None and row.address is not None}
        lying = self._bucket.lying()
        if lying is not None and lying != named:
            self._blame(
                kind, number, "partial", f"{len(lying - named)} objects without a row, {len(named - lying)} gone"
            )

    def _count(self, kind: str, **found: int) -> None:
        self._tally.count(self._bucket.name, kind, **found)

    def _blame(self, kind: str, number: int, harm: str, what: str) -> None:
        again = f"--place {self._bucket.name.split()[0]} --seed {self._seed} --place-round {number}"
        self._tally.blame(self._bucket.name, kind, harm, what, again)
