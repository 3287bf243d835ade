"""Watch a store: flows in progress, escalations, the state of the log, warnings.

Rules:
- The cost depends on what is in progress, not on the size of the store: flows that have ended are not counted.
- A watcher is woken by an escalation or its resolution, and polls for the rest.
- A frame is yielded only if something has changed.
"""

from typing import Final

from holdproof.db import Give, Read, Stream, Tx, Wait, Work, ask, sql, sql_by_key
from holdproof.errors import InvalidInputError
from holdproof.evidence import log
from holdproof.memory.images import image_files
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
_NEWEST = sql_by_key(f"SELECT {_COLUMNS} FROM decision_flows WHERE ns = :ns ORDER BY dfid DESC LIMIT :limit")  # noqa: S608


def look(context: Context, *, limit: int = 20, ns: str = MAIN) -> Work[Frame]:
    """Return the store as it is now."""
    limited(limit)
    locked = yield from lockdown.status(context)
    warnings = [*context.settings.warnings, *degraded.warnings(degraded.read(context.paths)).values()]
    warnings += image_files.warnings(context.paths)

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
            degraded=tuple(warnings),
            counts=gauges.flows(tx, ns=ns),
            flows=tuple(Flow(*row) for row in tx.all(_UNDER_WAY, ns=ns, limit=limit)),
            ended=tuple(flow for flow in newest if flow.ended),
            escalations=tuple(inbox.list(tx, status="PENDING", order="due", limit=limit, ns=ns).items),
        )

    return (yield from ask(Read(read)))


def follow(
    context: Context, *, every_s: float = 1.0, rounds: int | None = None, limit: int = 20, ns: str = MAIN
) -> Stream[Frame]:
    """Yield the store as it is now, and again whenever it has changed; for ever, or for so many rounds."""
    if not 0.05 <= every_s <= 86_400:
        raise InvalidInputError("a watcher looks every 0.05 to 86,400 seconds", every_s=every_s)
    last: Frame | None = None
    while rounds is None or rounds > 0:
        frame = yield from look(context, limit=limit, ns=ns)
        if not frame.same(last):
            last = frame
            yield Give(frame)
        # No pause after the last round.
        rounds = None if rounds is None else rounds - 1
        if rounds != 0:
            yield from _pause(frame.at, every_s, ns)


def _pause(now: str, every_s: float, ns: str) -> Work[None]:
    """Wait for that long after the last frame, or until an escalation changes; one since that frame ends it at once."""
    until = later(now, every_s)
    while now < until:
        woken: bool = yield Wait(f"escalations:{ns}", until)
        now = until if woken else (yield from ask(Read(lambda tx: tx.now)))
