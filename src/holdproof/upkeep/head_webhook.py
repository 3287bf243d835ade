"""A webhook that receives the newest signed head, so that another system can keep it.

Rules:
- Only durable heads are sent, each as a signed note: `{"type": "holdproof.head", "origin", "size", "head"}`.
- A commit never waits for it: a head is queued, and a thread of its own sends it.
- At most one a second; a newer head replaces one that still waits, since it commits to everything before.
- A delivery that failed is retried with growing pauses until a newer head or the close; `status` reports it.
- A clean close gives the last head a few seconds. A head lost then is covered by the next one.
- Secrets (the URL, the HMAC key) appear in no message, log line or `repr`.
"""

import json
import logging
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from holdproof.lazy import lazy_module

if TYPE_CHECKING:
    from holdproof.upkeep import notify
else:
    notify = lazy_module("holdproof.upkeep.notify")

_log = logging.getLogger("holdproof.heads")

PREFIX: Final = "HOLDPROOF_HEADS_WEBHOOK_"
_EVERY_S: Final = 1.0
_LONGEST_S: Final = 60.0
_CLOSE_S: Final = 5.0


class HeadWebhook:
    """Sends heads to one webhook; `publish` and `close` may be called from any thread, `close` twice."""

    def __init__(
        self, url: str, secret: str = "", *, poster: "notify.Poster | None" = None, every_s: float = _EVERY_S
    ) -> None:
        self._url = url
        self._secret = secret
        self._poster = poster or notify.Poster()
        self._every_s = every_s
        self._turn = threading.Condition()
        self._waiting = ""
        self._closing = False
        self._thread: threading.Thread | None = None
        self.problem = ""
        """Why the newest head was not delivered yet; empty while deliveries succeed."""

    def publish(self, head: str) -> None:
        """Queue a durable head; returns at once."""
        with self._turn:
            self._waiting = head
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="holdproof-heads", daemon=True)
                self._thread.start()
            self._turn.notify_all()

    def close(self) -> None:
        """Send the head that waits, if that takes no longer than a few seconds, and stop."""
        with self._turn:
            self._closing = True
            self._turn.notify_all()
        if self._thread is not None:
            self._thread.join(_CLOSE_S)

    def _run(self) -> None:
        trouble = 0
        while head := self._next():
            trouble = 0 if self._deliver(head) else trouble + 1
            if self._closing and self._waiting == head:  # its delivery failed, and there is no newer one to try
                return
            # Exponential back-off, bounded so that the end of an outage is noticed within a minute.
            self._rest(min(_LONGEST_S, self._every_s * 2 ** min(trouble, 10)))

    def _next(self) -> str:
        """Wait for the newest head; empty once there is none and the webhook is closing."""
        with self._turn:
            self._turn.wait_for(lambda: self._waiting or self._closing)
            head = self._waiting
            self._waiting = ""
            return head

    def _rest(self, seconds: float) -> None:
        with self._turn:
            self._turn.wait_for(lambda: self._closing, seconds)

    def _deliver(self, head: str) -> bool:
        try:
            body = _body(head)
            self._poster.post(
                self._url, body, {notify.SIGNATURE: notify.sign(self._secret, body)} if self._secret else {}
            )
        except notify.UndeliveredError as error:
            return self._fail(head, str(error))
        except Exception as error:  # its text may hold anything, its kind may not
            return self._fail(head, f"failed ({type(error).__name__})")
        self.problem = ""
        return True

    def _fail(self, head: str, why: str) -> bool:
        if why != self.problem:
            _log.warning("the newest head was not delivered to the webhook, and is tried again: %s", why)
        self.problem = why
        with self._turn:
            self._waiting = self._waiting or head
        return False


def _body(head: str) -> bytes:
    origin, size, _ = head.split("\n", 2)
    return json.dumps({"type": "holdproof.head", "origin": origin, "size": int(size), "head": head}).encode()


def configured(env: Mapping[str, str]) -> HeadWebhook | None:
    """Return the webhook of `HOLDPROOF_HEADS_WEBHOOK_URL` and `…_SECRET`; None where no URL is set."""
    return HeadWebhook(env[f"{PREFIX}URL"], env.get(f"{PREFIX}SECRET", "")) if env.get(f"{PREFIX}URL") else None


def warnings(webhook: HeadWebhook | None, env: Mapping[str, str]) -> list[str]:
    """Return warnings for `status`: a webhook with a secret but no URL, or one that does not have the newest head."""
    if webhook is None:
        return [f"heads go to no webhook: {PREFIX}URL is not set"] if env.get(f"{PREFIX}SECRET") else []
    return [f"the webhook does not have the newest head: {webhook.problem}"] if webhook.problem else []
