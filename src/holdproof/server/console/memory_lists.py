"""The lists of what agents know, declared as the others: objects, snapshots, threads, transcripts."""

from typing import Final

from holdproof.memory.objects import objects
from holdproof.server.console.desk import Desk
from holdproof.server.console.list_pages import EmptyList, Filter, ListColumn, ListPage, Row

_MOST_OBJECTS: Final = 200


async def _add_last_writes(desk: Desk, rows: list[Row]) -> None:
    """Add when each object was written last."""
    ids = [row["id"] for row in rows]
    written = await desk.state.store.read(lambda tx: objects.last_writes(tx, ids, ns=desk.ns))
    for row in rows:
        row["written_at"] = written.get(row["id"])


OBJECTS: Final = ListPage(
    path="/memory/objects",
    title="Objects",
    sub="What agents know now, by id; the range of time is that of the last write.",
    resource="objects",
    method="list",
    at="written_at",
    newest_first=False,
    most_rows=_MOST_OBJECTS,
    join=_add_last_writes,
    columns=(
        ListColumn("id", "object", "object"),
        ListColumn("type", "type"),
        ListColumn("content", "content", "json"),
        ListColumn("version", "version", "number"),
        ListColumn("written_at", "last written", "time"),
    ),
    filters=(
        Filter("prefix", "Ids that begin with", argument="prefix", placeholder="market/"),
        Filter("type", "Type", "type", facet=True),
    ),
    links=(("/memory", "Folders and search"), ("/memory/snapshots", "Snapshots")),
    empty=EmptyList(
        "Nothing is known yet.",
        "An agent keeps what it learns as objects, each with its history:",
        'await store.objects.put("market/dax", type="fact", content={"trend": "up"})',
    ),
)

SNAPSHOTS: Final = ListPage(
    path="/memory/snapshots",
    title="Snapshots",
    sub="Signed states of all objects.",
    resource="snapshots",
    method="list",
    at="created_at",
    template="snapshots.html",
    columns=(
        ListColumn("message", "snapshot"),
        ListColumn("rev", "rev"),
        ListColumn("author", "author"),
        ListColumn("reason", "reason"),
        ListColumn("created_at", "when", "time"),
        ListColumn("cid", "CID", "id"),
    ),
    filters=(Filter("author", "Author", "author", facet=True),),
    links=(("/memory", "Memory"), ("/memory/objects", "All objects")),
    empty=EmptyList(
        "No snapshot was signed yet.",
        "A snapshot is the state of all objects, signed and logged: two of them can be compared, and everything can go"
        " back to one.",
        'await store.snapshots.create("before the experiment")',
    ),
)

THREADS: Final = ListPage(
    path="/threads",
    title="Threads",
    sub="Runs of agent frameworks: their conversations and checkpoints.",
    resource="threads",
    method="list",
    at="updated_at",
    live="flow",
    columns=(
        ListColumn("thread_id", "thread", "thread"),
        ListColumn("status", "status", "badge"),
        ListColumn("checkpoints", "checkpoints", "number"),
        ListColumn("facts", "facts", "json"),
        ListColumn("updated_at", "last written", "time"),
        ListColumn("created_at", "begun", "time"),
        ListColumn("checkpoint_id", "newest checkpoint", "id"),
    ),
    filters=(Filter("status", "Status", "status", argument="status", facet=True),),
    links=(("/threads/transcripts", "Transcripts"),),
    empty=EmptyList(
        "No thread.",
        "A framework's checkpointer writes them, as that of LangGraph:",
        "graph = builder.compile(checkpointer=HoldproofSaver(store))",
    ),
)

TRANSCRIPTS: Final = ListPage(
    path="/threads/transcripts",
    title="Transcripts",
    sub="Conversations of agent frameworks, item by item.",
    resource="transcripts",
    method="list",
    at="updated_at",
    newest_first=False,
    columns=(
        ListColumn("name", "transcript", "transcript"),
        ListColumn("rev", "changes", "number"),
        ListColumn("updated_at", "last written", "time"),
        ListColumn("created_at", "begun", "time"),
    ),
    filters=(Filter("prefix", "Names that begin with", argument="prefix", placeholder="support-"),),
    links=(("/threads", "Threads"),),
    empty=EmptyList(
        "No transcript.",
        "Sessions of agent frameworks write them, and so does a line of Python:",
        'await store.transcripts.append("support-17", [{"role": "user", "content": "hello"}])',
    ),
)

LISTS: Final = (OBJECTS, SNAPSHOTS, THREADS, TRANSCRIPTS)
