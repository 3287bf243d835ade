"""`holdproof escalations answer` on a real terminal: shown, chosen, confirmed, and in the log."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from holdproof import sync
from holdproof.model.coordination import Escalation
from holdproof.testing import FrozenClock
from tests.conformance.decisions import CrashError
from tests.conformance.test_doubts import Bank, registered
from tests.terminals import Terminal, terminal

HIDDEN = "pay 100\u202e000.5\u202c EUR"


def command(home: Path, *words: str) -> list[str]:
    return [sys.executable, "-m", "holdproof", "--home", str(home), "escalations", "answer", "--by", "ann", *words]


def _asked(store: sync.Holdproof, reason: str, due_s: float, impact: str, proposal: object) -> int:
    flow = store.flows.start("trader", flow_type="refund").flow_id
    store.contexts.put(flow, {"amount": 700, "to": "Ada"})
    store.flows.transition(flow, "RUNNING")
    asked = store.escalations.request(
        flow, reason=reason, proposal=proposal, impact=impact, deadline_s=due_s, context={"because": "a complaint"}
    )
    return asked.id


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A store in which five questions wait, the first one due first."""
    with sync.open(tmp_path / "home") as store:
        store.agents.register("trader", version="1.0.0")
        store.people.put("bob")
        proposal = {"amount": 900, "to": "Ada"}
        for number, reason in enumerate((HIDDEN, "edit", "reject", "ask", "hand over"), 1):
            impact = "HIGH_IMPACT" if number == 1 else "LOW_IMPACT"
            assert _asked(store, reason, 3600.0 * number, impact, proposal) == number
    return tmp_path / "home"


def _get(home: Path, id: int) -> Escalation:
    with sync.open(home) as store:
        return store.escalations.get(id)


def _approve_what_has_hidden_characters(screen: Terminal) -> None:
    shown = screen.expect("Your answer")
    assert "pay 100[U+202E]000.5[U+202C] EUR" in shown, "every hidden character is named"
    assert "careful: [U+202E] right-to-left override" in shown
    assert "amount" in shown
    assert "700 -> 900" in shown
    assert "a complaint" in shown
    screen.type("x")  # no answer of this kind
    screen.expect("Your answer")
    screen.type("a")
    screen.expect("Why")
    screen.type("")  # high impact: it says why
    screen.expect("Why")
    screen.type("as agreed")
    screen.expect("Have you read the marked characters?")
    screen.type("y")
    assert "cannot be called back" in screen.expect("Confirm?")
    screen.type("y")
    screen.expect("Recorded: approved as proposed.")


def _edit(screen: Terminal) -> None:
    screen.expect("Escalation 2")
    screen.expect("Your answer")
    screen.type("e")
    screen.expect("amount [900]")
    screen.type("[5]")  # a number stays a number
    screen.expect("is no number")
    screen.expect("amount [900]")
    screen.type("850")
    screen.expect("to [Ada]")
    screen.type("-")
    screen.expect("Why")
    screen.type("less")
    assert 'with {"amount": 850} instead of what the agent proposed' in screen.expect("Confirm?")
    screen.type("n")  # nothing is sent without a yes: it is shown again
    screen.expect("Your answer")
    screen.type("e")
    screen.expect("amount [900]")
    screen.type("850")
    screen.expect("to [Ada]")
    screen.type("-")
    screen.expect("Why")
    screen.type("less")
    screen.expect("Confirm?")
    screen.type("y")
    screen.expect("Recorded: approved with changes.")


def _reject_ask_and_hand_over(screen: Terminal) -> None:
    screen.expect("Your answer")
    screen.type("r")
    screen.expect("Why")
    screen.type("not now")
    assert "The flow fails" in screen.expect("Confirm?")
    screen.type("y")
    screen.expect("Recorded: rejected.")
    screen.expect("Your answer")
    screen.type("b")
    screen.expect("What do you ask the agent")
    screen.type("which Ada?")
    screen.expect("its flow keeps waiting")
    screen.expect("Your answer")
    screen.type("h")
    screen.expect("Who has to answer")
    screen.type("bob")
    screen.expect("Why")
    screen.type("his customer")
    screen.expect("Handed over to 1 of bob.")


def test_a_person_approves_edits_rejects_asks_back_and_hands_over(home: Path) -> None:
    with terminal(command(home)) as screen:
        _approve_what_has_hidden_characters(screen)
        _edit(screen)
        _reject_ask_and_hand_over(screen)
        screen.expect("Nothing else waits")
        shown = screen.end()
        assert screen.child.wait() == 0
    assert "\u202e" not in shown
    with sync.open(home) as store:
        outcomes = [store.escalations.get(id).outcome for id in range(1, 6)]
        assert outcomes == ["approved as proposed", "approved with changes", "rejected", "pending", "pending"]
        edited = store.escalations.get(2)
        assert (edited.answer, edited.resolved_by, edited.comment) == ({"amount": 850}, "ann", "less")
        question = store.escalations.approvals(4).question
        assert question is not None
        assert (question.text, question.said_by) == ("which Ada?", "ann")
        assert store.escalations.get(5).approvers == "1 of bob"
        assert store.verify.run().verdict.name == "VALID"


def test_a_step_in_doubt_has_answers_of_its_own(tmp_path: Path) -> None:
    clock = FrozenClock()
    with sync.open(tmp_path, clock=clock) as store:
        store.agents.register("trader", version="1.0.0")
        with pytest.raises(CrashError):
            registered(store, Bank(), CrashError())("o-17", 500)
        clock.advance(10)
        worker = sync.Holdproof(store.core)
        registered(worker, Bank())
        worker.flows.recover()
    with terminal(command(tmp_path, "1")) as screen:
        shown = screen.expect("Your answer")
        assert "it did not happen: run it" in shown
        assert "approve" not in shown.rpartition("[y]")[2]
        screen.type("a")  # to approve says none of these
        screen.expect("Your answer")
        screen.type("y")
        screen.expect("Its result")
        screen.type("{paid")
        screen.expect("That is no JSON")
        screen.expect("Its result")
        screen.type('{"order": "o-17", "cents": 500}')
        screen.expect("Why")
        screen.type("seen on the account")
        assert 'its result is {"order": "o-17", "cents": 500}' in screen.expect("Confirm?")
        screen.type("y")
        screen.expect("Recorded")
        screen.end()
    answered = _get(tmp_path, 1)
    assert (answered.human_decision, answered.answer) == ("HAPPENED", {"order": "o-17", "cents": 500})


def test_an_answer_that_comes_too_late_is_told_and_not_taken(home: Path) -> None:
    with terminal(command(home, "3")) as screen:
        screen.expect("Your answer")
        with sync.open(home) as store:
            store.escalations.resolve(3, "reject", by="bob")
        screen.type("a")
        screen.expect("Why")
        screen.type("")
        screen.expect("Confirm?")
        screen.type("y")
        screen.expect("Not taken: ")
        screen.expect("rejected by bob")
        screen.end()
    assert _get(home, 3).resolved_by == "bob"


def test_without_a_terminal_it_says_what_to_call_instead_and_never_waits(home: Path) -> None:
    words = [*command(home, "1"), "--json"]
    done = subprocess.run(words, stdin=subprocess.PIPE, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2
    assert "escalations resolve ID approve --by NAME" in json.loads(done.stdout)["error"]["message"]
    assert _get(home, 1).status == "PENDING"
