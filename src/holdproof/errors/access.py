"""Errors of the server: access and requests."""

from holdproof.errors.root import HoldproofError

# --- access ------------------------------------------------------------------------------------------------------


class UnauthenticatedError(HoldproofError):
    """Send a valid token: `holdproof tokens create`, or log in with a new link."""

    code = "access.unauthenticated"
    status = 401
    exit_code = 5


class ForbiddenError(HoldproofError):
    """This token does not allow that: ask an operator to do it, or for a token with more rights."""

    code = "access.forbidden"
    status = 403
    exit_code = 5


class ForgedRequestError(ForbiddenError):
    """The request did not come from the console's own page: open that page again, and send the form from there."""

    code = "access.forged"


class RateLimitedError(HoldproofError):
    """Too many requests: wait as long as Retry-After says, then send fewer."""

    code = "access.rate_limited"
    status = 429
    exit_code = 6


# --- requests ----------------------------------------------------------------------------------------------------


class RequestError(HoldproofError):
    """The request is malformed; correct it. Nothing was written."""

    code = "request.malformed"
    status = 400
    exit_code = 2


class MethodError(RequestError):
    """Use one of the HTTP methods in the Allow header of the response."""

    code = "request.method"
    status = 405


class SlowRequestError(RequestError):
    """The body arrived too slowly; send it again, faster."""

    code = "request.slow"
    status = 408


class TooLargeError(RequestError):
    """Send less at once; split large content into parts."""

    code = "request.too_large"
    status = 413


class LongUrlError(TooLargeError):
    """The URL is too long; send its parameters in a body."""

    code = "request.long_url"
    status = 414


class HeadersTooLargeError(TooLargeError):
    """Send fewer or shorter headers."""

    code = "request.headers"
    status = 431


class HostError(RequestError):
    """The server does not accept this host name: use the address it printed, or pass the host when it is started."""

    code = "request.host"
    status = 421
