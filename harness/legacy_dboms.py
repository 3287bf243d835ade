"""What older Green Agents wrote in place of a signature."""


def legacy_sigma(evaluation_id: str, h_delta: str) -> str:
    """Return the simulated `sigma_judge` of a DBOM with these fields."""
    return f"SIG_GREEN_{evaluation_id}_{h_delta[:8]}"
