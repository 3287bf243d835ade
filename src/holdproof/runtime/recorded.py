"""Recorded values: what flows are called with, what steps take and give, as columns hold it.

Rules:
- A value is tagged JSON (model/typed_json.py) in its canonical form.
- Parts of more than 4 KiB are stored as content-addressed values, and stand in the text as `{"$cid": …}`. The same part
  is stored once however often it is passed: of a conversation that grows, each call adds what is new.
- What belongs to a person is sealed whole, `{"$sealed": …}`; once the person was erased it is read as `{"$erased": …}`.
- `fingerprint` tells equal values without storing them; of a person's value only with that person's key.
"""

import base64
import json
from typing import Any, Final

from holdproof.content import encryption, values
from holdproof.crypto import canonical
from holdproof.db import Tx
from holdproof.errors import ErasedError, NotFoundError, ProofError, TamperedError

LARGEST: Final = 4096
"""How long the JSON text of a value is that stands in its row, in bytes."""


def dump(value: Any) -> str:
    """Return the canonical text of tagged JSON; InvalidInputError for what JSON cannot represent."""
    return canonical.dump_text(value)


def parse(text: str) -> Any:
    """Return the tagged JSON of a whole text."""
    return json.loads(text)


def store(tx: Tx, text: str, handle: str | None = None) -> str:
    """Return the text for a column, given the whole text; large parts are stored beside it, a person's are sealed."""
    if handle is not None:
        return _seal(tx, text, handle)
    if len(text) <= LARGEST and (text.isascii() or len(text.encode()) <= LARGEST):
        return text
    return canonical.dump_text(_outsource(tx, json.loads(text)))


def _seal(tx: Tx, text: str, handle: str) -> str:
    envelope = encryption.seal_for(tx, handle, text.encode())
    if len(envelope) <= LARGEST:
        return canonical.dump_text({"$sealed": base64.b64encode(envelope).decode()})
    return canonical.dump_text({"$sealed": {"$cid": values.put(tx, envelope)}})


def _outsource(tx: Tx, value: Any) -> Any:
    """Replace large parts by references, the innermost first, so that parts that are shared stay shared."""
    if isinstance(value, str):
        return {"$cid": values.put(tx, value)} if _size(value) > LARGEST else value
    if isinstance(value, list):
        outer: Any = [_outsource(tx, item) for item in value]
    elif isinstance(value, dict):
        outer = {key: _outsource(tx, item) for key, item in value.items()}
    else:
        return value
    return {"$cid": values.put(tx, outer)} if _size(outer) > LARGEST else outer


def _size(value: Any) -> int:
    return len(canonical.dumps(value))


def load(tx: Tx, text: str | None) -> Any:
    """Return the tagged JSON of a column, every part in its place; None for NULL."""
    if text is None:
        return None
    value = json.loads(text)
    # Most values are whole; keys of a caller never start with `$` (model/typed_json.py).
    return _resolve(tx, value) if '"$cid"' in text or '"$sealed"' in text else value


def _resolve(tx: Tx, value: Any) -> Any:
    if isinstance(value, list):
        return [_resolve(tx, item) for item in value]
    if not isinstance(value, dict):
        return value
    if "$cid" in value:
        return _resolve(tx, _part(tx, value["$cid"]))
    if "$sealed" in value:
        return _unseal(tx, value["$sealed"])
    return {key: _resolve(tx, item) for key, item in value.items()}


def _part(tx: Tx, cid: str) -> Any:
    try:
        return values.get(tx, cid)
    except (NotFoundError, ProofError) as error:
        # The row is under its entry, and names its parts by their hashes: so they are under it too.
        raise TamperedError(f"objects {cid}: {error.message}", table="objects", row=cid) from error


def _unseal(tx: Tx, content: Any) -> Any:
    envelope = base64.b64decode(content) if isinstance(content, str) else _part(tx, content["$cid"])
    assert isinstance(envelope, bytes), "sealed content is bytes"
    try:
        return json.loads(encryption.open(tx, envelope))
    except ErasedError as error:
        return {"$erased": error.fields["subject"]}


def fingerprint(tx: Tx, text: str, handle: str | None = None) -> str:
    """Return a hash of a whole text; of a person's under that person's key, so that it tells nothing without it."""
    if handle is None:
        return canonical.sha256_hex(text.encode())
    return encryption.keyed_hash(tx, handle, text.encode())
