"""What agents know: the nouns of memory and of content."""

from typing import Generic

from holdproof.content import values
from holdproof.faces import Face, Noun, Reads, Runs, RunsWith, Writes
from holdproof.memory import (
    archive,
    graph,
    image,
    images,
    lispfiles,
    nearest,
    notes,
    objects,
    search,
    snapshots,
    threadindex,
    threadremoval,
    threads,
    tools,
    transcripts,
)
from holdproof.upkeep import heartbeats
from holdproof.upkeep import threads as threadupkeep


class Values(Noun[Face]):
    """Large or growing values, stored once under their CID."""

    put = Writes(values.put)
    get = Reads(values.get)
    append = Writes(values.append)
    length = Reads(values.length)
    slice = Reads(values.slice)


class Objects(Noun[Face]):
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
    reindex = Runs(search.reindex)
    search = Reads(search.search)
    embed = RunsWith(nearest.embed)
    nearest = RunsWith(nearest.nearest)


class Graph(Noun[Face]):
    """What lies below an object."""

    roots = Reads(graph.roots)
    subtree = Reads(graph.subtree)
    walk = Reads(graph.walk)


class Snapshots(Noun[Face]):
    """Signed states of all objects."""

    create = RunsWith(snapshots.create)
    list = Reads(snapshots.list)
    get = Reads(snapshots.get)
    diff = Reads(snapshots.diff)
    rollback = RunsWith(snapshots.rollback)
    merge = RunsWith(snapshots.merge)


class Image(Noun[Face]):
    """All that is known, in files that load in an instant."""

    dump = RunsWith(image.dump)
    load = RunsWith(image.load)
    open = RunsWith(image.open)
    beat = RunsWith(heartbeats.beat)
    list = RunsWith(images.list, reads=True)


class Archive(Noun[Face]):
    """Snapshots as CAR files, and in IPFS; objects as Lisp files."""

    export_car = RunsWith(archive.export_car)
    import_car = RunsWith(archive.import_car)
    export_lisp = Runs(lispfiles.export_lisp)
    import_lisp = RunsWith(lispfiles.import_lisp)
    push = RunsWith(archive.push)
    restore = RunsWith(archive.restore)


class Threads(Noun[Face]):
    """Checkpoints of agent frameworks."""

    put = Writes(threads.put)
    put_writes = Writes(threads.put_writes)
    get = Reads(threads.get)
    history = Reads(threads.history)
    claim = Reads(threads.claim)
    list = Reads(threadindex.list)
    show = Reads(threadindex.show)
    copy = Writes(threadremoval.copy)
    delete = Writes(threadremoval.delete)
    delete_runs = Writes(threadremoval.delete_runs)
    prune = RunsWith(threadupkeep.prune)


class Transcripts(Noun[Face]):
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


class Notes(Noun[Face]):
    """JSON objects under a path and a key, found by fields and by vectors; they may end by themselves."""

    put = Writes(notes.put)
    delete = Writes(notes.delete)
    touch = Writes(notes.touch)
    sweep = Runs(notes.sweep)
    get = Reads(notes.get)
    search = Reads(notes.search)
    paths = Reads(notes.paths)


class Memory(Noun[Face]):
    """What a model is given as tools; answers are sentences."""

    checkpoint_memory = RunsWith(tools.checkpoint_memory)
    restore_memory = RunsWith(tools.restore_memory)


class Knowledge(Generic[Face]):
    """The nouns of memory, shown by a face."""

    def __init__(self, face: Face) -> None:
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
