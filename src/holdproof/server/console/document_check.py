"""A file that somebody sent, checked on a page: a bundle, a person's file, the certificate of an erasure.

Rules:
- The file is checked alone, as `holdproof verify FILE` does: nothing is stored, nothing is locked, no entry is made.
- Keys count that a root key of this store vouches for; a file of another store is checked by the keys it brings, and
  the page says what that leaves open.
- One file is unpacked at a time: each may take ten times its bytes of memory.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from holdproof.crypto import keys
from holdproof.crypto.keys import PublicKey
from holdproof.errors import FormatError, RequestError
from holdproof.model.page import Page
from holdproof.model.verify import BundleReport, BundleStory
from holdproof.server import multipart
from holdproof.server.console.desk import Desk, or_default
from holdproof.upkeep.verification import documents

router = APIRouter(include_in_schema=False)

FIELD: Final = "document"
_MOST_ROOTS: Final = 20
_MOST_EVENTS: Final = 100


@dataclass(frozen=True, slots=True)
class CheckedDocument:
    """What came of checking a file: the report, what it tells, and why it is no document of ours."""

    report: BundleReport | None = None
    story: BundleStory | None = None
    problem: str = ""


@router.get("/evidence/check")
async def choose(request: Request) -> Response:
    """Lead to the form: the page of a check has no address of its own, since its file is forgotten."""
    return Desk(request).after("/evidence#check")


@router.post("/evidence/check")
async def check(request: Request) -> Response:
    """Check a file, and tell what it proves."""
    desk = Desk(request)
    desk.require("verify", "run")
    content_type = request.headers.get("content-type", "")
    if not content_type.lower().startswith(multipart.TYPE):
        raise RequestError(f"send the file as {multipart.TYPE}, in the field {FIELD}")
    part = multipart.parse(await request.body(), content_type).get(FIELD)
    if part is None or not part.content:
        return desk.after("/evidence", "Choose a file first, or drop one on the page.", kind="refused")
    ring = (await or_default(desk.store.keys.list(role="root", limit=_MOST_ROOTS), Page([]))).items
    roots = [keys.load_public_pem(each.public.encode()) for each in ring if each.revoked_from is None]
    async with desk.state.checks:
        checked = await asyncio.to_thread(_examine, part.content, roots)
    head = await or_default(desk.store.log.head())
    values = {
        "name": part.filename,
        "size": len(part.content),
        "checked": checked,
        "is_ours": _origin(checked) == (head.checkpoint.origin if head else None),
        "has_root": bool(roots),
        "most_events": _MOST_EVENTS,
        "most_bytes": desk.state.settings.body_bytes,
    }
    return await desk.render("document.html", values)


def _examine(data: bytes, roots: Sequence[PublicKey]) -> CheckedDocument:
    """Check a file by each root key of the store; by its own keys where none of them vouches for it."""
    try:
        for root in roots:
            report, story = documents.examine(data, root=root)
            if report.verdict.sound:
                return CheckedDocument(report, story)
        return CheckedDocument(*documents.examine(data))
    except FormatError as error:
        return CheckedDocument(problem=error.message)


def _origin(checked: CheckedDocument) -> str:
    return str(checked.report.head.get("origin", "")) if checked.report else ""
