"""Approvals: escalations, and the people who answer them; one declaration per method."""

from typing import TYPE_CHECKING, Any, Final

from holdproof.api.words import ESCALATION_STATUSES, IMPACTS, ON_DEADLINE
from holdproof.executors import OWN_AGENT, OWN_ESCALATION, AgentRule, Executor, Reads, Resource, Runs, RunsWith, Writes
from holdproof.lazy import lazy_functions

if TYPE_CHECKING:
    from holdproof.access import passkeys
    from holdproof.runtime import budgets, escalation_messages, escalations, inbox, people
    from holdproof.upkeep import outbox
else:
    globals().update(lazy_functions("holdproof.access", "passkeys"))
    globals().update(lazy_functions("holdproof.runtime", "budgets escalation_messages escalations inbox people"))
    globals().update(lazy_functions("holdproof.upkeep", "outbox"))

# DIR's codes stay in JSON and in the column; people read the outcome, which is a property.
_OUTCOME: Final[dict[str, Any]] = {"draw": "escalation", "columns": ("outcome",)}


class Escalations(Resource[Executor]):
    """Requests for human decisions."""

    group = "Approve"

    request = Writes(
        escalations.request,
        # An agent must not let a request approve itself at the deadline.
        agent=AgentRule({"flow_id": "flow"}, refused={"on_deadline": "approve"}),
        tool="ask",
        parameters={"reason": "Why a person has to decide: what they read first."},
        words={"impact": IMPACTS, "on_deadline": ON_DEADLINE},
        **_OUTCOME,
    )
    resolve = Writes(
        escalations.resolve,
        example="17 approve --by ann --comment 'within the limit'",
        files=("proposal",),
        parameters={"shown_hash": "The hash of what was read, as `escalations approvals` gives it."},
        **_OUTCOME,
    )
    expire = Writes(escalations.expire, **_OUTCOME)
    get = Reads(inbox.get, agent=OWN_ESCALATION, tool="ask", uri="escalations/{id}", example="17", **_OUTCOME)
    list = Reads(
        inbox.list,
        agent=OWN_AGENT,
        tool="ask",
        columns=("id", "outcome", "deadline", "agent_id", "reason", "impact", "flow_id", "created_at", "on_deadline"),
        example="--status PENDING --order due",
        parameters={
            "flow_type": "Only of flows of this type.",
            "impact": "Only of this impact: HIGH_IMPACT or LOW_IMPACT.",
            "approvers": "Only where one of these lines says who has to answer; the empty one is for anybody.",
            "answered_by": "Only what this person answered, alone or with others.",
            "due_before": "Only what has a deadline up to this time.",
        },
        words={"status": (*ESCALATION_STATUSES, "RESOLVED"), "order": ("newest", "due"), "impact": IMPACTS},
    )
    count = Reads(inbox.count, words={"status": ESCALATION_STATUSES})
    facets = Reads(
        inbox.facets,
        columns=("agent_id", "flow_type", "impact", "approvers", "count", "due"),
        parameters={"due_within_s": "What counts as due soon, in seconds from now."},
        example="--due-within-s 900",
    )
    budget = Reads(budgets.get, example="trader")
    # Clients of the Model Context Protocol give up after a minute; the tool answers before that.
    wait = Runs(inbox.wait, agent=OWN_ESCALATION, tool="ask", tool_defaults={"timeout_s": 50.0}, task=True, **_OUTCOME)
    approvals = Reads(escalation_messages.status, agent=OWN_ESCALATION, example="17")
    ask = Writes(
        escalation_messages.question,
        parameters={"text": "What the agent is asked; its flow keeps waiting."},
        example="17 'Which customer is it?' --by ann",
    )
    reply = Writes(
        escalation_messages.reply,
        agent=OWN_ESCALATION,
        tool="ask",
        parameters={"text": "What the person who asked is told."},
        example="17 'The one in Turin.'",
    )
    wait_question = Runs(
        escalation_messages.wait_question, agent=OWN_ESCALATION, tool="ask", tool_defaults={"timeout_s": 50.0}
    )
    # Changes whose answer counts: not for callers that have only some rights.
    reassign = Writes(
        escalation_messages.reassign,
        delegates=True,
        example="17 '2 of board' --by ann --comment 'over their limit'",
        **_OUTCOME,
    )


class People(Resource[Executor]):
    """People who approve: their groups, and who answers in whose place."""

    group = "Approve"

    put = Writes(
        people.put,
        delegates=True,
        creates=True,
        parameters={"name": "The person's name: that of their token or login.", "groups": "The groups they belong to."},
        example="ann --groups finance --email ann@example.org",
    )
    get = Reads(people.get, example="ann")
    list = Reads(people.list, columns=("name", "groups", "email", "updated_at", "updated_by", "removed_at"))
    remove = Writes(people.remove, delegates=True, example="ann --by bob")
    # At the server people give away their own seat only.
    delegate = Writes(
        people.delegate,
        from_caller=("name",),
        parameters={
            "name": "Whose answers somebody else may give.",
            "to": "Who answers in their place.",
            "until": "When it ends.",
            "until_s": "When it ends, in seconds from now.",
        },
        example="ann bob --until-s 86400",
    )
    end_delegation = Writes(people.end_delegation, example="3")
    delegations = Reads(
        people.delegations, columns=("id", "from_person", "to_person", "until", "created_by", "ended_at")
    )


class Channels(Resource[Executor]):
    """How people are told what waits for them: webhook, mail, Slack, Teams, as `channels.yaml` says."""

    group = "Approve"

    list = RunsWith(outbox.list_channels, reads=True, columns=("name", "kind", "events", "problem"))
    test = RunsWith(outbox.test, grantable=False, parameters={"name": "The channel's name."}, example="ops")
    deliver = RunsWith(outbox.deliver, grantable=False)
    notifications = Reads(
        outbox.notifications,
        columns=("id", "event", "about", "channels", "outcome", "created_at", "ended_at"),
        parameters={"outcome": "Only those: delivered, or undelivered where nobody could be told."},
        example="--outcome undelivered",
    )


class Passkeys(Resource[Executor]):
    """Passkeys of people, and answers that are signed with one."""

    group = "Approve"

    # At the server people register a key for themselves only.
    register_options = Writes(
        passkeys.register_options,
        from_caller=("name",),
        parameters={"name": "Whose passkey it is.", "origin": "Where they will sign: scheme and host of the console."},
        example="ann --origin https://holdproof.example.org",
    )
    register = Writes(
        passkeys.register,
        # Nobody registers a passkey that opens more than they may do themselves.
        from_caller=("login",),
        parameters={
            "credential": "What the browser created, as JSON.",
            "login": "As what it opens the console: role, ns, token_id; the server fills it in.",
        },
    )
    revoke = Writes(passkeys.revoke, parameters={"credential_id": "The passkey's id."}, example="q83vEjRW --by ann")
    list = Reads(passkeys.list, columns=("credential_id", "person", "origin", "created_at", "revoked_at"))
    challenge = Writes(passkeys.challenge, example="17 approve --by ann")
    answer = Writes(passkeys.answer, parameters={"assertion": "What the browser signed, as JSON."}, **_OUTCOME)
