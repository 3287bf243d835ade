"""Doors that strangers write to: HTTP bodies and queries, page cursors, settings."""

import asyncio
import json
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

import holdproof
from harness.damaged_bytes import JSON_MARKS
from holdproof import config, paging, sync
from holdproof.db import MEMORY
from holdproof.server import serve
from holdproof.server.app import create_app
from holdproof.server.settings import ServerSettings
from holdproof.urls import redact
from proof.fuzz.targets.target import Target

# --- HTTP --------------------------------------------------------------------------------------------------------

_CALLS: Final[Sequence[tuple[str, dict[str, Any]]]] = (
    ("agents/register", {"agent_id": "a", "version": "1.0.0", "contract": {"may": ["x"]}, "priority": 1}),
    ("flows/start", {"agent_id": "trader", "flow_type": "t", "priority": 2, "created_by": ["person", "ann"]}),
    ("flows/transition", {"flow_id": "flow", "to": "RUNNING", "reason": "x"}),
    ("flows/list", {"status": "RUNNING", "since": "2026-01-01T00:00:00Z", "after": "", "limit": 10}),
    ("flows/search", {"text": "x", "limit": 3}),
    ("flows/timeline", {"flow_id": "flow", "after": "2026-01-01T00:00:00.000000Z 3 1 1"}),
    ("flows/lease", {"flow_id": "flow", "worker": "w", "lease_s": 5.5}),
    ("contexts/put", {"flow_id": "flow", "data": {"a": [1, 2.5, None]}}),
    ("state/update", {"agent_id": "trader", "data": {"a": 1}, "expected_version": 1}),
    ("feedback/record", {"agent_id": "trader", "flow_id": "flow", "status": "OK", "score": 0.5, "source": "Human"}),
    ("audit/record", {"flow_id": "flow", "event_type": "E", "severity": "INFO", "detail": {"x": 1}}),
    ("audit/search", {"severity": "INFO", "since": "2026-01-01T00:00:00Z", "after": 0}),
    ("ledger/append", {"flow_id": "flow", "intent": {"buy": 1}, "context_ref": "c", "evidence_hash": "e"}),
    ("locks/try_acquire", {"flow_id": "flow", "resources": {"r": 1.5}, "capacity": {"r": 10}, "ttl_s": 60}),
    ("idempotency/settle", {"key": "k", "result": {"x": 1}, "ttl_s": 5}),
    ("retries/reject", {"flow_id": "flow", "max_retries": 3, "policy": "LINEAR", "base_s": 0.5}),
    ("sagas/mark_dirty", {"flow_id": "flow", "step": "s", "partial_state": {"x": 1}}),
    ("escalations/request", {"flow_id": "flow", "reason": "r", "proposal": {"x": 1}, "deadline_s": 60}),
    ("escalations/resolve", {"id": 1, "status": "APPROVED", "by": "ann", "proposal": {"x": 2}}),
    ("escalations/due", {"after": "2026-01-01T00:00:00.000000Z HIGH_IMPACT 1", "limit": 3}),
    ("objects/put", {"id": "o", "type": "note", "content": "text", "attributes": {"a": [1.5]}, "children": ["p"]}),
    ("objects/list", {"after": "", "limit": 5}),
    ("snapshots/create", {"message": "m", "author": "ann"}),
    ("telemetry/append", {"events": [{"event_type": "e", "timestamp": "2026-01-01T00:00:00Z", "data": {"x": 1}}]}),
    ("vectors/add", {"id": "v", "vector": [0.1, 0.2], "metadata": {"a": "b"}}),
    ("graph/subtree", {"id": "o"}),
    ("log/prove_consistency", {"old": 1, "new": 5}),
)
_PATIENCE_S: Final = 0.5
_PATHS: Final = (
    b"/v1/flows",
    b"/v1/escalations/list?cursor=",
    b"POST ",
    b"GET ",
    b"/v1/log/checkpoint",
    b"/v1/tile/0/",
)


class _Served:
    """The whole application over a store in memory, called in this process."""

    def __init__(self) -> None:
        self.runner = asyncio.Runner()
        self.runner.run(self._open())

    async def _open(self) -> None:
        folder = tempfile.mkdtemp(prefix="holdproof-fuzz-")
        self.store = await holdproof.open(Path(folder) / "home")
        await self.store.agents.register("trader", version="1.0.0")
        await self.store.flows.start("trader", flow_id="flow")
        self.token = (await self.store.tokens.create("fuzz")).secret
        self.app = create_app(self.store, ServerSettings(rate_s=0, denied_cost=0), parts=serve.parts(console=False))

    def ask(self, method: str, target: str, body: bytes) -> tuple[int, bytes]:
        """The status and the body of an answer; one that goes on for ever is cut off."""
        return self.runner.run(self._ask(method, target, body))

    async def _ask(self, method: str, target: str, body: bytes) -> tuple[int, bytes]:
        path, _, query = target.partition("?")
        headers = [(b"host", b"localhost"), (b"authorization", f"Bearer {self.token}".encode())]
        headers += [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        scope: dict[str, Any] = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "path": path,
        }
        scope |= {"raw_path": path.encode(errors="replace"), "query_string": query.encode(errors="replace")}
        scope |= {"headers": headers, "client": ("127.0.0.1", 1), "server": ("localhost", 80), "scheme": "http"}
        sent: list[dict[str, Any]] = []
        given = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> dict[str, Any]:
            if not given:
                await asyncio.Event().wait()
            return given.pop()

        async def send(message: Any) -> None:
            sent.append(message)

        try:
            await asyncio.wait_for(self.app({**scope, "root_path": "", "state": {}}, receive, send), _PATIENCE_S)
        except TimeoutError:  # an answer that waits, or a stream: what is asked for
            return 0, b""
        status = next(message["status"] for message in sent if message["type"] == "http.response.start")
        return status, b"".join(message.get("body", b"") for message in sent)


@cache
def _served() -> _Served:
    return _Served()


def _http(data: bytes) -> None:
    """A request line and a body: the answer is one of ours, never a failure of the server."""
    line, _, body = data.partition(b"\n")
    method, _, target = line.decode("latin-1").partition(" ")
    if not target.startswith("/v1/") or method not in {"GET", "POST", "PUT", "DELETE", "HEAD"}:
        return
    status, answer = _served().ask(method, target, body)
    assert status < 500 or b"unavailable" in answer, f"{status} {answer[:300]!r}"
    if 400 <= status < 500 and method != "HEAD":
        assert "code" in json.loads(answer), f"{status} without a problem: {answer[:200]!r}"


def _http_seeds() -> Sequence[bytes]:
    posted = [f"POST /v1/{path}\n{json.dumps(given)}".encode() for path, given in _CALLS]
    asked = [b"GET /v1/flows/list?limit=2&cursor=x\n", b"GET /v1/audit/list?severity=INFO&cursor=WzFd\n"]
    return [*posted, *asked, b"GET /v1/agents/get?agent_id=trader\n", b"GET /v1/log/head\n"]


# --- cursors -----------------------------------------------------------------------------------------------------


@cache
def _store() -> sync.Holdproof:
    store = sync.open(url=MEMORY)
    store.agents.register("trader", version="1.0.0")
    store.flows.start("trader", flow_id="flow")
    store.flows.transition("flow", "RUNNING")
    store.escalations.request("flow", reason="r", deadline_s=60)
    store.objects.put("o", type="note", content="x")
    return store


def _cursor(data: bytes) -> None:
    """A page of something that has pages, begun where the input says."""
    verb, _, text = data.decode(errors="surrogateescape").partition(" ")
    if verb in _PAGED:
        noun, _, name = verb.partition(".")
        page = getattr(getattr(_store(), noun), name)
        page(*_PAGED[verb], cursor=text)


_PAGED: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(("flows.list", "escalations.list", "agents.list", "sagas.list", "audit.list", "locks.list"), ()),
    "flows.timeline": ("flow",),
}


def _cursor_seeds() -> Sequence[bytes]:
    moment = "2026-01-01T00:00:00.000000Z"
    keys: dict[str, tuple[str | int, ...]] = {
        "flows.timeline": (moment, 3, 1, "1"),
        "agents.list": ("trader",),
        "flows.list": (moment, "flow"),
        "sagas.list": (moment, "flow"),
        "locks.list": ("seat", "flow"),
        **dict.fromkeys(("audit.list", "escalations.list"), (12,)),
    }
    return [f"{verb} {paging.encode(*key)}".encode() for verb, key in keys.items()]


# --- settings ----------------------------------------------------------------------------------------------------

_YAML: Final = b"""profile: default
providers:
  relational: {type: postgres, connection: "postgresql://${PGUSER}@host/db", retention: {hot_days: 3}}
  vector: {type: sqlite, dimensions: 384, fallback: [memory]}
  blob: {type: s3, path: "${XDG_DATA_HOME}/b", threshold: 10}
images: {every_s: 60, keep: 3}
"""
_YAML_MARKS: Final = (
    b"&a ",
    b"*a",
    b"<<: ",
    b"!!python/name:os ",
    b"? ",
    b"- ",
    b": ",
    b"{",
    b"}",
    b"|\n",
    b"${",
    b"\t",
)


@cache
def _place() -> Path:
    return Path(tempfile.mkdtemp(prefix="holdproof-fuzz-")) / "config.yaml"


def _config(data: bytes) -> None:
    """A file of settings, and a URL in the environment, strict and forgiving."""
    path = _place()
    path.write_bytes(data)
    paths = config.Paths.find(path.parent)
    text = data[:200].decode("utf-8", "replace").replace("\0", "")
    for strict in (False, True):
        config.load(paths=paths, override=path, env={"PGUSER": "u"}, strict=strict)
        config.load(paths=paths, override={}, env={"HOLDPROOF_DATABASE_URL": text}, strict=strict)
    redact(text)


TARGETS: Final = (
    Target("http", _http_seeds, _http, (*JSON_MARKS, *_PATHS), ready=_served),
    Target(
        "cursors",
        _cursor_seeds,
        _cursor,
        (b" ", b"Z", b"-", b"9" * 25, b"+00:00", b"HIGH_IMPACT"),
        ready=_store,
    ),
    Target("config", lambda: [_YAML, b"postgresql://u:p@h/db?sslmode=require", b"{}"], _config, _YAML_MARKS),
)
