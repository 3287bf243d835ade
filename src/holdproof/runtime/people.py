"""People who approve: their names, their groups, and who answers in the place of whom.

Rules:
- A person is a name within a namespace; at the server it is the name of a token or a login.
- Groups, removals and delegations are entries in the log, and compared with them before they are acted on.
- Who was removed answers nothing, neither for themselves nor for others; to put them again takes them back.
- A delegation ends at its time, by `end_delegation`, or with either of its people; it is one hop, never a chain.
"""

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from holdproof import paging, validation
from holdproof.crypto import canonical
from holdproof.db import Tx, lock_exclusive, sql
from holdproof.errors import InvalidInputError, NotFoundError
from holdproof.evidence import logged_tables
from holdproof.evidence.tables import StoredRecord, Table, numbered
from holdproof.model import jsontext
from holdproof.model.approvals import Delegation, Person
from holdproof.model.namespaces import MAIN
from holdproof.model.page import Page
from holdproof.model.times import later

_MOST_GROUPS: Final = 100
OPERATOR: Final = "operator:"
"""What the server puts before the name of a person who acts."""


def _names(text: Any) -> tuple[str, ...]:
    return tuple(jsontext.load(text))


PEOPLE: Final = Table(
    "people",
    Person,
    kind="person",
    key="name",
    per_namespace=True,
    logged=("name", "member_of", "email", "created_at", "updated_at", "updated_by", "removed_at", "ns"),
    columns={"groups": "member_of"},
    loads={"member_of": _names},
)
DELEGATIONS: Final = Table(
    "delegations",
    Delegation,
    kind="delegation",
    key="id",
    logged=("id", "from_person", "to_person", "until", "created_at", "created_by", "ended_at", "ended_by", "ns"),
)


def person_of(by: str) -> str:
    """Return the name of a caller, without the role that the server puts before it."""
    return by.removeprefix(OPERATOR)


# --- people ------------------------------------------------------------------------------------------------------

_FIND = sql(PEOPLE.select("WHERE name = :name AND ns = :ns", leaf=True))
_ADD = sql(PEOPLE.insert())
# `leaf_ver - 1`: the version that was read is the one that is replaced, or the transaction fails.
_CHANGE = sql(
    PEOPLE.update(
        *("member_of", "email", "updated_at", "updated_by", "removed_at"),
        where="name = :name AND ns = :ns AND leaf_ver = :leaf_ver - 1",
    )
)


def put(
    tx: Tx, name: str, *, groups: Iterable[str] = (), email: str | None = None, by: str = "operator", ns: str = MAIN
) -> Person:
    """Add a person who approves, or replace their groups and address."""
    columns = {
        "name": _person_name(name),
        "member_of": _groups(groups),
        "email": _email(email),
        "updated_at": tx.now,
        "updated_by": validation.name("by", by),
        "removed_at": None,
        "ns": ns,
    }
    lock_exclusive(tx, f"person:{ns}:{name}")
    record = _record(tx, name, ns)
    if record is not None:
        return PEOPLE.change(tx, _CHANGE, record, columns)
    row = {**columns, "created_at": tx.now}
    PEOPLE.add(tx, _ADD, row)
    return PEOPLE.from_columns(row)


# By number: two who remove two people lock what those share in one order.
_OF_PERSON = sql(
    "SELECT id FROM delegations WHERE ns = :ns AND (from_person = :name OR to_person = :name)"
    " AND ended_at IS NULL AND until > :now ORDER BY id"
)


def remove(tx: Tx, name: str, *, by: str = "operator", ns: str = MAIN) -> Person:
    """Remove a person: they answer nothing more, and their delegations end; what they answered stays.

    Somebody who was removed stays so.
    """
    lock_exclusive(tx, f"person:{ns}:{name}")
    record = _record(tx, name, ns)
    if record is None:
        raise _unknown(name)
    if record.value.removed_at is not None:
        return record.value
    changes = {"removed_at": tx.now, "updated_at": tx.now, "updated_by": validation.name("by", by)}
    # Ended, not passed over: to put the person again must not bring them back.
    for (id,) in tx.all(_OF_PERSON, name=name, ns=ns, now=tx.now):
        end_delegation(tx, id, by=by, ns=ns)
    return PEOPLE.change(tx, _CHANGE, record, changes)


def get(tx: Tx, name: str, *, ns: str = MAIN) -> Person:
    """Return one person, removed or not."""
    record = _record(tx, name, ns)
    if record is None:
        raise _unknown(name)
    return record.value


def was_removed(tx: Tx, name: str, *, ns: str = MAIN) -> bool:
    """Say whether a person was removed; who never was put was not."""
    record = _record(tx, name, ns)
    return record is not None and record.value.removed_at is not None


_LIST = sql(
    PEOPLE.select("WHERE ns = :ns AND name > :after AND (:all = 1 OR removed_at IS NULL) ORDER BY name LIMIT :limit")
)


def list(tx: Tx, *, all: bool = False, cursor: str | None = None, limit: int = 100, ns: str = MAIN) -> Page[Person]:
    """List people by name; with `all` also those who were removed."""
    (after,) = paging.decode(cursor, "")
    people = PEOPLE.all(tx, _LIST, ns=ns, after=after, all=int(all), limit=paging.fetch(limit))
    return paging.page(people, limit, lambda person: (person.name,))


def _record(tx: Tx, name: str, ns: str) -> StoredRecord[Person] | None:
    row = tx.one(_FIND, name=name, ns=ns)
    return None if row is None else PEOPLE.record(row)


def _unknown(name: str) -> NotFoundError:
    return NotFoundError(
        f"there is nobody called {name}: add them with `people put`", listed_by="people list", name=name
    )


def _person_name(name: str) -> str:
    """Validate a name that can stand in a line of approvers."""
    validation.name("name", name, most=200)
    if "," in name or ":" in name or name != name.strip() or " of " in name or name.endswith(" with passkey"):
        raise InvalidInputError("a name has no comma, no colon, no ` of ` and no space around it", field="name")
    return name


def _groups(groups: Iterable[str]) -> str:
    if isinstance(groups, str):
        raise InvalidInputError("groups is a list of names", field="groups")
    names = sorted({_person_name(each) for each in groups})
    if len(names) > _MOST_GROUPS:
        raise InvalidInputError(f"a person belongs to at most {_MOST_GROUPS} groups", field="groups")
    return canonical.dump_text(names)


def _email(email: str | None) -> str | None:
    if email is None:
        return None
    validation.name("email", email, most=320)
    local, _, domain = email.partition("@")
    if not local or not domain or any(each.isspace() or each in "<>,;" for each in email):
        raise InvalidInputError("email is an address such as ann@example.org", field="email")
    return email


_CONFIRM = logged_tables.selecting(PEOPLE.logged, "name", "t.ns = :ns AND t.removed_at IS NULL")


def members(tx: Tx, names: Collection[str], *, ns: str) -> Mapping[str, Person]:
    """Return the people who are named, or belong to a group that is; compared with their entries in the log."""
    rows = logged_tables.confirm(tx, PEOPLE.logged, _CONFIRM, ns=ns)
    people = [PEOPLE.from_columns(columns) for columns in rows]
    return {each.name: each for each in people if each.name in names or not set(names).isdisjoint(each.groups)}


_ONE = logged_tables.selecting(PEOPLE.logged, "name", "t.ns = :ns AND t.name = :name")


def is_removed(tx: Tx, name: str, *, ns: str) -> bool:
    """Whether a person was removed; compared with the entry in the log. Who was never put was not."""
    rows = logged_tables.confirm(tx, PEOPLE.logged, _ONE, ns=ns, name=name)
    return any(columns["removed_at"] is not None for columns in rows)


# --- delegations -------------------------------------------------------------------------------------------------

_NEXT = numbered("SELECT {id}", "delegations")
_ADD_DELEGATION = sql(DELEGATIONS.insert())


def delegate(
    tx: Tx,
    name: str,
    to: str,
    *,
    until: str | None = None,
    until_s: float | None = None,
    by: str = "operator",
    ns: str = MAIN,
) -> Delegation:
    """Let somebody answer in a person's place until a time; both are people of the store."""
    if (until is None) == (until_s is None):
        raise InvalidInputError("give the end as a time or in seconds: until or until_s", field="until")
    ends = later(tx.now, validation.seconds("until_s", until_s)) if until_s is not None else until
    if validation.moment("until", ends) <= tx.now:
        raise InvalidInputError("a delegation ends in the future", field="until", value=ends)
    if name == to:
        raise InvalidInputError("nobody delegates to themselves", field="to", value=to)
    # Locked as for a removal, which ends the delegations that it finds; in one order, or two could wait for each other.
    for each in sorted((name, to)):
        lock_exclusive(tx, f"person:{ns}:{each}")
    for each in (name, to):
        if get(tx, each, ns=ns).removed_at is not None:
            raise InvalidInputError(f"{each} was removed: put them again first (`people put`)", field="to", value=each)
    numbers = tx.one(_NEXT)
    assert numbers is not None, "a SELECT without FROM has one row"
    (number,) = numbers
    delegation = Delegation(
        id=number,
        from_person=name,
        to_person=to,
        until=validation.moment("until", ends),
        created_at=tx.now,
        created_by=validation.name("by", by),
        ended_at=None,
        ended_by=None,
        ns=ns,
    )
    DELEGATIONS.add(tx, _ADD_DELEGATION, DELEGATIONS.to_columns(delegation))
    return delegation


_FIND_DELEGATION = sql(DELEGATIONS.select("WHERE id = :id AND ns = :ns", leaf=True))
_END = sql(DELEGATIONS.update("ended_at", "ended_by", where="id = :id AND ended_at IS NULL"))


def end_delegation(tx: Tx, id: int, *, by: str = "operator", ns: str = MAIN) -> Delegation:
    """End a delegation before its time; one that has ended stays as it is."""
    lock_exclusive(tx, f"delegation:{id}")
    row = tx.one(_FIND_DELEGATION, id=id, ns=ns)
    if row is None:
        raise NotFoundError(f"there is no delegation {id}", listed_by="people delegations", id=id)
    record = DELEGATIONS.record(row)
    if record.value.ended_at is not None:
        return record.value
    return DELEGATIONS.change(tx, _END, record, {"ended_at": tx.now, "ended_by": validation.name("by", by)})


_DELEGATIONS = sql(
    DELEGATIONS.select(
        "WHERE ns = :ns AND id < :before AND (:all = 1 OR (ended_at IS NULL AND until > :now))"
        " ORDER BY id DESC LIMIT :limit"
    )
)


def delegations(
    tx: Tx, *, all: bool = False, cursor: str | None = None, limit: int = 100, ns: str = MAIN
) -> Page[Delegation]:
    """List delegations that are in force, newest first; with `all` also those that have ended."""
    return DELEGATIONS.page(tx, _DELEGATIONS, cursor, limit, ns=ns, all=int(all), now=tx.now)


_TO = logged_tables.selecting(
    DELEGATIONS.logged, "id", "t.ns = :ns AND t.to_person = :name AND t.ended_at IS NULL AND t.until > :now"
)


def delegators(tx: Tx, name: str, *, ns: str) -> tuple[str, ...]:
    """Return those in whose place a person may answer now, the oldest delegation first."""
    # Who was removed answers for nobody; compared with the log as those are who answer for themselves.
    if name not in members(tx, {name}, ns=ns):
        return ()
    rows = logged_tables.confirm(tx, DELEGATIONS.logged, _TO, ns=ns, name=name, now=tx.now)
    return tuple(dict.fromkeys(str(columns["from_person"]) for columns in rows))
