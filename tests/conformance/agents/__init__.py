"""One shop assistant, in each framework: it looks at orders, and pays refunds once somebody approves."""

import importlib
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

FRAMEWORKS = ("pydantic_ai", "openai_agents", "google_adk", "agent_framework", "langgraph")
MODULES = {"openai_agents": "agents", "google_adk": "google.adk"}
TOOLS = {"look": {"order": 3}, "refund": {"euros": 30}}
"""What the model asks for: the tool that the prompt names."""


class Shop:
    """What happened, and how the agent is run without a flow."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.plainly: Callable[[Any, str], Awaitable[Any]]

    def look(self, order: int) -> str:
        self.calls.append(f"look {order}")
        return f"seen {order}"

    def refund(self, euros: int) -> str:
        self.calls.append(f"refund {euros}")
        return f"paid {euros}"


def shop(framework: str, seen: Shop, store: Any, **options: Any) -> Any:
    """The assistant of a framework, on a store."""
    pytest.importorskip(MODULES.get(framework, framework), reason=f"{framework} is not installed")
    return importlib.import_module(f"tests.conformance.agents.of_{framework}").agent(seen, store, **options)
