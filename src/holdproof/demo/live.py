"""Play the story slowly on a running store: a visitor of the console sees it happen and decides the last request."""

import threading
from typing import Final

from holdproof import sync
from holdproof.demo.acts import ACTS
from holdproof.demo.scene import Act, Background, Scene, Tell


def waiting(scene: Scene) -> None:
    """One request is yours: open it in the inbox, and decide."""
    Background(lambda: scene.large_order({"item": "desks", "amount": 800}))
    scene.until(lambda: scene.store.escalations.list(status="PENDING").items or None)
    scene.say("waiting", "buyer asks once more, for desks at 800: the flow waits for your answer")


LIVE_ACTS: Final[tuple[Act, ...]] = (*ACTS, waiting)
"""The story as a server plays it: its last act waits for whoever watches."""


def live(store: sync.Holdproof, tell: Tell, stopping: threading.Event, *, pause_s: float = 2.0) -> None:
    """Play every act with a pause before it, until the last or until it is to stop."""
    scene = Scene(store, tell)
    for act in LIVE_ACTS:
        if stopping.wait(pause_s):
            return
        act(scene)
