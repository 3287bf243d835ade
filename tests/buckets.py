"""Backups in a real bucket: its address, and what lies there."""

import os
from dataclasses import dataclass
from itertools import count

import pytest

from harness.servers import Seaweed
from holdproof.upkeep.backups.bucket import Bucket

_NUMBERS = count()


@dataclass(frozen=True)
class BackupBucket:
    """A place in a bucket that one test has for itself."""

    url: str
    bucket: Bucket
    path: str

    def names(self) -> list[str]:
        """Every file below the place."""
        return sorted(name.removeprefix(f"{self.path}/") for name in self.bucket.names(self.path))

    def put(self, name: str, data: bytes) -> None:
        """Write a file as somebody else would."""
        self.bucket.put(f"{self.path}/{name}", data)

    def read(self, name: str) -> bytes:
        """The bytes of a file."""
        return self.bucket.read(f"{self.path}/{name}", 1 << 30)

    def remove(self, name: str) -> None:
        """Remove a file as somebody else would."""
        self.bucket.remove(f"{self.path}/{name}")


def place_in(seaweed: Seaweed, monkeypatch: pytest.MonkeyPatch, endpoint: str | None = None) -> BackupBucket:
    """A place for one test, with the environment of whoever makes backups there."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    variables = {
        "AWS_ENDPOINT_URL": seaweed.endpoint,
        "AWS_ACCESS_KEY_ID": seaweed.key,
        "AWS_SECRET_ACCESS_KEY": seaweed.secret,
        "AWS_REGION": "us-east-1",
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    bucket = Bucket("backups")
    # A bucket is made by its first object.
    bucket.put("first", b"1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint or seaweed.endpoint)
    path = f"shop/{os.getpid()}-{next(_NUMBERS)}"
    return BackupBucket(f"s3://backups/{path}", bucket, path)
