"""Many scripts in one process, one effect at a time, on a clock that jumps to whatever comes next.

Rules:
- A script is a generator of effects (`Write`, `Read`, `Call`, `Wait`), as all work of the runtime is. They are
  performed one by one; between any two of them others have their turn.
- Everything that is drawn comes from one seed, and operations run one after the other: a seed gives the same run.
- A worker that dies takes all its scripts with it: before an effect, or after it and before hearing of it.
- A stall holds a script up for longer than its lease: it comes back to a flow that others have taken over.
"""

import contextvars
import heapq
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final

from holdproof import sync
from holdproof.db.effects import Call, Effect, Read, Wait, Work, Write
from holdproof.errors import HoldproofError
from holdproof.model.times import to_micros, to_text
from holdproof.testing import FrozenClock

HOUR: Final = 3600.0
DAY: Final = 24 * HOUR
WEEK: Final = 7 * DAY


Script = Work[None]
_ASLEEP: Final = "asleep"


@dataclass(slots=True)
class Task:
    """A script on a worker, and what it waits to have done; `dfid` is the flow it works on."""

    worker: str
    script: Script
    effect: Effect | None
    flow_id: str = ""
    context: contextvars.Context = field(default_factory=contextvars.copy_context)


@dataclass(frozen=True, slots=True)
class Chances:
    """How often things go wrong, for each effect."""

    crash: float = 0.004
    pause: float = 0.01
    stall: float = 0.003


class Engine:
    """What performs effects and moves the clock; `watch` is told of each that was performed."""

    def __init__(self, store: sync.Holdproof, clock: FrozenClock, seed: int, chances: Chances) -> None:
        self.store, self.clock, self.chances = store, clock, chances
        self.rng = random.Random(f"simulation {seed}")
        self.began = clock.micros
        self.counts: Counter[str] = Counter()
        self.broken: list[str] = []
        self.watch: Callable[[Task], None] = lambda _: None
        self._queue: list[tuple[int, int, Task]] = []
        self._order = count()
        self._dead: set[str] = set()
        self._workers: list[str] = []
        self._posts: dict[str, list[Callable[[str], Script]]] = {}

    @property
    def passed_s(self) -> float:
        """Simulated seconds since the beginning."""
        return (self.clock.micros - self.began) / 1e6

    def hire(self, workers: int) -> None:
        """Begin with that many workers."""
        self._workers = [f"worker {number}.0" for number in range(workers)]

    def someone(self) -> str:
        """Any worker that lives."""
        return self.rng.choice(self._workers)

    def sleep(self, seconds: float) -> Wait:
        """Nothing, for so long."""
        return Wait(_ASLEEP, to_text(self.clock.micros + round(seconds * 1e6)))

    def spawn(self, worker: str, script: Script, *, flow_id: str = "", after_s: float = 0.0) -> None:
        """Let a worker begin a script, now or later."""
        self._later(Task(worker, script, None, flow_id), after_s)

    def post(self, script: Callable[[str], Script]) -> None:
        """Let some worker begin a script that is never to end: if the worker dies, another begins it anew."""
        worker = self.someone()
        self._posts.setdefault(worker, []).append(script)
        self.spawn(worker, script(worker))

    def _later(self, task: Task, seconds: float) -> None:
        heapq.heappush(self._queue, (self.clock.micros + round(seconds * 1e6), next(self._order), task))

    def step(self) -> bool:
        """Perform the next effect of all; False when nobody has anything to do."""
        while self._queue:
            moment, _, task = heapq.heappop(self._queue)
            if task.worker in self._dead:
                task.context.run(task.script.close)
                continue
            self.clock.micros = max(self.clock.micros, moment)
            self._perform(task)
            return True
        return False

    def _perform(self, task: Task) -> None:
        chance, self.counts["steps"] = self.rng.random(), self.counts["steps"] + 1
        if chance < self.chances.crash / 2:
            self.crash(task.worker, task)
            return
        answer, error = self._do(task)
        self.watch(task)
        if chance < self.chances.crash:
            self.crash(task.worker, task)
            return
        self._go_on(task, answer, error)

    def _do(self, task: Task) -> tuple[Any, BaseException | None]:
        """What an effect answers, or raises."""
        try:
            match task.effect:
                case Write(fn):
                    return self.store.write(fn), None
                case Read(fn):
                    return self.store.read(fn), None
                case Call(fn):
                    return task.context.run(fn), None
        except Exception as raised:
            return None, raised
        return False, None

    def _go_on(self, task: Task, answer: Any, error: BaseException | None) -> None:
        """Hand a script its answer; what it wants next is done a while later."""
        begun = task.effect is not None
        try:
            send = task.script.throw if error is not None else task.script.send
            task.effect = task.context.run(send, error if error is not None else answer if begun else None)  # type: ignore[arg-type]
        except StopIteration:
            self.counts["scripts ended"] += 1
            return
        except HoldproofError as raised:
            self.break_("a script did not expect", task.flow_id, repr(raised))
            return
        self._later(task, self._delay_s(task.effect))

    def _delay_s(self, effect: Effect | None) -> float:
        if isinstance(effect, Wait):
            longest = 600.0 if effect.until is None else max(0.0, (to_micros(effect.until) - self.clock.micros) / 1e6)
            return longest if effect.topic == _ASLEEP or self.rng.random() < 0.5 else longest * self.rng.random()
        chance = self.rng.random()
        if chance < self.chances.stall:
            self.counts["stalls"] += 1
            return self.rng.uniform(6, 48) * HOUR
        return self.rng.uniform(5, 300) if chance < self.chances.pause else self.rng.expovariate(4)

    def crash(self, worker: str, task: Task | None = None) -> None:
        """End a worker in the middle of whatever its scripts do; another takes its place."""
        self.counts["crashes"] += 1
        self._dead.add(worker)
        if task is not None:
            task.context.run(task.script.close)
        name, _, life = worker.rpartition(".")
        place = self._workers.index(worker)
        self._workers[place] = f"{name}.{int(life) + 1}"
        for post in self._posts.pop(worker, ()):
            self.post(post)

    def break_(self, rule: str, *about: object) -> None:
        """Write down that a rule did not hold; all of the first hundred, then only that there are more."""
        self.counts["violations"] += 1
        if len(self.broken) < 100:
            told = " ".join(str(each) for each in about)
            self.broken.append(f"{rule}: {told} (step {self.counts['steps']}, day {self.passed_s / DAY:.2f})")
