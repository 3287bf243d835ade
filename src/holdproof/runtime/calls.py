"""Calls: which registered function a flow runs, and with what.

Rules:
- A call is written in the transaction that opens its flow, and never changes.
- Arguments are JSON; what is not is refused before anything is written.
- A call that an agent asked for at the server says so: it may be run again for that agent, and for nobody else.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holdproof.db import Tx, sql
from holdproof.runtime import logged_rows


@dataclass(frozen=True, slots=True)
class Called:
    """A function by its name and version, and the JSON text of its arguments."""

    name: str
    version: str
    arguments: str
    agent_id: str | None = None
    """The agent that asked for it at the server; None for programs of the store and for operators."""


def called(name: str, version: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Called:
    """A call as it is written down."""
    return Called(name, version, logged_rows.dump({"args": list(args), "kwargs": dict(kwargs)}))


def arguments(call: Called) -> tuple[list[Any], dict[str, Any]]:
    """What a function is called with, the first time and every time after: as it comes back from its text."""
    value = logged_rows.load(call.arguments)
    return value["args"], value["kwargs"]


_RECORD = sql(
    "INSERT INTO flow_calls (dfid, name, version, arguments, agent_id, ns)"
    " VALUES (:dfid, :name, :version, :arguments, :agent_id, :ns)"
)


def record(tx: Tx, flow_id: str, call: Called, *, ns: str) -> None:
    """Write down what a new flow runs."""
    said = {"name": call.name, "version": call.version, "arguments": call.arguments, "agent_id": call.agent_id}
    tx.execute(_RECORD, dfid=flow_id, **said, ns=ns, expect=1)


_FIND = sql("SELECT name, version, arguments, agent_id FROM flow_calls WHERE dfid = :dfid")


def find(tx: Tx, flow_id: str) -> Called | None:
    """What a flow runs; None for a plain block."""
    row = tx.one(_FIND, dfid=flow_id)
    return None if row is None else Called(*row)
