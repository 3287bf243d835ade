"""Envelopes: how values of LangGraph lie in a thread.

The first byte says how the rest is read: 0 MessagePack, 1 nothing, 2 bytes, 3 a bytearray, 4 another kind, whose name
follows with its length before it. 128 more: the rest is deflated (raw, with `DICTIONARY` as preset dictionary).

Sealed, an envelope is `nonce (12) ‖ AES-256-GCM ciphertext ‖ tag (16)`. The nonce is the start of an HMAC-SHA-256 over
purpose and content: the same value is sealed the same way, so that it is still stored once; who reads the store learns
that two values are equal, and nothing else.

Rules:
- With a key, nothing in clear is read, and nothing sealed without one; either is a NotSealedError.
- What is inflated is bounded, and so is what is put: what was acknowledged can be read.
"""

import hmac
import zlib
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Final, Protocol

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from holdproof.errors import FormatError, InvalidInputError, NotSealedError

CLEAR: Final = "langgraph/1"
SEALED: Final = "langgraph/1+gcm"
MOST: Final = 2**26
_KINDS: Final = ("msgpack", "null", "bytes", "bytearray")
_OTHER: Final = 4
_DEFLATED: Final = 128
_WORTH: Final = 160
_NONCE: Final = 12

DICTIONARY: Final = (
    b"\x93\xb9langgraph.types\xa9Interrupt\x82\xa5value\xa2id resumable ns when during "
    b"\xbflangchain_core.documents.base\xa8Document\x84\xa2id\xa8metadata\xacpage_content\xa4type\xa8Document"
    b"\xbdlangchain_core.messages.tool\xabToolMessage tool_call_id artifact status success error "
    b"\xd9\x1elangchain_core.messages.system\xadSystemMessage\xa6system usage_metadata input_tokens output_tokens"
    b" total_tokens input_token_details output_token_details cache_read reasoning finish_reason stop tool_calls"
    b" model_name system_fingerprint token_usage prompt_tokens completion_tokens logprobs \xa4name\xa4args\xa2id"
    b"\xa4type\xa9tool_call\xa4text "
    b"pending_sends\xa2ts\xd9 20 +00:00\xb0channel_versions\x83\xa9__start__\xa8messages\xafbranch:to:model"
    b"\xafbranch:to:agent\xafbranch:to:tools\xadversions_seen\x83\xa9__input__\x80\xa9__start__\x81\xa9__start__"
    b"\xb0updated_channels\x91\xa8messages"
    b" the of and to in is that it for you with "
    b"\x94\xbalangchain_core.messages.ai\xa9AIMessage\x89\xa7content\xb1additional_kwargs\x80\xb1response_metadata\x80\xa4type"
    b"\xa2ai\xa4name\xc0\xa2id\xd9$\xaatool_calls\x90\xb2invalid_tool_calls\x90\xaeusage_metadata\xc0\xb3model_validate_json"
    b"\x94\xbdlangchain_core.messages.human\xacHumanMessage\x86\xa7content\xda\x01\xb1additional_kwargs\x80\xb1response_metadata"
    b"\x80\xa4type\xa5human\xa4name\xc0\xa2id\xd9$\xb3model_validate_json"
)
"""What values of LangGraph are likely to hold. It never changes: another one needs another flag."""


class Serializer(Protocol):
    """LangGraph's own protocol."""

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        """Return a value as bytes, and how they are to be read."""
        ...

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        """Return the value of such bytes."""
        ...


class Sealer:
    """AES-256-GCM under one key."""

    def __init__(self, key: bytes) -> None:
        if len(key) != 32:
            raise InvalidInputError("a key has 32 bytes")
        self._cipher = AESGCM(hmac.digest(key, b"holdproof langgraph seal", "sha256"))
        self._mac = hmac.digest(key, b"holdproof langgraph nonce", "sha256")

    def seal(self, purpose: bytes, content: bytes) -> bytes:
        """Content that only this key opens, and only for this purpose."""
        # Derived from the content: the same value is sealed to the same bytes, and is stored once.
        nonce = hmac.digest(self._mac, sha256(purpose).digest() + content, "sha256")[:_NONCE]
        return nonce + self._cipher.encrypt(nonce, content, purpose)

    def open(self, purpose: bytes, sealed: bytes) -> bytes:
        """Return what was sealed."""
        try:
            return self._cipher.decrypt(sealed[:_NONCE], sealed[_NONCE:], purpose)
        except (InvalidTag, ValueError) as error:
            raise NotSealedError("sealed with another key or for another place, or changed since") from error

    def name(self, text: str) -> str:
        """Return a text that is only compared, under this key."""
        return hmac.digest(self._mac, b"name " + text.encode(), "sha256").hex()


class Envelopes:
    """Puts values into envelopes, and takes them out."""

    def __init__(self, serde: Serializer, sealer: Sealer | None) -> None:
        self.serde = serde
        self.sealer = sealer
        self.tag = CLEAR if sealer is None else SEALED

    def wrap(self, value: Any, purpose: bytes = b"value") -> bytes:
        """Return a value as it lies in a thread."""
        kind, content = self.serde.dumps_typed(value)
        data = _packed(kind, bytes(content))
        return data if self.sealer is None else self.sealer.seal(purpose, data)

    def unwrap(self, tag: str, data: bytes, purpose: bytes = b"value") -> Any:
        """Return the value in an envelope."""
        self.require(tag)
        if self.sealer is not None:
            data = self.sealer.open(purpose, data)
        return self.serde.loads_typed(_unpacked(data))

    def require(self, tag: str) -> None:
        """Raise NotSealedError for a value that was stored in another way than is read here."""
        if tag != self.tag:
            raise NotSealedError(f"a value is stored as {tag!r}, and {self.tag!r} is what is read here", tag=tag)

    def wrap_facts(self, facts: Mapping[str, Any], purpose: bytes) -> dict[str, Any]:
        """Metadata as it is stored: in clear, so that it can be searched, or sealed."""
        if self.sealer is None:
            return dict(facts)
        return {"sealed": self.sealer.seal(purpose, _packed(*self.serde.dumps_typed(dict(facts)))).hex()}

    def unwrap_facts(self, stored: Mapping[str, Any], purpose: bytes) -> dict[str, Any]:
        """Return the metadata of a checkpoint."""
        if self.sealer is None:
            return dict(stored)
        # With a key nothing in clear is trusted: it may have been put there by whoever can write to the database.
        if stored.keys() != {"sealed"} or not isinstance(stored["sealed"], str):
            raise NotSealedError("the metadata of a checkpoint is in clear")
        try:
            sealed = bytes.fromhex(stored["sealed"])
        except ValueError as error:
            raise NotSealedError("the metadata of a checkpoint is malformed") from error
        metadata: dict[str, Any] = self.serde.loads_typed(_unpacked(self.sealer.open(purpose, sealed)))
        return metadata


def _packed(kind: str, content: bytes) -> bytes:
    if kind in _KINDS:
        head = _KINDS.index(kind)
    else:
        name = kind.encode()
        if len(name) > 255:
            raise InvalidInputError("the name of a serialization is too long", kind=kind[:100])
        head = _OTHER
        content = bytes([len(name)]) + name + content
    if len(content) > MOST:
        raise InvalidInputError("a value of a checkpoint is larger than 64 MiB: keep it as a blob", bytes=len(content))
    # Below this length the header of deflate eats what it saves.
    if len(content) >= _WORTH:
        deflater = zlib.compressobj(6, zlib.DEFLATED, -15, 8, zlib.Z_DEFAULT_STRATEGY, DICTIONARY)
        smaller = deflater.compress(content) + deflater.flush()
        if len(smaller) < len(content):
            return bytes([head | _DEFLATED]) + smaller
    return bytes([head]) + content


def _unpacked(data: bytes) -> tuple[str, bytes]:
    if not data:
        raise FormatError("an envelope is empty")
    head = data[0]
    content = data[1:]
    if head & _DEFLATED:
        content = _inflated(content)
    kind = head & ~_DEFLATED
    if kind < len(_KINDS):
        return _KINDS[kind], content
    if kind != _OTHER or not content or len(content) <= content[0]:
        raise FormatError("an envelope of an unknown kind", kind=kind)
    return content[1 : 1 + content[0]].decode(errors="replace"), content[1 + content[0] :]


def _inflated(content: bytes) -> bytes:
    inflater = zlib.decompressobj(-15, DICTIONARY)
    try:
        # Bounded: a few bytes can stand for gigabytes.
        inflated = inflater.decompress(content, MOST)
    except zlib.error as error:
        raise FormatError(f"an envelope cannot be inflated: {error}") from error
    if not inflater.eof or inflater.unused_data:
        raise FormatError("an envelope is cut short, or larger than 64 MiB")
    return inflated
