"""Benchmarks: ratios to a peer or a ceiling measured in the same run, never bare numbers.

Each benchmark is one module with `run(options) -> list[Result]` and `goals(options) -> list[Goal]`.
"""

BENCHMARKS: dict[str, str] = {
    "agents": "bench.agents",
    "blobs": "bench.blobs",
    "checkpoints": "bench.checkpoints",
    "console": "bench.console",
    "dbom": "bench.dbom",
    "decisions": "bench.decisions",
    "durable": "bench.transactions",
    "hooks": "bench.hooks",
    "http": "bench.http",
    "log": "bench.log",
    "memory": "bench.memory",
    "policies": "bench.policies",
    "processes": "bench.processes",
    "sessions": "bench.sessions",
    "telemetry": "bench.telemetry",
    "tenants": "bench.tenants",
    "vectors": "bench.vectors",
    "workflows": "bench.workflows",
}
