"""Erasure follows use: what is derived of a person is found, erased or listed, and one certificate says so."""

import base64
import json
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from holdproof import errors, sync
from holdproof.config import Paths
from holdproof.crypto import canonical
from holdproof.db import Tx, sql
from holdproof.evidence import erasures
from holdproof.model.erasure import Derived, Erasure
from holdproof.model.verdicts import Verdict
from holdproof.upkeep import derivation, erase, erasure_certificate
from holdproof.upkeep.verification import certificate_check
from tests.store_locations import StoreLocation

NAME: Final = "Ada Lovelace"
SECRET: Final = "the-very-secret-finding"


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> StoreLocation:
    url = request.getfixturevalue("postgres_url") if request.param == "postgres" else None
    return StoreLocation(tmp_path / "home", url)


def in_step(store: sync.Holdproof, work: Callable[[], Any], **opening: Any) -> str:
    """Do some work in the step of a flow that ends; return the flow's id."""
    with store.flows.run("trader", **opening) as flow:
        flow.step("work", work)
        return str(flow.flow_id)


def planted(store: sync.Holdproof) -> dict[str, str]:
    """Let flows of nobody use what is a person's, to the second degree; return their ids by name."""
    store.agents.register("trader", version="1")
    store.objects.put("finding", type="t", content=SECRET, subject=NAME)
    store.objects.put("untouched", type="t", content="of nobody")
    store.notes.put(["untouched"], "n", {"text": "of nobody"})

    def summarise() -> str:
        content = str(store.objects.get("finding").content)
        store.objects.put("summary", type="t", content=f"summary of {content}", meta={"m": content})
        store.notes.put(["summaries"], "ada", {"text": content}, vectors={"text": [0.5, 1.0]})
        store.transcripts.append("chat", [{"text": content}])
        store.threads.put_checkpoint("graph", {"messages": [content]}, provable=True)
        return content

    def report() -> str:
        text = str(store.notes.get(["summaries"], "ada").value["text"])
        store.objects.put("report", type="t", content=f"report: {text}")
        return text

    def others() -> str:
        store.objects.put("unrelated", type="t", content="of nobody")
        return str(store.objects.get("untouched").content)

    return {
        "summarise": in_step(store, summarise),
        "report": in_step(store, report),
        "others": in_step(store, others),
    }


def kinds(derived: tuple[Derived, ...], *, left: bool) -> list[tuple[str, str]]:
    return sorted((each.kind, each.id) for each in derived if (each.reason is not None) is left)


def holding(place: StoreLocation) -> list[str]:
    return sorted(
        str(path.relative_to(place.home))
        for path in place.home.rglob("*")
        if path.is_file() and SECRET.encode() in path.read_bytes()
    )


def rows(tx: Tx, table: str) -> int:
    [(count,)] = tx.all(sql(f"SELECT count(*) FROM {table}"))
    return int(count)


def test_what_used_a_persons_content_is_listed_and_stays_by_default(place: StoreLocation) -> None:
    with place.open() as store:
        flows = planted(store)
        erasure = store.erase.subject(NAME, who="dpo")
        assert erasure.mode == "list"
        assert kinds(erasure.derived, left=False) == []
        assert kinds(erasure.derived, left=True) == [
            *sorted([("flows", flows["report"]), ("flows", flows["summarise"])]),
            *[("notes", "2"), ("objects", "report"), ("objects", "summary"), ("threads", "1"), ("transcripts", "1")],
        ]
        vias = {(each.kind, each.id): each.via for each in erasure.derived}
        assert vias["flows", flows["summarise"]] == "it read object finding"
        assert vias["flows", flows["report"]] == "it read note 2"
        assert vias["objects", "report"] == f"written by flow {flows['report']}"
        assert store.objects.get("summary").content == f"summary of {SECRET}"
    place.sound()


def test_what_is_derived_goes_where_that_is_asked_for_and_nothing_else(place: StoreLocation) -> None:
    with place.open() as store:
        flows = planted(store)
        erasure = store.erase.subject(NAME, derived="erase", who="dpo")
        assert kinds(erasure.derived, left=True) == []
        assert len(erasure.derived) == 7
        for name in ("summarise", "report"):
            with pytest.raises(errors.NotFoundError):
                store.flows.get(flows[name])
        for id in ("summary", "report"):
            with pytest.raises(errors.NotFoundError):
                store.objects.get(id)
            with pytest.raises(errors.PrunedError):
                store.objects.get(id, version=1)
        assert [note.key for note in store.notes.search().items] == ["n"]
        assert store.transcripts.list().items == []
        assert store.threads.list().items == []
        assert store.flows.get(flows["others"]).status == "COMPLETED"
        assert store.objects.get("unrelated").content == store.objects.get("untouched").content == "of nobody"
        assert store.verify.run(full=True, lock=False).verdict is Verdict.VALID
        if place.url is None:
            assert holding(place) == [], "while the store is open"
    place.sound()


def test_a_dry_run_says_the_same_and_erases_nothing(place: StoreLocation) -> None:
    with place.open() as store:
        planted(store)
        plan = store.erase.subject(NAME, derived="erase", dry_run=True)
        assert (plan.dry_run, plan.id, plan.erased_at) == (True, "", "")
        assert store.objects.get("finding").content == SECRET
        assert store.erase.list().items == []
        erasure = store.erase.subject(NAME, derived="erase")
        assert (erasure.derived, erasure.sealed, erasure.count) == (plan.derived, plan.sealed, plan.count)
    place.sound()


def test_what_is_another_persons_runs_still_or_is_held_is_left_with_its_reason(place: StoreLocation) -> None:
    with place.open() as store:
        planted(store)
        read = partial(store.objects.get, "finding")
        bobs = in_step(store, read, subject="Bob")

        def for_bob() -> None:
            store.objects.get("finding")
            store.objects.put("bobs", type="t", content="seen by Bob", subject="Bob")
            store.notes.put(["bobs"], "n", {"text": "seen by Bob"}, subject="Bob")

        in_step(store, for_bob)
        with store.flows.run("trader") as running:
            running.step("read", read)
            erasure = store.erase.subject(NAME, derived="erase")
        left = {(each.kind, each.id): each.reason or "" for each in erasure.derived}
        assert left["flows", bobs] == "it belongs to another person"
        assert left["objects", "bobs"] == left["notes", "3"] == "it belongs to another person"
        assert left["flows", running.flow_id].startswith("it has not ended")
        assert left["objects", "summary"] == ""
        assert store.objects.get("bobs").content == "seen by Bob"
    place.sound()


def test_a_persons_own_flow_leaves_what_it_wrote_for_nobody_and_flows_that_it_began(place: StoreLocation) -> None:
    with place.open() as store:
        store.agents.register("trader", version="1")
        own = in_step(store, lambda: store.objects.put("public", type="t", content=SECRET), subject=NAME)
        parent = store.flows.start("trader")
        child = store.flows.start("trader", parent=parent.flow_id, subject=NAME)
        erasure = store.erase.subject(NAME)
        assert kinds(erasure.derived, left=True) == [("flows", parent.flow_id), ("objects", "public")]
        assert own not in {each.id for each in erasure.derived}
        assert child.flow_id not in {each.id for each in erasure.derived}
    place.sound()


def test_snapshots_and_images_that_would_show_it_go_or_are_named(tmp_path: Path) -> None:
    place = StoreLocation(tmp_path / "home")
    with place.open() as store:
        store.snapshots.create("before")
        planted(store)
        store.snapshots.create("with it")
        newest = store.snapshots.create("newest")
        [image] = [store.image.dump()]
        erasure = store.erase.subject(NAME, derived="erase")
        left = {
            (each.kind, each.id): each.reason or "" for each in erasure.derived if each.kind in ("snapshots", "images")
        }
        assert "retention prune snapshots" in left["snapshots", newest.cid]
        assert "image" in left["images", Path(image.path).name]
        assert [each.message for each in store.snapshots.list().items] == ["newest", "before"]
        store.snapshots.create("after")
        store.retention.prune("snapshots", keep=1)
        store.retention.gc()
        assert [path for path in holding(place) if not path.startswith("images/")] == []
    place.sound()


def test_a_restore_erases_what_is_derived_again(place: StoreLocation, tmp_path: Path) -> None:
    with place.open() as store:
        flows = planted(store)
        in_step(store, lambda: store.objects.put("public", type="t", content=SECRET), subject=NAME)
        store.backup.create(tmp_path / "backup")
        store.erase.subject(NAME, derived="erase")
    place.restore(tmp_path / "backup")
    with place.open() as store:
        for thread in store.context.threads:
            thread.join()
        for id in ("summary", "report", "public"):
            with pytest.raises(errors.NotFoundError):
                store.objects.get(id)
        with pytest.raises(errors.NotFoundError):
            store.flows.get(flows["summarise"])
        assert store.transcripts.list().items == []
        assert store.objects.get("untouched").content == "of nobody"
        [first] = [each for each in store.erase.list().items if each.kind == "subject"]
        assert first.mode == "erase"
        assert certificate_check.check(store.erase.certificate(first.id).text.encode()).verdict is Verdict.VALID
    if place.url is None:
        assert [path for path in holding(place) if not path.startswith("before-restore-")] == []
    place.sound()


def test_a_crash_after_the_commit_leaves_garbage_that_the_next_opening_collects(tmp_path: Path) -> None:
    place = StoreLocation(tmp_path / "home")
    with place.open() as store:
        planted(store)
        store.write(
            lambda tx: erase._by_name(tx, NAME, who="dpo", following=erase._Following("erase"), ns="main")
        )  # the commit, and no more
        assert holding(place) != []
        assert [due.files for due in store.read(erasures.due)] == [(erasures.GARBAGE,)]
    assert erase.recorded_outside(Paths.find(place.home)) == []
    with place.open() as store:
        for thread in store.context.threads:
            thread.join()
        assert store.read(erasures.due) == []
    assert [each.mode for each in erase.recorded_outside(Paths.find(place.home))] == ["erase"]
    assert holding(place) == []
    place.sound()


def test_racing_writers_are_refused_or_their_content_goes_too(place: StoreLocation) -> None:
    with place.open() as store:
        store.agents.register("trader", version="1")
        store.objects.put("finding", type="t", content=SECRET, subject=NAME)

        def use(n: int) -> str:
            def work() -> None:
                content = store.objects.get("finding").content
                store.objects.put(f"derived-{n}", type="t", content=content)

            try:
                in_step(store, work)
            except errors.ErasedError:
                return "refused"
            return "used"

        with ThreadPoolExecutor(4) as pool:
            outcomes = [pool.submit(use, n) for n in range(12)]
            erasure = store.erase.subject(NAME, derived="erase")
            used = [n for n, each in enumerate(outcomes) if each.result() == "used"]
        erased = {each.id for each in erasure.derived if each.kind == "objects" and each.reason is None}
        running = {each.id for each in erasure.derived if each.kind == "flows" and each.reason is not None}
        late = [n for n in used if f"derived-{n}" not in erased]
        # What a flow wrote after the erasure is by one that had read before, and that the certificate names.
        assert len(late) <= len(running)
        assert store.verify.run(lock=False).verdict.sound
    place.sound()


@pytest.mark.parametrize("after", [1, 2])
def test_what_a_flow_writes_while_an_erasure_looks_is_erased_or_the_flow_is_named(
    tmp_path: Path, postgres_url: str, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    """On a server others write while notes are read: here a flow writes and ends after the first or the second look."""
    place = StoreLocation(tmp_path / "home", postgres_url)
    find, looks = derivation.find, []
    has_read, may_write = threading.Event(), threading.Event()

    def work() -> None:
        content = other.objects.get("finding").content
        has_read.set()
        assert may_write.wait(60)
        other.objects.put("derived", type="t", content=content)

    def look(tx: Tx, handle: str) -> Any:
        links = find(tx, handle)
        looks.append(handle)
        if len(looks) == after:
            may_write.set()
            flow.join(60)
        return links

    with place.open() as store, place.open() as other:
        store.agents.register("trader", version="1")
        store.objects.put("finding", type="t", content=SECRET, subject=NAME)
        flow = threading.Thread(target=in_step, args=(other, work))
        flow.start()
        assert has_read.wait(60)
        monkeypatch.setattr(derivation, "find", look)
        erasure = store.erase.subject(NAME, derived="erase")
        assert not flow.is_alive()
        outcomes = {each.kind: each.reason for each in erasure.derived}
        remaining = {each.id for each in store.objects.list().items}
        assert ("derived" not in remaining) or outcomes["flows"] is not None


# --- the certificate ---------------------------------------------------------------------------------------------


def certified(place: StoreLocation) -> tuple[Erasure, str]:
    with place.open() as store:
        planted(store)
        erasure = store.erase.subject(NAME, derived="erase", who="dpo")
        return erasure, store.erase.certificate(erasure.id).text


def test_the_certificate_holds_offline_and_says_what_went_and_no_content(place: StoreLocation) -> None:
    erasure, text = certified(place)
    report = certificate_check.check(text.encode())
    assert (report.verdict, report.kind, report.subject) == (Verdict.VALID, "erasure", erasure.target)
    document = json.loads(text)
    statement = json.loads(base64.b64decode(document["payload"]))
    assert statement["predicateType"] == "urn:holdproof:erasure:v1"
    said = statement["predicate"]
    assert said["erasure"] == erasure.id
    assert said["derived"]["counts"] == {"flows": 2, "notes": 1, "objects": 2, "threads": 1, "transcripts": 1}
    assert said["left"] == []
    assert said["erased"]["unreadable"] == {"objects": 1}
    assert said["restores"]["before"] == erasure.erased_at
    for needle in (SECRET, NAME, "summaries", "chat"):
        assert needle not in text
        assert needle not in json.dumps(statement)


def test_the_certificate_is_a_dsse_envelope_that_the_attestation_library_reads(place: StoreLocation) -> None:
    library = pytest.importorskip("in_toto_attestation.v1.statement_pb2", reason="pip install in-toto-attestation")
    json_format = pytest.importorskip("google.protobuf.json_format")
    _, text = certified(place)
    payload = base64.b64decode(json.loads(text)["payload"])
    parsed = json_format.Parse(payload, library.Statement())
    assert parsed.predicate_type == "urn:holdproof:erasure:v1"


def _statement(change: Callable[[dict[str, Any]], None]) -> Callable[[dict[str, Any]], None]:
    def tamper(document: dict[str, Any]) -> None:
        statement = json.loads(base64.b64decode(document["payload"]))
        change(statement)
        text = json.dumps(statement, sort_keys=True, separators=(",", ":"))
        document["payload"] = base64.b64encode(text.encode()).decode()

    return tamper


def _row(change: Callable[[dict[str, Any]], None]) -> Callable[[dict[str, Any]], None]:
    def tamper(document: dict[str, Any]) -> None:
        row = json.loads(document["log"]["row"])
        change(row)
        document["log"]["row"] = json.dumps(row, sort_keys=True, separators=(",", ":"))

    return tamper


def _flipped(text: str) -> str:
    return ("B" if text[0] == "A" else "A") + text[1:]


TAMPERINGS: Final[dict[str, Callable[[dict[str, Any]], None]]] = {
    "fewer things were left": _statement(lambda s: s["predicate"]["derived"].update(erased=[])),
    "another person": _statement(lambda s: s["predicate"].update(subject="0" * 32)),
    "another time": _statement(lambda s: s["predicate"].update(erased_at="2020-01-01T00:00:00.000000Z")),
    "another kind of statement": _statement(lambda s: s.update(predicateType="urn:holdproof:other:v1")),
    "the signature": lambda d: d["signatures"][0].update(sig=_flipped(d["signatures"][0]["sig"])),
    "the type of the payload": lambda d: d.update(payloadType="application/json"),
    "the row": _row(lambda row: row.update(count=7)),
    "the row's certificate": _row(lambda row: row.update(certificate="{}")),
    "the salt": lambda d: d["log"].update(salt="00" * 16),
    "the entry": lambda d: d["log"].update(entry=d["log"]["entry"].replace('"erasure"', '"decision"')),
    "the proof": lambda d: d["log"].update(
        proof=d["log"]["proof"].replace("index 1", "index 2").replace("\n\n", "\nx\n")
    ),
    "the trust file": lambda d: d["log"].update(trust=d["log"]["trust"].replace("payload", "payl0ad", 1)),
    "a part is missing": lambda d: d["log"].pop("proof"),
    "a part too many": lambda d: d.update(more=1),
}


def test_a_certificate_that_was_changed_in_any_part_is_refused(tmp_path: Path) -> None:
    _, text = certified(StoreLocation(tmp_path / "home"))
    assert len(TAMPERINGS) >= 10
    for what, tamper in TAMPERINGS.items():
        document = json.loads(text)
        tamper(document)
        assert document != json.loads(text), what
        try:
            verdict = certificate_check.check(json.dumps(document).encode()).verdict
        except errors.FormatError:
            continue
        assert verdict is Verdict.TAMPERED, what


def test_a_certificate_that_lacks_what_it_must_say_is_refused_whoever_signed_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = erasure_certificate.facts

    def facts(*args: Any, **options: Any) -> str:
        fields = json.loads(real(*args, **options))
        del fields["left"]
        return canonical.dump_text(fields)

    monkeypatch.setattr(erasure_certificate, "facts", facts)
    _, text = certified(StoreLocation(tmp_path / "home"))
    assert certificate_check.check(text.encode()).verdict is Verdict.TAMPERED


def test_a_certificate_of_another_erasure_or_store_does_not_pass_for_this_one(tmp_path: Path) -> None:
    _, mine = certified(StoreLocation(tmp_path / "mine"))
    _, yours = certified(StoreLocation(tmp_path / "yours"))
    for part in ("payload", "log"):
        mixed = json.loads(mine) | {part: json.loads(yours)[part]}
        assert certificate_check.check(json.dumps(mixed).encode()).verdict is Verdict.TAMPERED


def test_a_row_whose_certificate_was_edited_is_found_and_gives_none(tmp_path: Path) -> None:
    place = StoreLocation(tmp_path / "home")
    erasure, _ = certified(place)
    edited = sql("UPDATE erasures SET certificate = replace(certificate, 'erase', 'list')")
    with place.open() as store:
        store.write(lambda tx: tx.execute(edited))
        assert store.verify.run(lock=False).verdict is Verdict.TAMPERED
        with pytest.raises(errors.HoldproofError):
            store.erase.certificate(erasure.id)


def test_an_erasure_that_is_not_there_has_no_certificate(place: StoreLocation) -> None:
    with place.open() as store, pytest.raises(errors.NotFoundError, match="erase list"):
        store.erase.certificate("0198a7c2-9c1e-7a3b-8d4e-5f6071829304")


def test_an_object_that_a_flow_of_use_only_deleted_keeps_its_history(place: StoreLocation) -> None:
    with place.open() as store:
        store.agents.register("trader", version="1")
        store.objects.put("finding", type="t", content=SECRET, subject=NAME)
        store.objects.put("prices", type="t", content="of nobody")

        def work() -> None:
            store.objects.get("finding")
            store.objects.delete("prices")

        in_step(store, work)
        erasure = store.erase.subject(NAME, derived="erase")
        assert ("objects", "prices") not in {(each.kind, each.id) for each in erasure.derived}
        assert store.objects.get("prices", version=1).content == "of nobody"
    place.sound()


def test_a_derived_version_in_clear_of_an_object_that_became_the_persons_goes_too(place: StoreLocation) -> None:
    with place.open() as store:
        store.agents.register("trader", version="1")
        store.objects.put("finding", type="t", content=SECRET, subject=NAME)
        in_step(store, lambda: store.objects.put("summary", type="t", content=store.objects.get("finding").content))
        store.objects.put("summary", type="t", content="hers", subject=NAME)
        erasure = store.erase.subject(NAME, derived="erase")
        assert ("objects", "summary") in kinds(erasure.derived, left=False)
        with pytest.raises(errors.PrunedError):
            store.objects.get("summary", version=1)
        if place.url is None:
            assert holding(place) == [], "while the store is open"
    place.sound()


def test_a_certificate_does_not_tell_why_another_person_is_held(place: StoreLocation) -> None:
    with place.open() as store:
        planted(store)
        store.objects.put("bobs", type="t", content="x", subject="Bob")
        rule = store.retention.hold(subject="Bob", reason="Bob Brown against the bank")
        erasure = store.erase.subject(NAME, derived="erase")
        text = store.erase.certificate(erasure.id).text
        payload = base64.b64decode(json.loads(text)["payload"]).decode()
        assert "Brown" not in payload
        assert rule.id in payload
    place.sound()


def test_what_a_flow_wrote_after_a_message_goes_although_it_read_of_the_person_later(place: StoreLocation) -> None:
    with place.open() as store:
        store.agents.register("trader", version="1")
        store.objects.put("finding", type="t", content=SECRET, subject=NAME)
        with store.flows.run("trader") as told:
            with store.flows.run("trader") as teller:
                content = teller.step("work", lambda: store.objects.get("finding").content)
                teller.send(told.flow_id, "topic", content)
            heard = told.receive("topic")
            told.step("write", lambda: store.objects.put("leak", type="t", content=heard))
            told.step("read", lambda: store.objects.get("finding").content)
        erasure = store.erase.subject(NAME, derived="erase")
        assert ("objects", "leak") in kinds(erasure.derived, left=False)
    place.sound()


def test_the_earliest_version_that_is_derived_goes_in_whatever_order_uses_are_found(place: StoreLocation) -> None:
    with place.open() as store:
        store.agents.register("trader", version="1")
        store.objects.put("finding", type="t", content=SECRET, subject=NAME)
        with store.flows.run("trader") as teller:
            content = teller.step("work", lambda: store.objects.get("finding").content)
            with store.flows.run("trader") as told:
                teller.send(told.flow_id, "topic", content)
                heard = told.receive("topic")
                told.step("write", lambda: store.objects.put("leak", type="t", content=heard))
            teller.step("write", lambda: store.objects.put("leak", type="t", content="later"))
        store.erase.subject(NAME, derived="erase")
        with pytest.raises(errors.PrunedError):
            store.objects.get("leak", version=1)
    place.sound()


def test_a_hold_on_everything_of_another_namespace_keeps_what_is_derived_there(place: StoreLocation) -> None:
    with place.open() as store:
        store.agents.register("trader", version="1")
        store.objects.put("finding", type="t", content=SECRET, subject=NAME)

        def work() -> None:
            store.notes.put(["a"], "n", {"text": store.objects.get("finding").content}, ns="other")

        in_step(store, work)
        rule = store.retention.hold(reason="a case", ns="other")
        erasure = store.erase.subject(NAME, derived="erase")
        [note] = [each for each in erasure.derived if each.kind == "notes"]
        assert rule.id in (note.reason or "")
        assert len(store.notes.search(ns="other").items) == 1
    place.sound()


def test_a_thread_that_a_step_copied_goes_with_the_one_it_is_of(place: StoreLocation) -> None:
    with place.open() as store:
        planted(store)
        in_step(store, lambda: store.threads.copy("graph", "copied"))
        erasure = store.erase.subject(NAME, derived="erase")
        assert [id for kind, id in kinds(erasure.derived, left=False) if kind == "threads"] == ["1", "2"]
        assert store.threads.list().items == []
    place.sound()
