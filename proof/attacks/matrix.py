"""The attack matrix: what an attack is, what came of it, and whether that was expected."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any, Final

from harness.filling import submit
from holdproof import errors, sync
from holdproof.model.verdicts import Verdict, worst
from holdproof.model.verify import Report
from proof.attacks.attacked_store import Place

ROWS: Final = "the database"
FILES: Final = "files of the store"
LOG_KEY: Final = "the database and the log key"
MACHINE: Final = "the whole machine: database, files, keys"
CARRIER: Final = "what was handed out: a bundle, a backup, an image, an archive"
SKILLS: Final = "skill files"
SKILLS_ROWS: Final = "skill files and the database"

PLAIN, FULL = "verify", "verify --full"
OPENING, LOADING, STRANGER, WITNESS = "opening", "loading", "a stranger", "a witness"
NOTHING: Final = "nothing"
REFUSED: Final = "REFUSED"


@dataclass(frozen=True, slots=True)
class Got:
    """What came of an attack: the verdict, the exit code, whether writes are refused now, who noticed and how."""

    verdict: str
    exit_code: int
    locked: bool
    found_by: str
    detector: str


@dataclass(frozen=True, slots=True)
class Attack:
    """A tampering by name: what the attacker has, what is done, and what has to come of it.

    `act` does it; where something else than verification notices, it says what it got.
    """

    area: str
    name: str
    has: str
    act: Callable[[Place], Got | None]
    expected: tuple[str, ...] = ("TAMPERED",)
    by: tuple[str, ...] = (PLAIN,)
    names: str = ""
    """The table that a finding has to name."""
    locks: bool | None = True
    """Whether writes are refused afterwards; None where that is not asked."""
    shares: bool = False
    """Whether it must not touch the database at all, so that no copy of that is made."""
    design: str = ""
    """Why it cannot be seen, where it cannot: docs/threat-model.md says the same."""


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the matrix."""

    area: str
    attack: str
    database: str
    attacker_has: str
    expected: str
    got: str
    exit_code: int
    locked: bool
    found_by: str
    detector: str
    by_design: str
    holds: bool

    def to_dict(self) -> dict[str, Any]:
        """The row as it is kept."""
        return asdict(self)


def judge(attack: Attack, place: Place) -> Row:
    """Do it, and see what is noticed."""
    return judged(attack, place, attack.act(place) or examine(place, attack.names))


def judged(attack: Attack, place: Place, got: Got) -> Row:
    """What was got beside what was expected."""
    holds = got.verdict.split()[0] in attack.expected and got.found_by in attack.by
    holds = holds and (attack.locks is None or attack.locks == got.locked)
    if attack.names and not got.verdict.startswith(REFUSED):
        holds = holds and attack.names in got.detector.partition(":")[0]
    return Row(
        attack.area,
        attack.name,
        place.database,
        attack.has,
        " or ".join(attack.expected),
        got.verdict,
        got.exit_code,
        got.locked,
        got.found_by,
        got.detector.replace(f"{place.folder}/", ""),
        attack.design,
        holds,
    )


def together(attacks: list[Attack], place: Place) -> list[Row | None]:
    """Attacks on different tables, done at once and verified once; None for one whose table no finding names."""
    for attack in attacks:
        attack.act(place)
    try:
        report = sync.verify(place.home, place.url, lock=True)
    except errors.HoldproofError:
        return [None] * len(attacks)
    locked, grave = is_locked(place), {each.table: each for each in reversed(report.findings) if each.verdict.locks}
    return [
        judged(
            attack,
            place,
            Got(
                grave[attack.names].verdict.word,
                grave[attack.names].verdict.exit_code,
                locked,
                PLAIN,
                f"{attack.names}: {grave[attack.names].what}"[:200],
            ),
        )
        if attack.names in grave
        else None
        for attack in attacks
    ]


def examine(place: Place, names: str = "") -> Got:
    """Verify the store as its owner would, plainly and then in full, and try to write where it was locked."""
    for full, by in ((False, PLAIN), (True, FULL)):
        try:
            report = sync.verify(place.home, place.url, full=full, lock=True)
        except errors.HoldproofError as error:
            return refused(error, OPENING)
        if not report.verdict.sound:
            return Got(report.verdict.word, report.verdict.exit_code, is_locked(place), by, gravest(report, names))
    return Got(Verdict.VALID.word, 0, False, NOTHING, "")


def gravest(report: Report, names: str = "") -> str:
    """The finding that says most: of the table that was attacked, if there is one, else the gravest."""
    verdict = worst(each.verdict for each in report.findings)
    ordered = sorted(report.findings, key=lambda each: (each.table != names or not names, each.verdict != verdict))
    first = ordered[0]
    where = first.table or (first.file and first.file.rpartition("/")[2]) or "?"
    return f"{where}: {first.what}"[:200]


def refused(error: errors.HoldproofError, by: str, *, locked: bool = False) -> Got:
    """A typed error is an answer too."""
    return Got(f"{REFUSED} {error.code}", error.exit_code, locked, by, f"{type(error).__name__}: {error.message}"[:200])


def is_locked(place: Place) -> bool:
    """Whether a write is refused, by trying one."""
    try:
        with place.open() as store:
            submit(store, "while locked", 0.5)
    except errors.LockedError:
        return True
    except errors.HoldproofError:
        return (place.home / "state" / "lockdown.json").exists()  # too damaged to open: the flag is what is left
    return False
