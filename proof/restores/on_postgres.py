"""A store on PostgreSQL: a base backup, and a copy of the write-ahead log that `pg_receivewal` writes as it grows."""

import random
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import psycopg

from harness.servers import Postgres, RestoredServer, WalCopy
from holdproof.crypto import checkpoint
from holdproof.db.clock import system_clock
from proof.restores.on_sqlite import Prepare, Restored, Target
from proof.workflows.sittings import Place

_DATABASE: Final = "shop"
# The transaction that wrote the head: the server recovers to its commit exactly.
_HEAD: Final = "SELECT xmin::text, head FROM kernel.log_state"
_LOOK_S: Final = 0.01


@dataclass
class Replica:
    """What is left when the server is gone: a base backup and the copy of its log."""

    server: Postgres
    copy: WalCopy
    url: str | None
    looks: list[tuple[float, str, str]] = field(default_factory=list)
    """When which transaction had written which head; each at the first look that saw it."""
    killed: threading.Event = field(default_factory=threading.Event)

    def kill(self) -> None:
        """End replication and server without any notice."""
        self.killed.set()
        self.copy.kill()
        self.server.crash()

    def watch(self) -> None:
        """Note every head that is seen, until the server is gone."""
        with suppress(psycopg.Error), psycopg.connect(self.server.url(_DATABASE), autocommit=True) as connection:
            while not self.killed.is_set():
                for transaction, head in connection.execute(_HEAD):
                    if not self.looks or self.looks[-1][1] != transaction:
                        self.looks.append((system_clock() / 1e6, transaction, head))
                time.sleep(_LOOK_S)

    def heads(self, published: Mapping[str, float], most: int, chance: random.Random) -> list[Target]:
        """Draw heads that were seen while the load ran."""
        targets = [
            Target(transaction, checkpoint.parse(head.encode()).checkpoint.size, earlier_at)
            for (earlier_at, *_), (_, transaction, head) in zip(self.looks, self.looks[1:], strict=False)
            if head.encode().hex() in published
        ]
        # The last ones may not have arrived; what a loss costs is measured apart.
        arrived = targets[: -len(targets) // 10]
        return chance.sample(arrived, min(most, len(arrived)))

    @contextmanager
    def restored(self, target: Target | None, folder: Path) -> Iterator[Restored]:
        """Recover another server to the commit of a head, or as far as the copy goes."""
        server = RestoredServer(self.copy, transaction=None if target is None else target.name)
        try:
            head = str(server.value("SELECT head FROM kernel.log_state", _DATABASE))
            size = checkpoint.parse(head.encode()).checkpoint.size
            yield Restored(folder / "machine", server.url(_DATABASE), size, head)
        finally:
            server.stop()


@contextmanager
def begin(place: Place, prepare: Prepare) -> Iterator[Replica]:
    """Serve a store, and copy its server until the end of the block."""
    server = Postgres()
    try:
        server.sql(f"CREATE DATABASE {_DATABASE}")
        url = server.url(_DATABASE)
        prepare(place.home, url)
        copy = WalCopy(server)
        try:
            replica = Replica(server, copy, url)
            watcher = threading.Thread(target=replica.watch)
            watcher.start()
            yield replica
        finally:
            replica.killed.set()
            watcher.join()
            copy.stop()
    finally:
        server.stop()
