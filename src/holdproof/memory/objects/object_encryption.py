"""Sealed objects: what belongs to a subject is encrypted under the subject's key before it is hashed.

Rules:
- Content, attributes and volatile fields are sealed; id, type, parent, children and version stay in the open.
- A record holds the envelope and its CID names the envelope: when the key is destroyed every CID, root, signature and
  proof stays what it was, and the content is gone wherever the record went: images, archives, nodes, backups.
- Keys do not travel with images and archives: elsewhere what is sealed can be carried, verified and not read.
- Words of what is sealed are never written anywhere, so a search does not find it.
- The envelope holds DAG-CBOR, `{attributes, content}` or volatile fields, in the words of records.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from holdproof.content import encryption
from holdproof.crypto import dagcbor_fast
from holdproof.db import Tx
from holdproof.errors import FormatError, NotFoundError
from holdproof.memory.objects import records
from holdproof.memory.objects.records import ObjectRecord, Sealed

MOST: Final = 1 << 30

Open = Callable[[bytes], bytes]
"""From an envelope to what is in it."""


def no_key(envelope: bytes) -> bytes:
    """Return where there is no store there are no keys."""
    raise NotFoundError("an image carries no keys of subjects", subject=encryption.subject_of(envelope))


def close(tx: Tx, record: ObjectRecord) -> ObjectRecord:
    """Return the record as it is stored: sealed if it is a subject's."""
    if record.subject is None:
        return record
    # Sealed before it is hashed: the CID names the envelope, and outlives the key.
    inside = {"attributes": records.lower(record.attributes), "content": records.lower(record.content)}
    data = dagcbor_fast.encode(inside, max_size=MOST)
    return record._replace(content=Sealed(encryption.seal_for(tx, record.subject, data)), attributes={})


def opened(record: ObjectRecord, open: Open) -> ObjectRecord:
    """A whole record as it was put; ErasedError where its subject was erased, NotFoundError where the key is not."""
    if not isinstance(record.content, Sealed):
        return record
    fields = dagcbor_fast.decode(open(record.content.envelope), max_size=MOST)
    if not isinstance(fields, dict) or fields.keys() != {"attributes", "content"}:
        raise FormatError("record: sealed, but neither content nor attributes", id=record.id)
    attributes = records.lift(fields["attributes"])
    if not isinstance(attributes, dict):
        raise FormatError("record: attributes are no map", id=record.id)
    # The envelope names its subject in clear, so that erasure can find it without a key.
    handle = encryption.subject_of(record.content.envelope)
    return record._replace(content=records.lift(fields["content"]), attributes=attributes, subject=handle)


def close_meta(tx: Tx, meta: Mapping[str, Any], subject: str | None) -> Mapping[str, Any] | Sealed:
    """Volatile fields as they are stored: sealed if they are a subject's."""
    if subject is None:
        return meta
    return Sealed(encryption.seal_for(tx, subject, dagcbor_fast.encode(records.lower(dict(meta)))))


def opened_meta(meta: dict[str, Any] | Sealed, open: Open) -> dict[str, Any]:
    """Volatile fields as they were put."""
    if not isinstance(meta, Sealed):
        return meta
    fields = records.lift(dagcbor_fast.decode(open(meta.envelope)))
    if not isinstance(fields, dict):
        raise FormatError("record: sealed volatile data that is no map")
    return fields
