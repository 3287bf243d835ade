"""Play the story slowly on a running store: a visitor of the console sees it happen and decides the last request."""

import threading

from holdproof import sync
from holdproof.demo.acts import ACTS
from holdproof.demo.scene import Background, Scene, Tell


def live(store: sync.Holdproof, tell: Tell, stopping: threading.Event, *, pause_s: float = 2.0) -> None:
    """Play every act with a pause before it, until the last or until it is to stop."""
    scene = Scene(store, tell)
    for act in ACTS:
        if stopping.wait(pause_s):
            return
        act(scene)
    Background(lambda: scene.large_order({"item": "desks", "amount": 800}))
    scene.until(lambda: store.escalations.list(status="PENDING").items or None)
    scene.say("asking", "buyer asks once more, for desks: this one waits for you, in the inbox")
