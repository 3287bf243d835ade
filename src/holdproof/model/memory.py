"""What agents know: objects, their versions, snapshots, and what differs between two."""

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from holdproof.model.value import Value


def plain(value: Any) -> Any:
    """A value as JSON can show it: bytes and links as the AT Protocol writes them."""
    if isinstance(value, bytes):
        return {"$bytes": b64encode(value).decode()}
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if hasattr(value, "to_dict"):
        return value.to_dict()
    if hasattr(value, "codec"):
        return {"$link": str(value)}
    return [plain(item) for item in value] if isinstance(value, list | tuple) else value


@dataclass(frozen=True, slots=True)
class Plain(Value):
    """A value whose fields hold anything that records can."""

    def to_dict(self) -> dict[str, Any]:
        """The value as JSON shows it."""
        return {each.name: plain(getattr(self, each.name)) for each in fields(self)}


@dataclass(frozen=True, slots=True)
class Tagged(Plain):
    """A value of a type that only others know: the name of the type, and its bytes."""

    tag: str
    data: bytes


@dataclass(frozen=True, slots=True)
class Object(Plain):
    """One version of an object, and what is volatile about it."""

    id: str
    type: str
    content: Any
    attributes: dict[str, Any]
    parent: str | None
    children: tuple[str, ...]
    version: int
    meta: dict[str, Any]
    cid: str
    ns: str
    subject: str | None = None
    """The handle of the person whose it is; None where it is nobody's."""
    hidden: str | None = None
    """Why content, attributes and meta are not shown: `erased` with their subject, or `locked`, the key is not here."""


@dataclass(frozen=True, slots=True)
class Near(Plain):
    """An object that was found by its vector; `distance` is one minus the cosine."""

    object: Object
    distance: float


@dataclass(frozen=True, slots=True)
class ObjectFolder(Value):
    """The objects whose ids begin with one prefix: how many, or that there are `more` than were counted."""

    prefix: str
    count: int
    more: bool


@dataclass(frozen=True, slots=True)
class ObjectFolders(Value):
    """The folders below a prefix; not `complete` where there are more than were looked for."""

    prefix: str
    folders: list[ObjectFolder]
    complete: bool


@dataclass(frozen=True, slots=True)
class ObjectVersion(Value):
    """One write of an object; `cid` is None where it was deleted."""

    n: int
    version: int
    cid: str | None
    at: str
    pruned_at: str | None = None
    """When retention let its content go; None where it is there."""
    flow_id: str | None = None
    """The flow whose step wrote it; None where no step did."""
    agent_id: str | None = None


@dataclass(frozen=True, slots=True)
class ObjectUse(Value):
    """A step of a flow that read an object: when, and which version."""

    id: int
    """The number of the flow's event that says so."""
    at: str
    flow_id: str
    agent_id: str
    flow_type: str
    version: int | None
    cid: str | None
    snapshot: str | None
    """The snapshot that was read; None where it was the object as it stood."""


@dataclass(frozen=True, slots=True)
class Branch(Plain):
    """An object and those below it; `missing` are children that are named and not there."""

    object: Object
    children: tuple["Branch", ...]
    missing: tuple[str, ...]
    cut: bool
    """Whether there is more below than was asked for."""


@dataclass(frozen=True, slots=True)
class Snapshot(Value):
    """A signed state of all objects of a namespace."""

    cid: str
    root: str
    rev: str
    prev: str | None
    did: str
    author: str
    message: str
    reason: str
    merged: str | None
    created_at: str
    ns: str


@dataclass(frozen=True, slots=True)
class Difference(Plain):
    """How one object differs: the fields that are other, old and new; an object that is new or gone has one side."""

    id: str
    change: str
    """`added`, `removed`, `changed`, or `meta` where only volatile fields differ."""
    fields: dict[str, tuple[Any, Any]]


@dataclass(frozen=True, slots=True)
class Diff(Plain):
    """How a state differs from another, object by object, a page at a time; see `Page` for `next_cursor`."""

    old: str
    new: str
    differences: tuple[Difference, ...]
    next_cursor: str | None


@dataclass(frozen=True, slots=True)
class SnapshotsImported(Value):
    """What became of a state that came from outside: `same`, `forward`, or `forced`, and how much of it was new."""

    how: str
    head: str
    rev: str
    snapshots: int
    blocks: int


@dataclass(frozen=True, slots=True)
class Dumped(Value):
    """An image that was written: its manifest, its head, and what it cost."""

    path: str
    head: str
    rev: str
    kind: str
    """`base`, `delta`, or `nothing` where the newest image was up to date."""
    bytes: int
    blocks: int
    files: int


@dataclass(frozen=True, slots=True)
class ImageFile(Value):
    """An image as it lies in its folder; `damage` says why it cannot be read."""

    name: str
    head: str
    rev: str
    made_at: str
    files: int
    bytes: int
    damage: str | None


@dataclass(frozen=True, slots=True)
class Loaded(Value):
    """An image that was loaded: which one, what became of it, and what is not as it should be."""

    path: str
    head: str
    rev: str
    how: str
    snapshots: int
    blocks: int
    degraded: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Archived(Value):
    """A state that was written to a file or given to a node: its name there, and what it holds."""

    cid: str
    head: str
    rev: str
    bytes: int
    blocks: int
    mode: str
    """`car`: a file here; `dag`: blocks in IPFS; `file`: one file in IPFS."""
    encrypted: bool


@dataclass(frozen=True, slots=True)
class Collected(Value):
    """Blocks that nothing led to any more, and their bytes; with `dry_run` they are still there."""

    blocks: int
    bytes: int
    dry_run: bool
