"""A trustless gateway: real blocks over real HTTP, as its specification says, or as a test bends it."""

import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from holdproof.crypto import car
from holdproof.crypto import cid as cids
from holdproof.crypto.cid import CID
from holdproof.memory.objects import records

Bend = Callable[[BaseHTTPRequestHandler, bytes], None]
RAW, CAR = "application/vnd.ipld.raw", "application/vnd.ipld.car"


class Gateway:
    """Serves `GET /ipfs/<cid>?format=raw|car` from blocks; `bend` answers in its place."""

    def __init__(self, blocks: Mapping[CID, bytes], bend: Bend | None = None) -> None:
        self.blocks, self.bend, self.asked = blocks, bend, list[tuple[str, str]]()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.answer(self)

            def log_message(self, format: str, *args: Any) -> None:
                """Quiet."""

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._http.server_port}"
        threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        """One request, by the book."""
        asked = urlsplit(handler.path)
        self.asked.append((handler.path, handler.headers.get("accept", "")))
        cid = cids.parse_text(asked.path.removeprefix("/ipfs/"))
        options = {name: values[0] for name, values in parse_qs(asked.query).items()}
        kind = options.get("format") or {RAW: "raw", CAR: "car"}.get(handler.headers.get("accept", ""), "")
        if cid not in self.blocks:
            handler.send_error(404)
        elif kind == "raw":
            send(handler, self.blocks[cid], RAW)
        elif kind == "car":
            scope = [*self.reached(cid)] if options.get("dag-scope", "all") == "all" else [(cid, self.blocks[cid])]
            body = car.dump([cid], scope)
            if self.bend is not None:
                self.bend(handler, body)
            else:
                send(handler, body, CAR)
        else:
            handler.send_error(400, "a trustless gateway is asked for raw blocks or CARs")

    def reached(self, root: CID) -> Iterator[tuple[CID, bytes]]:
        """Every block below a root, depth first, each once, as far as it is here."""
        waiting, seen = [root], set[CID]()
        while waiting:
            cid = waiting.pop()
            data = self.blocks.get(cid)
            if data is None or cid in seen:
                continue
            seen.add(cid)
            yield cid, data
            if cid.raw.startswith(cids.CBOR_PREFIX):
                waiting += reversed([*records.links(data)])

    def close(self) -> None:
        """Stop."""
        self._http.shutdown()
        self._http.server_close()


def send(handler: BaseHTTPRequestHandler, body: bytes, kind: str = CAR, *, length: int | None = None) -> None:
    """A whole answer, or one that says it would be longer."""
    handler.send_response(200)
    handler.send_header("content-type", f"{kind}; version=1; order=dfs; dups=n")
    handler.send_header("content-length", str(len(body) if length is None else length))
    handler.end_headers()
    handler.wfile.write(body)
