"""Collect findings of a verification: bounded in memory, whatever the size of the store."""

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol, TypeVar

from holdproof.db import Call, Database, Read, Tx, Work, ask
from holdproof.errors import HoldproofError
from holdproof.lazy import lazy_module
from holdproof.model.progress import Progress
from holdproof.model.verdicts import Verdict, worst
from holdproof.model.verify import Finding, Report
from holdproof.store.context import Context

if TYPE_CHECKING:
    from holdproof.upkeep import kernel_tables
else:
    kernel_tables = lazy_module("holdproof.upkeep.kernel_tables")

T = TypeVar("T")

MOST: Final = 1000
_MOST_SOUND: Final = 10
RESTORE: Final = "keep a copy of the store as it is, then restore a backup that verifies"
EXPLAIN: Final = "find out who changed it; restore a backup that verifies, or erase it through Holdproof"
WAIT: Final = "wait a moment; if it stays, no process that is open has a log key of this store"


RESEAL: Final = "run `holdproof db reseal`: it compares the content with the log and writes the page checksums anew"


def foreign_writer(pages: list[str], path: str, *, outside: bool = False) -> Finding:
    """Return the finding about pages of a database file that do not have the checksum of their content."""
    more = f" (and {len(pages) - 1} more)" if len(pages) > 1 else ""
    return Finding(Verdict.FOREIGN_WRITER, f"{pages[0]}{more}", RESEAL, file=path, outside=outside)


class HasDatabase(Protocol):
    """Anything with a database: the context of an open store, or a copy that is not live yet."""

    @property
    def database(self) -> Database:
        """The database to check."""
        ...


def read(context: HasDatabase, fn: Callable[[Tx], T]) -> Work[T]:
    """Read a page on a reader thread.

    An effect `Read` is tried on the caller's thread first, which pays for short reads; pages would block an event loop.
    """
    effect: Call[T] = Call(lambda: context.database.read(fn).result())
    return (yield from ask(effect))


def on_reader(context: Context, work: Work[T]) -> Work[T]:
    """Run another operation with its reads on a reader thread as well."""
    # Drives the other generator step by step, replacing its Read effects.
    effect = next(work)
    try:
        while True:
            try:
                if isinstance(effect, Read):
                    answer = yield from read(context, effect.fn)
                else:
                    answer = yield effect
            except HoldproofError as error:
                effect = work.throw(error)
            else:
                effect = work.send(answer)
    except StopIteration as stop:
        value: T = stop.value
        return value


class Findings:
    """The findings of one verification so far, what was checked, and what was not."""

    def __init__(self, progress: Progress | None = None) -> None:
        self._progress = progress
        self._kept: dict[Verdict, list[Finding]] = {}
        self.left_off = 0
        self.checked: Counter[str] = Counter()
        self.not_checked: list[str] = []
        self.head: dict[str, object] = {}
        self.level = ""
        self.place = ""
        self.since = ""
        self.trusted_by: list[str] = []

    def add(self, finding: Finding) -> None:
        """Add a finding; past the bound of its verdict it is only counted, so that many of one kind hide no other."""
        listed = self._kept.setdefault(finding.verdict, [])
        if len(listed) < (_MOST_SOUND if finding.verdict.sound else MOST):
            listed.append(finding)
        else:
            self.left_off += 1

    def skip(self, what: str) -> None:
        """Record what this run did not check."""
        if what not in self.not_checked:
            self.not_checked.append(what)

    def tell(self, step: str, done: int = 0, total: int = 0) -> None:
        """Report progress to the caller."""
        if self._progress is not None:
            self._progress(step, done, total)

    def report(self, mode: str) -> Report:
        """Return the report: its verdict is the worst one; the gravest findings come first."""
        order = [verdict for verdict in reversed(Verdict) if verdict in self._kept]
        return Report(
            worst(self._kept),
            mode,
            [finding for verdict in order for finding in self._kept[verdict]],
            self.left_off,
            dict(self.checked),
            dict(self.head),
            self.level,
            self.not_checked,
            [*kernel_tables.NOT_COVERED],
            place=self.place,
            since=self.since,
            trusted_by=self.trusted_by,
        )
