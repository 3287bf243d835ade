"""The whole story on a store of its own."""

import os
import shlex
from pathlib import Path

from holdproof import sync
from holdproof.demo.acts import ACTS
from holdproof.demo.scene import Played, Scene, StoryEvent, Tell
from holdproof.errors import AlreadyExistsError, ConfigError
from holdproof.store import opening


def play(home: str | Path, tell: Tell | None = None, *, program: str = "holdproof") -> Played:
    """Play every act on a new store at `home`, which stays: the reader is to check it, with that program."""
    home = Path(os.path.abspath(Path(home).expanduser()))
    require_own_store(home)
    if home.exists() and any(home.iterdir()):
        raise AlreadyExistsError(f"{home} is not empty", path=str(home))
    events: list[StoryEvent] = []

    def both(each: StoryEvent) -> None:
        events.append(each)
        if tell is not None:
            tell(each)

    with sync.open(home) as store:
        scene = Scene(store, both, folder=home / "demo")
        for act in ACTS:
            act(scene)
    return Played(
        str(home), scene.facts.get("forged"), scene.facts["bundle"], events, checks(str(home), scene, program)
    )


def require_own_store(home: str | Path, url: str | None = None) -> None:
    """Raise ConfigError where a store at `home` would be in a database that somebody else's data is in.

    The story is not removed from a log again, so it needs a store of its own.
    """
    if isinstance(opening.locate(home, url).target, str):
        raise ConfigError(
            "the story needs a store of its own, and --url, the environment or a configuration file names a database",
            remedy="Tell it without --url: `env -u HOLDPROOF_DATABASE_URL holdproof demo`, in a folder without a"
            " project.",
        )


def checks(home: str, scene: Scene, program: str) -> dict[str, str]:
    """Return what the reader can run, by what it shows."""
    here = f"{program} --home {shlex.quote(home)}"
    bundle = shlex.quote(scene.facts["bundle"])
    commands = {
        "everything, from the leaves up": f"{here} verify --full",
        "the evaluation, offline and without this store": f"{program} verify {bundle}",
        "the flow that outlived its worker": f"{here} flows timeline {scene.facts['killed']}",
        "who was asked, and what was answered": f"{here} flows timeline {scene.facts['asked']}",
        "what the agent learned": f"{here} snapshots diff {scene.facts['snapshot']}",
        "the head that all proofs lead to": f"{here} log head",
    }
    if forged := scene.facts.get("forged"):
        commands["the forged copy: exits with 20"] = f"{program} --home {shlex.quote(forged)} verify"
    return commands
