"""What flows did to the world, as it was written down by those who did it."""

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path


@dataclass
class Chronicle:
    """What the flows did to the world, in its order."""

    path: Path
    offset: int = 0
    runs: dict[tuple[str, str], list[str]] = field(default_factory=lambda: defaultdict(list))
    """The tokens of each step that ran, in order, by flow and step."""
    confirmed: dict[tuple[str, str], str] = field(default_factory=dict)
    repeated: list[str] = field(default_factory=list)
    """Lines of steps that ran although they had been confirmed."""
    spans: list[tuple[float, str, str, str]] = field(default_factory=list)
    """When, which process, which flow, and whether it begins or ends."""

    def read(self) -> None:
        """Take in what was written since."""
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            file.seek(self.offset)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self.offset += len(whole)
        for line in whole.decode().splitlines():
            self._take(line)

    def _take(self, line: str) -> None:
        at, pid, flow_id, what, *words = line.split(" ")
        if what in ("begins", "ends", "lost"):
            self.spans.append((float(at), pid, flow_id, what))
            return
        key, token = words
        if what == "ran":
            if (flow_id, key) in self.confirmed:
                self.repeated.append(line)
            self.runs[flow_id, key].append(token)
        else:
            self.confirmed[flow_id, key] = token

    def most_at_once(self, flows: set[str], dead: dict[str, list[float]], *, each: bool) -> int:
        """Return how many of the flows ran at once, over all processes or in `each`.

        What a killed process had begun counts until it was gone; what lost its lease had no place from then on.
        """
        open_spans: dict[tuple[str, str], float] = {}
        events: list[tuple[float, int, str]] = []
        for at, pid, flow_id, what in self.spans:
            if flow_id not in flows:
                continue
            if what == "begins":
                open_spans[pid, flow_id] = at
                continue
            begin = open_spans.pop((pid, flow_id))
            if what == "ends":
                events += [(begin, 1, pid), (at, -1, pid)]
        for (pid, _), begin in open_spans.items():
            events += [(begin, 1, pid), (min(at for at in dead[pid] if at >= begin), -1, pid)]
        counts: Counter[str] = Counter()
        most = 0
        for _, change, pid in sorted(events):
            counts[pid if each else ""] += change
            most = max(most, *counts.values())
        return most
