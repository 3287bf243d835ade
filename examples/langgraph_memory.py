"""A LangGraph agent with long-term memory: run it again with the same name, or with another one.

    python examples/langgraph_memory.py ./store ada "I like pizza"

The model and the embedding are scripted, so that neither network nor key is needed.
"""

import sys
from collections import Counter
from collections.abc import Sequence

from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.store.base import BaseStore, IndexConfig

from holdproof import sync
from holdproof.adapters.langgraph import HoldproofSaver, HoldproofStore

LETTERS = "abcdefghijklmnopqrstuvwxyz"


def embed(texts: Sequence[str]) -> list[list[float]]:
    """Embed texts as letter counts: enough for an example."""
    return [[float(Counter(text.lower())[letter]) for letter in LETTERS] for text in texts]


def model(state: MessagesState, config: RunnableConfig, *, store: BaseStore) -> dict[str, list[AIMessage]]:
    """Store the message, and answer with the most similar earlier one of the same person."""
    words = str(state["messages"][-1].content)
    mine = ("people", config["configurable"]["person"])
    before = [item.value["text"] for item in store.search(mine, query=words, limit=1)]
    store.put(mine, words, {"text": words})
    return {"messages": [AIMessage(f"You once said: {before[0]}" if before else "I will remember that.")]}


def main(home: str, person: str = "ada", words: str = "I like pizza") -> None:
    """Run a chat of one turn."""
    graph = StateGraph(MessagesState)
    graph.add_node("model", model)
    graph.add_edge(START, "model")
    with sync.open(home) as opened:
        index: IndexConfig = {"dims": len(LETTERS), "embed": embed, "fields": ["text"]}
        memory = HoldproofStore(opened, index=index, subject=lambda namespace, _: namespace[1])
        app = graph.compile(checkpointer=HoldproofSaver(opened), store=memory)
        chat: RunnableConfig = {"configurable": {"thread_id": f"{person}: {words}", "person": person}}
        print(app.invoke({"messages": [HumanMessage(words)]}, chat)["messages"][-1].content)


if __name__ == "__main__":
    main(*sys.argv[1:4])
