"""The words that parameters take which take a few only, for schemas: OpenAPI and the tools of models name them.

The operations check the same words; `tests/e2e/test_mcp.py` compares what is declared here with what they refuse. They
are written out, not imported: whoever only opens a store needs no operation for it.
"""

from typing import Final

AGENT_STATUSES: Final = ("ACTIVE", "SUSPENDED", "RETIRED", "DEGRADED", "ESCALATION_ONLY")
FLOW_STATUSES: Final = (
    *("CREATED", "RUNNING", "WAITING_ESCALATION", "COMPLETED"),
    *("FAILED", "CANCELLED", "COMPENSATING", "COMPENSATED"),
)
FLOW_SEARCHED: Final = (*FLOW_STATUSES, "OPEN", "ENDED", "FAILED_OR_COMPENSATED")
FLOW_TROUBLES: Final = ("DIRTY", "ORPHANED")
ESCALATION_STATUSES: Final = ("PENDING", "APPROVED", "REJECTED", "CANCELLED")
IMPACTS: Final = ("LOW_IMPACT", "HIGH_IMPACT")
ON_DEADLINE: Final = ("reject", "approve", "cancel")
SEVERITIES: Final = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
FEEDBACK_SOURCES: Final = ("Human", "Monitor", "KERNEL")
BUNDLE_KINDS: Final = ("evaluation", "flow", "checkpoint")
