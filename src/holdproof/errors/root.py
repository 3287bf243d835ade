"""The base class, and errors that any part of Holdproof may raise: a wrong call, a wrong setting."""

from collections.abc import Callable
from typing import Any, ClassVar


class HoldproofError(Exception):
    """Something in Holdproof failed; the message says what."""

    code: ClassVar[str] = "error"
    status: ClassVar[int] = 500
    exit_code: ClassVar[int] = 1
    generic: ClassVar[bool] = True
    """Whether the docstring fits any error of this very class, so that beside a message it says nothing; its subclasses
    have docstrings of their own."""
    record: Callable[[Any], None] | None = None
    """What the writer does in a transaction of its own before the caller gets the error: a refusal that is recorded,
    while the act that was refused is rolled back. A function of a transaction."""

    def __init__(self, message: str, /, *, remedy: str | None = None, **fields: Any) -> None:
        super().__init__(message)
        self.message = message
        self.fields = fields
        self._remedy = remedy
        # Shown below a traceback, where nobody reads attributes.
        if self.remedy:
            self.add_note(self.remedy)

    @property
    def remedy(self) -> str:
        """What the user can do: what was passed, else the docstring of the class; empty where the message says it."""
        if self._remedy is not None:
            return self._remedy
        # Not inherited: a subclass is more particular.
        if vars(type(self)).get("generic", False):
            return ""
        return " ".join((type(self).__doc__ or "").split())

    def to_dict(self) -> dict[str, Any]:
        """Return the error as the CLI, the HTTP API and MCP show it; `code`, `message` and `remedy` win over fields."""
        return {**self.fields, "code": self.code, "message": self.message, "remedy": self.remedy}


# --- calls -------------------------------------------------------------------------------------------------------


class InvalidInputError(HoldproofError):
    """Correct the named value and call again; nothing was written."""

    code = "input.invalid"
    generic = True
    status = 422
    exit_code = 2


class NotFoundError(HoldproofError):
    """Check the name; nothing with it exists here."""

    code = "not_found"
    generic = True
    status = 404
    exit_code = 3

    def __init__(
        self, message: str, /, *, listed_by: str | None = None, remedy: str | None = None, **fields: Any
    ) -> None:
        """`listed_by` is the command that names those there are: most names that are not found are mistyped."""
        if remedy is None and listed_by is not None:
            remedy = f"`holdproof {listed_by}` names those there are."
        super().__init__(message, remedy=remedy, **fields)


class NoStoreError(NotFoundError):
    """Check the path, --home and HOLDPROOF_HOME, or the URL; `holdproof db migrate` or the first write creates one."""

    code = "store.absent"


class ConflictError(HoldproofError):
    """Somebody else was first; read the current state and decide again."""

    code = "conflict"
    status = 409
    exit_code = 4


class ExpectationError(ConflictError):
    """A statement changed another number of rows than expected; everything was rolled back. Read again and retry."""

    code = "conflict.rows"


class ConstraintError(ConflictError):
    """The database refused the row (unique, foreign key or check); everything was rolled back."""

    code = "conflict.constraint"


class AlreadyExistsError(ConflictError):
    """It exists already and was not changed; use it, or choose another name or place."""

    code = "conflict.exists"


class ErasedError(NotFoundError):
    """It was erased on purpose and cannot be restored; its proof in the log stays valid."""

    code = "erased"
    status = 410


# --- configuration and use ---------------------------------------------------------------------------------------


class ConfigError(HoldproofError):
    """Correct the setting named in the message; Holdproof never guesses where your data is."""

    code = "config.invalid"
    generic = True
    status = 500
    exit_code = 7


class NamespaceError(HoldproofError):
    """The store was opened for one namespace: open it for the other one, or without a namespace for work on all."""

    code = "use.namespace"
    status = 403
    exit_code = 5


class MissingExtraError(HoldproofError):
    """Install the optional part named in the message."""

    code = "config.extra_missing"
    generic = True
    status = 500
    exit_code = 7


class NestedCallError(HoldproofError):
    """Inside a function of a transaction call operations with its `tx`; a call of the store would wait for itself."""

    code = "use.nested"
    exit_code = 2


class RemoteError(HoldproofError):
    """It needs the process that has the store open: call a method of a resource instead, or run it in that process."""

    code = "use.remote"
    status = 400
    exit_code = 2


class WrongClientError(InvalidInputError):
    """Pass an `async def` to the async client (`holdproof.open`), a `def` to the sync client (`holdproof.sync`)."""

    code = "use.wrong_client"


class ForkedError(HoldproofError):
    """A store does not survive fork(): start workers with spawn, or open the store only after the fork."""

    code = "use.forked"
    exit_code = 2


class ClosedError(HoldproofError):
    """The store is closed and this call had no effect; open the store again."""

    code = "use.closed"
    status = 503
    exit_code = 6
