"""The resources of memory: objects and their snapshots, images, archives, threads, transcripts, notes and skills."""

from typing import Generic

from holdproof.content import values
from holdproof.executors import Executor, Reads, Resource, Runs, RunsWith, StreamsWith, Writes
from holdproof.importers.lisp import files
from holdproof.memory.archive import archive
from holdproof.memory.images import image, memory_tools
from holdproof.memory.notes import notes
from holdproof.memory.objects import graph, objects, snapshots
from holdproof.memory.search import nearest, text_search
from holdproof.memory.skills import skills
from holdproof.memory.threads import removal, thread_index, threads
from holdproof.memory.transcripts import transcripts
from holdproof.upkeep import heartbeats, skill_watch, thread_pruning


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
    list = Reads(objects.list)
    children = Reads(objects.children)
    history = Reads(objects.history)
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
    beat = RunsWith(heartbeats.beat)
    list = RunsWith(image.list, reads=True)


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

    put_checkpoint = Writes(threads.put_checkpoint)
    put_writes = Writes(threads.put_writes)
    get_checkpoint = Reads(threads.get_checkpoint)
    list_checkpoints = Reads(threads.list_checkpoints)
    claim = Reads(threads.claim)
    list = Reads(thread_index.list)
    get = Reads(thread_index.get)
    copy = Writes(removal.copy)
    delete = Writes(removal.delete)
    delete_runs = Writes(removal.delete_runs)
    prune = RunsWith(thread_pruning.prune)


class Transcripts(Resource[Executor]):
    """Conversations of agent frameworks, item by item."""

    append = Writes(transcripts.append)
    put_item = Writes(transcripts.put_item)
    pop_item = Writes(transcripts.pop_item)
    delete_item = Writes(transcripts.delete_item)
    delete_items = Writes(transcripts.delete_items)
    get_item = Reads(transcripts.get_item)
    list_items = Reads(transcripts.list_items)
    put_state = Writes(transcripts.put_state)
    update_state = Writes(transcripts.update_state)
    delete = Writes(transcripts.delete)
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


class Skills(Resource[Executor]):
    """Files that agents act by: only what was approved is loaded, and only as it was approved."""

    fingerprint = Runs(skills.fingerprint)
    approve = RunsWith(skill_watch.approve)
    revoke = RunsWith(skill_watch.revoke)
    load = RunsWith(skill_watch.load)
    verify = RunsWith(skill_watch.verify)
    watch = StreamsWith(skill_watch.watch)
    status = Reads(skills.status)
    list = Reads(skills.list)


class MemoryResources(Generic[Executor]):
    """The resources of memory, bound to an executor."""

    def __init__(self, executor: Executor) -> None:
        self.values = Values(executor)
        self.objects = Objects(executor)
        self.graph = Graph(executor)
        self.snapshots = Snapshots(executor)
        self.image = Image(executor)
        self.archive = Archive(executor)
        self.threads = Threads(executor)
        self.transcripts = Transcripts(executor)
        self.notes = Notes(executor)
        self.memory = Memory(executor)
        self.skills = Skills(executor)
