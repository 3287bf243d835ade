"""Errors of the runtime: agents, flows, locks, idempotency, escalations, sagas, schedules."""

from holdproof.errors.root import ConflictError, HoldproofError, InvalidInputError, NotFoundError

# --- agents and flows --------------------------------------------------------------------------------------------


class VersionMismatchError(HoldproofError):
    """VERSION_MISMATCH: run a version of the agent inside the supported range; nothing was stored."""

    code = "agent.version_mismatch"
    status = 409
    exit_code = 4


class AuthenticationError(HoldproofError):
    """Agent and token do not belong together; register again for a new token."""

    code = "agent.unauthenticated"
    status = 401
    exit_code = 5


class AgentInactiveError(HoldproofError):
    """The agent is not active: ask an operator to set its status to ACTIVE."""

    code = "agent.inactive"
    status = 403
    exit_code = 5


class IllegalTransitionError(ConflictError):
    """The flow cannot change to that status; read its status and choose a legal next one. Nothing was recorded."""

    code = "flow.illegal_transition"


class FlowEndedError(ConflictError):
    """The flow has ended and accepts no more work; start another one."""

    code = "flow.ended"


class FlowFailedError(ConflictError):
    """The flow failed; its steps and its error are shown by `holdproof flows timeline FLOW_ID`."""

    code = "flow.failed"


class NonDeterminismError(ConflictError):
    """The code does another thing than was recorded: run the version that started the flow, or use `flow.patched`."""

    code = "flow.nondeterministic"


class EffectDeniedError(ConflictError):
    """Fork with effects `simulate` or `real`, or give the step's result in `answers`; nothing was done."""

    code = "flow.effect_denied"


class ReplayWriteError(ConflictError):
    """A replay writes nothing: move what writes into a step, whose result is recorded."""

    code = "flow.replay_write"


class UnrecordableError(InvalidInputError):
    """Pass dataclasses, pydantic models, JSON, dates, Decimal, UUID, Path, Enum, bytes, sets or tuples."""

    code = "value.unrecordable"


class StepTimeoutError(HoldproofError):
    """The step may still have happened: look, then answer what is asked about it, or raise `timeout_s`."""

    code = "step.timeout"
    status = 504
    exit_code = 4


class TimeoutExpiredError(HoldproofError):
    """It has not ended yet, and goes on: ask again, or wait longer."""

    code = "wait.timeout"
    status = 504
    exit_code = 4


class PromiseRejectedError(ConflictError):
    """The promise was rejected, and that is final; the message says why."""

    code = "promise.rejected"


class FlowWaitingError(ConflictError):
    """The flow waits for a person's decision: go on when its escalation is resolved (`escalations list`)."""

    code = "flow.waiting"


class LeaseLostError(ConflictError):
    """Another worker has the lease of this flow now: stop, and change nothing more."""

    code = "flow.lease_lost"


class StaleVersionError(ConflictError):
    """It was changed since you read it; read it again, then retry."""

    code = "conflict.stale_version"


class ContextTakenError(ConflictError):
    """The context can be read only once, and was read already; put a new one."""

    code = "context.taken"


class InsufficientCapacityError(ConflictError):
    """The request exceeds the whole capacity of the resource; ask for less."""

    code = "locks.capacity"


class ContentionTimeoutError(ConflictError):
    """Others held the resource during the whole wait; try again later, or wait longer."""

    code = "locks.timeout"
    status = 503


class LockLostError(ConflictError):
    """The flow does not hold that lock (any more): stop using the resource, then acquire it again."""

    code = "locks.lost"


class IdempotencyConflictError(ConflictError):
    """The key was used with another request; use a new key for a new request."""

    code = "idempotency.conflict"


class ReplayedError(ConflictError):
    """The first call with this key failed, and its failure is final; use a new key to try again."""

    code = "idempotency.failed"


class UnknownOutcomeError(ConflictError):
    """It was started and never confirmed: find out what happened, then settle it, or let it run again."""

    code = "outcome.unknown"


class BudgetExhaustedError(HoldproofError):
    """The agent escalated too often: ask again when the error says, or raise its budget (`agents set-budget`)."""

    code = "escalations.budget_exhausted"
    status = 429
    exit_code = 5


class TenantNotFoundError(NotFoundError):
    """`holdproof tenants list` names those that there are, `holdproof tenants create NAME` makes one."""

    code = "tenant.absent"


class TenantFindingError(ConflictError):
    """Look with `holdproof --tenant NAME verify`; restore a backup, or accept its log (`holdproof tenants accept`)."""

    code = "tenant.finding"
    exit_code = 20


class TenantLimitError(HoldproofError):
    """The namespace has reached a limit: end or remove something, wait, or let root raise it (`limits set`)."""

    code = "limits.reached"
    status = 429
    exit_code = 5


class WrongAnswerError(InvalidInputError):
    """That is no answer to this escalation; a step in doubt takes `happened`, `did_not_happen` or `undo`.

    An act that a policy asks about is approved as it is, without a proposal.
    """

    code = "escalations.answer"


class AlreadyResolvedError(ConflictError):
    """The escalation was resolved before, and that decision stands; read it."""

    code = "escalations.resolved"


class DeadlinePassedError(AlreadyResolvedError):
    """The deadline passed before, and the default decision stands; read it."""

    code = "escalations.deadline"


class NotApproverError(HoldproofError):
    """Somebody else has to answer: ask one of them, or an operator to reassign it (`escalations reassign`)."""

    code = "escalations.not_approver"
    status = 403
    exit_code = 5


class TooFewApproversError(InvalidInputError):
    """Name as many people as have to answer (`people put NAME --groups GROUP`), or ask for fewer."""

    code = "escalations.too_few_approvers"


class AlreadyAnsweredError(ConflictError):
    """This person has answered, or somebody in their place, and counts once; others still have to answer."""

    code = "escalations.answered"


class ShownChangedError(ConflictError):
    """What is asked has changed since it was shown; read it again (`escalations approvals ID`), then answer."""

    code = "escalations.shown_changed"


class PasskeyRequiredError(HoldproofError):
    """Sign the answer with a passkey (`passkeys challenge`, then `passkeys answer`); nothing was recorded."""

    code = "escalations.passkey_required"
    status = 403
    exit_code = 5


class PasskeyRefusedError(HoldproofError):
    """The signature is not one of this person for these bytes at this address: begin again with a new challenge."""

    code = "passkeys.refused"
    status = 403
    exit_code = 5


class AnswersDifferError(ConflictError):
    """Those who approved before approved something else: approve the same, or reject."""

    code = "escalations.answers_differ"


class CompensationFailedError(HoldproofError):
    """The flow is still dirty and keeps its locks: fix the cause, then compensate again."""

    code = "sagas.compensation_failed"
    status = 500
    exit_code = 6


# --- schedules ---------------------------------------------------------------------------------------------------


class CronError(InvalidInputError):
    """Correct the cron expression at the named character; nothing was changed."""

    code = "schedules.cron"


# --- policies ----------------------------------------------------------------------------------------------------


class PolicyDeniedError(HoldproofError):
    """A policy denies it, as is recorded: `holdproof policies decisions` says which; an operator changes policies."""

    code = "policy.denied"
    status = 403
    exit_code = 5


class PolicySyntaxError(InvalidInputError):
    """Correct the text at the line named in the message; nothing was stored."""

    code = "policy.syntax"
