"""Archives: a snapshot, with its history or alone, as one CAR file, as blocks in IPFS, or as one file there.

Rules:
- What an archive is called follows from what it holds: the root is `{v, head, notes, history}`, links to the commit and
  to Merkle lists of links: to the notes, and to the entries of the history with the records of every version (a node
  keeps only what it finds by links). Without history it is the commit itself, as tools of the AT Protocol expect it.
  Where older snapshots were pruned, `since` names the commit before the first one that is there.
- What comes back is believed only as a whole (see commit_chain.py), signed by a memory key of this store or by the key
  that the caller names, and enters in one transaction. Until then nothing here is touched.
- A node is not trusted: it must name our root and no other, and say that it is pinned; a file it took is read back and
  compared.
- What goes to IPFS is public for as long as anybody keeps it. Sealed first, it is one file that says nothing.
- Every call ends in time: 2 s to connect, `idle_s` without a byte, `budget_s` altogether; then it is a typed error.
"""

import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol

from holdproof import folders
from holdproof.content import disk
from holdproof.content.credentials import Credentials, split_credentials
from holdproof.content.kubo import Kubo
from holdproof.crypto import car, dagcbor, didkey, mlist, sealed
from holdproof.crypto import cid as cids
from holdproof.crypto.cid import CID
from holdproof.crypto.keys import PublicKey
from holdproof.db import Call, Database, Read, Tx, Work, Write, ask
from holdproof.errors import FormatError, InvalidInputError, NotFoundError, UnknownKeyError, UnreachableError
from holdproof.evidence import key_use, keys
from holdproof.lazy import lazy_module
from holdproof.memory.objects import commit_chain, commits, records, snapshot_import
from holdproof.memory.objects.commit_chain import ChainStep, CommitChain
from holdproof.memory.objects.commits import NEWEST, CommitNote
from holdproof.memory.objects.tree_transaction import MAIN
from holdproof.model.memory import Archived, Snapshot, SnapshotsImported
from holdproof.model.progress import Progress
from holdproof.store.context import Context

if TYPE_CHECKING:
    import httpx
else:  # loaded at the first request: it costs more than all the rest at start
    httpx = lazy_module("httpx")

NODE: Final = "http://127.0.0.1:5001"
MOST: Final = 1 << 32
_PAGE: Final = 2_000
_CHUNK: Final = 1 << 20

Mode = Literal["dag", "file"]


# --- going out ---------------------------------------------------------------------------------------------------


def export_car(
    context: Context,
    path: str | Path,
    *,
    snapshot: str = NEWEST,
    history: bool = True,
    encrypt: str | None = None,
    ns: str = MAIN,
    progress: Progress | None = None,
) -> Work[Archived]:
    """Write a snapshot to a file, with all that came before it or alone; `encrypt` is a passphrase."""
    bundle = yield from _assemble(context, snapshot, encrypt, history=history, ns=ns, progress=progress)
    target = Path(path)

    def keep() -> None:
        with disk.translated(target):
            folders.make(target.absolute().parent)
            disk.write(target, bundle.data)

    yield Call(keep)
    return bundle.said("car")


def push(
    context: Context,
    *,
    mode: Mode = "dag",
    snapshot: str = NEWEST,
    encrypt: str | None = None,
    node: str = NODE,
    token: str | None = None,
    idle_s: float = 30.0,
    budget_s: float = 600.0,
    ns: str = MAIN,
    progress: Progress | None = None,
) -> Work[Archived]:
    """Give a snapshot with all that came before it to an IPFS node, and pin it there. It is public from then on."""
    if mode not in ("dag", "file") or (mode == "dag" and encrypt is not None):
        raise InvalidInputError("an archive goes as `dag` or as `file`; what is sealed goes as `file`", mode=mode)
    bundle = yield from _assemble(context, snapshot, encrypt, history=True, ns=ns, progress=progress)
    # A node pins a DAG only if it can walk all of it, so a link that leads out of the store would never end.
    if mode == "dag" and bundle.foreign:
        raise InvalidInputError(
            "a record, or a snapshot before one that was pruned, links to what is not in this store, so no node"
            " could have it all: push it as `file`",
            link=str(bundle.foreign),
        )
    sent: Call[Archived] = Call(lambda: _send(bundle, mode, Kubo(node, token=token, idle_s=idle_s, budget_s=budget_s)))
    return (yield from ask(sent))


class _Bundle(NamedTuple):
    """An archive that is ready."""

    data: bytes
    root: CID
    head: Snapshot
    blocks: int
    sealed: bool
    foreign: CID | None

    def said(self, mode: str, cid: str | None = None) -> Archived:
        """Return what callers hear of it."""
        return Archived(
            cid or str(self.root), self.head.cid, self.head.rev, len(self.data), self.blocks, mode, self.sealed
        )


def _assemble(
    context: Context, snapshot: str, encrypt: str | None, *, history: bool, ns: str, progress: Progress | None
) -> Work[_Bundle]:
    # Randomness comes from the transaction, so that tests can freeze it; sealing runs outside.
    head, random = yield from ask(Read(lambda tx: (commits.get(tx, snapshot, ns=ns), tx.random(sealed.RANDOM))))
    building: Call[_Bundle] = Call(lambda: _build(context.database, head, history, ns, progress))
    bundle = yield from ask(building)
    if encrypt is None:
        return bundle
    sealing: Call[bytes] = Call(lambda: sealed.seal(bundle.data, encrypt, random))
    return bundle._replace(data=(yield from ask(sealing)), sealed=True)


def _build(database: Database, head: Snapshot, history: bool, ns: str, progress: Progress | None) -> _Bundle:
    """Return the whole CAR; its blocks are read a page at a time."""
    most = commit_chain.LONGEST if history else 1
    line: list[ChainStep] = database.read(
        lambda tx: commit_chain.back(tx, commits.parse(head.cid), ns=ns, most=most)
    ).result()
    contents: dict[CID, bytes] = {}
    root = commits.parse(head.cid)
    steps = line if history else [line[-1]._replace(note=None)]
    for page in commit_chain.paged(database, lambda source: commit_chain.stream(source, steps), _PAGE):
        contents.update(page)
        if progress is not None:
            progress("archive", len(contents), 0)
    if history:
        versions = _versions(database, root, ns)
        named = {
            "notes": mlist.build(step.note for step in line if step.note is not None),
            "history": mlist.build(versions),
        }
        since = commit_chain.since(line)  # a text, or nodes would look for what is gone
        links = {name: listed.root for name, listed in named.items()}
        block = dagcbor.encode({"v": 1, "head": root, **links, **({"since": since} if since else {})})
        root = cids.of(block)
        # The root comes first, as readers of CAR files expect it.
        contents = {root: block, **named["notes"].blocks, **named["history"].blocks, **contents, **versions}
    return _Bundle(car.dump([root], contents.items()), root, head, len(contents), False, _foreign(contents))


def _versions(database: Database, head: CID, ns: str) -> dict[CID, bytes]:
    """Return the entries of the history up to a snapshot, and the records of all versions that were not pruned."""
    newest = database.read(lambda tx: commits.history_of(tx, head, ns=ns)).result()
    versions: dict[CID, bytes] = {}
    for page in commit_chain.paged(database, lambda source: commit_chain.versions(source, ns, newest), _PAGE):
        versions.update(page)
    return versions


def _foreign(contents: dict[CID, bytes]) -> CID | None:
    """Return a link to what is not among the blocks; the first commit of a line has none before it."""
    for cid, data in contents.items():
        if cid.raw.startswith(cids.CBOR_PREFIX) and commit_chain.LINK in data:
            for link in records.links(data):
                if link not in contents:
                    return link
    return None


def _send(bundle: _Bundle, mode: Mode, kubo: Kubo) -> Archived:
    try:
        with closing(kubo):
            return _send_file(bundle, kubo) if mode == "file" else _send_dag(bundle, kubo)
    except FileNotFoundError as error:
        raise UnreachableError(f"{kubo.url} does not have what it was given: {error}", url=kubo.url) from error


def _send_file(bundle: _Bundle, kubo: Kubo) -> Archived:
    # The node names the file by its own chunking, which is not ours to predict: so it is read back and compared.
    name = kubo.add(bundle.data, pin=True)
    with closing(kubo.cat(name)) as back:
        _compare(back, bundle.data, kubo.url, name)
    return bundle.said("file", name)


def _send_dag(bundle: _Bundle, kubo: Kubo) -> Archived:
    roots = kubo.dag_import(bundle.data)
    if roots != [str(bundle.root)]:
        names = ", ".join(root[:100] for root in roots[:3]) or "no root at all"
        raise UnreachableError(
            f"{kubo.url} reports {names} and not {bundle.root}: it did not import the archive; is it an IPFS node?",
            url=kubo.url,
            cid=str(bundle.root),
        )
    kubo.pin(str(bundle.root))  # walks all of it: a node that has not every block fails, or says nothing for too long
    return bundle.said("dag")


class _Readable(Protocol):
    def read(self, size: int, /) -> bytes:
        """At most so many bytes, none only at the end."""


def _compare(source: _Readable, data: bytes, node: str, name: str) -> None:
    digest = sha256()
    size = 0
    while piece := source.read(_CHUNK):
        digest.update(piece)
        size += len(piece)
    if size != len(data) or digest.digest() != sha256(data).digest():
        raise UnreachableError(f"{node} gives back something else than it was given", url=node, cid=name)


# --- coming in ---------------------------------------------------------------------------------------------------


def import_car(
    context: Context,
    path: str | Path,
    *,
    did: str | None = None,
    passphrase: str | None = None,
    force: bool = False,
    ns: str = MAIN,
    progress: Progress | None = None,
) -> Work[SnapshotsImported]:
    """Import the snapshots of a CAR file once all of it is verified; `did` is the key of another store's archive."""

    def read() -> bytes:
        source = Path(path)
        with disk.translated(source):
            try:
                return disk.read(source, MOST)
            except FileNotFoundError as error:
                raise NotFoundError(f"{source}: no such file", path=str(source)) from error

    data: bytes = yield from ask(Call(read))
    return (yield from _import(context, data, None, _ImportOptions(did, passphrase, force, ns, progress)))


def restore(
    context: Context,
    cid: str,
    *,
    did: str | None = None,
    passphrase: str | None = None,
    force: bool = False,
    node: str = NODE,
    gateway: str | None = None,
    token: str | None = None,
    idle_s: float = 30.0,
    budget_s: float = 600.0,
    ns: str = MAIN,
    progress: Progress | None = None,
) -> Work[SnapshotsImported]:
    """Import the archive that a CID names from an IPFS node or a gateway; neither has to be trusted."""
    named = cids.parse_argument(cid)
    request = _FetchRequest(named, node, gateway, token, idle_s, budget_s)
    data: bytes = yield from ask(Call(lambda: _fetch(request)))
    # The CID of a file is that of IPFS's own DAG; only the CID of a root block is checked against the archive.
    expected = named if named.codec == cids.DAG_CBOR else None
    return (yield from _import(context, data, expected, _ImportOptions(did, passphrase, force, ns, progress)))


class _FetchRequest(NamedTuple):
    cid: CID
    node: str
    gateway: str | None
    token: str | None
    idle_s: float
    budget_s: float


def _fetch(request: _FetchRequest) -> bytes:
    if request.gateway is not None:
        bare, opens = split_credentials(request.gateway)
        return _from_gateway(request, bare.rstrip("/"), opens)
    with closing(Kubo(request.node, token=request.token, idle_s=request.idle_s, budget_s=request.budget_s)) as kubo:
        # A dag-cbor CID names the root block, any other one the file that the archive was added as.
        ask_for = kubo.dag_export if request.cid.codec == cids.DAG_CBOR else kubo.cat
        try:
            source = ask_for(str(request.cid))
        except FileNotFoundError as error:
            raise NotFoundError(f"{kubo.url} does not have it: {error}", cid=str(request.cid)) from error
        with closing(source):
            return _all(source.read, request, kubo.url)


def _from_gateway(request: _FetchRequest, gateway: str, opens: Credentials | None) -> bytes:
    is_dag = request.cid.codec == cids.DAG_CBOR
    query = "?format=car&dag-scope=all" if is_dag else ""
    accepts = {"accept": "application/vnd.ipld.car"} if is_dag else {}
    patience = httpx.Timeout(request.idle_s, connect=2.0)
    try:
        with (
            httpx.Client(auth=opens, timeout=patience, follow_redirects=True) as client,
            client.stream("GET", f"{gateway}/ipfs/{request.cid}{query}", headers=accepts) as answer,
        ):
            if answer.status_code == httpx.codes.NOT_FOUND:
                raise NotFoundError(f"{gateway} does not have it", cid=str(request.cid))
            if answer.status_code != httpx.codes.OK:
                raise UnreachableError(f"{gateway}: status {answer.status_code}", url=gateway)
            pieces = answer.iter_bytes()  # as they come: a page of them might never be full
            return _all(lambda _: next(pieces, b""), request, gateway)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise UnreachableError(f"{gateway}: {str(error) or type(error).__name__}", url=gateway) from error


def _all(read: Callable[[int], bytes], request: _FetchRequest, where: str) -> bytes:
    """Everything that comes, within the limits of size and time; it waits in a file until it is complete."""
    # Checked for every piece: a peer that sends a byte now and then would never be idle.
    until = time.monotonic() + request.budget_s
    with tempfile.SpooledTemporaryFile(max_size=1 << 26) as spool:
        size = 0
        while piece := read(_CHUNK):
            size += len(piece)
            if size > MOST:
                raise FormatError("the archive is larger than any may be", limit=MOST)
            if time.monotonic() > until:
                raise UnreachableError(f"{where} took longer than {request.budget_s:g} s", url=where)
            spool.write(piece)
        spool.seek(0)
        return spool.read()


class _ImportOptions(NamedTuple):
    """On which terms an archive is let in."""

    did: str | None
    passphrase: str | None
    force: bool
    ns: str
    progress: Progress | None


def _import(context: Context, data: bytes, expected: CID | None, options: _ImportOptions) -> Work[SnapshotsImported]:
    """Verify everything, then let it in."""
    # Unsealing derives a key from the passphrase, which is slow on purpose: it runs outside any transaction.
    if sealed.is_sealed(data):
        if (passphrase := options.passphrase) is None:
            raise InvalidInputError("the archive is sealed: give its passphrase")
        opening: Call[bytes] = Call(lambda: sealed.unseal(data, passphrase))
        data = yield from ask(opening)
    trusted = yield from ask(Read(lambda tx: _trusted(tx, options.did)))
    staged: Call[CommitChain] = Call(lambda: _stage(data, expected, trusted, options.progress))
    line = yield from ask(staged)
    signer = yield from key_use.use(context, "memory")
    note = CommitNote(message=f"archive {line.head.commit.rev}")
    return (
        yield from ask(
            Write(lambda tx: snapshot_import.import_chain(tx, line, signer, note, force=options.force, ns=options.ns))
        )
    )


def _trusted(tx: Tx, did: str | None) -> list[PublicKey]:
    ring = keys.active_keys(tx, "memory")
    return [*ring, *([] if did is None else [didkey.parse(did)])]


def _stage(data: bytes, expected: CID | None, trusted: list[PublicKey], progress: Progress | None) -> CommitChain:
    archive = car.load(data)
    if len(archive.roots) != 1 or (expected is not None and archive.roots[0] != expected):
        raise FormatError(
            "the CAR has not the one root that was asked for", roots=[str(root) for root in archive.roots]
        )
    head, notes, alone, since = _head(archive.roots[0], archive.blocks)
    tell = None if progress is None else lambda done, total: progress("archive", done, total)
    line = commit_chain.verify(
        head, archive.blocks, lambda _: None, shallow=alone, since=since, notes=notes, progress=tell
    )
    # Only the head's key matters: its signature covers all commits before it.
    signed = didkey.parse(line.head.commit.did)
    if signed not in trusted:
        raise UnknownKeyError(
            f"signed by {line.head.commit.did}, which is no memory key of this store: name it if you trust it",
            did=line.head.commit.did,
        )
    return line


def _head(root: CID, blocks: Any) -> tuple[CID, dict[CID, CommitNote], bool, CID | None]:
    """The commit an archive is of, the notes it names, whether it stands alone, and what came before and was pruned."""
    block = blocks.get(root)
    if block is None:
        raise FormatError("the CAR does not have its own root", cid=str(root))
    fields = dagcbor.decode(block)
    # Not our root block: then it is a bare commit, as tools of the AT Protocol write it.
    if not isinstance(fields, dict) or fields.keys() - {"since"} != {"v", "head", "notes", "history"}:
        return root, {}, True, None
    head = fields["head"]
    named = fields["notes"]
    since = fields.get("since", "")
    if fields["v"] != 1 or not isinstance(head, CID) or not isinstance(named, CID) or not isinstance(since, str):
        raise FormatError("the root of the archive is malformed", cid=str(root))
    notes: dict[CID, CommitNote] = {}
    for link in mlist.walk(blocks.get, named):
        if not isinstance(link, CID) or link not in blocks:
            raise FormatError("the archive lacks a note that it names", cid=str(link))
        about, note = commits.decode_note(blocks[link])
        notes[about] = note
    return head, notes, False, cids.parse_text(since) if since else None
