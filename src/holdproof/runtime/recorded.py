"""Recorded values: what flows are called with, what steps take and give, as columns hold it.

Rules:
- A value is tagged JSON (model/typed_json.py) in its canonical form.
- Parts of more than 4 KiB are stored as content-addressed values, and stand in the text as `{"$cid": …}`. The same part
  is stored once however often it is passed: of a conversation that grows, each call adds what is new.
- What belongs to a person is sealed whole, `{"$sealed": …}`; once the person was erased it is read as `{"$erased": …}`.
- `fingerprint` tells equal values without storing them; of a person's value only with that person's key.
- Texts and JSON of other columns (reasons, contexts, details) are sealed in the same way (`seal_text`, `seal_json`).
  What somebody else writes never looks sealed: a value with that mark is refused, so that nobody has another person's
  content opened by passing its envelope. Of a person who was erased they are written as erased.
"""

import base64
import json
from typing import Any, Final

from holdproof.content import encryption, values
from holdproof.crypto import canonical
from holdproof.db import Tx, sql
from holdproof.errors import ErasedError, FormatError, InvalidInputError, NotFoundError, ProofError, TamperedError

LARGEST: Final = 4096
"""How long the JSON text of a value is that stands in its row, in bytes."""
ERASED: Final = "[erased]"
"""What is read in the place of a text that was erased with the person it belonged to."""
_SEALED: Final = "$sealed"
_FIELDS: Final = "$fields"
"""The tag of an object that is stored as a list of its keys and values."""
_LARGEST_OBJECT: Final = 2**18
_REFERENCE: Final = 71
"""How long the text of a reference is."""


def dump(value: Any) -> str:
    """Return the canonical text of tagged JSON; InvalidInputError for what JSON cannot represent."""
    return canonical.dump_text(value)


def parse(text: str) -> Any:
    """Return the tagged JSON of a whole text."""
    return json.loads(text)


def store(tx: Tx, text: str, handle: str | None = None) -> str:
    """Return the text for a column, given the whole text; large parts are stored beside it, a person's are sealed."""
    # Nothing is nobody's; and what undoes a step of a person who was erased gives nothing else.
    if handle is not None and text != "null":
        return _seal(tx, text, handle)
    if len(text) <= LARGEST and (text.isascii() or len(text.encode()) <= LARGEST):
        return text
    whole, _ = _outsource(tx, json.loads(text))
    return canonical.dump_text(whole)


def _seal(tx: Tx, text: str, handle: str) -> str:
    envelope = encryption.seal_for(tx, handle, text.encode())
    if len(envelope) <= LARGEST:
        return canonical.dump_text({"$sealed": base64.b64encode(envelope).decode()})
    return canonical.dump_text({"$sealed": {"$cid": values.put(tx, envelope)}})


def _outsource(tx: Tx, value: Any) -> tuple[Any, int]:
    """Replace large parts by references, the innermost first; return what is left, and about how long its text is.

    A long list becomes a Merkle list: one that grew shares all but its end with what was stored before.
    """
    if isinstance(value, str):
        size = len(value.encode("utf-8", "surrogatepass")) + 2
        return _referred(tx, value) if size > LARGEST else (value, size)
    if isinstance(value, list):
        items = [_outsource(tx, item) for item in value]
        size = sum(length + 1 for _, length in items) + 2
        outer: Any = [item for item, _ in items]
    elif isinstance(value, dict):
        fields = {key: _outsource(tx, item) for key, item in value.items()}
        size = sum(len(key) + length + 4 for key, (_, length) in fields.items()) + 2
        outer = {key: item for key, (item, _) in fields.items()}
        if size > _LARGEST_OBJECT:
            # More than a block holds: as pairs, which are a Merkle list.
            pairs, length = _referred(tx, [[key, item] for key, item in outer.items()])
            return {_FIELDS: pairs}, length + len(_FIELDS) + 5
    else:
        return value, len(str(value))
    return _referred(tx, outer) if size > LARGEST else (outer, size)


def _referred(tx: Tx, value: Any) -> tuple[Any, int]:
    return {"$cid": values.put(tx, value)}, _REFERENCE


def load(tx: Tx, text: str | None) -> Any:
    """Return the tagged JSON of a column, every part in its place; None for NULL."""
    if text is None:
        return None
    value = json.loads(text)
    # Most values are whole; keys of a caller never start with `$` (model/typed_json.py).
    return _resolve(tx, value) if '"$cid"' in text or f'"{_SEALED}"' in text else value


def seal_json(tx: Tx, text: str, handle: str | None) -> str:
    """Return the JSON text for a column: a person's sealed, nobody's as it is."""
    if handle is not None:
        try:
            return _seal(tx, text, handle)
        except ErasedError:
            return canonical.dump_text({"$erased": handle})
    if f'"{_SEALED}"' in text and _is_sealed(json.loads(text)):
        raise InvalidInputError(f"{_SEALED} is no key of a caller's value", field=_SEALED)
    return text


def open_json(tx: Tx, value: Any) -> Any:
    """Return the JSON of a column that `seal_json` wrote; `{"$erased": …}` once its person was erased."""
    if not _is_sealed(value):
        return value
    try:
        return _unseal(tx, value[_SEALED])
    except (FormatError, ValueError, TypeError):
        # Written by another program; `verify` says whether it was edited.
        return value


def _is_sealed(value: Any) -> bool:
    return isinstance(value, dict) and value.keys() == {_SEALED}


def seal_text(tx: Tx, text: str | None, handle: str | None) -> str | None:
    """Return a text for a column: a person's sealed, nobody's as it is."""
    if text is None:
        return None
    if handle is not None:
        try:
            return _seal(tx, json.dumps(text), handle)
        except ErasedError:
            return ERASED
    if text.startswith(_TEXT_MARK):
        raise InvalidInputError(f"a text does not start with {_TEXT_MARK}", field=_SEALED)
    return text


_TEXT_MARK: Final = f'{{"{_SEALED}":'


def open_text(tx: Tx, text: str | None) -> str | None:
    """Return the text of a column that `seal_text` wrote; `ERASED` once its person was erased."""
    if text is None or not text.startswith(_TEXT_MARK):
        return text
    try:
        opened = _unseal(tx, json.loads(text)[_SEALED])
    except (FormatError, ValueError, TypeError):
        return text
    return opened if isinstance(opened, str) else ERASED


_SUBJECT = sql("SELECT subject FROM decision_flows WHERE dfid = :dfid AND ns = :ns")


def subject_of(tx: Tx, flow_id: str, *, ns: str) -> str | None:
    """Return the handle of the person whose flow it is; None for nobody's."""
    row = tx.one(_SUBJECT, dfid=flow_id, ns=ns)
    if row is None:
        return None
    (handle,) = row
    return None if handle is None else str(handle)


def resolve(tx: Tx, value: Any) -> Any:
    """Return tagged JSON with every part in its place, given with references to them."""
    return _resolve(tx, value)


def _resolve(tx: Tx, value: Any) -> Any:
    if isinstance(value, list):
        return [_resolve(tx, item) for item in value]
    if not isinstance(value, dict):
        return value
    if "$cid" in value:
        return _resolve(tx, _part(tx, value["$cid"]))
    if _SEALED in value:
        return _unseal(tx, value[_SEALED])
    if _FIELDS in value:
        return dict(_resolve(tx, value[_FIELDS]))
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
