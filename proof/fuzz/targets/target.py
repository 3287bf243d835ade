"""A target: something that strangers give bytes to."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Target:
    """Good inputs, and a function that takes any: it returns, or raises a HoldproofError, and nothing else.

    What it asserts of an input that it accepts is part of the claim. `ready` is called once before.
    """

    name: str
    seeds: Callable[[], Sequence[bytes]]
    run: Callable[[bytes], None]
    marks: Sequence[bytes] = ()
    ready: Callable[[], object] = lambda: None
