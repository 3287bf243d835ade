"""Evidence: evaluations with their verdicts, the log, its keys, and verifying all of it."""

from typing import Annotated, Any, Final

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from holdproof.model.evaluations import DbomChecked, Evaluation
from holdproof.model.keys import Key
from holdproof.model.page import Page
from holdproof.server.console import head_line
from holdproof.server.console.desk import Desk, or_default
from holdproof.server.console.downloads import download
from holdproof.server.console.proof import heads
from holdproof.server.pages import form
from holdproof.validation import LAST

router = APIRouter(include_in_schema=False)

Text = Annotated[str, Query(max_length=500)]
_NEWEST: Final = 10
Number = Annotated[int | None, Query(ge=0, le=LAST)]


@router.get("/evidence")
async def show(request: Request) -> Response:
    """The log and its keys, and the newest evaluations."""
    desk = Desk(request)
    store = desk.store
    page = await store.evaluations.list(limit=_NEWEST)
    level = await or_default(store.log.level())
    keys: list[Key] = (await or_default(store.keys.list(limit=1_000), Page([]))).items
    line = head_line.lay_out(await or_default(store.log.heads(), ()), keys, desk.now)
    values = {
        "page": page,
        "checked": {each.id: await checked(desk, each) for each in page.items},
        "head": await or_default(store.log.head()),
        "level": level,
        "heads": heads(level),
        "pending": await or_default(store.log.pending(), 0),
        "keys": keys,
        "line": line,
        "verified": [row for row in line.rows if row.head.kind == "verified"][:5] if line else [],
        "most_bytes": desk.state.settings.body_bytes,
        "jobs": [job for job in desk.jobs() if job.kind == "verification"][:5],
    }
    return await desk.render("evidence.html", values)


async def checked(desk: Desk, evaluation: Evaluation) -> DbomChecked | None:
    """What the store says of an evaluation's DBOM; None where it has none."""
    if evaluation.dbom is None:
        return None
    verdict: DbomChecked | None = await or_default(desk.store.dbom.verify(evaluation.dbom))
    return verdict


@router.get("/evidence/evaluation")
async def one(request: Request, id: Text, row: Number = None) -> Response:
    """One evaluation with its DBOM and what proves it."""
    desk = Desk(request)
    evaluation = await desk.store.evaluations.get(id, id=row)
    values: dict[str, Any] = {"evaluation": evaluation, "checked": await checked(desk, evaluation)}
    values["leaf"] = await or_default(desk.store.log.get_entry(evaluation.leaf_id, evaluation.leaf_ver))
    return await desk.render("evaluation.html", values)


@router.get("/evidence/bundle")
async def prove(request: Request, id: Text) -> Response:
    """Download the newest version of an evaluation with all that a third party needs to verify it."""
    data = await Desk(request).store.bundle.export(id)
    return download(data, f"evaluation-{id}.zip", "application/zip")


@router.post("/evidence/verify")
async def verify(request: Request) -> Response:
    """Verify the whole store, watched on a page of its own; an auditor's verification locks nothing."""
    desk = Desk(request)
    fields = await form(request)
    full = fields.get("full") == "yes"
    # An auditor only reads; a verification that finds tampering would otherwise lock the store in their name.
    lock = desk.caller.role == "operator"
    run = desk.store.verify.run
    job = desk.start("verification", lambda progress: run(full=full, lock=lock, progress=progress))
    return desk.after(f"/jobs/{job.number}")
