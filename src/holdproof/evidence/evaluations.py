"""Evaluations, each with a signed DBOM, written together.

Rules:
- Bad input is a typed error before anything is written.
- Order: text of the result, its SHA-256 (`h_delta`), the signed DBOM, one transaction (row, DBOM, leaf), then the file.
- What is hashed is stored as its exact text: `raw_result` is `json.dumps(result, sort_keys=True, allow_nan=False)`.
- A second submit for an evaluation id is a new row and a new DBOM; none is ever lost.
- The intent vector comes from the caller or the configured embedder; without either it is empty, never invented.
- The result of a labelled subject is sealed before it is hashed; breakdown and vector are inside the seal.
- Nothing is recorded of a subject that was erased since its result was sealed: no erasure would find it again.
- The judge's key is in the log before the first leaf it signed for.
"""

import builtins
import logging
import re
from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

from holdproof import paging, validation
from holdproof.content import encryption
from holdproof.crypto import attest, dbom
from holdproof.crypto.dbom import Fields
from holdproof.crypto.keys import Signer
from holdproof.db import Call, Tx, Work, Write, ask, sql
from holdproof.errors import AlreadyExistsError, InvalidInputError, NotFoundError, UnavailableError
from holdproof.evidence import dbom_files, erasable, key_use, keys, submissions
from holdproof.evidence.dbom_files import MAIN
from holdproof.evidence.erasable import Erasable, Removed
from holdproof.evidence.submissions import SEALED, Draft
from holdproof.evidence.tables import Table
from holdproof.model.evaluations import Evaluation
from holdproof.model.page import Page
from holdproof.model.times import utc
from holdproof.store.context import Context

EVALUATIONS: Final = Table(
    "battles",
    Evaluation,
    kind="dbom",
    key="id",
    logged=(
        *("id", "battle_id", "timestamp", "score", "breakdown", "raw_result", "dbom_hash"),
        *("ns", "dbom", "subject", "legacy", "legacy_key"),
    ),
    # SQLite may give a REAL column back as an integer, which would hash differently.
    loads={"score": float},
)


_NUMBERED = re.compile(r"(.+)\.([0-9]{1,18})")
_log = logging.getLogger("holdproof")


def submit(
    context: Context,
    result: Any,
    *,
    evaluation_id: str,
    score: float,
    breakdown: Any = None,
    intent: Iterable[float] | str | None = None,
    timestamp: str | None = None,
    subject: str | None = None,
    ns: str = MAIN,
) -> Work[Evaluation]:
    """Record an evaluation with its signed DBOM; `intent` is a vector, or a text for the configured embedder."""
    draft: Draft = yield from submissions.draft(
        context,
        result,
        evaluation_id=evaluation_id,
        score=score,
        breakdown=breakdown,
        intent=intent,
        timestamp=timestamp,
        ns=ns,
    )
    if subject is not None:
        plain = draft
        draft = yield from ask(Write(partial(submissions.seal, draft=plain, subject=subject)))
    # Signing happens outside the transaction. If the key turns out not to be registered, it is introduced and the
    # DBOM signed again: with another key, where another process introduced one meanwhile.
    while True:
        signer = yield from key_use.current(context, "judge")
        signed: str = yield from ask(Call(partial(sign, draft.fields, signer)))
        evaluation = yield from ask(Write(partial(_record, draft=draft, signed=signed, keyid=signer.keyid)))
        if evaluation is not None:
            break
        yield from key_use.introduce_first(context, "judge", signer)
    yield from ask(Call(partial(write_files, context, ns, evaluation_id, evaluation.id)))
    return evaluation


def sign(fields: Fields, signer: Signer) -> str:
    """Return the text of a signed DBOM, as its file will hold it."""
    return dbom.encode(attest.sign(fields, signer)).decode()


def write_files(context: Context, ns: str, evaluation_id: str, row_id: int | None = None) -> None:
    """Write an evaluation's DBOM files; one that cannot be written now is logged, and written at the next opening."""
    if (folder := dbom_files.of_store(context)) is None:
        return
    try:
        folder.publish(ns, evaluation_id, row_id)
    except UnavailableError as error:
        _log.warning("the DBOM of %s is in the database but not in its file yet: %s", evaluation_id, error)


# --- the transaction ---------------------------------------------------------------------------------------------


def _record(tx: Tx, draft: Draft, signed: str, keyid: str) -> Evaluation | None:
    """Write row, DBOM and leaf; None if the judge's key has to be introduced first."""
    if not keys.is_registered(tx, keyid, "judge"):
        return None
    _check_free(tx, draft.ns, draft.evaluation_id)
    if draft.subject is not None:  # sealed in an earlier transaction; the subject may have been erased since
        encryption.check_alive(tx, draft.subject)
    return add(
        tx,
        "dbom",
        {
            "battle_id": draft.evaluation_id,
            "timestamp": draft.timestamp,
            "score": draft.score,
            "breakdown": draft.breakdown,
            "raw_result": draft.raw_result,
            "dbom_hash": draft.fields.h_delta,
            "ns": draft.ns,
            "dbom": signed,
            "subject": draft.subject,
            "legacy": None,
            "legacy_key": None,
        },
    )


_ADD = sql(EVALUATIONS.insert())


def add(tx: Tx, kind: str, row: dict[str, Any]) -> Evaluation:
    """Write a row with its leaf; `row` has every column but the id."""
    # The id is part of what the leaf commits to, so it is chosen before the row is written.
    whole = {"id": _new_id(tx, row["ns"], row["battle_id"]), **row}
    mark = EVALUATIONS.add(tx, _ADD, whole, kind=kind)
    return EVALUATIONS.from_columns({**whole, **mark._asdict()})


# The id stands in the leaf, so it is known before the row is written. Not one that makes the name of an earlier DBOM
# file (dbom_<battle_id>.<id>.json) the name of another battle's newest (dbom_<battle_id>.json).
_NEXT_ID = sql(
    "WITH n AS (SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'battles'), 0) + 1 + :skip AS id)"
    " SELECT n.id, EXISTS (SELECT 1 FROM battles WHERE ns = :ns AND battle_id = :battle_id || '.' || n.id) FROM n",
    postgres="WITH n AS (SELECT nextval(pg_get_serial_sequence('battles', 'id')) + 0 * CAST(:skip AS BIGINT) AS id)"
    " SELECT n.id, CAST(EXISTS (SELECT 1 FROM battles WHERE ns = :ns"
    " AND battle_id = CAST(:battle_id AS TEXT) || '.' || n.id) AS INTEGER) FROM n",
)


def _new_id(tx: Tx, ns: str, evaluation_id: str) -> int:
    skip = 0
    while True:
        row = tx.one(_NEXT_ID, ns=ns, battle_id=evaluation_id, skip=skip)
        assert row is not None, "the query always has one row"
        id, is_file_name_of_another = row
        if not is_file_name_of_another:
            return int(id)
        skip += 1


_EVALUATION_OF = sql("SELECT battle_id FROM battles WHERE id = :id AND ns = :ns")


def _check_free(tx: Tx, ns: str, evaluation_id: str) -> None:
    """Refuse the one evaluation id whose file name is that of an earlier DBOM of another evaluation."""
    # `dbom_<id>.<row>.json` of one evaluation equals `dbom_<id>.json` of an evaluation called `<id>.<row>`.
    numbered = _NUMBERED.fullmatch(evaluation_id)
    if numbered and tx.all(_EVALUATION_OF, id=int(numbered[2]), ns=ns) == [(numbered[1],)]:
        what = f"an earlier DBOM of evaluation {numbered[1]} has the file name of {evaluation_id}; use another id"
        raise AlreadyExistsError(what, evaluation_id=evaluation_id)


# --- reading -----------------------------------------------------------------------------------------------------

_MATCHES: Final = (
    "WHERE id < :before AND id >= :floor AND (CAST(:ns AS TEXT) IS NULL OR ns = :ns)"
    " AND (CAST(:battle_id AS TEXT) IS NULL OR battle_id = :battle_id)"
    " AND (CAST(:text AS TEXT) = '' OR instr(lower(battle_id), lower(:text)) > 0)"
    " AND (CAST(:since AS TEXT) IS NULL OR timestamp >= :since)"
    " AND (CAST(:until AS TEXT) IS NULL OR timestamp < :until)"
    " AND (CAST(:low AS DOUBLE PRECISION) IS NULL OR score >= :low)"
    " AND (CAST(:high AS DOUBLE PRECISION) IS NULL OR score <= :high)"
    " AND (:imported = -1 OR (legacy IS NOT NULL) = (:imported = 1))"
    " ORDER BY id DESC LIMIT :limit"
)
# Of every namespace: rows are counted where they stand, which the primary key does without reading them.
_FLOOR = sql("SELECT id FROM battles WHERE id < :before ORDER BY id DESC LIMIT 1 OFFSET :most")
_MOST_LOOKED_AT: Final = 10_000
_LIST = sql(EVALUATIONS.select(_MATCHES), postgres=EVALUATIONS.select(_MATCHES.replace("instr(", "strpos(")))


def list(
    tx: Tx,
    *,
    evaluation_id: str | None = None,
    text: str = "",
    since: str | None = None,
    until: str | None = None,
    min_score: float | None = None,
    max_score: float | None = None,
    imported: bool | None = None,
    ns: str | None = MAIN,
    cursor: str | None = None,
    limit: int = 100,
) -> Page[Evaluation]:
    """List evaluations, the newest first; `ns=None` lists those of every namespace.

    `text` is a part of an evaluation's id, in any case; a search by it looks at ten thousand evaluations at a time, so
    that a page may have fewer than `limit`, and a `next_cursor` that goes on. `since` and `until` compare with the
    evaluation's own timestamp: a date or a time, `until` excluded.
    """
    row = tx.one(_FLOOR, before=paging.last_id(cursor), most=_MOST_LOOKED_AT) if text else None
    (floor,) = row or (0,)
    page = EVALUATIONS.page(
        tx,
        _LIST,
        cursor,
        limit,
        floor=floor,
        ns=ns,
        battle_id=evaluation_id,
        text=validation.words("text", text),
        since=_moment("since", since),
        until=_moment("until", until),
        low=min_score,
        high=max_score,
        imported=-1 if imported is None else int(imported),
    )
    return replace(page, next_cursor=paging.encode(floor)) if floor and page.next_cursor is None else page


_WALK = sql(
    EVALUATIONS.select(
        "WHERE id > :after AND ns = :ns"
        " AND (CAST(:battle_id AS TEXT) IS NULL OR battle_id = :battle_id) ORDER BY id LIMIT :limit"
    )
)


def walk(
    tx: Tx, *, after: int = 0, limit: int, evaluation_id: str | None = None, ns: str = MAIN
) -> builtins.list[Evaluation]:
    """Return the next evaluations after a row id, the oldest first: for work that passes over all of them."""
    return EVALUATIONS.all(tx, _WALK, after=after, ns=ns, battle_id=evaluation_id, limit=limit)


def _moment(name: str, text: str | None) -> str | None:
    """Check a date or a time to compare with; one without a zone is used as it is: imported rows have none either."""
    try:
        return text if text is None or datetime.fromisoformat(text).tzinfo is None else utc(text)
    except ValueError as error:
        raise InvalidInputError(f"{name} is a date or a time, as in 2026-01-31T12:00:00Z", **{name: text}) from error


_NEWEST = sql(EVALUATIONS.select("WHERE ns = :ns AND battle_id = :battle_id ORDER BY id DESC LIMIT 1"))
_GET = sql(EVALUATIONS.select("WHERE ns = :ns AND battle_id = :battle_id AND id = :id"))


def get(tx: Tx, evaluation_id: str, *, id: int | None = None, ns: str = MAIN) -> Evaluation:
    """Return the newest row of an evaluation, or the one with that row id; NotFoundError if there is none."""
    columns = {"ns": ns, "battle_id": evaluation_id}
    query = _NEWEST if id is None else _GET
    evaluation = EVALUATIONS.find(tx, query, **columns, id=id)
    if evaluation is None:
        raise NotFoundError(
            f"there is no evaluation {evaluation_id!r}",
            listed_by="evaluations list",
            evaluation_id=evaluation_id,
            id=id,
        )
    return evaluation


def columns_of(evaluation: Evaluation) -> dict[str, Any]:
    """Return the columns that an evaluation's leaf commits to; the table calls the id `battle_id`."""
    names = {"battle_id": "evaluation_id"}
    return {column: getattr(evaluation, names.get(column, column)) for column in EVALUATIONS.projection.columns}


def reveal(tx: Tx, evaluation_id: str, *, id: int | None = None, ns: str = MAIN) -> Any:
    """Return the result as it was submitted; a sealed one needs its subject's key (ErasedError once that is gone)."""
    evaluation = get(tx, evaluation_id, id=id, ns=ns)
    if evaluation.raw_result is None or not evaluation.raw_result.startswith(SEALED):
        return evaluation.result
    return submissions.unseal(tx, evaluation.raw_result)["result"]


# --- erasing -----------------------------------------------------------------------------------------------------

_LABELLED = sql("SELECT id FROM battles WHERE subject = :subject ORDER BY id")
_AT_LEAF = sql("SELECT id FROM battles WHERE leaf_id = :leaf_id")
_WHERE = sql("SELECT ns, battle_id, leaf_id, leaf_ver FROM battles WHERE id = :id")
_DELETE = sql("DELETE FROM battles WHERE id = :id")


def _labelled(tx: Tx, handle: str) -> builtins.list[str]:
    return [str(id) for (id,) in tx.all(_LABELLED, subject=handle)]


def _at(tx: Tx, leaf_id: str) -> str | None:
    row = tx.one(_AT_LEAF, leaf_id=leaf_id)
    return str(*row) if row else None


def _remove(tx: Tx, key: str) -> Removed | None:
    """Delete a row and return the files to remove: its own, and one whose name another DBOM takes over."""
    row = tx.one(_WHERE, id=int(key))
    if row is None:
        return None
    ns, evaluation_id, leaf_id, leaf_ver = row
    before = dbom_files.due(tx, ns, evaluation_id)
    tx.execute(_DELETE, id=int(key), expect=1)
    after = dbom_files.due(tx, ns, evaluation_id)
    files = [str(dbom_files.folder_of(Path("dboms"), ns) / each.name) for each in before if each not in after]
    return Removed(leaf_id, leaf_ver, tuple(files))


erasable.register(
    Erasable(
        "battles",
        find=_labelled,
        at=_at,
        remove=_remove,
    )
)
