"""A real S3 server behind a proxy that fails."""

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

import yaml

from harness.http_proxy import KINDS, Proxy
from harness.servers import Seaweed
from holdproof import sync
from holdproof.storage.blobs import open_backend
from holdproof.storage.blobs import s3 as client
from proof.servers.blobs import Rounds
from proof.servers.tally import Tally

_PATIENCE_S = 2


class Bucket:
    """A bucket of its own; see blobs.Bucket."""

    name = "s3"

    def __init__(self, server: Seaweed, proxy: Proxy, home: Path) -> None:
        self._home, self._name = home, f"b{uuid.uuid4().hex[:12]}"
        settings = {"providers": {"blob": {"type": "s3", "connection": f"s3://{self._name}/blobs"}}}
        (home / "config").mkdir(parents=True)
        (home / "config" / "config.yaml").write_text(yaml.safe_dump(settings))
        self._past = open_backend(f"s3://{self._name}/blobs", spools=home, **server.options)
        self._past.put_bytes(self._past.stage(b"a bucket is made by its first object"), "00-first")
        self._past.remove("00-first")
        self.environment = {
            "AWS_ENDPOINT": proxy.url,
            "AWS_ACCESS_KEY_ID": server.key,
            "AWS_SECRET_ACCESS_KEY": server.secret,
            "AWS_REGION": "us-east-1",
        }

    def open(self) -> sync.Holdproof:
        """See Bucket."""
        os.environ.update(self.environment)
        return sync.open(self._home)

    def lying(self) -> set[str]:
        """See Bucket."""
        return {address for page in self._past.list_older(0) for address in page}


@contextmanager
def hurried() -> Iterator[None]:
    """A server that says nothing is given up sooner than users would want it."""
    usual, client.PATIENCE = client.PATIENCE, timedelta(seconds=_PATIENCE_S)
    try:
        yield
    finally:
        client.PATIENCE = usual


def run(
    tally: Tally, server: Seaweed, folder: Path, seed: int, rounds: int, first: int = 0, kinds: tuple[str, ...] = ()
) -> None:
    """So many rounds, each kind of fault in turn."""
    proxy = Proxy(int(urlsplit(server.endpoint).port or 0))
    before = dict(os.environ)
    try:
        with hurried():
            Rounds(tally, Bucket(server, proxy, folder / "s3"), proxy, seed).run(rounds, first, kinds or tuple(KINDS))
    finally:
        proxy.close()
        os.environ.clear()
        os.environ.update(before)
