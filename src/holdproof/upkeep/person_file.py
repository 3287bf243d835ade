"""A person's file: everything that the store holds about one subject, in one zip, with proofs.

    report.html     all of it, to read; nothing is loaded from elsewhere, and no script runs
    person.json     the same for programs: a section for each table or resource, content decrypted
    proofs.json     for each row under the log its entry and its path to the signed head; the row itself where it names
                    nobody else

Rules:
- What belongs to the subject is found by the subject's handle, in every table with such a column, and in every table
  whose rows belong to a flow of the subject: a table that is added later is in the file without a change here.
- Names of other people stand as `another person 1`, the same number throughout. A row that names one is proven to
  exist, by its entry, and not shown in the proofs: no byte of it can be changed without breaking the proof.
- Who was given the subject's content is in it too, by kind and moment.
- Rows are read in one snapshot, in which each is compared with its entry; a row that disagrees ends the export.
- The export leaves an access entry, which names the subject by handle.
"""

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final

from holdproof.content import encryption
from holdproof.db import OPENED, Access, Read, Row, Tx, Work, Write, ask, call, sql
from holdproof.errors import ErasedError, FormatError, InvalidInputError, LockedError, NotFoundError, ReadOnlyError
from holdproof.evidence import accesses, submissions, tree, trust
from holdproof.memory.objects import objects, records
from holdproof.model.access import ROLES
from holdproof.model.namespaces import MAIN
from holdproof.runtime import recorded
from holdproof.store.context import Context
from holdproof.upkeep import bundle, kernel_tables, person_page, subject_stores
from holdproof.upkeep.verification import offline

VERSION: Final = 1
MOST_ROWS: Final = 20_000
"""How many rows of one table a file has at most; more must be taken as bundles of their flows."""

_PEOPLE_COLUMNS: Final = frozenset({"created_by_id", "person", "seat", "who"})
"""Columns that name people; so does each whose name ends with `_by`."""
_AUTHORS: Final = ("by", "recorded_by")
"""Who is named in the detail of an event."""
_NOT_PEOPLE: Final = frozenset({"agent", "anonymous", "deadline", "kernel", "operator"})
_NO_PERSONS: Final = frozenset({"agent", "flow", "kernel", "schedule"})
"""Types of callers that are nobody: `flow:…` sent a message, `schedule` created a flow."""
_SECRETS: Final = frozenset({("subjects", "key"), ("subjects", "name_hash"), ("flow_leases", "token")})
"""What never leaves the store: with the key of a subject every copy could be read that an erasure makes unreadable."""
Rows = list[dict[str, Any]]


def export(context: Context, subject: str, *, who: str = "operator", ns: str = MAIN) -> Work[bytes]:
    """Return everything about one subject as the bytes of a zip: a page to read, JSON, and proofs; others are redacted.

    NotFoundError for a subject that is unknown or was erased, and while a row is not under a signed head yet.
    """
    handle: str | None = yield from ask(Read(partial(encryption.find, subject=subject, ns=ns), long=True))
    labelled = (yield from call(subject_stores.rows, context, subject)) if ns == MAIN else {}
    if handle is None and labelled:
        # Only blobs and sessions are theirs: entries name their label, as those of erasures do.
        [label, *_] = yield from call(subject_stores.find, context, subject)
        handle = subject_stores.target(label.handle)
    if handle is None:
        raise subject_stores.unknown()
    collected: _Collected = yield from ask(Read(partial(_collect, handle=handle, ns=ns), long=True))
    collected.sections.update(labelled)
    redaction = Redaction(collected.people - {subject})
    signed = yield from trust.trust(context)
    yield from _record_access(context, Access("export", who, "bundle.person", handle, ns))
    sections = {name: redaction.rows(rows) for name, rows in sorted(collected.sections.items()) if rows}
    about = {"v": VERSION, "subject": handle, "ns": ns, "made_at": collected.made_at, "sections": sections}
    text = json.dumps(about, ensure_ascii=False, indent=1, default=str)
    proofs = [_shown(each, redaction) for each in collected.proofs]
    members = {
        "report.html": person_page.render(subject, json.loads(text)).encode(errors="backslashreplace"),
        "person.json": text.encode(errors="backslashreplace"),
        "proofs.json": json.dumps(
            {"v": VERSION, "head": collected.head, "trust": signed.text, "records": proofs}
        ).encode(),
    }
    packed = bundle.pack(members)
    offline.refuse_large(members, packed)
    return packed


def _record_access(context: Context, access: Access) -> Work[None]:
    """Record the export; a store that takes no writes gives the file all the same, as it gives content."""
    if context.database.hooks.accesses is None:
        return
    try:
        yield from ask(Write(partial(accesses.record, access=access)))
    except (LockedError, ReadOnlyError):
        return


class _Collected:
    """What one snapshot says of a subject."""

    def __init__(self, tx: Tx) -> None:
        self.sections: dict[str, Rows] = {}
        self.proofs: list[dict[str, str]] = []
        self.people: set[str] = set()
        self.made_at = tx.now
        self.head = tree.state(tx).head

    def add(self, tx: Tx, table: str, rows: Rows, handle: str) -> None:
        """Add rows of a table as a reader wants them, and the people that they name."""
        opened = [{name: _opened(tx, value, handle) for name, value in row.items()} for row in rows]
        for row in opened:
            self.people |= _people(row)
        self.sections[table] = opened


# --- what belongs to a subject -------------------------------------------------------------------------------------

_FLOWS: Final = "SELECT dfid FROM decision_flows WHERE subject = :handle AND ns = :ns"


def _condition(columns: tuple[str, ...], table: str) -> str | None:
    """Return which rows of a table under the log are a subject's; None for a table that has none."""
    if table == "accesses":
        return "target = :handle AND ns = :ns"
    if table == "subjects":
        return "handle = :handle"
    if "subject" in columns:
        return "subject = :handle AND ns = :ns"
    if {"dfid", "ns"} <= {*columns}:
        return f"ns = :ns AND dfid IN ({_FLOWS})"
    return None


_LEAF: Final = frozenset({"leaf_id", "leaf_ver", "leaf_salt"})
_ALL: Final = {
    name: tuple(dict.fromkeys((*each.columns, *(column for column in each.coverage if column not in _LEAF))))
    for name, each in kernel_tables.LOGGED.items()
}
_COLUMNS: Final = {
    name: tuple(column for column in columns if (name, column) not in _SECRETS) for name, columns in _ALL.items()
}
"""Every column of the tables under the log, also those that no entry covers, without secrets."""
_LOGGED: Final = {
    name: sql(
        f"SELECT {', '.join(_COLUMNS[name])} FROM {name} WHERE {condition} ORDER BY {each.key} LIMIT :limit"  # noqa: S608
    )
    for name, each in kernel_tables.LOGGED.items()
    if (condition := _condition(each.columns, name)) is not None
}
_UNLOGGED_COLUMNS: Final = {
    name: tuple(column for column in columns if (name, column) not in _SECRETS)
    for name, columns in kernel_tables.UNLOGGED.items()
    if {"dfid", "ns"} <= {*columns}
}
_UNLOGGED: Final = {
    name: sql(
        f"SELECT {', '.join(columns)} FROM {name} WHERE ns = :ns AND dfid IN ({_FLOWS})"  # noqa: S608
        " ORDER BY dfid LIMIT :limit"
    )
    for name, columns in _UNLOGGED_COLUMNS.items()
}
_PEOPLE = sql("SELECT name FROM people WHERE ns = :ns")
_NOTES_COLUMNS: Final = ("path", "key", "value", "created_at", "updated_at")
_NOTES = sql(
    "SELECT path, key, value, created_at, updated_at FROM notes WHERE subject = :handle AND ns = :ns"
    " ORDER BY n LIMIT :limit"
)
_ITEMS_COLUMNS: Final = ("transcript", "state", "seq", "body", "created_at", "updated_at")
_ITEMS = sql(
    "SELECT t.name, t.state, i.seq, i.body, t.created_at, t.updated_at FROM transcripts t"
    " LEFT JOIN transcript_items i ON i.transcript = t.n WHERE t.subject = :handle AND t.ns = :ns"
    " ORDER BY t.n, i.seq LIMIT :limit"
)
# By what was sealed, not by what is there now: earlier versions are a person's too, and so are deleted objects.
_VERSIONS = sql(
    "SELECT v.key, v.n, v.at, v.pruned_at FROM object_versions v JOIN sealed_blocks b ON b.cid = v.cid"
    " WHERE b.subject = :handle AND v.ns = :ns ORDER BY v.key, v.n LIMIT :limit"
)


def _collect(tx: Tx, *, handle: str, ns: str) -> _Collected:
    """Read everything of a subject in the kernel, and prove what is under the log."""
    collected = _Collected(tx)
    # Approvers, reminders and delegations name people who never answered.
    collected.people |= {name for (name,) in tx.all(_PEOPLE, ns=ns)}
    bounds = {"handle": handle, "ns": ns, "limit": MOST_ROWS + 1}
    for table, query in _LOGGED.items():
        logged = kernel_tables.LOGGED[table]
        rows = [dict(zip(_COLUMNS[table], row, strict=True)) for row in _bounded(tx.all(query, **bounds), table)]
        for row in rows:
            collected.proofs.append(_proof(tx, table, row[logged.key], str(row.get("ns", MAIN))))
        collected.add(tx, table, rows, handle)
    unlogged = ((name, _UNLOGGED_COLUMNS[name], query) for name, query in _UNLOGGED.items())
    for table, columns, query in (
        *unlogged,
        ("notes", _NOTES_COLUMNS, _NOTES),
        ("transcripts", _ITEMS_COLUMNS, _ITEMS),
    ):
        rows = [dict(zip(columns, row, strict=True)) for row in _bounded(tx.all(query, **bounds), table)]
        collected.add(tx, table, rows, handle)
    versions = _bounded(tx.all(_VERSIONS, **bounds), "objects")
    collected.sections["objects"] = [_version(tx, *row, ns=ns) for row in versions]
    return collected


def _bounded(rows: list[Row], table: str) -> list[Row]:
    if len(rows) > MOST_ROWS:
        raise InvalidInputError(
            f"{table} has more than {MOST_ROWS} rows of this subject: export its flows one by one"
            " (`holdproof export bundle FLOW --kind flow`)",
            table=table,
        )
    return rows


def _version(tx: Tx, key: str, number: int, at: str, pruned_at: str | None, *, ns: str) -> dict[str, Any]:
    """Return one version of an object, as it was put; without content where retention removed that."""
    about: dict[str, Any] = {"id": records.id_of(key), "n": number, "at": at, "pruned_at": pruned_at}
    if pruned_at is not None:
        return about
    version = objects.get(tx, about["id"], version=number, ns=ns)
    # What is volatile about an object is kept for the newest version only.
    with suppress(NotFoundError):
        newest = objects.get(tx, about["id"], ns=ns)
        version = replace(version, meta=newest.meta) if newest.cid == version.cid else version
    return {
        **about,
        "type": version.type,
        "content": version.content,
        "attributes": version.attributes,
        "meta": version.meta,
    }


def _people(row: Mapping[str, Any]) -> set[str]:
    """Return the people that a row names in its columns, and as author in its detail."""
    # The creator of a flow is a person only where it says so.
    if str(row.get("created_by_type")).lower() in _NO_PERSONS:
        row = {name: value for name, value in row.items() if name != "created_by_id"}
    columns = {name for name in row if name in _PEOPLE_COLUMNS or name.endswith("_by")}
    values = [row[name] for name in columns]
    detail = row.get("detail_json")
    if isinstance(detail, dict):
        values += [detail.get(name) for name in _AUTHORS]
    return {_person(value) for value in values if isinstance(value, str)} - _NOT_PEOPLE - {""}


def _person(caller: str) -> str:
    """Return the name of a caller, without the role that a server puts before it; "" for what is no person."""
    role, colon, name = caller.partition(":")
    if colon and role in _NO_PERSONS:
        return ""
    return name if colon and role in ROLES else caller


def _opened(tx: Tx, value: Any, handle: str) -> Any:
    """Return a column as a reader wants it: what is sealed for this subject decrypted, JSON parsed.

    What is sealed for somebody else stays as it is stored: a caller may write it into a column that is in clear.
    """
    if not isinstance(value, str):
        return value.hex() if isinstance(value, bytes) else value
    if not value.startswith(_OPENED_MARKS):
        return value
    before = tx.take(OPENED)
    try:
        content = _content(tx, value)
    except NotFoundError as error:
        if error.fields.get("subject") == handle:
            raise
        content = value
    except _UNREADABLE:
        content = value
    opened = tx.take(OPENED)
    for each in before | (opened & {handle}):
        tx.note(OPENED, each)
    return content if opened <= {handle} else value


_OPENED_MARKS: Final = ("{", "[", '"', submissions.SEALED)
"""How texts begin that are decrypted or parsed."""
_UNREADABLE: Final = (ErasedError, FormatError, AssertionError, KeyError, RecursionError, TypeError, ValueError)
"""What texts raise that only begin like sealed content or JSON."""


def _content(tx: Tx, value: str) -> Any:
    if value.startswith(submissions.SEALED):
        return submissions.unseal(tx, value)
    return recorded.resolve(tx, json.loads(value))


def _proof(tx: Tx, table: str, key: str | int, ns: str) -> dict[str, str]:
    entry, files, _ = bundle.prove_row(tx, table, key, ns)
    return {
        "table": table,
        "content": files[".json"].decode(),
        "salt": str(entry["salt"]),
        "entry": files[".leaf.json"].decode(),
        "proof": files[".tlog-proof"].decode(),
    }


def _shown(proof: Mapping[str, str], redaction: "Redaction") -> dict[str, str]:
    """Return a proof without the row and its salt where the row names somebody else."""
    if redaction.apply(proof["content"]) == proof["content"]:
        return dict(proof)
    return {name: proof[name] for name in ("table", "entry", "proof")}


# --- others --------------------------------------------------------------------------------------------------------


class Redaction:
    """Replaces the names of other people, the same name always by the same words."""

    def __init__(self, names: set[str]) -> None:
        self._words = {name: f"another person {number}" for number, name in enumerate(sorted(names), 1)}
        # The longest first: a name may begin with another.
        listed = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
        self._pattern = re.compile(rf"(?<!\w)(?:{listed})(?!\w)") if names else None

    def rows(self, rows: Rows) -> Rows:
        """Return rows without those names; columns keep theirs."""
        return [{column: self.apply(value) for column, value in row.items()} for row in rows]

    def apply(self, value: Any) -> Any:
        """Return a value with no name of another person in any of its texts."""
        if self._pattern is None:
            return value
        if isinstance(value, str):
            return self._text(value, self._pattern)
        if isinstance(value, Mapping):
            return {self.apply(name): self.apply(each) for name, each in value.items()}
        if isinstance(value, list | tuple):
            return [self.apply(each) for each in value]
        return value

    def _text(self, text: str, pattern: re.Pattern[str]) -> str:
        # In JSON a name may be escaped, or follow an escape: it is found in what the JSON says.
        if text.startswith(("{", "[", '"')):
            with suppress(ValueError, RecursionError):
                parsed = json.loads(text)
                redacted = self.apply(parsed)
                return text if redacted == parsed else json.dumps(redacted, ensure_ascii=False, separators=(",", ":"))
        return pattern.sub(lambda match: self._words[match[0]], text)
