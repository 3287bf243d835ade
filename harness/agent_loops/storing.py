"""Run a framework's scripted agent once, undisturbed, and say how many bytes that added to where it is kept.

    python -m harness.agent_loops.storing openai_agents ours

`own` is the framework's own storage, `ours` the adapter in its place, `durable` a run of which each call is a step.
"""

import asyncio
import importlib
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import holdproof
from harness.agent_loops.world import CALLS, PROMPT, World


def size(folder: Path) -> int:
    """Return the bytes of all files below a folder."""
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


async def stored(framework: str, way: str, folder: Path) -> int:
    """Return the bytes that a run adds; of a store those it has more than one in which nothing happened."""
    module: Any = importlib.import_module(f"harness.agent_loops.of_{framework}")
    world = World(folder / "world")
    place = folder / "place"
    place.mkdir()
    if way == "own":
        await module.run_own(world, place)
        before = 0
    else:
        async with holdproof.open(place):
            pass
        before = size(place)
        async with holdproof.open(place) as store:
            if way == "ours":
                await module.run_ours(world, store)
            else:
                await module.agent(world, store, lease_s=60.0).run(PROMPT, flow_id="today")
    assert sorted(world.lines()) == sorted(CALLS), "the run made other calls"
    return size(place) - before


def main(framework: str, way: str) -> dict[str, Any]:
    module: Any = importlib.import_module(f"harness.agent_loops.of_{framework}")
    with tempfile.TemporaryDirectory(prefix="holdproof-") as folder:
        added = asyncio.run(stored(framework, way, Path(folder)))
    return {"bytes": added, "calls": len(CALLS), "own": module.OWN, "ours": module.OURS}


if __name__ == "__main__":
    _, name, kind = sys.argv
    sys.stdout.write(json.dumps(main(name, kind)) + "\n")
