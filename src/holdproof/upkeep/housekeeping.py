"""Housekeeping that a worker calls now and then: write memory images that are due, and sweep what has expired.

Rules:
- An image is written of every namespace in which something changed since its last one, and holds only what changed.
- At most every `images.every_s` seconds (settings), whichever process calls: the newest image says when it was made.
  One from the future, written under a wrong clock, does not delay the next.
- Where nothing changed nothing is written, not even a snapshot. A store in memory has no folder for images.
- A namespace that fails prevents no other; the error is raised when all were tried.
"""

from dataclasses import replace
from functools import partial

from holdproof.db import MEMORY, Call, Read, Tx, Work, ask
from holdproof.errors import FormatError, HoldproofError
from holdproof.memory.images import image, image_files
from holdproof.memory.notes import notes
from holdproof.memory.objects import refs
from holdproof.model.coordination import SweepResult
from holdproof.model.memory import Dumped
from holdproof.model.progress import Progress
from holdproof.model.times import later
from holdproof.runtime import sweeps
from holdproof.store.context import Context


def write_due_images(context: Context, *, progress: Progress | None = None) -> Work[tuple[Dumped, ...]]:
    """Write memory images that are due; return those that were written."""
    settings = context.settings.images
    if settings.every_s == 0 or context.database.backend.facts().get("path") == MEMORY:
        return ()
    spaces, now = yield from ask(Read(_spaces))
    images: list[Dumped] = []
    failed: HoldproofError | None = None
    for ns in spaces:
        looking: Call[bool] = Call(partial(_due, context, ns, now))
        if not (yield from ask(looking)):
            continue
        try:
            done = yield from image.dump(context, message="heartbeat", keep=settings.keep, ns=ns, progress=progress)
        except HoldproofError as error:
            failed = failed or error
            continue
        if done.kind != "nothing":
            images.append(done)
    if failed is not None:
        raise failed
    return tuple(images)


def _spaces(tx: Tx) -> tuple[list[str], str]:
    """Return the namespaces that have objects, and the current time."""
    spaces = []
    after = ""
    while page := refs.page(tx, after):
        after = page[-1].name
        spaces += [ref.ns for ref in page if ref.name.startswith("work/")]
    return spaces, tx.now


def _due(context: Context, ns: str, now: str) -> bool:
    """Whether the newest image is old enough; one that cannot be read is skipped."""
    for path in image_files.manifests(image.folder_of(context, None, ns)):
        try:
            made_at = image_files.read_manifest(path)[0].made_at
        except (FormatError, OSError):
            continue
        return not made_at <= now < later(made_at, context.settings.images.every_s)
    return True


def sweep() -> Work[SweepResult]:
    """Sweep a whole store once: end expired leases, requests and notes; return what was ended and what is left."""
    swept = yield from sweeps.run()
    return replace(swept, notes=(yield from notes.sweep()))
