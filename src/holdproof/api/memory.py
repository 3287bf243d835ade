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
from holdproof.upkeep import heartbeats
from holdproof.upkeep import thread_pruning as threadupkeep


class Values(Resource[Executor]):
    """Large or growing values, stored once under their CID."""

    put = Writes(values.put)
    get = Reads(values.get)
    append = Writes(values.append)
    length = Reads(values.length)
    slice = Reads(values.slice)


class Objects(Resource[Executor]):
    """What agents know, with its history."""

    put = Writes(objects.put)
    annotate = Writes(objects.annotate)
    delete = Writes(objects.delete)
    apply = Writes(objects.apply)
    get = Reads(objects.get)
    at = Reads(objects.at)
    list = Reads(objects.list)
    children = Reads(objects.children)
    history = Reads(objects.history)
    version = Reads(objects.version)
    reindex = Runs(text_search.reindex)
    search = Reads(text_search.search)
    embed = RunsWith(nearest.embed)
    nearest = RunsWith(nearest.nearest)


class Graph(Resource[Executor]):
    """What lies below an object."""

    roots = Reads(graph.roots)
    subtree = Reads(graph.subtree)
    walk = Reads(graph.walk)


class Snapshots(Resource[Executor]):
    """Signed states of all objects."""

    create = RunsWith(snapshots.create)
    list = Reads(snapshots.list)
    get = Reads(snapshots.get)
    diff = Reads(snapshots.diff)
    rollback = RunsWith(snapshots.rollback)
    merge = RunsWith(snapshots.merge)


class Image(Resource[Executor]):
    """All that is known, in files that load in an instant."""

    dump = RunsWith(image.dump)
    load = RunsWith(image.load)
    open = RunsWith(image.open)
    beat = RunsWith(heartbeats.write_due_images)
    list = RunsWith(image_list.list, reads=True)


class Archive(Resource[Executor]):
    """Snapshots as CAR files, and in IPFS; objects as Lisp files."""

    export_car = RunsWith(archive.export_car)
    import_car = RunsWith(archive.import_car)
    export_lisp = Runs(files.export_lisp)
    import_lisp = RunsWith(files.import_lisp)
    push = RunsWith(archive.push)
    restore = RunsWith(archive.restore)


class Threads(Resource[Executor]):
    """Checkpoints of agent frameworks."""

    put = Writes(threads.put)
    put_writes = Writes(threads.put_writes)
    get = Reads(threads.get)
    history = Reads(threads.history)
    claim = Reads(threads.claim)
    list = Reads(thread_index.list)
    show = Reads(thread_index.show)
    copy = Writes(removal.copy)
    delete = Writes(removal.delete)
    delete_runs = Writes(removal.delete_runs)
    prune = RunsWith(threadupkeep.prune)


class Transcripts(Resource[Executor]):
    """Conversations of agent frameworks, item by item."""

    append = Writes(transcripts.append)
    put = Writes(transcripts.put)
    write = Writes(transcripts.write)
    merge = Writes(transcripts.merge)
    pop = Writes(transcripts.pop)
    drop = Writes(transcripts.drop)
    clear = Writes(transcripts.clear)
    delete = Writes(transcripts.delete)
    read = Reads(transcripts.read)
    find = Reads(transcripts.find)
    get = Reads(transcripts.get)
    list = Reads(transcripts.list)


class Notes(Resource[Executor]):
    """JSON objects under a path and a key, found by fields and by vectors; they may end by themselves."""

    put = Writes(notes.put)
    delete = Writes(notes.delete)
    touch = Writes(notes.touch)
    sweep = Runs(notes.sweep)
    get = Reads(notes.get)
    search = Reads(notes.search)
    paths = Reads(notes.paths)


class Memory(Resource[Executor]):
    """What a model is given as tools; answers are sentences."""

    checkpoint_memory = RunsWith(memory_tools.checkpoint_memory)
    restore_memory = RunsWith(memory_tools.restore_memory)


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
