"""Time tokens on heads (RFC 3161): a row and an entry for each, checked again whenever the log is.

Rules:
- A token is about the bytes of a signed head, as the log published them: the log's signature, and so everything under
  the head, existed at the time that the authority signed.
- It is stored with the head and the certificate it was checked with, so that it can be checked when the authority is
  gone; the row is under the log as any other.
- Whether that certificate is to be trusted, the log cannot say: the settings of the home name the authority, and
  whoever gets a bundle compares its fingerprint.
"""

from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from cryptography import x509

from holdproof import paging
from holdproof.crypto import timestamp
from holdproof.crypto.checkpoint import SignedCheckpoint
from holdproof.db import Tx, sql
from holdproof.errors import FormatError, HoldproofError, ProofError
from holdproof.evidence import attested_heads, leaves, logged_tables
from holdproof.evidence.attested_heads import AttestedHeads
from holdproof.evidence.leaves import Projection
from holdproof.model import times
from holdproof.model.page import Page
from holdproof.model.timestamps import StampedHead, Timestamp

TOKENS: Final = Projection(
    "time_tokens",
    1,
    ("id", "origin", "size", "head", "url", "authority", "certificate", "token", "stamped_at", "created_at"),
)
LOGGED: Final = (logged_tables.describe(TOKENS, kinds=("audit",), key="id"),)


class Stored(NamedTuple):
    """A row of the table."""

    id: str
    origin: str
    size: int
    head: str
    url: str
    authority: str
    certificate: str
    token: str
    stamped_at: str
    created_at: str

    @property
    def value(self) -> Timestamp:
        """What clients are shown of it."""
        return Timestamp(
            self.id, self.url, self.authority, self.origin, self.size, self.stamped_at, created_at=self.created_at
        )

    @property
    def whole(self) -> StampedHead:
        """All of it."""
        return StampedHead(self.value, self.head, self.certificate, self.token)


# --- writing -----------------------------------------------------------------------------------------------------

_ADD = sql(
    "INSERT INTO time_tokens (id, origin, size, head, url, authority, certificate, token, stamped_at, created_at,"
    " leaf_id, leaf_ver, leaf_salt) VALUES (:id, :origin, :size, :head, :url, :authority, :certificate, :token,"
    " :stamped_at, :created_at, :leaf_id, :leaf_ver, :leaf_salt)"
)


def record(
    tx: Tx, url: str, head: SignedCheckpoint, *, certificate: str, response: bytes, stamp: timestamp.TimeStamp
) -> Timestamp:
    """Record a token that was checked, with its entry."""
    about = head.checkpoint
    row = Stored(
        id=tx.new_id(),
        origin=about.origin,
        size=about.size,
        head=head.encode().decode(),
        url=url,
        authority=stamp.authority,
        certificate=certificate,
        token=b64encode(response).decode(),
        stamped_at=text(stamp),
        created_at=tx.now,
    )
    mark = leaves.stamp(tx, "audit", TOKENS, row._asdict())
    tx.execute(_ADD, **row._asdict(), **mark._asdict(), expect=1)
    return row.value


# --- reading -----------------------------------------------------------------------------------------------------

_ROWS: Final = AttestedHeads("time_tokens", Stored._fields, "time token", "timestamps")


def list(tx: Tx, *, cursor: str | None = None, limit: int = 30) -> Page[Timestamp]:
    """List the time tokens, newest first."""
    rows = _ROWS.newest_first(tx, cursor, limit)
    return paging.page([Stored(*row).value for row in rows], limit, lambda each: (each.id,))


def get(tx: Tx, id: str) -> StampedHead:
    """Return a time token with the head and the certificate; NotFoundError if there is none."""
    return Stored(*_ROWS.one(tx, id)).whole


def covering(tx: Tx, index: int, head: SignedCheckpoint) -> StampedHead | None:
    """Return the earliest stamped head that a leaf is under and that this head continues; None if there is none."""
    row = _ROWS.covering(tx, index, head)
    return None if row is None else Stored(*row).whole


def due(tx: Tx, every_s: float) -> bool:
    """Whether a token is due: the newest is older than that, and more was logged since than tokens."""
    return _ROWS.due(tx, every_s)


# --- checking ----------------------------------------------------------------------------------------------------


class StampFlaw(NamedTuple):
    """A token that does not hold, and why."""

    id: str
    what: str


class StampedSize(NamedTuple):
    """A token that holds: the size of the head it is of, its time, and the index of its own entry (None: pending)."""

    size: int
    at: str
    own_index: int | None


class Checked(NamedTuple):
    """What came of a page of tokens; `after` is where the next one begins, None at the end."""

    checked: int
    flaws: Sequence[StampFlaw]
    fingerprints: frozenset[str]
    """Of the trusted certificates that the tokens lead to."""
    stamped: Sequence[StampedSize]
    """The tokens that hold."""
    after: str | None


def check(tx: Tx, after: str = attested_heads.FIRST) -> Checked:
    """Check a page of tokens: each under its certificate, over a head of this log that a log key signed."""
    rows = [Stored(*row) for row in _ROWS.oldest_first(tx, after)]
    fingerprints: set[str] = set()
    flaws = [*_flaws(tx, rows, fingerprints)]
    flawed = {each.id for each in flaws}
    stamped = [
        StampedSize(row.size, row.stamped_at, _ROWS.own_index(tx, row.id)) for row in rows if row.id not in flawed
    ]
    return Checked(
        len(rows), flaws, frozenset(fingerprints), stamped, rows[-1].id if len(rows) == attested_heads.BATCH else None
    )


def _flaws(tx: Tx, rows: Iterable[Stored], fingerprints: set[str]) -> Iterator[StampFlaw]:
    for row in rows:
        try:
            attested_heads.check_head(tx, row.head, row.origin, row.size)
            stamp = verify(row.whole)
            fingerprints.add(stamp.fingerprint)
            if text(stamp) != row.stamped_at:
                raise ProofError("it says another time than its token")
        except HoldproofError as error:
            yield StampFlaw(row.id, error.message)


def text(stamp: timestamp.TimeStamp) -> str:
    """Return the time of a token as it is stored and shown."""
    return times.utc(stamp.time.isoformat())


def verify(stamped: StampedHead) -> timestamp.TimeStamp:
    """Check a token for the head that it is stored with; ProofError or FormatError if it does not hold."""
    try:
        response = b64decode(stamped.token, validate=True)
    except Base64Error as error:
        raise FormatError("a time token that is not base64") from error
    return timestamp.verify(response, stamped.head.encode(), _certificates(stamped.certificate))


# All tokens of an authority are checked with the same few certificates.
@lru_cache(maxsize=16)
def _certificates(pem: str) -> tuple[x509.Certificate, ...]:
    return (*timestamp.certificates(pem),)
