"""Errors of the server: authentication, permissions, and requests it cannot accept."""

from holdproof.errors.root import HoldproofError

# --- access ------------------------------------------------------------------------------------------------------


class UnauthenticatedError(HoldproofError):
    """Send a valid token (`holdproof tokens create`), or log in again with a new link."""

    code = "access.unauthenticated"
    status = 401
    exit_code = 5


class ForbiddenError(HoldproofError):
    """This token does not permit it: ask an operator to do it, or for a token with more permissions."""

    code = "access.forbidden"
    status = 403
    exit_code = 5


class ForgedRequestError(ForbiddenError):
    """The request did not come from the console's own page: open that page again, and send the form from there."""

    code = "access.forged"


class RateLimitedError(HoldproofError):
    """Too many requests: wait as long as the Retry-After header says, then send fewer."""

    code = "access.rate_limited"
    status = 429
    exit_code = 6


# --- requests ----------------------------------------------------------------------------------------------------


class RequestError(HoldproofError):
    """The server cannot parse the request; correct it. Nothing was written."""

    code = "request.malformed"
    status = 400
    exit_code = 2


class MethodError(RequestError):
    """Use one of the HTTP methods in the Allow header of the response."""

    code = "request.method"
    status = 405


class StoppingError(HoldproofError):
    """The server is stopping and waits no longer: call again, once it or the one in its place answers."""

    code = "request.stopping"
    status = 503
    exit_code = 6


class SlowRequestError(RequestError):
    """The body arrived too slowly and the request timed out; send it again over a faster connection."""

    code = "request.slow"
    status = 408


class TooLargeError(RequestError):
    """The body is too large; send less at once, in several requests."""

    code = "request.too_large"
    status = 413


class LongUrlError(TooLargeError):
    """The URL is too long; send the parameters in the body."""

    code = "request.long_url"
    status = 414


class HeadersTooLargeError(TooLargeError):
    """Send fewer or shorter headers."""

    code = "request.headers"
    status = 431


class HostError(RequestError):
    """The server does not accept this host name: use the address it printed, or start it with this host allowed."""

    code = "request.host"
    status = 421
