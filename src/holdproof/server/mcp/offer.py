"""Which methods are tools: sets of them, whole resources, or only those that read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, get_args

from holdproof.api.catalogue import MethodSpec, entries
from holdproof.api.parameters import DESTINATIONS
from holdproof.errors import InvalidInputError
from holdproof.executors.exposure import ToolSet

TOOL_SETS: Final = frozenset[str](get_args(ToolSet))


@dataclass(frozen=True, slots=True)
class Offer:
    """Which methods are tools: those of some sets, or all of some resources, or only those that read."""

    resources: frozenset[str] | None = None
    read_only: bool = False
    sets: frozenset[str] = TOOL_SETS

    def holds(self, entry: MethodSpec) -> bool:
        """Say whether a method is a tool."""
        chosen = entry.exposure.tool in self.sets if self.resources is None else entry.resource in self.resources
        calls_back = any(each.shape.callback and each.required for each in entry.parameters)
        looks = entry.reads or bool(entry.exposure.read_only_with)
        if any(each.required and each.name in DESTINATIONS for each in entry.parameters):
            return False
        return chosen and not calls_back and not entry.streams and (looks or not self.read_only)

    def tools(self) -> Mapping[str, MethodSpec]:
        """Return the methods that are tools, by the name of the tool."""
        tools = {tool_name(entry): entry for entry in entries().values() if self.holds(entry)}
        if not tools:
            message = "no tool is left to offer: name other sets or resources, or leave out --read-only"
            raise InvalidInputError(message, resources=sorted(self.resources or ()))
        return tools


def tool_name(entry: MethodSpec) -> str:
    """Return the name of a method as a tool."""
    return entry.exposure.tool_name(entry.resource, entry.method)


def tool_sets(names: Sequence[str]) -> frozenset[str]:
    """The sets to offer: all of them if none was named."""
    if unknown := sorted(set(names) - TOOL_SETS):
        sets = ", ".join(sorted(TOOL_SETS))
        raise InvalidInputError(f"there is no set of tools {unknown[0]}; there are {sets}", tools=unknown[0])
    return frozenset(names) or TOOL_SETS


def named_resources(names: Sequence[str]) -> frozenset[str] | None:
    """The resources to offer, if any were named."""
    existing = {resource for resource, _ in entries()}
    if unknown := sorted(set(names) - existing):
        raise InvalidInputError(
            f"there is no resource {unknown[0]}; there are {', '.join(sorted(existing))}", resource=unknown[0]
        )
    return frozenset(names) or None
