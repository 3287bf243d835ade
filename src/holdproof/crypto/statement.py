"""The in-toto Statement v1: a predicate about artifacts, which are named by their digests.

- Encoded as JCS, so one statement has one byte string and can be derived again instead of being stored.
- Each subject has a digest; names are optional. Unknown fields are ignored, as the standard demands.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from holdproof.crypto import canonical
from holdproof.crypto.canonical import Json
from holdproof.errors import FormatError

TYPE = "https://in-toto.io/Statement/v1"
PAYLOAD_TYPE = "application/vnd.in-toto+json"


@dataclass(frozen=True, slots=True)
class ResourceDescriptor:
    """One artifact: its digests by algorithm, and a name if it has one."""

    digest: Mapping[str, str]
    name: str = ""


@dataclass(frozen=True, slots=True)
class Statement:
    """A predicate about subjects."""

    subject: tuple[ResourceDescriptor, ...]
    predicate_type: str
    predicate: Mapping[str, Json] = field(default_factory=dict)


def encode(statement: Statement) -> bytes:
    """Encode a statement as JCS bytes."""
    return canonical.dumps(
        {
            "_type": TYPE,
            "predicate": dict(statement.predicate),
            "predicateType": statement.predicate_type,
            "subject": [_subject_json(subject) for subject in statement.subject],
        }
    )


def parse(data: bytes) -> Statement:
    """Parse a statement from untrusted JSON; ignores unknown fields."""
    value = canonical.loads(data)
    if not isinstance(value, dict) or value.get("_type") != TYPE:
        raise FormatError("not an in-toto Statement v1")
    subject = value.get("subject")
    kind = value.get("predicateType")
    predicate = value.get("predicate", {})
    if not isinstance(subject, list) or not subject:
        raise FormatError("in-toto Statement: no subject", field="subject")
    if not isinstance(kind, str) or ":" not in kind:
        raise FormatError("in-toto Statement: predicateType is not a URI", field="predicateType")
    if not isinstance(predicate, dict):
        raise FormatError("in-toto Statement: predicate is not an object", field="predicate")
    return Statement(tuple(_subject(item) for item in subject), kind, predicate)


def parse_whole(data: bytes) -> Statement:
    """Parse a statement that is to be signed; FormatError unless the bytes are its canonical encoding."""
    statement = parse(data)
    # `parse` ignores unknown fields, but a signature would cover them unread.
    if encode(statement) != data:
        raise FormatError("in-toto Statement: it holds more than a statement, or is not canonical")
    return statement


def _subject_json(subject: ResourceDescriptor) -> dict[str, Json]:
    digest = dict(subject.digest)
    return {"name": subject.name, "digest": digest} if subject.name else {"digest": digest}


def _subject(item: object) -> ResourceDescriptor:
    if not isinstance(item, dict):
        raise FormatError("in-toto Statement: a subject is not an object", field="subject")
    name = item.get("name", "")
    digest = item.get("digest")
    if not isinstance(name, str):
        raise FormatError("in-toto Statement: a name is not a string", field="name")
    if not isinstance(digest, dict) or not digest:
        raise FormatError("in-toto Statement: a subject without digest", field="digest")
    if not all(isinstance(text, str) and text for text in digest.values()):
        raise FormatError("in-toto Statement: a digest is not a string", field="digest")
    # The one algorithm used here; digests of others are not interpreted.
    if "sha256" in digest and not canonical.is_sha256_hex(digest["sha256"]):
        raise FormatError("in-toto Statement: sha256 is not 64 lowercase hex digits", field="digest")
    return ResourceDescriptor(digest, name)
