"""Who may do what: the decision of the server, method by method."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from holdproof.api.catalogue import MethodSpec, entries, methods
from holdproof.errors import ForbiddenError
from holdproof.executors import Exposure
from holdproof.server.mcp import Offer
from holdproof.server.permissions import Caller, Claim, claims, may

OPERATOR = Caller("operator", "ann")
AUDITOR = Caller("auditor", "bob")
AGENT = Caller("agent", "trader", "main", "trader")
METHODS = sorted(entries())
DECISIONS = Path(__file__).parent / "permissions.txt"
"""What everybody may do with every method, written down apart from the declarations: a change there shows here."""


def allowed(caller: Caller) -> set[tuple[str, str]]:
    return {each for each in METHODS if may(caller, *each)}


def decision(spec: MethodSpec) -> str:
    """One line: who may use a method, on what, and where it is offered."""
    resource = frozenset({spec.resource})
    callers = {
        "operator": OPERATOR,
        "operator-of-resource": Caller("operator", "x", resources=resource),
        "auditor": AUDITOR,
        "auditor-of-resource": Caller("auditor", "x", resources=resource),
        "agent": AGENT,
        "granted-agent": Caller("agent", "x", "main", "x", resource),
    }
    roles = [name for name, caller in callers.items() if may(caller, spec.resource, spec.method)]
    rule = spec.exposure.agent
    facts = [f"{spec.resource}.{spec.method}: {', '.join(roles) or 'nobody'}"]
    if rule is not None:
        facts.append("owns " + " ".join(f"{name}={kind}" for name, kind in rule.owns.items()))
    facts.append("remote" if spec.remote else "local")
    if spec.exposure.public:
        facts.append("public")
    if spec.remote and Offer().holds(spec):
        facts.append("tool")
    if spec.remote and Offer(read_only=True).holds(spec):
        facts.append("read-only tool")
    return "; ".join(facts)


def test_every_decision_is_the_one_that_is_written_down() -> None:
    decisions = [decision(spec) for _, spec in sorted(methods().items())]
    assert decisions == DECISIONS.read_text().splitlines()


def test_only_what_a_secret_argument_proves_is_public() -> None:
    public = {f"{resource}.{method}" for (resource, method), spec in methods().items() if spec.exposure.public}
    assert public == {"promises.resolve", "promises.reject"}
    assert all(entries()["promises", method].parameter("token") for method in ("resolve", "reject"))


def test_a_method_is_forbidden_to_agents_unless_its_declaration_says_otherwise() -> None:
    assert Exposure().agent is None


def test_an_operator_may_do_everything_but_try_secrets() -> None:
    internal = {name for name, spec in entries().items() if spec.exposure.internal}
    assert allowed(OPERATOR) == {*METHODS} - internal
    assert {("agents", "authenticate"), ("tokens", "authenticate")} <= internal


def test_an_auditor_changes_nothing_and_opens_nothing_sealed() -> None:
    open_to = allowed(AUDITOR)
    assert {each for each in open_to if not entries()[each].reads} == {("verify", "run")}
    assert not open_to & {("evaluations", "reveal"), ("agents", "authenticate"), ("tokens", "authenticate")}
    assert {("flows", "list"), ("log", "prove"), ("tokens", "list"), ("lockdown", "status")} <= open_to


def test_an_auditor_verifies_without_locking() -> None:
    assert claims(AUDITOR, "verify", "run", {"lock": False}) == ()
    arguments: dict[str, Any]
    for arguments in ({}, {"lock": True}, {"lock": 0}):
        with pytest.raises(ForbiddenError):
            claims(AUDITOR, "verify", "run", arguments)


def test_an_agent_decides_and_nothing_else() -> None:
    open_to = allowed(AGENT)
    resources = {resource for resource, _ in open_to}
    assert resources.isdisjoint({"keys", "tokens", "lockdown", "erase", "backup", "sweep", "objects"})
    assert not open_to & {("escalations", "resolve"), ("escalations", "expire"), ("agents", "set_status")}
    assert not open_to & {("agents", "register"), ("feedback", "record"), ("sagas", "clear"), ("flows", "orphans")}


def test_every_method_of_an_agent_names_what_has_to_be_its_own() -> None:
    for spec in methods().values():
        if (rule := spec.exposure.agent) is not None:
            names = {each.name for each in spec.parameters}
            assert rule.owns, spec.name
            assert rule.owns.keys() | set(rule.never) | rule.refused.keys() <= names, spec.name


@pytest.mark.parametrize("role", ["operator", "auditor"])
def test_a_list_of_resources_narrows_and_makes_no_tokens(role: str) -> None:
    narrowed = Caller(role, "x", resources=frozenset({"log", "tokens"}))
    found = allowed(narrowed)
    assert {resource for resource, _ in found} == {"log", "tokens"}
    assert not found & {("tokens", "create"), ("logins", "create_link")}


def test_a_list_of_resources_widens_an_agent_by_what_may_be_given_only() -> None:
    wider = Caller("agent", "a", "main", "a", frozenset({"objects", "skills", "keys", "tokens"}))
    found = allowed(wider) - allowed(AGENT)
    assert {resource for resource, _ in found} == {"objects", "skills"}
    assert ("skills", "revoke") not in found


def test_nobody_closes_a_store_or_knows_a_role_that_is_none() -> None:
    assert not may(OPERATOR, "blobs", "close")
    assert not any(may(Caller("guest", "g"), *each) for each in METHODS)


@pytest.mark.parametrize(
    ("resource", "method", "arguments", "expected"),
    [
        ("flows", "get", {"flow_id": "d"}, (Claim("flow", "d"),)),
        ("flows", "start", {"agent_id": "trader"}, (Claim("agent", "trader"),)),
        (
            "flows",
            "start",
            {"agent_id": "a", "parent": "p", "flow_id": "new"},
            (Claim("agent", "a"), Claim("flow", "p")),
        ),
        ("flows", "list", {}, (Claim("agent", None),)),
        ("flows", "tree", {"flow_id": "r"}, (Claim("flow", "r"),)),
        ("escalations", "wait", {"id": 3}, (Claim("escalation", 3),)),
        ("locks", "list", {"resource": "x"}, (Claim("flow", None),)),
    ],
)
def test_an_agent_claims_what_its_call_names(
    resource: str, method: str, arguments: Mapping[str, Any], expected: tuple[Claim, ...]
) -> None:
    assert claims(AGENT, resource, method, arguments) == expected
    assert claims(OPERATOR, resource, method, arguments) == ()


def test_an_agent_neither_sets_its_budget_nor_is_approved_by_waiting() -> None:
    call = {"flow_id": "d", "reason": "?", "on_deadline": "approve", "deadline_s": 0.1}
    with pytest.raises(ForbiddenError):
        claims(AGENT, "escalations", "request", call)
    with pytest.raises(ForbiddenError):
        claims(AGENT, "agents", "set_budget", {"agent_id": "trader", "per_hour": 1000})
    assert claims(OPERATOR, "escalations", "request", call) == ()
    fine = {"flow_id": "d", "reason": "?", "on_deadline": "cancel", "deadline_s": 5}
    assert claims(AGENT, "escalations", "request", fine) == (Claim("flow", "d"),)
