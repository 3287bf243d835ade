"""The `HistoryProvider` of the Microsoft Agent Framework: the messages of a session, a transcript.

Rules:
- Messages come back in the order in which they were saved, each save whole, whoever else saves at the same time.
- What is sent again is there once, by the framework's own rule: a save that repeats the end of a history adds the rest.
- A save reads and writes as much as it holds, however long the history is.
- A message that cannot be read is an error, and never passed over.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from agent_framework import HistoryProvider, Message, _sessions

from holdproof.adapters import documents
from holdproof.adapters.shared_store import SharedStore, StoreAdapter, Where, shield_until_done
from holdproof.errors import FormatError
from holdproof.kernel import Tx, transcripts
from holdproof.model.transcripts import Item

PREFIX: Final = "agent-framework-history/"
_NAMELESS: Final = "default"


def _all_messages(existing: Sequence[Message], incoming: Sequence[Message]) -> list[Message]:  # noqa: ARG001
    return list(incoming)


# The oldest versions have no rule, and their own providers append whatever they are given.
_new_messages: Callable[[Sequence[Message], Sequence[Message]], list[Message]] = getattr(
    _sessions, "filter_new_messages", _all_messages
)


class HoldproofHistoryProvider(HistoryProvider, StoreAdapter):
    """Histories on a store: a folder, a URL, `:memory:`, one that is open, or where the environment says.

    `subject` names the person whose conversations these are: `store.erase.subject(name)` then removes them. `options`
    are those of the framework's `HistoryProvider`, as `load_messages`.
    """

    DEFAULT_SOURCE_ID = "holdproof"

    def __init__(
        self,
        where: Where = None,
        *,
        source_id: str = DEFAULT_SOURCE_ID,
        subject: str | None = None,
        ns: str | None = None,
        skip_excluded: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(source_id, **options)
        self.skip_excluded = skip_excluded
        self._shared = SharedStore(where, ns=ns)
        self._subject = subject

    async def get_messages(
        self, session_id: str | None, *, state: dict[str, Any] | None = None, **kwargs: Any
    ) -> list[Message]:
        """Return the messages of a session, without those that a compaction excluded if `skip_excluded` says so."""
        del state, kwargs  # for providers whose messages are in the session itself
        store = await self._shared.store()
        items = await store.read(partial(transcripts.read_items, name=_name(session_id), **self._within()))
        messages = [_message(item) for item in items]
        if self.skip_excluded:
            return [each for each in messages if not each.additional_properties.get("_excluded", False)]
        return messages

    async def save_messages(
        self,
        session_id: str | None,
        messages: Sequence[Message],
        *,
        state: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Add what is new of these messages; durable when it returns."""
        del state, kwargs
        if not messages:
            return
        name = _name(session_id)
        label = {**self._within(), "subject": self._subject}

        def write(tx: Tx) -> None:
            # Changing nothing takes the row: nobody adds a message between this reading and this writing.
            transcripts.append(tx, name, (), **label)
            # One more than can be a repetition tells a longer history from one that is repeated whole.
            newest = transcripts.read_items(tx, name, last=len(messages) + 1, **self._within())
            added = _new_messages([_message(item) for item in newest], messages)
            transcripts.append(tx, name, [documents.exact("a message", each.to_dict()) for each in added], **label)

        await shield_until_done((await self._shared.store()).write(write))


def _name(session_id: str | None) -> str:
    return documents.joined(PREFIX, _NAMELESS if session_id is None else session_id)


def _message(item: Item) -> Message:
    try:
        return Message.from_dict(item.value)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise FormatError(f"a message of the history cannot be read: {error}", item=item.seq) from error
