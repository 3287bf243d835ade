"""Scripted agents of a hundred calls, one for each framework: killed at any call, kept in one storage or another."""

from typing import Final

FRAMEWORKS: Final = ("pydantic_ai", "openai_agents", "google_adk", "agent_framework", "langgraph")
MODULES: Final = {"openai_agents": "agents", "google_adk": "google.adk"}
"""The package of a framework, where it is not called as the framework is."""
