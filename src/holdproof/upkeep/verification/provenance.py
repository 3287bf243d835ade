"""A flow as W3C PROV, in PROV-JSON: what used what, what came of it, and who answered for it. Of proven records only.

    activity    the flow, each step, each approval
    entity      the call with its inputs, the result of each step, the outcome of the flow
    agent       the agent (software) and each person who answered

Rules:
- Each element names its entry in the log (`holdproof:entry`), and so can be proven; the document itself is not signed.
- No content: what stands in inputs and results is in the bundle, for whoever may see it.
- Only relations that the records show: that a step used the result of another is not recorded, and not claimed.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from holdproof.crypto import canonical
from holdproof.upkeep.verification.offline import ProvenRecord

_ENTRY: Final = "holdproof:entry"
_PREFIXES: Final = {"holdproof": "urn:holdproof:prov:"}


class _Document:
    """A PROV-JSON document that is being written: elements and relations by kind and identifier."""

    def __init__(self) -> None:
        self.content: dict[str, Any] = {"prefix": _PREFIXES}

    def add(self, kind: str, name: str, record: ProvenRecord, attributes: Mapping[str, Any]) -> str:
        """Add an element that a record tells of, and return its identifier."""
        identifier = f"holdproof:{name}-{record.index}"
        present = {f"prov:{key}": value for key, value in attributes.items() if value is not None}
        self.content.setdefault(kind, {})[identifier] = {**present, _ENTRY: record.index}
        return identifier

    def relate(self, kind: str, subject: tuple[str, str], object: tuple[str, str]) -> None:
        """Add a relation between two elements, each named with its part in it."""
        relations = self.content.setdefault(kind, {})
        ends = {f"prov:{part}": identifier for part, identifier in (subject, object)}
        relations[f"_:{kind}{len(relations) + 1}"] = ends


def encode(flow_id: str, records: Sequence[ProvenRecord]) -> bytes:
    """Return the PROV-JSON document of a flow, as canonical bytes."""
    document = _Document()
    ordered = sorted(records, key=lambda each: each.index)
    (opening,) = [each for each in ordered if each.table == "decision_flows"]
    label = opening.content["agent_id"]
    agent = document.add("agent", "agent", opening, {"type": _kind("SoftwareAgent"), "label": label})
    flow = _flow(document, flow_id, opening, [each for each in ordered if each.table == "flow_transitions"])
    document.relate("wasAssociatedWith", ("activity", flow), ("agent", agent))
    for record in ordered:
        if record.table == "flow_calls":
            call = document.add("entity", "inputs", record, {"label": f"inputs of {record.content['name']}"})
            document.relate("used", ("activity", flow), ("entity", call))
        elif record.table == "flow_steps":
            _step(document, record, flow, agent)
        elif record.table == "escalation_answers":
            _answer(document, record, flow)
    return canonical.dumps(document.content)


def _kind(name: str) -> Mapping[str, str]:
    return {"$": f"prov:{name}", "type": "prov:QUALIFIED_NAME"}


def _flow(document: _Document, flow_id: str, opening: ProvenRecord, moves: Sequence[ProvenRecord]) -> str:
    end = moves[-1] if moves else None
    times = {"startTime": opening.content["created_at"], "endTime": end.content["created_at"] if end else None}
    flow = document.add("activity", "flow", opening, {"label": flow_id, **times})
    if end is not None:
        outcome = document.add("entity", "outcome", end, {"label": end.content["to_status"]})
        document.relate("wasGeneratedBy", ("entity", outcome), ("activity", flow))
    return flow


def _step(document: _Document, record: ProvenRecord, flow: str, agent: str) -> None:
    """Add a step, which the flow started, and its result, if it has one."""
    row = record.content
    label = f"{row['name']} {row['n']}"
    times = {"startTime": row["started_at"], "endTime": row["finished_at"]}
    step = document.add("activity", "step", record, {"label": f"{label}: {row['state']}", **times})
    document.relate("wasStartedBy", ("activity", step), ("starter", flow))
    document.relate("wasAssociatedWith", ("activity", step), ("agent", agent))
    if row["state"] == "DONE" and not row["compensates"]:
        result = document.add("entity", "result", record, {"label": f"result of {label}"})
        document.relate("wasGeneratedBy", ("entity", result), ("activity", step))
        document.relate("wasAttributedTo", ("entity", result), ("agent", agent))


def _answer(document: _Document, record: ProvenRecord, flow: str) -> None:
    """Add an answer of a person, who is an agent of each answer: so no name has to be an identifier."""
    row = record.content
    name = row["person"] or row["answered_by"]
    person = document.add("agent", "person", record, {"type": _kind("Person"), "label": name})
    times = {"startTime": row["created_at"], "endTime": row["created_at"]}
    answer = document.add("activity", "answer", record, {"label": f"answered: {row['decision']}", **times})
    document.relate("wasAssociatedWith", ("activity", answer), ("agent", person))
    document.relate("wasInformedBy", ("informed", flow), ("informant", answer))
