"""A LangGraph chat whose checkpoints survive the process: run it again to continue it.

    python examples/langgraph_chat.py ./store "What did I say?"

The model is scripted, so that neither network nor key is needed.
"""

import sys

from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import START, MessagesState, StateGraph

from holdproof.adapters.langgraph import HoldproofSaver


def model(state: MessagesState) -> dict[str, list[AIMessage]]:
    """Answer with the number of messages so far and the first of them."""
    told = [str(message.content) for message in state["messages"] if message.type == "human"]
    return {"messages": [AIMessage(f"You said {len(told)} things; the first was: {told[0]}")]}


def main(home: str, words: str = "hello") -> None:
    """Run one turn of the chat."""
    graph = StateGraph(MessagesState)
    graph.add_node("model", model)
    graph.add_edge(START, "model")
    with HoldproofSaver.from_conn_string(home) as saver:
        app = graph.compile(checkpointer=saver)
        done = app.invoke({"messages": [HumanMessage(words)]}, {"configurable": {"thread_id": "chat"}})
        print(done["messages"][-1].content)


if __name__ == "__main__":
    main(*sys.argv[1:3])
