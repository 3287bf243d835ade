"""Run a framework's scripted agent undisturbed, and then with a process that dies at each given call; compare them.

    python -m tests.faults.agent_loop_killing pydantic_ai /tmp/somewhere 1,50,100

The killed run is one run: at every given call a process dies before the call had its effect, and the next one after it.
The children of this process are forked with everything imported and nothing open.
"""

import asyncio
import importlib
import json
import os
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import holdproof
from harness.agent_loops.world import CALLS, PROMPT, World, result_of
from holdproof.errors import NotFoundError
from holdproof.model.coordination import Escalation

FLOW = "today"
LEASE_S = 0.5


async def run(framework: str, folder: Path, world: World) -> dict[str, Any]:
    """Run the agent to its end, or what is left of it; people answer what is in doubt meanwhile."""
    module = importlib.import_module(f"harness.agent_loops.of_{framework}")
    async with holdproof.open(folder / "store") as store:
        cut_off = await _cut_off(store, world)
        _note(folder, "cut off", cut_off)
        agent = module.agent(world, store, lease_s=LEASE_S)
        running = asyncio.ensure_future(agent.run(PROMPT, flow_id=FLOW))
        # A run that was not cut off has no questions: nobody need look for them.
        while cut_off and not running.done():
            for escalation in (await store.escalations.list(status="PENDING")).items:
                await _answer(store, escalation, world)
                _note(folder, "asked", escalation.reason)
            await asyncio.wait({running}, timeout=0.1)
        ended = await running
        steps = await store.flows.steps(FLOW)
        verdict = str((await store.verify.run(full=True, lock=False)).verdict)
    return {
        "output": ended.output,
        "steps": sorted((step.name, step.n, step.state, json.dumps(step.arguments)) for step in steps),
        # Tasks that run at once reach their steps in any order.
        "order": None if getattr(module, "AT_ONCE", False) else [step.name for step in steps],
        "verdict": verdict,
    }


def _note(folder: Path, what: str, value: Any) -> None:
    with (folder / "notes").open("a") as lines:
        lines.write(json.dumps([what, value]) + "\n")


async def _cut_off(store: Any, world: World) -> list[str]:
    """Return the calls that were begun and never finished."""
    try:
        steps = await store.flows.steps(FLOW)
    except NotFoundError:
        return []
    calls = [(step.name, step.arguments["kwargs"]) for step in steps if step.state in ("STARTED", "UNKNOWN")]
    # The step of a model call does not say which turn it is; one that had its effect is the last that had any.
    last = [call for call in world.lines()[-1:] if call.startswith("model")]
    return [f"{kw['tool']} {kw['arguments']['turn']}" if "tool" in kw else (last or [name])[0] for name, kw in calls]


async def _answer(store: Any, escalation: Escalation, world: World) -> None:
    """Look into the world whether a step in doubt happened, as a person would."""
    call = escalation.context["arguments"]["kwargs"]
    tool, turn = call["tool"], call["arguments"]["turn"]
    if world.happened(f"{tool} {turn}"):
        await store.escalations.resolve(escalation.id, "happened", by="ann", result=result_of(tool, turn))
    else:
        await store.escalations.resolve(escalation.id, "did_not_happen", by="ann")


def forked(work: Callable[[], Coroutine[Any, Any, dict[str, Any]]], report: Path) -> int:
    """Do work in a child, which writes what it gives to a file; return how the child ended, as `waitpid` says it."""
    child = os.fork()
    if child == 0:
        # Whatever happens, the child ends here: it must not go on as a second parent.
        try:
            report.write_text(json.dumps(asyncio.run(work())))
            os._exit(0)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    return os.waitpid(child, 0)[1]


def killed(framework: str, folder: Path, targets: list[str]) -> dict[str, Any]:
    """Kill a run at each of the calls, before and after its effect, and let another process finish it."""
    folder.mkdir(parents=True)
    effects = folder / "world"
    report = folder / "report.json"
    for target in targets:
        for when in ("before", "after"):
            status = forked(partial(run, framework, folder, World(effects, target, when)), report)
            died = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
            assert died, f"{target}, {when}: the run was not killed ({status})"
    assert forked(partial(run, framework, folder, World(effects)), report) == 0, "the run did not go on"
    outcome: dict[str, Any] = json.loads(report.read_text())
    notes = [json.loads(line) for line in (folder / "notes").read_text().splitlines()]
    return {**outcome, "calls": World(effects).lines(), "notes": notes}


def problems(outcome: dict[str, Any], undisturbed: dict[str, Any]) -> list[str]:
    """What is wrong with a run that was killed; nothing, where it cannot be told from one that was not."""
    wrong = [f"{key} differ" for key in ("output", "steps", "order", "verdict") if outcome[key] != undisturbed[key]]
    if missing := set(CALLS) ^ set(outcome["calls"]):
        wrong.append(f"never called, or never asked for: {sorted(missing)}")
    cut_off = Counter(call for what, calls in outcome["notes"] if what == "cut off" for call in calls)
    for call, times in Counter(outcome["calls"]).items():
        # What was cut off is repeated where that does no harm.
        harmless = 0 if call.startswith("charge") else cut_off[call]
        if times > 1 + harmless:
            wrong.append(f"{call}: {times} times, cut off {cut_off[call]} times")
    in_doubt = [call for call in cut_off if call.startswith("charge")]
    asked = sum(what == "asked" for what, _ in outcome["notes"])
    # A process that dies again before the answer leaves the same question to the next, so cut off is not yet asked.
    if not len(in_doubt) <= asked <= sum(cut_off[call] for call in in_doubt):
        wrong.append(f"{len(in_doubt)} calls in doubt, {asked} questions")
    return wrong


def main(framework: str, folder: Path, targets: list[str]) -> dict[str, Any]:
    # Before the first fork, so that a child costs milliseconds.
    importlib.import_module(f"harness.agent_loops.of_{framework}")
    plain = folder / "undisturbed"
    plain.mkdir(parents=True)
    report = plain / "report.json"
    world = World(plain / "world")
    assert forked(partial(run, framework, plain, world), report) == 0, "the undisturbed run failed"
    undisturbed: dict[str, Any] = json.loads(report.read_text())
    assert sorted(world.lines()) == sorted(CALLS), "the undisturbed run made other calls"
    assert undisturbed["verdict"] == "VALID"
    outcome = killed(framework, folder / "killed", targets)
    return {
        "framework": framework,
        "kills": 2 * len(targets),
        "output": outcome["output"],
        "repeated": len(outcome["calls"]) - len(CALLS),
        "asked": sum(what == "asked" for what, _ in outcome["notes"]),
        "wrong": problems(outcome, undisturbed),
    }


if __name__ == "__main__":
    _, name, home, chosen = sys.argv
    places = [*range(1, len(CALLS) + 1)] if chosen == "all" else [int(each) for each in chosen.split(",")]
    print(json.dumps(main(name, Path(home), [CALLS[place - 1] for place in places])))
