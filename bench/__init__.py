"""Benchmarks: ratios to a peer or a ceiling measured in the same run, never bare numbers.

Each benchmark is one module with `run(options) -> list[Result]` and `goals(options) -> list[Goal]`.
"""

BENCHMARKS: dict[str, str] = {
    "dbom": "bench.dbom",
    "durable": "bench.durable",
    "log": "bench.log",
    "vectors": "bench.vectors",
}
