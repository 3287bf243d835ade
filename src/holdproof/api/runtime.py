"""Agents and flows: the resources of the runtime, one declaration per method."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar

from holdproof.api.activity import Activity
from holdproof.api.approvals import Channels, Escalations, Passkeys, People
from holdproof.api.flow_parameters import BULK, FORKING, SEARCHING, STARTING, TRAIL
from holdproof.api.guards import Idempotency, Locks, Retries, Sagas
from holdproof.api.policies import Policies
from holdproof.api.queues import Queues, Schedules, Workers
from holdproof.api.words import (
    AGENT_STATUSES,
    FEEDBACK_SOURCES,
    FLOW_SEARCHED,
    FLOW_STATUSES,
    FLOW_TROUBLES,
    SEVERITIES,
)
from holdproof.executors import (
    OWN_AGENT,
    OWN_FLOW,
    OWN_FLOW_UNASKED,
    AgentRule,
    Executor,
    Reads,
    Resource,
    Runs,
    RunsWith,
    StreamsWith,
    Writes,
    owns,
    with_namespace,
)
from holdproof.lazy import lazy_functions, lazy_module
from holdproof.model.defaults import LEASE_S

if TYPE_CHECKING:
    from holdproof.api import flow_block, flow_functions
    from holdproof.api.flow_block import FlowBlock, OpenFlow
    from holdproof.api.flow_functions import FlowFunction, Registry
    from holdproof.runtime import (
        agent_activity,
        agents,
        audit,
        bulk,
        calls,
        contexts,
        executions,
        exports,
        feedback,
        flow_facets,
        flow_queries,
        flow_search,
        flows,
        forks,
        functions,
        leases,
        ledger,
        messages,
        promises,
        published,
        replays,
        results,
        runs,
        state,
        steps,
        streams,
        timelines,
    )
    from holdproof.upkeep import housekeeping
    from holdproof.upkeep.trail import reading
else:
    # A store that opens no flow needs neither the blocks nor the functions of flows.
    flow_block = lazy_module("holdproof.api.flow_block")
    flow_functions = lazy_module("holdproof.api.flow_functions")
    globals().update(
        lazy_functions(
            "holdproof.runtime",
            "agent_activity agents audit bulk calls contexts executions exports feedback flow_facets flow_queries "
            "flow_search flows forks functions leases ledger messages promises published replays results "
            "runs state steps streams timelines",
        )
    )
    globals().update(lazy_functions("holdproof.upkeep", "housekeeping"))
    globals().update(lazy_functions("holdproof.upkeep.trail", "reading"))

P = ParamSpec("P")
R = TypeVar("R")


class Agents(Resource[Executor]):
    """Agents: who may act, under which contract."""

    group = "Run"

    register = Writes(
        agents.register,
        secret=True,
        example="trader --version 1.2.0 --contract contract.json",
        files=("contract",),
        creates=True,
    )
    # Internal: the server calls it to check a secret; as a method for clients it would be an oracle.
    authenticate = Reads(agents.authenticate, internal=True)
    get = Reads(agents.get, agent=OWN_AGENT, example="trader")
    list = Reads(
        agents.list,
        columns=("agent_id", "status", "agent_version", "priority", "updated_at", "suspension_reason"),
        example="--status SUSPENDED",
        words={"status": AGENT_STATUSES},
    )
    activity = Reads(
        agent_activity.activity,
        parameters={"window_s": "How far back, in seconds; a day by default."},
        example="--window-s 3600",
    )
    set_status = Writes(
        agents.set_status,
        example="trader SUSPENDED --reason 'under review'",
        parameters={"status": "The status it gets."},
        words={"status": AGENT_STATUSES},
    )
    # No `agent` rule: an agent must not set its own budget.
    set_budget = Writes(agents.set_budget, example="trader --per-hour 3")


class Flows(Resource[Executor]):
    """Durable workflow runs, and the leases of their workers."""

    group = "Run"

    start = Writes(
        flows.start,
        agent=owns(agent_id="agent", parent="flow?"),
        tool="decide",
        example="trader --flow-type rebalance",
        parameters=STARTING,
    )
    transition = Writes(
        flows.transition,
        # A flow that waits for an approval is moved on by the answer, never by its agent.
        agent=AgentRule({"flow_id": "flow"}, moves="to"),
        tool="decide",
        example="0198a7c2-9c1e-7a3b-8d4e-5f6071829304 CANCELLED --reason stuck",
        parameters={"to": "The status it gets: RUNNING before the work, COMPLETED or FAILED after it."},
        words={"to": FLOW_STATUSES, "expected_status": FLOW_STATUSES},
    )
    cancel = Writes(flows.cancel, example="0198a7c2-9c1e-7a3b-8d4e-5f6071829304 --reason 'no longer needed'")
    get = Reads(
        flows.get, agent=OWN_FLOW, tool="decide", uri="flows/{flow_id}", example="0198a7c2-9c1e-7a3b-8d4e-5f6071829304"
    )
    tree = Reads(flow_queries.tree, agent=OWN_FLOW, example="0198a7c2-9c1e-7a3b-8d4e-5f6071829304")
    list = Reads(
        flow_search.list,
        agent=OWN_AGENT,
        tool="prove",
        columns=("flow_id", "status", "flow_type", "agent_id", "created_at", "updated_at"),
        example="--status RUNNING --agent-id trader",
        parameters=SEARCHING,
        words={"status": FLOW_SEARCHED, "trouble": FLOW_TROUBLES},
    )
    transitions = Reads(flow_queries.transitions, agent=OWN_FLOW)
    attributes = Reads(flows.attributes, agent=OWN_FLOW, example="0198a7c2-9c1e-7a3b-8d4e-5f6071829304")
    stats = Reads(
        flow_search.stats,
        example="--by hour --since 2026-01-01T00:00:00Z",
        words={"by": ("hour", "day", "status", "flow_type", "agent_id")},
        parameters={"by": "What is counted together: hour, day, status, flow_type or agent_id.", **SEARCHING},
    )
    facets = Reads(
        flow_facets.facets,
        example="--since 2026-01-01T00:00:00Z --agent-id trader",
        parameters=SEARCHING,
        words={"status": FLOW_SEARCHED, "trouble": FLOW_TROUBLES},
    )
    execution = Reads(executions.get, agent=OWN_FLOW, example="0198a7c2-9c1e-7a3b-8d4e-5f6071829304")
    cancel_many = Runs(bulk.cancel_many, example="--agent-id trader --reason 'no longer needed' --dry-run", **BULK)
    retry_many = Runs(bulk.retry_many, example="--flow-type buy --since 2026-01-01T00:00:00Z --dry-run", **BULK)
    delete_many = Runs(bulk.delete_many, example="--until 2026-01-01T00:00:00Z --dry-run", **BULK)
    inputs = Reads(calls.get, agent=OWN_FLOW, example="0198a7c2-9c1e-7a3b-8d4e-5f6071829304")
    # Local: what it returns is the function's own value, of whatever class; `outcome` is the same as JSON.
    result = Runs(results.wait, local=True)
    outcome = Runs(results.wait_ended, agent=OWN_FLOW, example="0198a7c2-9c1e-7a3b-8d4e-5f6071829304 --timeout-s 60")
    timeline = Reads(
        timelines.timeline,
        agent=OWN_FLOW,
        tool="prove",
        uri="flows/{flow_id}/timeline{?cursor,limit}",
        draw="timeline",
        example="0198a7c2-9c1e-7a3b-8d4e-5f6071829304",
    )
    pace = Reads(flow_queries.pace)
    orphans = Reads(leases.orphans, columns=("flow_id", "worker", "expires_at", "name", "version"))
    lease = Writes(leases.lease, agent=OWN_FLOW)
    heartbeat = Writes(
        leases.heartbeat,
        agent=OWN_FLOW,
        parameters={"waits_for": "What the flow waits for meanwhile, as the console shows it."},
    )
    release = Writes(leases.release, agent=OWN_FLOW)
    recover = RunsWith(functions.recover, example="--register my_agents:register")
    # Local: it runs the functions that are registered in this process.
    replay = RunsWith(replays.replay, local=True)
    replay_all = RunsWith(replays.replay_all, local=True)
    fork = Writes(
        forks.fork,
        example="0198a7c2-9c1e-7a3b-8d4e-5f6071829304 --at pay --effects simulate",
        parameters=FORKING,
    )
    rewind = Writes(
        forks.rewind,
        example="0198a7c2-9c1e-7a3b-8d4e-5f6071829304 --at pay --effects real",
        parameters=FORKING,
    )
    enqueue = Writes(
        functions.enqueue_call,
        agent=OWN_AGENT,
        # The agent is taken from the caller's credentials: it decides which functions run the call.
        from_caller=("called_by",),
        parameters={"name": "The function's name.", "version": "The function's version."},
        example="trader refund --args '[\"o-17\", 90000]' --queue payments",
        creates=True,
    )
    steps = Reads(
        steps.list,
        agent=OWN_FLOW,
        columns=("name", "n", "state", "arguments", "result", "started_at", "finished_at", "compensates", "error"),
        example="0198a7c2-9c1e-7a3b-8d4e-5f6071829304 --json",
    )
    signal = Writes(
        messages.signal,
        agent=OWN_FLOW,
        tool="ask",
        example="0198a7c2-9c1e-7a3b-8d4e-5f6071829304 payments '{\"paid\": true}' --idempotency-key o-17",
    )
    messages = Reads(
        messages.list,
        agent=OWN_FLOW,
        columns=("n", "topic", "sent_at", "received_at", "sent_by", "recorded"),
        example="0198a7c2-9c1e-7a3b-8d4e-5f6071829304 --topic payments",
    )
    # Before `published`, which hides the module of that name in this class.
    list_published = Reads(
        published.list,
        agent=OWN_FLOW,
        columns=("key", "version", "published_at", "recorded"),
        example="0198a7c2-9c1e-7a3b-8d4e-5f6071829304",
    )
    published = Runs(published.get, reads=True, agent=OWN_FLOW, example="0198a7c2-9c1e-7a3b-8d4e-5f6071829304 progress")
    stream = StreamsWith(
        streams.read,
        reads=True,
        agent=OWN_FLOW,
        draw="lines",
        parameters={"offset": "The offset of the first item."},
        example="0198a7c2-9c1e-7a3b-8d4e-5f6071829304 tokens",
    )
    export = StreamsWith(
        exports.flows, reads=True, exports=True, alias="export flows", draw="lines", example="--out flows.jsonl"
    )

    def __init__(self, executor: Executor, registry: "Registry") -> None:
        super().__init__(executor)
        self._registry = registry

    @property
    def held(self) -> "Registry":
        """The functions that are registered."""
        return self._registry

    def run(self, agent_id: str | None = None, *, resume: str | None = None, **opening: Any) -> "FlowBlock[Executor]":
        """Open a flow of an agent as a block, or resume one; `opening` is what `flows.start` takes, and `lease_s`."""
        # The work is only prepared here: the flow is opened when the block is entered.
        work = runs.enter(agent_id, resume=resume, **with_namespace(self._executor, opening))
        return flow_block.FlowBlock(self._executor, work)


class Promises(Resource[Executor]):
    """Answers that flows wait for, given by those who have a promise's token."""

    group = "Run"

    # Public: the token is the proof, and those who have it have no account here.
    resolve = Writes(promises.resolve, public=True, example="hpp_GW1mqTqXz '{\"paid\": true}'")
    reject = Writes(promises.reject, public=True, example="hpp_GW1mqTqXz 'card declined'")
    list = Reads(
        promises.list,
        agent=OWN_FLOW,
        columns=("name", "n", "state", "created_at", "settled_at", "promise_id"),
        example="0198a7c2-9c1e-7a3b-8d4e-5f6071829304",
    )


class Contexts(Resource[Executor]):
    """The inputs that flows decide with."""

    group = "Run"

    put = Writes(
        contexts.put,
        agent=OWN_FLOW_UNASKED,
        tool="decide",
        parameters={"data": "What the flow decides with, as a JSON object."},
    )
    update = Writes(contexts.update, agent=OWN_FLOW_UNASKED)
    get = Reads(
        contexts.get,
        agent=OWN_FLOW,
        tool="decide",
        uri="flows/{flow_id}/context",
        example="0198a7c2-9c1e-7a3b-8d4e-5f6071829304",
    )
    versions = Reads(
        contexts.versions, columns=("ver", "at", "index", "commitment"), example="0198a7c2-9c1e-7a3b-8d4e-5f6071829304"
    )
    take = Writes(contexts.take, agent=OWN_FLOW)


class StateResource(Resource[Executor]):
    """What agents keep from one flow to the next."""

    group = "Run"

    put = Writes(state.put, agent=OWN_AGENT)
    update = Writes(state.update, agent=OWN_AGENT)
    get = Reads(state.get, agent=OWN_AGENT, example="trader")
    versions = Reads(state.versions, columns=("ver", "at", "index", "commitment"), example="trader")


class FeedbackResource(Resource[Executor]):
    """How flows turned out."""

    group = "Inspect"

    record = Writes(
        feedback.record,
        tool="ask",
        parameters={"status": "How it turned out, in a word.", "source": "Who says so."},
        words={"source": FEEDBACK_SOURCES},
    )
    list = Reads(
        feedback.list,
        agent=OWN_AGENT,
        tool="ask",
        columns=("id", "created_at", "status", "score", "source", "flow_id", "reason"),
        example="--agent-id trader --since 2026-01-01T00:00:00Z",
    )


class Audit(Resource[Executor]):
    """What happened: one timeline of everything, and the events that flows record."""

    group = "Inspect"

    trail = Reads(
        reading.trail,
        tool="prove",
        uri="trail{?flow_id,agent_id,since,until,cursor,limit}",
        columns=("at", "kind", "what", "agent_id", "flow_id", "person", "note"),
        parameters=TRAIL,
        example="--since 1h --agent-id trader",
    )
    record = Writes(
        audit.record,
        agent=OWN_FLOW_UNASKED,
        tool="decide",
        parameters={"event_type": "What happened, in a word or two.", "severity": "How serious it is."},
        words={"severity": SEVERITIES},
    )
    get = Reads(audit.get, example="4711")
    list = Reads(
        audit.list,
        agent=OWN_FLOW,
        columns=("id", "created_at", "severity", "event_type", "flow_id", "step_id", "state"),
        example="--severity ERROR --since 2026-01-01T00:00:00Z",
        words={"severity": SEVERITIES},
    )
    export = StreamsWith(
        exports.events, reads=True, exports=True, alias="export audit", draw="lines", example="--out audit.jsonl"
    )


class Ledger(Resource[Executor]):
    """The one verified intent of each flow."""

    group = "Run"

    append = Writes(ledger.append, agent=OWN_FLOW_UNASKED, tool="decide")
    get = Reads(ledger.get, agent=OWN_FLOW)
    list = Reads(ledger.list, agent=OWN_AGENT)


class Sweep(Resource[Executor]):
    """Removal of what has expired."""

    group = "Operate"

    run = Runs(housekeeping.sweep)


class RuntimeResources(Generic[Executor]):
    """The resources of the runtime, of a client."""

    def __init__(self, executor: Executor) -> None:
        self._executor: Executor = executor
        # Shared by `flow`, which registers functions, and `flows.recover`, which runs them.
        self._registry: Registry = {}
        self.agents = Agents(executor)
        self.flows = Flows(executor, self._registry)
        self.promises = Promises(executor)
        self.contexts = Contexts(executor)
        self.state = StateResource(executor)
        self.feedback = FeedbackResource(executor)
        self.audit = Audit(executor)
        self.activity = Activity(executor)
        self.ledger = Ledger(executor)
        self.locks = Locks(executor)
        self.idempotency = Idempotency(executor)
        self.retries = Retries(executor)
        self.sagas = Sagas(executor)
        self.escalations = Escalations(executor)
        self.policies = Policies(executor)
        self.people = People(executor)
        self.channels = Channels(executor)
        self.passkeys = Passkeys(executor)
        self.schedules = Schedules(executor)
        self.sweep = Sweep(executor)
        self.queues = Queues(executor)
        self.workers = Workers(executor)

    def flow(
        self,
        *,
        name: str | None = None,
        version: str = "1.0",
        agent: str | None = None,
        compatible: tuple[str, ...] = (),
        lease_s: float = LEASE_S,
        **opening: Any,
    ) -> "Callable[[Callable[Concatenate[OpenFlow[Executor], P], R]], FlowFunction[P, R]]":
        """Register a function as a flow, so that `flows.recover` can run it again on any worker.

        Its first parameter is the open flow; the others, and what it returns, are recorded: JSON, dataclasses, pydantic
        models, dates and the like. Calling it opens a flow of the agent, which is registered if it is new, and returns
        what the function returns. `name` is the function's unless it is given; `compatible` names further versions
        whose flows this code continues; `opening` is what `flows.start` takes.
        """
        return lambda fn: flow_functions.register(
            self._registry,
            self._executor,
            fn,
            name=fn.__name__ if name is None else name,
            version=version,
            lease_s=lease_s,
            opening={"agent_id": agent, **opening},
            compatible=tuple(compatible),
        )
