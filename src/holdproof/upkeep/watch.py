"""Watching a store: what is under way, who is asked, where the log stands, what is wrong.

Rules:
- A look costs what is under way, not what the store holds: flows that have ended are counted nowhere.
- A watcher is woken by a question or its answer, and looks by itself every few moments for the rest.
- Only what has changed is told.
"""

from typing import Final

from holdproof.db import Give, Read, Stream, Tx, Wait, Work, ask, sql
from holdproof.errors import InvalidInputError
from holdproof.evidence import log
from holdproof.memory.images import image
from holdproof.model.flows import OPEN, Flow
from holdproof.model.namespaces import MAIN
from holdproof.model.times import later
from holdproof.model.watch import Frame
from holdproof.runtime import gauges, inbox
from holdproof.storage import degraded
from holdproof.store.context import Context
from holdproof.upkeep import lockdown
from holdproof.validation import limited

_OPEN: Final = ", ".join(f"'{status}'" for status in OPEN)
_COLUMNS: Final = (
    "dfid, root_dfid, dfid_parent, agent_id, flow_type, flow_version, status, created_by_type, created_by_id,"
    " priority, started_at, completed_at, created_at, updated_at, ns"
)
_UNDER_WAY = sql(
    f"SELECT {_COLUMNS} FROM decision_flows WHERE ns = :ns AND status IN ({_OPEN})"  # noqa: S608 (ours)
    " ORDER BY updated_at DESC, dfid DESC LIMIT :limit"
)
_NEWEST = sql(f"SELECT {_COLUMNS} FROM decision_flows WHERE ns = :ns ORDER BY dfid DESC LIMIT :limit")  # noqa: S608


def look(context: Context, *, limit: int = 20, ns: str = MAIN) -> Work[Frame]:
    """The store as it is now."""
    limited(limit)
    locked = yield from lockdown.status(context)
    settled = [*context.settings.warnings, *degraded.warnings(degraded.read(context.paths)).values()]
    settled += image.warnings(context.paths)

    def read(tx: Tx) -> Frame:
        head = log.head(tx).checkpoint
        newest = [Flow(*row) for row in tx.all(_NEWEST, ns=ns, limit=limit)]
        return Frame(
            at=tx.now,
            origin=head.origin,
            size=head.size,
            root=head.root.hex(),
            pending=log.pending(tx),
            locked=locked,
            degraded=tuple(settled),
            counts=gauges.flows(tx, ns=ns),
            flows=tuple(Flow(*row) for row in tx.all(_UNDER_WAY, ns=ns, limit=limit)),
            ended=tuple(flow for flow in newest if flow.ended),
            escalations=tuple(inbox.list(tx, status="PENDING", order="due", limit=limit, ns=ns).items),
        )

    return (yield from ask(Read(read)))


def follow(
    context: Context, *, every_s: float = 1.0, rounds: int | None = None, limit: int = 20, ns: str = MAIN
) -> Stream[Frame]:
    """The store as it is now, and again whenever it has changed; for ever, or so many looks."""
    if not 0.05 <= every_s <= 86_400:
        raise InvalidInputError("a watcher looks every 0.05 to 86,400 seconds", every_s=every_s)
    told: Frame | None = None
    while rounds is None or rounds > 0:
        frame = yield from look(context, limit=limit, ns=ns)
        if not frame.same(told):
            told = frame
            yield Give(frame)
        rounds = None if rounds is None else rounds - 1
        if rounds != 0:
            yield from _pause(frame.at, every_s, ns)


def _pause(now: str, every_s: float, ns: str) -> Work[None]:
    """Wait for as long after the last look, or until somebody is asked; a question since that look ends it at once."""
    until = later(now, every_s)
    while now < until:
        woken: bool = yield Wait(f"escalations:{ns}", until)
        now = until if woken else (yield from ask(Read(lambda tx: tx.now)))
