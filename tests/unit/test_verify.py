"""The pure parts of verification: a row against its leaf, objects of a schema, bounds, drafts of statements."""

import json
from typing import Any

import pytest

from holdproof.crypto import keys
from holdproof.errors import FormatError, InvalidInputError, ProofError
from holdproof.evidence import logged_tables
from holdproof.evidence.leaves import Projection
from holdproof.evidence.startup import KEYRING
from holdproof.model.verdicts import Verdict
from holdproof.model.verify import Finding, Locked, Report
from holdproof.upkeep import kernel_tables, lockdown, unlock
from holdproof.upkeep.unlock import Signers
from holdproof.upkeep.verification import findings, schema_check
from holdproof.upkeep.verification.findings import Findings
from holdproof.upkeep.verification.row_check import judge

TABLE = kernel_tables.LOGGED["keyring"]
ROW = {
    "keyid": "k",
    "role": "log",
    "alg": "ed25519",
    "public": "P",
    "statement": "first",
    "revoked_from": None,
    "added_at": "2026-01-01T00:00:00.000000Z",
}
SALT = b"s" * 16


def leaf(**more: Any) -> str:
    facts = {"h": KEYRING.commit(SALT, ROW), "id": "i", "ns": "main", "p": "keyring/1", "t": "key", "v": 1, "ver": 1}
    return json.dumps({**facts, **more})


def row(text: str | None, *, index: int | None = 0, version: int = 1, newest: int = 1, **more: Any) -> tuple[Any, ...]:
    content = tuple({**ROW, **more}[column] for column in TABLE.columns)
    return ("k", "i", version, SALT, index, text, newest, 0, *content)


def verdict(*given: Any, **named: Any) -> Verdict | None:
    found = judge(TABLE, row(*given, **named))
    return None if found is None else found.verdict


def test_a_row_that_matches_its_leaf_is_nothing_to_speak_of() -> None:
    assert verdict(leaf()) is None


@pytest.mark.parametrize(
    "change",
    [{"h": "0" * 64}, {"id": "j"}, {"ver": 2}, {"p": "keyring/9"}, {"p": "evaluations/1"}, {"t": "dbom"}, {"h": None}],
)
def test_a_leaf_that_says_something_else_is_tampering(change: dict[str, Any]) -> None:
    assert verdict(leaf(**change)) is Verdict.TAMPERED


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"h":1,"h":2}', "\ud800"])
def test_a_leaf_that_is_no_leaf_is_tampering(text: str) -> None:
    assert verdict(text) is Verdict.TAMPERED


def test_a_row_of_another_content_is_tampering() -> None:
    assert verdict(leaf(), public="Q") is Verdict.TAMPERED
    assert verdict(leaf(), revoked_from=2**60) is Verdict.TAMPERED
    assert verdict(leaf(), public=b"P") is Verdict.TAMPERED


def test_a_row_without_a_leaf_is_unlogged_and_one_with_a_missing_leaf_tampered() -> None:
    nobody = ("k", None, None, None, None, None, None, None, *row(leaf())[8:])
    found = judge(TABLE, nobody)
    assert found is not None
    assert (found.verdict, found.table, found.row) == (Verdict.UNLOGGED, "keyring", "k")
    assert verdict(None, index=None) is Verdict.TAMPERED


def test_an_old_version_is_tampering_and_a_leaf_under_no_head_pending() -> None:
    assert verdict(leaf(), newest=2) is Verdict.TAMPERED
    assert verdict(leaf(), index=None) is Verdict.PENDING


def test_a_projection_without_the_key_is_no_logged_table() -> None:
    with pytest.raises(AssertionError):
        logged_tables.describe(Projection("odd", 1, ("a",)), kinds=("key",), key="id")
    with pytest.raises(AssertionError):
        logged_tables.describe(Projection("odd", 1, ("id",)), kinds=("weather",), key="id")


def test_every_difference_of_two_schemas_is_named() -> None:
    wanted = {"table a": "1", "table b": "2", "index c": "3"}
    live = {"table a": "1", "table b": "changed", "trigger d": "4"}
    found = schema_check.compare(live, wanted)
    assert [finding.row for finding in found] == ["index c", "table b", "trigger d"]
    assert ["dropped" in found[0].what, "changed" in found[1].what, "added" in found[2].what] == [True] * 3
    assert schema_check.compare(wanted, wanted) == []


def test_findings_are_bounded_and_a_crowd_of_one_kind_hides_no_other() -> None:
    found = Findings()
    for number in range(findings.MOST + 5):
        found.add(Finding(Verdict.UNSIGNED, "w", "r", row=str(number)))
    found.add(Finding(Verdict.TAMPERED, "grave", "r"))
    for _ in range(100):
        found.add(Finding(Verdict.PENDING, "p", "r"))
    report = found.report("fast")
    assert (report.verdict, report.findings[0].what) == (Verdict.TAMPERED, "grave")
    assert (len(report.findings), report.left_off) == (1 + findings.MOST + 10, 5 + 90)
    assert json.loads(json.dumps(report.to_dict()))["findings"][0]["verdict"] == "TAMPERED"


def test_a_summary_names_the_gravest_finding() -> None:
    mild = Finding(Verdict.UNSIGNED, "mild", "r")
    bad = Finding(Verdict.TAMPERED, "edited", "r", table="battles", row="2")
    worse = Finding(Verdict.FORKED, "forked", "r", file="heads.jsonl")
    assert lockdown.summarise(Report(Verdict.FORKED, "fast", [mild, bad, worse])) == "heads.jsonl: forked (and 1 more)"
    assert lockdown.summarise(Report(Verdict.TAMPERED, "fast", [bad])) == "table battles row 2: edited"
    assert [lockdown.in_doubt(Report(each.verdict, "fast", [each])) for each in (mild, bad, worse)] == [
        False,
        False,
        True,
    ]


LOCKED = Locked("l", "TAMPERED", "why", "2026-01-01T00:00:00.000000Z")


def test_a_statement_counts_for_one_store_one_lockdown_and_one_root() -> None:
    root, other = keys.generate("ed25519"), keys.generate("ed25519")
    signed = unlock.sign(unlock.draft("s", LOCKED, reason="done"), root)
    assert json.loads(unlock.check(signed, Signers("root", [other.public, root.public]), "s", LOCKED))["signatures"]
    for roots, store, locked in (
        ([other.public], "s", LOCKED),
        ([], "s", LOCKED),
        ([root.public], "another", LOCKED),
        ([root.public], "s", Locked("m", "TAMPERED", "why", LOCKED.locked_at)),
        ([root.public], "s", Locked("l", "FORKED", "why", LOCKED.locked_at)),
        ([root.public], "s", Locked("l", "TAMPERED", "other", LOCKED.locked_at)),
    ):
        with pytest.raises(ProofError):
            unlock.check(signed, Signers("root", roots), store, locked)
    with pytest.raises(ProofError):  # the draft says on whose authority: root's statement is not the log key's
        unlock.check(signed, Signers("log", [root.public]), "s", LOCKED)


def test_root_signs_nothing_but_a_draft() -> None:
    root = keys.generate("ed25519")
    for payload in (b"", b"{}", b'{"_type":"https://in-toto.io/Statement/v1"}'):
        with pytest.raises(FormatError):
            unlock.sign(payload, root)
    with pytest.raises(InvalidInputError):
        unlock.draft("s", LOCKED, reason="  ")
