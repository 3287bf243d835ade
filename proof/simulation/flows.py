"""A flow in the hands of a worker: entered, worked in, left as its block would be left."""

from typing import Any, Final

from holdproof.errors import (
    AgentInactiveError,
    AlreadyExistsError,
    ConflictError,
    FlowEndedError,
    HoldproofError,
    NotFoundError,
)
from holdproof.runtime import calls, runs
from holdproof.runtime.flow_run import FlowRun
from holdproof.runtime.runs import EarlierFlow
from proof.simulation.acts import Scene, play
from proof.simulation.engine import HOUR, Script
from proof.simulation.world import TroubleError

FUNCTION: Final = ("decide", "1.0")


def conduct(scene: Scene, flow_id: str, *, agent: str = "", worker: str = "") -> Script:
    """Take a flow up, or open it for an agent, and do what is planned."""
    how: dict[str, Any] = {"worker": worker or None, "lease_s": _lease_s(scene, flow_id)}
    try:
        if agent:
            call = calls.call_of(*FUNCTION, [flow_id], {})
            run = yield from runs.enter_call(agent, call, flow_id=flow_id, strict=True, **how)
        else:
            run = yield from runs.enter(resume=flow_id, **how)
    except (ConflictError, FlowEndedError, AlreadyExistsError, AgentInactiveError, NotFoundError) as error:
        scene.engine.counts[f"not entered: {error.code}"] += 1
        return
    if isinstance(run, EarlierFlow):
        scene.engine.counts["not entered: there already"] += 1
        return
    scene.world.submitted.add(flow_id)
    yield from within(scene, run)


def within(scene: Scene, run: FlowRun) -> Script:
    """Do what is planned for a flow in hand, and leave it."""
    try:
        yield from play(scene, run)
    except (HoldproofError, TroubleError) as error:
        scene.engine.counts["blocks failed"] += 1
        try:
            yield from runs.abort(run, error)
        except HoldproofError as trouble:
            scene.engine.counts[f"not undone: {trouble.code}"] += 1
        return
    try:
        yield from runs.complete(run)
    except HoldproofError as trouble:
        scene.engine.counts[f"not completed: {trouble.code}"] += 1


def _lease_s(scene: Scene, flow_id: str) -> float:
    """A day's patience where a person is asked, so that waiting does not mean beating all the time."""
    return 8 * HOUR if "ask" in scene.plan(flow_id)[0] else 0.5 * HOUR
