"""Numbers of entries: every stream of the log counts its entries 1, 2, 3 …, inside the entries.

A stream is what one agent did, of one kind, in one namespace; where no agent did it, its name is empty. An entry says
`"s":"<stream>/<number>"`, so that whoever has the entries 7 to 12 of a stream has all of them (range_proof.py).

Rules:
- Numbers are assigned where entries get their place in the tree: by the one writer of a SQLite file inside the group's
  commit, by the elected sequencer on PostgreSQL. An entry that is rolled back or never sequenced takes no number, so
  there is no gap after a crash, and racing writers cannot get the same one.
- The name of a stream is a salted hash of agent, kind and namespace: the log shows no name, and whoever is given the
  salt can check whose stream it is.
- Entries about the schema and about restores are not numbered: a migration writes the first before there is a stream.
- What was logged before numbers existed has none; `verify --full` says INCOMPLETE if one without follows later.
"""

import json
from collections.abc import Sequence
from hashlib import sha256
from typing import Final, NamedTuple

from holdproof.crypto import canonical
from holdproof.db import Tx, sql
from holdproof.evidence.leaves import Leaf, StampedLeaf

_TYPE_MARK: Final = ',"t":"'
_NUMBER_MARK: Final = ',"s":"'
_SALT_BYTES: Final = 16
_NAME: Final = 32
"""How many hex digits of the hash name a stream."""
_MOST_DIGITS: Final = 18
"""Numbers are less than 2^63."""


class StreamKey(NamedTuple):
    """What makes a stream: agent, kind and namespace."""

    agent_id: str
    kind: str
    ns: str


def name_of(salt: str, key: StreamKey) -> str:
    """Return the name of a stream: the hash of its salt, its agent, its kind and its namespace."""
    content = canonical.dumps({"agent_id": key.agent_id, "kind": key.kind, "ns": key.ns})
    return sha256(bytes.fromhex(salt) + content).hexdigest()[:_NAME]


class EntryNumber(NamedTuple):
    """The stream of an entry, and its number there."""

    stream: str
    n: int


def number_of(text: str) -> EntryNumber | None:
    """Return the number that an entry says it has; None for an entry without one, or with what is no number."""
    # In JSON a quote inside a name is escaped: the mark stands nowhere else.
    stream, _, number = _value_of(text, _NUMBER_MARK).rpartition("/")
    is_number = number.isascii() and number.isdigit() and len(number) <= _MOST_DIGITS and not number.startswith("0")
    return EntryNumber(stream, int(number)) if is_number else None


def kind_of(text: str) -> str:
    """Return the type of an entry, without parsing all of it; empty where it names none."""
    return _value_of(text, _TYPE_MARK)


def _value_of(text: str, mark: str) -> str:
    """Return what stands between a mark and the next quote; empty where either is missing."""
    _, _, rest = text.partition(mark)
    value, end_quote, _ = rest.partition('"')
    return value if end_quote else ""


def is_of(text: str, key: StreamKey) -> bool:
    """Return whether an entry is of the kind and the namespace of a stream; whose it is, only its record says."""
    return f',"ns":{canonical.quote(key.ns)},"p":"' in text and kind_of(text) == key.kind


_AGENTS = sql(
    "SELECT f.dfid, f.ns, f.agent_id FROM decision_flows f WHERE f.dfid IN (SELECT value FROM json_each(:flows))",
    postgres="SELECT f.dfid, f.ns, f.agent_id FROM decision_flows f WHERE f.dfid IN"
    " (SELECT value FROM json_array_elements_text(CAST(:flows AS JSON)))",
)
_COUNT = sql(
    "UPDATE log_streams SET n = n + :count WHERE agent_id = :agent_id AND kind = :kind AND ns = :ns"
    " RETURNING stream, n - :count"
)
_BEGIN = sql(
    "INSERT INTO log_streams (stream, salt, agent_id, kind, ns, n) VALUES (:stream, :salt, :agent_id, :kind, :ns, :n)"
)


def number(tx: Tx, entries: Sequence[StampedLeaf]) -> list[Leaf]:
    """Return entries with their numbers, in their order.

    To be called by whoever holds the log's lock: the counts are read and advanced in this transaction. Written without
    helpers where it can be, since every commit passes here.
    """
    streams = [None if source is None else source[0] for _, _, _, source in entries]
    # Most records name their flow only; its agent is theirs.
    flows = {
        at: source[1]
        for at, (_, _, _, source) in enumerate(entries)
        if source is not None and source[1] is not None and not source[0][0]
    }
    if flows:
        agents = _agents(tx, {str(flow_id) for flow_id in flows.values()})
        for at, flow_id in flows.items():
            _, kind, ns = streams[at] or ("", "", "")
            # The agent of a flow that is gone is nobody.
            streams[at] = (agents.get((str(flow_id), ns), ""), kind, ns)
    counts: dict[tuple[str, str, str], int] = {}
    for stream in streams:
        if stream is not None:
            counts[stream] = counts.get(stream, 0) + 1
    marks: dict[tuple[str, str, str], str] = {}
    numbers: dict[tuple[str, str, str], int] = {}
    for stream, count in counts.items():
        agent_id, kind, ns = stream
        row = tx.one(_COUNT, agent_id=agent_id, kind=kind, ns=ns, count=count)
        name, last = _begin(tx, StreamKey(*stream), count) if row is None else row
        marks[stream] = f"{_NUMBER_MARK}{name}/"
        numbers[stream] = last
    numbered: list[Leaf] = []
    for (handle, ver, text, _), stream in zip(entries, streams, strict=True):
        if stream is None:
            numbered.append((handle, ver, text))
            continue
        numbers[stream] = n = numbers[stream] + 1
        at = text.index(_TYPE_MARK)
        numbered.append((handle, ver, f'{text[:at]}{marks[stream]}{n}"{text[at:]}'))
    return numbered


def _agents(tx: Tx, flows: set[str]) -> dict[tuple[str, str], str]:
    """Return the agents of flows: most records name their flow only."""
    rows = tx.all(_AGENTS, flows=json.dumps(sorted(flows)))
    return {(flow_id, ns): agent for flow_id, ns, agent in rows}


def _begin(tx: Tx, key: StreamKey, count: int) -> EntryNumber:
    """Begin a stream with so many entries; return its name, and that none was before them."""
    salt = tx.random(_SALT_BYTES).hex()
    stream = name_of(salt, key)
    tx.execute(_BEGIN, stream=stream, salt=salt, agent_id=key.agent_id, kind=key.kind, ns=key.ns, n=count, expect=1)
    return EntryNumber(stream, 0)
