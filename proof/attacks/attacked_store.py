"""Real stores with something of everything, on either database, and as many copies of them as there are attacks."""

import logging
import shutil
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np

from harness.filling import dispute, fill, remember, running, settled
from harness.raw_access import Past
from harness.servers import Postgres
from holdproof import sync
from holdproof.model.storage import TelemetryEvent

LARGE: Final = bytes(range(256)) * 400
OTHER: Final = "blue"
"""The namespace beside the usual one."""


@dataclass(frozen=True, slots=True)
class Place:
    """One store to attack, closed: its home, its database, and a folder beside it for whatever the attack needs."""

    folder: Path
    url: str | None = None
    made: Path | None = None
    """Where what was made of the store lies; copied when it is first asked for."""
    home: Path = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "home", self.folder / "home")

    @property
    def past(self) -> Past:
        """The kernel, past Holdproof."""
        return Past(self.home, self.url)

    @property
    def database(self) -> str:
        """Which database it is on."""
        return "sqlite" if self.url is None else "postgres"

    @property
    def elsewhere(self) -> Path:
        """What was made of the store and lies beside it: a backup, archives, an image, bundles."""
        own = self.folder / "elsewhere"
        if self.made is not None and not own.exists():
            shutil.copytree(self.made, own)
        return own

    def open(self, ns: str | None = None) -> sync.Holdproof:
        """The store, opened as its owner does."""
        return sync.open(self.home, self.url, ns=ns)


class Lab:
    """A store that is filled once and copied for each attack."""

    def __init__(self, server: Postgres | None = None) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="holdproof-attacks-"))
        self._server = server
        self.template = Place(self._folder / "template", self._new() if server else None)
        quiet(True)
        try:
            _build(self.template)
        finally:
            quiet(False)

    def _new(self, template: str = "") -> str:
        assert self._server is not None
        name = f"a{uuid.uuid4().hex[:12]}"
        self._server.sql(f"CREATE DATABASE {name}" + (f" TEMPLATE {template}" if template else ""))
        return self._server.url(name)

    @contextmanager
    def copy(self, *, shared: bool = False) -> Iterator[Place]:
        """A store of its own for one attack, gone afterwards; `shared` spares a server the copy of its database."""
        url = self._new(_name(self.template.url)) if self.template.url and not shared else self.template.url
        place = Place(self._folder / uuid.uuid4().hex[:12], url, self.template.elsewhere)
        shutil.copytree(self.template.home, place.home, symlinks=True)
        try:
            yield place
        finally:
            shutil.rmtree(place.folder, ignore_errors=True)
            if not shared:
                self._drop(url)

    def yesterday(self, place: Place) -> None:
        """Put the database back as it was when the store was copied."""
        if place.url is None:
            shutil.copy(self.template.home / "kernel.db", place.home / "kernel.db")
            return
        assert self._server is not None
        self._drop(place.url)
        self._server.sql(f"CREATE DATABASE {_name(place.url)} TEMPLATE {_name(self.template.url)}")

    def empty(self, place: Place) -> None:
        """Put an empty database in the place of a server's."""
        assert self._server is not None
        self._drop(place.url)
        self._server.sql(f"CREATE DATABASE {_name(place.url)}")

    def another_database(self) -> str:
        """The URL of an empty database on the same server, for a store of the attacker's own."""
        return self._new()

    def lay(self, place: Place, forged: Path, url: str | None) -> None:
        """Put the database of another store in the place of this one's."""
        if place.url is None:
            shutil.copy(forged / "kernel.db", place.home / "kernel.db")
            return
        assert self._server is not None
        self._drop(place.url)
        self._server.sql(f"CREATE DATABASE {_name(place.url)} TEMPLATE {_name(url)}")
        self._drop(url)

    def _drop(self, url: str | None) -> None:
        if url is not None and self._server is not None:
            self._server.sql(f"DROP DATABASE IF EXISTS {_name(url)} WITH (FORCE)")

    def close(self) -> None:
        """Remove everything."""
        self._drop(self.template.url)
        shutil.rmtree(self._folder, ignore_errors=True)


def _name(url: str | None) -> str:
    return str(url).partition("?")[0].rpartition("/")[2]


def quiet(hush: bool) -> None:
    """An attack makes a store say much; what is asked of it here is its verdict."""
    logging.getLogger("holdproof").setLevel(logging.CRITICAL + 1 if hush else logging.NOTSET)


# --- filling -----------------------------------------------------------------------------------------------------


def _build(place: Place) -> None:
    place.elsewhere.mkdir(parents=True)
    for number in range(2):  # each restore is a row of its own
        with place.open() as store:
            if number == 0:
                fill(store)
                dispute(store)
                remember(store)
                furnish(store)
                _other_namespace(place)
            settled(store)
            store.backup.create(place.elsewhere / f"backup{number}", keys=True)
        sync.restore(place.elsewhere / f"backup{number}", place.home, place.url)
        for aside in place.home.glob("before-restore-*"):
            shutil.rmtree(aside)
    with place.open() as store:
        settled(store)
        _export(store, place.elsewhere)
        store.backup.create(place.elsewhere / "backup", keys=True)
    for number in range(2):
        shutil.rmtree(place.elsewhere / f"backup{number}")
    report = sync.verify(place.home, place.url, full=True, lock=False)
    assert report.findings == [], report.to_dict()


def furnish(store: sync.Holdproof, vectors: int = 40, *, width: int = 384) -> None:
    """What services store: blobs in rows and in files, vectors, events, a session."""
    store.blobs.put("small", b"small")
    store.blobs.put("large", LARGE)
    cloud = np.random.default_rng(1).standard_normal((vectors, width), dtype=np.float32)
    store.vectors.add_many((f"v{at:05}", vector, {"at": at}) for at, vector in enumerate(cloud))
    store.telemetry.append(
        [TelemetryEvent("tool.call", f"2026-01-01T00:00:{at:02}Z", data={"at": at}) for at in range(60)]
    )


def _other_namespace(place: Place) -> None:
    with place.open(ns=OTHER) as store:
        store.agents.register("painter", version="1.0.0")
        store.state.put("painter", {"cash": 1})
        flow_id = running(store, "painter", created_by=("user", "bob"))
        store.contexts.put(flow_id, {"price": 2.5})
        store.audit.record(flow_id, "SEEN", detail={"by": "painter"})
        store.feedback.record("painter", flow_id, status="GOOD", reason="slow", score=0.1, source="Human")
        store.ledger.append(flow_id, {"sell": 1}, context_ref="c", evidence_hash="11" * 32, signature="s")
        store.evaluations.submit({"task": OTHER}, evaluation_id="of blue", score=0.2)
        store.objects.put("known", type="note", content="blue")
        store.snapshots.create("blue")


def _export(store: sync.Holdproof, folder: Path) -> None:
    """What leaves a store: bundles, a trust file, an archive, a sealed one, an image."""
    (folder / "evaluation.zip").write_bytes(store.bundle.export("after"))
    (folder / "flow.zip").write_bytes(store.bundle.export(richest(store), kind="flow"))
    (folder / "trust.json").write_text(store.keys.trust().text)
    store.archive.export_car(folder / "memory.car")
    store.archive.export_car(folder / "sealed.car", encrypt="a passphrase of some length")
    store.image.dump(folder / "image")
    store.objects.put("o05", type="t", content="after the base")
    store.image.dump(folder / "image")
    settled(store)


def richest(store: sync.Holdproof) -> str:
    """The flow with most to tell."""
    found = [flow.flow_id for flow in store.flows.list(limit=100).items]
    return max(found, key=lambda flow_id: len(store.flows.timeline(flow_id).events))
