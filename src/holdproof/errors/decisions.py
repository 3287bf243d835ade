"""What the runtime raises."""

from holdproof.errors.root import ConflictError, HoldproofError

# --- decisions ---------------------------------------------------------------------------------------------------


class VersionMismatchError(HoldproofError):
    """VERSION_MISMATCH: run the agent in a version inside the supported range; nothing was stored."""

    code, status, exit_code = "agent.version_mismatch", 409, 4


class AuthenticationError(HoldproofError):
    """Agent and token do not belong together; register again for a new token."""

    code, status, exit_code = "agent.unauthenticated", 401, 5


class AgentInactiveError(HoldproofError):
    """Only the kernel changes an agent's status: have an operator set it to ACTIVE, if that is right."""

    code, status, exit_code = "agent.inactive", 403, 5


class IllegalTransitionError(ConflictError):
    """A flow does not go that way; read its status and choose a legal next one. Nothing was recorded."""

    code = "flow.illegal_transition"


class FlowEndedError(ConflictError):
    """The flow has ended and takes no more work; start another."""

    code = "flow.ended"


class LeaseLostError(ConflictError):
    """Another worker has the flow in hand by now: stop, and change nothing more."""

    code = "flow.lease_lost"


class StaleVersionError(ConflictError):
    """It was changed since you read it; read it again and decide anew."""

    code = "conflict.stale_version"


class ContextTakenError(ConflictError):
    """The context was to be read once and has been; put a new one."""

    code = "context.taken"


class InsufficientCapacityError(ConflictError):
    """More is asked for than the resource has at all; ask for less."""

    code = "locks.capacity"


class ContentionTimeoutError(ConflictError):
    """Others held the resource for the whole time; try again later, or with more patience."""

    code, status = "locks.timeout", 503


class LockLostError(ConflictError):
    """The flow does not hold that lock, or no longer: stop using the resource, then acquire it again."""

    code = "locks.lost"


class IdempotencyConflictError(ConflictError):
    """The key was used with another request; use a new key for a new request."""

    code = "idempotency.conflict"


class ReplayedError(ConflictError):
    """The first call with this key failed, and was to be remembered as failed; use a new key to try again."""

    code = "idempotency.failed"


class UnknownOutcomeError(ConflictError):
    """It was begun and never finished: find out what happened, then settle it, or let it run again."""

    code = "outcome.unknown"


class BudgetExhaustedError(HoldproofError):
    """The agent asked for help too often: it is suspended and the flow cancelled, until an operator decides."""

    code, status, exit_code = "escalations.budget_exhausted", 429, 5


class AlreadyResolvedError(ConflictError):
    """Somebody resolved it before; their answer stands."""

    code = "escalations.resolved"


class DeadlinePassedError(AlreadyResolvedError):
    """The deadline passed first, and its default stands."""

    code = "escalations.deadline"


class CompensationFailedError(HoldproofError):
    """The flow is still dirty and keeps its locks: mend the cause, then compensate again."""

    code, status, exit_code = "sagas.compensation_failed", 500, 6
