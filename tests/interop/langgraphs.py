"""Graphs and checkpoints for the tests of the LangGraph adapter."""

from typing import Any

from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base.id import uuid6
from langgraph.graph import END, START, MessagesState, StateGraph


def thread(name: str = "t", **more: Any) -> RunnableConfig:
    return {"configurable": {"thread_id": name, "checkpoint_ns": "", **more}}


def checkpoint(step: int, **values: Any) -> Any:
    """A checkpoint as LangGraph makes it."""
    return {
        "v": 4,
        "ts": "2026-01-01T00:00:00+00:00",
        "id": str(uuid6(clock_seq=step)),
        "channel_values": values,
        "channel_versions": dict.fromkeys(values, step + 1),
        "versions_seen": {},
        "updated_channels": None,
    }


def put(saver: Any, config: RunnableConfig, step: int = 0, **values: Any) -> RunnableConfig:
    """Put such a checkpoint on top of the one that the config names."""
    made = checkpoint(step, **values)
    kept: RunnableConfig = saver.put(config, made, {"source": "loop", "step": step}, made["channel_versions"])
    return kept


async def aput(saver: Any, config: RunnableConfig, step: int = 0, **values: Any) -> RunnableConfig:
    made = checkpoint(step, **values)
    kept: RunnableConfig = await saver.aput(config, made, {"source": "loop", "step": step}, made["channel_versions"])
    return kept


def chat(saver: Any) -> Any:
    """A graph with one scripted model, which answers with the number of messages it has seen."""

    def model(state: MessagesState) -> Any:
        return {"messages": [AIMessage(f"answer {len(state['messages'])} " + "y" * 500)]}

    graph = StateGraph(MessagesState)
    graph.add_node("model", model)
    graph.add_edge(START, "model")
    graph.add_edge("model", END)
    return graph.compile(checkpointer=saver)


def say(app: Any, words: str, name: str = "t") -> list[str]:
    """One turn; everything that was said by then."""
    done = app.invoke({"messages": [HumanMessage(words)]}, thread(name))
    return [str(each.content)[:20].strip() for each in done["messages"]]
