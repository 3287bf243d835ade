"""What the A2A stores share: the store, the owner of a call, and the person that the owner is."""

from collections.abc import Callable
from typing import Any

from a2a.server.context import ServerCallContext
from a2a.server.owner_resolver import resolve_user_scope

from holdproof.adapters.shared_store import SharedStore, StoreAdapter, Where

OwnerResolver = Callable[[ServerCallContext], str]


class OwnedStore(StoreAdapter):
    """A folder, a URL, `:memory:`, a store that is open, or where the environment says; what is in it has owners.

    With `erasable` an owner is a person: `store.erase.subject(owner)` removes all that is the owner's.
    """

    def __init__(
        self,
        where: Where = None,
        *,
        owner_resolver: OwnerResolver = resolve_user_scope,
        erasable: bool = True,
        ns: str | None = None,
    ) -> None:
        self._shared = SharedStore(where, ns=ns)
        self._owner = owner_resolver
        self._erasable = erasable

    def _label(self, owner: str) -> dict[str, Any]:
        """Return the namespace, and the person whose row it will be; a caller without a name is nobody."""
        subject = owner if self._erasable and owner.strip() else None
        return {**self._within(), "subject": subject}
