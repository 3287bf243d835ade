"""What acts share: the store, the world outside of it, and whom they tell."""

import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from holdproof import folders, sync
from holdproof.api.flow_block import OpenFlow
from holdproof.demo import shipping
from holdproof.errors import UnavailableError
from holdproof.executors import SyncExecutor

T = TypeVar("T")

_PATIENCE_S = 60.0
_DEADLINE_S = 7 * 86_400.0
_LOOK_S = 0.02


@dataclass(frozen=True, slots=True)
class StoryEvent:
    """One thing that happened: in which act, in a sentence, and the facts of it."""

    act: str
    text: str
    facts: dict[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return what happened as JSON shows it."""
        return asdict(self)


Tell = Callable[[StoryEvent], None]


@dataclass(frozen=True, slots=True)
class Played:
    """A story that was told: where its store lies, what happened, and how to check it."""

    home: str
    forged: str | None
    bundle: str
    events: list[StoryEvent]
    checks: dict[str, str]

    def to_dict(self) -> dict[str, Any]:
        """Return the story as JSON shows it."""
        return {**asdict(self), "events": [each.to_dict() for each in self.events]}


class Scene:
    """One store on which acts play, any number of times."""

    def __init__(self, store: sync.Holdproof, tell: Tell, *, folder: Path | None = None) -> None:
        self.store = store
        self._tell = tell
        self.folder = folder or store.core.paths.cache / "demo"
        folders.make(self.folder)
        self.shop = shipping.Shop(self.folder / "carrier.txt")
        self.facts: dict[str, Any] = {}
        # Registered here too, so that this process can take up what the killed worker began.
        self.ship = shipping.register(store, self.shop)

        @store.flow(name="large order", agent="buyer")
        def large_order(flow: OpenFlow[SyncExecutor], order: dict[str, Any]) -> dict[str, Any]:
            answer = flow.approve("over the limit of 500", proposal=order, impact="HIGH_IMPACT", deadline_s=_DEADLINE_S)
            approved_order: dict[str, Any] = answer.answer or order
            return flow.step("order", self.shop.order, **approved_order)

        self.large_order = large_order

    def say(self, act: str, text: str, **facts: Any) -> None:
        """Tell one thing that happened."""
        self._tell(StoryEvent(act, text, facts))

    def until(self, look: Callable[[], T | None]) -> T:
        """Look again and again until there is something to see."""
        # Polling is enough for a story: what it waits for happens in another process or thread.
        deadline = time.monotonic() + _PATIENCE_S
        while (value := look()) is None:
            if time.monotonic() > deadline:
                raise UnavailableError("the demonstration waited for a minute, and nothing happened")
            time.sleep(_LOOK_S)
        return value


Act = Callable[[Scene], None]
"""A part of the story; its name and its summary are the heading that is printed."""


class Background:
    """Work on a thread of its own, whose answer is asked for later; what it raises is raised then."""

    def __init__(self, fn: Callable[[], Any]) -> None:
        self._answer: list[Any] = []
        self._error: list[BaseException] = []
        self._thread = threading.Thread(target=self._run, args=(fn,), daemon=True)
        self._thread.start()

    def _run(self, fn: Callable[[], Any]) -> None:
        try:
            self._answer.append(fn())
        # Raised again in `result`, on the thread that tells the story.
        except BaseException as error:
            self._error.append(error)

    def result(self) -> Any:
        """Return the answer, once it is there."""
        self._thread.join(_PATIENCE_S)
        if self._error:
            raise self._error[0]
        return self._answer[0]
