"""The resources of memory: objects and their snapshots, images, archives, threads, transcripts, notes and skills."""

from typing import TYPE_CHECKING, Final, Generic

from holdproof.api.noted import NotedReads, NotedRuns, NotedWrites
from holdproof.executors import Executor, Reads, Resource, Runs, RunsWith, StreamsWith, Writes
from holdproof.executors.exit_codes import exit_skills
from holdproof.lazy import lazy_functions

if TYPE_CHECKING:
    from holdproof.content import values
    from holdproof.importers.lisp import files
    from holdproof.memory.archive import archive
    from holdproof.memory.images import image, memory_tools
    from holdproof.memory.notes import notes
    from holdproof.memory.objects import commits, family, graph, objects, snapshots
    from holdproof.memory.search import nearest, text_search
    from holdproof.memory.skills import skills
    from holdproof.memory.threads import line_writers, removal, thread_index, thread_writes, threads
    from holdproof.memory.transcripts import transcripts
    from holdproof.upkeep import housekeeping, object_uses, skill_watch, thread_pruning
else:
    globals().update(lazy_functions("holdproof.content", "values"))
    globals().update(lazy_functions("holdproof.importers.lisp", "files"))
    globals().update(lazy_functions("holdproof.memory.archive", "archive"))
    globals().update(lazy_functions("holdproof.memory.images", "image memory_tools"))
    globals().update(lazy_functions("holdproof.memory.notes", "notes"))
    globals().update(lazy_functions("holdproof.memory.objects", "commits family graph objects snapshots"))
    globals().update(lazy_functions("holdproof.memory.search", "nearest text_search"))
    globals().update(lazy_functions("holdproof.memory.skills", "skills"))
    globals().update(
        lazy_functions("holdproof.memory.threads", "line_writers removal thread_index thread_writes threads")
    )
    globals().update(lazy_functions("holdproof.memory.transcripts", "transcripts"))
    globals().update(lazy_functions("holdproof.upkeep", "housekeeping object_uses skill_watch thread_pruning"))

_PASSPHRASE: Final = "HOLDPROOF_ARCHIVE_PASSPHRASE"  # noqa: S105 (the variable's name)


class Values(Resource[Executor]):
    """Large or growing values, stored once under their CID."""

    group = "Inspect"

    put = Writes(values.put, creates=True)
    get = Reads(values.get)
    append = Writes(values.append)
    length = Reads(values.length)
    slice = Reads(values.slice)


class Objects(Resource[Executor]):
    """What agents know, with its history."""

    group = "Inspect"
    grantable = True

    put = NotedWrites(
        objects.put, tool="remember", example="note-1 --type note --content 'buy milk' --parent inbox", creates=True
    )
    annotate = Writes(objects.annotate)
    delete = NotedWrites(objects.delete, tool="remember", example="note-1")
    apply = NotedWrites(objects.apply, creates=True)
    get = NotedReads(objects.get, tool="remember", uri="objects/{id}{?at}", example="note-1 --at head")
    list = NotedReads(
        objects.list,
        tool="remember",
        columns=("id", "type", "parent", "version", "cid"),
        parameters={"prefix": "Only objects whose ids begin with this."},
        example="--limit 20",
    )
    folders = Reads(
        objects.folders,
        bounds={"limit": (1, 500)},
        parameters={"prefix": "Where to look: empty, or a folder such as `market/`.", "limit": "At most so many."},
        example="--prefix market/",
    )
    children = NotedReads(family.children, columns=("id", "type", "parent", "version", "cid"), example="inbox")
    history = Reads(
        object_uses.history,
        tool="remember",
        uri="objects/{id}/history{?cursor,limit}",
        columns=("n", "version", "at", "agent_id", "flow_id", "cid"),
        example="note-1",
    )
    uses = Reads(
        object_uses.uses,
        columns=("at", "agent_id", "flow_type", "flow_id", "version"),
        example="note-1",
    )
    reindex = Runs(text_search.reindex)
    search = NotedReads(
        text_search.search,
        tool="remember",
        columns=("id", "type", "content", "version"),
        example="'buy milk' --limit 5",
    )
    embed = RunsWith(nearest.embed, example="--embedder my_models:embed")
    nearest = NotedRuns(nearest.nearest, example="--like 'buy milk'")


class Graph(Resource[Executor]):
    """What lies below an object."""

    group = "Inspect"
    grantable = True

    roots = Reads(graph.roots, columns=("id", "type", "version", "cid"), example="--limit 20")
    subtree = Reads(graph.subtree, draw="tree", bounds={"limit": (1, 10_000)}, example="inbox --depth 3")
    walk = Reads(graph.walk, bounds={"limit": (1, 10_000)})


class Snapshots(Resource[Executor]):
    """Signed states of all objects."""

    group = "Inspect"
    grantable = True

    create = RunsWith(snapshots.create, tool="remember", example="'after the first day' --author ada")
    list = Reads(snapshots.list, columns=("rev", "created_at", "author", "message", "cid"), example="--limit 10")
    get = Reads(commits.get, example="head")
    diff = Reads(snapshots.diff, draw="diff", example="head work")
    rollback = RunsWith(snapshots.rollback, example="3lbh5f7kqxc22 --reason 'wrong import'")
    merge = RunsWith(snapshots.merge)


class ImageResource(Resource[Executor]):
    """All that is known, in files that load in an instant."""

    group = "Operate"

    dump = RunsWith(image.dump, example="/mnt/usb/memory")
    load = RunsWith(image.load, example="--verify lazy", creates=True)
    open = RunsWith(image.open, local=True)
    # Scheduled: writes the images that the configured heartbeat says are due.
    beat = RunsWith(housekeeping.write_due_images, columns=("name", "made_at", "files", "bytes", "rev"))
    list = RunsWith(image.list, reads=True, columns=("name", "made_at", "files", "bytes", "rev", "damage"))


class Archive(Resource[Executor]):
    """Snapshots as CAR files, and in IPFS; objects as Lisp files."""

    group = "Operate"

    export_car = RunsWith(
        archive.export_car,
        exports=True,
        alias="export car",
        variables={"encrypt": _PASSPHRASE},
        example="memory.car --snapshot head",
    )
    import_car = RunsWith(
        archive.import_car,
        alias="import car",
        variables={"passphrase": _PASSPHRASE},
        example="memory.car",
        creates=True,
    )
    export_lisp = Runs(files.export_lisp, exports=True, alias="export lisp", example="memory.sexp --at head")
    import_lisp = RunsWith(files.import_lisp, alias="import lisp", example="memory-image.lisp --dry-run", creates=True)
    # Nothing can be taken back from IPFS, hence the question; with a passphrase only ciphertext leaves.
    push = RunsWith(
        archive.push,
        exports=True,
        example="--mode file --encrypt 'correct horse'",
        confirm="What goes to IPFS unencrypted is public for good. Push it?",
        confirm_unless="encrypt",
    )
    restore = RunsWith(archive.restore, example="bafyreiexamplecidexamplecidexamplecidexamplecidexample", creates=True)


class Threads(Resource[Executor]):
    """Checkpoints of agent frameworks."""

    group = "Inspect"

    put_checkpoint = Writes(
        threads.put_checkpoint,
        creates=True,
        parameters={"provable": "Give the checkpoint an entry in the log, so that it can be proven."},
    )
    put_writes = Writes(thread_writes.put_writes)
    get_checkpoint = Reads(threads.get_checkpoint, example="chat-1 --json")
    list_checkpoints = Reads(
        threads.list_checkpoints,
        columns=("checkpoint_id", "checkpoint_ns", "created_at", "parent_id"),
        example="chat-1 --limit 10",
    )
    claim = Reads(line_writers.claim)
    list = Reads(
        thread_index.list,
        columns=("thread_id", "status", "checkpoints", "updated_at", "facts"),
        example='--facts \'{"user": "ada"}\'',
    )
    get = Reads(thread_index.get, example="chat-1 --json")
    copy = Writes(removal.copy, example="chat-1 chat-2")
    delete = Writes(removal.delete, example="chat-1 --who ada")
    delete_runs = Writes(removal.delete_runs)
    prune = RunsWith(thread_pruning.prune, example="--keep 10 --older-than-days 30 --dry-run")


class Transcripts(Resource[Executor]):
    """Conversations of agent frameworks, item by item."""

    group = "Inspect"

    append = Writes(transcripts.append, creates=True)
    put_item = Writes(transcripts.put_item, creates=True)
    pop_item = Writes(transcripts.pop_item)
    delete_item = Writes(transcripts.delete_item)
    delete_items = Writes(transcripts.delete_items)
    get_item = Reads(transcripts.get_item)
    list_items = Reads(transcripts.list_items, example="openai-agents/customer-42 --limit 20")
    put_state = Writes(transcripts.put_state, creates=True)
    update_state = Writes(transcripts.update_state, creates=True)
    delete = Writes(transcripts.delete, example="openai-agents/customer-42")
    get = Reads(transcripts.get, example="openai-agents/customer-42")
    list = Reads(
        transcripts.list, columns=("name", "rev", "created_at", "updated_at"), example="--prefix openai-agents/"
    )


class Notes(Resource[Executor]):
    """JSON objects under a path and a key, found by fields and by vectors; they may end by themselves."""

    group = "Inspect"

    put = Writes(notes.put, creates=True)
    delete = Writes(notes.delete, example="users.ada food")
    touch = Writes(notes.touch)
    sweep = Runs(notes.sweep)
    get = Reads(notes.get, example="users.ada food")
    search = Reads(notes.search, columns=("path", "key", "updated_at", "expires_at"), example="users.ada")
    paths = Reads(notes.paths, example="--prefixes '[[\"users\"]]'")


class Memory(Resource[Executor]):
    """What a model is given as tools; answers are sentences."""

    # The tools keep the names that they have in the seed (`:checkpoint-memory`).
    checkpoint_memory = RunsWith(memory_tools.checkpoint_memory, tool="remember", tool_alias="checkpoint_memory")
    restore_memory = RunsWith(memory_tools.restore_memory, tool="remember", tool_alias="restore_memory")


class Skills(Resource[Executor]):
    """Files that agents act by: only what was approved is loaded, and only as it was approved."""

    group = "Approve"
    grantable = True

    fingerprint = Runs(skills.fingerprint, local=True, storeless=True, example="skills/deploy.org")
    # Agents may load skills, but never decide which ones: a grant of the resource leaves these methods out.
    approve = RunsWith(
        skill_watch.approve,
        grantable=False,
        local=True,
        example="skills/deploy.org --by ada --comment reviewed",
        creates=True,
    )
    revoke = RunsWith(skill_watch.revoke, grantable=False, example="skills/deploy.org --by ada --comment outdated")
    # Local, like `fingerprint` and `watch`: the file is read where the agent runs, and compared with the approval.
    load = NotedRuns(skill_watch.load, local=True, document="data", example="skills/deploy.org --json")
    verify = RunsWith(skill_watch.verify, grantable=False, draw="skills", example="--json", exit_code=exit_skills)
    watch = StreamsWith(skill_watch.watch, local=True, example="--every-s 2 --json")
    status = Reads(skills.status, grantable=False, example="skills/deploy.org")
    list = Reads(skills.list, draw="skills")


class MemoryResources(Generic[Executor]):
    """The resources of memory, bound to an executor."""

    def __init__(self, executor: Executor) -> None:
        self.values = Values(executor)
        self.objects = Objects(executor)
        self.graph = Graph(executor)
        self.snapshots = Snapshots(executor)
        self.image = ImageResource(executor)
        self.archive = Archive(executor)
        self.threads = Threads(executor)
        self.transcripts = Transcripts(executor)
        self.notes = Notes(executor)
        self.memory = Memory(executor)
        self.skills = Skills(executor)
