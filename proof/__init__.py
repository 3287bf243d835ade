"""Programs that try what Holdproof claims: faults, attacks, simulated years, long runs.

`python -m proof NAME` runs one proof, prints its seed and its counts, writes them to docs/internals/figures/ and fails
if a claim did not hold; docs/internals/reliability.md is made from these figures. A proof is a module with two
functions: `arguments(parser)` adds its options, `run(given, say)` returns a `Proof`. The suites run the same code with
fewer rounds.
"""

from typing import Final

PROOFS: Final[dict[str, str]] = {
    "faults": "proof.faults",
    "servers": "proof.servers",
    "kills": "proof.workflows.kills",
    "replays": "proof.workflows.replays",
    "forks": "proof.workflows.forks",
    "restores": "proof.restores",
    "months": "proof.months",
    "simulation": "proof.simulation",
    "attacks": "proof.attacks",
    "flips": "proof.flips",
    "fuzz": "proof.fuzz",
    "mutants": "proof.mutants",
    "soak": "proof.soak",
    "audit": "proof.audit",
}
"""Each proof and the module it lives in; `python -m proof` runs all of them in this order."""
