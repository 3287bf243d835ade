"""What is fuzzed, by name; a target's module is loaded when it is asked for, since some need half of Holdproof."""

from collections.abc import Mapping
from importlib import import_module
from typing import Final

from proof.fuzz.targets.target import Target

_NAMED: Final = {
    "formats": ("dag-cbor", "car", "mst", "lists", "commits", "keys"),
    "evidence": ("notes", "verifier-keys", "tree-proofs", "tiles", "dbom", "manifests", "bundles"),
    "memory": ("lisp", "memory-images", "records", "thread-states", "checkpoints", "otlp", "skills"),
    "doors": ("http", "cursors", "config"),
}
MODULES: Final[Mapping[str, str]] = {name: module for module, names in _NAMED.items() for name in names}
"""Every target, and the module it lives in."""


def find(name: str) -> Target:
    """A target by its name."""
    found: Mapping[str, Target] = {
        each.name: each for each in import_module(f"proof.fuzz.targets.{MODULES[name]}").TARGETS
    }
    return found[name]


__all__ = ["MODULES", "Target", "find"]
