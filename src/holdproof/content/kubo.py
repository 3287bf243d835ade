"""A small client of the Kubo RPC, the HTTP API of an IPFS node.

Rules:
- Every call ends: 2 s to connect, `idle_s` without a byte, `budget_s` in total if set; a timeout, a malformed and an
  endless response are UnreachableError.
- Settings that a result depends on (CID version, leaves, chunker, hash) are always sent, never left to the node.
- User name and password in the URL are used to authenticate, and appear in no message.
- Content from the node is not trusted: callers compare it with a hash they know.
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
else:
    httpx = lazy_module("httpx")

_CONNECT_S: Final = 2.0
_MOST_ANSWER: Final = 1 << 24
# The same file must get the same CID from every node, whatever its defaults.
_SHAPE: Final = {
    "cid-version": 1,
    "cid-base": "base32",
    "raw-leaves": "true",
    "chunker": "size-262144",
    "hash": "sha2-256",
    "wrap-with-directory": "false",
}
# Kubo has no error codes: only the text tells an absent file from other failures.
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
        base = f"{self.url}/api/v0/"
        with self._translate_errors():
            self._client = httpx.Client(base_url=base, headers=headers, auth=credentials, timeout=timeout)

    def version(self) -> str:
        """Return the version of the node."""
        return self._call_for("version", "Version")

    def add(self, content: bytes | IO[bytes], *, pin: bool) -> str:
        """Add a file to the node and return its CID; unless pinned, the node may delete it."""
        return self._call_for("add", "Hash", files={"file": ("blob", content)}, pin=_word(pin), **_SHAPE)

    def dag_import(self, content: bytes | IO[bytes]) -> list[str]:
        """Add the blocks of a CAR file to the node and pin its roots; returns the roots that the node reports."""
        # Nodes report a root only if they are asked to pin it.
        options = {"pin-roots": "true", "silent": "false", "stats": "false", "allow-big-block": "false"}
        roots: list[str] = []
        for line in self._lines("dag/import", files={"path": ("archive.car", content)}, **options):
            root = line.get("Root")
            if isinstance(root, dict):
                # Kubo reports this error in a line of a response with status 200.
                if root.get("PinErrorMsg"):
                    raise UnreachableError(f"{self.url}: {str(root['PinErrorMsg'])[:200]}", url=self.url)
                cid = root.get("Cid")
                roots.append(str(cid.get("/") if isinstance(cid, dict) else cid))
        return roots

    def dag_export(self, cid: str) -> "Cat":
        """Stream all blocks below a CID as a CAR file; FileNotFoundError if the node reports that there are none."""
        return self._stream("dag/export", cid)

    def cat(self, cid: str) -> "Cat":
        """Stream the bytes of a file; FileNotFoundError if the node reports that there is none."""
        return self._stream("cat", cid)

    def _stream(self, call: str, cid: str) -> "Cat":
        until = self._deadline()
        with self._translate_errors():
            request = self._client.build_request("POST", call, params={"arg": cid})
            answer = self._client.send(request, stream=True)
            if answer.status_code != httpx.codes.OK:
                with closing(answer):
                    self._refuse(answer.status_code, self._read_all(answer, until))
        return Cat(self, answer, until)

    def pin(self, cid: str) -> None:
        """Pin a CID, so that the node does not delete it; UnreachableError unless the node names it as pinned."""
        pins = self._call("pin/add", arg=cid).get("Pins")
        if not isinstance(pins, list) or cid not in pins:
            raise UnreachableError(f"{self.url}: pin/add did not pin {cid}; is it an IPFS node?", url=self.url, cid=cid)

    def unpin(self, cid: str) -> None:
        """Unpin a CID; does nothing where it is not pinned."""
        try:
            self._call("pin/rm", arg=cid)
        except UnreachableError as error:
            if _UNPINNED not in error.message:
                raise

    def close(self) -> None:
        """Close the connections; may be called twice."""
        self._client.close()

    def _call_for(self, call: str, member: str, **params: Any) -> str:
        """Call the node and return one text member of the response."""
        answer = self._call(call, **params)
        if not isinstance(answer.get(member), str):
            raise UnreachableError(f"{self.url}: {call} gave no {member}", url=self.url)
        return str(answer[member])

    def _call(self, call: str, *, files: Any = None, **params: Any) -> dict[str, Any]:
        """Call the node and return the last line of the response: those before it only report progress."""
        lines = self._lines(call, files=files, **params)
        if not lines:
            raise UnreachableError(f"{self.url}: {call} gave no JSON", url=self.url)
        return lines[-1]

    def _lines(self, call: str, *, files: Any = None, **params: Any) -> list[dict[str, Any]]:
        """Call the node and return every line of the response, parsed."""
        until = self._deadline()
        with self._translate_errors(), self._client.stream("POST", call, params=params, files=files) as answer:
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

    def _deadline(self) -> float:
        return math.inf if self._budget_s is None else time.monotonic() + self._budget_s

    def check(self, until: float) -> None:
        """Raise UnreachableError if the deadline has passed."""
        if time.monotonic() > until:
            raise UnreachableError(f"{self.url}: took longer than {self._budget_s:g} s", url=self.url)

    def _read_all(self, answer: "httpx.Response", until: float) -> bytes:
        """Read a response, limited in length and time."""
        # httpx limits the time between two pieces only: a slow trickle would go on for ever.
        data = bytearray()
        for piece in answer.iter_bytes():
            data += piece
            self.check(until)
            if len(data) > _MOST_ANSWER:
                raise UnreachableError(f"{self.url}: an answer that is too long", url=self.url)
        return bytes(data)

    def _refuse(self, status: int, data: bytes) -> None:
        """Raise the error of a response that is not 200: FileNotFoundError or UnreachableError."""
        try:
            message = str(json.loads(data)["Message"])
        except (ValueError, KeyError, TypeError):
            message = data[:200].decode(errors="replace") or f"status {status}"
        if any(word in message for word in _GONE):
            raise FileNotFoundError(message)
        raise UnreachableError(f"{self.url}: {message}", url=self.url, status=status)

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Raise UnreachableError for an error of httpx inside the block."""
        try:
            yield
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise UnreachableError(f"{self.url}: {str(error) or type(error).__name__}", url=self.url) from error


class Cat:
    """A file of a node, read while it is received."""

    def __init__(self, kubo: Kubo, answer: "httpx.Response", until: float) -> None:
        self._kubo = kubo
        self._answer = answer
        self._until = until
        self._pieces = answer.iter_bytes()
        self._rest = b""

    def read(self, size: int, /) -> bytes:
        """Return at most `size` further bytes; none at the end."""
        pieces = [self._rest]
        length = len(self._rest)
        with self._kubo._translate_errors():
            while length < size and (piece := next(self._pieces, b"")):
                pieces.append(piece)
                length += len(piece)
                self._kubo.check(self._until)
        data = b"".join(pieces)
        self._rest = data[size:]
        return data[:size]

    def close(self) -> None:
        """Close the response; may be called twice."""
        self._answer.close()


def _word(flag: bool) -> str:
    return "true" if flag else "false"
