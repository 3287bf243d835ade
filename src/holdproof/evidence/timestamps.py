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
from holdproof.crypto import checkpoint, timestamp
from holdproof.crypto.checkpoint import SignedCheckpoint
from holdproof.db import Tx, sql
from holdproof.errors import FormatError, HoldproofError, NotFoundError, ProofError
from holdproof.evidence import leaves, log, logged_tables, tree
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

_COLUMNS: Final = "id, origin, size, head, url, authority, certificate, token, stamped_at, created_at"
_PAGE = sql(
    f"SELECT {_COLUMNS} FROM time_tokens WHERE id < :before ORDER BY id DESC LIMIT :limit"  # noqa: S608 (constants)
)
_ONE = sql(f"SELECT {_COLUMNS} FROM time_tokens WHERE id = :id")  # noqa: S608 (as above)
# The smallest head that covers a leaf: the earliest time by which it is proven to have existed.
_COVERING = sql(
    f"SELECT {_COLUMNS} FROM time_tokens WHERE origin = :origin AND size > :index AND size <= :size"  # noqa: S608
    " ORDER BY size, stamped_at, id LIMIT 1"
)
_AFTER = sql(f"SELECT {_COLUMNS} FROM time_tokens WHERE id > :after ORDER BY id LIMIT :limit")  # noqa: S608 (as above)
_FIRST: Final = ""
_LAST: Final = "~"
_BATCH: Final = 100


def list(tx: Tx, *, cursor: str | None = None, limit: int = 30) -> Page[Timestamp]:
    """List the time tokens, newest first."""
    (before,) = paging.decode(cursor, _LAST)
    rows = tx.all(_PAGE, before=before, limit=paging.fetch(limit))
    return paging.page([Stored(*row).value for row in rows], limit, lambda each: (each.id,))


def get(tx: Tx, id: str) -> StampedHead:
    """Return a time token with the head and the certificate; NotFoundError if there is none."""
    row = tx.one(_ONE, id=id)
    if row is None:
        raise NotFoundError(f"there is no time token {id}; `holdproof timestamps list` lists them", id=id)
    return Stored(*row).whole


def covering(tx: Tx, index: int, head: SignedCheckpoint) -> StampedHead | None:
    """Return the earliest stamped head that a leaf is under and that this head continues; None if there is none."""
    about = head.checkpoint
    row = tx.one(_COVERING, origin=about.origin, index=index, size=about.size)
    return None if row is None else Stored(*row).whole


_NEWEST = sql("SELECT size, stamped_at, created_at FROM time_tokens WHERE origin = :origin ORDER BY id DESC LIMIT 1")
_SINCE = sql("SELECT count(*) FROM time_tokens WHERE origin = :origin AND size >= :size")


def due(tx: Tx, every_s: float) -> bool:
    """Whether a token is due: the newest is older than that, and more was logged since than tokens."""
    now = tree.state(tx)
    row = tx.one(_NEWEST, origin=now.origin)
    if not now.head or row is None:
        return bool(now.head)
    size, _, created_at = row
    count = tx.one(_SINCE, origin=now.origin, size=size)
    assert count is not None, "an aggregate always has a row"
    return tx.now >= times.later(created_at, every_s) and now.size - size > count[0]


# --- checking ----------------------------------------------------------------------------------------------------


class StampFlaw(NamedTuple):
    """A token that does not hold, and why."""

    id: str
    what: str


class Checked(NamedTuple):
    """What came of a page of tokens; `after` is where the next one begins, None at the end."""

    checked: int
    flaws: Sequence[StampFlaw]
    fingerprints: frozenset[str]
    """Of the trusted certificates that the tokens lead to."""
    after: str | None


def check(tx: Tx, after: str = _FIRST) -> Checked:
    """Check a page of tokens: each under its certificate, over a head of this log that a log key signed."""
    rows = [Stored(*row) for row in tx.all(_AFTER, after=after, limit=_BATCH)]
    fingerprints: set[str] = set()
    flaws = [*_flaws(tx, rows, fingerprints)]
    return Checked(len(rows), flaws, frozenset(fingerprints), rows[-1].id if len(rows) == _BATCH else None)


def _flaws(tx: Tx, rows: Iterable[Stored], fingerprints: set[str]) -> Iterator[StampFlaw]:
    for row in rows:
        try:
            head = checkpoint.parse(row.head.encode())
            about = head.checkpoint
            checkpoint.verify(head, origin=row.origin, log_keys=log.verifiers(tx, size=about.size, origin=about.origin))
            stamp = verify(row.whole)
            fingerprints.add(stamp.fingerprint)
            if (about.size, text(stamp)) != (row.size, row.stamped_at):
                raise ProofError("it says another size or another time than its token")
            verdict = log.continuity(tx, head)
            if not verdict.sound:
                raise ProofError(f"its head is none of this log: {verdict}")
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
