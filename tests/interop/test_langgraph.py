"""`HoldproofSaver` under LangGraph's own conformance suite, under real graphs, and where the official savers fail."""

import asyncio
import json
import sqlite3  # noqa: TID251 (the official saver writes with it)
import subprocess
import sys
from collections.abc import AsyncGenerator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any

import pytest

pytest.importorskip("langgraph.checkpoint.conformance", reason="langgraph is not installed")

import ormsgpack
from langchain_core.documents import Document
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import Command, interrupt
from pydantic import BaseModel
from typing_extensions import TypedDict

from holdproof import errors, sync
from holdproof.adapters.langgraph import HoldproofSaver, SafeSerializer, import_sqlite
from holdproof.adapters.langgraph.envelope import DICTIONARY, MOST, Envelopes, Sealer
from holdproof.db import Tx, sql
from holdproof.memory.threads import threads
from holdproof.model.verdicts import Verdict
from tests.interop.langgraphs import aput, chat, checkpoint, put, say, thread

CAPABILITIES = {
    "put": "aput",
    "put_writes": "aput_writes",
    "get_tuple": "aget_tuple",
    "list": "alist",
    "delete_thread": "adelete_thread",
    "delete_for_runs": "adelete_for_runs",
    "copy_thread": "acopy_thread",
    "prune": "aprune",
}
KEY = bytes(range(32))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[sync.Holdproof]:
    with sync.open(tmp_path / "home") as store:
        yield store
        assert store.verify.run(lock=False).verdict is Verdict.VALID


@pytest.fixture
def saver(store: sync.Holdproof) -> HoldproofSaver:
    return HoldproofSaver(store)


# --- the official suite ------------------------------------------------------------------------------------------


def conforms(target: dict[str, Any], **options: Any) -> None:
    """Every capability is found and passes, by name: the suite itself is content with what it finds."""
    with sync.open(**target) as store:

        @checkpointer_test(name="HoldproofSaver")
        async def made() -> AsyncGenerator[BaseCheckpointSaver[Any], None]:
            yield HoldproofSaver(store, **options)

        report = asyncio.run(validate(made))
        assert report.results.keys() == CAPABILITIES.keys()
        for name, method in CAPABILITIES.items():
            result = report.results[name]
            assert (result.detected, result.passed, result.failures) == (True, True, []), name
            assert result.tests_passed >= 5
            for colour in (method, method[1:]):
                assert getattr(HoldproofSaver, colour) is not getattr(BaseCheckpointSaver, colour), colour
        assert store.verify.run(lock=False).verdict in (Verdict.VALID, Verdict.PENDING)
    for name in ("get_delta_channel_history", "aget_delta_channel_history"):
        assert getattr(HoldproofSaver, name) is not getattr(BaseCheckpointSaver, name)


@pytest.mark.parametrize("options", [{}, {"key": KEY}], ids=["clear", "sealed"])
def test_the_official_suite_passes_on_sqlite(tmp_path: Path, options: dict[str, Any]) -> None:
    conforms({"home": tmp_path / "home"}, **options)


def test_the_official_suite_passes_on_postgres(postgres_store: tuple[str, Path]) -> None:
    url, home = postgres_store
    conforms({"url": url, "home": home})


# --- real graphs -------------------------------------------------------------------------------------------------


def test_a_chat_goes_on_after_reopening_and_is_stored_once(tmp_path: Path) -> None:
    for turn in range(6):
        with HoldproofSaver.from_conn_string(tmp_path / "home") as saver:
            said = say(chat(saver), f"question {turn}")
    assert said == [
        words for turn in range(6) for words in (f"question {turn}", f"answer {2 * turn + 1} yyyyyyyyyyyy"[:20])
    ]


def test_a_sync_graph_is_invoked_inside_a_running_loop(saver: HoldproofSaver) -> None:
    """As in a cell of a notebook."""

    async def cell() -> list[str]:
        return say(chat(saver), "hi")

    assert asyncio.run(cell()) == ["hi", "answer 1 yyyyyyyyyyyy"[:20]]


def test_an_async_graph_streams_interrupts_and_resumes(tmp_path: Path) -> None:
    class State(TypedDict):
        messages: Annotated[list[Any], add_messages]

    def ask(state: State) -> Any:
        return {"messages": [AIMessage(f"you said {interrupt('what?')}")]}

    async def run() -> Any:
        async with HoldproofSaver.from_conn_string(tmp_path / "home") as saver:
            graph = StateGraph(State)
            graph.add_node("ask", ask)
            graph.add_edge(START, "ask")
            app = graph.compile(checkpointer=saver)
            await app.ainvoke({"messages": [HumanMessage("hi")]}, thread())
            [waiting] = (await saver._async.threads.list(status="interrupted")).items
            assert waiting.thread_id == "t"
            done = await app.ainvoke(Command(resume="blue"), thread())
            states = [state async for state in app.aget_state_history(thread())]
            assert len(states) == 3
            return done["messages"][-1].content

    assert asyncio.run(run()) == "you said blue"


def test_messages_can_be_edited_removed_and_changed_in_place(saver: HoldproofSaver) -> None:
    def model(state: MessagesState) -> Any:
        first = state["messages"][0]
        assert isinstance(first.content, str)
        first.content += "!"  # in place, and not returned
        return {"messages": [AIMessage("new", id="a"), RemoveMessage(id="gone")]}

    graph = StateGraph(MessagesState)
    graph.add_node("model", model)
    graph.add_edge(START, "model")
    app = graph.compile(checkpointer=saver)
    app.invoke({"messages": [HumanMessage("hi", id="h"), HumanMessage("x", id="gone")]}, thread())
    app.invoke({"messages": [HumanMessage("x", id="gone")]}, thread())
    kept = app.get_state(thread()).values["messages"]
    assert [(each.id, each.content) for each in kept] == [("h", "hi!!"), ("a", "new")]


def test_time_travel_reads_and_forks(saver: HoldproofSaver) -> None:
    app = chat(saver)
    say(app, "one")
    say(app, "two")
    states = list(app.get_state_history(thread()))
    early = next(state for state in states if len(state.values.get("messages", [])) == 2)
    done = app.invoke({"messages": [HumanMessage("other")]}, early.config)
    assert [str(each.content)[:8].strip() for each in done["messages"]] == ["one", "answer 1", "other", "answer 3"]
    assert len(list(app.get_state_history(thread()))) == len(states) + 3


def test_subgraphs_keep_their_own_line(saver: HoldproofSaver) -> None:
    inner = StateGraph(MessagesState)
    inner.add_node("in", lambda _: {"messages": [AIMessage("inner")]})
    inner.add_edge(START, "in")
    outer = StateGraph(MessagesState)
    outer.add_node("sub", inner.compile(checkpointer=True))
    outer.add_edge(START, "sub")
    app = outer.compile(checkpointer=HoldproofSaver(saver._sync, on_conflict="error"))
    for _ in range(3):
        done = app.invoke({"messages": [HumanMessage("hi")]}, thread())
    assert len(done["messages"]) >= 6
    assert {each.config["configurable"]["checkpoint_ns"] for each in saver.list(thread())} == {""}
    lines = {each.config["configurable"]["checkpoint_ns"] for each in saver.list({"configurable": {"thread_id": "t"}})}
    assert lines == {"", "sub"}


def test_delta_channels_are_rebuilt_and_survive_pruning(saver: HoldproofSaver) -> None:
    channels = pytest.importorskip("langgraph.channels.delta")

    def joined(state: list[str], updates: Any) -> list[str]:
        return [*state, *(each for update in updates for each in update)]

    class State(TypedDict):
        log: Annotated[list[str], channels.DeltaChannel(joined, snapshot_frequency=100)]

    graph = StateGraph(State)
    graph.add_node("work", lambda state: {"log": [f"entry {len(state['log'])}"]})
    graph.add_edge(START, "work")
    app = graph.compile(checkpointer=saver)
    for number in range(4):
        done = app.invoke({"log": [f"input {number}"]}, thread())
    before = app.get_state(thread()).values["log"]
    assert before == done["log"]
    assert len(before) == 8
    saver.prune(["t"])
    assert app.get_state(thread()).values["log"] == before, "the writes it is rebuilt from were spared"


# --- where the official savers fail ------------------------------------------------------------------------------


def test_of_two_writers_on_one_parent_the_stale_one_is_refused(store: sync.Holdproof) -> None:
    saver = HoldproofSaver(store, on_conflict="error")
    put(saver, thread(), a=0)
    one, two = saver.get_tuple(thread()), saver.get_tuple(thread())
    assert one is not None
    assert two is not None
    first = put(saver, one.config, 1, a=1)
    with pytest.raises(errors.StaleWriterError):
        put(saver, two.config, 1, a=2)
    put(saver, first, 2, a=3)
    newest = saver.get_tuple(thread())
    assert newest is not None
    assert newest.checkpoint["channel_values"] == {"a": 3}
    assert "__holdproof_writer" not in newest.metadata


def test_of_two_graphs_on_one_thread_the_stale_one_is_refused(store: sync.Holdproof) -> None:
    saver = HoldproofSaver(store, on_conflict="error")
    say(chat(saver), "begin")

    def slow(state: MessagesState) -> Any:
        with ThreadPoolExecutor(1) as elsewhere:  # in this thread it would be a subgraph
            elsewhere.submit(say, chat(HoldproofSaver(store, on_conflict="error")), "meanwhile").result()
        return {"messages": [AIMessage("late")]}

    graph = StateGraph(MessagesState)
    graph.add_node("model", slow)
    graph.add_edge(START, "model")
    app = graph.compile(checkpointer=saver)
    with pytest.raises(errors.StaleWriterError):
        app.invoke({"messages": [HumanMessage("slow")]}, thread(), durability="sync")
    said = say(chat(saver), "after")
    assert {"begin", "meanwhile", "after"} <= {*said}
    assert "late" not in said


def test_by_default_both_are_kept_and_it_is_logged(saver: HoldproofSaver, caplog: pytest.LogCaptureFixture) -> None:
    root = put(saver, thread(), a=0)
    put(saver, root, 1, a=1)
    put(saver, root, 1, a=2)
    assert "was forked" in caplog.text
    assert sorted(each.checkpoint["channel_values"]["a"] for each in saver.list(thread())) == [0, 1, 2]


def test_a_late_write_after_delete_stays_dead(saver: HoldproofSaver) -> None:
    config = put(saver, thread(), a=0)
    saver.delete_thread("t")
    with pytest.raises(errors.ThreadDeletedError):
        put(saver, config, 1, a=1)
    with pytest.raises(errors.ThreadDeletedError):
        saver.put_writes(config, [("a", 1)], "task")
    assert saver.get_tuple(thread()) is None
    put(saver, thread(), a="anew")
    with pytest.raises(errors.ThreadDeletedError):
        put(saver, config, 1, a=1)


def test_one_checkpoint_is_listed_without_reading_all_of_its_thread(
    saver: HoldproofSaver, monkeypatch: pytest.MonkeyPatch
) -> None:
    configs = [put(saver, thread(), number, a=number) for number in range(50)]
    pages: list[str | None] = []
    list_checkpoints = threads.list_checkpoints

    def read(tx: Tx, *args: Any, cursor: str | None, **named: Any) -> Any:
        pages.append(cursor)
        return list_checkpoints(tx, *args, cursor=cursor, **named)

    monkeypatch.setattr(threads, "list_checkpoints", read)
    for config in (configs[0], configs[30], configs[49]):
        [found] = saver.list(config)
        assert found.config["configurable"]["checkpoint_id"] == config["configurable"]["checkpoint_id"]
    assert list(saver.list({"configurable": {"thread_id": "t", "checkpoint_id": "none"}})) == []
    assert len(pages) == 4


def test_a_paused_listing_holds_up_nobody(store: sync.Holdproof) -> None:
    async def run() -> int:
        saver = HoldproofSaver(store)
        config = thread()
        for step in range(30):
            config = await aput(saver, config, step, a=step)
        listing = saver.alist(thread())
        first = await anext(listing)
        for step in range(30, 40):
            config = await asyncio.wait_for(aput(saver, config, step, a=step), 10)
        rest = [each async for each in listing]
        assert first.checkpoint["channel_values"] == {"a": 29}
        return len(rest)

    assert asyncio.run(run()) == 29


def test_what_was_put_survives_kill_9(tmp_path: Path) -> None:
    script = """
import os, sys
from holdproof.adapters.langgraph import HoldproofSaver
from tests.interop.langgraphs import chat, say
with HoldproofSaver.from_conn_string(sys.argv[1]) as saver:
    app = chat(saver)
    for turn in range(3):
        say(app, f"question {turn}")
    os.kill(os.getpid(), 9)
"""
    home = tmp_path / "home"
    done = subprocess.run([sys.executable, "-c", script, str(home)], check=False, capture_output=True)
    assert done.returncode == -9, done.stderr
    with HoldproofSaver.from_conn_string(home) as saver:
        assert len(say(chat(saver), "again")) == 8


# --- decoding ----------------------------------------------------------------------------------------------------


@dataclass
class Mine:
    """A type of the user's."""

    x: int


class Model(BaseModel):
    """A model of the user's."""

    name: str
    document: Document | None = None


def test_types_of_ones_own_are_read_once_they_are_allowed(store: sync.Holdproof) -> None:
    with pytest.raises(errors.UnsafeTypeError, match="Mine"):
        put(HoldproofSaver(store), thread(), a=Mine(1))
    saver = HoldproofSaver(store).with_allowlist([Mine, (Model.__module__, "Model")])
    put(saver, thread(), a=Mine(1), b=[Model(name="x"), Model(name="y")])
    with pytest.raises(errors.UnsafeTypeError, match="Mine"):
        HoldproofSaver(store).get_tuple(thread())
    found = saver.get_tuple(thread())
    assert found is not None
    assert found.checkpoint["channel_values"] == {"a": Mine(1), "b": [Model(name="x"), Model(name="y")]}


def hostile() -> list[bytes]:
    """Values that make LangGraph's own reader import, call or hand out something."""

    def ext(code: int, *parts: Any) -> bytes:
        return ormsgpack.packb(ormsgpack.Ext(code, ormsgpack.packb(parts)))

    nested = ormsgpack.packb(ormsgpack.Ext(0, ormsgpack.packb(("os", "system", "touch pwned"))))
    inside = ormsgpack.Ext(5, ormsgpack.packb(("langchain_core.messages.human", "HumanMessage", {"content": 0})))
    return [
        ext(0, "os", "system", "touch pwned"),
        ext(1, "subprocess", "run", (["touch", "pwned"],)),
        ext(2, "subprocess", "run", {"args": ["touch", "pwned"]}),
        ext(3, "builtins", "eval", "1", "__call__"),
        ext(3, "datetime", "datetime", 1, "utcfromtimestamp"),
        ext(4, "os", "system", {}),
        ext(5, "builtins", "eval", {}, "x"),
        ext(6, "O", (1,), "C", b"12345678"),
        ext(9, "a", "b", "c"),
        ext(0, "uuid", "UUID", "not one"),
        ext(0, "builtins", "eval"),
        ext(7)[:-1],
        b"\xc1",
        b"",
        ormsgpack.packb([{"deep": ormsgpack.Ext(0, ormsgpack.packb(("os", "getcwd", 1)))}]),
        ormsgpack.packb(ormsgpack.Ext(7, nested)),
        ormsgpack.packb(inside),
    ]


@pytest.mark.parametrize("data", hostile())
def test_hostile_bytes_are_a_typed_error_and_nothing_is_called(
    data: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    try:
        found = SafeSerializer().loads_typed(("msgpack", data))
    except errors.FormatError:
        found = None
    assert found is None or isinstance(found, HumanMessage)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("kind", ["pickle", "json", "msgpack+aes", ""])
def test_other_serializations_are_not_read(kind: str) -> None:
    with pytest.raises(errors.UnsafeTypeError):
        SafeSerializer().loads_typed((kind, b"{}"))


def test_envelopes_are_read_whole_or_refused() -> None:
    envelopes = Envelopes(SafeSerializer(), None)
    for value in (None, b"x" * 500, bytearray(b"y"), {"a": [1, "text" * 300]}, HumanMessage("hi" * 300, id="1")):
        data = envelopes.wrap(value)
        assert envelopes.unwrap(envelopes.tag, data) == value
        for cut in range(0, len(data), 7):
            try:
                envelopes.unwrap(envelopes.tag, data[:cut])
            except errors.FormatError:
                continue
            assert type(value) in (bytes, bytearray) or cut == len(data), "only bytes can be cut unseen, before hashing"


def test_a_value_that_could_not_be_read_again_is_not_taken() -> None:
    envelopes = Envelopes(SafeSerializer(), None)
    assert envelopes.unwrap(envelopes.tag, envelopes.wrap(bytes(MOST))) == bytes(MOST)
    with pytest.raises(errors.InvalidInputError, match="64 MiB"):
        envelopes.wrap(bytes(MOST + 1))


def test_the_dictionary_never_changes() -> None:
    assert sha256(DICTIONARY).hexdigest() == "290e701ee68e0c7c12841e6dc91388b41c390d7f8818575c39ec09691959285c"


# --- sealing -----------------------------------------------------------------------------------------------------

_SECRETS = sql("SELECT metadata, state FROM thread_checkpoints")
_BLOCKS = sql("SELECT data FROM thread_blocks")
_FORGE = sql("UPDATE thread_checkpoints SET metadata = :metadata")
_LISTED = sql("SELECT facts, thread_id FROM threads")


def test_sealed_content_and_metadata_are_nowhere_in_clear(store: sync.Holdproof) -> None:
    saver = HoldproofSaver(store, key=KEY)
    app = chat(saver)
    config = {"configurable": {"thread_id": "t"}, "metadata": {"user": "secret-user"}}
    for _ in range(5):
        app.invoke({"messages": [HumanMessage("secret-word " * 50)]}, config)
    rows = store.read(lambda tx: repr([tx.all(query) for query in (_SECRETS, _BLOCKS, _LISTED)]))
    assert "secret" not in rows
    found = saver.get_tuple(thread())
    assert found is not None
    assert found.metadata["user"] == "secret-user"  # type: ignore[typeddict-item]
    assert len(found.checkpoint["channel_values"]["messages"]) == 10
    assert list(saver.list(None, filter={"user": "other"})) == []


def test_forged_plaintext_rows_are_refused(tmp_path: Path) -> None:
    with sync.open(tmp_path / "home") as store:
        sealed, clear = HoldproofSaver(store, key=KEY), HoldproofSaver(store)
        put(sealed, thread("sealed"), a=["x" * 100])
        put(clear, thread("clear"), a=["x" * 100])
        for reader, name in ((sealed, "clear"), (clear, "sealed"), (HoldproofSaver(store, key=bytes(32)), "sealed")):
            with pytest.raises(errors.NotSealedError):
                reader.get_tuple(thread(name))
        store.write(lambda tx: tx.execute(_FORGE, metadata=json.dumps({"source": "loop"})))
        with pytest.raises(errors.NotSealedError):
            sealed.get_tuple(thread("sealed"))


def test_what_was_sealed_for_one_place_opens_at_no_other() -> None:
    sealer = Sealer(KEY)
    sealed = sealer.seal(b"here", b"content")
    assert sealer.open(b"here", sealed) == b"content"
    assert sealer.seal(b"here", b"content") == sealed, "equal values are stored once"
    for purpose, data in ((b"there", sealed), (b"here", sealed[:-1]), (b"here", b""), (b"here", bytes(40))):
        with pytest.raises(errors.NotSealedError):
            sealer.open(purpose, data)
    with pytest.raises(errors.InvalidInputError):
        Sealer(b"short")


# --- opening and taking over -------------------------------------------------------------------------------------


def official(path: Path, turns: int = 4) -> Any:
    """A file of LangGraph's own saver, and what a graph says of it."""
    with SqliteSaver.from_conn_string(str(path)) as saver:
        app = chat(saver)
        for turn in range(turns):
            say(app, f"question {turn}", "chat-1")
        say(app, "hello", "chat-2")
        return shown(app)


def shown(app: Any) -> Any:
    return {
        name: [
            (state.config, state.metadata, state.created_at, state.values, state.next, state.parent_config)
            for state in app.get_state_history(thread(name))
        ]
        for name in ("chat-1", "chat-2")
    }


def test_an_official_file_is_taken_over_whole_and_twice_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "checkpoints.sqlite"
    before = official(file)
    with sync.open(tmp_path / "home") as store:
        assert import_sqlite(store, file, dry_run=True).checkpoints == 15
        assert store.threads.list().items == []
        done = import_sqlite(store, file)
        assert (done.threads, done.checkpoints, done.deleted) == (2, 15, [])
        app = chat(HoldproofSaver(store))
        assert shown(app) == before
        assert import_sqlite(store, file).writes == done.writes > 0
        assert shown(app) == before
        assert say(app, "and on", "chat-1")[-2] == "and on"
        store.threads.delete("chat-2")
        assert import_sqlite(store, file).deleted == ["chat-2"]
        with pytest.raises(errors.NotFoundError):
            store.threads.get("chat-2")


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "other.db"
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TABLE other (x)")
    connection.close()
    with sync.open(tmp_path / "home") as store, pytest.raises(errors.FormatError):
        import_sqlite(store, file)
    with pytest.raises(errors.InvalidInputError, match="import langgraph"):
        HoldproofSaver.from_conn_string(file).__enter__()


def test_a_store_on_a_server_has_its_keys_in_the_home_it_is_told(
    postgres_store: tuple[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, home = postgres_store
    monkeypatch.setenv("HOLDPROOF_HOME", str(tmp_path / "own"))
    with HoldproofSaver.from_conn_string(url, home=home) as saver:
        assert len(say(chat(saver), "hi")) == 2
    assert not (tmp_path / "own").exists()
    with pytest.raises(errors.InvalidInputError, match="is that folder"):
        HoldproofSaver.from_conn_string(home, home=tmp_path).__enter__()


def test_the_namespace_of_a_store_is_that_of_its_saver(store: sync.Holdproof) -> None:
    ours, theirs = (HoldproofSaver(sync.Holdproof(store.core, ns)) for ns in ("ours", "theirs"))
    put(ours, thread(), a=1)
    assert theirs.get_tuple(thread()) is None
    assert ours.get_tuple(thread()) is not None


def test_versions_follow_those_of_whoever_wrote_before(saver: HoldproofSaver) -> None:
    assert [saver.get_next_version(current, None) for current in (None, 1, 41)] == [1, 2, 42]
    after = saver.get_next_version(f"{7:032}.0.123", None)
    assert after > f"{7:032}.0.999"


def test_runs_are_removed_by_their_id_even_when_sealed(store: sync.Holdproof) -> None:
    for saver in (HoldproofSaver(store), HoldproofSaver(store, key=KEY)):
        made = checkpoint(0, a=1)
        saver.put(thread("r"), made, {"source": "loop", "step": 0, "run_id": "run-1"}, {"a": 1})
        saver.delete_for_runs(["run-1"])
        assert saver.get_tuple(thread("r")) is None


def test_a_memo_of_another_store_is_of_no_harm(tmp_path: Path) -> None:
    """What was remembered may be gone, by pruning elsewhere: then everything is given again."""
    with sync.open(tmp_path / "home") as store:
        saver = HoldproofSaver(store)
        messages = [HumanMessage(f"{number}" * 50, id=str(number)) for number in range(20)]
        config = put(saver, thread(), 0, messages=messages)
        store.threads.delete("t")
        config = put(saver, thread(), 1, messages=messages)
        put(saver, config, 2, messages=[*messages, HumanMessage("more", id="more")])
        found = saver.get_tuple(thread())
        assert found is not None
        assert len(found.checkpoint["channel_values"]["messages"]) == 21


def test_a_store_in_memory_will_do() -> None:
    with HoldproofSaver.from_conn_string(":memory:") as saver:
        assert len(say(chat(saver), "hi")) == 2


def test_the_example_goes_on_where_it_was(tmp_path: Path) -> None:
    example = Path(__file__).parents[2] / "examples" / "langgraph_chat.py"
    for words in ("my name is Ada", "who am I?"):
        command = [sys.executable, str(example), str(tmp_path / "store"), words]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
    assert done.stdout == "You said 2 things; the first was: my name is Ada\n"
