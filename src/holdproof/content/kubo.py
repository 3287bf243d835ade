"""A small client of the Kubo RPC, the HTTP interface of an IPFS node.

Rules:
- Every call ends: 2 s to connect, `idle_s` without a byte, `budget_s` altogether if there is one; then, and for an
  answer that is none or has no end, a typed error.
- What an answer depends on (CID version, leaves, chunker, hash) is always said, never left to the node.
- A name and a password in its URL open it, and are in no message.
- What the node gives is not trusted: callers compare it with a hash they know.
"""

import json
import math
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import IO, TYPE_CHECKING, Any, Final

from holdproof.content.credentials import split_credentials
from holdproof.errors import UnreachableError
from holdproof.lazy import lazy_module

if TYPE_CHECKING:
    import httpx
else:  # loaded at the first request: it costs more than all the rest at start
    httpx = lazy_module("httpx")

_CONNECT_S: Final = 2.0
_MOST_ANSWER: Final = 1 << 24
# How a file becomes blocks; fixed, since the CID of a file depends on every one of these.
_SHAPE: Final = {
    "cid-version": 1,
    "cid-base": "base32",
    "raw-leaves": "true",
    "chunker": "size-262144",
    "hash": "sha2-256",
    "wrap-with-directory": "false",
}
# Kubo has no error codes: absence is recognised by its messages.
_GONE: Final = ("not found", "could not find", "no link named")
_UNPINNED: Final = "not pinned"


class Kubo:
    """One node; may be shared by threads."""

    def __init__(
        self,
        url: str = "http://127.0.0.1:5001",
        *,
        token: str | None = None,
        idle_s: float = 30.0,
        budget_s: float | None = None,
    ) -> None:
        bare, credentials = split_credentials(url)
        self.url = bare.rstrip("/")
        self._budget_s = budget_s
        headers = {} if token is None else {"authorization": f"Bearer {token}"}
        timeout = httpx.Timeout(idle_s, connect=_CONNECT_S)
        with self._translated():
            self._client = httpx.Client(
                base_url=f"{self.url}/api/v0/", headers=headers, auth=credentials, timeout=timeout
            )

    def version(self) -> str:
        """Return the version the node says it has."""
        return self._field("version", "Version")

    def add(self, content: bytes | IO[bytes], *, pin: bool) -> str:
        """Give the node a file; its CID. Unless pinned, the node may forget it."""
        return self._field("add", "Hash", files={"file": ("blob", content)}, pin=_word(pin), **_SHAPE)

    def dag_import(self, content: bytes | IO[bytes]) -> list[str]:
        """Give the node the blocks of a CAR; the roots it says it took. Nothing is pinned by that."""
        options = {"pin-roots": "false", "silent": "false", "stats": "false", "allow-big-block": "false"}
        roots: list[str] = []
        for line in self._lines("dag/import", files={"path": ("archive.car", content)}, **options):
            root = line.get("Root")
            if isinstance(root, dict):
                if root.get("PinErrorMsg"):  # Kubo reports it under status 200
                    raise UnreachableError(f"{self.url}: {str(root['PinErrorMsg'])[:200]}", url=self.url)
                link = root.get("Cid")
                roots.append(str(link.get("/") if isinstance(link, dict) else link))
        return roots

    def dag_export(self, cid: str) -> "Cat":
        """Stream all blocks below a CID as a CAR; FileNotFoundError if the node reports that there are none."""
        return self._stream("dag/export", cid)

    def cat(self, cid: str) -> "Cat":
        """Stream the bytes of a file; FileNotFoundError if the node reports that there is none."""
        return self._stream("cat", cid)

    def _stream(self, call: str, cid: str) -> "Cat":
        until = self._until()
        with self._translated():
            request = self._client.build_request("POST", call, params={"arg": cid})
            answer = self._client.send(request, stream=True)
            if answer.status_code != httpx.codes.OK:
                with closing(answer):
                    self._refuse(answer.status_code, self._read_all(answer, until))
        return Cat(self, answer, until)

    def pin(self, cid: str) -> None:
        """Let the node never forget it."""
        self._ask("pin/add", arg=cid)

    def unpin(self, cid: str) -> None:
        """Let the node forget it; nothing happens where it is not pinned."""
        try:
            self._ask("pin/rm", arg=cid)
        except UnreachableError as error:
            if _UNPINNED not in error.message:
                raise

    def close(self) -> None:
        """Close the connections; may be called twice."""
        self._client.close()

    def _field(self, call: str, member: str, **params: Any) -> str:
        """Return one member of an answer."""
        answer = self._ask(call, **params)
        if not isinstance(answer.get(member), str):
            raise UnreachableError(f"{self.url}: {call} gave no {member}", url=self.url)
        return str(answer[member])

    def _ask(self, call: str, *, files: Any = None, **params: Any) -> dict[str, Any]:
        """Make a call and return its result, the last of its lines."""
        lines = self._lines(call, files=files, **params)
        if not lines:
            raise UnreachableError(f"{self.url}: {call} gave no JSON", url=self.url)
        return lines[-1]

    def _lines(self, call: str, *, files: Any = None, **params: Any) -> list[dict[str, Any]]:
        """Make a call and return every line of its response."""
        until = self._until()
        with self._translated(), self._client.stream("POST", call, params=params, files=files) as answer:
            data = self._read_all(answer, until)
            if answer.status_code != httpx.codes.OK:
                self._refuse(answer.status_code, data)
        try:
            lines = [json.loads(line) for line in data.decode().splitlines() if line.strip()]
        except ValueError as error:
            raise UnreachableError(f"{self.url}: {call} gave no JSON", url=self.url) from error
        if not all(isinstance(line, dict) for line in lines):
            raise UnreachableError(f"{self.url}: {call} gave no object", url=self.url)
        return lines

    def _until(self) -> float:
        return math.inf if self._budget_s is None else time.monotonic() + self._budget_s

    def check(self, until: float) -> None:
        """Raise UnreachableError once the time budget is spent."""
        if time.monotonic() > until:
            raise UnreachableError(f"{self.url}: took longer than {self._budget_s:g} s", url=self.url)

    def _read_all(self, answer: "httpx.Response", until: float) -> bytes:
        """Return an answer of bounded length, in bounded time."""
        data = bytearray()
        for piece in answer.iter_bytes():
            data += piece
            self.check(until)
            # A broken or hostile node must not fill the memory.
            if len(data) > _MOST_ANSWER:
                raise UnreachableError(f"{self.url}: an answer that is too long", url=self.url)
        return bytes(data)

    def _refuse(self, status: int, data: bytes) -> None:
        try:
            message = str(json.loads(data)["Message"])
        except (ValueError, KeyError, TypeError):
            message = data[:200].decode(errors="replace") or f"status {status}"
        if any(word in message for word in _GONE):
            raise FileNotFoundError(message)
        raise UnreachableError(f"{self.url}: {message}", url=self.url, status=status)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise UnreachableError(f"{self.url}: {str(error) or type(error).__name__}", url=self.url) from error


class Cat:
    """A file of a node, read as it comes."""

    def __init__(self, kubo: Kubo, answer: "httpx.Response", until: float) -> None:
        self._kubo = kubo
        self._answer = answer
        self._until = until
        self._pieces = answer.iter_bytes()
        self._rest = b""

    def read(self, size: int, /) -> bytes:
        """Return at most that many further bytes; none at the end."""
        gathered = [self._rest]
        length = len(self._rest)
        with self._kubo._translated():
            while length < size and (piece := next(self._pieces, b"")):
                gathered.append(piece)
                length += len(piece)
                self._kubo.check(self._until)
        data = b"".join(gathered)
        self._rest = data[size:]
        return data[:size]

    def close(self) -> None:
        """Let go of it; may be called twice."""
        self._answer.close()


def _word(truth: bool) -> str:
    return "true" if truth else "false"
