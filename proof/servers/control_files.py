"""What is written to a disk beside the database: images, backups, archives, blobs, bundles."""

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import yaml
from click.testing import CliRunner

from holdproof import errors, sync
from holdproof.cli.app import app
from holdproof.crypto import car
from holdproof.memory.images import image_files
from proof.servers.blobs import stored_keys

Harm = tuple[str, str] | None
_NEW: Final = b"new bytes of a blob " * 3000


class Act(ABC):
    """Something that is written below a folder; what may be there afterwards, and what must."""

    store: sync.Holdproof

    def __init__(self, home: Path, folder: Path) -> None:
        self.home, self.folder = home, folder
        self._before: dict[str, str] = {}

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Have the store, with something in it, for as long as the context lasts."""
        with sync.open(self.home) as self.store:
            self._change("first")
            self.store.evaluations.submit({"answer": 42}, evaluation_id="b-1", score=0.5)
            yield

    def prepare(self) -> None:
        """Write what shall still be good afterwards."""
        self.do()
        self._change("second")
        self._before = self._files()

    def _change(self, word: str) -> None:
        """Have something new to write, in a snapshot of its own."""
        notes = {f"a-{number}": {"type": "note", "content": f"{word} {number} " * 40} for number in range(40)}
        self.store.objects.apply(notes)
        self.store.snapshots.create()

    @abstractmethod
    def do(self) -> None:
        """What may run out of room."""

    def undo(self) -> None:
        """Have it as it was before it succeeded."""
        self._before = self._files()

    def harm(self) -> Harm:
        """What must not be after a failure."""
        now = self._files()
        if gone := [name for name, digest in self._before.items() if now.get(name) != digest]:
            return "lost", f"{gone} changed or went"
        if left := [name for name in now if name not in self._before]:
            return "partial", f"left behind: {left}"
        return None

    def after(self) -> str | None:
        """What is wrong with what was written at last."""
        return None

    def _files(self) -> dict[str, str]:
        """Every file here and its hash, but for locks."""
        return {
            path.relative_to(self.folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(self.folder.rglob("*"))
            if path.is_file() and path.name != ".lock"
        }


class Image(Act):
    """An image, after an older one; a part that is whole may stay behind, for the next one to use or to tidy away."""

    def do(self) -> None:
        """See Act."""
        self.store.image.dump(self.folder / "images")

    def undo(self) -> None:
        """See Act. A dump that has nothing to do says nothing of a full disk: there is something new again."""
        self._change(str(len(self._files())))
        self._before = self._files()

    def harm(self) -> Harm:
        """See Act."""
        now, folder = self._files(), self.folder / "images"
        if gone := [name for name, digest in self._before.items() if now.get(name) != digest]:
            return "lost", f"{gone} changed or went"
        new = [Path(name).name for name in now if name not in self._before]
        for name in new:
            if not name.endswith(".car"):
                return "partial", f"left behind: {new}"
            car.load((folder / name).read_bytes())
        return None

    def after(self) -> str | None:
        """See Act."""
        folder = self.folder / "images"
        for path in image_files.manifests(folder):
            for part in image_files.read_manifest(path)[0].parts:
                image_files.read_part(folder, part)
        how = self.store.image.load(folder, verify="full").how
        return None if how == "same" else f"the image loads as {how}"


class Backup(Act):
    """A backup, beside an older one."""

    def __init__(self, home: Path, folder: Path) -> None:
        super().__init__(home, folder)
        self._made = 0

    def do(self) -> None:
        """See Act."""
        self.store.backup.create(self.folder / f"b{self._made}")

    def prepare(self) -> None:
        """See Act."""
        self.do()
        self._made, self._before = 1, self._files()

    def undo(self) -> None:
        """See Act."""
        self._made += 1
        self._before = self._files()

    def harm(self) -> Harm:
        """See Act."""
        folders = sorted(path.name for path in self.folder.iterdir())
        if folders != [f"b{number}" for number in range(self._made)]:
            return "partial", f"left behind: {folders}"
        return super().harm()

    def after(self) -> str | None:
        """See Act."""
        for path in self.folder.iterdir():
            self.store.backup.check(path)
        return None


class Archive(Act):
    """An archive in the place of an older one."""

    def do(self) -> None:
        """See Act."""
        self.store.archive.export_car(self.folder / "a.car")

    def after(self) -> str | None:
        """See Act."""
        car.load((self.folder / "a.car").read_bytes())
        how = self.store.archive.import_car(self.folder / "a.car").how
        return None if how == "same" else f"the archive comes back as {how}"


class Lisp(Act):
    """Objects as Lisp, in the place of an older file."""

    def do(self) -> None:
        """See Act."""
        self.store.archive.export_lisp(self.folder / "a.sexp")


class Blob(Act):
    """A large blob beside and in the place of others; as bytes, then as a stream."""

    @contextmanager
    def opened(self) -> Iterator[None]:
        """See Act."""
        settings = {"providers": {"blob": {"type": "filesystem", "path": str(self.folder)}}}
        (self.home / "config").mkdir(parents=True, exist_ok=True)
        (self.home / "config" / "config.yaml").write_text(yaml.safe_dump(settings))
        with super().opened():
            yield

    def prepare(self) -> None:
        """See Act."""
        self.store.blobs.put("old", b"old " * 20_000)
        self.store.blobs.put("new", b"before " * 9_000)
        self._before = self._files()

    def do(self) -> None:
        """See Act."""
        self.store.blobs.put("new", _NEW)
        self.store.blobs.open_write("streamed", [_NEW[at : at + 999] for at in range(0, len(_NEW), 999)])

    def undo(self) -> None:
        """See Act."""
        self.store.blobs.put("new", b"before " * 9_000)
        self.store.blobs.delete("streamed")
        self._before = self._files()

    def harm(self) -> Harm:
        """See Act. The first of the two may have been done."""
        if self.store.blobs.get("old") != b"old " * 20_000:
            return "lost", "an older blob"
        new, streamed = self.store.blobs.get("new"), self.store.blobs.get("streamed")
        if new not in (_NEW, b"before " * 9_000) or streamed not in (None, _NEW):
            return "partial", "a blob has bytes nobody put"
        rows = [self.store.blobs.stat(key) for key in stored_keys(self.store)]
        named = {row.address for row in rows if row is not None}
        if left := [name for name in self._files() if Path(name).name not in named]:
            return "partial", f"left behind: {left}"
        if new == _NEW:
            self.store.blobs.put("new", b"before " * 9_000)
        return None

    def after(self) -> str | None:
        """See Act."""
        found = self.store.blobs.get("new"), self.store.blobs.get("streamed")
        return None if found == (_NEW, _NEW) else "a blob is not what was put"


class Command(Act):
    """A bundle, through the command line, in the place of an older file."""

    def do(self) -> None:
        """See Act."""
        done = CliRunner().invoke(
            app, ["--home", str(self.home), "export", "bundle", "b-1", "--out", str(self.folder / "b.zip"), "--json"]
        )
        if done.exit_code:
            full = errors.DiskFullError.code in done.output
            raise (errors.DiskFullError if full else errors.UnavailableError)(done.output)

    def after(self) -> str | None:
        """See Act."""
        done = CliRunner().invoke(app, ["verify", str(self.folder / "b.zip")])
        return None if done.exit_code == 0 else f"the bundle does not verify: {done.output}"


class Home(Act):
    """Everything on the disk that is full: the databases, keys, heads and files of a store."""

    def __init__(self, home: Path, folder: Path) -> None:
        super().__init__(folder / home.name, folder)
        self._tries, self._acknowledged = 0, list[str]()

    def prepare(self) -> None:
        """See Act."""
        self.do()

    def do(self) -> None:
        """See Act."""
        self._tries += 1
        name = f"home-{self._tries}"
        self.store.objects.put(name, type="note", content=name * 300)
        self._acknowledged.append(name)
        self.store.evaluations.submit({"answer": name * 200}, evaluation_id=name, score=0.5)
        self._acknowledged.append(f"battle {name}")
        self.store.snapshots.create()
        self.store.blobs.put(name, name.encode() * 3000)
        self._acknowledged.append(f"blob {name}")

    def harm(self) -> Harm:
        """See Act."""
        for said in self._acknowledged:
            kind, _, name = said.rpartition(" ")
            if kind == "blob" and self.store.blobs.get(name) != name.encode() * 3000:
                return "lost", said
            if kind == "battle" and self.store.evaluations.get(name).evaluation_id != name:
                return "lost", said
            if not kind and self.store.objects.get(name).content != name * 300:
                return "lost", said
        return None

    def after(self) -> str | None:
        """See Act."""
        self.store.close()
        self.store = sync.open(self.home)
        harm = self.harm()
        return None if harm is None else harm[1]


ACTS: Final[dict[str, type[Act]]] = {
    "image": Image,
    "backup": Backup,
    "archive": Archive,
    "lisp": Lisp,
    "blob": Blob,
    "bundle": Command,
    "home": Home,
}
