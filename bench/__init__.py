"""Benchmarks: ratios to a peer or a ceiling measured in the same run, never bare numbers.

Each benchmark is one module with `run(options) -> list[Result]` and `goals(options) -> list[Goal]`.
"""

BENCHMARKS: dict[str, str] = {name: f"bench.{name}" for name in ("dbom", "durable", "log", "telemetry")}
