"""Probes: what a user sees of a store, one question each; `None` is: not there.

A probe answers plain JSON and reads only. It goes as deep as its noun allows: bytes are hashed, signatures checked.
"""

from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

from holdproof import errors, sync
from holdproof.model.threads import EncodedList, EncodedValue

Probe = Callable[[sync.Holdproof, str], Any]
PROBES: Final[dict[str, Probe]] = {}


def _probe(fn: Probe) -> Probe:
    """Enter a probe by its name; what is not found is absent."""

    def ask(store: sync.Holdproof, key: str) -> Any:
        try:
            return fn(store, key)
        except errors.NotFoundError:
            return None

    PROBES[fn.__name__.strip("_")] = ask
    return ask


@_probe
def _agent(store: sync.Holdproof, key: str) -> Any:
    return store.agents.get(key).status


@_probe
def _flow(store: sync.Holdproof, key: str) -> Any:
    """The status, which is where the last transition led."""
    flow, steps = store.flows.get(key), store.flows.transitions(key)
    return flow.status if not steps or steps[-1].to_status == flow.status else f"{flow.status}, {steps[-1].to_status}"


@_probe
def _step(store: sync.Holdproof, key: str) -> Any:
    flow_id, name = key.rsplit(" ", 1)
    return next(([each.state, each.result] for each in store.flows.steps(flow_id) if each.name == name), None)


@_probe
def _event(store: sync.Holdproof, key: str) -> Any:
    flow_id, kind = key.rsplit(" ", 1)
    return [
        each.detail for each in store.audit.list(flow_id=flow_id, limit=1000).items if each.event_type == kind
    ] or None


@_probe
def _intent(store: sync.Holdproof, key: str) -> Any:
    return store.ledger.get(key).intent


@_probe
def _lock(store: sync.Holdproof, key: str) -> Any:
    return [[each.flow_id, each.amount] for each in store.locks.list(resource=key).items] or None


@_probe
def _once(store: sync.Holdproof, key: str) -> Any:
    entry = store.idempotency.get(key)
    return [entry.state, entry.result]


@_probe
def _question(store: sync.Holdproof, key: str) -> Any:
    asked = store.escalations.list(flow_id=key, status="RESOLVED").items or store.escalations.list(flow_id=key).items
    return [[each.reason, each.status, each.human_decision] for each in asked] or None


@_probe
def _state(store: sync.Holdproof, key: str) -> Any:
    document = store.state.get(key)
    return [document.version, document.data]


@_probe
def _battle(store: sync.Holdproof, key: str) -> Any:
    """What is said of the DBOM of each judgement of a battle with that score."""
    evaluation, score = key.rsplit(" ", 1)
    rows = [row for row in store.evaluations.list(evaluation_id=evaluation).items if row.score == float(score)]
    return [store.dbom.verify(store.dbom.get(evaluation, id=row.id).text).verdict.word for row in rows] or None


@_probe
def _object(store: sync.Holdproof, key: str) -> Any:
    return store.objects.get(key).content


@_probe
def _snapshot(store: sync.Holdproof, key: str) -> Any:
    return store.snapshots.get(key).message


@_probe
def _image(store: sync.Holdproof, key: str) -> Any:
    """Whether the newest image is whole and not older than that snapshot."""
    line = [each.cid for each in store.snapshots.list(limit=1000).items]
    with store.image.open(verify="full") as image:
        return line.index(image.manifest.head) <= line.index(key)


@_probe
def _blob(store: sync.Holdproof, key: str) -> Any:
    data = store.blobs.get(key)
    return None if data is None else [len(data), sha256(data).hexdigest()]


@_probe
def _checkpoint(store: sync.Holdproof, key: str) -> Any:
    thread, name = key.rsplit(" ", 1)
    found = store.threads.get_checkpoint(thread, checkpoint_id=name)
    if found is None:
        return None
    channels = {name: _digests(value) for name, value in sorted(found.channels.items())}
    return [channels, sorted(each.idx for each in found.writes)]


def _digests(value: Any) -> Any:
    if isinstance(value, EncodedList):
        return [sha256(each).hexdigest() for each in value.elements]
    return sha256(value.data).hexdigest() if isinstance(value, EncodedValue) else value


@_probe
def _transcript(store: sync.Holdproof, key: str) -> Any:
    found = store.transcripts.get(key)
    return [[each.value for each in reversed(store.transcripts.list_items(key, limit=1000).items)], found.state]


@_probe
def _vector(store: sync.Holdproof, key: str) -> Any:
    """What was kept with a vector, if the one nearest to it is itself."""
    found = next((each for each in store.vectors.export() if each.id == key), None)
    if found is None:
        return None
    near = {each.id for each in store.vectors.search(found.vector, 3) if each.distance < 1e-3}
    return found.metadata if key in near else "kept, but not found"


@_probe
def _span(store: sync.Holdproof, key: str) -> Any:
    return len(store.telemetry.query(key, 10_000)) or None


@_probe
def _row(store: sync.Holdproof, key: str) -> Any:
    try:
        found = store.relational.fetch_one("SELECT value FROM harness WHERE name = :name", {"name": key})
    except errors.QueryError:  # no such table
        return None
    return found and found["value"]


@_probe
def _session(store: sync.Holdproof, key: str) -> Any:
    found = store.sessions.get_session(key)
    return found and [found.name, found.state]


@_probe
def _restored(store: sync.Holdproof, key: str) -> Any:
    """What is said of a home beside this one that was made from its backup, and whether it has an object."""
    name, id = key.split(" ")
    place = Path(store.status().paths["data"]).parent / name
    if not place.exists():
        return None
    with sync.open(place) as other:
        if other.status().store_id != store.status().store_id:  # nothing came there, and opening it made a new store
            return None
        found = [each.id for each in other.objects.list(limit=1000).items]
        return [other.verify.run(full=True).verdict.word, id in found]


@_probe
def _backup(store: sync.Holdproof, key: str) -> Any:
    """Whether a backup beside the home is there, and checked through and through."""
    place = Path(store.status().paths["data"]).parent / key
    return store.backup.check(place).store_id == store.status().store_id if place.exists() else None
