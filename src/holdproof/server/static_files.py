"""Styles and scripts of pages: read once, named by their hash, compressed once.

Rules:
- An address with the hash of its file (`?v=`) is never asked for again; any other one is asked for, and answered 304
  where nothing changed.
- Only files that stood in the folder when the server began are served: no path leads out of it.
"""

import gzip
import mimetypes
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from holdproof.errors import NotFoundError

router = APIRouter(include_in_schema=False)
FOLDER: Final = Path(__file__).parent / "static"
_FOREVER: Final = "public, max-age=31536000, immutable"
_HASH_LETTERS: Final = 12


@dataclass(frozen=True, slots=True)
class StaticFile:
    """One file as it is sent."""

    body: bytes
    packed: bytes
    media_type: str
    version: str


@cache
def files() -> dict[str, StaticFile]:
    """Return every static file by its name."""
    return {path.name: _read(path) for path in sorted(FOLDER.iterdir()) if path.is_file()}


def _read(path: Path) -> StaticFile:
    body = path.read_bytes()
    media_type = mimetypes.guess_type(path.name)[0] or "application/octet-stream"
    # No time of day inside: the same file has the same bytes in every process.
    packed = gzip.compress(body, mtime=0)
    return StaticFile(body, packed, media_type, sha256(body).hexdigest()[:_HASH_LETTERS])


def address(name: str) -> str:
    """Return the address of a file under which browsers may keep it for ever."""
    return f"/static/{name}?v={files()[name].version}"


@router.get("/static/{name}")
async def show(request: Request, name: str) -> Response:
    """One static file."""
    file = files().get(name)
    if file is None:
        raise NotFoundError("there is nothing at this address")
    etag = f'"{file.version}"'
    lasting = request.query_params.get("v") == file.version
    headers = {"ETag": etag, "Cache-Control": _FOREVER if lasting else "no-cache", "Vary": "Accept-Encoding"}
    if request.headers.get("if-none-match") == etag:
        return Response(status_code=304, headers=headers)
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(file.packed, media_type=file.media_type, headers={**headers, "Content-Encoding": "gzip"})
    return Response(file.body, media_type=file.media_type, headers=headers)
