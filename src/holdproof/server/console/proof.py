"""Proof: from an id to its entry in the log, and from there to the signed head, checked here and in the page.

Rules:
- The page carries all that its own check needs: the entry, the path, the signed head, the log's keys. It is checked
  there with the browser's own cryptography (static/pages.js); without JavaScript the outcome of the server's check
  stands in its place, and the commands for both are below.
"""

from base64 import b64encode
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Query
from starlette.requests import Request
from starlette.responses import Response

from holdproof.crypto import merkle, tlog_proof, vkey
from holdproof.crypto.tlog_proof import TlogProof
from holdproof.errors import HoldproofError, NotFoundError
from holdproof.model.log import Level
from holdproof.model.page import Page
from holdproof.model.trail import LogEntry
from holdproof.server.console.desk import Desk, or_default
from holdproof.server.console.downloads import download

router = APIRouter(include_in_schema=False)

Text = Annotated[str, Query(max_length=500)]
Cursor = Annotated[str | None, Query(max_length=500)]


@dataclass(frozen=True, slots=True)
class HeadMark:
    """A head on the line from the first entry to the newest: who keeps it, and how far it reaches."""

    at: float
    size: int
    who: str


@router.get("/evidence/proof")
async def show(request: Request, q: Text = "", entry: Text = "", cursor: Cursor = None) -> Response:
    """The proof of one entry, or the entries that an id names."""
    desk = Desk(request)
    if entry:
        return await desk.render("proof.html", await _proof(desk, await desk.store.log.get(entry), q))
    entries: tuple[LogEntry, ...] = await desk.store.log.find(q) if q.strip() else ()
    flow_id = next((each.event.flow_id for each in entries if each.event.flow_id), None)
    # Of a flow everything is listed: who asks for its proof wants its steps and answers too.
    whole = await or_default(desk.store.audit.trail(flow_id=flow_id, cursor=cursor, limit=100)) if flow_id else None
    if len(entries) == 1 and whole is None:
        return await desk.render("proof.html", await _proof(desk, entries[0], q))
    values = {"q": q, "entries": entries, "trail": Page([]) if whole is None else whole, "flow_id": flow_id}
    return await desk.render("proof_search.html", values)


@router.get("/evidence/entry.proof")
async def file(request: Request, entry: Text) -> Response:
    """The proof of an entry as a file that other programs check (C2SP tlog-proof)."""
    desk = Desk(request)
    record = await desk.store.log.get(entry)
    proof = await desk.store.log.prove(record.entry, record.event.version)
    return download(proof.file, f"entry-{record.index}.tlog-proof", "text/plain")


async def _proof(desk: Desk, entry: LogEntry, q: str) -> dict[str, Any]:
    proof: TlogProof | None = None
    pending = ""
    try:
        proof = await desk.store.log.prove(entry.entry, entry.event.version)
    except NotFoundError as error:
        pending = error.message
    keys: list[str] = await desk.store.log.verifier_keys()
    level: Level | None = await or_default(desk.store.log.level())
    return {
        "q": q,
        "entry": entry,
        "proof": proof,
        "pending": pending,
        "path": [each.hex() for each in proof.proof] if proof else [],
        "note": proof.head.encode().decode() if proof else "",
        "entry_b64": b64encode(entry.text.encode()).decode(),
        "keys": keys,
        "checks": _checks(entry, proof, keys) if proof else {},
        "level": level,
        "heads": heads(level),
        "ring": (await or_default(desk.store.keys.list(limit=1_000), Page([]))).items,
    }


def _checks(entry: LogEntry, proof: TlogProof, keys: list[str]) -> dict[str, bool]:
    """What the server finds of each link of the chain."""
    leaf = merkle.leaf_hash(entry.text.encode())
    head = proof.head.checkpoint
    return {
        "entry": leaf.hex() == entry.leaf_hash,
        "path": _holds(lambda: merkle.verify_inclusion(leaf, proof.index, head.size, proof.proof, head.root)),
        "head": _holds(
            lambda: tlog_proof.verify(proof, leaf, origin=head.origin, log_keys=[vkey.parse(key) for key in keys])
        ),
    }


def _holds(check: Any) -> bool:
    try:
        check()
    except HoldproofError:
        return False
    return True


def heads(level: Level | None) -> tuple[HeadMark, ...]:
    """Return the heads that are known, by how far they reach."""
    if level is None or level.size == 0:
        return ()
    named = [("this database", level.size)]
    if level.stored_size:
        named.append(("the state folder", level.stored_size))
    if level.witnessed_size:
        named.append((f"{level.witnessed} of {level.witnesses} witnesses", level.witnessed_size))
    return tuple(HeadMark(min(size / level.size, 1.0), size, who) for who, size in named)
