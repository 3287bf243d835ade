"""Errors of the runtime."""

from holdproof.errors.root import ConflictError, HoldproofError

# --- decisions ---------------------------------------------------------------------------------------------------


class VersionMismatchError(HoldproofError):
    """VERSION_MISMATCH: run the agent in a version inside the supported range; nothing was stored."""

    code = "agent.version_mismatch"
    status = 409
    exit_code = 4


class AuthenticationError(HoldproofError):
    """Agent and token do not belong together; register again for a new token."""

    code = "agent.unauthenticated"
    status = 401
    exit_code = 5


class AgentInactiveError(HoldproofError):
    """Only the kernel changes an agent's status: have an operator set it to ACTIVE, if that is right."""

    code = "agent.inactive"
    status = 403
    exit_code = 5


class IllegalTransitionError(ConflictError):
    """The flow cannot change to that status; read its status and choose a legal next one. Nothing was recorded."""

    code = "flow.illegal_transition"


class FlowEndedError(ConflictError):
    """The flow has ended; start another."""

    code = "flow.ended"


class LeaseLostError(ConflictError):
    """Another worker has leased the flow meanwhile: stop, and change nothing more."""

    code = "flow.lease_lost"


class StaleVersionError(ConflictError):
    """It was changed since you read it; read it again and decide again."""

    code = "conflict.stale_version"


class ContextTakenError(ConflictError):
    """The context could be read once and has been; put a new one."""

    code = "context.taken"


class InsufficientCapacityError(ConflictError):
    """The request exceeds the total capacity of the resource; request less."""

    code = "locks.capacity"


class ContentionTimeoutError(ConflictError):
    """The resource was locked by others until the timeout; try again later, or with a longer timeout."""

    code = "locks.timeout"
    status = 503


class LockLostError(ConflictError):
    """The flow does not hold that lock any more: stop using the resource, then acquire it again."""

    code = "locks.lost"


class IdempotencyConflictError(ConflictError):
    """The key was used with another request; use a new key for a new request."""

    code = "idempotency.conflict"


class ReplayedError(ConflictError):
    """The first call with this key failed, and its failure is recorded; use a new key to try again."""

    code = "idempotency.failed"


class UnknownOutcomeError(ConflictError):
    """It is in doubt: started and never confirmed. Find out what happened, then settle it, or let it run again."""

    code = "outcome.unknown"


class BudgetExhaustedError(HoldproofError):
    """The agent asked for help too often: it is suspended and the flow cancelled, until an operator decides."""

    code = "escalations.budget_exhausted"
    status = 429
    exit_code = 5


class AlreadyResolvedError(ConflictError):
    """It was resolved before; that decision stands."""

    code = "escalations.resolved"


class DeadlinePassedError(AlreadyResolvedError):
    """The deadline passed first, and its default stands."""

    code = "escalations.deadline"


class CompensationFailedError(HoldproofError):
    """The flow is still dirty and keeps its locks: fix the cause, then compensate again."""

    code = "sagas.compensation_failed"
    status = 500
    exit_code = 6
