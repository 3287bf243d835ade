"""Names of what lives only as long as the server: of requests, and of blocks and exchanges, which nobody can guess."""

import secrets
from itertools import count

# Random per process, so that numbers of several servers behind one address do not collide in a log.
_START = secrets.token_hex(4)
_NEXT = count()


def random_token(length: int) -> str:
    """So many random bytes, as a text that fits an address."""
    return secrets.token_urlsafe(length)


def request_id() -> str:
    """The number of a request: this server's own, and counted."""
    return f"{_START}{next(_NEXT):08x}"
