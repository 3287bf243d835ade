"""What agents and services do all day, through the public API, over a state that stays the same size.

Names come in rings: after a while every object, blob, vector, thread and transcript is written again and none is new.
What is new each time (flows, audit events, versions, snapshots, telemetry) is let go by the upkeep, as in real life.
"""

import asyncio
import random
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
import uvicorn

import holdproof
from holdproof import sync
from holdproof.errors import NotFoundError
from holdproof.model.storage import TelemetryEvent
from holdproof.model.times import to_text
from holdproof.server import method_routes
from holdproof.server.app import create_app
from holdproof.server.settings import ServerSettings

AGENTS: Final = 8
RING: Final = 100
DIMENSIONS: Final = 64
_THREADS: Final = 12
_TURNS: Final = 40
_SETTINGS: Final = f"""\
providers: {{vector: {{type: numpy, dimensions: {DIMENSIONS}}}}}
images: {{every_s: 15, keep: 2}}
"""

Act = Callable[[random.Random], object]


class Load:
    """The acts, each timed by whoever calls it."""

    def __init__(self, store: sync.Holdproof, remote: Any) -> None:
        self.store, self.remote = store, remote
        for number in range(AGENTS):
            store.agents.register(f"agent-{number}", version="1.0.0", contract={"limit": number})
        store.relational.execute("CREATE TABLE parcels (id INTEGER PRIMARY KEY, place TEXT NOT NULL)")
        self.acts: dict[str, tuple[Act, int]] = {
            "flow": (self.flow, 6),
            "flow undone": (self.undone, 1),
            "once": (self.once, 4),
            "escalation": (self.escalation, 2),
            "battle": (self.evaluation, 1),
            "object put": (self.object_put, 8),
            "object search": (self.object_search, 3),
            "checkpoint": (self.checkpoint, 6),
            "transcript": (self.transcript, 4),
            "blob put": (self.blob_put, 4),
            "blob get": (self.blob_get, 3),
            "vector put": (self.vector_put, 4),
            "vector search": (self.vector_search, 3),
            "telemetry": (self.telemetry, 3),
            "row": (self.row, 4),
            "over HTTP": (self.over_http, 4),
        }

    def flow(self, rng: random.Random) -> None:
        """A decision with a lock, two steps, a context, an audit event and feedback."""
        agent = f"agent-{rng.randrange(AGENTS)}"
        with self.store.flows.run(agent, flow_type="soak") as flow:
            flow.lock({f"budget-{rng.randrange(RING)}": 1}, timeout_s=30)
            self.store.contexts.put(flow.flow_id, {"price": rng.random(), "words": "x" * rng.randrange(400)})
            flow.step("quote", lambda: {"price": 17})
            flow.step("order", lambda: "placed")
            self.store.audit.record(flow.flow_id, "ORDERED", detail={"items": rng.randrange(9)})
        self.store.feedback.record(agent, flow.flow_id, status="SUCCESS", score=rng.random())

    def undone(self, rng: random.Random) -> None:
        """A decision that fails half way and is undone."""
        try:
            with self.store.flows.run(f"agent-{rng.randrange(AGENTS)}", flow_type="soak") as flow:
                flow.step("book", lambda: 17, compensate=lambda _: None)
                raise RuntimeError("the carrier is closed")
        except RuntimeError:
            pass

    def once(self, rng: random.Random) -> None:
        """A call under a key; one of three comes a second time."""
        key = f"call-{rng.getrandbits(64):x}"
        for _ in range(1 + (rng.randrange(3) == 0)):
            self.store.idempotency.once(key, {"n": 1}, lambda: "done", ttl_s=20)

    def escalation(self, rng: random.Random) -> None:
        """A question that a person answers, or whose deadline does."""
        flow = self.store.flows.start(f"agent-{rng.randrange(AGENTS)}", flow_type="soak")
        self.store.flows.transition(flow.flow_id, "RUNNING")
        asked = self.store.escalations.request(flow.flow_id, reason="may I?", deadline_s=5)
        if (answer := rng.choice(["approve", "reject", None])) is not None:
            self.store.escalations.resolve(asked.id, answer, by="ann")
        if answer == "approve":
            self.store.flows.transition(flow.flow_id, "COMPLETED")

    def evaluation(self, rng: random.Random) -> None:
        """A signed evaluation."""
        result = {"task": "ship", "verdict": "y" * rng.randrange(300)}
        self.store.evaluations.submit(
            result, evaluation_id=f"battle-{rng.getrandbits(64):x}", score=rng.random(), intent=[0.5]
        )

    def object_put(self, rng: random.Random) -> None:
        """What is known, written anew and read."""
        id = f"object-{rng.randrange(RING)}"
        content = {"text": f"parcel {rng.randrange(1000)} " + "z" * rng.randrange(300)}
        self.store.objects.put(id, type="fact", content=content)
        self.store.objects.get(id)

    def object_search(self, rng: random.Random) -> None:
        """What is known, searched."""
        self.store.objects.search(f"parcel {rng.randrange(1000)}")

    def checkpoint(self, rng: random.Random) -> None:
        """A turn of a conversation of a framework: one message more, until the thread starts anew."""
        thread = f"thread-{rng.randrange(_THREADS)}"
        try:
            messages = list(self.store.threads.get_checkpoint(thread).channels["messages"])
        except NotFoundError:
            messages = []
        messages = [] if len(messages) >= _TURNS else messages
        messages.append({"role": "user", "content": "w" * rng.randrange(200)})
        self.store.threads.put_checkpoint(thread, {"messages": messages}, metadata={"step": len(messages)})

    def transcript(self, rng: random.Random) -> None:
        """A turn of a conversation, item by item; a long one is cleared."""
        name = f"transcript-{rng.randrange(_THREADS)}"
        self.store.transcripts.append(name, [{"text": "v" * rng.randrange(200)}])
        if rng.randrange(_TURNS) == 0:
            self.store.transcripts.delete_items(name)

    def blob_put(self, rng: random.Random) -> None:
        """Bytes under a name, now and then none."""
        number = rng.randrange(RING)
        if rng.randrange(5) == 0:
            self.store.blobs.delete(f"blob-{number}")
        else:
            self.store.blobs.put(f"blob-{number}", rng.randbytes((100, 4_000, 40_000)[number % 3]))

    def blob_get(self, rng: random.Random) -> None:
        """Bytes by their name."""
        self.store.blobs.get(f"blob-{rng.randrange(RING)}")

    def vector_put(self, rng: random.Random) -> None:
        """A vector, new or again, now and then removed."""
        id = f"vector-{rng.randrange(2 * RING)}"
        if rng.randrange(5) == 0:
            self.store.vectors.delete(id)
        else:
            self.store.vectors.upsert(id, _vector(rng), {"kind": rng.choice(["a", "b"])})

    def vector_search(self, rng: random.Random) -> None:
        """The nearest vectors."""
        self.store.vectors.search(_vector(rng), 5)

    def telemetry(self, rng: random.Random) -> None:
        """Ten events."""
        now = to_text(time.time_ns() // 1000)
        events = [TelemetryEvent("parcel.sent", now, {"n": n, "words": "u" * rng.randrange(100)}) for n in range(10)]
        self.store.telemetry.append(events)

    def row(self, rng: random.Random) -> None:
        """A row of a service's own table."""
        self.store.relational.execute(
            "INSERT INTO parcels (id, place) VALUES (:id, :place) ON CONFLICT (id) DO UPDATE SET place = :place",
            {"id": rng.randrange(RING), "place": f"shelf {rng.random()}"},
        )

    def over_http(self, rng: random.Random) -> None:
        """The same store at a distance: a flow, and what is known."""
        flow = self.remote.flows.start(f"agent-{rng.randrange(AGENTS)}", flow_type="soak")
        self.remote.objects.list(limit=20)
        self.remote.flows.cancel(flow.flow_id, reason="only looking")

    def upkeep(self, note: Callable[[str, float], None]) -> None:
        """Let go what has had its time: once round."""
        store = self.store
        duties: dict[str, Callable[[], object]] = {
            "sweep": store.sweep.run,
            "prune flows": lambda: store.retention.prune("flows", keep=300),
            "prune audit": lambda: store.retention.prune("audit", keep=300),
            "snapshot": lambda: store.snapshots.create("soak", author="soak"),
            "prune snapshots": lambda: store.retention.prune("snapshots", keep=5),
            "prune versions": lambda: store.retention.prune("versions", keep=3),
            "prune threads": lambda: store.threads.prune(keep=3),
            "gc": store.retention.gc,
            "prune telemetry": lambda: store.telemetry.prune(30 / 86_400),
            "retain telemetry": store.telemetry.retain,
            "sweep blobs": lambda: store.blobs.sweep(older_than_s=10),
            "image": store.image.beat,
        }
        for name, duty in duties.items():
            began = time.perf_counter()
            duty()
            note(name, time.perf_counter() - began)


def _vector(rng: random.Random) -> Any:
    return np.asarray([rng.gauss(0, 1) for _ in range(DIMENSIONS)], dtype=np.float32)


@contextmanager
def opened(home: Path) -> Iterator[Load]:
    """A new store with its load, part of which comes over HTTP, from a server in this process."""
    (home / "config").mkdir(parents=True)
    (home / "config" / "config.yaml").write_text(_SETTINGS)
    with sync.open(home) as store:
        secret = store.tokens.create("soak").secret
        with _served(store) as url, sync.connect(url, secret) as remote:
            yield Load(store, remote)


@contextmanager
def _served(store: sync.Holdproof) -> Iterator[str]:
    app = create_app(holdproof.Holdproof(store.core), ServerSettings(), parts=(method_routes.part,))
    listening = socket.socket(proto=socket.IPPROTO_TCP)  # said, or what it accepts waits for company before it sends
    listening.bind(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
    thread = threading.Thread(target=asyncio.run, args=(server.serve(sockets=[listening]),))
    thread.start()
    try:
        while not server.started and thread.is_alive():
            thread.join(0.01)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
        listening.close()
