"""When a step that failed is tried again."""

from dataclasses import dataclass
from typing import Final

from holdproof.db import Tx

LONGEST_BACKOFF_S: Final = 300.0


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often a step that fails is tried again, and when."""

    retries: int = 0
    backoff_s: float = 1.0
    retry_on: type[BaseException] | tuple[type[BaseException], ...] = Exception

    def applies(self, attempts: int, error: Exception) -> bool:
        """Return whether there is another try after that many."""
        return attempts <= self.retries and isinstance(error, self.retry_on)

    def delay_s(self, tx: Tx, attempts: int) -> float:
        """Return how long to wait after that many tries: doubled each time, between half and all of it, cut."""
        jitter = 0.5 + int.from_bytes(tx.random(4), "big") / 2**33
        # The exponent is bounded: a power beyond it would not be a finite number, and the delay is cut anyway.
        return min(LONGEST_BACKOFF_S, self.backoff_s * 2.0 ** min(attempts - 1, 30)) * jitter


NO_RETRIES: Final = RetryPolicy()
