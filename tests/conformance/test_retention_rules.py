"""Retention floors and legal holds: root sets and lifts them, and what they keep is neither pruned nor erased."""

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from harness.filling import settled
from holdproof import errors, sync
from holdproof.cli.app import app
from holdproof.crypto import keys
from holdproof.db import sql
from holdproof.evidence import retention_rules, statements
from holdproof.model.verdicts import Verdict
from holdproof.testing import FrozenClock
from tests.conformance.decisions import InMemory, OnPostgres, OnSqlite, OnStore

DAY_S = 86_400


def _ended(store: sync.Holdproof, flow_id: str, *, subject: str | None = None) -> None:
    with store.flows.run("trader", flow_id=flow_id, subject=subject) as flow:
        flow.step("look", lambda: 1)
    store.audit.record(flow_id, "LOOKED")


def _left(store: sync.Holdproof) -> set[str]:
    return {flow.flow_id for flow in store.flows.list().items}


class RetentionRules(OnStore):
    def test_a_floor_refuses_to_prune_what_is_younger_or_by_number_alone(
        self, store: sync.Holdproof, clock: FrozenClock
    ) -> None:
        _ended(store, "old")
        clock.advance(200 * DAY_S)
        _ended(store, "young")
        rule = store.retention.floor(183, reason="six months", what="flows")
        store.retention.floor(30, reason="a shorter one does not count")
        for days, keep in ((182, None), (None, 0), (0, 0)):
            with pytest.raises(errors.RetentionHeldError, match="183"):
                store.retention.prune("flows", older_than_days=days, keep=keep)
        refusals = store.flows.delete_many(status="COMPLETED").refused
        assert len(refusals) == 1, refusals  # the old one was deleted
        assert "183 days" in refusals[0]
        assert _left(store) == {"young"}
        store.retention.lift(rule.id, reason="no longer needed")
        assert [each.days for each in store.retention.rules().items] == [30]
        assert {each.lift_reason for each in store.retention.rules(all=True).items} == {None, "no longer needed"}

    def test_a_hold_keeps_a_flow_with_its_tree_and_a_person_with_all_of_theirs(
        self, store: sync.Holdproof, clock: FrozenClock
    ) -> None:
        for flow_id, subject in (("held", None), ("of Ada", "Ada"), ("of Bob", "Bob"), ("plain", None)):
            _ended(store, flow_id, subject=subject)
        store.evaluations.submit({"n": 1}, evaluation_id="e-1", score=0.5, subject="Ada")
        clock.advance(200 * DAY_S)
        rule = store.retention.hold(flow_id="held", reason="case 1")
        of_ada = store.retention.hold(subject="Ada", reason="case 2")
        assert store.retention.prune("audit", older_than_days=1, dry_run=True).count == 2
        assert store.retention.prune("audit", older_than_days=1).count == 2
        assert store.retention.prune("flows", older_than_days=1).count == 2
        assert _left(store) == {"held", "of Ada"}
        with pytest.raises(errors.RetentionHeldError, match="case 2"):
            store.erase.subject("Ada")
        with pytest.raises(errors.RetentionHeldError, match="case 2"):
            store.erase.record("battles", "1")
        with pytest.raises(errors.RetentionHeldError):
            store.retention.prune("versions", keep=1)
        store.retention.lift(rule.id, reason="closed")
        store.retention.lift(of_ada.id, reason="closed")
        assert store.erase.subject("Ada").count
        assert store.retention.prune("flows", older_than_days=1).count == 2
        with pytest.raises(errors.ConflictError, match="lifted"):
            store.retention.lift(rule.id, reason="again")

    def test_a_hold_on_everything_ends_pruning_deleting_and_erasing(self, store: sync.Holdproof) -> None:
        _ended(store, "one", subject="Ada")
        rule = store.retention.hold(reason="case 3")
        calls: list[Any] = [
            lambda: store.retention.prune("flows", older_than_days=0),
            lambda: store.erase.subject("Ada"),
            lambda: store.erase.subject("somebody unknown"),
        ]
        for call in calls:
            with pytest.raises(errors.RetentionHeldError, match="case 3"):
                call()
        (refusal,) = store.flows.delete_many(status="COMPLETED").refused
        assert "case 3" in refusal
        store.retention.lift(rule.id, reason="closed")
        assert store.retention.prune("flows", older_than_days=0).count == 0, "nothing is older than now"
        assert store.erase.subject("Ada").count == 0

    def test_a_rule_is_refused_without_root_and_counts_when_root_signs_elsewhere(self, store: sync.Holdproof) -> None:
        recovery = store.keys.export_root(offline=True).recovery
        with pytest.raises(errors.UnknownKeyError, match="retention draft"):
            store.retention.hold(reason="case 4")
        draft = store.retention.draft("hold", reason="case 4")
        root = statements.from_recovery(recovery)
        other = keys.generate("ed25519")
        with pytest.raises(errors.ProofError):
            store.retention.import_rule(statements.sign(draft.text.encode(), other))
        signed = statements.sign(draft.text.encode(), root)
        rule = store.retention.import_rule(signed)
        with pytest.raises(errors.ConflictError):
            store.retention.import_rule(signed)
        elsewhere = draft.text.replace('"origin":"', '"origin":"elsewhere/')
        with pytest.raises(errors.FormatError):
            store.retention.import_rule(statements.sign(elsewhere.encode(), root))
        lift = store.retention.draft("lift", id=rule.id, reason="closed")
        assert store.retention.import_rule(statements.sign(lift.text.encode(), root)).lifted_at is not None

    def test_a_revoked_root_key_sets_and_lifts_nothing_and_what_it_set_before_stays(
        self, store: sync.Holdproof
    ) -> None:
        old = statements.from_recovery(store.keys.export_root().recovery)
        rule = store.retention.hold(reason="case 7")
        store.keys.rotate("root")
        store.keys.revoke(old.keyid, successors="readmit")
        for draft in (
            store.retention.draft("lift", id=rule.id, reason="stolen"),
            store.retention.draft("floor", days=30_000, reason="stolen"),
        ):
            with pytest.raises(errors.ProofError):
                store.retention.import_rule(statements.sign(draft.text.encode(), old))
        with pytest.raises(errors.RetentionHeldError, match="case 7"):
            store.retention.prune("flows", older_than_days=1)
        assert store.retention.lift(rule.id, reason="closed").lifted_at is not None

    def test_a_hold_on_a_flow_keeps_the_person_whose_flow_it_is(self, store: sync.Holdproof) -> None:
        """Their key destroyed, what the flow recorded could not be read any more."""
        with store.flows.run("trader", flow_id="parent", subject="Ada") as flow:
            flow.step("look", lambda: "what Ada said")
        _ended(store, "of Bob", subject="Bob")
        rule = store.retention.hold(flow_id="parent", reason="case 8")
        for dry_run in (True, False):
            with pytest.raises(errors.RetentionHeldError, match="case 8"):
                store.erase.subject("Ada", dry_run=dry_run)
        assert store.erase.subject("Bob").sealed == {"flows": 1}
        store.retention.lift(rule.id, reason="closed")
        assert store.erase.subject("Ada").sealed["flows"] == 1

    @pytest.mark.parametrize(
        "edit",
        [
            "UPDATE retention_rules SET lifted_at = set_at, lift_reason = 'x'",
            "UPDATE retention_rules SET target = 'other'",
            "UPDATE retention_rules SET ns = 'other'",
            "DELETE FROM retention_rules",
        ],
    )
    def test_an_edited_or_deleted_rule_ends_all_removing_and_is_found(self, edit: str) -> None:
        with self.open() as store:
            store.agents.register("trader", version="1")
            _ended(store, "held")
            store.retention.hold(flow_id="held", reason="case 5")
            settled(store)
            store.write(lambda tx: tx.execute(sql(edit)))
            with pytest.raises(errors.TamperedError):
                store.retention.prune("flows", older_than_days=0)
            with pytest.raises(errors.TamperedError):
                store.erase.subject("Ada")
            assert _left(store) == {"held"}
            assert store.verify.run(lock=False).verdict is Verdict.TAMPERED

    def test_a_lift_that_root_did_not_sign_lifts_nothing_though_the_log_has_it(self, store: sync.Holdproof) -> None:
        rule = store.retention.hold(reason="case 6")
        settled(store)

        def forge(tx: Any) -> None:
            """Write what somebody with the log key could: a row with its entry, and a statement of another key."""
            stated = retention_rules.statement_of(tx, "lift", rule, reason="forged")
            line = statements.sign(stated.encode(), keys.generate("ed25519"))
            retention_rules._lift(tx, stated, line)

        store.write(forge)
        settled(store)
        with pytest.raises(errors.TamperedError, match="root did not sign"):
            store.retention.prune("flows", older_than_days=1)
        findings = store.verify.run(lock=False).findings
        assert [each.table for each in findings] == ["retention_rules"], findings
        assert store.verify.run(lock=False).verdict is Verdict.TAMPERED

    def test_mistakes_are_named(self, store: sync.Holdproof) -> None:
        calls: list[tuple[type[errors.HoldproofError], Any]] = [
            (errors.InvalidInputError, lambda: store.retention.floor(0, reason="x")),
            (errors.InvalidInputError, lambda: store.retention.floor(1, reason="")),
            (errors.InvalidInputError, lambda: store.retention.floor(1, reason="x", what="nothing")),  # type: ignore[arg-type]
            (errors.InvalidInputError, lambda: store.retention.hold(flow_id="a", subject="b", reason="x")),
            (errors.NotFoundError, lambda: store.retention.hold(flow_id="none", reason="x")),
            (errors.NotFoundError, lambda: store.retention.lift("none", reason="x")),
        ]
        for error, call in calls:
            with pytest.raises(error):
                call()
        assert list(store.retention.rules().items) == []


class TestRetentionRulesOnSqlite(RetentionRules, OnSqlite):
    pass


class TestRetentionRulesInMemory(RetentionRules, InMemory):
    pass


class TestRetentionRulesOnPostgres(RetentionRules, OnPostgres):
    pass


def test_the_command_line_holds_and_lifts_with_a_root_key_kept_elsewhere(tmp_path: Path) -> None:
    home = tmp_path / "home"
    recovery = tmp_path / "root.txt"

    def run(*words: str, code: int = 0) -> str:
        done = CliRunner().invoke(app, ["--home", str(home), *words])
        assert done.exit_code == code, done.output
        return done.output

    with sync.open(home) as store:
        store.agents.register("trader", version="1")
        _ended(store, "order-1")
    run("keys", "export-root", "--recovery", str(recovery), "--offline")
    run("retention", "hold", "--flow-id", "order-1", "--reason", "case 7", code=12)
    draft, rule = tmp_path / "draft.json", tmp_path / "rule.json"
    run("retention", "draft", "hold", "--flow-id", "order-1", "--reason", "case 7", "--out", str(draft))
    run("keys", "sign", str(draft), "--recovery", str(recovery), "--out", str(rule))
    run("retention", "import-rule", str(rule))
    assert "case 7" in run("retention", "rules")
    assert "hold on flow" in run("audit")
