"""Names that nobody can guess, of requests, blocks and exchanges: no record has one, they end with the server."""

import secrets


def unguessable(count: int) -> str:
    """So many random bytes, as a text that fits an address."""
    return secrets.token_urlsafe(count)


def short() -> str:
    """The number of a request."""
    return secrets.token_hex(8)
