"""Numbers for Prometheus: counted here, written as its text format."""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Literal, NamedTuple

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
BUCKETS_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
METHODS: Final = frozenset({"DELETE", "GET", "HEAD", "OPTIONS", "PATCH", "POST", "PUT"})
"""What is counted by its name: a caller may invent others without end."""
_MOST_SERIES: Final = 5000


class MetricValue(NamedTuple):
    """One number as it stands, with what it is about."""

    name: str
    help: str
    value: float
    labels: Mapping[str, str] = {}
    kind: Literal["gauge", "counter"] = "gauge"


class Metrics:
    """Requests by method, route and status, and how long they took."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str, int], int] = defaultdict(int)
        self._spread: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0] * (len(BUCKETS_S) + 1))
        self._sums: dict[tuple[str, str], float] = defaultdict(float)
        self.under_way = 0
        self.streams = 0

    def observe(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count one request by its route's template."""
        method = method if method in METHODS else "OTHER"
        # Bounds memory and the size of a scrape, whatever callers invent.
        if (method, route, status) not in self._counts and len(self._counts) >= _MOST_SERIES:
            method = "OTHER"
            route = "other"
        self._counts[method, route, status] += 1
        self._spread[method, route][bisect_left(BUCKETS_S, seconds)] += 1
        self._sums[method, route] += seconds

    def quantiles(self) -> Iterator[tuple[str, str, int, float | None, float | None]]:
        """Method, route, count, and the bounds within which half and 99 of 100 were answered; None beyond the last."""
        for (method, route), spread in self._spread.items():
            yield method, route, sum(spread), _within(spread, 0.5), _within(spread, 0.99)

    def text(self, numbers: Iterable[MetricValue]) -> str:
        """Everything counted here and the given numbers, as Prometheus reads them."""
        return "\n".join([*self._requests(), *self._latencies(), *_numbers(numbers)]) + "\n"

    def _requests(self) -> Iterator[str]:
        yield from _head("holdproof_http_requests_total", "counter", "Requests answered.")
        for (method, route, status), count in sorted(self._counts.items()):
            labels = {"method": method, "route": route, "status": str(status)}
            yield _line("holdproof_http_requests_total", count, labels)

    def _latencies(self) -> Iterator[str]:
        name = "holdproof_http_request_seconds"
        yield from _head(name, "histogram", "From the first byte asked to the last byte answered.")
        for (method, route), spread in sorted(self._spread.items()):
            labels = {"method": method, "route": route}
            total = 0
            for bound, count in zip((*map(str, BUCKETS_S), "+Inf"), spread, strict=True):
                total += count
                yield _line(f"{name}_bucket", total, {**labels, "le": bound})
            yield _line(f"{name}_sum", self._sums[method, route], labels)
            yield _line(f"{name}_count", total, labels)


def _within(spread: list[int], share: float) -> float | None:
    target = share * sum(spread)
    reached = 0
    for bound, count in zip(BUCKETS_S, spread, strict=False):
        reached += count
        if reached >= target:
            return bound
    return None


def _numbers(numbers: Iterable[MetricValue]) -> Iterator[str]:
    named: dict[str, list[MetricValue]] = defaultdict(list)
    for each in numbers:
        named[each.name].append(each)
    for name, group in named.items():
        yield from _head(name, group[0].kind, group[0].help)
        yield from (_line(name, each.value, each.labels) for each in group)


def _head(name: str, kind: str, help: str) -> Iterator[str]:
    yield f"# HELP {name} {help}"
    yield f"# TYPE {name} {kind}"


def _line(name: str, value: float, labels: Mapping[str, str]) -> str:
    inner = ",".join(f'{label}="{_quoted(text)}"' for label, text in labels.items())
    return f"{name}{{{inner}}} {value}" if inner else f"{name} {value}"


def _quoted(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
