"""What notices damage to each kind of file, asked directly; and what proves that nothing changed where nobody does.

An examiner gets the undamaged bytes of a file, the damage, and a scratch folder. Its answer is one of four:

    detected    verification, a load, a restore or a check says so
    harmless    every answer is the one it was, which the examiner has compared
    by design   an answer is another, nobody can tell, and docs/threat-model.md says so
    silent      an answer is another and nobody says so: a defect
"""

import hashlib
import shutil
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import apsw

from harness.filling import submit
from harness.forged_bundles import members
from holdproof import errors, sync
from holdproof.config import Paths, load
from holdproof.db.sqlite import check_file, page_checksums
from holdproof.evidence import trust as trusts
from holdproof.evidence.heads import HeadFile
from holdproof.evidence.key_files import KeyFolder
from holdproof.evidence.lockdown import read_flag
from holdproof.evidence.witness_server import WitnessState
from holdproof.memory.images import image_files
from holdproof.upkeep import erase
from holdproof.upkeep.verification import offline
from proof.flips.damage import Damage, put
from proof.flips.subject import DIMENSIONS, PASSPHRASE, Subject

DETECTED, HARMLESS, DESIGN, SILENT = "detected", "harmless", "by design", "silent"


class Told(NamedTuple):
    """What came of it, and by what."""

    outcome: str
    why: str


@dataclass(frozen=True, slots=True)
class Kind:
    """Files of one kind: where they lie, how many flips of a thousand they get, what is asked."""

    name: str
    paths: Callable[[Subject], list[Path]]
    share: int
    examine: Callable[["Bench", Path, bytes], Told]


class Bench:
    """A subject, and copies of it to work on; what takes long is asked once and remembered."""

    def __init__(self, subject: Subject, scratch: Path) -> None:
        self.subject, self.scratch, self.number = subject, scratch, 0
        self.home = scratch / "home"
        shutil.copytree(subject.home, self.home)
        self._known: dict[str, Any] = {}

    def once(self, name: str, ask: Callable[[], Any]) -> Any:
        """An answer of the undamaged store."""
        if name not in self._known:
            self._known[name] = ask()
        return self._known[name]

    def fresh(self, source: Path, name: str = "fresh") -> Path:
        """A copy of a folder, for one flip."""
        target = self.scratch / name
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(source, target)
        return target

    def placed(self, path: Path, data: bytes, source: Path, name: str = "fresh") -> Path:
        """A copy of a folder in which one file is damaged."""
        target = self.fresh(source, name)
        put(target / path.relative_to(source), data)
        return target


def refusal(error: errors.HoldproofError) -> Told:
    """A typed error is a detection."""
    return Told(DETECTED, f"{type(error).__name__}")


def whole(home: Path) -> Told | None:
    """What the whole of `verify --full` says; None where it finds nothing."""
    try:
        report = sync.verify(home, full=True, lock=False)
    except errors.HoldproofError as error:
        return refusal(error)
    return None if report.verdict.sound else Told(DETECTED, f"verify --full: {report.verdict.word}")


# --- databases ---------------------------------------------------------------------------------------------------


def dump(path: Path) -> str:
    """A hash over every row of every table, and the schema, of a database with what its write-ahead log holds."""
    digest = hashlib.sha256()
    with closing(apsw.Connection(str(path), vfs=page_checksums.checksums())) as connection:
        tables = [
            row[0] for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY 1")
        ]
        digest.update(repr(connection.execute("SELECT * FROM sqlite_schema ORDER BY name").fetchall()).encode())
        for table in tables:
            rows = connection.execute(f'SELECT * FROM "{table}"').fetchall()
            digest.update(repr((table, sorted(map(repr, rows)))).encode())
    return digest.hexdigest()


_EVERY: Final = 25
_HEADER: Final = 100


def database(bench: Bench, path: Path, data: bytes) -> Told:
    """The file's own check, which verify begins with; the whole of verify for some, and wherever it finds nothing."""
    target = bench.home / path.name
    put(target, data)
    for rest in ("-wal", "-shm"):
        target.with_name(target.name + rest).unlink(missing_ok=True)
    try:
        found = check_file(target)
    except errors.HoldproofError as error:
        found = [error.message]
    original = path.read_bytes()
    odd = not found or bench.number % _EVERY == 0 or data[:_HEADER] != original[:_HEADER]
    told = whole(bench.home) if odd else None
    put(target, original)
    if odd and told is None:
        return _unseen(bench, path, data)
    return told or Told(DETECTED, "the integrity check of verify")


def _unseen(bench: Bench, path: Path, data: bytes) -> Told:
    target = bench.scratch / "dumped.db"
    put(target, data)
    same = dump(target) == bench.once(f"dump {path.name}", lambda: dump(path))
    return Told(HARMLESS, "every row is as it was") if same else Told(SILENT, "rows are others")


def wal(bench: Bench, path: Path, data: bytes) -> Told:
    """Open what a crash would leave: SQLite takes the log up to the first frame that does not fit."""
    live, name = bench.subject.live, path.name.rpartition("-")[0]
    scratch = bench.scratch / "wal"
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    for each in live.glob(f"{name}*"):
        shutil.copy(each, scratch)
    before = bench.once(f"live {name}", lambda: _copied(bench, live, name))
    put(scratch / path.name, data)
    try:
        same = dump(scratch / name) == before
    except apsw.Error as error:
        return Told(DETECTED, f"SQLite: {type(error).__name__}")
    if same:
        return Told(HARMLESS, "every row is as it was")
    told = whole(bench.placed(path, data, live))
    if told is None and name != "kernel.db":
        return Told(DESIGN, "the end of a write-ahead log of services: no leaf and no head speaks of it")
    return told or Told(SILENT, "rows are others")


def _copied(bench: Bench, live: Path, name: str) -> str:
    target = bench.fresh(live, "honest")
    return dump(target / name)


# --- services ----------------------------------------------------------------------------------------------------


def blob(bench: Bench, path: Path, data: bytes) -> Told:
    """A blob is compared with the hash in its row."""
    target = bench.home / path.relative_to(bench.subject.home)
    put(target, data)
    try:
        with closing(sync.storage(bench.home)) as stores:
            found = stores.open("blobs").check()
    finally:
        put(target, path.read_bytes())
    return Told(DETECTED, "verify: the blob is not what its row says") if found else Told(SILENT, "")


def sidecar(bench: Bench, path: Path, data: bytes) -> Told:
    """Answers of a search, with the file as it is now, are those with none."""
    before = bench.once("searches", lambda: _searched(bench))
    target = bench.home / path.relative_to(bench.subject.home)
    put(target, data)
    try:
        same = _searched(bench) == before
    finally:
        shutil.rmtree(bench.home / "cache")
        shutil.copytree(bench.subject.home / "cache", bench.home / "cache")
    return Told(HARMLESS, "it is a copy: searches answer as before") if same else Told(SILENT, "other answers")


def _searched(bench: Bench) -> list[list[tuple[str, float]]]:
    with closing(sync.storage(bench.home)) as stores:
        vectors = stores.open("vectors")
        queries = [[1.0 if at == axis else 0.0 for at in range(DIMENSIONS)] for axis in (0, 7, 15)]
        return [[(each.id, round(each.similarity, 9)) for each in vectors.search(query, 5)] for query in queries]


# --- what leaves a store -----------------------------------------------------------------------------------------


def image(bench: Bench, path: Path, data: bytes) -> Told:
    """Load the image."""
    folder = bench.placed(path, data, path.parent, "images")
    with sync.open(bench.home) as store:
        before = bench.once("objects", lambda: _everything(store))
        try:
            done = store.image.load(folder)
        except errors.HoldproofError as error:
            return refusal(error)
        same = _everything(store) == before and done.how == "same"
    if done.degraded:
        return Told(DETECTED, "loading: degraded, an older image is taken")
    if path.name.endswith(".idx") and same:
        return Told(HARMLESS, "it is a cache: every block it leads to is hashed")
    intact = same and _meant(folder, path.parent) == bench.once("manifests", lambda: _meant(path.parent, path.parent))
    return Told(HARMLESS, "what is signed is as it was") if intact else Told(SILENT, done.how)


def _everything(store: sync.Holdproof) -> Any:
    return store.objects.list(limit=1000).items, [each.cid for each in store.snapshots.list().items]


def _meant(folder: Path, original: Path) -> Any:
    """What the files of an image say, but for how it is written."""
    manifests = [image_files.read_manifest(each)[0] for each in image_files.manifests(folder)]
    parts = [(folder / each.name).read_bytes() for each in sorted(original.glob("*.car"))]
    return manifests, [hashlib.sha256(each).hexdigest() for each in parts]


def archive(bench: Bench, path: Path, data: bytes) -> Told:
    """Import the archive into a store that has it all."""
    target = bench.scratch / path.name
    put(target, data)
    secret = PASSPHRASE if path.name.startswith("sealed") else None
    with sync.open(bench.home) as store:
        before = bench.once("objects", lambda: _everything(store))
        try:
            done = store.archive.import_car(target, did=store.snapshots.get().did, passphrase=secret)
        except errors.HoldproofError as error:
            return refusal(error)
        return Told(HARMLESS, "the same blocks") if _everything(store) == before else Told(SILENT, done.how)


def backup(bench: Bench, path: Path, data: bytes) -> Told:
    """Restore the backup, up to the moment where something would be replaced."""
    source = bench.subject.elsewhere / "backup"
    folder = bench.placed(path, data, source, "backup")
    try:
        sync.restore(folder, bench.home, dry_run=True)
    except errors.HoldproofError as error:
        return refusal(error)
    return Told(SILENT, "it would be restored")


def bundle(bench: Bench, path: Path, data: bytes) -> Told:
    """Check it as a stranger does."""
    del bench
    try:
        checked = offline.check(data)
    except errors.HoldproofError as error:
        return refusal(error)
    if not checked.verdict.sound:
        return Told(DETECTED, f"the stranger's check: {checked.verdict.word}")
    now, before = members(data), members(path.read_bytes())
    same = {**now, "VERIFY.md": b""} == {**before, "VERIFY.md": b""}
    return Told(HARMLESS, "fields of the zip, or VERIFY.md: every record is as it was") if same else Told(SILENT, "")


def trust(bench: Bench, path: Path, data: bytes) -> Told:
    """Read the trust file with the root key that the reader brings."""
    root = KeyFolder(bench.subject.home / "config" / "keys").load("root").public
    try:
        same = trusts.parse(data, root=root) == trusts.parse(path.read_bytes(), root=root)
    except errors.HoldproofError as error:
        return refusal(error)
    return Told(HARMLESS, "it says what it said") if same else Told(SILENT, "other keys are trusted")


def dbom(bench: Bench, path: Path, data: bytes) -> Told:
    """Verify the store."""
    target = bench.home / "dboms" / path.name
    put(target, data)
    try:
        return whole(bench.home) or Told(SILENT, "")
    finally:
        put(target, path.read_bytes())


def skill(bench: Bench, path: Path, data: bytes) -> Told:
    """Look at the skill as its watcher does."""
    put(path, data)
    try:
        with sync.open(bench.home) as store:
            [found] = store.skills.verify(str(path), lock=False).items
    finally:
        put(path, bench.once(str(path), path.read_bytes))
    return Told(DETECTED, f"skills: {found.state}") if found.state != "APPROVED" else Told(SILENT, "it is handed out")


# --- keys and small files ----------------------------------------------------------------------------------------


def key(bench: Bench, path: Path, data: bytes) -> Told:
    """Load the key; one that loads as another must not be worked with."""
    role = path.name.partition(".")[0]
    if path.name != f"{role}.pem":
        return Told(HARMLESS, "a key that is kept aside: nothing reads it")
    folder = bench.placed(path, data, path.parent, "keys")
    try:
        loaded = KeyFolder(folder).load(role)  # type: ignore[arg-type]
    except errors.HoldproofError as error:
        return refusal(error)
    if loaded.to_pem(None) == KeyFolder(path.parent).load(role).to_pem(None):  # type: ignore[arg-type]
        return Told(HARMLESS, "the same key")
    return _other_key(bench, path, data, role)


def _other_key(bench: Bench, path: Path, data: bytes, role: str) -> Told:
    home = bench.placed(path, data, bench.subject.home, "other")
    try:
        with sync.open(home) as store:
            if role == "root":
                store.keys.rotate("root")
            submit(store, "new", 0.5)
            store.objects.put("new", type="t", content="new")
            store.snapshots.create("new")
    except errors.HoldproofError as error:
        return refusal(error)
    return Told(SILENT, f"another {role} key signs")


def heads(bench: Bench, path: Path, data: bytes) -> Told:
    """Read the heads that were kept."""
    target = bench.scratch / path.name
    put(target, data)
    now, before = HeadFile(target), HeadFile(path)
    if now.unreadable():
        return Told(DETECTED, "verify says that lines of kept heads are damaged")
    if [each.encode() for each in now.kept()] == [each.encode() for each in before.kept()]:
        return Told(HARMLESS, "the same heads")
    cut = set(data.split(b"\n")) <= {*path.read_bytes().split(b"\n"), b""}
    return Told(DESIGN, "whole lines are gone: as if fewer heads had been kept") if cut else Told(SILENT, "other heads")


def erasures(bench: Bench, path: Path, data: bytes) -> Told:
    """Read the erasures that a restore would make again."""
    target = bench.scratch / path.name
    put(target, data)
    try:
        now = erase.read_list(target)
    except errors.HoldproofError as error:
        return refusal(error)
    before = erase.read_list(path)
    if now == before:
        return Told(HARMLESS, "the same erasures")
    cut = all(each in before for each in now)
    return Told(DESIGN, "whole lines are gone: the database has them too") if cut else Told(SILENT, "another erasure")


def witness(bench: Bench, path: Path, data: bytes) -> Told:
    """Read what a witness remembers."""
    target = bench.scratch / path.name
    put(target, data)
    try:
        with WitnessState(target).locked() as now, WitnessState(path).locked() as before:
            same = now == before
    except errors.HoldproofError as error:
        return refusal(error)
    return Told(HARMLESS, "it remembers the same") if same else Told(SILENT, "it remembers another head, or none")


def flag(bench: Bench, path: Path, data: bytes) -> Told:
    """A lockdown's flag locks whatever it says."""
    del path
    target = bench.scratch / "lockdown.json"
    put(target, data)
    return Told(HARMLESS, "the store stays locked") if read_flag(target) else Told(SILENT, "it is unlocked")


def mark(bench: Bench, path: Path, data: bytes) -> Told:
    """Files that follow from the database: it is verified, and DBOM files are as before."""
    target = bench.home / path.relative_to(bench.subject.home)
    put(target, data)
    try:
        told = whole(bench.home)
        listed = sorted(each.name for each in (bench.home / "dboms").iterdir())
    finally:
        put(target, path.read_bytes())
    same = listed == sorted(each.name for each in (bench.subject.home / "dboms").iterdir())
    return told or (Told(HARMLESS, "it follows from the rows") if same else Told(SILENT, "DBOM files are others"))


def settings(bench: Bench, path: Path, data: bytes) -> Told:
    """Read the settings."""
    home = bench.scratch / "settings"
    (home / "config").mkdir(parents=True, exist_ok=True)
    put(home / "config" / path.name, data)
    before = bench.once("settings", lambda: load(paths=Paths.find(path.parents[1])))
    try:
        now = load(paths=Paths.find(home))
    except errors.HoldproofError as error:
        return refusal(error)
    if repr(now).replace(str(home), "") == repr(before).replace(str(path.parents[1]), ""):
        return Told(HARMLESS, "the same settings")
    return Told(DESIGN, "settings are their owner's: nothing signs them")


def evidence(bench: Bench, path: Path, data: bytes) -> Told:
    """What a lockdown kept for people."""
    del bench, path, data
    return Told(HARMLESS, "a copy for people of what was found: nothing reads it")


def told(kind: Kind, bench: Bench, path: Path, damage: Damage) -> Told:
    """What comes of damage to a file; an error without a type is the worst of answers."""
    try:
        return kind.examine(bench, path, damage.done_to(bench.once(str(path), path.read_bytes)))
    except Exception as error:
        return Told(SILENT, f"an error without a type: {type(error).__name__}: {error}"[:200])
