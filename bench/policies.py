"""What a decision of policies costs, beside bare cedarpy.

`bare` asks cedarpy with policies and entities that were parsed before: the floor. `decide` is all that stands between
an act and its decision: the active policies read and compared with the log, the agent too, then Cedar.
"""

import tempfile
from collections.abc import Callable
from typing import Any

import cedarpy

from bench.goals import Goal
from bench.measurement import Contestant, Meter, Options, Race, Result, run_race
from holdproof import sync
from holdproof.db import Tx
from holdproof.policy.engine import CompiledPolicies
from holdproof.policy.requests import PolicyRequest, record_of
from holdproof.runtime import policy_gate

TEXT = """
@id("all") permit(principal, action, resource);
@id("limit") forbid(principal, action == Action::"step", resource == Step::"pay") when { context.cents > 100000 };
@id("region") forbid(principal, action, resource) when { context.region == "moon" };
"""
INPUTS = {"cents": 900, "region": "eu", "order": "o-17"}
BARE = "bare cedarpy @1"
DECIDING = "decide about a step"
_AT_A_TIME = 20


def run(options: Options) -> list[Result]:
    """The race; it is the same on every database but for two reads."""
    if not options.wants("sqlite"):
        return []
    return run_race(Race(DECIDING, [_bare(), _compiled(), _decide()], (BARE,)), options)


def goals(options: Options) -> list[Goal]:
    """What is aimed at."""
    del options
    return [Goal("a decision: 0.25 x bare cedarpy", DECIDING, "decide @1", BARE, 0.25, aim=True)]


def _loop(name: str, act: Callable[[], Any]) -> Contestant:
    def sample(meter: Meter) -> None:
        meter.start()
        while True:
            act()
            if not meter.done():
                return

    return Contestant(name, 1, sample)


def _request() -> PolicyRequest:
    return PolicyRequest("buyer", "step", "pay", context=record_of(INPUTS), within="refund")


def _bare() -> Contestant:
    request = {**_request().cedar(), "context": INPUTS}
    policies = cedarpy.PolicySet.from_str(TEXT)
    entities = cedarpy.Entities.from_json_str(_request().entities())
    return _loop("bare cedarpy", lambda: cedarpy.is_authorized(request, policies, entities))


def _compiled() -> Contestant:
    compiled = CompiledPolicies([("payments", TEXT)])
    return _loop("compiled", lambda: compiled.decide(_request()))


def _decide() -> Contestant:
    """In a transaction that decides many times: what a commit costs is measured elsewhere."""

    def many(tx: Tx) -> None:
        for _ in range(_AT_A_TIME):
            policy_gate.decide(tx, _request(), ns="main")

    def sample(meter: Meter) -> None:
        with tempfile.TemporaryDirectory(prefix="bench-") as home, sync.open(home) as store:
            store.agents.register("buyer", version="1", contract={"limit": 5})
            store.policies.create("payments", TEXT)
            store.policies.activate("payments")
            store.write(many)
            meter.start()
            while True:
                store.read_on_reader(many)
                if not meter.done(_AT_A_TIME):
                    return

    return Contestant("decide", 1, sample)
