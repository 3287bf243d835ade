"""Where the services of ADK keep things: the store that a `services.yaml` names by its URI; and for whom."""

from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from holdproof.adapters.shared_store import SharedStore, StoreUser, Where
from holdproof.errors import InvalidInputError

SCHEME: Final = "holdproof"

Subject = str | Callable[[str, str], str | None] | None
"""The person whose things a service keeps, or a function of app and user that names them."""


class StoreService(StoreUser):
    """A service of ADK on a shared store: ADK awaits the end of its services."""

    async def close(self) -> None:
        """Release the store; may be called twice. A store that was passed in stays open."""
        self._shared.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def open_shared(where: Where, uri: str | None, ns: str | None) -> SharedStore:
    """Return the store that a service was given as Python passes it, or as a `services.yaml` does."""
    if uri is None:
        return SharedStore(where, ns=ns)
    if where is not None:
        raise InvalidInputError("a service has one store: pass `where` or `uri`, not both", field="uri")
    return SharedStore(located(uri), ns=ns)


def located(uri: str) -> str | None:
    """Return folder or URL that a URI names.

    `holdproof:///srv/store` and `holdproof://./store` are folders, `holdproof://:memory:` is in memory, `holdproof://`
    is the store of the environment, `holdproof+postgresql://…` and any other URI the database of that URL.
    """
    scheme, separator, rest = uri.partition("://")
    if not separator:
        raise InvalidInputError(f"a service needs a URI such as {SCHEME}:///srv/store, not {uri!r}", field="uri")
    if scheme == SCHEME:
        return rest or None
    return uri.removeprefix(f"{SCHEME}+")


def owner(subject: Subject, app_name: str, user_id: str) -> str | None:
    """Return the person whose things these are, None where they are nobody's."""
    return subject(app_name, user_id) if callable(subject) else subject
