"""The inbox: escalations that wait for a person beside the one that is looked at, and deciding it in two steps."""

from typing import Annotated, Any, Final

from fastapi import APIRouter, Path, Query
from starlette.requests import Request
from starlette.responses import Response

from holdproof.errors import (
    AlreadyAnsweredError,
    AlreadyResolvedError,
    AnswersDifferError,
    DeadlinePassedError,
    InvalidInputError,
    NotApproverError,
    PasskeyRequiredError,
    ShownChangedError,
)
from holdproof.server.console import charts
from holdproof.server.console.cases import AnswerDraft, Case, draft, gather
from holdproof.server.console.desk import Desk
from holdproof.server.console.queue import InboxFacets, WaitingPage, read_queue
from holdproof.server.console.template_filters import moment
from holdproof.server.pages import fields
from holdproof.validation import LAST

router = APIRouter(include_in_schema=False)

NOT_TAKEN: Final = (
    AlreadyAnsweredError,
    AlreadyResolvedError,
    AnswersDifferError,
    DeadlinePassedError,
    NotApproverError,
    PasskeyRequiredError,
    ShownChangedError,
)
"""Why an answer does not count, though nobody did anything wrong: the person is told, and reads on."""

Number = Annotated[int, Path(ge=0, le=LAST)]
Cursor = Annotated[str | None, Query(max_length=500)]
Person = Annotated[str, Query(max_length=500)]


@router.get("/inbox")
async def show(request: Request) -> Response:
    """What waits, the most urgent first, and the first of it opened."""
    desk = Desk(request)
    queue = await read_queue(desk, InboxFacets.of(request.query_params))
    if not queue.page.items:
        decided = await desk.store.escalations.list(status="RESOLVED", limit=8)
        return await desk.render("inbox.html", {"queue": queue, "case": None, "decided": decided.items, "opened": ""})
    first = queue.page.items[0].id
    return await _shown(desk, await gather(desk, first), queue=queue, is_chosen=False)


@router.get("/inbox/{id}")
async def one(request: Request, id: Number) -> Response:
    """Show one escalation with all that an operator needs to decide it."""
    desk = Desk(request)
    return await _shown(desk, await gather(desk, id))


async def _shown(
    desk: Desk,
    case: Case,
    typed: list[tuple[str, str]] | None = None,
    *,
    queue: WaitingPage | None = None,
    wrong: str = "",
    status: int = 200,
    is_chosen: bool = True,
) -> Response:
    scores = [(moment(each.created_at), each.score) for each in reversed(case.feedback) if each.score is not None]
    queue = queue or await read_queue(desk, InboxFacets.of(desk.request.query_params))
    id = case.escalation.id
    values: dict[str, Any] = {
        "case": case,
        "escalation": case.escalation,
        "queue": queue,
        "wrong": wrong,
        "typed": None,
        # The first of a list may be another one a moment later: what is open stays open.
        "opened": f"/inbox/{id}{queue.facets.query}",
        "is_chosen": is_chosen,
        "watching": desk.state.presence.look(f"escalation {desk.ns} {id}", desk.caller.name),
    }
    values["chart"] = (
        charts.line("Feedback on this agent's decisions", scores, width=270, height=100) if len(scores) > 1 else None
    )
    if typed is not None:
        values["typed"] = {**dict(typed), "parts": {value for name, value in typed if name == "part"}}
    return await desk.render("question.html", values, status=status)


@router.post("/inbox/{id}/edit")
async def edit(request: Request, id: Number) -> Response:
    """Go back from the consequence to the form, with all that was typed."""
    desk = Desk(request)
    return await _shown(desk, await gather(desk, id), await fields(request))


@router.post("/inbox/{id}/review")
async def review(request: Request, id: Number) -> Response:
    """The first step: what the answer would be, and what would follow from it."""
    desk = Desk(request)
    typed = await fields(request)
    case = await gather(desk, id)
    escalation = case.escalation
    # Who comes too late learns it here, and not after having confirmed.
    if escalation.status != "PENDING" or (escalation.deadline is not None and escalation.deadline <= desk.now):
        return desk.after(f"/inbox/{id}", "Your answer was not taken: it was decided before.", kind="refused")
    try:
        decision = draft(case, typed)
    except InvalidInputError as error:
        return await _shown(desk, case, typed, wrong=error.message, status=error.status)
    return await _review(desk, case, decision, moved=False)


async def _review(desk: Desk, case: Case, decision: AnswerDraft, *, moved: bool) -> Response:
    facets = InboxFacets.of(desk.request.query_params)
    values = {"case": case, "escalation": case.escalation, "draft": decision, "moved": moved, "query": facets.query}
    return await desk.render("review.html", values)


@router.post("/inbox/{id}/decide")
async def decide(request: Request, id: Number) -> Response:
    """The second step: give the answer, once."""
    desk = Desk(request)
    typed = await fields(request)
    case = await gather(desk, id)
    decision = draft(case, typed)
    # The operator compared the proposal with a state that has changed since: show the new one before deciding.
    shown_hash = dict(typed).get("shown", case.approvals.shown_hash)
    is_moved = dict(typed).get("seen") != case.seen or shown_hash != case.approvals.shown_hash
    if is_moved and case.escalation.status == "PENDING":
        return await _review(desk, case, decision, moved=True)
    try:
        answer = await desk.store.escalations.resolve(
            id,
            decision.choice,
            by=desk.caller.who,
            proposal=decision.proposal,
            result=decision.result,
            comment=decision.comment or None,
            shown_hash=shown_hash,
        )
    # Two operators may decide at the same moment; the first one counts, the other is told.
    except NOT_TAKEN as error:
        return desk.after(f"/inbox/{id}", f"Your answer was not taken: {error.message}.", kind="refused")
    if answer.status == "PENDING":
        return desk.after(f"/inbox/{id}", "Recorded: your answer counts, and others still have to answer.")
    return await following(desk, f"Recorded: {answer.outcome}.", otherwise=f"/inbox/{id}")


async def following(desk: Desk, message: str, *, otherwise: str) -> Response:
    """Go on with the next escalation of the list that was looked at; where nothing is left, to what was answered."""
    facets = InboxFacets.of(desk.request.query_params)
    remaining = (await read_queue(desk, facets, limit=1)).page.items
    if not remaining:
        return desk.after(otherwise, message)
    return desk.after(f"/inbox/{remaining[0].id}", f"{message} This is the next one.", **facets.chosen)


@router.post("/inbox/{id}/ask")
async def ask(request: Request, id: Number) -> Response:
    """Ask the agent something before answering; its flow keeps waiting."""
    desk = Desk(request)
    typed = dict(await fields(request))
    try:
        await desk.store.escalations.ask(id, typed.get("text", "").strip(), by=desk.caller.who)
    except (*NOT_TAKEN, InvalidInputError) as error:
        return desk.after(f"/inbox/{id}", f"The agent was not asked: {error.message}.", kind="refused")
    return desk.after(f"/inbox/{id}", "The agent was asked; its flow keeps waiting.")


@router.post("/inbox/{id}/reassign")
async def reassign(request: Request, id: Number) -> Response:
    """Change who has to answer."""
    desk = Desk(request)
    typed = dict(await fields(request))
    comment = typed.get("comment", "").strip() or None
    try:
        answer = await desk.store.escalations.reassign(
            id, typed.get("approvers", ""), by=desk.caller.who, comment=comment
        )
    except (*NOT_TAKEN, InvalidInputError) as error:
        return desk.after(f"/inbox/{id}", f"It was not reassigned: {error.message}.", kind="refused")
    return desk.after(f"/inbox/{id}", f"Reassigned to {answer.approvers}.")
