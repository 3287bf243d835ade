"""What agents know: the nouns of memory and of content."""

from typing import Generic

from holdproof.content import values
from holdproof.executors import Executor, Reads, Resource, Runs, RunsWith, Writes
from holdproof.importers.lisp import files
from holdproof.memory.archive import archive
from holdproof.memory.images import image, image_list, memory_tools
from holdproof.memory.notes import notes
from holdproof.memory.objects import graph, objects, snapshots
from holdproof.memory.search import nearest, text_search
from holdproof.memory.threads import removal, thread_index, threads
from holdproof.memory.transcripts import transcripts
from holdproof.upkeep import housekeeping
from holdproof.upkeep import thread_pruning as threadupkeep


class Values(Resource[Executor]):
    """Large or growing values, stored once under their CID."""

    group = "Inspect"

    put = Writes(values.put)
    get = Reads(values.get)
    append = Writes(values.append)
    length = Reads(values.length)
    slice = Reads(values.slice)


class Objects(Resource[Executor]):
    """What agents know, with its history."""

    group = "Inspect"
    grantable = True

    put = Writes(objects.put, tool=True, example="note-1 --type note --content 'buy milk' --parent inbox")
    annotate = Writes(objects.annotate)
    delete = Writes(objects.delete, tool=True, example="note-1")
    apply = Writes(objects.apply)
    get = Reads(objects.get, tool=True, example="note-1 --at head")
    at = Reads(objects.at, columns=("id", "type", "parent", "version", "cid"))
    list = Reads(objects.list, tool=True, columns=("id", "type", "parent", "version", "cid"), example="--limit 20")
    children = Reads(objects.children, tool=True, columns=("id", "type", "parent", "version", "cid"))
    history = Reads(objects.history, tool=True, columns=("n", "version", "at", "cid"), example="note-1")
    version = Reads(objects.version, example="note-1 2")
    reindex = Runs(text_search.reindex)
    search = Reads(
        text_search.search, tool=True, columns=("id", "type", "content", "version"), example="'buy milk' --limit 5"
    )
    embed = RunsWith(nearest.embed, example="--embedder my_models:embed")
    nearest = RunsWith(nearest.nearest, example="--like 'buy milk'")


class Graph(Resource[Executor]):
    """What lies below an object."""

    group = "Inspect"
    grantable = True

    roots = Reads(graph.roots)
    subtree = Reads(graph.subtree, draw="tree", example="inbox --depth 3")
    walk = Reads(graph.walk)


class Snapshots(Resource[Executor]):
    """Signed states of all objects."""

    group = "Inspect"
    grantable = True

    create = RunsWith(snapshots.create, tool=True, example="'after the first day' --author ada")
    list = Reads(
        snapshots.list, tool=True, columns=("rev", "created_at", "author", "message", "cid"), example="--limit 10"
    )
    get = Reads(snapshots.get, example="head")
    diff = Reads(snapshots.diff, tool=True, draw="diff", example="head work")
    rollback = RunsWith(snapshots.rollback, example="3lbh5f7kqxc22 --reason 'wrong import'")
    merge = RunsWith(snapshots.merge)


class Image(Resource[Executor]):
    """All that is known, in files that load in an instant."""

    group = "Operate"

    dump = RunsWith(image.dump, example="/mnt/usb/memory")
    load = RunsWith(image.load, example="--verify lazy")
    open = RunsWith(image.open, local=True)
    beat = RunsWith(housekeeping.write_due_images, columns=("name", "made_at", "files", "bytes", "rev"))
    list = RunsWith(image_list.list, reads=True, columns=("name", "made_at", "files", "bytes", "rev", "damage"))


class Archive(Resource[Executor]):
    """Snapshots as CAR files, and in IPFS; objects as Lisp files."""

    group = "Operate"

    export_car = RunsWith(archive.export_car, example="memory.car --snapshot head")
    import_car = RunsWith(archive.import_car, example="memory.car")
    export_lisp = Runs(files.export_lisp, example="memory.sexp --at head")
    import_lisp = RunsWith(files.import_lisp, example="memory-image.lisp --dry-run")
    push = RunsWith(
        archive.push,
        example="--mode file --encrypt 'correct horse'",
        confirm="What goes to IPFS unencrypted is public for good. Push it?",
        confirm_unless="encrypt",
    )
    restore = RunsWith(archive.restore, example="bafyreiexamplecidexamplecidexamplecidexamplecidexample")


class Threads(Resource[Executor]):
    """Checkpoints of agent frameworks."""

    group = "Inspect"

    put = Writes(threads.put)
    put_writes = Writes(threads.put_writes)
    get = Reads(threads.get)
    history = Reads(
        threads.history,
        columns=("checkpoint_id", "checkpoint_ns", "created_at", "parent_id"),
        example="chat-1 --limit 10",
    )
    claim = Reads(threads.claim)
    list = Reads(
        thread_index.list,
        columns=("thread_id", "status", "checkpoints", "updated_at", "facts"),
        example='--facts \'{"user": "ada"}\'',
    )
    show = Reads(thread_index.show, example="chat-1 --json")
    copy = Writes(removal.copy, example="chat-1 chat-2")
    delete = Writes(removal.delete, example="chat-1 --who ada")
    delete_runs = Writes(removal.delete_runs)
    prune = RunsWith(threadupkeep.prune, example="--keep 10 --older-than-days 30 --dry-run")


class Transcripts(Resource[Executor]):
    """Conversations of agent frameworks, item by item."""

    group = "Inspect"

    append = Writes(transcripts.append)
    put = Writes(transcripts.put)
    write = Writes(transcripts.write)
    merge = Writes(transcripts.merge)
    pop = Writes(transcripts.pop)
    drop = Writes(transcripts.drop)
    clear = Writes(transcripts.clear)
    delete = Writes(transcripts.delete, example="openai-agents/customer-42")
    read = Reads(transcripts.read, example="openai-agents/customer-42 --last 20")
    find = Reads(transcripts.find)
    get = Reads(transcripts.get, example="openai-agents/customer-42")
    list = Reads(
        transcripts.list, columns=("name", "rev", "created_at", "updated_at"), example="--prefix openai-agents/"
    )


class Notes(Resource[Executor]):
    """JSON objects under a path and a key, found by fields and by vectors; they may end by themselves."""

    group = "Inspect"

    put = Writes(notes.put)
    delete = Writes(notes.delete, example="users.ada food")
    touch = Writes(notes.touch)
    sweep = Runs(notes.sweep)
    get = Reads(notes.get, example="users.ada food")
    search = Reads(notes.search, columns=("path", "key", "updated_at", "expires_at"), example="users.ada")
    paths = Reads(notes.paths, example="--prefixes '[[\"users\"]]'")


class Memory(Resource[Executor]):
    """What a model is given as tools; answers are sentences."""

    checkpoint_memory = RunsWith(memory_tools.checkpoint_memory, tool="checkpoint_memory")
    restore_memory = RunsWith(memory_tools.restore_memory, tool="restore_memory")


class MemoryResources(Generic[Executor]):
    """The nouns of memory, shown by a face."""

    def __init__(self, face: Executor) -> None:
        self.values = Values(face)
        self.objects = Objects(face)
        self.graph = Graph(face)
        self.snapshots = Snapshots(face)
        self.image = Image(face)
        self.archive = Archive(face)
        self.threads = Threads(face)
        self.transcripts = Transcripts(face)
        self.notes = Notes(face)
        self.memory = Memory(face)
