"""`holdproof escalations answer`: what agents ask, read and answered on a terminal, one after the other.

Rules:
- What is shown is what is answered: characters that cannot be seen stand by their number, and whoever answers says to
  have read them. The answer names what was shown (`shown_hash`); where that has changed since, it is shown anew.
- The consequence stands before the confirmation, and nothing is sent without one. An answer is given once.
- Every answer has a comment, but an approval of low impact exactly as it was proposed.
- A value that is edited keeps its type: a number stays a number.
- A step in doubt has answers of its own, and can be neither approved nor rejected.
- Without a terminal it refuses at once: it never waits for somebody who is not there.
"""

import getpass
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Final

import click
from rich.text import Text

from holdproof.cli import complete, draw, times
from holdproof.cli.call import Argument, CommandContext, Namespace, Option, command
from holdproof.cli.render import say
from holdproof.errors import ForbiddenError, HoldproofError, InvalidInputError, NotFoundError, ShownChangedError
from holdproof.model import differences
from holdproof.model.approvals import Approvals
from holdproof.model.coordination import Escalation
from holdproof.model.differences import ProposalPart
from holdproof.model.visible_text import marks, visible
from holdproof.sync import Holdproof

COMMANDS: dict[str, click.Command] = {}

_PAGE: Final = 100
_TALK: Final = {"b": "ask back", "h": "hand over", "s": "skip", "q": "quit"}
_CHOICES: Final[Mapping[str, Mapping[str, str]]] = {
    "approval": {"a": "approve", "e": "edit", "r": "reject", "c": "cancel the flow", **_TALK},
    "in_doubt": {"y": "it happened", "n": "it did not happen: run it", "u": "undo the flow", **_TALK},
}
_WORDS: Final = {
    "a": "approve",
    "e": "approve",
    "r": "reject",
    "c": "cancel",
    "y": "happened",
    "n": "did_not_happen",
    "u": "undo",
}
"""The answers, by their keys."""
_UNDONE: Final = "steps that were done and can be undone are undone."
_CONSEQUENCES: Final = {
    "approve": "The flow goes on at once {how}. What it does after that cannot be called back.",
    "reject": f"The flow fails; {_UNDONE}",
    "cancel": f"The flow ends as cancelled; {_UNDONE}",
    "happened": "The step is not run again: its result is {how}, and the flow goes on with it.",
    "did_not_happen": "The step is run again, and the flow goes on. If it did happen, it happens twice.",
    "undo": f"The flow fails; {_UNDONE} The step in doubt is not.",
}
_LEAVE_OUT: Final = "-"


class _Quit(Exception):
    """Who answers has had enough."""


@command(COMMANDS, "escalations answer", example="holdproof escalations answer", group="Approve", reach="server")
def answer(
    call: CommandContext,
    id: Annotated[
        int | None, Argument("The escalation; all that wait, the most urgent first.", complete=complete.escalations)
    ] = None,
    *,
    by: Annotated[str | None, Option("--by", help="Your name in the record: that of your login here.")] = None,
    ns: Namespace = "main",
) -> dict[str, int]:
    """Read what agents ask and answer it on this terminal: approve, edit, reject, ask back, hand over."""
    if not (sys.stdin and sys.stdin.isatty() and sys.stdout and sys.stdout.isatty()):
        raise InvalidInputError(
            "there is no terminal to ask on: holdproof escalations resolve ID approve --by NAME answers without one"
        )
    with call.open(create=False) as store:
        return AnswerDialog(store, by or getpass.getuser(), ns, through_server=call.remote is not None).run(id)


class AnswerDialog:
    """One sitting of a person who answers."""

    def __init__(self, store: Holdproof, by: str, ns: str, *, through_server: bool) -> None:
        self._store = store
        self._by = by
        self._ns = ns
        # A server writes down who the token belongs to, whatever is passed.
        self._signer = "the holder of your token" if through_server else by
        self._seen: set[int] = set()
        self._counts = {"answered": 0, "skipped": 0, "not_taken": 0}

    def run(self, id: int | None) -> dict[str, int]:
        """Go through one escalation, or all that wait; return how many were answered."""
        try:
            if id is not None:
                self._take(id)
            else:
                while (waiting := self._next()) is not None:
                    self._take(waiting.id)
                say(Text("Nothing else waits for an answer.\n" if self._seen else "Nothing waits for an answer.\n"))
        except _Quit:
            pass
        return self._counts

    def _next(self) -> Escalation | None:
        cursor = None
        while True:
            page = self._store.escalations.list(status="PENDING", order="due", cursor=cursor, limit=_PAGE, ns=self._ns)
            unseen = (each for each in page.items if each.id not in self._seen)
            if (escalation := next(unseen, None)) is not None or page.next_cursor is None:
                return escalation
            cursor = page.next_cursor

    def _take(self, id: int) -> None:
        """Show an escalation and act on what is chosen, again for as long as it stays undecided here."""
        self._seen.add(id)
        is_open = True
        while is_open:
            escalation = self._store.escalations.get(id, ns=self._ns)
            approvals = self._store.escalations.approvals(id, ns=self._ns)
            parts = differences.parts(escalation.proposal, self._present(escalation))
            say(shown(escalation, approvals, parts))
            if escalation.status != "PENDING":
                say(Text(f"It is decided: {escalation.outcome} by {visible(str(escalation.resolved_by))}.\n"))
                return
            try:
                is_open = self._act(escalation, approvals, parts)
            except ShownChangedError:
                say(Text("It has changed since it was shown. This is how it stands now:\n", style="yellow"))
            except HoldproofError as error:
                self._counts["not_taken"] += 1
                say(Text(f"Not taken: {visible(error.message)}. {visible(error.remedy)}\n", style="red"))
                return

    def _present(self, escalation: Escalation) -> list[tuple[str, Any]]:
        """Return what the proposal is compared with, as far as the caller may see it."""
        readers: dict[str, Callable[[], Any]] = {
            "context": lambda: self._store.contexts.get(escalation.flow_id, ns=self._ns),
            "agent state": lambda: self._store.state.get(escalation.agent_id, ns=self._ns),
        }
        documents = []
        for name, read in readers.items():
            try:
                documents.append((name, read().data))
            except (NotFoundError, ForbiddenError):
                continue
        return documents

    def _act(self, escalation: Escalation, approvals: Approvals, parts: Sequence[ProposalPart]) -> bool:
        """Ask what to do and do it; return whether the escalation is to be shown again."""
        choices = _CHOICES[escalation.kind]
        key = _choose(choices)
        if key == "q":
            raise _Quit
        if key == "s":
            self._counts["skipped"] += 1
            return False
        if key == "b":
            text = _text("What do you ask the agent")
            self._store.escalations.ask(escalation.id, text, by=self._by, ns=self._ns)
            say(Text("The agent was asked; its flow keeps waiting.\n"))
            return False
        if key == "h":
            line = _text("Who has to answer, as `ann` or `2 of finance`")
            handed = self._store.escalations.reassign(
                escalation.id, line, by=self._by, comment=_text("Why"), ns=self._ns
            )
            say(Text(f"Handed over to {visible(str(handed.approvers))}.\n"))
            return False
        return self._answer(escalation, approvals, parts, key)

    def _answer(self, escalation: Escalation, approvals: Approvals, parts: Sequence[ProposalPart], key: str) -> bool:
        word = _WORDS[key]
        proposal = _edited(parts) if key == "e" else None
        result = _json("Its result, as JSON (Enter: nothing)") if key == "y" else None
        is_plain = word == "approve" and proposal is None and escalation.impact != "HIGH_IMPACT"
        comment = _text("Why (Enter: no comment)" if is_plain else "Why", required=not is_plain)
        if hidden := _marks(escalation):
            say(Text(f"Not everything is what it looks like: {'; '.join(hidden)}.\n", style="bold red"))
            if not click.confirm("Have you read the marked characters?"):
                return True
        say(self._consequence(word, proposal, result, comment))
        if not click.confirm("Confirm?"):
            return True
        resolved = self._store.escalations.resolve(
            escalation.id,
            word,
            by=self._by,
            proposal=proposal,
            result=result,
            comment=comment or None,
            shown_hash=approvals.shown_hash,
            ns=self._ns,
        )
        self._counts["answered"] += 1
        others = "your answer counts, and others still have to answer"
        say(Text(f"Recorded: {others if resolved.status == 'PENDING' else resolved.outcome}.\n\n", style="green"))
        return False

    def _consequence(self, word: str, proposal: Any, result: Any, comment: str) -> Text:
        how = {"approve": "as the agent proposed", "happened": draw.cell(differences.written(result))}.get(word, "")
        if proposal is not None:
            how = f"with {draw.cell(differences.written(proposal))} instead of what the agent proposed"
        text = Text().append("\nConsequence  ", style="bold").append(_CONSEQUENCES[word].format(how=how))
        signed = f"\nIn the signed log: {visible(self._signer)}, {visible(comment) or 'no comment'}. Given once.\n"
        return text.append(signed, style="dim")


def shown(escalation: Escalation, approvals: Approvals, parts: Sequence[ProposalPart]) -> Text:
    """Draw an escalation as it is answered: who asks, why, until when, what was said, what changes."""
    present = times.now()
    text = Text().append(f"\nEscalation {escalation.id}  ", style="bold").append(f"{visible(escalation.reason)}\n")
    until = "no deadline"
    if escalation.deadline is not None:
        until = f"{escalation.deadline} ({times.relative(escalation.deadline, present)}), then {escalation.on_deadline}"
    facts: list[tuple[str, str]] = [
        ("impact", escalation.impact),
        ("agent", escalation.agent_id),
        ("flow", escalation.flow_id),
        ("asked", times.relative(escalation.created_at, present)),
        ("deadline", until),
        ("to answer", escalation.approvers or "anybody who may"),
    ]
    facts += _context(escalation)
    facts += [(each.kind, f"{each.text} ({each.said_by})") for each in approvals.messages]
    width = max(len(visible(name)) for name, _ in facts) + 2
    for name, value in facts:
        text.append(f"{visible(name):<{width}}", style="cyan").append(f"{draw.cell(value)}\n")
    if escalation.kind == "approval":
        text.append("What changes\n", style="bold")
        for part in parts:
            text.append(_part(part))
    for each in _marks(escalation):
        text.append(f"careful: {each}\n", style="bold red")
    return text


def _context(escalation: Escalation) -> list[tuple[str, str]]:
    """Return the agent's reasons, or what is known of the step in doubt."""
    if isinstance(escalation.context, Mapping):
        return [(str(name).replace("_", " "), _plain(value)) for name, value in escalation.context.items()]
    return [] if escalation.context is None else [("why", _plain(escalation.context))]


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else differences.written(value)


def _part(part: ProposalPart) -> Text:
    before = Text() if part.kind == "added" else Text(f"{draw.cell(differences.written(part.current))}", style="red")
    line = Text(f"  {part.number + 1}  ").append(draw.cell(part.name), style="bold").append("  ")
    if part.kind == "changed":
        line.append(before).append(" -> ")
    line.append(draw.cell(part.text), style="default" if part.kind == "same" else "green")
    note = {"added": "new", "same": f"as in the {part.source}", "changed": part.source}[part.kind]
    return line.append(f"  ({note})\n", style="dim")


def _marks(escalation: Escalation) -> list[str]:
    return marks([escalation.reason, escalation.proposal, escalation.context])


# --- asking ------------------------------------------------------------------------------------------------------


def _choose(choices: Mapping[str, str]) -> str:
    """Ask for one of the keys; what does not belong to them is asked again."""
    line = Text()
    for key, label in choices.items():
        line.append(f"[{key}] ", style="bold").append(f"{label}  ")
    say(line.append("\n"))
    chosen: str = click.prompt("Your answer", type=click.Choice([*choices], case_sensitive=False), show_choices=False)
    return chosen


def _text(prompt: str, *, required: bool = True) -> str:
    text: str = click.prompt(prompt, default=None if required else "", show_default=False)
    return text.strip()


def _json(prompt: str) -> Any:
    while True:
        text = _text(prompt, required=False)
        try:
            return json.loads(text) if text else None
        except ValueError as error:
            say(Text(f"That is no JSON ({error}); a text stands in quotation marks.\n", style="yellow"))


def _edited(parts: Sequence[ProposalPart]) -> Any:
    """Ask for another value of each part; return the proposal that they make, or None where nothing was changed."""
    say(Text(f"Enter keeps a value, {_LEAVE_OUT} leaves it out.\n", style="dim"))
    chosen: list[tuple[ProposalPart, Any]] = []
    for part in parts:
        value = _edited_part(part)
        if value is not differences.ABSENT:
            chosen.append((part, value))
    if not chosen:
        raise InvalidInputError("everything was left out: to authorise nothing, reject")
    is_plain = len(chosen) == len(parts) and all(differences.equal(value, part.proposed) for part, value in chosen)
    return None if is_plain else differences.assembled(chosen)


def _edited_part(part: ProposalPart) -> Any:
    while True:
        label = f"{part.number + 1}  {draw.cell(part.name)} [{draw.cell(part.text)}]"
        text = _text(label, required=False)
        if text == _LEAVE_OUT:
            return differences.ABSENT
        try:
            return part.edited(text) if text else part.proposed
        except InvalidInputError as error:
            say(Text(f"{visible(error.message)}\n", style="yellow"))
