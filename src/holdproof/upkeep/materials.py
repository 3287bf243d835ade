"""The bill of materials of a decision: what a flow rests on, collected from what was recorded of it.

Rules:
- Nothing is stored for it: models, tools, skills, objects, policies and answers are read from rows that the log covers,
  so the bill is as true as they are, and the same record gives the same bill, byte for byte.
- A model call is a step called `model …` that is given `model`, `messages`, `parameters` and `tools`, or a pair of
  events `model.requested` and `model.answered`; a tool call is a step called `tool …`. Adapters record them so, and so
  can any flow.
- Of content there are hashes only; parameters, names and versions are shown.
- What belonged to a person who was erased is counted (`unreadable`), and not guessed.
- An event that came through the server names its author (`recorded_by`): it is no note of the store's own, and is left
  out.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from holdproof.crypto import canonical
from holdproof.db import Tx
from holdproof.model.coordination import Escalation
from holdproof.model.flows import Flow, Step
from holdproof.model.materials import (
    CodeUse,
    HumanAnswer,
    Materials,
    MemoryUse,
    ModelUse,
    PolicyUse,
    SkillUse,
    ToolUse,
)
from holdproof.model.namespaces import MAIN
from holdproof.model.page import Page
from holdproof.model.records import AuditEvent
from holdproof.runtime import audit, calls, flows, inbox, policy_decisions, results, steps
from holdproof.upkeep import material_notes

_MODEL: Final = "model "
_TOOL: Final = "tool "
_REQUESTED: Final = "model.requested"
_ANSWERED: Final = "model.answered"
_PAGE: Final = 1_000


def get(tx: Tx, flow_id: str, *, ns: str = MAIN) -> Materials:
    """Return what a flow rests on: models, tools, skills, memory, policies, code and human answers.

    NotFoundError where there is no such flow; one that still runs gives what was recorded so far.
    """
    flow = flows.get(tx, flow_id, ns=ns)
    collected = _Collected()
    for step in steps.list(tx, flow_id, ns=ns):
        collected.add_step(step)
    for event in _events(tx, flow_id, ns):
        collected.add_event(event)
    result = results.stored(tx, flow_id, ns=ns).result
    facts: dict[str, Any] = {
        "flow_id": flow_id,
        "ns": ns,
        "agent_id": flow.agent_id,
        "status": flow.status,
        "code": _code(tx, flow),
        "models": tuple(call.use() for call in collected.models.values()),
        "tools": collected.tool_uses(),
        "skills": tuple(collected.skills.values()),
        "memory": tuple(collected.memory.values()),
        "policies": _policies(tx, flow_id, ns),
        "answers": _answers(tx, flow_id, ns),
        "result_hash": None if result is None else digest(result),
        "unreadable": collected.unreadable,
    }
    # Of the bill without its hash, so that the hash names exactly what is shown.
    unnamed = Materials(**facts, hash="")
    return Materials(**facts, hash=digest({**unnamed.to_dict(), "hash": None}))


def digest(value: Any) -> str:
    """Return the SHA-256 of a value's canonical JSON, in hex."""
    return canonical.sha256_hex(canonical.dump_text(value).encode())


@dataclass(slots=True)
class _Model:
    """The calls of one model with the same parameters and system prompt."""

    name: str
    answered_by: str | None
    parameters: Any
    system_hash: str | None
    prompts: list[str] = field(default_factory=list)
    input_tokens: int = 0
    output_tokens: int = 0
    costs: list[str] = field(default_factory=list)

    def use(self) -> ModelUse:
        return ModelUse(
            self.name,
            self.answered_by,
            self.parameters,
            self.system_hash,
            tuple(self.prompts),
            len(self.prompts),
            self.input_tokens,
            self.output_tokens,
            tuple(self.costs),
        )


@dataclass(slots=True)
class _Collected:
    """What steps and events of a flow say, as it is read; in the order in which it happened first."""

    models: dict[str, _Model] = field(default_factory=dict)
    schemas: dict[tuple[str, str], None] = field(default_factory=dict)
    """Tools that were offered, by name and schema hash."""
    called: dict[str, int] = field(default_factory=dict)
    skills: dict[tuple[str, str], SkillUse] = field(default_factory=dict)
    memory: dict[tuple[Any, ...], MemoryUse] = field(default_factory=dict)
    requests: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    unreadable: int = 0

    def add_step(self, step: Step) -> None:
        """Add a step, if it is a call of a model or of a tool."""
        if not step.name.startswith((_MODEL, _TOOL)):
            return
        arguments = _object(_object(step.arguments).get("kwargs"))
        if not arguments and "$erased" in _object(step.arguments):
            self.unreadable += 1
            return
        if step.name.startswith(_MODEL) and "model" in arguments and "messages" in arguments:
            reply = _object(step.result)
            usage = _object(reply.get("usage"))
            tokens = (usage.get("input_tokens"), usage.get("output_tokens"))
            self._model(arguments, _text(reply.get("model")), tokens, _text(reply.get("cost_usd")))
        elif step.name.startswith(_TOOL):
            name = str(arguments.get("tool") or step.name.removeprefix(_TOOL))
            self.called[name] = self.called.get(name, 0) + 1

    def add_event(self, event: AuditEvent) -> None:
        """Add an event, if it is a note of what was used, or of a captured call."""
        detail = _object(event.detail)
        if event.event_type in (_REQUESTED, _ANSWERED):
            self._captured(event, detail)
        elif "recorded_by" in detail:
            return
        elif event.event_type == material_notes.LOADED and "root" in detail:
            self.skills.setdefault((detail["path"], detail["root"]), SkillUse(**detail))
        elif event.event_type in (material_notes.READ, material_notes.WRITTEN):
            self._memory(event.event_type.removeprefix("memory."), detail)

    def _captured(self, event: AuditEvent, detail: Mapping[str, Any]) -> None:
        if "$erased" in detail:
            self.unreadable += event.event_type == _REQUESTED
        elif event.event_type == _REQUESTED:
            self.requests[str(detail.get("call") or event.step_id or event.id)] = detail
        elif (request := self.requests.pop(str(detail.get("call") or event.step_id), None)) is not None:
            tokens = _object(detail.get("tokens"))
            self._model(request, _text(detail.get("model")), (tokens.get("input"), tokens.get("output")), None)

    def _model(
        self, request: Mapping[str, Any], answered_by: str | None, tokens: tuple[Any, Any], cost: str | None
    ) -> None:
        for tool in request.get("tools") or ():
            self.schemas.setdefault((_tool_name(tool), digest(tool)))
        messages = request.get("messages")
        system = request.get("system") or _system(messages)
        name = str(request.get("model"))
        parameters = request.get("parameters") or {}
        system_hash = digest(system) if system else None
        key = canonical.dump_text([name, answered_by, parameters, system_hash])
        model = self.models.setdefault(key, _Model(name, answered_by, parameters, system_hash))
        model.prompts.append(digest(messages))
        model.input_tokens += _count(tokens[0])
        model.output_tokens += _count(tokens[1])
        if cost is not None:
            model.costs.append(cost)

    def _memory(self, action: str, detail: Mapping[str, Any]) -> None:
        for each in detail.get("objects") or ():
            use = MemoryUse(action, each["id"], each["version"], each["cid"], detail["tree"], detail["ns"])
            # The same version that is read twice is one material, as of when it was read first.
            self.memory.setdefault((action, use.ns, use.id, use.version, use.cid), use)

    def tool_uses(self) -> tuple[ToolUse, ...]:
        """Return the tools that were offered, then those that were called without being offered."""
        names = {name for name, _ in self.schemas}
        offered = [ToolUse(name, schema, self.called.get(name, 0)) for name, schema in self.schemas]
        others = [ToolUse(name, None, count) for name, count in self.called.items() if name not in names]
        return (*offered, *others)


def _events(tx: Tx, flow_id: str, ns: str) -> Iterator[AuditEvent]:
    after = 0
    while True:
        page = audit.scan(tx, flow_id=flow_id, after=after, limit=_PAGE, ns=ns)
        yield from page
        if len(page) < _PAGE:
            return
        after = page[-1].id


def _code(tx: Tx, flow: Flow) -> CodeUse:
    call = calls.find(tx, flow.flow_id, ns=flow.ns)
    if call is None:
        return CodeUse(flow.flow_type, flow.flow_version, None, None)
    return CodeUse(call.name, call.version, call.arguments_hash, call.forked_from)


def _policies(tx: Tx, flow_id: str, ns: str) -> tuple[PolicyUse, ...]:
    counts: dict[str, dict[str, int]] = {}
    for each in _all(lambda cursor: policy_decisions.list(tx, flow_id=flow_id, cursor=cursor, limit=_PAGE, ns=ns)):
        count = counts.setdefault(each.policy_hash, dict.fromkeys(("allow", "deny", "ask"), 0))
        count[each.decision] += 1
    return tuple(PolicyUse(hash, count["allow"], count["deny"], count["ask"]) for hash, count in sorted(counts.items()))


def _answers(tx: Tx, flow_id: str, ns: str) -> tuple[HumanAnswer, ...]:
    listed = _all(lambda cursor: inbox.list(tx, flow_id=flow_id, cursor=cursor, limit=_PAGE, ns=ns))
    return tuple(_answer(each) for each in sorted(listed, key=lambda each: each.id))


def _answer(escalation: Escalation) -> HumanAnswer:
    return HumanAnswer(
        escalation.id,
        escalation.kind,
        escalation.outcome,
        escalation.resolved_by,
        escalation.resolved_at,
        None if escalation.answer is None else digest(escalation.answer),
    )


def _all(list_page: Any) -> list[Any]:
    """Return all items of a listing, newest first."""
    items: list[Any] = []
    cursor: str | None = None
    while True:
        page: Page[Any] = list_page(cursor)
        items += page.items
        cursor = page.next_cursor
        if cursor is None:
            return items


def _object(value: Any) -> Mapping[str, Any]:
    """Return a JSON object; an empty one in the place of anything else, which another program may have recorded."""
    return value if isinstance(value, Mapping) else {}


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _count(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _tool_name(tool: Any) -> str:
    """Return the name of a tool, as providers write it: beside its schema, or in its `function`."""
    facts = _object(tool)
    name = facts.get("name") or _object(facts.get("function")).get("name")
    return str(name or facts.get("type") or "unnamed")


def _system(messages: Any) -> list[Any]:
    """Return the messages that instruct a model before anybody says anything."""
    roles = ("system", "developer")
    return [each for each in messages if _object(each).get("role") in roles] if isinstance(messages, list) else []
