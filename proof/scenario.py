"""A whole mixed scenario in the public API of a store: everything agents decide, know and owe, operation by operation.

A chapter is a list of operations on one open store; a scenario is all its chapters, the store opened anew for each.
Everything follows from a seed and a name, so scenarios with other names can share a store. Each operation says what it
makes true (`oracle.Fact`) before it begins, and what only its answer tells after it.

`python -m proof.scenario HOME [--url URL] [--name NAME] [--seed N] [--rounds N]` runs it in a process that can be
killed: it prints a JSON line for what it begins, what is acknowledged and what failed (`oracle.Oracle.hear`).
"""

import argparse
import json
import os
import random
import shutil
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

from holdproof import sync
from holdproof.errors import HoldproofError, NotFoundError
from holdproof.model.storage import TelemetryEvent
from holdproof.model.threads import EncodedList, EncodedValue
from proof.oracle import Fact, Oracle, told

LARGE = 150_000
"""Bytes of a blob that goes into a file of its own."""
_DIMENSIONS = 384
_LONG_S = 1e8
_LEASE_S = 2.0
"""Whoever could not write how its deed ended is waited for as long as that."""

Tell = Callable[[dict[str, Any]], None]
"""Hears what is begun, done and failed, line by line."""


class UnmetError(Exception):
    """An operation cannot even be asked for: one before it failed."""


class DoneTwiceError(Exception):
    """Something was done outside of the store more than once."""


@dataclass(slots=True)
class World:
    """What a chapter shares: where backups go, which flows are in hand, what was done outside of the store."""

    store: sync.Holdproof
    outside: Path
    blocks: dict[str, Any] = field(default_factory=dict)
    deeds: list[str] = field(default_factory=list)

    def block(self, flow_id: str) -> Any:
        """A flow in hand."""
        if flow_id not in self.blocks:
            raise UnmetError(flow_id)
        return self.blocks[flow_id]


@dataclass(frozen=True, slots=True)
class Operation:
    """One thing asked of a store; `run` gives the facts that only its answer tells."""

    name: str
    run: Callable[[World], Sequence[Fact] | None]
    facts: tuple[Fact, ...] = ()


@dataclass(frozen=True, slots=True)
class Chapter:
    """Operations on one open store."""

    name: str
    operations: tuple[Operation, ...]


def chapters(seed: int, name: str = "a", *, alone: bool = True, restores: bool = False) -> list[Chapter]:
    """The whole scenario of a seed, under a name.

    Not `alone`, fresh garbage is left: others may be at work on it. `restores` makes another home of the backups.
    """
    chance = random.Random(f"{seed}/{name}")
    made = [
        ("decisions", _decisions(name)),
        ("guards", _guards(name)),
        ("evidence", _evidence(name, chance)),
        ("memory", _memory(name, chance)),
        ("threads", _threads(name, chance)),
        ("services", _services(name, chance)),
        ("upkeep", _upkeep(name, 0 if alone else 3600)),
        *([("restoring", _restoring(name))] if restores else []),
    ]
    return [Chapter(title, tuple(operations)) for title, operations in made]


def play(chapter: Chapter, store: sync.Holdproof, outside: Path, tell: Tell) -> int:
    """Run a chapter to its end, whatever fails on the way, and tell of each operation; how many failed."""
    world, failed = World(store, outside), 0
    for operation in chapter.operations:
        tell(told("begun", operation.name, operation.facts))
        try:
            learned = operation.run(world) or ()
        except Exception as error:
            failed += 1
            line = {"error": described(error), "typed": isinstance(error, HoldproofError | UnmetError)}
            tell(told("failed", operation.name) | line)
        else:
            tell(told("done", operation.name, learned))
    if twice := [deed for deed, times in Counter(world.deeds).items() if times > 1]:
        raise DoneTwiceError(", ".join(twice))
    return failed


def described(error: BaseException) -> str:
    """An error and where it came from, on one line."""
    frames = [each for each in traceback.extract_tb(error.__traceback__) if "/proof/" not in each.filename]
    where = " < ".join(f"{Path(each.filename).name}:{each.lineno}" for each in reversed(frames[-4:]))
    return f"{type(error).__name__}: {error} ({where})"


# --- what agents decide --------------------------------------------------------------------------------------------


def _decisions(name: str) -> Iterator[Operation]:
    """An agent, a flow by hand, a flow as a block whose steps act outside, one that fails and is undone."""
    agent, flow, order, broken = (f"{name}-{each}" for each in ("agent", "flow", "order", "broken"))
    yield _plain(f"{name} register", lambda s: s.agents.register(agent, version="1.0"), Fact("agent", agent, "ACTIVE"))
    yield _plain(f"{name} start", lambda s: s.flows.start(agent, flow_id=flow), Fact("flow", flow, "CREATED"))
    yield _plain(f"{name} run", lambda s: s.flows.transition(flow, "RUNNING"), Fact("flow", flow, "RUNNING"))
    yield _plain(
        f"{name} record",
        lambda s: s.audit.record(flow, "NOTED", detail={"name": name}),
        Fact("event", f"{flow} NOTED", [{"name": name}]),
    )
    yield _plain(
        f"{name} intend",
        lambda s: s.ledger.append(flow, {"buy": 3}, context_ref="c", evidence_hash="0" * 64),
        Fact("intent", flow, {"buy": 3}),
    )
    yield from _block(f"{name} order", agent, order, fail=False)
    yield from _block(f"{name} broken", agent, broken, fail=True)
    yield _plain(f"{name} cancel", lambda s: s.flows.cancel(flow, reason="over"), Fact("flow", flow, "CANCELLED"))


def _block(name: str, agent: str, flow_id: str, *, fail: bool) -> Iterator[Operation]:
    """A flow as a block, an operation for each of its parts; what was done in vain is undone."""
    end, ways = ("COMPENSATED", ("COMPENSATING", "FAILED")) if fail else ("COMPLETED", ())

    def enter(world: World) -> None:
        block = world.store.flows.run(agent, flow_id=flow_id, lease_s=_LONG_S)
        world.blocks[flow_id] = (block, block.__enter__())

    def act(world: World, what: str) -> str:
        world.deeds.append(f"{flow_id} {what}")
        return what

    def step(what: str) -> Operation:
        def run(world: World) -> None:
            _, flow = world.block(flow_id)
            flow.step(what, partial(act, world), what, compensate=lambda done: act(world, f"un{done}"))

        ways = ["STARTED", None], ["UNKNOWN", None]
        return Operation(f"{name} {what}", run, (Fact("step", f"{flow_id} {what}", ["DONE", what], ways),))

    def leave(world: World) -> list[Fact]:
        """Where it ends depends on which steps were taken; wherever that is, there it stays."""
        block, _ = world.block(flow_id)
        error = ValueError("in vain") if fail else None
        block.__exit__(None if error is None else ValueError, error, None)
        status = world.store.flows.get(flow_id).status
        assert status in {end, *ways}
        return [Fact("flow", flow_id, status)]

    yield Operation(f"{name} enter", enter, (Fact("flow", flow_id, "RUNNING"),))
    yield step("first")
    yield step("second")
    yield Operation(f"{name} leave", leave, (Fact("flow", flow_id, end, ways),))


def _guards(name: str) -> Iterator[Operation]:
    """Locks, one execution a key, questions to people, what an agent keeps from one flow to the next."""
    agent, flow, scarce, key = (f"{name}-{each}" for each in ("guarded", "asking", "scarce", "key"))
    yield _plain(f"{name} admit", lambda s: s.agents.register(agent, version="1.0"), Fact("agent", agent, "ACTIVE"))
    yield _plain(f"{name} begin", lambda s: s.flows.start(agent, flow_id=flow), Fact("flow", flow, "CREATED"))
    yield _plain(f"{name} go on", lambda s: s.flows.transition(flow, "RUNNING"), Fact("flow", flow, "RUNNING"))
    yield _plain(
        f"{name} lock",
        lambda s: s.locks.try_acquire(flow, {scarce: 2, f"{scarce}-too": 1}, capacity=3, ttl_s=None),
        Fact("lock", scarce, [[flow, 2.0]]),
        Fact("lock", f"{scarce}-too", [[flow, 1.0]]),
    )

    def once(world: World) -> None:
        def pay() -> dict[str, int]:
            world.deeds.append(key)
            return {"paid": 5}

        assert world.store.idempotency.once(key, {"pay": 5}, pay, ttl_s=_LONG_S, lease_s=_LEASE_S) == {"paid": 5}

    facts = Fact("once", key, ["DONE", {"paid": 5}], (["RUNNING", None], ["UNKNOWN", None]))
    yield Operation(f"{name} once", once, (facts,))
    yield Operation(f"{name} once more", once, (facts,))
    yield from _questions(name, flow)
    yield _plain(f"{name} keep", lambda s: s.state.put(agent, {"n": 1}), Fact("state", agent, [1, {"n": 1}]))
    yield _plain(
        f"{name} keep on",
        lambda s: s.state.update(agent, {"n": 2}, expected_version=1),
        Fact("state", agent, [2, {"n": 2}]),
    )
    yield _plain(f"{name} unlock", lambda s: s.locks.release(flow, scarce), Fact("lock", scarce, None))


def _questions(name: str, flow: str) -> Iterator[Operation]:
    def answer(world: World) -> None:
        pending = world.store.escalations.list(status="PENDING", agent_id=f"{name}-guarded").items
        if not pending:
            raise UnmetError(flow)
        world.store.escalations.resolve(pending[0].id, "approve", by="Ada")

    yield _plain(
        f"{name} ask",
        lambda s: s.escalations.request(flow, reason="may I?"),
        Fact("question", flow, [["may I?", "PENDING", None]]),
        Fact("flow", flow, "WAITING_ESCALATION"),
    )
    answered = Fact("question", flow, [["may I?", "APPROVED", "OVERRIDE"]]), Fact("flow", flow, "RUNNING")
    yield Operation(f"{name} answer", answer, answered)


# --- what can be proven, and what agents know -------------------------------------------------------------------------


def _evidence(name: str, chance: random.Random) -> Iterator[Operation]:
    """Battles with their signed DBOMs, one of them judged twice, one of a person; a key that follows another."""
    scores = [round(chance.random(), 3) for _ in range(4)]

    def submit(number: int, score: float, **more: Any) -> Operation:
        evaluation = f"{name}-battle-{number}"
        return _plain(
            f"{name} judge {number} {score}",
            lambda s: s.evaluations.submit(
                {"task": number}, evaluation_id=evaluation, score=score, intent=[score, 1.0], **more
            ),
            Fact("battle", f"{evaluation} {score}", ["VALID"]),
        )

    yield submit(1, scores[0])
    yield submit(2, scores[1], subject=f"{name} Lovelace")
    yield _plain(f"{name} rotate", lambda s: s.keys.rotate("judge"))
    yield submit(3, scores[2])
    yield submit(1, scores[3])


def _memory(name: str, chance: random.Random) -> Iterator[Operation]:
    """Objects, several in one act, snapshots, images, one that goes again."""
    first, second, third = (f"{name}-object-{number}" for number in range(3))
    text = chance.randbytes(3000).hex()
    yield _put(f"{name} put", first, {"text": text})
    yield _plain(
        f"{name} apply",
        lambda s: s.objects.apply({each: {"type": "t", "content": each} for each in (second, third)}),
        Fact("object", second, second),
        Fact("object", third, third),
    )
    yield _snapshot(f"{name} first snapshot")
    yield _put(f"{name} put again", first, "shorter")
    yield Operation(f"{name} dump", _dump)
    yield _plain(f"{name} delete", lambda s: s.objects.delete(third), Fact("object", third, None))
    yield _snapshot(f"{name} second snapshot")
    yield Operation(f"{name} dump again", _dump)


def _put(name: str, id: str, content: Any) -> Operation:
    return _plain(name, lambda s: s.objects.put(id, type="t", content=content), Fact("object", id, content))


def _snapshot(name: str) -> Operation:
    return Operation(name, lambda world: [Fact("snapshot", world.store.snapshots.create(name).cid, name)])


def _dump(world: World) -> list[Fact]:
    return [Fact("image", world.store.image.dump().head, True)]


def _threads(name: str, chance: random.Random) -> Iterator[Operation]:
    """Checkpoints of a growing list, what tasks wrote on top of one, and a conversation item by item."""
    thread, elements = f"{name}-thread", [chance.randbytes(400) for _ in range(6)]

    def checkpoint(number: int) -> Operation:
        kept = elements[: 2 * number]
        channels = {"list": EncodedList.of("m", kept), "n": EncodedValue("i", b"%d" % number)}
        digests = {"list": [sha256(each).hexdigest() for each in kept], "n": sha256(b"%d" % number).hexdigest()}
        parent = f"c{number - 1}" if number > 1 else None
        return _plain(
            f"{name} checkpoint {number}",
            lambda s: s.threads.put_checkpoint(thread, channels, checkpoint_id=f"c{number}", parent_id=parent),
            Fact("checkpoint", f"{thread} c{number}", [digests, []]),
        )

    written = [(number, "n", EncodedValue("i", b"%d" % number)) for number in range(2)]
    kept = {"list": [sha256(each).hexdigest() for each in elements[:4]], "n": sha256(b"2").hexdigest()}

    def tasks(world: World) -> None:
        try:
            world.store.threads.get_checkpoint(thread, checkpoint_id="c2")
        except NotFoundError as error:
            # The writes would wait for their checkpoint, and nobody could see them until it comes.
            raise UnmetError("c2") from error
        world.store.threads.put_writes(thread, "c2", "task", written)

    yield checkpoint(1)
    yield checkpoint(2)
    chat = f"{name}-chat"
    yield _plain(
        f"{name} say",
        lambda s: s.transcripts.append(chat, ["hello", {"said": 1}], state={"turns": 1}),
        Fact("transcript", chat, [["hello", {"said": 1}], {"turns": 1}]),
    )
    yield checkpoint(3)
    yield _plain(
        f"{name} say more",
        lambda s: s.transcripts.append(chat, ["more"], state={"turns": 2}, expected=1),
        Fact("transcript", chat, [["hello", {"said": 1}, "more"], {"turns": 2}]),
    )
    yield Operation(f"{name} tasks", tasks, (Fact("checkpoint", f"{thread} c2", [kept, [0, 1]]),))


# --- what services store, and keeping the store whole -----------------------------------------------------------------


def _services(name: str, chance: random.Random) -> Iterator[Operation]:
    """Blobs inside rows and in files, one replaced, one deleted; vectors, telemetry, tables, a session."""
    small, large, larger = chance.randbytes(1000), chance.randbytes(LARGE), chance.randbytes(LARGE + 77_777)
    yield _blob(f"{name} small", f"{name}/small", small)
    yield _blob(f"{name} large", f"{name}/large", large)
    yield _blob(f"{name} gone", f"{name}/gone", large + small)
    yield _blob(f"{name} larger", f"{name}/large", larger)
    yield _plain(f"{name} remove", lambda s: s.blobs.delete(f"{name}/gone"), Fact("blob", f"{name}/gone", None))
    vectors = [[chance.gauss(0, 1) for _ in range(_DIMENSIONS)] for _ in range(3)]
    for number, vector in enumerate(vectors):
        yield _vector(f"{name}-v{number}", vector)
    gone = Fact("vector", f"{name}-v1", None)
    yield _plain(f"{name} forget", lambda s: s.vectors.delete(f"{name}-v1"), gone)
    yield _events(name, "few", 3)
    yield _events(name, "many", 1100)
    yield _plain(
        f"{name} table", lambda s: s.relational.execute("CREATE TABLE IF NOT EXISTS harness (name TEXT, value INTEGER)")
    )
    add = "INSERT INTO harness (name, value) VALUES (:name, :value)"
    rows = [{"name": f"{name}-{number}", "value": number} for number in range(2)]
    facts = [Fact("row", f"{name}-{number}", number) for number in range(2)]
    yield _plain(f"{name} rows", lambda s: s.relational.executemany(add, rows), *facts)
    yield Operation(f"{name} session", _session)


def _blob(name: str, key: str, data: bytes) -> Operation:
    return _plain(name, lambda s: s.blobs.put(key, data), Fact("blob", key, [len(data), sha256(data).hexdigest()]))


def _vector(id: str, vector: Sequence[float]) -> Operation:
    return _plain(f"{id} add", lambda s: s.vectors.add(id, vector, {"of": id}), Fact("vector", id, {"of": id}))


def _events(name: str, span: str, count: int) -> Operation:
    events = [TelemetryEvent("x", "2026-01-01T00:00:00Z", {"n": n}, span_id=f"{name}-{span}") for n in range(count)]
    return _plain(f"{name} {span}", lambda s: s.telemetry.append(events), Fact("span", f"{name}-{span}", count))


def _session(world: World) -> list[Fact]:
    begun = world.store.sessions.start_session("flow", "harness", project_path="/nowhere")
    return [Fact("session", begun.id, ["harness", "active"])]


def _upkeep(name: str, older_than_s: float) -> Iterator[Operation]:
    """What time ends is put away, garbage goes, and the whole is backed up, twice."""
    yield _plain(f"{name} sweep", lambda s: s.sweep.run())
    yield _plain(f"{name} collect", lambda s: s.retention.gc())
    yield _plain(f"{name} swept", lambda s: s.blobs.sweep(older_than_s=older_than_s))
    yield _plain(f"{name} repair", lambda s: s.dbom.repair(full=True))

    def backup(number: int) -> Operation:
        def run(world: World) -> list[Fact]:
            dest = world.outside / f"{name}-backup-{number}"
            if dest.exists():
                shutil.rmtree(dest)
            world.store.backup.create(dest)
            return [Fact("backup", dest.name, True)]

        return Operation(f"{name} backup {number}", run)

    yield backup(1)
    yield _put(f"{name} put last", f"{name}-last", "last")
    yield backup(2)


def _restoring(name: str) -> Iterator[Operation]:
    """Another home is made from the first backup, then takes the state of the second."""

    def restore(number: int) -> Operation:
        fact = Fact("restored", f"{name}-restored {name}-last", ["VALID", number == 2])

        def run(world: World) -> None:
            backup = world.outside / f"{name}-backup-{number}"
            if not backup.exists():
                raise UnmetError(backup.name)
            recovery = world.store.core.paths.keys / "root-recovery.txt"
            sync.restore(backup, world.outside / f"{name}-restored", root_recovery=recovery)

        return Operation(f"{name} restore {number}", run, (fact,))

    yield restore(1)
    yield restore(2)


def _plain(name: str, run: Callable[[sync.Holdproof], Any], *facts: Fact) -> Operation:
    """An operation whose answer tells nothing more."""

    def act(world: World) -> None:
        run(world.store)

    return Operation(name, act, facts)


# --- in a process of its own ------------------------------------------------------------------------------------------


def say(line: dict[str, Any]) -> None:
    """To the pipe, whole and at once: what is acknowledged here is durable before it is said."""
    os.write(1, (json.dumps(line) + "\n").encode())


def heard(lines: Sequence[str], oracle: Oracle) -> None:
    """Tell an oracle what a process said before it was cut off."""
    for line in lines:
        oracle.hear(json.loads(line))
    oracle.cut()


def main() -> None:
    """Run the scenario, round after round under new names, and say what comes of it."""
    parse = argparse.ArgumentParser("python -m proof.scenario")
    parse.add_argument("home", type=Path)
    parse.add_argument("--url")
    parse.add_argument("--name", default="a")
    parse.add_argument("--seed", type=int, default=1)
    parse.add_argument("--rounds", type=int, default=1)
    given = parse.parse_args()
    for number in range(given.rounds):
        for chapter in chapters(given.seed, f"{given.name}{number}", alone=False):
            with sync.open(given.home, given.url) as store:
                play(chapter, store, given.home.parent, say)


if __name__ == "__main__":
    main()
