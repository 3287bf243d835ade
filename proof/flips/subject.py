"""A store with every kind of file there is: closed, and once more as it lies on the disk while it is open."""

import shutil
import time
from pathlib import Path

from harness import witnesses
from harness.filling import fill, remember, submit
from harness.witnesses import made, serving
from holdproof import sync
from holdproof.model.storage import TelemetryEvent
from proof.attacks.attacked_store import furnish, quiet, richest

PASSPHRASE = "a passphrase of some length"
VECTORS, DIMENSIONS = 5_200, 16
"""Enough of them for a sidecar."""
_SKILL = "* Deploy\n#+begin_src sh\nship --careful\n#+end_src\n"
_CONFIG = """# settings of this store
providers:
  vector: {type: numpy, dimensions: 16}
  telemetry: {type: sqlite, retention: {hot_days: 30, warm_days: 365}}
images: {every_s: 300, keep: 3}
"""


class Subject:
    """The folders: `home` (closed), `live` (as it lies while open), `elsewhere` (what was made of it)."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.home, self.live, self.elsewhere = folder / "home", folder / "live", folder / "elsewhere"
        self.skill = folder.resolve() / "deploy.org"
        self.elsewhere.mkdir(parents=True)
        self.skill.write_text(_SKILL)
        (self.home / "config").mkdir(parents=True, mode=0o700)
        (self.home / "config" / "config.yaml").write_text(_CONFIG)
        quiet(True)
        try:
            self._build()
        finally:
            quiet(False)

    def _build(self) -> None:
        with sync.open(self.home) as store:
            fill(store)
            remember(store)
            furnish(store, width=DIMENSIONS)
        self._while_open()
        with sync.open(self.home) as store:
            furnish(store, VECTORS, width=DIMENSIONS)
            store.vectors.search([1.0] * DIMENSIONS, 3)
            store.skills.approve(str(self.skill), by="ada")
            store.image.dump()
            store.objects.put("o05", type="t", content="after the base")
            store.image.dump(keep=1)
            self._export(store)
        report = sync.verify(self.home, full=True, lock=True)
        assert report.findings == [], report.to_dict()

    def _export(self, store: sync.Holdproof) -> None:
        out = self.elsewhere
        (out / "battle.zip").write_bytes(store.bundle.export("after"))
        (out / "flow.zip").write_bytes(store.bundle.export(richest(store), kind="flow"))
        (out / "trust.json").write_text(store.keys.trust().text)
        store.archive.export_car(out / "memory.car")
        store.archive.export_car(out / "sealed.car", encrypt=PASSPHRASE)
        store.backup.create(out / "backup", keys=True)
        served = made(store, out / "witness.json")
        with serving(served) as url:
            witnesses.cosign(store, url, key=served.key.encode())

    def _while_open(self) -> None:
        """Copy the files of an open store between two writes: what a crash leaves, write-ahead logs and all."""
        with sync.open(self.home) as store:
            for number in range(6):
                submit(store, f"open{number}", 0.5)
                store.objects.put(f"open{number}", type="t", content="x" * 5_000)
                store.blobs.put(f"open{number}", b"y" * 3_000)
                store.telemetry.append([TelemetryEvent("open", "2026-01-01T00:01:00Z", data={"at": number})])
            time.sleep(1.1)  # heads are kept at most once a second
            submit(store, "last", 0.5)
            time.sleep(0.1)
            shutil.copytree(self.home, self.live)
