"""A story told on a real store: what Holdproof does for agents, in seven acts.

    with sync.open(home) as store:
        scene = Scene(store, tell=print)
        for act in ACTS:
            act(scene)

Rules:
- Everything is real: the locks, the child process and its `kill -9`, the forged row, the proofs.
- An act takes a `Scene` and hears nothing but its store; what it has to say goes to `tell`. So a terminal tells the
  story at once, and a server plays it slowly on a living store, as often as it likes.
- Every act leaves the store usable: the forgery is made in a copy of it, and no alert leaves the machine for it.
- Nothing here prints.
"""

from holdproof.demo.acts import ACTS
from holdproof.demo.live import LIVE_ACTS, live
from holdproof.demo.play import play, require_own_store
from holdproof.demo.scene import Played, Scene, StoryEvent, Tell

__all__ = ["ACTS", "LIVE_ACTS", "Played", "Scene", "Tell", "StoryEvent", "live", "play", "require_own_store"]
