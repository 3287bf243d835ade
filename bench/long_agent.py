"""The long agent: 100 model calls, each over the whole of a conversation that grows by a tool's output every time.

The shape is that of temporalio/sdk-python#1890: a conversation of about 209,000 tokens, 5 KB of tool output between two
calls. There every call's input is stored whole, `N * B + G * N * (N - 1) / 2` bytes for N calls over B bytes that grow
by G: the server ended the workflow at 50 MB, after 53 of the 100. What differs from call to call is two messages, so a
record of all requests needs little more than the conversation itself. Not every engine records the arguments of steps
(DBOS does not); `requests returned` is the same agent with model calls that return their request beside the answer, so
that the requests are on record in every engine. Only those rows compare like with like, and the goal is set for them.
"""

import asyncio
import os
import random
import time
from collections.abc import Sequence
from typing import Any, Final

from bench.engines import Engine, Step, Workflow
from bench.fresh_stores import stored_bytes
from bench.measurement import Options, Result, compare_with, progress, rounds

CALLS: Final = int(os.environ.get("HOLDPROOF_BENCH_MODEL_CALLS", "100"))
TOKENS: Final = 209_000
TOOL_BYTES: Final = 5_000
_BYTES_A_TOKEN: Final = 3.9  # as the sizes of that report come out
_MESSAGE_BYTES: Final = (400, 1_600, 5_000)  # a person's, a model's, a tool's: most are too small to be shared alone
_REPLY_BYTES: Final = 300
_MOST_BYTES: Final = 5_000_000
_LETTERS: Final = "etaoinshrdlu cmfwypvbgk etaoin  "  # compresses about as prose does

Message = dict[str, str]


def text(chance: random.Random, size: int) -> str:
    """So many characters, no two texts alike."""
    return "".join(chance.choices(_LETTERS, k=size))


def conversation(seed: int = 1) -> list[Message]:
    """The messages before the first call: about 209,000 tokens."""
    chance = random.Random(seed)
    messages: list[Message] = []
    size = 0
    while size < TOKENS * _BYTES_A_TOKEN:
        role = ("user", "assistant", "tool")[len(messages) % 3]
        content = text(chance, _MESSAGE_BYTES[len(messages) % 3])
        messages.append({"role": role, "content": content})
        size += len(content)
    return messages


async def model(messages: list[Message]) -> Message:
    """One model call; the answer asks for a tool."""
    return {"role": "assistant", "content": text(random.Random(len(messages)), _REPLY_BYTES)}


async def model_with_request(messages: list[Message]) -> dict[str, Any]:
    """The same, and what was asked of it."""
    return {"request": messages, "reply": await model(messages)}


async def tool(number: int) -> Message:
    """One tool call."""
    return {"role": "tool", "content": text(random.Random(-number), TOOL_BYTES)}


async def agent(step: Step, messages: list[Message]) -> int:
    """One turn of the agent; how long the conversation is in the end."""
    for number in range(CALLS):
        reply = await step(model, messages)
        output = await step(tool, number)
        messages = [*messages, reply, output]
    return len(messages)


async def agent_with_requests(step: Step, messages: list[Message]) -> int:
    """The same, where the requests are on record as part of the results."""
    for number in range(CALLS):
        answer = await step(model_with_request, messages)
        output = await step(tool, number)
        messages = [*messages, answer["reply"], output]
    return len(messages)


# --- the races ---------------------------------------------------------------------------------------------------

ALLOWED: Final = "5 MB"
RETURNED: Final = ", requests returned"
WHOLE: Final = "every request whole, computed"


def bytes_race(database: str) -> str:
    """The race for bytes; results are agents in a gigabyte, so that more is better."""
    return f"long agents in a gigabyte on {database}"


def calls_race(database: str) -> str:
    """The race for model calls a second."""
    return f"model calls of a long agent on {database}"


def run(database: str, engines: Sequence[Engine], options: Options) -> list[Result]:
    """Each engine runs the agent once a round, in a database of its own."""
    space, speed = bytes_race(database), calls_race(database)
    if options.race not in space and options.race not in speed:
        return []
    rates: dict[tuple[str, str], list[float]] = {}
    for turn in rounds(options):
        for name, engine, workflow in _contestants(engines):
            progress(f"{space}, round {turn + 1} of {options.repeats}: {name}")
            stored, seconds = asyncio.run(_one(engine, workflow))
            rates.setdefault((space, name), []).append(1e9 / stored)
            rates.setdefault((speed, name), []).append(CALLS / seconds)
        rates.setdefault((space, WHOLE), []).append(1e9 / _whole_bytes())
        rates.setdefault((space, ALLOWED), []).append(1e9 / _MOST_BYTES)
    progress("")
    results = [Result(race, name, 1, tuple(values)) for (race, name), values in rates.items()]
    peers = ("dbos @1", f"dbos{RETURNED} @1")
    references = {space: (f"{ALLOWED} @1", *peers), speed: peers}
    compared = [each for race, labels in references.items() for each in compare_with(results, race, labels)]
    return options.journal.add(compared)


def _contestants(engines: Sequence[Engine]) -> list[tuple[str, Engine, Workflow]]:
    plain: list[tuple[str, Engine, Workflow]] = [(engine.name, engine, agent) for engine in engines]
    return [*plain, *((f"{engine.name}{RETURNED}", engine, agent_with_requests) for engine in engines)]


async def _one(engine: Engine, workflow: Workflow) -> tuple[int, float]:
    """How many bytes one agent adds to an empty store, and the seconds that it takes."""
    messages = conversation()
    with engine.place() as where:
        async with engine.open(where, workflow):
            pass
        empty = stored_bytes(where)
        async with engine.open(where, workflow) as session:
            begin = time.perf_counter()
            length = await session.call(messages)
            seconds = time.perf_counter() - begin
        assert length == len(messages) + 2 * CALLS, f"{engine.name} has lost a message"
        return max(1, stored_bytes(where) - empty), seconds


def _whole_bytes() -> float:
    """What all requests take, each stored whole."""
    base = sum(len(message["content"]) for message in conversation())
    growth = TOOL_BYTES + _REPLY_BYTES
    return CALLS * base + growth * CALLS * (CALLS - 1) / 2
