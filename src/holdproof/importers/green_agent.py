"""Import of Green Agent's `battles.db` and its DBOM folder.

Rules:
- Nothing is dropped: values without a column here (other ids, `task_title`, a text score) are in the row's `legacy`.
- Texts are imported byte for byte; hashes are checked against them, never adjusted.
- Each row gets one verdict:
  VERIFIED         its result hashes to its dbom_hash, and a DBOM of its battle_id carries that hash and its score
  DBOM_MISSING     its result hashes to its dbom_hash, and no DBOM of its battle_id was found, or none can be read
  DBOM_SUPERSEDED  the DBOM of its battle_id is that of another run: a later run has overwritten its own
  UNLINKED         no dbom_hash, or one that is not that of the result (or of a DBOM with another score)
  SCHEMA_OLD       the table is of an older schema, which linked nothing
- No signature of that time is valid: rows get `legacy_import` leaves, and their DBOMs stay UNSIGNED.
- A second import of the same rows changes nothing; one that brings their DBOMs along completes them.
"""

import errno
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from math import isfinite
from pathlib import Path
from typing import Any, Final

from holdproof.crypto import attest, dbom
from holdproof.crypto.attest import LegacySigma
from holdproof.crypto.dbom import SignedDbom
from holdproof.db import Call, Tx, Work, ask, sql
from holdproof.db.sqlite.readonly import foreign_rows
from holdproof.errors import FormatError, NotFoundError, ReadLimitError
from holdproof.evidence import dbom_files, evaluations, leaves
from holdproof.evidence.dbom_files import MAIN
from holdproof.evidence.evaluations import EVALUATIONS
from holdproof.importers import driver
from holdproof.importers.driver import Progress
from holdproof.importers.kgents import files
from holdproof.model.evaluations import Evaluation, ImportVerdict
from holdproof.model.imports import Imported, ImportedRow
from holdproof.store.context import Context

_CURRENT: Final = frozenset({"id", "battle_id", "timestamp", "score", "breakdown", "raw_result", "dbom_hash"})
_OWN: Final = ("battle_id", "timestamp", "breakdown", "raw_result", "dbom_hash")
_LONGEST_DBOM: Final = 16 << 20
_MOST_BYTES: Final = 512 << 20


@dataclass(frozen=True, slots=True)
class DbomFile:
    """A DBOM file: its exact bytes, and its content if it can be parsed."""

    path: Path
    data: bytes
    parsed: SignedDbom | None
    trouble: str = ""
    """Why it could not even be read."""

    @property
    def as_json(self) -> dict[str, str]:
        """Its form in `legacy`, for a row that it is not the DBOM of."""
        return {"file": self.path.name, **({"trouble": self.trouble} if self.trouble else {"hex": self.data.hex()})}

    @property
    def battle_id(self) -> str:
        """The battle it belongs to; only the file name tells for one that cannot be parsed."""
        return (
            self.parsed.fields.evaluation_id
            if self.parsed
            else self.path.name.removeprefix("dbom_").removesuffix(".json")
        )


@dataclass(slots=True)
class GreenAgentSource:
    """The rows and DBOM files of a Green Agent."""

    path: Path
    columns: list[str]
    rows: list[dict[str, Any]]
    boms: list[DbomFile] = field(default_factory=list)

    @property
    def old(self) -> bool:
        """Whether the table is of an older schema: columns missing, or others."""
        return not set(self.columns) >= _CURRENT or any(isinstance(row.get("id"), str) for row in self.rows)


def run(
    context: Context,
    source: str | Path,
    *,
    dboms: str | Path | None = None,
    dry_run: bool = False,
    ns: str = MAIN,
    progress: Progress | None = None,
) -> Work[Imported]:
    """Import a `battles.db`; with `dry_run` only report what each row is."""
    battles: GreenAgentSource = yield from ask(Call(lambda: load(Path(source), None if dboms is None else Path(dboms))))
    plans = list(plan_battles(battles))
    rows = yield from driver.import_units(
        plans,
        write=lambda tx, plan: [_write(tx, plan, ns)],
        preview=lambda _, plan: [plan.row("")],
        after_commit=lambda batch: _write_files(context, batch, ns),
        dry_run=dry_run,
        progress=progress,
    )
    used = {bom.path: bom for plan in plans for bom in plan.boms}
    return Imported(
        source=str(source),
        schema="old" if battles.old else "current",
        rows=rows,
        dboms_unmatched=[str(bom.path) for bom in battles.boms if bom.path not in used],
        signatures=dict(Counter(map(_signature, used.values()))),
        dry_run=dry_run,
    )


# --- reading -----------------------------------------------------------------------------------------------------


def load(source: Path, dboms: Path | None) -> GreenAgentSource:
    """Read the database and the DBOM folder, both read-only."""
    with foreign_rows(source, "battles") as (columns, rows):
        battles = GreenAgentSource(source, columns, list(_bounded(rows)))
    if dboms is None:
        return battles
    if not dboms.is_dir():
        raise NotFoundError(f"{dboms}: no such folder", path=str(dboms))
    battles.boms += [_read_dbom(path) for path in sorted(dboms.glob("dbom_*.json"))]
    return battles


def _bounded(rows: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield rows; ReadLimitError once they are too large to be compared with each other in memory."""
    size = 0
    for row in rows:
        size += 100 + sum(len(value) for value in row.values() if isinstance(value, str | bytes))
        if size > _MOST_BYTES:
            raise ReadLimitError(f"the table battles has more than {_MOST_BYTES} bytes", most=_MOST_BYTES)
        yield row


def _read_dbom(path: Path) -> DbomFile:
    """Read a file; one that cannot be read or parsed is recorded as such and does not stop the import.

    Links are not followed: their bytes would be stored as those of a DBOM. Nor are pipes and devices read.
    """
    try:
        data = files.small(path, _LONGEST_DBOM)
    except OSError as error:
        reason = "it is a link, not followed" if error.errno == errno.ELOOP else error.strerror
        return DbomFile(path, b"", None, reason or str(error))
    except FormatError as error:
        return DbomFile(path, b"", None, error.message)
    try:
        return DbomFile(path, data, dbom.parse(data))
    # A DBOM that cannot be parsed is still evidence: its bytes are imported.
    except FormatError:
        return DbomFile(path, data, None)


def _signature(bom: DbomFile) -> str:
    if bom.parsed is None:
        return "UNREADABLE"
    try:
        sigma = attest.parse_sigma(bom.parsed.sigma_judge)
    except FormatError:
        return "UNREADABLE"
    return "UNSIGNED" if isinstance(sigma, LegacySigma) else "FOREIGN"


# --- judging -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class BattlePlan:
    """What becomes of one row: the verdict, its own DBOM, and DBOMs of its battle that belong to no row."""

    values: Mapping[str, Any]
    key: str
    verdict: ImportVerdict
    note: str
    bom: DbomFile | None
    strays: tuple[DbomFile, ...]

    @property
    def boms(self) -> tuple[DbomFile, ...]:
        """Every DBOM that is imported with the row."""
        return (self.bom, *self.strays) if self.bom else self.strays

    def row(self, done: str) -> ImportedRow:
        """The outcome of the row."""
        name = _plain(self.values, "battle_id") or ""
        return ImportedRow(str(self.values.get("id", "")), name, self.verdict, done, self.note)


def plan_battles(source: GreenAgentSource) -> Iterator[BattlePlan]:
    """Plan each row, in the order of the source."""
    named: dict[Any, list[DbomFile]] = {}
    for bom in source.boms:
        named.setdefault(bom.battle_id, []).append(bom)
    candidates = [named.get(_plain(row, "battle_id"), []) for row in source.rows]
    own = [
        next((bom for bom in boms if _links(row, bom)), None) for row, boms in zip(source.rows, candidates, strict=True)
    ]
    owned = {bom.path for bom in own if bom}
    # DBOMs that match no row go with the newest run of their battle, once.
    last = {row.get("battle_id"): at for at, row in enumerate(source.rows)}
    counts: Counter[str] = Counter()
    for at, row in enumerate(source.rows):
        key = driver.fingerprint(row, counts)
        newest = last[row.get("battle_id")] == at
        strays = tuple(bom for bom in candidates[at] if newest and bom.path not in owned)
        verdict, note = _verdict(row, own[at] or next(iter(candidates[at]), None), old=source.old)
        yield BattlePlan(row, key, verdict, note, own[at], strays)


def _links(row: Mapping[str, Any], bom: DbomFile) -> bool:
    """Whether row and DBOM agree in everything: hash of the result, hash of the row, score."""
    raw = _plain(row, "raw_result")
    score = row.get("score")
    # NULL, blobs and text scores occur in old databases: they link to nothing.
    if bom.parsed is None or raw is None or not isinstance(score, int | float):
        return False
    fields = bom.parsed.fields
    return sha256(raw.encode()).hexdigest() == fields.h_delta == row.get("dbom_hash") and score == fields.score_cis


def _verdict(row: Mapping[str, Any], bom: DbomFile | None, *, old: bool) -> tuple[ImportVerdict, str]:
    digest = row.get("dbom_hash")
    raw = row.get("raw_result")
    if old:
        return "SCHEMA_OLD", "the table is of an older schema"
    if not digest or not isinstance(raw, str) or sha256(raw.encode()).hexdigest() != digest:
        return "UNLINKED", "raw_result does not hash to dbom_hash" if digest else "dbom_hash is empty"
    if bom is None or bom.trouble:
        why = f"the DBOM file cannot be read: {bom.trouble}" if bom else "no DBOM file of this battle_id"
        return "DBOM_MISSING", why
    if bom.parsed and bom.parsed.fields.h_delta != digest:
        return "DBOM_SUPERSEDED", "the DBOM file is that of another run"
    if _links(row, bom):
        return "VERIFIED", ""
    return "UNLINKED", "the DBOM has another score" if bom.parsed else "the DBOM file cannot be parsed"


# --- writing -----------------------------------------------------------------------------------------------------

_KNOWN = sql("SELECT battle_id, id FROM battles WHERE legacy_key = :key")


def _write(tx: Tx, plan: BattlePlan, ns: str) -> ImportedRow:
    """Write a new row, or add the DBOM to one that was imported before."""
    existing = tx.one(_KNOWN, key=f"{ns}/{plan.key}")
    if existing is not None:
        battle_id, id = existing
        return plan.row("completed" if plan.bom and _complete(tx, plan, battle_id, id, ns) else "known")
    values = plan.values
    score = values.get("score")
    row: dict[str, Any] = {name: _plain(values, name) for name in _OWN}
    row["battle_id"] = row["battle_id"] or ""
    row["timestamp"] = row["timestamp"] or ""
    # A score that is a text or infinite has no column; it stays in `legacy`.
    number = float(score) if isinstance(score, int | float) and isfinite(score) else None
    extra = {"score": number, "ns": ns, "dbom": plan.bom.data.decode() if plan.bom else None, "subject": None}
    row |= {**extra, "legacy": _legacy_json(plan), "legacy_key": f"{ns}/{plan.key}"}
    evaluations.add(tx, "legacy_import", row)
    return plan.row("imported")


_COMPLETE = sql(
    "UPDATE battles SET dbom = :dbom, legacy = :legacy, leaf_ver = :leaf_ver, leaf_salt = :leaf_salt"
    " WHERE id = :id AND leaf_ver = :seen"
)


def _complete(tx: Tx, plan: BattlePlan, battle_id: str, id: int, ns: str) -> bool:
    battle: Evaluation = evaluations.get(tx, battle_id, id=id, ns=ns)
    if battle.dbom is not None or plan.bom is None:
        return False
    row = evaluations.columns_of(battle)
    row |= {"dbom": plan.bom.data.decode(), "legacy": _legacy_json(plan)}
    mark = leaves.stamp(
        tx, "legacy_import", EVALUATIONS.projection, row, leaf_id=battle.leaf_id, leaf_ver=battle.leaf_ver + 1, ns=ns
    )
    changed = {"dbom": row["dbom"], "legacy": row["legacy"], "leaf_ver": mark.leaf_ver, "leaf_salt": mark.leaf_salt}
    tx.execute(_COMPLETE, id=battle.id, seen=battle.leaf_ver, **changed, expect=1)
    return True


def _legacy_json(plan: BattlePlan) -> str:
    """The column `legacy`: the verdict, and every value that the row does not hold unchanged."""
    remainder = {
        name: value
        for name, value in driver.row_as_json(plan.values).items()
        if not (name in _OWN and isinstance(value, str) and _plain(plan.values, name) == value)
        and not (name == "score" and isinstance(value, float))  # infinity is a text by now
    }
    strays = [bom.as_json for bom in plan.strays]
    facts = {"verdict": plan.verdict, "note": plan.note, "row": remainder, **({"dboms": strays} if strays else {})}
    return json.dumps(facts, sort_keys=True)


def _plain(row: Mapping[str, Any], name: str) -> str | None:
    """A column as text that both databases can store; anything else is only in `legacy`."""
    value = row.get(name)
    return value if isinstance(value, str) and "\0" not in value else None


def _write_files(context: Context, batch: Sequence[BattlePlan], ns: str) -> None:
    for battle_id in dict.fromkeys(plan.values["battle_id"] for plan in batch if plan.bom):
        if dbom_files.is_name(battle_id):
            evaluations.write_files(context, ns, battle_id)
