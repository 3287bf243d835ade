"""The root of the error tree, and what any part of Holdproof may raise: a wrong call, a wrong setting."""

from typing import Any, ClassVar


class HoldproofError(Exception):
    """Something in Holdproof failed; the message says what."""

    code: ClassVar[str] = "error"
    status: ClassVar[int] = 500
    exit_code: ClassVar[int] = 1

    def __init__(self, message: str, /, **fields: Any) -> None:
        super().__init__(message)
        self.message = message
        self.fields = fields

    @property
    def remedy(self) -> str:
        """What the user can do: the docstring of the class, on one line."""
        return " ".join((type(self).__doc__ or "").split())

    def to_dict(self) -> dict[str, Any]:
        """The error as every face prints it."""
        return {**self.fields, "code": self.code, "message": self.message, "remedy": self.remedy}


# --- what the caller asked for -----------------------------------------------------------------------------------


class InvalidInputError(HoldproofError):
    """Correct the named value and call again; nothing was written."""

    code, status, exit_code = "input.invalid", 422, 2


class NotFoundError(HoldproofError):
    """Check the name; nothing with it exists here."""

    code, status, exit_code = "not_found", 404, 3


class ConflictError(HoldproofError):
    """Somebody else was first; read the current state and decide again."""

    code, status, exit_code = "conflict", 409, 4


class ExpectationError(ConflictError):
    """A statement changed another number of rows than the operation expects; everything was rolled back."""

    code = "conflict.rows"


class ConstraintError(ConflictError):
    """The database refused the row (unique, foreign key or check); everything was rolled back."""

    code = "conflict.constraint"


class AlreadyExistsError(ConflictError):
    """It is there already and was left as it is; use it, or choose another place."""

    code = "conflict.exists"


class ErasedError(NotFoundError):
    """It was erased on purpose and cannot be brought back; its proof in the log stands."""

    code, status = "erased", 410


# --- configuration and use ---------------------------------------------------------------------------------------


class ConfigError(HoldproofError):
    """Correct the configuration at the named place; Holdproof never guesses where your data lives."""

    code, status, exit_code = "config.invalid", 500, 7


class NamespaceError(HoldproofError):
    """The store was opened for one namespace and sees no other: open it for that one, or for all to do whole duties."""

    code, status, exit_code = "use.namespace", 403, 5


class MissingExtraError(HoldproofError):
    """Install the optional part named in the message."""

    code, status, exit_code = "config.extra_missing", 500, 7


class RunningLoopError(HoldproofError):
    """Inside a running event loop use the async face: `async with holdproof.open() as store`."""

    code, exit_code = "use.running_loop", 2


class NestedCallError(HoldproofError):
    """Inside a function of a transaction pass its `tx` on; the store would wait for itself."""

    code, exit_code = "use.nested", 2


class RemoteError(HoldproofError):
    """It needs the process that has the store open: call the verbs of the nouns, or do it where the store is."""

    code, status, exit_code = "use.remote", 400, 2


class WrongClientError(InvalidInputError):
    """Decorate an `async def` on the async client (`holdproof.open`), a `def` on the sync client (`holdproof.sync`)."""

    code = "use.wrong_client"


class ForkedError(HoldproofError):
    """A store does not survive fork(): start workers with spawn, or open the store only after the fork."""

    code, exit_code = "use.forked", 2


class ClosedError(HoldproofError):
    """The store is closed; open it again. This call was not carried out."""

    code, status, exit_code = "use.closed", 503, 6
