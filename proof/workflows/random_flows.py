"""Flows made by chance, from a seed: steps, retries, failures, steps at once, sleeps, children, compensation.

A program is the input of one registered function, which carries it out; so the programs of a run are recorded too, with
values of every kind that can be.
"""

import random
import uuid
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

from holdproof import errors, sync
from holdproof.api import FlowFunction, OpenFlow
from holdproof.executors import SyncExecutor

Flow = OpenFlow[SyncExecutor]


@dataclass(frozen=True)
class Op:
    """One thing that a flow does, and the values it does it with."""

    kind: str
    values: tuple[Any, ...] = ()
    ops: tuple["Op", ...] = ()


class FatalError(Exception):
    """What a flow does not survive."""


class World:
    """What steps have an effect on."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.inputs: list[Any] = []
        self._tries: Counter[str] = Counter()

    def act(self, value: Any) -> Any:
        """Have an effect, and return what it was about."""
        self.done.append(repr(value))
        return value

    def act_after(self, failures: int, key: str) -> str:
        """Fail a number of times before it works."""
        self.done.append(key)
        self._tries[key] += 1
        if self._tries[key] <= failures:
            raise OSError(key)
        return key

    def fail(self, why: str) -> None:
        """Fail every time."""
        self.done.append(why)
        raise FatalError(why)

    def undo(self, value: Any) -> None:
        """Undo an effect."""
        self.done.append(f"undo {value!r}")


# --- making them -----------------------------------------------------------------------------------------------------


def value(chance: random.Random) -> Any:
    """Return a value of any kind that can be recorded."""
    kinds = (
        lambda: chance.randrange(-(2**40), 2**40),
        lambda: "".join(chance.choices('aß∂🙂 "\\\n', k=chance.randrange(12))),
        lambda: Decimal(chance.randrange(10**9)) / 1000,
        lambda: datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=chance.randrange(10**8)),
        lambda: uuid.UUID(int=chance.getrandbits(128)),
        lambda: chance.randbytes(chance.randrange(40)),
        lambda: {chance.randrange(100) for _ in range(3)},
        lambda: (chance.random(), None, True),
        lambda: Path("orders") / str(chance.randrange(100)),
        lambda: {"items": [value(chance) for _ in range(chance.randrange(3))]},
        lambda: "long " * 2_000 + str(chance.randrange(3)),
    )
    return chance.choice(kinds)()


_KINDS = ("step", "step", "undoable", "retry", "caught", "gather", "map", "sleep", "child", "publish", "patched")


def program(chance: random.Random, *, depth: int = 2) -> tuple[Op, ...]:
    """Return what a flow does, from one to eight things."""
    ops = [_op(chance, depth) for _ in range(chance.randrange(1, 9))]
    if depth == 2 and chance.random() < 0.15:
        ops.append(Op("fatal", ("it is over",)))
    return tuple(ops)


def _op(chance: random.Random, depth: int) -> Op:
    kind = chance.choice(_KINDS)
    if kind == "child":
        return Op(kind, ops=program(chance, depth=depth - 1)) if depth > 0 else Op("step", (value(chance),))
    if kind == "retry":
        return Op(kind, (chance.randrange(1, 4), uuid.UUID(int=chance.getrandbits(128)).hex))
    if kind in ("gather", "map"):
        return Op(kind, tuple(value(chance) for _ in range(chance.randrange(1, 5))))
    return Op(kind, (value(chance),))


# --- carrying them out -----------------------------------------------------------------------------------------------


def register(store: sync.Holdproof, world: World) -> FlowFunction[Any, list[Any]]:
    """Register the function that carries programs out."""

    @store.flow(agent="trader")
    def perform(flow: Flow, ops: tuple[Op, ...]) -> list[Any]:
        world.inputs.append(ops)
        return [_perform(flow, op) for op in ops]

    def _perform(flow: Flow, op: Op) -> Any:
        if op.kind == "step":
            return flow.step(world.act, *op.values)
        if op.kind == "undoable":
            return flow.step("undoable", world.act, *op.values, compensate=world.undo)
        if op.kind == "retry":
            return flow.step(world.act_after, *op.values, retries=3, backoff_s=0)
        if op.kind == "fatal":
            return flow.step(world.fail, *op.values)
        if op.kind == "caught":
            try:
                return flow.step("caught", world.fail, "dealt with")
            except (FatalError, errors.ReplayedError):
                return "dealt with"
        if op.kind == "gather":
            return flow.gather(*(flow.call(world.act, each) for each in op.values), concurrency=2)
        if op.kind == "map":
            return flow.map(world.act, op.values)
        if op.kind == "sleep":
            return flow.sleep(0.001)
        if op.kind == "child":
            return flow.run(perform, op.ops)
        if op.kind == "publish":
            return flow.publish("progress", *op.values)
        assert op.kind == "patched", op.kind
        return flow.patched("newer")

    return perform


def run(store: sync.Holdproof, world: World, number: int, chance: random.Random) -> None:
    """Carry out that many programs made by chance; some of them fail."""
    perform = register(store, world)
    for _ in range(number):
        with suppress(FatalError):
            perform(program(chance))
