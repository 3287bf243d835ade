"""A LangGraph chat that survives anything: run it again, and it goes on where it was.

    python examples/langgraph_chat.py ./store "What did I say?"

The model is scripted, so that neither network nor key is needed.
"""

import sys

from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import START, MessagesState, StateGraph

from holdproof.adapters.langgraph import HoldproofSaver


def model(state: MessagesState) -> dict[str, list[AIMessage]]:
    """Answers with what it has been told so far."""
    told = [str(message.content) for message in state["messages"] if message.type == "human"]
    return {"messages": [AIMessage(f"You said {len(told)} things; the first was: {told[0]}")]}


def main(home: str, words: str = "hello") -> None:
    """One turn of the chat."""
    graph = StateGraph(MessagesState)
    graph.add_node("model", model)
    graph.add_edge(START, "model")
    with HoldproofSaver.from_conn_string(home) as saver:
        app = graph.compile(checkpointer=saver)
        done = app.invoke({"messages": [HumanMessage(words)]}, {"configurable": {"thread_id": "chat"}})
        print(done["messages"][-1].content)


if __name__ == "__main__":
    main(*sys.argv[1:3])
