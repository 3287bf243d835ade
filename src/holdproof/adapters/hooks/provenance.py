"""Where the lines of a commit come from: for each hunk the recorded change that wrote it.

Rules:
- A hunk comes from the newest change of the same file that was recorded before the commit and holds all of its lines,
  one after the other. Where none does, the change that holds the most of them is named with how many.
- A hunk that only removes lines comes from the change that took them away.
- What commands, formatters and people wrote was reported by no hook: such a hunk comes from nowhere, and is shown so.
- A file is known by its name within the repository and by the top of the work tree it was changed in.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from holdproof import sync
from holdproof.adapters import captured
from holdproof.adapters.hooks import git, tools
from holdproof.kernel import MAIN, Tx, audit
from holdproof.model.records import AuditEvent
from holdproof.model.value import Value

_PAGE: Final = 500


@dataclass(frozen=True, slots=True)
class Origin(Value):
    """A hunk of a commit, and the recorded change that it comes from; None for what nobody recorded."""

    path: str
    start: int
    lines: int
    """How many lines it adds, or removes where it adds none."""
    matched: int
    """How many of them the change holds."""
    flow_id: str | None
    event: int | None
    """The audit event of the change."""
    call: str | None
    prompt: int | None
    """The audit event of the prompt before it."""
    at: str | None


@dataclass(frozen=True, slots=True)
class Blame(Value):
    """A commit's hunks with their origins."""

    commit: str
    at: str
    hunks: tuple[Origin, ...]

    @property
    def complete(self) -> bool:
        """Whether every line comes from a recorded change."""
        return all(each.matched == each.lines for each in self.hunks)


@dataclass(frozen=True, slots=True)
class _Recorded:
    """A recorded change, with its lines."""

    event: AuditEvent
    added: tuple[str, ...]
    removed: tuple[str, ...]


def blame(store: sync.Holdproof, folder: str, revision: str = "HEAD", *, ns: str = MAIN) -> Blame:
    """Return where the hunks of a commit come from. NotFoundError where git knows no such commit."""
    commit = git.commit(folder, revision)
    root = git.root_of(folder)
    paths = {hunk.path for hunk in commit.hunks}
    recorded = store.read(lambda tx: _changes(tx, root, paths, ns))
    origins = [_origin(hunk, recorded.get(hunk.path, [])) for hunk in commit.hunks]
    flows = {each.flow_id for each in origins if each.flow_id is not None}
    prompts = store.read(lambda tx: {flow_id: _prompts(tx, flow_id, ns) for flow_id in flows})
    return Blame(commit.id, commit.at, tuple(_prompted(each, prompts) for each in origins))


def _changes(tx: Tx, root: str | None, paths: set[str], ns: str) -> dict[str, list[_Recorded]]:
    """Return the recorded changes of files, by file, newest first."""
    changes: dict[str, list[_Recorded]] = {}
    cursor: str | None = None
    while True:
        page = audit.list(tx, event_type=tools.EDIT, cursor=cursor, limit=_PAGE, ns=ns)
        for event in page.items:
            detail = event.detail
            if isinstance(detail, dict) and detail.get("path") in paths and detail.get("root") == root:
                whole = captured.read_texts(tx, detail)
                recorded = _Recorded(event, _lines(whole["added"]), _lines(whole["removed"]))
                changes.setdefault(detail["path"], []).append(recorded)
        cursor = page.next_cursor
        if cursor is None:
            return changes


def _lines(text: str) -> tuple[str, ...]:
    return tuple(line.rstrip("\r") for line in text.split("\n"))


def _origin(hunk: git.Hunk, recorded: Sequence[_Recorded]) -> Origin:
    lines_of_hunk = hunk.added or hunk.removed
    best: _Recorded | None = None
    most = 0
    for each in recorded:
        matched = _matched(lines_of_hunk, each.added if hunk.added else each.removed)
        if matched > most:
            most = matched
            best = each
        if most == len(lines_of_hunk):
            break
    if best is None:
        return Origin(hunk.path, hunk.start, len(lines_of_hunk), 0, None, None, None, None, None)
    event = best.event
    call = event.step_id or None
    return Origin(
        hunk.path, hunk.start, len(lines_of_hunk), most, event.flow_id, event.id, call, None, event.created_at
    )


def _matched(lines_of_hunk: Sequence[str], lines: Sequence[str]) -> int:
    """Return how many lines of a hunk a change holds: all where they follow one another, else those it has at all."""
    lengths = range(len(lines) - len(lines_of_hunk) + 1)
    plain = [line.rstrip("\r") for line in lines_of_hunk]
    if any(list(lines[at : at + len(plain)]) == plain for at in lengths):
        return len(plain)
    # Blank lines are everywhere: they show nothing. One short of all, since they do not follow one another.
    own_lines = {line for line in lines if line.strip()}
    return min(sum(line in own_lines for line in plain), len(plain) - 1)


def _prompts(tx: Tx, flow_id: str, ns: str) -> list[int]:
    """Return the events of a session's prompts, newest first."""
    numbers: list[int] = []
    cursor: str | None = None
    while True:
        page = audit.list(tx, flow_id=flow_id, event_type=tools.PROMPT, cursor=cursor, limit=_PAGE, ns=ns)
        numbers += [event.id for event in page.items]
        cursor = page.next_cursor
        if cursor is None:
            return numbers


def _prompted(origin: Origin, prompts: dict[str, list[int]]) -> Origin:
    """Return an origin with the prompt that came before its change."""
    event = origin.event
    if origin.flow_id is None or event is None:
        return origin
    prompt = next((number for number in prompts[origin.flow_id] if number < event), None)
    return Origin(
        path=origin.path,
        start=origin.start,
        lines=origin.lines,
        matched=origin.matched,
        flow_id=origin.flow_id,
        event=event,
        call=origin.call,
        prompt=prompt,
        at=origin.at,
    )
