"""A model without a mind: it knows the tools by their list only, and chooses by the words of names and descriptions.

Rules:
- A step is an intent in plain words. The tool whose name and description share the most words with it is called; two
  that share as many are an error, since a model would have to guess.
- An argument is a fact of the task by the parameter's name, a word of the intent that the schema names, or a field of
  that name in an earlier answer, of the same resource first, or one that its description names in backticks. A required
  one that is none of these is an error.
"""

import json
import re
from collections.abc import Mapping
from typing import Any, Final

_NAME: Final = 2
"""How much a word in a tool's name counts, beside one in its description."""
_SMALL: Final = frozenset(
    {"a", "an", "and", "as", "at", "be", "by", "for", "from", "in", "is", "it", "its", "of", "on", "or"}
    | {"that", "the", "there", "this", "to", "was", "with"}
)
_ENDINGS: Final = ("ations", "ation", "ings", "ing", "ions", "ion", "ies", "es", "ed", "s", "e", "y")


def _stem(word: str) -> str:
    for ending in _ENDINGS:
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word.removesuffix(ending)
    return word


def _words(text: str) -> frozenset[str]:
    return frozenset(_stem(each) for each in re.findall(r"[a-z]+", text.lower()) if each not in _SMALL)


class ScriptedModel:
    """Solves a task with the tools of a session, step by step."""

    def __init__(self, session: Any, tools: list[Any], facts: Mapping[str, Any]) -> None:
        self._session = session
        self._tools = tools
        self._facts = facts
        self._seen: dict[str, dict[str, Any]] = {}

    async def do(self, intent: str) -> Any:
        """Call the tool that an intent asks for, and return its answer."""
        tool = self.choose(intent)
        result = await self._session.call_tool(tool.name, self._arguments(tool, intent))
        assert not result.is_error, (intent, tool.name, result.content[0].text)
        answer = json.loads(result.content[0].text)
        self._remember(tool, answer)
        return answer

    def choose(self, intent: str) -> Any:
        """Return the one tool whose words fit best."""
        scores = {tool.name: self._score(tool, _words(intent)) for tool in self._tools}
        best = max(scores.values())
        names = [name for name, score in scores.items() if score == best]
        assert len(names) == 1, f"{intent!r} fits {', '.join(names)} alike"
        return next(tool for tool in self._tools if tool.name == names[0])

    def _score(self, tool: Any, wanted: frozenset[str]) -> int:
        name = _words(tool.name.replace("_", " "))
        return _NAME * len(name & wanted) + len(_words(tool.description) & wanted - name)

    def _arguments(self, tool: Any, intent: str) -> dict[str, Any]:
        schema = tool.input_schema
        arguments: dict[str, Any] = {}
        for name, each in schema["properties"].items():
            named = [word for word in each.get("enum", ()) if word in re.findall(r"\w+", intent)]
            if named:
                arguments[name] = named[0]
            elif name in self._facts:
                arguments[name] = self._facts[name]
            elif name in schema["required"]:
                arguments[name] = self._earlier(tool, name)
        return arguments

    def _earlier(self, tool: Any, name: str) -> Any:
        own = self._seen.get(_resource(tool), {})
        described = tool.input_schema["properties"][name].get("description", "")
        for field in (name, *re.findall(r"`(\w+)`", described)):
            for answer in (own, *reversed(self._seen.values())):
                if field in answer:
                    return answer[field]
        raise AssertionError(f"nothing tells what {name} of {tool.name} is")

    def _remember(self, tool: Any, answer: Any) -> None:
        first = answer["items"][0] if isinstance(answer, dict) and answer.get("items") else answer
        first = first[0] if isinstance(first, list) and first else first
        if isinstance(first, dict):
            self._seen.setdefault(_resource(tool), {}).update(first)


def _resource(tool: Any) -> str:
    return str(tool.name).partition("_")[0]
