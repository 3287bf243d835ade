"""A person's file: everything about one subject, readable and proven, and nothing about anybody else."""

import asyncio
import base64
import html
import io
import json
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import holdproof
from harness.filling import settled
from holdproof import errors, sql, sync
from holdproof.cli.app import app
from holdproof.model.verdicts import Verdict
from holdproof.model.verify import BundleReport
from holdproof.remote import connect_sync
from holdproof.upkeep.verification import person_check
from tests.conformance.decisions import InMemory, OnPostgres, OnSqlite, OnStore
from tests.conformance.test_canaries import NAME, PLANTS
from tests.web import running


def _filled(store: sync.Holdproof) -> list[str]:
    """Plant in every place that takes a subject; return what was planted."""
    store.agents.set_budget("trader", per_hour=10_000)
    planted: list[str] = []
    for n, (plant, count) in enumerate(PLANTS):
        texts = [f"canary-{n}-{number}-of-her" for number in range(count)]
        plant(store, n, texts)
        planted += texts
    store.transcripts.append("talk", [{"said": "canary-in-a-transcript"}], subject=NAME)
    store.objects.put("bobs", type="t", content="canary of Bob", subject="Bob")
    store.notes.put(["bob"], "k", {"text": "canary of Bob"}, subject="Bob")
    store.evaluations.submit({"of": "canary of Bob"}, evaluation_id="bob", score=0.5, subject="Bob")
    settled(store)
    return [*planted, "canary-in-a-transcript"]


def _members(data: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def _packed(members: dict[str, bytes]) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return target.getvalue()


# What is not stored any more (the text of an error, what was cleared or written over), and what is in two blobs:
# these are named in the file, with their hashes.
_NOT_IN_IT = 6


class PersonFiles(OnStore):
    def test_everything_that_was_stored_of_a_person_is_in_the_page_and_in_the_json(self, store: sync.Holdproof) -> None:
        planted = _filled(store)
        members = _members(store.bundle.person(NAME))
        text = json.dumps(json.loads(members["person.json"]), ensure_ascii=False)
        missing = [each for each in planted if each not in text]
        assert len(missing) == _NOT_IN_IT, missing
        assert [each for each in planted if each not in missing and each.encode() not in members["report.html"]] == []

    def test_nothing_of_anybody_else_is_in_it(self, store: sync.Holdproof) -> None:
        _filled(store)
        members = _members(store.bundle.person(NAME))
        for name, data in members.items():
            assert b"of Bob" not in data, name
        shown = json.dumps(json.loads(members["person.json"]))
        assert '"ann"' not in shown
        assert "another person 1" in shown
        proofs = json.loads(members["proofs.json"])["records"]
        assert not any('"ann"' in each.get("content", "") for each in proofs)
        withheld = {each["table"] for each in proofs if "content" not in each}
        assert "escalation_requests" in withheld
        assert "flow_transitions" not in withheld

    def test_the_key_of_the_subject_is_in_no_part_of_it(self, store: sync.Holdproof) -> None:
        _filled(store)
        keys = store.read(lambda tx: [bytes(key) for (key,) in tx.all(sql("SELECT key FROM subjects"))])
        for name, data in _members(store.bundle.person(NAME)).items():
            for key in keys:
                assert key not in data, name
                assert key.hex().encode() not in data, name
                assert base64.b64encode(key) not in data, name

    def test_people_are_not_named_as_approvers_authors_or_inside_escaped_json(self, store: sync.Holdproof) -> None:
        names = ['Jo "Q" Doe', "carol", "doctor-who", "nurse-joy", "Zoë", "ns: one"]
        for name in ("Zoë", "carol"):
            store.people.put(name)
        store.flows.start("trader", flow_id="f", subject=NAME)
        store.flows.transition("f", "RUNNING")
        store.audit.record("f", "SEEN", detail={"text": "by\ndoctor-who"}, by="doctor-who")
        store.audit.record("f", "SEEN", by='Jo "Q" Doe')
        store.sagas.mark_dirty("f", "treat", {"half": 1})
        store.sagas.clear("f", by="nurse-joy")
        store.flows.signal("f", "more", "x", by="ns: one")
        store.escalations.request("f", reason="why", approvers="2 of Zoë, carol")
        settled(store)
        for member, data in _members(store.bundle.person(NAME)).items():
            text = data.decode()
            for name in names:
                escaped = json.dumps(json.dumps(name)[1:-1])[1:-1]
                forms = {name, html.escape(name), json.dumps(name)[1:-1], escaped}
                assert not [each for each in forms if each in text], (member, name)

    def test_a_flow_that_sent_a_message_is_no_person(self, store: sync.Holdproof) -> None:
        store.flows.start("trader", flow_id="f", subject=NAME)
        store.flows.signal("f", "more", "x", by="flow:f")
        settled(store)
        about = json.loads(_members(store.bundle.person(NAME))["person.json"])
        assert about["sections"]["decision_flows"][0]["dfid"] == "f"

    def test_what_is_sealed_for_somebody_else_is_not_opened_wherever_it_was_written(
        self, store: sync.Holdproof
    ) -> None:
        store.evaluations.submit({"of": "secret of Bob"}, evaluation_id="bob", score=0.5, subject="Bob")
        store.flows.start("trader", flow_id="bobs", subject="Bob")
        store.flows.transition("bobs", "RUNNING", reason="secret of Bob")
        [(sealed,)] = store.read(lambda tx: tx.all(sql("SELECT raw_result FROM battles")))
        [(reason,)] = store.read(lambda tx: tx.all(sql("SELECT reason FROM flow_transitions")))
        store.flows.start("trader", flow_id="f", subject=NAME)
        for text in (sealed, reason, "sealed:nonsense", '{"$sealed":5}', "[" * 100_000):
            store.audit.record("f", "SEEN", correlation_id=text)
        settled(store)
        members = _members(store.bundle.person(NAME))
        assert [name for name, data in members.items() if b"secret of Bob" in data] == []
        settled(store)
        handles = {each.note for each in store.audit.trail(kind="access").items}
        assert len(handles) == 1

    def test_who_has_nothing_but_blobs_gets_no_entries_of_others(self, store: sync.Holdproof) -> None:
        assert [*store.audit.export()] == []  # leaves an entry that names nobody
        store.blobs.put("ada/1", b"x", subject=NAME)
        settled(store)
        store.bundle.person(NAME)
        settled(store)
        about = json.loads(_members(store.bundle.person(NAME))["person.json"])
        assert [each["what"] for each in about["sections"]["accesses"]] == ["bundle.person"]
        assert about["subject"].startswith("membrane/")

    def test_half_an_emoji_in_content_does_not_end_the_export(self, store: sync.Holdproof) -> None:
        store.transcripts.append("talk", [{"said": "cut \ud83d"}], subject=NAME)
        about = json.loads(_members(store.bundle.person(NAME))["person.json"])
        assert "cut \ud83d" in json.dumps(about, ensure_ascii=False)

    def test_it_verifies_offline_and_an_edited_one_does_not(self, store: sync.Holdproof) -> None:
        _filled(store)
        data = store.bundle.person(NAME)
        report = person_check.check(data)
        assert report.verdict is Verdict.VALID, report.findings
        members = _members(data)
        about: dict[str, Any] = json.loads(members["person.json"])
        about["sections"]["battles"][0]["score"] = 0.99
        edited = _packed({**members, "person.json": json.dumps(about).encode()})
        assert person_check.check(edited).verdict is Verdict.TAMPERED
        del about["sections"]["battles"]
        left_out = _packed({**members, "person.json": json.dumps(about).encode()})
        assert person_check.check(left_out).verdict is Verdict.TAMPERED
        proofs: dict[str, Any] = json.loads(members["proofs.json"])
        for record in proofs["records"]:
            for part in ("entry", "proof", "content"):
                if part not in record:
                    continue
                flipped = {**record, part: record[part].replace("1", "2", 1).replace("a", "b", 1)}
                false = {**proofs, "records": [flipped]}
                made = _packed({**members, "proofs.json": json.dumps(false).encode()})
                assert person_check.check(made).verdict is Verdict.TAMPERED, (record["table"], part)

    def test_a_row_that_was_added_or_doubled_or_whose_json_was_edited_is_found(self, store: sync.Holdproof) -> None:
        store.flows.start("trader", flow_id="f", subject=NAME)
        store.audit.record("f", "SEEN", correlation_id='{"tier": 1}')
        store.evaluations.submit({"n": 1}, evaluation_id="b", score=0.5, subject=NAME)
        settled(store)
        members = _members(store.bundle.person(NAME))

        def judged(edit: Callable[[dict[str, Any]], object]) -> BundleReport:
            about = json.loads(members["person.json"])
            edit(about["sections"])
            return person_check.check(_packed({**members, "person.json": json.dumps(about).encode()}))

        assert judged(lambda sections: None).verdict is Verdict.VALID
        edits: list[Callable[[dict[str, Any]], object]] = [
            lambda sections: sections["battles"].append({**sections["battles"][0], "id": 99, "score": 0.1}),
            lambda sections: sections["battles"].append({**sections["battles"][0], "score": 0.1}),
            lambda sections: sections["decision_audit_events"][0].update(correlation_id={"tier": True}),
            lambda sections: sections["battles"][0].pop("score"),
            lambda sections: sections.update(delegations=[{"id": 1, "from_person": "x"}]),
        ]
        assert [judged(edit).verdict for edit in edits] == [Verdict.TAMPERED] * len(edits)
        renamed = json.dumps({**json.loads(members["person.json"]), "subject": "somebody else"}).encode()
        assert person_check.check(_packed({**members, "person.json": renamed})).verdict is Verdict.TAMPERED

    def test_a_page_that_shows_something_else_is_told(self, store: sync.Holdproof) -> None:
        store.evaluations.submit({"n": 1}, evaluation_id="b", score=0.5, subject=NAME)
        settled(store)
        members = _members(store.bundle.person(NAME))
        assert not [each for each in person_check.check(_packed(members)).notes if "report.html" in each]
        page = members["report.html"].replace(b"0.5", b"0.9")
        report = person_check.check(_packed({**members, "report.html": page}))
        assert [each for each in report.notes if "report.html is not the page" in each]

    def test_parts_of_any_other_kind_are_a_finding_and_no_crash(self, store: sync.Holdproof) -> None:
        store.evaluations.submit({"n": 1}, evaluation_id="b", score=0.5, subject=NAME)
        settled(store)
        members = _members(store.bundle.person(NAME))
        about, proofs = json.loads(members["person.json"]), json.loads(members["proofs.json"])
        [record, *_] = proofs["records"]
        odd: list[Any] = [None, 5, "x", [], {}, [5], {"battles": 5}, {"battles": [5]}, {"battles": [{}]}]
        made = [("person.json", {**about, "sections": each}) for each in odd]
        made += [("proofs.json", {**proofs, name: each}) for name in ("records", "head", "trust") for each in odd]
        made += [
            ("proofs.json", {**proofs, "records": [{**record, name: each}]})
            for name in record
            for each in (*odd, "\ud800", "zz")
        ]
        for name, value in made:
            data = _packed({**members, name: json.dumps(value).encode()})
            assert person_check.check(data).verdict is Verdict.TAMPERED, (name, value)

    def test_who_was_given_the_content_is_in_the_next_file(self, store: sync.Holdproof) -> None:
        store.evaluations.submit({"n": 1}, evaluation_id="b", score=0.5, subject=NAME)
        settled(store)
        store.bundle.person(NAME, who="ann")
        settled(store)
        about = json.loads(_members(store.bundle.person(NAME))["person.json"])
        assert ("export", "bundle.person") in {(each["kind"], each["what"]) for each in about["sections"]["accesses"]}
        trail = store.audit.trail(kind="access").items
        assert NAME not in json.dumps([each.to_dict() for each in trail])

    def test_somebody_unknown_or_erased_is_refused(self, store: sync.Holdproof) -> None:
        with pytest.raises(errors.NotFoundError):
            store.bundle.person("Nobody")
        store.evaluations.submit({"n": 1}, evaluation_id="b", score=0.5, subject=NAME)
        store.erase.subject(NAME)
        with pytest.raises(errors.NotFoundError):
            store.bundle.person(NAME)

    def test_both_clients_give_the_same_records(self, store: sync.Holdproof) -> None:
        store.evaluations.submit({"n": 1}, evaluation_id="b", score=0.5, subject=NAME)
        settled(store)

        async def made() -> bytes:
            return await holdproof.Holdproof(store.core).bundle.person(NAME)

        first, second = _members(asyncio.run(made())), _members(store.bundle.person(NAME))
        battles = [json.loads(each["person.json"])["sections"]["battles"] for each in (first, second)]
        assert battles[0] == battles[1]


class TestPersonFilesInMemory(InMemory, PersonFiles):
    pass


class TestPersonFilesOnSqlite(OnSqlite, PersonFiles):
    pass


class TestPersonFilesOnPostgres(OnPostgres, PersonFiles):
    pass


def test_markup_in_content_is_text_on_the_page(tmp_path: Path) -> None:
    with sync.open(tmp_path) as store:
        store.notes.put(["a"], "k", {"text": "<script>alert(1)</script>"}, subject=NAME)
        page = _members(store.bundle.person(NAME))["report.html"]
    assert b"<script" not in page
    assert b"&lt;script&gt;" in page


def test_the_command_line_writes_and_verifies_it_and_a_server_gives_it_to_operators_only(tmp_path: Path) -> None:
    home, out = tmp_path / "home", tmp_path / "ada.zip"
    with running(home) as web:
        web.store.evaluations.submit({"n": 1}, evaluation_id="b", score=0.5, subject=NAME)
        for role in ("operator", "auditor"):
            secret = web.store.tokens.create(role, role=role).secret
            with connect_sync(web.listening.address, token=secret) as remote:
                if role == "auditor":
                    with pytest.raises(errors.ForbiddenError):
                        remote.bundle.person(NAME)
                else:
                    assert person_check.check(remote.bundle.person(NAME)).verdict is Verdict.VALID
    written = CliRunner().invoke(app, ["--home", str(home), "export", "person", NAME, "--out", str(out)])
    assert written.exit_code == 0, written.output
    verified = CliRunner().invoke(app, ["verify", str(out)])
    assert verified.exit_code == 0, verified.output
    assert "VALID" in verified.output
    shown = CliRunner().invoke(app, ["show", str(out)])
    assert shown.exit_code != 0
    assert "report.html" in shown.output
