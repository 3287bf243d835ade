"""The Microsoft Agent Framework on a store: resume a failed workflow from its last checkpoint.

python examples/agent_framework_checkpoints.py [FOLDER]
"""

import asyncio
import sys
import tempfile
from typing import Never

from agent_framework import Executor, Workflow, WorkflowBuilder, WorkflowContext, handler

from holdproof.adapters.agent_framework import HoldproofCheckpointStorage

drafted: list[str] = []


class Draft(Executor):
    """Write a text: slow, and it costs money."""

    @handler
    async def run(self, topic: str, context: WorkflowContext[str]) -> None:
        """Write about a topic."""
        drafted.append(topic)
        await context.send_message(f"a text about {topic}")


class Publish(Executor):
    """Publish the text; fails the first time."""

    down = True

    @handler
    async def run(self, text: str, context: WorkflowContext[Never, str]) -> None:
        """Publish a text."""
        if Publish.down:
            raise ConnectionError("the printer is off")
        await context.yield_output(text)


def built(storage: HoldproofCheckpointStorage) -> Workflow:
    """Build the workflow, the same in every process."""
    draft, publish = Draft(id="draft"), Publish(id="publish")
    return (
        WorkflowBuilder(name="press", start_executor=draft, checkpoint_storage=storage).add_edge(draft, publish).build()
    )


async def main(folder: str) -> None:
    """Run until it fails, then resume from the last checkpoint."""
    async with HoldproofCheckpointStorage(folder) as storage:
        try:
            await built(storage).run("otters")
        except ConnectionError as error:
            print("failed:", error)

    Publish.down = False
    async with HoldproofCheckpointStorage(folder) as storage:  # another process, another day
        latest = await storage.get_latest(workflow_name="press")
        assert latest is not None
        result = await built(storage).run(checkpoint_id=latest.checkpoint_id)
        print("output:", result.get_outputs())
        assert drafted == ["otters"], "the draft is not written again"
        print("checkpoints:", len(await storage.list_checkpoint_ids(workflow_name="press")))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else scratch))
