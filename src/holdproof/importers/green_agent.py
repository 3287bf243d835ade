"""Green Agent's `battles.db` and its DBOM folder, taken over as they are.

Rules:
- Nothing is dropped: what has no column here (other ids, `task_title`, a text score) is kept in the row's `legacy`.
- Texts are taken over byte for byte; hashes are checked against them, never made to fit.
- Each row gets one verdict:
  VERIFIED         its result hashes to its dbom_hash, and a DBOM of its battle_id carries that hash and its score
  DBOM_MISSING     its result hashes to its dbom_hash, and no DBOM of its battle_id was found, or none can be read
  DBOM_SUPERSEDED  the DBOM of its battle_id is that of another run: a later run has written over its own
  UNLINKED         no dbom_hash, or one that is not that of the result (or of a DBOM with another score)
  SCHEMA_OLD       the table is of an older schema, which linked nothing
- No signature of that time is valid: rows get `legacy_import` leaves, and their DBOMs are UNSIGNED for ever.
- A second import of the same rows changes nothing; one that brings their DBOMs along completes them.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import islice
from math import isfinite
from pathlib import Path
from typing import Any, Final

from holdproof.crypto import attest, dbom
from holdproof.crypto.attest import LegacySigma
from holdproof.crypto.dbom import Dbom
from holdproof.db import Call, Tx, Work, Write, ask, sql
from holdproof.db.sqlite.readonly import foreign_rows
from holdproof.errors import FormatError, NotFoundError
from holdproof.evidence import dbom_files, evaluations, leaves
from holdproof.evidence.dbom_files import MAIN
from holdproof.evidence.evaluations import EVALUATIONS
from holdproof.importers import lossless
from holdproof.model.evaluations import Evaluation, ImportVerdict
from holdproof.model.imports import Imported, ImportedRow
from holdproof.store.context import Context

Progress = Callable[[int, int], None]
"""Told how many rows are done, of how many."""

_CURRENT: Final = frozenset({"id", "battle_id", "timestamp", "score", "breakdown", "raw_result", "dbom_hash"})
_OWN: Final = ("battle_id", "timestamp", "breakdown", "raw_result", "dbom_hash")
_BATCH: Final = 200


@dataclass(frozen=True, slots=True)
class Found:
    """A DBOM file: its exact bytes, and what it says if it can be understood."""

    path: Path
    data: bytes
    parsed: Dbom | None
    trouble: str = ""
    """Why it could not even be read."""

    @property
    def kept(self) -> dict[str, str]:
        """How it is kept beside a row that it is not the DBOM of."""
        return {"file": self.path.name, **({"trouble": self.trouble} if self.trouble else {"hex": self.data.hex()})}

    @property
    def battle_id(self) -> str:
        """The battle it is of; of one that cannot be understood only the file name tells."""
        return (
            self.parsed.fields.evaluation_id
            if self.parsed
            else self.path.name.removeprefix("dbom_").removesuffix(".json")
        )


@dataclass(slots=True)
class Source:
    """Everything that was read of a Green Agent."""

    path: Path
    columns: list[str]
    rows: list[dict[str, Any]]
    boms: list[Found] = field(default_factory=list)

    @property
    def old(self) -> bool:
        """Whether the table is of an older schema: columns missing, or others."""
        return not set(self.columns) >= _CURRENT or any(isinstance(row.get("id"), str) for row in self.rows)


def run(
    context: Context,
    source: Path,
    *,
    dboms: Path | None = None,
    dry_run: bool = False,
    ns: str = MAIN,
    progress: Progress | None = None,
) -> Work[Imported]:
    """Import a `battles.db`; with `dry_run` only say what each row is."""
    found: Source = yield from ask(Call(lambda: load(source, dboms)))
    plans = list(judge(found))
    done: list[ImportedRow] = []
    walk = iter(plans)
    while batch := list(islice(walk, _BATCH)):
        if dry_run:
            done += [plan.row("") for plan in batch]
        else:
            done += yield from ask(Write(lambda tx, b=batch: [_take(tx, plan, ns) for plan in b]))  # type: ignore[misc]
            yield from ask(Call(lambda b=batch: _file(context, b, ns)))  # type: ignore[misc]
        if progress is not None:
            progress(len(done), len(plans))
    used = {bom.path: bom for plan in plans for bom in plan.boms}
    return Imported(
        source=str(source),
        schema="old" if found.old else "current",
        rows=done,
        dboms_unmatched=[str(bom.path) for bom in found.boms if bom.path not in used],
        signatures=dict(Counter(map(_signature, used.values()))),
        dry_run=dry_run,
    )


# --- reading -----------------------------------------------------------------------------------------------------


def load(source: Path, dboms: Path | None) -> Source:
    """Read the database and the DBOM folder; neither is touched."""
    with foreign_rows(source, "battles") as (columns, rows):
        found = Source(source, columns, list(rows))
    if dboms is None:
        return found
    if not dboms.is_dir():
        raise NotFoundError(f"{dboms}: no such folder", path=str(dboms))
    found.boms += [_found(path) for path in sorted(dboms.glob("dbom_*.json"))]
    return found


def _found(path: Path) -> Found:
    """A file as it is, however large: one that cannot be read or understood is kept as such, and stops nobody."""
    try:
        data = path.read_bytes()
    except OSError as error:
        return Found(path, b"", None, error.strerror or str(error))
    try:
        return Found(path, data, dbom.parse(data))
    except FormatError:
        return Found(path, data, None)


def _signature(bom: Found) -> str:
    if bom.parsed is None:
        return "UNREADABLE"
    try:
        sigma = attest.parse_sigma(bom.parsed.sigma_judge)
    except FormatError:
        return "UNREADABLE"
    return "UNSIGNED" if isinstance(sigma, LegacySigma) else "FOREIGN"


# --- judging -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Plan:
    """What becomes of one row: the verdict, the DBOM that is its own, and those of its battle that are nobody's."""

    values: Mapping[str, Any]
    key: str
    verdict: ImportVerdict
    note: str
    bom: Found | None
    strays: tuple[Found, ...]

    @property
    def boms(self) -> tuple[Found, ...]:
        """Every DBOM that is taken over with the row."""
        return (self.bom, *self.strays) if self.bom else self.strays

    def row(self, done: str) -> ImportedRow:
        """The plan as the outcome tells it."""
        name = _plain(self.values, "battle_id") or ""
        return ImportedRow(str(self.values.get("id", "")), name, self.verdict, done, self.note)


def judge(source: Source) -> Iterator[Plan]:
    """One plan a row, in the order of the source."""
    named: dict[Any, list[Found]] = {}
    for bom in source.boms:
        named.setdefault(bom.battle_id, []).append(bom)
    found = [named.get(_plain(row, "battle_id"), []) for row in source.rows]
    own = [next((bom for bom in boms if _links(row, bom)), None) for row, boms in zip(source.rows, found, strict=True)]
    owned = {bom.path for bom in own if bom}
    last = {row.get("battle_id"): place for place, row in enumerate(source.rows)}
    seen: Counter[str] = Counter()
    for place, row in enumerate(source.rows):
        key = lossless.fingerprint(row, seen)
        newest = last[row.get("battle_id")] == place
        strays = tuple(bom for bom in found[place] if newest and bom.path not in owned)
        verdict, note = _verdict(row, own[place] or next(iter(found[place]), None), old=source.old)
        yield Plan(row, key, verdict, note, own[place], strays)


def _links(row: Mapping[str, Any], bom: Found) -> bool:
    """Whether row and DBOM agree in everything: hash of the result, hash of the row, score."""
    raw, score = _plain(row, "raw_result"), row.get("score")
    if bom.parsed is None or raw is None or not isinstance(score, int | float):
        return False
    fields = bom.parsed.fields
    return sha256(raw.encode()).hexdigest() == fields.h_delta == row.get("dbom_hash") and score == fields.score_cis


def _verdict(row: Mapping[str, Any], bom: Found | None, *, old: bool) -> tuple[ImportVerdict, str]:
    digest, raw = row.get("dbom_hash"), row.get("raw_result")
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
    return "UNLINKED", "the DBOM has another score" if bom.parsed else "the DBOM file cannot be understood"


# --- writing -----------------------------------------------------------------------------------------------------

_KNOWN = sql("SELECT battle_id, id FROM battles WHERE legacy_key = :key")


def _take(tx: Tx, plan: Plan, ns: str) -> ImportedRow:
    """Write a row that is not there yet, or add the DBOM to one that is."""
    known = tx.one(_KNOWN, key=f"{ns}/{plan.key}")
    if known is not None:
        return plan.row("completed" if plan.bom and _complete(tx, plan, known, ns) else "known")
    values = plan.values
    score = values.get("score")
    row = {name: _plain(values, name) for name in _OWN}
    row["battle_id"], row["timestamp"] = row["battle_id"] or "", row["timestamp"] or ""
    number = float(score) if isinstance(score, int | float) and isfinite(score) else None
    extra = {"score": number, "ns": ns, "dbom": plan.bom.data.decode() if plan.bom else None, "subject": None}
    evaluations.add(tx, "legacy_import", {**row, **extra, "legacy": _facts(plan), "legacy_key": f"{ns}/{plan.key}"})
    return plan.row("imported")


_COMPLETE = sql(
    "UPDATE battles SET dbom = :dbom, legacy = :legacy, leaf_ver = :leaf_ver, leaf_salt = :leaf_salt"
    " WHERE id = :id AND leaf_ver = :seen"
)


def _complete(tx: Tx, plan: Plan, known: tuple[Any, ...], ns: str) -> bool:
    battle: Evaluation = evaluations.get(tx, known[0], id=known[1], ns=ns)
    if battle.dbom is not None or plan.bom is None:
        return False
    row = evaluations.columns_of(battle)
    row |= {"dbom": plan.bom.data.decode(), "legacy": _facts(plan)}
    mark = leaves.stamp(
        tx, "legacy_import", EVALUATIONS, row, leaf_id=battle.leaf_id, leaf_ver=battle.leaf_ver + 1, ns=ns
    )
    changed = {"dbom": row["dbom"], "legacy": row["legacy"], "leaf_ver": mark.leaf_ver, "leaf_salt": mark.leaf_salt}
    tx.execute(_COMPLETE, id=battle.id, seen=battle.leaf_ver, **changed, expect=1)
    return True


def _facts(plan: Plan) -> str:
    """What has no column: the verdict, and every value that is not in the row as it was."""
    kept = {
        name: value
        for name, value in lossless.row(plan.values).items()
        if not (name in _OWN and isinstance(value, str) and _plain(plan.values, name) == value)
        and not (name == "score" and isinstance(value, float))  # infinity has become a text by now
    }
    strays = [bom.kept for bom in plan.strays]
    facts = {"verdict": plan.verdict, "note": plan.note, "row": kept, **({"dboms": strays} if strays else {})}
    return json.dumps(facts, sort_keys=True)


def _plain(row: Mapping[str, Any], name: str) -> str | None:
    """A column as text both databases can hold; anything else stays in `legacy` alone."""
    value = row.get(name)
    return value if isinstance(value, str) and "\0" not in value else None


def _file(context: Context, batch: list[Plan], ns: str) -> None:
    for battle_id in dict.fromkeys(plan.values["battle_id"] for plan in batch if plan.bom):
        if dbom_files.is_name(battle_id):
            evaluations.write_files(context, ns, battle_id)
