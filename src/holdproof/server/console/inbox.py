"""The inbox: escalations that wait for a person, and deciding them in two steps."""

from typing import Annotated, Any

from fastapi import APIRouter, Path, Query
from starlette.requests import Request
from starlette.responses import Response

from holdproof.errors import AlreadyResolvedError, DeadlinePassedError, InvalidInputError
from holdproof.server.console import charts
from holdproof.server.console.cases import AnswerDraft, Case, draft, gather
from holdproof.server.console.desk import Desk
from holdproof.server.console.template_filters import moment
from holdproof.server.pages import fields
from holdproof.validation import LAST

router = APIRouter(include_in_schema=False)

Number = Annotated[int, Path(ge=0, le=LAST)]
Cursor = Annotated[str | None, Query(max_length=500)]


@router.get("/inbox")
async def show(request: Request, cursor: Cursor = None) -> Response:
    """What waits, the most urgent first, and what was decided lately."""
    desk = Desk(request)
    page = await desk.store.escalations.list(status="PENDING", order="due", cursor=cursor, limit=50)
    decided = await desk.store.escalations.list(status="RESOLVED", limit=6)
    return await desk.render("inbox.html", {"page": page, "decided": decided.items})


@router.get("/inbox/decided")
async def decided(request: Request, cursor: Cursor = None) -> Response:
    """Every answer that was given, the newest first."""
    desk = Desk(request)
    page = await desk.store.escalations.list(status="RESOLVED", cursor=cursor, limit=50)
    return await desk.render("decided.html", {"page": page})


@router.get("/inbox/{id}")
async def one(request: Request, id: Number) -> Response:
    """Show one escalation with all that an operator needs to decide it."""
    desk = Desk(request)
    return await _shown(desk, await gather(desk, id))


async def _shown(
    desk: Desk, case: Case, typed: list[tuple[str, str]] | None = None, *, wrong: str = "", status: int = 200
) -> Response:
    scores = [(moment(each.created_at), each.score) for each in reversed(case.feedback) if each.score is not None]
    values: dict[str, Any] = {"case": case, "escalation": case.escalation, "wrong": wrong, "typed": None}
    values["chart"] = (
        charts.line("Feedback on this agent's decisions", scores, width=270, height=100) if len(scores) > 1 else None
    )
    if typed is not None:
        values["typed"] = {**dict(typed), "parts": {value for name, value in typed if name == "part"}}
    return await desk.render("question.html", values, status=status)


@router.post("/inbox/{id}/review")
async def review(request: Request, id: Number) -> Response:
    """The first step: what the answer would be, and what would follow from it."""
    desk = Desk(request)
    typed = await fields(request)
    case = await gather(desk, id)
    try:
        decision = draft(case, typed)
    except InvalidInputError as error:
        return await _shown(desk, case, typed, wrong=error.message, status=error.status)
    return await _review(desk, case, decision, moved=False)


async def _review(desk: Desk, case: Case, decision: AnswerDraft, *, moved: bool) -> Response:
    values = {"case": case, "escalation": case.escalation, "draft": decision, "moved": moved}
    return await desk.render("review.html", values)


@router.post("/inbox/{id}/decide")
async def decide(request: Request, id: Number) -> Response:
    """The second step: give the answer, once."""
    desk = Desk(request)
    typed = await fields(request)
    case = await gather(desk, id)
    decision = draft(case, typed)
    # The operator compared the proposal with a state that has changed since: show the new one before deciding.
    if dict(typed).get("seen") != case.seen and case.escalation.status == "PENDING":
        return await _review(desk, case, decision, moved=True)
    try:
        answer = await desk.store.escalations.resolve(
            id,
            decision.choice,
            by=desk.caller.who,
            proposal=decision.proposal,
            result=decision.result,
            comment=decision.comment,
        )
    # Two operators may decide at the same moment; the first one counts, the other is told.
    except (AlreadyResolvedError, DeadlinePassedError) as error:
        return desk.after(f"/inbox/{id}", f"Your answer was not taken: {error.message}.", kind="refused")
    return desk.after(f"/inbox/{id}", f"Recorded: {answer.outcome}.")
