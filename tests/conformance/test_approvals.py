"""Approvals that name people: quorums, delegations, questions back, reminders; on every backend."""

import json
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from hashlib import sha256
from typing import Any

import pytest

from harness.filling import running
from holdproof import errors, sync
from holdproof.db import Tx, sql
from holdproof.model.approvals import Approvers, parse_approvers
from holdproof.model.coordination import Escalation
from holdproof.model.namespaces import MAIN
from holdproof.runtime import escalation_messages, escalations
from holdproof.runtime.approvals import Answer
from holdproof.testing import FrozenClock
from tests.conformance.decisions import InMemory, OnPostgres, OnSqlite, OnStore

_ENTRIES = sql(
    "SELECT count(*) FROM log_leaves WHERE leaf LIKE :like",
    postgres="SELECT (SELECT count(*) FROM log_leaves WHERE leaf LIKE :like)"
    " + (SELECT count(*) FROM log_pending WHERE leaf LIKE :like)",
)


def staffed(store: sync.Holdproof) -> None:
    for name in ("ann", "bob", "carol"):
        store.people.put(name, groups=["finance"])
    store.people.put("dave", groups=["legal"])


def asked(store: sync.Holdproof, approvers: str | None = "2 of finance", **options: Any) -> Escalation:
    proposal = {"cents": 900}
    return store.escalations.request(
        running(store), reason="pay 900?", proposal=proposal, approvers=approvers, **options
    )


def entries(store: sync.Holdproof, kind: str) -> int:
    row = store.read(lambda tx: tx.one(_ENTRIES, like=f'%"t":"{kind}"%'))
    assert row is not None
    return int(row[0])


class ApprovalsOfPeople(OnStore):
    def test_a_quorum_settles_when_enough_people_have_approved(self, store: sync.Holdproof) -> None:
        staffed(store)
        request = asked(store)
        first = store.escalations.resolve(request.id, "approve", by="ann")
        assert (first.status, store.flows.get(request.flow_id).status) == ("PENDING", "WAITING_ESCALATION")
        standing = store.escalations.approvals(request.id)
        assert (standing.approved_by, standing.needed, standing.waiting_for) == (("ann",), 2, ("bob", "carol"))
        second = store.escalations.resolve(request.id, "approve", by="operator:carol")
        assert (second.outcome, second.resolved_by) == ("approved as proposed", "ann, carol")
        assert store.flows.get(request.flow_id).status == "RUNNING"
        assert entries(store, "answer") == 2

    def test_one_person_does_not_count_twice(self, store: sync.Holdproof) -> None:
        staffed(store)
        request = asked(store)
        store.escalations.resolve(request.id, "approve", by="ann")
        for by in ("ann", "operator:ann"):
            with pytest.raises(errors.AlreadyAnsweredError):
                store.escalations.resolve(request.id, "approve", by=by)
        assert store.escalations.approvals(request.id).approved_by == ("ann",)

    def test_who_is_no_approver_does_not_count(self, store: sync.Holdproof) -> None:
        staffed(store)
        request = asked(store)
        store.people.remove("carol")
        for by in ("dave", "eve", "carol", "auditor:ann"):
            with pytest.raises(errors.NotApproverError):
                store.escalations.resolve(request.id, "approve", by=by)
        assert store.escalations.approvals(request.id).answers == ()

    def test_one_rejection_rejects(self, store: sync.Holdproof) -> None:
        staffed(store)
        request = asked(store)
        store.escalations.resolve(request.id, "approve", by="ann")
        answer = store.escalations.resolve(request.id, "reject", by="bob", comment="no")
        assert (answer.status, answer.resolved_by) == ("REJECTED", "bob")
        assert store.flows.get(request.flow_id).status == "FAILED"

    def test_approvals_are_of_one_and_the_same_thing(self, store: sync.Holdproof) -> None:
        staffed(store)
        request = asked(store)
        store.escalations.resolve(request.id, "approve", by="ann", proposal={"cents": 100})
        for proposal in (None, {"cents": 900}):
            with pytest.raises(errors.AnswersDifferError):
                store.escalations.resolve(request.id, "approve", by="bob", proposal=proposal)
        answer = store.escalations.resolve(request.id, "approve", by="bob", proposal={"cents": 100})
        assert (answer.outcome, answer.answer) == ("approved with changes", {"cents": 100})

    def test_proposals_are_compared_as_they_are_written(self, store: sync.Holdproof) -> None:
        staffed(store)
        request = asked(store)
        store.escalations.resolve(request.id, "approve", by="ann", proposal={"all": True})
        with pytest.raises(errors.AnswersDifferError):
            store.escalations.resolve(request.id, "approve", by="bob", proposal={"all": 1})
        assert store.escalations.resolve(request.id, "approve", by="bob", proposal={"all": True}).approved

    def test_an_approval_of_what_was_shown_before_does_not_count_and_is_given_again(
        self, store: sync.Holdproof
    ) -> None:
        staffed(store)
        request = asked(store)
        store.escalations.resolve(request.id, "approve", by="ann", proposal={"cents": 1})
        store.escalations.ask(request.id, "to whom?", by="bob")
        store.escalations.reply(request.id, "to Mallory")
        assert store.escalations.approvals(request.id).approved_by == ()
        assert store.escalations.approvals(request.id).waiting_for == ("ann", "bob", "carol")
        # What no longer counts binds nobody either: Bob approves as proposed.
        assert store.escalations.resolve(request.id, "approve", by="bob").status == "PENDING"
        answer = store.escalations.resolve(request.id, "approve", by="ann")
        assert (answer.outcome, answer.resolved_by) == ("approved as proposed", "bob, ann")
        assert store.escalations.approvals(request.id).approved_by == ("ann", "bob")

    def test_an_approval_of_who_is_no_approver_any_more_does_not_count(self, store: sync.Holdproof) -> None:
        staffed(store)
        store.people.put("dan", groups=["legal"])
        passed_on, left = asked(store), asked(store)
        for each in (passed_on, left):
            store.escalations.resolve(each.id, "approve", by="ann")
        store.escalations.reassign(passed_on.id, "2 of legal", by="root")
        assert store.escalations.resolve(passed_on.id, "approve", by="dave").status == "PENDING"
        assert store.escalations.approvals(passed_on.id).approved_by == ("dave",)
        assert store.escalations.resolve(passed_on.id, "approve", by="dan").resolved_by == "dave, dan"
        store.people.remove("ann")
        assert store.escalations.resolve(left.id, "approve", by="bob").status == "PENDING"
        assert store.escalations.resolve(left.id, "approve", by="carol").resolved_by == "bob, carol"
        # Who resolved it stays so, whoever leaves.
        store.people.remove("bob")
        assert store.escalations.approvals(left.id).approved_by == ("bob", "carol")

    def test_an_approval_of_a_delegate_who_was_removed_does_not_count(self, store: sync.Holdproof) -> None:
        staffed(store)
        store.people.delegate("ann", "dave", until_s=60)
        request = asked(store)
        store.escalations.resolve(request.id, "approve", by="dave")
        store.people.remove("dave")
        assert store.escalations.resolve(request.id, "approve", by="bob").status == "PENDING"
        assert store.escalations.resolve(request.id, "approve", by="ann").resolved_by == "bob, ann"

    def test_escalations_are_listed_by_who_answered_them_alone_or_with_others(self, store: sync.Holdproof) -> None:
        for name in ("ann", "bob", "cid"):
            store.people.put(name, groups=["finance"])
        both = store.escalations.request(running(store), reason="both?", approvers="2 of finance").id
        alone = store.escalations.request(running(store), reason="alone?").id
        store.escalations.request(running(store), reason="nobody?")
        store.escalations.resolve(both, "approve", by="ann")
        assert [each.id for each in store.escalations.list(answered_by="ann").items] == [both]
        store.escalations.resolve(both, "approve", by="operator:bob")
        store.escalations.resolve(alone, "reject", by="operator:ann")

        def answered(by: str, *, status: str | None = None, order: str = "newest") -> list[int]:
            page = store.escalations.list(answered_by=by, status=status, order=order)
            return [each.id for each in page.items]

        assert answered("ann") == answered("operator:ann") == [alone, both]
        assert answered("bob") == answered("bob", order="due") == [both]
        assert answered("bob", status="REJECTED") == answered("cid") == []

    def test_an_approval_without_a_passkey_does_not_count_once_passkeys_are_required(
        self, store: sync.Holdproof
    ) -> None:
        staffed(store)
        request = asked(store)
        store.escalations.resolve(request.id, "approve", by="ann")
        store.escalations.reassign(request.id, "2 of finance with passkey", by="root")
        assert store.escalations.approvals(request.id).approved_by == ()
        assert _signed(store, request.id, "bob").status == "PENDING"
        assert _signed(store, request.id, "ann").resolved_by == "bob, ann"

    def test_who_answered_twice_counts_once_when_both_answers_fit_again(self, store: sync.Holdproof) -> None:
        staffed(store)
        request = asked(store, "3 of finance")
        store.escalations.resolve(request.id, "approve", by="ann")
        store.escalations.reassign(request.id, "3 of finance with passkey", by="root")
        assert _signed(store, request.id, "ann").status == "PENDING"
        store.escalations.reassign(request.id, "3 of finance", by="root")
        assert store.escalations.approvals(request.id).approved_by == ("ann",)
        assert store.escalations.resolve(request.id, "approve", by="bob").status == "PENDING"
        assert store.escalations.resolve(request.id, "approve", by="carol").approved

    def test_whether_a_step_happened_needs_the_quorum_too(self, store: sync.Holdproof) -> None:
        staffed(store)
        answers: list[tuple[str, dict[str, Any]]] = [("happened", {"result": {"paid": 1}}), ("did_not_happen", {})]
        for word, options in answers:
            request = _in_doubt(store)
            assert store.escalations.resolve(request.id, word, by="ann", **options).status == "PENDING"
            with pytest.raises(errors.AnswersDifferError):
                store.escalations.resolve(request.id, "happened", by="bob", result={"paid": True})
            answer = store.escalations.resolve(request.id, word, by="bob", **options)
            assert (answer.status, answer.resolved_by) == ("APPROVED", "ann, bob")
        request = _in_doubt(store)
        store.escalations.resolve(request.id, "happened", by="ann")
        assert store.escalations.resolve(request.id, "undo", by="bob").status == "REJECTED"

    def test_every_answer_says_who_saw_which_bytes(self, store: sync.Holdproof) -> None:
        staffed(store)
        request = asked(store)
        before = store.escalations.approvals(request.id)
        assert before.shown_hash == sha256(before.document.encode()).hexdigest()
        assert json.loads(before.document)["proposal"] == {"cents": 900}
        store.escalations.resolve(request.id, "approve", by="ann", shown_hash=before.shown_hash, comment="fine")
        [answer] = store.escalations.approvals(request.id).answers
        assert (answer.person, answer.seat, answer.shown_hash) == ("ann", "ann", before.shown_hash)
        assert answer.statement_hash == sha256(answer.statement.encode()).hexdigest()
        agreed = json.loads(answer.statement)
        assert agreed["request"] == json.loads(before.document)
        assert agreed["answer"] == {"person": "ann", "decision": "approve", "answer": None, "comment": "fine"}

    def test_an_answer_without_named_approvers_is_an_entry_too(self, store: sync.Holdproof) -> None:
        request = asked(store, None)
        store.escalations.resolve(request.id, "approve", by="operator:zoe", comment="ok")
        [answer] = store.escalations.approvals(request.id).answers
        assert (answer.person, answer.answered_by, answer.decision) == ("zoe", "operator:zoe", "approve")
        assert entries(store, "answer") == 1

    def test_an_answer_to_what_has_changed_since_is_refused(self, store: sync.Holdproof) -> None:
        staffed(store)
        request = asked(store)
        seen = store.escalations.approvals(request.id).shown_hash
        store.escalations.ask(request.id, "which customer?", by="bob")
        with pytest.raises(errors.ShownChangedError) as refused:
            store.escalations.resolve(request.id, "approve", by="ann", shown_hash=seen)
        fresh = store.escalations.approvals(request.id).shown_hash
        assert refused.value.fields["shown_hash"] == fresh
        store.escalations.resolve(request.id, "approve", by="ann", shown_hash=fresh)

    def test_a_question_back_reaches_the_agent_and_the_flow_keeps_waiting(self, live: sync.Holdproof) -> None:
        staffed(live)
        request = asked(live)
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(live.escalations.wait_question, request.id, timeout_s=60)
            live.escalations.ask(request.id, "which customer?", by="operator:ann")
            question = waiting.result(60)
        assert question is not None
        assert (question.text, question.said_by) == ("which customer?", "operator:ann")
        assert live.flows.get(request.flow_id).status == "WAITING_ESCALATION"
        live.escalations.reply(request.id, "the one in Turin", by="agent:trader")
        with pytest.raises(errors.ConflictError):
            live.escalations.reply(request.id, "and another", by="agent:trader")
        standing = live.escalations.approvals(request.id)
        assert [(each.kind, each.text) for each in standing.messages] == [
            ("question", "which customer?"),
            ("reply", "the one in Turin"),
        ]
        assert standing.question is None
        assert json.loads(standing.document)["messages"][1]["text"] == "the one in Turin"
        assert live.flows.get(request.flow_id).status == "WAITING_ESCALATION"

    def test_who_waits_for_a_question_is_told_that_it_was_answered(self, store: sync.Holdproof) -> None:
        request = asked(store, None)
        assert store.escalations.wait_question(request.id, timeout_s=0) is None
        store.escalations.resolve(request.id, "approve", by="ann")
        assert store.escalations.wait_question(request.id) is None
        for say in (store.escalations.ask, store.escalations.reply):
            with pytest.raises(errors.AlreadyResolvedError):
                say(request.id, "?", by="ann")

    def test_a_delegate_answers_in_one_seat_until_it_ends(self, store: sync.Holdproof, clock: FrozenClock) -> None:
        staffed(store)
        store.people.delegate("ann", "dave", until_s=60)
        first, second = asked(store), asked(store)
        store.escalations.resolve(first.id, "approve", by="dave")
        [answer] = store.escalations.approvals(first.id).answers
        assert (answer.person, answer.seat) == ("dave", "ann")
        # Ann's seat has answered, and so has Dave.
        for by in ("ann", "dave"):
            with pytest.raises(errors.AlreadyAnsweredError):
                store.escalations.resolve(first.id, "approve", by=by)
        assert store.escalations.resolve(first.id, "approve", by="bob").resolved_by == "dave for ann, bob"
        clock.advance(61)
        with pytest.raises(errors.NotApproverError):
            store.escalations.resolve(second.id, "approve", by="dave")
        assert store.people.delegations().items == []
        assert len(store.people.delegations(all=True).items) == 1

    def test_a_delegate_who_is_an_approver_counts_once(self, store: sync.Holdproof) -> None:
        staffed(store)
        store.people.delegate("ann", "bob", until_s=60)
        request = asked(store)
        store.escalations.resolve(request.id, "approve", by="bob")
        with pytest.raises(errors.AlreadyAnsweredError):
            store.escalations.resolve(request.id, "approve", by="bob")
        assert store.escalations.approvals(request.id).approved_by == ("bob",)

    def test_a_delegation_ends_by_hand_and_with_its_people_and_does_not_chain(self, store: sync.Holdproof) -> None:
        staffed(store)
        store.people.put("eve")
        ended = store.people.delegate("ann", "dave", until_s=60)
        assert store.people.end_delegation(ended.id, by="ann").ended_by == "ann"
        store.people.delegate("bob", "dave", until_s=60)
        store.people.delegate("dave", "eve", until_s=60)
        request = asked(store)
        with pytest.raises(errors.NotApproverError):
            store.escalations.resolve(request.id, "approve", by="eve")
        store.people.remove("dave")
        with pytest.raises(errors.NotApproverError):
            store.escalations.resolve(request.id, "approve", by="dave")

    def test_a_delegation_that_ended_with_a_person_does_not_come_back_with_them(self, store: sync.Holdproof) -> None:
        staffed(store)
        for removed in ("ann", "dave"):
            delegation = store.people.delegate("ann", "dave", until_s=60)
            store.people.remove(removed, by="root")
            [ended] = [each for each in store.people.delegations(all=True).items if each.id == delegation.id]
            assert (ended.ended_by, store.people.delegations().items) == ("root", [])
            store.people.put(removed, groups=["finance"] if removed == "ann" else ["legal"])
            with pytest.raises(errors.NotApproverError):
                store.escalations.resolve(asked(store).id, "approve", by="dave")

    def test_of_a_delegation_and_a_removal_at_once_none_outlives_the_person(self, store: sync.Holdproof) -> None:
        staffed(store)
        gate = threading.Barrier(8)

        def act(number: int) -> None:
            gate.wait(60)
            try:
                if number:
                    store.people.delegate(*(("ann", "bob") if number % 2 else ("bob", "ann")), until_s=60)
                else:
                    store.people.remove("ann")
            except errors.InvalidInputError:
                pass

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(act, range(8)))
        assert store.people.delegations().items == []

    def test_who_was_removed_answers_nothing_where_nobody_is_named(self, store: sync.Holdproof) -> None:
        staffed(store)
        request = asked(store, None)
        store.people.remove("ann")
        for by in ("ann", "operator:ann"):
            with pytest.raises(errors.NotApproverError):
                store.escalations.resolve(request.id, "approve", by=by)
        store.people.put("ann")
        assert store.escalations.resolve(request.id, "approve", by="ann").approved

    def test_reassigning_changes_who_has_to_answer_and_says_so(self, store: sync.Holdproof) -> None:
        staffed(store)
        request = asked(store)
        store.escalations.resolve(request.id, "approve", by="ann")
        again = store.escalations.reassign(request.id, "2 of ann, dave", by="operator:root", comment="legal looks too")
        assert again.approvers == "2 of ann, dave"
        with pytest.raises(errors.NotApproverError):
            store.escalations.resolve(request.id, "approve", by="bob")
        assert store.escalations.resolve(request.id, "approve", by="dave").resolved_by == "ann, dave"
        [note] = store.escalations.approvals(request.id).messages
        assert (note.kind, note.said_by) == ("reassigned", "operator:root")
        assert note.text == "2 of finance → 2 of ann, dave: legal looks too"

    def test_a_reminder_is_written_once_when_the_deadline_is_near(
        self, store: sync.Holdproof, clock: FrozenClock
    ) -> None:
        staffed(store)
        request = asked(store, deadline_s=1000)
        store.sweep.run()
        assert store.escalations.approvals(request.id).messages == ()
        clock.advance(751)
        store.escalations.resolve(request.id, "approve", by="bob")
        store.sweep.run()
        store.sweep.run()
        [reminder] = store.escalations.approvals(request.id).messages
        assert (reminder.kind, reminder.said_by) == ("reminder", "kernel")
        assert "1 of 2 approved, waiting for ann, carol" in reminder.text
        clock.advance(250)
        store.sweep.run()
        assert store.escalations.get(request.id).outcome == "expired"

    def test_a_quorum_is_not_approved_by_a_deadline(self, store: sync.Holdproof) -> None:
        staffed(store)
        with pytest.raises(errors.InvalidInputError):
            asked(store, deadline_s=1, on_deadline="approve")

    def test_more_approvers_than_there_are_is_refused_at_once(self, store: sync.Holdproof) -> None:
        staffed(store)
        for line in ("4 of finance", "board", "2 of ann, nobody"):
            with pytest.raises(errors.TooFewApproversError):
                asked(store, line)
        request = asked(store)
        with pytest.raises(errors.TooFewApproversError):
            store.escalations.reassign(request.id, "9 of finance", by="ann")

    def test_a_person_who_was_edited_into_a_group_does_not_approve(self, store: sync.Holdproof) -> None:
        staffed(store)
        request = asked(store)
        edits = (
            "UPDATE people SET member_of = '[\"finance\"]' WHERE name = 'dave'",
            "UPDATE escalation_requests SET approvers = '1 of dave'",
            "UPDATE escalation_requests SET approvers = NULL",
        )
        for edit in edits:
            with pytest.raises(errors.TamperedError):
                store.write(lambda tx, edit=edit: _edited(tx, edit, request.id))  # type: ignore[misc]

    def test_a_reply_that_was_edited_is_neither_shown_nor_approved(self, store: sync.Holdproof) -> None:
        staffed(store)
        request = asked(store)
        store.escalations.ask(request.id, "to whom?", by="bob")
        store.escalations.reply(request.id, "to Mallory")

        def edited(tx: Tx, act: Callable[[Tx], object]) -> None:
            tx.execute(sql("UPDATE escalation_messages SET text = 'to our own account' WHERE kind = 'reply'"))
            act(tx)

        acts: list[Callable[[Tx], object]] = [
            lambda tx: escalations.resolve(tx, request.id, "approve", by="ann"),
            lambda tx: escalation_messages.status(tx, request.id),
        ]
        for act in acts:
            with pytest.raises(errors.TamperedError):
                store.write(partial(edited, act=act))

    def test_people_and_their_delegations_are_validated(self, store: sync.Holdproof) -> None:
        staffed(store)
        calls: list[Callable[[], object]] = [
            lambda: store.people.put("a, b"),
            lambda: store.people.put("operator:ann"),
            lambda: store.people.put(" ann"),
            lambda: store.people.put("ann", groups="finance"),
            lambda: store.people.put("ann", email="nowhere"),
            lambda: store.people.delegate("ann", "ann", until_s=1),
            lambda: store.people.delegate("ann", "bob"),
            lambda: store.people.delegate("ann", "bob", until="2020-01-01T00:00:00Z"),
            lambda: store.people.delegate("ann", "bob", until_s=1, until="2030-01-01T00:00:00Z"),
            lambda: asked(store, ""),
            lambda: asked(store, "2 of "),
            lambda: asked(store, "ann,,bob"),
        ]
        for call in calls:
            with pytest.raises(errors.InvalidInputError):
                call()
        for absent in (lambda: store.people.get("zoe"), lambda: store.people.delegate("ann", "zoe", until_s=1)):
            with pytest.raises(errors.NotFoundError):
                absent()

    def test_people_are_of_their_namespace(self, store: sync.Holdproof) -> None:
        store.people.put("ann", groups=["finance"])
        store.people.put("ann", groups=["legal"], email="ann@example.org", ns="other")
        assert store.people.get("ann").groups == ("finance",)
        assert store.people.get("ann", ns="other").email == "ann@example.org"
        assert [each.name for each in store.people.list().items] == ["ann"]
        with pytest.raises(errors.TooFewApproversError):
            asked(store, "legal")

    def test_of_two_operators_at_once_who_are_one_person_one_counts(self, store: sync.Holdproof) -> None:
        staffed(store)
        request = asked(store)
        outcomes = _at_once(store, request.id, ["ann"] * 8)
        assert outcomes == Counter({"PENDING": 1, "AlreadyAnsweredError": 7})
        assert store.escalations.approvals(request.id).approved_by == ("ann",)

    def test_of_many_who_approve_at_once_exactly_the_quorum_counts(self, store: sync.Holdproof) -> None:
        names = [f"p{number}" for number in range(8)]
        for name in names:
            store.people.put(name, groups=["crowd"])
        request = asked(store, "3 of crowd")
        outcomes = _at_once(store, request.id, names)
        assert outcomes == Counter({"PENDING": 2, "APPROVED": 1, "AlreadyResolvedError": 5})
        standing = store.escalations.approvals(request.id)
        assert len(standing.answers) == len(standing.approved_by) == 3
        assert store.escalations.get(request.id).resolved_by == ", ".join(each.person for each in standing.answers)
        assert store.flows.get(request.flow_id).status == "RUNNING"

    def test_a_flow_function_waits_for_its_quorum(self, live: sync.Holdproof) -> None:
        staffed(live)

        @live.flow(agent="trader")
        def pay(flow, cents):  # type: ignore[no-untyped-def]
            answer = flow.approve("over the limit", proposal={"cents": cents}, approvers="2 of finance")
            return answer.resolved_by

        with ThreadPoolExecutor(1) as pool:
            paying = pool.submit(pay, 900)
            while not (pending := live.escalations.list(status="PENDING").items):
                threading.Event().wait(0.005)
            for by in ("carol", "ann"):
                live.escalations.resolve(pending[0].id, "approve", by=by)
            assert paying.result(60) == "carol, ann"

    def test_of_a_person_who_was_erased_the_hashes_stay_and_the_words_go(self, store: sync.Holdproof) -> None:
        staffed(store)
        request = store.escalations.request(
            running(store, subject="pat"), reason="pay pat?", proposal={"to": "pat"}, approvers="1 of finance"
        )
        store.escalations.ask(request.id, "is pat well?", by="ann")
        store.escalations.resolve(request.id, "approve", by="ann", comment="pat is well")
        before = store.escalations.approvals(request.id)
        store.erase.subject("pat", who="ann")
        after = store.escalations.approvals(request.id)
        assert after.answers[0].shown_hash == before.answers[0].shown_hash
        assert after.answers[0].statement_hash == before.answers[0].statement_hash
        assert "pat" not in json.dumps(after.to_dict()["answers"][0]["statement"])
        assert "pat" not in after.messages[0].text


def _edited(tx: Tx, edit: str, id: int) -> None:
    """Edit a row behind the product's back and answer, in one transaction that then fails as a whole."""
    tx.execute(sql(edit))
    escalations.resolve(tx, id, "approve", by="dave")


def _signed(store: sync.Holdproof, id: int, by: str) -> Escalation:
    """Answer as one whose signature was verified; tests/e2e/test_passkeys.py signs."""
    answer = partial(escalations.answer, id=id, response=Answer("approve", None, None), by=by, passkey={}, ns=MAIN)
    result = store.write(answer)
    assert isinstance(result, Escalation)
    return result


def _in_doubt(store: sync.Holdproof) -> Escalation:
    flow_id = running(store)
    request = store.write(lambda tx: escalations.alert(tx, flow_id, reason="in doubt", kind="in_doubt"))
    return store.escalations.reassign(request.id, "2 of finance", by="root")


def _at_once(store: sync.Holdproof, id: int, names: list[str]) -> Counter[str]:
    gate = threading.Barrier(len(names))

    def approve(name: str) -> str:
        gate.wait(60)
        try:
            return store.escalations.resolve(id, "approve", by=name).status
        except errors.HoldproofError as error:
            return type(error).__name__

    with ThreadPoolExecutor(len(names)) as pool:
        return Counter(pool.map(approve, names))


@pytest.mark.parametrize(
    ("line", "approvers"),
    [
        ("finance", Approvers(1, ("finance",))),
        ("2 of finance", Approvers(2, ("finance",))),
        ("2 of ann, bob, ann", Approvers(2, ("ann", "bob"))),
        ("3 of the board, legal with passkey", Approvers(3, ("the board", "legal"), passkey=True)),
    ],
)
def test_a_line_of_approvers_is_read_as_it_is_written(line: str, approvers: Approvers) -> None:
    assert parse_approvers(line) == approvers
    assert parse_approvers(str(approvers)) == approvers


class TestSqlite(OnSqlite, ApprovalsOfPeople):
    def test_an_answer_outlives_the_process_that_took_it(self) -> None:
        with closing(self.open()) as store:
            store.agents.register("trader", version="1.0.0")
            staffed(store)
            request = asked(store)
            store.escalations.resolve(request.id, "approve", by="ann")
        with closing(self.open()) as store:
            assert store.escalations.resolve(request.id, "approve", by="bob").approved


class TestMemory(InMemory, ApprovalsOfPeople):
    pass


class TestPostgres(OnPostgres, ApprovalsOfPeople):
    pass
