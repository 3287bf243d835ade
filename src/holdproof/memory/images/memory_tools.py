"""The two tools of memory that a model is given: they answer with a sentence, whatever happens.

The sentences are those of the State Persistence Layer's own tools. What went wrong is logged, with its remedy.
"""

import logging
from typing import Final, Literal

from holdproof.db import Work
from holdproof.errors import HoldproofError
from holdproof.memory.archive import archive
from holdproof.memory.archive.archive import NODE
from holdproof.memory.images import image
from holdproof.memory.objects.tree_transaction import MAIN
from holdproof.store.context import Context

_logger: Final = logging.getLogger("holdproof")


def checkpoint_memory(context: Context, *, node: str = NODE, idle_s: float = 30.0, ns: str = MAIN) -> Work[str]:
    """Write a local image and push a snapshot to IPFS, where it is public; a sentence with its CID, or FAILED."""
    yield from image.dump(context, message="checkpoint", ns=ns)
    try:
        archived = yield from archive.push(context, node=node, idle_s=idle_s, ns=ns)
    except HoldproofError as error:
        _logger.warning("push to IPFS failed: %s (%s)", error, error.remedy)
        return "Local dump complete. IPFS CID: FAILED"
    return f"Local dump complete. IPFS CID: {archived.cid}"


def restore_memory(
    context: Context,
    source: Literal["local", "ipfs"],
    cid: str | None = None,
    *,
    node: str = NODE,
    idle_s: float = 30.0,
    force: bool = False,
    ns: str = MAIN,
) -> Work[str]:
    """Load the newest local image, or the archive that a CID names; return a sentence that says whether it worked."""
    local = source.lower().lstrip(":") == "local"
    try:
        if local:
            yield from image.load(context, force=force, ns=ns)
        else:
            yield from archive.restore(context, cid or "", node=node, idle_s=idle_s, force=force, ns=ns)
    except HoldproofError as error:
        _logger.warning("restore failed: %s (%s)", error, error.remedy)
        return "Local restore failed." if local else "IPFS restore failed."
    return "Restored from disk." if local else "Restored from network."
