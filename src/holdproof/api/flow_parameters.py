"""What parameters of flows mean, where several methods share that or it differs from api/parameters.py."""

from typing import Any, Final

from holdproof.api.words import FLOW_SEARCHED, FLOW_TROUBLES

SEARCHING: Final = {
    "text": "Part of the id, the agent or the type.",
    "error": "Part of the error of flows that failed, or of the reason of another change of status.",
    "inputs": "Part of the inputs, as JSON text; large inputs and those of a subject are not searched.",
    "trouble": "ORPHANED: the worker is gone; DIRTY: failed half way, with steps that wait to be undone.",
    "until": "Opened before this time.",
    "since": "Opened from this time on.",
}
BULK: Final[dict[str, Any]] = {
    "parameters": {**SEARCHING, "dry_run": "Only name the flows; change nothing."},
    "words": {"status": FLOW_SEARCHED, "trouble": FLOW_TROUBLES},
    "bounds": {"limit": (1, 2**31 - 1)},
}
FORKING: Final = {
    "at": "The first step that is not shared: its name, or its name and number; without it nothing is shared.",
    "inputs": 'Other inputs, as {"args": [], "kwargs": {}}.',
    "answers": "Results of steps, by name or by name and number; such a step is not run.",
    "effects": "What new steps do: deny, simulate or real.",
    "version": "The version of the function that runs it; the origin's by default.",
}
STARTING: Final = {
    "agent_id": "The agent whose flow it is.",
    "parent": "The id of the flow above it.",
    "flow_id": "Its id, where the caller chooses it.",
    "attributes": "What `flows_list` finds it by: texts by name, as a JSON object.",
}
TRAIL: Final = {
    "since": "From this time on, or from so long ago: 30m, 1h, 7d.",
    "until": "Before this time, or up to so long ago.",
    "kind": "Only entries of this kind, as decision, step, escalation, key, lockdown or access.",
    "person": "Only what this person did: who answered, recorded, approved, erased.",
}
