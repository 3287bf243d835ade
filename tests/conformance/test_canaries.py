"""Canaries: what is planted of a person wherever `subject=` reaches is in no byte of any file after the erasure.

`HOLDPROOF_CANARIES=1000` plants a thousand, as `make faults` does; each of them another text in another place, through
every resource and the adapters that are installed. What carries no label, as threads do, is planted by steps that use
what is the person's: an erasure follows that.

On PostgreSQL the server's own files are searched: what is encrypted is in none of them, at any time; what is removed is
in no file of a table once the server has vacuumed. Its write-ahead log keeps such bytes until it is recycled.
"""

import asyncio
import base64
import os
import random
import re
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
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


# --- through adapters --------------------------------------------------------------------------------------------


def _langgraph_store(store: sync.Holdproof, n: int, canaries: list[str]) -> None:
    adapter: Any = import_module("holdproof.adapters.langgraph")
    items = adapter.HoldproofStore(store, subject=lambda path, key: NAME)
    items.put(("person", str(n)), canaries[0], {"text": canaries[1]})


def _adk(store: sync.Holdproof, n: int, canaries: list[str]) -> None:
    adapter: Any = import_module("holdproof.adapters.google_adk")
    types: Any = import_module("google.genai.types")
    events: Any = import_module("google.adk.events")
    sessions: Any = import_module("google.adk.sessions")
    where = {"app_name": "shop", "user_id": f"user-{n}"}
    said = types.Content(role="user", parts=[types.Part(text=canaries[0])])
    event = events.Event(id="e", author="user", content=said, timestamp=1000.0)

    async def plant() -> None:
        memory = adapter.HoldproofMemoryService(store, subject=NAME)
        await memory.add_session_to_memory(sessions.Session(id="s", **where, events=[event]))
        files = adapter.HoldproofArtifactService(store, subject=NAME)
        part = types.Part(inline_data=types.Blob(data=canaries[1].encode(), mime_type="text/plain"))
        await files.save_artifact(**where, session_id="s", filename=canaries[2], artifact=part)

    asyncio.run(plant())


def _pydantic(store: sync.Holdproof, n: int, canaries: list[str]) -> None:
    adapter: Any = import_module("holdproof.adapters.pydantic_ai")
    messages: Any = import_module("pydantic_ai.messages")
    conversation: Any = import_module("pydantic_ai.conversation")
    said = [
        messages.ModelRequest(parts=[messages.UserPromptPart(content=canaries[0])]),
        messages.ModelResponse(parts=[messages.TextPart(content=canaries[1])]),
    ]
    whole = conversation.Conversation(conversation_id=f"{canaries[2]}-{n}", messages=said)
    asyncio.run(adapter.HoldproofConversationStore(store, subject=NAME).save(whole))


def _a2a(store: sync.Holdproof, n: int, canaries: list[str]) -> None:
    adapter: Any = import_module("holdproof.adapters.a2a")
    types: Any = import_module("a2a.types.a2a_pb2")
    users: Any = import_module("a2a.auth.user")
    context: Any = import_module("a2a.server.context")

    class Ada(users.User):  # type: ignore[misc]
        is_authenticated = True
        user_name = NAME

    task = types.Task(id=f"task-{n}", context_id="c", status=types.TaskStatus(state=types.TaskState.TASK_STATE_WORKING))
    task.history.add(message_id="m", role=types.Role.ROLE_USER).parts.add(text=canaries[0])
    asyncio.run(adapter.HoldproofTaskStore(store).save(task, context.ServerCallContext(user=Ada())))


def _openai(store: sync.Holdproof, n: int, canaries: list[str]) -> None:
    """A session takes no subject: a step of the person's flow writes it."""
    adapter: Any = import_module("holdproof.adapters.openai_agents")
    session = adapter.HoldproofSession(f"session-{n}", store)
    items = [{"role": "user", "content": canary} for canary in canaries]
    _used(store, lambda: asyncio.run(session.add_items(items)), subject=NAME)


def _langgraph_saver(store: sync.Holdproof, n: int, canaries: list[str]) -> None:
    """A checkpoint takes no subject: a step that read what is the person's runs the graph."""
    adapter: Any = import_module("holdproof.adapters.langgraph")
    graphs: Any = import_module("langgraph.graph")
    store.objects.put(f"of-graph-{n}", type="t", content=canaries[0], subject=NAME)
    graph = graphs.StateGraph(dict)
    graph.add_node("look", lambda state: {"seen": [store.objects.get(f"of-graph-{n}").content, canaries[1]]})
    graph.add_edge(graphs.START, "look")
    compiled = graph.compile(checkpointer=adapter.HoldproofSaver(store))
    config = {"configurable": {"thread_id": f"graph-{n}"}}
    _used(store, lambda: str(compiled.invoke({"asked": canaries[2]}, config)))


# --- derived -----------------------------------------------------------------------------------------------------


def _used(store: sync.Holdproof, work: Callable[[], Any], **opening: Any) -> None:
    """Do some work in a step of a flow that ends."""
    with store.flows.run("trader", **opening) as flow:
        flow.step("use", work)


def _summaries(store: sync.Holdproof, n: int, canaries: list[str]) -> None:
    """Let a flow of nobody read what is the person's, and write it into every kind of memory; another reads on."""
    store.notes.put(["person", "read"], str(n), {"text": canaries[0]}, subject=NAME)

    def summarise() -> str:
        text = f"{store.notes.get(['person', 'read'], str(n)).value['text']} {canaries[1]}"
        store.objects.put(f"summary-{n}", type="t", content=text, attributes={"a": canaries[2]})
        store.notes.put(["summaries"], f"{n}-{canaries[3]}", {"text": text}, vectors={"text": [0.5, 1.0]})
        store.transcripts.append(f"chat-{n}-{canaries[4]}", [{"text": text}])
        store.threads.put_checkpoint(f"thread-{n}-{canaries[5]}", {"messages": [text]}, provable=True)
        return text

    def report() -> str:
        text = f"{store.objects.get(f'summary-{n}').content} {canaries[6]}"
        store.objects.put(f"report-{n}", type="t", content=text)
        return text

    _used(store, summarise)
    _used(store, report)


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
SEALED: Final = frozenset({_function, _failing, _records, _escalation, _object})
"""Plants of which every canary is encrypted before it is stored."""
_ADAPTERS: Final[dict[str, tuple[Plant, int]]] = {
    "langgraph.store": (_langgraph_store, 2),
    "langgraph.checkpoint": (_langgraph_saver, 3),
    "google.adk": (_adk, 3),
    "pydantic_ai.conversation_store": (_pydantic, 3),
    "a2a": (_a2a, 1),
    "agents": (_openai, 2),
}


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


INSTALLED: Final = tuple(plant for module, plant in _ADAPTERS.items() if _is_installed(module))
FOLLOWED: Final = ((_summaries, 7), *INSTALLED)
"""Plants through adapters, and of what is derived."""


def _planted(store: sync.Holdproof, count: int, plants: Sequence[tuple[Plant, int]] = PLANTS) -> list[str]:
    """Plant at least so many canaries, in every place in turn; return them."""
    seeded = random.Random(len(plants))
    store.agents.register("trader", version="1")
    store.agents.set_budget("trader", per_hour=10_000)
    canaries: list[str] = []
    n = 0
    while len(canaries) < count:
        for plant, number in plants:
            fresh = [f"canary{seeded.getrandbits(80):020x}" for _ in range(number)]
            plant(store, n, fresh)
            canaries += fresh
            n += 1
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
        store.image.dump()
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


def test_no_canary_that_adapters_stored_or_flows_derived_is_in_any_file(tmp_path: Path) -> None:
    place = StoreLocation(tmp_path / "home")
    with place.open() as store:
        canaries = _planted(store, _COUNT, FOLLOWED)
        found = {canary for each in holding(place.home, canaries).values() for canary in each}
        assert len(found) > len(canaries) / 2, "derived content is in clear before"
        store.backup.create(tmp_path / "backup")
        erasure = store.erase.subject(NAME, derived="erase", who="dpo")
        assert [each for each in erasure.derived if each.reason is not None] == []
        assert erasure.remains == ()
        assert holding(place.home, canaries) == {}, "while the store is open"
        certificate = store.erase.certificate(erasure.id).text
        assert not any(form in certificate.encode() for canary in canaries for form in _forms(canary))
        assert store.verify.run(full=True, lock=False).verdict is Verdict.VALID
    assert holding(place.home, canaries) == {}, "once it is closed"
    place.restore(tmp_path / "backup")
    with place.open() as store:
        for thread in store.context.threads:
            thread.join()
    places = holding(place.home, canaries)
    assert [path for path in places if not path.startswith("before-restore-")] == [], "a restore erases again"
    place.sound()


_CANARY: Final = re.compile(rb"canary[0-9a-f]{20}")


def _in_server(folder: Path, *, wal: bool) -> set[str]:
    """Return every canary that stands in a file of the server."""
    files = [path for path in folder.rglob("*") if path.is_file() and (wal or "pg_wal" not in path.parts)]
    return {match.decode() for path in files for match in _CANARY.findall(path.read_bytes())}


def test_on_a_server_what_is_sealed_is_in_no_file_and_what_is_removed_in_no_table_after_a_vacuum(
    postgres_url: str, tmp_path: Path
) -> None:
    psycopg: Any = pytest.importorskip("psycopg")
    place = StoreLocation(tmp_path / "home", postgres_url)

    def served(statement: str) -> list[Any]:
        with psycopg.connect(postgres_url, autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    [(folder,)] = served("SHOW data_directory")
    with place.open() as store:
        sealed = _planted(store, _COUNT // 2, [each for each in PLANTS if each[0] in SEALED])
        served("CHECKPOINT")
        assert _in_server(Path(folder), wal=True).isdisjoint(sealed), "sealed before it is written anywhere"
        others = [each for each in (*PLANTS, *FOLLOWED) if each[0] not in SEALED]
        # Another namespace of names: the flows of the first ones have theirs.
        clear = _planted(store, _COUNT // 2, others)
        served("CHECKPOINT")
        before = _in_server(Path(folder), wal=False)
        assert len(before & {*clear}) > len(clear) / 2, "rows that are not sealed are in clear before"
        erasure = store.erase.subject(NAME, derived="erase", who="dpo")
        assert [each for each in erasure.derived if each.reason is not None] == []
        settled(store)
    served("VACUUM FULL")
    served("CHECKPOINT")
    assert _in_server(Path(folder), wal=False).isdisjoint([*sealed, *clear])
    assert holding(place.home, [*sealed, *clear]) == {}
    place.sound()


def test_canaries_are_found_where_nothing_was_erased(tmp_path: Path) -> None:
    """The search of the other test can fail: what belongs to nobody is in the files."""
    with sync.open(tmp_path) as store:
        store.objects.put("o", type="t", content="canary-in-an-object")
        store.blobs.put("b", b"canary-in-a-blob")
    places = holding(tmp_path, ["canary-in-an-object", "canary-in-a-blob"])
    assert {canary for each in places.values() for canary in each} == {"canary-in-an-object", "canary-in-a-blob"}
