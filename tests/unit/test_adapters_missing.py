"""An adapter whose framework is not installed says what to install, and importing Holdproof needs none of them."""

import importlib
import subprocess
import sys

import pytest

from holdproof import errors

ADAPTERS = {
    "openai_agents": ("agents", "openai"),
    "pydantic_ai": ("pydantic_ai", "pydantic-ai"),
    "agent_framework": ("agent_framework", "agent-framework"),
    "google_adk": ("google", "adk"),
    "crewai": ("crewai", "crewai"),
}


def forget(monkeypatch: pytest.MonkeyPatch, framework: str) -> None:
    """Let a framework be absent, and everything of ours that has seen it be imported anew."""
    for name in [
        name for name in sys.modules if name == framework or name.startswith((f"{framework}.", "holdproof.adapters."))
    ]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, framework, None)


@pytest.mark.parametrize("adapter", ADAPTERS)
def test_a_missing_framework_is_told_with_its_extra(adapter: str, monkeypatch: pytest.MonkeyPatch) -> None:
    framework, extra = ADAPTERS[adapter]
    forget(monkeypatch, framework)
    with pytest.raises(errors.MissingExtraError, match=rf"pip install 'holdproof\[{extra}\]'"):
        importlib.import_module(f"holdproof.adapters.{adapter}")


@pytest.mark.parametrize(
    ("name", "framework", "package"),
    [
        ("HoldproofConversationStore", "pydantic_ai.conversation_store", r"pydantic-ai-slim>=2\.66"),
        ("HoldproofStepStore", "pydantic_ai_harness", r"holdproof\[pydantic-ai-steps\]"),
    ],
)
def test_what_needs_another_package_of_pydantic_ai_says_which(
    name: str, framework: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    forget(monkeypatch, framework)
    adapter = importlib.import_module("holdproof.adapters.pydantic_ai")
    with pytest.raises(errors.MissingExtraError, match=package):
        getattr(adapter, name)


def test_decoding_otlp_needs_no_sdk_and_the_rest_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    forget(monkeypatch, "opentelemetry")
    otel = importlib.import_module("holdproof.adapters.otel")
    assert otel.receive(b"{}", content_type="application/json").events == ()
    with pytest.raises(errors.MissingExtraError, match=r"holdproof\[otel\]"):
        _ = otel.HoldproofSpanExporter
    with pytest.raises(AttributeError):
        _ = otel.nothing


def test_neither_importing_holdproof_nor_starting_a_server_imports_a_framework() -> None:
    frameworks = {"mcp", *dict(ADAPTERS.values())}
    script = (
        "import sys, holdproof, holdproof.cli\n"
        "from holdproof.server import create_app, serve\n"
        "create_app(holdproof.open(url=':memory:'), parts=serve.parts(console=True))\n"
        f"print(sorted({{*sys.modules}} & {frameworks!r}))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"
