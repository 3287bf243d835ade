"""A flow tree over time: flows, steps, tries, waits, compensation, and where a worker was lost; laid out here, pure.

Rules:
- Every row is a flow or a step; rows of a flow follow it, and flows below it follow those.
- What takes no time is drawn two pixels wide, so that nothing that happened is invisible.
- A flow or step that has not ended is drawn up to now, with an open end.
- At most so many rows are drawn (`MOST_ROWS`); how many are left out is said.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from holdproof.model.flows import (
    LOCK_ACQUIRED,
    LOCK_AWAITED,
    LOCK_GIVEN_UP,
    TAKEN_OVER,
    TERMINAL,
    Flow,
    FlowTree,
    LeaseTakeover,
    Step,
)
from holdproof.model.timelines import TimelineEvent
from holdproof.model.times import to_micros
from holdproof.server.console import axes
from holdproof.server.console.axes import AxisMark
from holdproof.server.console.template_filters import short

MOST_ROWS: Final = 120
WIDTH: Final = 1000.0
NAMES: Final = 250.0
ROW: Final = 24.0
TOP: Final = 26.0
_END: Final = 14.0
_LETTER: Final = 6.4
_LEAST: Final = 2.0
_NAME_LETTERS: Final = 34
_OWN: Final = "flow."
_WAITING: Final = ("flow.sleep", "flow.receive", "flow.promise", "flow.deadline")
_TONES: Final = {"DONE": "good", "FAILED": "bad", "STARTED": "live", "RETRYING": "wait", "UNKNOWN": "wait"}


@dataclass(frozen=True, slots=True)
class GanttBar:
    """A stretch of time in a row: what it is (a class of the style sheet), and what it says."""

    x: float
    width: float
    kind: str
    says: str


@dataclass(frozen=True, slots=True)
class GanttRow:
    """A flow or a step."""

    y: float
    indent: float
    name: str
    whole: str
    """The name without being cut."""
    href: str
    is_flow: bool
    bars: tuple[GanttBar, ...]
    text: str
    """How long it took, beside its bar."""
    text_x: float
    anchor: str


@dataclass(frozen=True, slots=True)
class GanttCut:
    """Where a worker was lost and another one took over: from its last heartbeat on nobody worked on the flow."""

    x: float
    width: float
    y: float
    height: float
    text: str
    text_x: float
    anchor: str
    says: str


@dataclass(frozen=True, slots=True)
class Gantt:
    """What is drawn."""

    rows: tuple[GanttRow, ...]
    marks: tuple[AxisMark, ...]
    cuts: tuple[GanttCut, ...]
    start: str
    end: str
    total_s: float
    left_out: int
    height: float

    def x(self, mark: AxisMark) -> float:
        """Where a mark of the axis stands."""
        return NAMES + mark.at * (WIDTH - NAMES - _END)


@dataclass(slots=True)
class _Scale:
    """From moments to places; the last moment is now where something is still open."""

    start: int
    end: int
    now: str

    def x(self, moment: str) -> float:
        span = max(self.end - self.start, 1)
        share = (min(max(to_micros(moment), self.start), self.end) - self.start) / span
        return NAMES + share * (WIDTH - NAMES - _END)

    def bar(self, start: str, end: str | None, kind: str, says: str) -> GanttBar:
        x = self.x(start)
        width = max(self.x(end or self.now) - x, _LEAST)
        return GanttBar(min(x, WIDTH - _END - _LEAST), width, kind if end else f"{kind} open", says)


@dataclass(slots=True)
class _Records:
    """What happened, by flow."""

    steps: dict[str, list[Step]] = field(default_factory=dict)
    waits: dict[str, list["_Wait"]] = field(default_factory=dict)


def lay_out(
    tree: FlowTree,
    steps: Sequence[Step],
    events: Sequence[TimelineEvent],
    takeovers: Mapping[str, Sequence[LeaseTakeover]],
    now: str,
) -> Gantt:
    """Return the drawing of a flow with all flows below it."""
    records = _sort(steps, events)
    flows = list(_walk(tree))
    scale = _scale([flow for _, flow in flows], steps, events, now)
    rows: list[GanttRow] = []
    cuts: list[GanttCut] = []
    left_out = 0
    for depth, flow in flows:
        first_y = TOP + len(rows) * ROW
        own = [_flow_row(scale, depth, flow, records), *_step_rows(scale, depth, flow, records)]
        room = max(MOST_ROWS - len(rows), 0)
        left_out += max(len(own) - room, 0)
        rows += [_placed(row, TOP + (len(rows) + at) * ROW) for at, row in enumerate(own[:room])]
        height = TOP + len(rows) * ROW - first_y
        cuts += [_cut(scale, each, first_y, height) for each in takeovers.get(flow.flow_id, ()) if height]
    total = (scale.end - scale.start) / 1_000_000
    ends = (min(flow.created_at for _, flow in flows), max(_last(flow, now) for _, flow in flows))
    height = TOP + len(rows) * ROW + 6
    return Gantt(tuple(rows), axes.seconds(total), tuple(cuts), *ends, total, left_out, height)


def taken_over(events: Sequence[TimelineEvent]) -> tuple[str, ...]:
    """Return the flows among these events whose worker was lost and that another one continued."""
    return tuple(dict.fromkeys(each.flow_id for each in events if each.kind == "audit" and each.what == TAKEN_OVER))


def _walk(tree: FlowTree) -> Iterator[tuple[int, Flow]]:
    # With a stack: a tree may be as deep as its agents like.
    coming = [(0, tree)]
    while coming:
        depth, node = coming.pop()
        yield depth, node.flow
        coming += [(depth + 1, child) for child in reversed(node.children)]


def _sort(steps: Sequence[Step], events: Sequence[TimelineEvent]) -> _Records:
    records = _Records()
    for step in steps:
        records.steps.setdefault(step.flow_id, []).append(step)
    answers = {each.ref: each for each in events if each.kind == "answered"}
    for each in events:
        if each.kind == "asked":
            answer = answers.get(each.ref)
            wait = (each.at, answer.at if answer else None, f"waited for a person: {each.what}")
            records.waits.setdefault(each.flow_id, []).append(wait)
    for flow_id, wait in _lock_waits(events):
        records.waits.setdefault(flow_id, []).append(wait)
    return records


_Wait = tuple[str, str | None, str]
"""From when to when, and what it says; without an end it goes on."""
_LOCK_ENDS: Final = {LOCK_ACQUIRED: "and acquired it", LOCK_GIVEN_UP: "and gave up"}


def _lock_waits(events: Sequence[TimelineEvent]) -> Iterator[tuple[str, _Wait]]:
    """Pair the beginnings of waits for locks with their ends, by flow and lock; a lost worker waits no longer."""
    open_waits: dict[tuple[str, str], str] = {}

    def ended(key: tuple[str, str], at: str, how: str) -> Iterator[tuple[str, _Wait]]:
        began = open_waits.pop(key, None)
        if began is not None:
            yield key[0], (began, at, f"waited for the lock {key[1]}, {how}")

    for each in events:
        kind, _, lock = each.what.partition(" ")
        if each.kind != "audit":
            continue
        if kind == TAKEN_OVER:
            for key in [key for key in open_waits if key[0] == each.flow_id]:
                yield from ended(key, each.at, "until its worker was lost")
        elif kind == LOCK_AWAITED:
            # Two works of a flow may wait for one lock at once: the wait goes on from the first.
            open_waits.setdefault((each.flow_id, lock), each.at)
        elif kind in _LOCK_ENDS:
            yield from ended((each.flow_id, lock), each.at, _LOCK_ENDS[kind])
    for (flow_id, lock), at in open_waits.items():
        yield flow_id, (at, None, f"waits for the lock {lock}")


def _scale(flows: Sequence[Flow], steps: Sequence[Step], events: Sequence[TimelineEvent], now: str) -> _Scale:
    ends = [_last(flow, now) for flow in flows] + [each.finished_at for each in steps if each.finished_at]
    ends += [each.at for each in events]
    start = min(flow.created_at for flow in flows)
    return _Scale(to_micros(start), to_micros(max(ends)), max(ends))


def _last(flow: Flow, now: str) -> str:
    if flow.status in TERMINAL:
        return flow.completed_at or flow.updated_at
    return max(now, flow.updated_at)


def _took(start: str, end: str) -> str:
    return axes.length((to_micros(end) - to_micros(start)) / 1_000_000)


def _flow_row(scale: _Scale, depth: int, flow: Flow, records: _Records) -> GanttRow:
    ended = _last(flow, scale.now) if flow.status in TERMINAL else None
    took = _took(flow.created_at, ended or scale.now)
    says = f"{flow.flow_type} of {flow.agent_id}: {flow.status.replace('_', ' ').lower()}, {took}"
    bars = [scale.bar(flow.created_at, ended, f"flow {flow.status.lower()}", says)]
    bars += [scale.bar(start, end or ended, "waits", says) for start, end, says in records.waits.get(flow.flow_id, ())]
    return _row(depth, f"{flow.flow_type} · {flow.agent_id}", f"#f-{flow.flow_id}", bars, took, is_flow=True)


def _step_rows(scale: _Scale, depth: int, flow: Flow, records: _Records) -> Iterator[GanttRow]:
    for step in sorted(records.steps.get(flow.flow_id, ()), key=lambda each: (each.started_at, each.position)):
        open_end = None if flow.status not in TERMINAL else step.started_at
        end = step.finished_at or open_end
        took = _took(step.started_at, end or scale.now)
        tone = _tone(step)
        tries = f", try {step.attempts}" if step.attempts > 1 else ""
        says = f"{step.name}: {step.state.lower()}{tries}, {took}"
        bars = [scale.bar(step.started_at, end, f"step {tone}", says)]
        if step.state == "RETRYING" and step.retry_at:
            bars.append(scale.bar(step.started_at, step.retry_at, "waits", f"tried again at {step.retry_at}"))
        name = step.name if step.n == 1 else f"{step.name} #{step.n}"
        label = f"↩ undoes {step.compensates}" if step.compensates else name
        note = took + (f" · try {step.attempts}" if step.attempts > 1 else "")
        yield _row(depth + 1, label, f"#s-{step.step_id}", bars, note)


def _tone(step: Step) -> str:
    if step.compensates:
        return "back" if step.state == "DONE" else _TONES[step.state]
    if step.name.startswith(_WAITING):
        return "pause"
    return "own" if step.name.startswith(_OWN) and step.state == "DONE" else _TONES[step.state]


def _row(depth: int, name: str, href: str, bars: Sequence[GanttBar], text: str, *, is_flow: bool = False) -> GanttRow:
    indent = min(depth, 8) * 14.0
    letters = _NAME_LETTERS - round(indent / _LETTER)
    cut = name if len(name) <= letters else f"{name[: letters - 1]}…"
    last = max(bars, key=lambda bar: bar.x + bar.width)
    x = last.x + last.width + 6
    anchor = "start"
    # A text that would leave the picture stands before its bar, or inside the bar's beginning.
    if x + len(text) * _LETTER > WIDTH:
        anchor = "end"
        x = min(bar.x for bar in bars) - 6
        if x - len(text) * _LETTER < NAMES:
            anchor = "end"
            x = WIDTH - _END - 6
    return GanttRow(0.0, indent, cut, name, href, is_flow, tuple(bars), text, x, anchor)


def _placed(row: GanttRow, y: float) -> GanttRow:
    fields = (row.indent, row.name, row.whole, row.href, row.is_flow, row.bars, row.text, row.text_x, row.anchor)
    return GanttRow(y, *fields)


def summary(takeover: LeaseTakeover, workers: Mapping[str, str]) -> str:
    """Return a take-over in one line: `worker 8842 lost · taken by 9120 · 2 steps replayed`."""
    lost_worker = workers.get(takeover.lost_worker) or short(takeover.lost_worker)
    worker = workers.get(takeover.worker) or short(takeover.worker)
    steps = "1 step" if takeover.replayed == 1 else f"{takeover.replayed} steps"
    return f"worker {lost_worker} lost · taken by {worker} · {steps} replayed"


def _cut(scale: _Scale, takeover: LeaseTakeover, y: float, height: float) -> GanttCut:
    start = scale.x(takeover.last_heartbeat_at)
    end = scale.x(takeover.at)
    says = summary(takeover, {})
    # Inside the gap where there is room, else beside it, and never over the names.
    text = says if len(says) * _LETTER < end - start - 16 else "worker lost · taken over"
    room = len(text) * _LETTER + 8
    if room < end - start:
        text_x = (start + end) / 2
        anchor = "middle"
    elif end + room < WIDTH:
        text_x = end + 6
        anchor = "start"
    else:
        text_x = max(start - 6, NAMES + room)
        anchor = "end"
    return GanttCut(start, max(end - start, _LEAST), y, height, text, text_x, anchor, says)
