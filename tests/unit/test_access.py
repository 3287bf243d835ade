"""Who may do what: the decision of the server, verb by verb."""

from collections.abc import Mapping
from typing import Any

import pytest

from holdproof.api.catalogue import entries
from holdproof.errors import ForbiddenError
from holdproof.server.permissions import DECIDING, INNER, Caller, Claim, claims, may

OPERATOR = Caller("operator", "ann")
AUDITOR = Caller("auditor", "bob")
AGENT = Caller("agent", "trader", "main", "trader")
VERBS = sorted(entries())


def allowed(caller: Caller) -> set[tuple[str, str]]:
    return {each for each in VERBS if may(caller, *each, reads=entries()[each].reads)}


def test_an_operator_may_do_everything_but_try_secrets() -> None:
    assert allowed(OPERATOR) == {*VERBS} - INNER


def test_an_auditor_changes_nothing_and_opens_nothing_sealed() -> None:
    found = allowed(AUDITOR)
    assert {each for each in found if not entries()[each].reads} == {("verify", "run")}
    assert not found & {("battles", "reveal"), ("agents", "authenticate"), ("tokens", "authenticate")}
    assert {("flows", "list"), ("log", "prove"), ("tokens", "list"), ("lockdown", "status")} <= found


def test_an_auditor_verifies_without_locking() -> None:
    assert claims(AUDITOR, "verify", "run", {"lock": False}, reads=False) == ()
    for given in ({}, {"lock": True}, {"lock": 0}):
        with pytest.raises(ForbiddenError):
            claims(AUDITOR, "verify", "run", given, reads=False)


def test_an_agent_decides_and_nothing_else() -> None:
    found = allowed(AGENT)
    assert found == {*DECIDING} & {*VERBS}
    assert {noun for noun, _ in found}.isdisjoint({"keys", "tokens", "lockdown", "erase", "backup", "sweep", "objects"})
    assert not found & {("escalations", "resolve"), ("escalations", "expire"), ("agents", "set_status")}
    assert not found & {("agents", "register"), ("feedback", "record"), ("sagas", "clear"), ("flows", "orphans")}


def test_every_verb_of_an_agent_names_what_has_to_be_its_own() -> None:
    for (noun, verb), wanted in DECIDING.items():
        taken = {each.name for each in entries()[noun, verb].parameters}
        assert wanted
        assert wanted.keys() <= taken, (noun, verb)


@pytest.mark.parametrize("role", ["operator", "auditor"])
def test_a_list_of_nouns_narrows_and_makes_no_tokens(role: str) -> None:
    narrowed = Caller(role, "x", nouns=frozenset({"log", "tokens"}))
    found = allowed(narrowed)
    assert {noun for noun, _ in found} == {"log", "tokens"}
    assert not found & {("tokens", "create"), ("logins", "create_link")}


def test_a_list_of_nouns_widens_an_agent_by_what_may_be_given_only() -> None:
    wider = Caller("agent", "a", "main", "a", frozenset({"objects", "skills", "keys", "tokens"}))
    found = allowed(wider) - allowed(AGENT)
    assert {noun for noun, _ in found} == {"objects", "skills"}
    assert ("skills", "revoke") not in found


def test_nobody_closes_a_store_or_knows_a_role_that_is_none() -> None:
    assert not may(OPERATOR, "blobs", "close", reads=False)
    assert not any(may(Caller("guest", "g"), *each, reads=True) for each in VERBS)


@pytest.mark.parametrize(
    ("noun", "verb", "given", "wanted"),
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
        ("flows", "tree", {"root": "r"}, (Claim("flow", "r"),)),
        ("escalations", "wait", {"id": 3}, (Claim("escalation", 3),)),
        ("locks", "list", {"resource": "x"}, (Claim("flow", None),)),
    ],
)
def test_an_agent_claims_what_its_call_names(
    noun: str, verb: str, given: Mapping[str, Any], wanted: tuple[Claim, ...]
) -> None:
    assert claims(AGENT, noun, verb, given, reads=False) == wanted
    assert claims(OPERATOR, noun, verb, given, reads=False) == ()


@pytest.mark.parametrize("given", [{"budget": 1000}, {"window_s": 0.1}, {"on_deadline": "approve", "deadline_s": 0.1}])
def test_an_agent_neither_sets_its_budget_nor_is_approved_by_waiting(given: dict[str, Any]) -> None:
    call = {"flow_id": "d", "reason": "?", **given}
    with pytest.raises(ForbiddenError):
        claims(AGENT, "escalations", "request", call, reads=False)
    assert claims(OPERATOR, "escalations", "request", call, reads=False) == ()
    fine = {"flow_id": "d", "reason": "?", "on_deadline": "cancel", "deadline_s": 5}
    assert claims(AGENT, "escalations", "request", fine, reads=False) == (Claim("flow", "d"),)
