"""What a server writes to stderr: a line for its start and end, each request, and a database that goes and comes back.

Rules:
- One line an event, as text or as JSON; the time is UTC.
- A request is logged at INFO when it is answered, by method, path and status; never its query, body or headers, which
  may hold secrets. Probes of health and metrics come every few seconds and are logged at DEBUG.
"""

import json
import logging
from typing import Any, Final

from holdproof.model.times import to_text

LEVELS: Final = ("debug", "info", "warning", "error")
_PROBES: Final = frozenset({"/healthz", "/readyz", "/metrics"})
_FACTS: Final = "facts"
"""The attribute of a record that holds its fields; JSON shows them one by one."""

_requests = logging.getLogger("holdproof.server.requests")


def configure(level: str, *, as_json: bool) -> None:
    """Write the log of Holdproof to stderr from this level on; called once, by the program that serves."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if as_json else TextFormatter())
    logger = logging.getLogger("holdproof")
    logger.setLevel(level.upper())
    logger.addHandler(handler)
    # Or a root handler of the program around it would write every line a second time.
    logger.propagate = False


def request(method: str, path: str, status: int, seconds: float, *, number: str, caller: str) -> None:
    """Log one request that was answered."""
    level = logging.DEBUG if path in _PROBES else logging.INFO
    if not _requests.isEnabledFor(level):
        return
    facts = {"method": method, "path": path, "status": status, "ms": round(seconds * 1000, 1)}
    facts |= {"request": number, "caller": caller or "-"}
    # As Python shows text: a path with a line end in it must not pass for another line.
    escaped = ascii(path)[1:-1]
    _requests.log(level, "%s %s %d in %.1f ms", method, escaped, status, seconds * 1000, extra={_FACTS: facts})


def _moment(record: logging.LogRecord) -> str:
    return to_text(round(record.created * 1_000_000))


class TextFormatter(logging.Formatter):
    """Lines for people: time, level, logger, message."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s: %(message)s")

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        """See logging.Formatter."""
        del datefmt
        return _moment(record)


class JsonFormatter(logging.Formatter):
    """Lines for programs: one JSON object each."""

    def format(self, record: logging.LogRecord) -> str:
        """See logging.Formatter."""
        line: dict[str, Any] = {"at": _moment(record), "level": record.levelname.lower(), "logger": record.name}
        line |= {"message": record.getMessage(), **getattr(record, _FACTS, {})}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)
