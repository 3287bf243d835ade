"""Canaries: what is planted of a person wherever `subject=` reaches is in no byte of any file after the erasure.

`HOLDPROOF_CANARIES=1000` plants a thousand, as `make faults` does; each of them another text in another place. Threads
and transcripts of frameworks take no subject (docs/audit/standards.md), so none are planted there.
"""

import base64
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from harness.filling import settled
from holdproof import errors, sync
from holdproof.model.verdicts import Verdict
from tests.store_locations import StoreLocation

NAME: Final = "Ada Lovelace"
_COUNT: Final = int(os.environ.get("HOLDPROOF_CANARIES", "60"))
_LARGE: Final = 3_000
Plant = Callable[[sync.Holdproof, int, list[str]], None]


def _evaluation(store: sync.Holdproof, n: int, canaries: list[str]) -> None:
    store.evaluations.submit({"of": canaries}, evaluation_id=f"{canaries[0]}-{n}", score=0.5, subject=NAME)


def _function(store: sync.Holdproof, n: int, canaries: list[str]) -> None:
    """Plant in inputs, step arguments, results small and large, an error, published values, streams and messages."""
    first, second, third, fourth, fifth, sixth = canaries

    @store.flow(name=f"examine-{n}", agent="trader")
    def examine(flow: Any, text: str) -> str:
        flow.publish("finding", second)
        flow.stream("words").write(third)
        flow.step("note", lambda told: f"noted {told}", fourth)
        flow.step("long", lambda told: [told] * _LARGE, fifth)
        return text

    examine.opening(subject=NAME).with_id(f"function-{n}")(first)
    store.flows.start("trader", flow_id=f"signalled-{n}", subject=NAME)
    store.flows.signal(f"signalled-{n}", "more", sixth)


def _failing(store: sync.Holdproof, n: int, canaries: list[str]) -> None:
    """Plant in the error of a step, the reason of the flow's end and the intent that is left half done."""

    def fail() -> None:
        raise ValueError(canaries[0])

    with pytest.raises(ValueError, match="canary"), store.flows.run("trader", flow_id=f"failed-{n}", subject=NAME) as f:
        f.step("fail", fail)
    flow = store.flows.start("trader", subject=NAME)
    store.flows.transition(flow.flow_id, "RUNNING", reason=canaries[1])
    store.sagas.mark_dirty(flow.flow_id, "treat", {"half": canaries[2]})
    store.sagas.clear(flow.flow_id, by="ann")
    store.flows.transition(flow.flow_id, "FAILED", reason=canaries[3])


def _records(store: sync.Holdproof, n: int, canaries: list[str]) -> None:
    """Plant in context, audit event, ledger and feedback."""
    flow = store.flows.start("trader", subject=NAME, flow_id=f"records-{n}")
    store.contexts.put(flow.flow_id, {"finding": canaries[0]})
    store.contexts.put(flow.flow_id, {"finding": canaries[1]})
    store.audit.record(flow.flow_id, "EXAMINED", detail={"finding": canaries[2]}, by="dr")
    store.ledger.append(flow.flow_id, {"treat": canaries[3]}, context_ref="c", evidence_hash="h")
    store.feedback.record("trader", flow.flow_id, status="WRONG", reason=canaries[4])


def _escalation(store: sync.Holdproof, n: int, canaries: list[str]) -> None:
    """Plant in what was asked, shown, asked back, replied and answered."""
    flow = store.flows.start("trader", subject=NAME, flow_id=f"asked-{n}")
    store.flows.transition(flow.flow_id, "RUNNING")
    request = store.escalations.request(
        flow.flow_id, reason=canaries[0], context={"of": canaries[1]}, proposal={"against": canaries[2]}
    )
    store.escalations.ask(request.id, canaries[3], by="ann")
    store.escalations.reply(request.id, canaries[4])
    store.escalations.resolve(request.id, "approve", by="ann", proposal={"against": canaries[5]}, comment=canaries[6])


def _object(store: sync.Holdproof, n: int, canaries: list[str]) -> None:
    """Plant in an object, its attributes and meta, its earlier version, and in a snapshot and an image of them."""
    store.objects.put(f"o-{n}", type="t", content=canaries[0], attributes={"a": canaries[1]}, subject=NAME)
    store.objects.put(f"o-{n}", type="t", content=canaries[2] * _LARGE, meta={"m": canaries[3]}, subject=NAME)
    store.snapshots.create()


def _note(store: sync.Holdproof, n: int, canaries: list[str]) -> None:
    store.notes.put(["person", str(n)], canaries[0], {"text": canaries[1]}, vectors={"text": [0.5, 1.0]}, subject=NAME)
    store.notes.put(["person", str(n)], canaries[0], {"text": canaries[2]}, subject=NAME)


def _services(store: sync.Holdproof, n: int, canaries: list[str]) -> None:
    """Plant in blobs small and large, and in a session."""
    store.blobs.put(f"ada/{canaries[0]}", canaries[1].encode(), subject=NAME)
    store.blobs.open_write(f"ada/{n}/large", [canaries[2].encode() * _LARGE], subject=NAME)
    session = store.sessions.start_session("script", canaries[3], subject=NAME)
    store.sessions.log_event(session.id, "said", "cli", canaries[4])


PLANTS: Final[tuple[tuple[Plant, int], ...]] = (
    (_evaluation, 2),
    (_function, 6),
    (_failing, 4),
    (_records, 5),
    (_escalation, 7),
    (_object, 4),
    (_note, 3),
    (_services, 5),
)
"""How each place is planted, and how many canaries that takes."""


def _planted(store: sync.Holdproof, count: int) -> list[str]:
    """Plant at least so many canaries, in every place in turn; return them."""
    seeded = random.Random(20)
    store.agents.register("trader", version="1")
    store.agents.set_budget("trader", per_hour=10_000)
    canaries: list[str] = []
    n = 0
    while len(canaries) < count:
        for plant, number in PLANTS:
            fresh = [f"canary{seeded.getrandbits(80):020x}" for _ in range(number)]
            plant(store, n, fresh)
            canaries += fresh
            n += 1
    store.image.dump()
    settled(store)
    return canaries


def _forms(canary: str) -> list[bytes]:
    """Return a text as bytes, in hex, and in base64 at each of its three alignments, without what neighbours change."""
    data = canary.encode()
    inner = [base64.b64encode(bytes(shift) + data)[4:-4] for shift in range(3)]
    return [data, data.hex().encode(), *inner]


def holding(folder: Path, canaries: list[str]) -> dict[str, set[str]]:
    """Return the canaries that stand in files, by file."""
    files = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    places: dict[str, set[str]] = {}
    for canary in canaries:
        forms = _forms(canary)
        for path, data in files.items():
            if any(form in data for form in forms):
                places.setdefault(str(path.relative_to(folder)), set()).add(canary)
    return places


def test_no_canary_of_an_erased_person_is_in_any_file_and_every_proof_holds(tmp_path: Path) -> None:
    place = StoreLocation(tmp_path / "home")
    with place.open() as store:
        canaries = _planted(store, _COUNT)
        store.objects.put("bobs", type="t", content="bob's own", subject="Bob")
        entries = [(each.event.entry, each.event.version) for each in store.log.list(limit=50).items]
        size = store.log.head().checkpoint.size
        store.backup.create(tmp_path / "backup", keys=True)
        assert store.verify.run(full=True, lock=False).verdict is Verdict.VALID
        erasure = store.erase.subject(NAME, who="dpo")
        assert erasure.remains == ()
        assert holding(place.home, canaries) == {}, "while the store is open"
        assert store.objects.get("bobs").content == "bob's own"
        assert store.log.prove_consistency(size) is not None
        assert len([store.log.prove(entry, version) for entry, version in entries]) == 50
        assert store.verify.run(full=True, lock=False).verdict is Verdict.VALID
        with pytest.raises(errors.NotFoundError):
            store.erase.subject(NAME)
    assert holding(place.home, canaries) == {}, "once it is closed"
    place.restore(tmp_path / "backup")
    with place.open() as store:
        settled(store)
    aside = [path for path in place.home.iterdir() if path.name.startswith("before-restore-")]
    left = {
        path: each for path, each in holding(place.home, canaries).items() if not path.startswith("before-restore-")
    }
    assert left == {}, f"a restore erases again (kept aside: {aside})"
    place.sound()


def test_canaries_are_found_where_nothing_was_erased(tmp_path: Path) -> None:
    """The search of the other test can fail: what belongs to nobody is in the files."""
    with sync.open(tmp_path) as store:
        store.objects.put("o", type="t", content="canary-in-an-object")
        store.blobs.put("b", b"canary-in-a-blob")
    places = holding(tmp_path, ["canary-in-an-object", "canary-in-a-blob"])
    assert {canary for each in places.values() for canary in each} == {"canary-in-an-object", "canary-in-a-blob"}
