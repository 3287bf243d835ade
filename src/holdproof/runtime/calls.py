"""Calls: which registered function a flow runs, and with which arguments.

Rules:
- A call is written in the transaction that opens its flow, and never changes.
- Arguments are JSON; others are refused before anything is written.
- A call that an agent made at the server records that agent: only a function registered for it runs the call again.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holdproof.crypto import canonical
from holdproof.db import Tx, sql
from holdproof.model import jsontext


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """A function by its name and version, and the JSON text of its arguments."""

    name: str
    version: str
    arguments: str
    agent_id: str | None = None
    """The agent that made the call at the server; None for programs of the store and for operators."""


def call_of(name: str, version: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> FunctionCall:
    """Return a call as it is stored."""
    return FunctionCall(name, version, canonical.dump_text({"args": list(args), "kwargs": dict(kwargs)}))


def arguments(call: FunctionCall) -> tuple[list[Any], dict[str, Any]]:
    """Return what a function is called with.

    The first call too gets what its text gives back: a tuple is a list there, and stays one when the flow is recovered.
    """
    value = jsontext.load(call.arguments)
    return value["args"], value["kwargs"]


_RECORD = sql(
    "INSERT INTO flow_calls (dfid, name, version, arguments, agent_id, ns)"
    " VALUES (:dfid, :name, :version, :arguments, :agent_id, :ns)"
)


def record(tx: Tx, flow_id: str, call: FunctionCall, *, ns: str) -> None:
    """Write the call of a new flow."""
    tx.execute(
        _RECORD,
        dfid=flow_id,
        name=call.name,
        version=call.version,
        arguments=call.arguments,
        agent_id=call.agent_id,
        ns=ns,
        expect=1,
    )


_FIND = sql("SELECT name, version, arguments, agent_id FROM flow_calls WHERE dfid = :dfid AND ns = :ns")


def find(tx: Tx, flow_id: str, *, ns: str) -> FunctionCall | None:
    """Return the call of a flow; None for a flow that is a plain block of code."""
    row = tx.one(_FIND, dfid=flow_id, ns=ns)
    return None if row is None else FunctionCall(*row)
