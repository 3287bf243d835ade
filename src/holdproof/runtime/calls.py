"""Calls: which registered function a flow runs, and with which arguments.

Rules:
- A call is written with its entry in the transaction that opens its flow, and never changes.
- Arguments are recorded as tagged JSON; what cannot be recorded is refused before anything is written.
- Before a recorded call is run again it is compared with its entry: TamperedError, and nothing runs.
- A call that an agent made at the server records that agent: only a function registered for it runs the call again.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from holdproof.db import Tx, sql
from holdproof.errors import IdempotencyConflictError, NotFoundError, TamperedError, UnrecordableError
from holdproof.evidence import logged_tables
from holdproof.evidence.tables import Table
from holdproof.model import typed_json
from holdproof.model.flows import Flow, FunctionCall
from holdproof.model.namespaces import MAIN
from holdproof.runtime import recorded

CALLS: Final = Table(
    "flow_calls",
    FunctionCall,
    kind="call",
    key="dfid",
    per_namespace=True,
    logged=(
        *("dfid", "name", "version", "arguments", "arguments_hash", "agent_id", "queue", "partition_key"),
        *("not_before", "deduplicate", "forked_from", "forked_at", "effects", "answers", "ns"),
    ),
)


@dataclass(frozen=True, slots=True)
class CallSpec:
    """A call about to be recorded: the function by name and version, the text of its arguments, how it is queued."""

    name: str
    version: str
    arguments: str
    agent_id: str | None = None
    queue: str | None = None
    partition_key: str | None = None
    not_before: str | None = None
    deduplicate: str | None = None
    forked_from: str | None = None
    forked_at: int | None = None
    effects: str | None = None
    answers: str | None = None
    """The text of the results that a fork is given, by step."""
    function: Callable[..., Any] | None = None
    """The function, where it is known here: policies see inputs by the names of its parameters. Not recorded."""


def call_of(name: str, version: str, args: Sequence[Any], kwargs: Mapping[str, Any], **queued: Any) -> CallSpec:
    """Return a call as it is recorded; UnrecordableError names the argument that cannot be."""
    return CallSpec(name, version, arguments_text(args, kwargs), **queued)


def arguments_text(args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """Return arguments as they are recorded."""
    positional = [typed_json.encode(value, f"argument {n}") for n, value in enumerate(args, 1)]
    named = {name: typed_json.encode(value, name) for name, value in kwargs.items()}
    return recorded.dump({"args": positional, "kwargs": named})


def checked_text(text: str) -> str:
    """Return the text of a value that another program encoded; UnrecordableError unless it is tagged JSON.

    References and envelopes are the store's own: whoever could pass one would be shown what it stands for.
    """
    try:
        value = recorded.parse(text)
    except ValueError as error:
        raise UnrecordableError("a recorded value is a JSON text") from error
    return recorded.dump(typed_json.tagged(value, "the value").json)


def arguments(call: FunctionCall) -> tuple[list[Any], dict[str, Any]]:
    """Return what a function is called with: equal to what it was called with first."""
    return decoded(call.arguments)


def decoded_arguments(text: str) -> tuple[list[Any], dict[str, Any]]:
    """Return what a function is called with, given the text of `arguments_text`."""
    return decoded(recorded.parse(text))


def decoded(value: Any) -> tuple[list[Any], dict[str, Any]]:
    """Return what a function is called with, given as tagged JSON."""
    args = [typed_json.decode(item) for item in value["args"]]
    return args, {name: typed_json.decode(item) for name, item in value["kwargs"].items()}


_ADD = sql(CALLS.insert())


def record(tx: Tx, flow: Flow, spec: CallSpec) -> None:
    """Write the call of a new flow."""
    row = {
        "dfid": flow.flow_id,
        "name": spec.name,
        "version": spec.version,
        "arguments": recorded.store(tx, spec.arguments, flow.subject),
        "arguments_hash": recorded.fingerprint(tx, spec.arguments, flow.subject),
        "agent_id": spec.agent_id,
        "queue": spec.queue,
        "partition_key": spec.partition_key,
        "not_before": spec.not_before,
        "deduplicate": spec.deduplicate,
        "forked_from": spec.forked_from,
        "forked_at": spec.forked_at,
        "effects": spec.effects,
        "answers": None if spec.answers is None else recorded.store(tx, spec.answers, flow.subject),
        "ns": flow.ns,
    }
    CALLS.add(tx, _ADD, row)


_FIND = sql(CALLS.select("WHERE dfid = :dfid AND ns = :ns"))


def find(tx: Tx, flow_id: str, *, ns: str) -> FunctionCall | None:
    """Return the call of a flow, as it is shown; None for a flow that is a plain block of code."""
    call = CALLS.find(tx, _FIND, dfid=flow_id, ns=ns)
    return None if call is None else _shown(tx, call)


def get(tx: Tx, flow_id: str, *, ns: str = MAIN) -> FunctionCall:
    """Return the function that a flow runs and what it was called with; NotFoundError for a plain block of code."""
    call = find(tx, flow_id, ns=ns)
    if call is None:
        raise NotFoundError(f"flow {flow_id} runs no registered function", flow_id=flow_id)
    return call


_CONFIRM = logged_tables.selecting(CALLS.logged, "dfid", "t.dfid = :dfid AND t.ns = :ns")


def confirmed(tx: Tx, flow_id: str, *, ns: str) -> FunctionCall:
    """Return the call of a flow that is about to be run again, compared with its entry in the log."""
    for row in logged_tables.confirm(tx, CALLS.logged, _CONFIRM, dfid=flow_id, ns=ns):
        return _shown(tx, CALLS.from_columns(row))
    raise TamperedError(f"the call of flow {flow_id} was removed", table=CALLS.name, row=flow_id)


def _shown(tx: Tx, call: FunctionCall) -> FunctionCall:
    return replace(call, arguments=recorded.load(tx, call.arguments), answers=recorded.load(tx, call.answers))


def check_same(tx: Tx, flow: Flow, existing: FunctionCall, spec: CallSpec) -> None:
    """Refuse a second call under the id of a flow unless it asks for the same function with the same inputs."""
    same = recorded.fingerprint(tx, spec.arguments, flow.subject) == existing.arguments_hash
    if not same or existing.name != spec.name:
        raise IdempotencyConflictError(
            f"flow {flow.flow_id} runs {existing.name} with other inputs: use another id", flow_id=flow.flow_id
        )
