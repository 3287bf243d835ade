"""Answering alike escalations together: one page that lists them all, one consequence, one answer for each.

Rules:
- Alike are those of one agent that differ in their numbers only (similar.py). A step in doubt is answered by itself,
  and so is what has characters that cannot be seen.
- Each one is approved as it was proposed, or rejected, or its flow cancelled; to change a value, open it.
- What was on the consequence page is what is answered: one that changed since is left out, and named.
"""

from typing import Annotated, Final, NamedTuple

from fastapi import APIRouter, Path
from starlette.requests import Request
from starlette.responses import Response

from holdproof.errors import HoldproofError, InvalidInputError
from holdproof.model.coordination import Escalation
from holdproof.model.visible_text import marks
from holdproof.server.console import similar
from holdproof.server.console.cases import OUTCOMES
from holdproof.server.console.desk import Desk
from holdproof.server.console.inbox import following
from holdproof.server.pages import fields
from holdproof.validation import LAST

router = APIRouter(include_in_schema=False)
Number = Annotated[int, Path(ge=0, le=LAST)]

_MOST: Final = 200
_CHOICES: Final = ("approve", "reject", "cancel")
_LONGEST: Final = 2000


class AlikeProposal(NamedTuple):
    """An escalation, and the hash of what a person is shown of it."""

    escalation: Escalation
    shown_hash: str


@router.get("/inbox/together/{id}")
async def show(request: Request, id: Number) -> Response:
    """List what waits and is alike, all of it ticked."""
    desk = Desk(request)
    desk.require("escalations", "resolve")
    return await _listed(desk, id)


async def _listed(desk: Desk, id: int, wrong: str = "", status: int = 200) -> Response:
    group = await _group(desk, id)
    return await desk.render("together.html", {"id": id, "group": group, "wrong": wrong}, status=status)


async def _group(desk: Desk, id: int) -> list[Escalation]:
    """Return an escalation and those alike that wait, and can be answered without looking at each by itself."""
    one = await desk.store.escalations.get(id)
    waiting = await desk.store.escalations.list(status="PENDING", order="due", agent_id=one.agent_id, limit=_MOST)
    group = [each for each in waiting.items if each.id == one.id or similar.alike(one, [each])]
    return [each for each in group if each.kind == "approval" and not marks([each.reason, each.proposal])]


@router.post("/inbox/together/{id}/review")
async def review(request: Request, id: Number) -> Response:
    """Show what the answer would be for each, and what would follow from it."""
    desk = Desk(request)
    typed = await fields(request)
    values = dict(typed)
    choice = values.get("choice", "")
    comment = values.get("comment", "").strip()
    ticked = {value for name, value in typed if name == "id"}
    group = [each for each in await _group(desk, id) if str(each.id) in ticked]
    if choice not in _CHOICES or not group:
        return await _listed(desk, id, "tick what you answer, and choose how", InvalidInputError.status)
    if not comment or len(comment) > _LONGEST:
        return await _listed(desk, id, f"say why, in up to {_LONGEST} characters", InvalidInputError.status)
    proposals = [AlikeProposal(each, (await desk.store.escalations.approvals(each.id)).shown_hash) for each in group]
    page = {"id": id, "group": proposals, "choice": choice, "comment": comment, "outcome": OUTCOMES[choice]}
    return await desk.render("together_review.html", page)


@router.post("/inbox/together/decide")
async def decide(request: Request) -> Response:
    """Answer each of them; who was faster with one of them, or what changed meanwhile, counts."""
    desk = Desk(request)
    typed = await fields(request)
    values = dict(typed)
    choice = values.get("choice", "")
    comment = values.get("comment", "").strip()
    if choice not in _CHOICES or not comment or len(comment) > _LONGEST:
        raise InvalidInputError("an answer has a choice and a comment")
    refused: list[str] = []
    count = 0
    for name, shown_hash in typed:
        if not name.startswith("shown-") or not name[6:].isdecimal():
            continue
        try:
            await desk.store.escalations.resolve(
                int(name[6:]), choice, by=desk.caller.who, comment=comment, shown_hash=shown_hash
            )
            count += 1
        except HoldproofError as error:
            refused.append(f"{name[6:]}: {error.message}")
    text = f"Recorded: {count} {OUTCOMES[choice]}."
    if refused:
        return desk.after("/inbox", f"{text} Not taken: {'; '.join(refused)}.", kind="refused")
    return await following(desk, text, otherwise="/inbox")
