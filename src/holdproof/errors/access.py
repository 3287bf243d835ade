"""What the server raises: who may come in, and what a request may be."""

from holdproof.errors.root import HoldproofError

# --- access ------------------------------------------------------------------------------------------------------


class UnauthenticatedError(HoldproofError):
    """Send a token that is known and still valid: `holdproof tokens create`, or a new link to log in by."""

    code, status, exit_code = "access.unauthenticated", 401, 5


class ForbiddenError(HoldproofError):
    """Whoever holds this token may not do that: ask an operator to do it, or for a token with more rights."""

    code, status, exit_code = "access.forbidden", 403, 5


class ForgedRequestError(ForbiddenError):
    """The request did not come from the console's own page: open that page again, and send the form from there."""

    code = "access.forged"


class RateLimitedError(HoldproofError):
    """Too many requests: wait for as long as Retry-After says, then send fewer."""

    code, status, exit_code = "access.rate_limited", 429, 6


# --- requests ----------------------------------------------------------------------------------------------------


class RequestError(HoldproofError):
    """The request is not one that the server understands; correct it. Nothing was written."""

    code, status, exit_code = "request.malformed", 400, 2


class MethodError(RequestError):
    """Use one of the methods that the answer names under Allow."""

    code, status = "request.method", 405


class SlowRequestError(RequestError):
    """The body came too slowly and was not waited for; send it again, faster."""

    code, status = "request.slow", 408


class TooLargeError(RequestError):
    """Send less at once; large things go in parts."""

    code, status = "request.too_large", 413


class LongUrlError(TooLargeError):
    """The address is too long; send what it carries in a body."""

    code, status = "request.long_url", 414


class HeadersTooLargeError(TooLargeError):
    """Send fewer or shorter headers."""

    code, status = "request.headers", 431


class HostError(RequestError):
    """The server is not called that: use the address it printed, or name the host when it is started."""

    code, status = "request.host", 421
