"""What LangGraph asks of a checkpointer beside its conformance suite, each found by somebody else's test."""

import asyncio
import operator
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import pytest

pytest.importorskip("langgraph.checkpoint.base", reason="langgraph is not installed")

from langchain_core.agents import AgentAction, AgentFinish
from langchain_core.messages import HumanMessage
from langgraph.graph import START, StateGraph
from typing_extensions import TypedDict

from holdproof import errors, sql, sync
from holdproof.adapters.langgraph import HoldproofSaver, HoldproofStore, SafeSerializer
from holdproof.adapters.langgraph.encode_cache import EncodeCache
from tests.interop.langgraphs import chat, checkpoint, put, say, thread


@pytest.fixture
def store(tmp_path: Path) -> Iterator[sync.Holdproof]:
    with sync.open(tmp_path / "home") as store:
        yield store


@pytest.fixture
def saver(store: sync.Holdproof) -> HoldproofSaver:
    return HoldproofSaver(store)


class Count(TypedDict):
    value: Annotated[list[int], operator.add]


def nested(saver: Any) -> Any:
    inner = StateGraph(Count)
    inner.add_node("add", lambda state: {"value": [len(state["value"])]})
    inner.add_edge(START, "add")
    outer = StateGraph(Count)
    outer.add_node("inner", inner.compile())
    outer.add_edge(START, "inner")
    return outer.compile(checkpointer=saver)


# --- which checkpoint is meant -----------------------------------------------------------------------------------


def test_before_needs_no_thread_of_its_own(saver: HoldproofSaver) -> None:
    first = put(saver, thread(), a=0)
    second = put(saver, first, 1, a=1)
    before: Any = {"configurable": {"checkpoint_id": second["configurable"]["checkpoint_id"]}}
    assert [each.config["configurable"]["checkpoint_id"] for each in saver.list(thread(), before=before)] == [
        first["configurable"]["checkpoint_id"]
    ]


def test_a_run_is_replayed_through_a_subgraph(saver: HoldproofSaver) -> None:
    app = nested(saver)
    app.invoke({"value": [1]}, thread())
    [asked] = [each for each in app.get_state_history(thread()) if each.next == ("inner",)]
    assert app.invoke(None, asked.config) == {"value": [1, 1, 1]}


def test_an_empty_checkpoint_id_means_the_newest(saver: HoldproofSaver) -> None:
    config = put(saver, thread(checkpoint_id=""), a=0)
    put(saver, config, 1, a=1)
    newest = saver.get_tuple(thread(checkpoint_id=""))
    assert newest is not None
    assert newest.checkpoint["channel_values"] == {"a": 1}
    assert len([*saver.list(thread(checkpoint_id=""))]) == 2


def test_metadata_is_found_by_a_dotted_name(saver: HoldproofSaver) -> None:
    for step, name in enumerate(("ada", "bob")):
        made = checkpoint(step, a=step)
        metadata: Any = {"source": "loop", "step": step, "user": {"name": name}, "a.b": name}
        saver.put(thread(name), made, metadata, made["channel_versions"])
    [bob] = saver.list(None, filter={"user.name": "bob"})
    assert bob.config["configurable"]["thread_id"] == "bob"
    assert len([*saver.list(None, filter={"a.b": "ada"})]) == 1, "a name that has a dot is found as it stands"
    assert [*saver.list(None, filter={"user.name.first": "ada"})] == []


def test_after_pruning_no_parent_is_named_that_is_gone(saver: HoldproofSaver) -> None:
    app = nested(saver)
    for _ in range(5):
        app.invoke({"value": [1]}, thread())
    saver.prune(["t"])
    [left] = saver.list({"configurable": {"thread_id": "t"}})
    assert left.parent_config is None
    assert app.get_state(thread()).values == app.invoke(None, thread()), "and the thread goes on from what is left"


def test_prune_takes_a_list_and_not_a_name(saver: HoldproofSaver) -> None:
    for name in "abc":
        put(saver, thread(name), a=0)
    with pytest.raises(errors.InvalidInputError, match=re.escape("['abc']")):
        saver.prune("abc", strategy="delete")
    assert len([*saver.list(None)]) == 3


# --- types -------------------------------------------------------------------------------------------------------


@dataclass
class Unlisted:
    """A type that nobody allowed."""

    x: Any


@pytest.mark.parametrize("value", [Unlisted(1), [HumanMessage("hi"), Unlisted(1)], {"deep": [{"er": Unlisted(1)}]}])
def test_an_unlisted_type_is_refused_when_it_is_written(saver: HoldproofSaver, value: Any) -> None:
    config = put(saver, thread(), a=0)
    with pytest.raises(errors.UnsafeTypeError, match=r"allow=\[Unlisted\]"):
        put(saver, config, 1, a=value)
    with pytest.raises(errors.UnsafeTypeError):
        saver.put_writes(config, [("a", value)], "task")
    newest = saver.get_tuple(config)
    assert newest is not None, "the thread is as it was"
    assert (newest.checkpoint["channel_values"], newest.pending_writes) == ({"a": 0}, [])


def test_a_local_class_is_read_once_it_is_allowed(store: sync.Holdproof) -> None:
    @dataclass
    class Local:
        x: int

    class Pair(NamedTuple):
        a: int
        b: int

    with pytest.raises(errors.UnsafeTypeError, match="pass the type itself"):
        put(HoldproofSaver(store, allow=[(__name__, "Local")]), thread(), a=Local(1))
    saver = HoldproofSaver(store, allow=[Local, Pair])
    put(saver, thread(), a=Local(1), b=[Pair(1, 2)])
    read = saver.with_allowlist([Unlisted]).get_tuple(thread())
    assert read is not None
    assert read.checkpoint["channel_values"] == {"a": Local(1), "b": [Pair(1, 2)]}


def test_what_agents_of_langchain_decide_is_on_the_list() -> None:
    serde = SafeSerializer()
    for value in (AgentAction("search", {"q": "x"}, "log"), AgentFinish({"output": "y"}, "log")):
        assert serde.loads_typed(serde.dumps_typed(value)) == value


def test_an_array_of_objects_is_refused_when_it_is_written() -> None:
    numpy = pytest.importorskip("numpy")
    with pytest.raises((errors.UnsafeTypeError, ValueError, TypeError)):
        SafeSerializer().dumps_typed({"a": numpy.array([object()])})
    serde = SafeSerializer()
    assert serde.loads_typed(serde.dumps_typed(numpy.arange(3))).tolist() == [0, 1, 2]


# --- constructors ------------------------------------------------------------------------------------------------


def test_a_saver_and_a_store_are_made_of_a_path(tmp_path: Path) -> None:
    for where in (str(tmp_path / "home"), tmp_path / "home"):
        saver = HoldproofSaver(where)
        memory = HoldproofStore(where, ns="other")
        say(chat(saver), "hi")
        memory.put(("a",), "k", {"x": 1})
        saver.close()
        saver.close()
        assert memory.get(("a",), "k") is not None, "the store is open as long as one adapter uses it"
        memory.close()
        with pytest.raises(errors.ClosedError):
            saver.get_tuple(thread())
    with sync.open(tmp_path / "home") as store:
        assert store.threads.get("t").checkpoints == 6


def test_a_saver_is_made_of_a_url(postgres_store: tuple[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    url, home = postgres_store
    monkeypatch.setenv("HOLDPROOF_HOME", str(home))
    saver = HoldproofSaver(url)
    assert say(chat(saver), "hi")[0] == "hi"
    saver.close()


def test_a_store_that_was_passed_in_stays_open(store: sync.Holdproof) -> None:
    HoldproofSaver(store).close()
    assert store.threads.list().items == []


def test_setup_may_be_called_and_awaited(store: sync.Holdproof) -> None:
    for each in (HoldproofSaver(store), HoldproofStore(store)):
        each.setup()

        async def wait(each: Any = each) -> None:
            await each.setup()

        asyncio.run(wait())


# --- memory ------------------------------------------------------------------------------------------------------


def test_the_lists_that_are_remembered_are_bounded_by_bytes() -> None:
    cache = EncodeCache(most=1_000_000)
    for number in range(40):
        messages = [HumanMessage("x" * 5_000, id=str(each)) for each in range(20)]
        cache.line(str(number), "").digests("messages", messages, lambda each: each.id.encode())
    assert cache.weight <= 1_000_000
    assert cache.weight >= 400_000, "and not of no use"
    huge = [HumanMessage("x" * 5_000, id=str(each)) for each in range(300)]
    line = cache.line("huge", "")
    line.digests("messages", huge, lambda each: each.id.encode())
    encoded: list[Any] = []

    def encode(element: Any) -> bytes:
        encoded.append(element)
        return b"digest"

    cache.line("huge", "").digests("messages", [*huge, HumanMessage("new")], encode)
    assert len(encoded) == 1, "the list in use is remembered, whatever it weighs"
    cache.forget("huge")
    assert cache.weight == 0


def test_what_is_known_by_its_hash_is_read_once_and_belongs_to_each_reader(store: sync.Holdproof) -> None:
    saver = HoldproofSaver(store)
    said = [HumanMessage("words " * 100, id=str(number)) for number in range(20)]
    place = put(saver, thread(), messages=said)

    def messages() -> list[Any]:
        read = saver.get_tuple(place)
        assert read is not None
        found: list[Any] = read.checkpoint["channel_values"]["messages"]
        return found

    first = messages()
    store.write(lambda tx: tx.execute(sql("DELETE FROM thread_blocks")))
    first[0].content = "changed by its reader"
    assert messages() == said
    with pytest.raises(errors.ProofError, match="missing"):
        HoldproofSaver(store).get_tuple(place)


def test_what_is_known_is_not_believed_under_another_tag(store: sync.Holdproof) -> None:
    saver = HoldproofSaver(store, key=bytes(32))
    place = put(saver, thread(), messages=[HumanMessage("words " * 100, id=str(number)) for number in range(9)])
    saver.get_tuple(place)
    [(state,)] = store.read(lambda tx: tx.all(sql("SELECT state FROM thread_checkpoints")))
    # The tag says sealed, and of the same length something else afterwards.
    edited = state.replace(b"langgraph/1+gcm", b"langgraph/1-gcm")
    store.write(lambda tx: tx.execute(sql("UPDATE thread_checkpoints SET state = :state"), state=edited))
    with pytest.raises(errors.NotSealedError):
        saver.get_tuple(place)


@pytest.mark.parametrize("length", [0, 1, 150, 250, 70_000])
def test_a_type_that_is_not_listed_is_refused_at_every_length(saver: HoldproofSaver, length: int) -> None:
    for value in (Unlisted("x" * length), [Unlisted("x" * length)], {"x" * length: {"y": Unlisted("")}}):
        with pytest.raises(errors.UnsafeTypeError):
            put(saver, thread(), a=value)


# --- two processes -----------------------------------------------------------------------------------------------

_TURNS = """
import sys
from holdproof import errors, sync
from holdproof.adapters.langgraph import HoldproofSaver
from langchain_core.messages import HumanMessage
from tests.interop.langgraphs import chat, thread
home, url, me, turns = sys.argv[1], sys.argv[2] or None, sys.argv[3], int(sys.argv[4])
with sync.open(home, url=url) as store:
    saver = HoldproofSaver(store, on_conflict="error")
    app = chat(saver)
    print("ready", flush=True)
    sys.stdin.readline()
    for turn in range(turns):
        try:
            app.invoke({"messages": [HumanMessage(f"{me}-{turn}")]}, thread())
        except errors.StaleWriterError:
            continue
        print(f"{me}-{turn}", flush=True)
"""


@pytest.mark.parametrize("where", ["sqlite", "postgres"])
def test_every_acknowledged_turn_of_two_processes_is_in_the_newest_checkpoint(
    where: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    url, home = ("", tmp_path / "home") if where == "sqlite" else request.getfixturevalue("postgres_store")
    with sync.open(home, url=url or None) as store:
        say(chat(HoldproofSaver(store, on_conflict="error")), "begin")
    command = [sys.executable, "-c", _TURNS, str(home), url]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    racers = [subprocess.Popen([*command, me, "12"], **pipes) for me in ("a", "b")]
    for racer in racers:
        assert racer.stdout is not None
        assert racer.stdout.readline() == "ready\n"
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("go\n")
        racer.stdin.flush()
    acknowledged = [line for racer in racers for line in racer.communicate(timeout=120)[0].split()]
    assert [racer.returncode for racer in racers] == [0, 0]
    assert acknowledged
    with sync.open(home, url=url or None) as store:
        newest = HoldproofSaver(store).get_tuple(thread())
        assert newest is not None
        said = [str(each.content) for each in newest.checkpoint["channel_values"]["messages"]]
        assert {*acknowledged} <= {*said}
        assert store.verify.run(lock=False).verdict.sound
