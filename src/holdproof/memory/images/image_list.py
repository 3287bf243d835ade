"""The images that lie in a store's folder, as their manifests tell."""

from pathlib import Path

from holdproof.db import MEMORY, Call, Work, ask
from holdproof.errors import HoldproofError
from holdproof.memory.images import image, image_files
from holdproof.memory.objects.tree_transaction import MAIN
from holdproof.model.memory import ImageFile
from holdproof.store.context import Context


def list(context: Context, *, ns: str = MAIN) -> Work[tuple[ImageFile, ...]]:
    """The images of a namespace as they lie there, the newest first; what is in them is not looked at."""
    if context.database.backend.facts().get("path") == MEMORY:
        return ()
    place = image.folder_of(context, None, ns)
    return (yield from ask(Call(lambda: tuple(map(_seen, image_files.manifests(place))))))


def _seen(path: Path) -> ImageFile:
    try:
        made, _ = image_files.read_manifest(path)
    except (HoldproofError, OSError) as error:
        return ImageFile(path.name, "", "", "", 0, 0, str(error))
    return ImageFile(
        path.name, made.head, made.rev, made.made_at, len(made.parts), sum(each.size for each in made.parts), None
    )
