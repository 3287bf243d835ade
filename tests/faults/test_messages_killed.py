"""Messages, promises and streams between processes that race and are killed: nothing is lost, nothing comes twice."""

import os
import random
import subprocess
import sys
from contextlib import ExitStack
from typing import Any

from holdproof import sync
from tests.conformance.decisions import OnPostgres, OnSqlite, OnStore
from tests.faults import messenger
from tests.faults.messenger import FLOW, MESSAGES

KILLS = max(2, int(os.environ.get("HOLDPROOF_KILLS", "100")) // 50)
RACES = max(1, int(os.environ.get("HOLDPROOF_RACES", "100")) // 100)

Process = subprocess.Popen[str]


class Messages(OnStore):
    def begun(self, stack: ExitStack, role: str, name: str) -> Process:
        """A process that ends with the test at the latest."""
        target: dict[str, Any] = self.target()
        command = [sys.executable, "-m", "tests.faults.messenger", role, str(target["home"]), target.get("url", "")]
        process = stack.enter_context(
            subprocess.Popen([*command, name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        )
        stack.callback(process.kill)
        return process

    def judge(self, live: sync.Holdproof, winners: set[str]) -> None:
        """Each message was received once, the stream has them in that order, and one process resolved the promise."""
        received, resolved = live.flows.result(FLOW, timeout_s=120)
        assert sorted(received) == [*range(MESSAGES)]
        assert [item.value for item in live.flows.stream(FLOW, "received")] == received
        assert winners <= {resolved}
        [promise] = live.promises.list(FLOW)
        assert promise.state == "RESOLVED"
        assert len(live.flows.messages(FLOW)) == MESSAGES

    def test_racing_processes_deliver_once_and_resolve_once(self, live: sync.Holdproof) -> None:
        collect = messenger.register(live)
        for number in range(RACES):
            if number:
                live.flows.delete_many(flow_type="collect", who="test", dry_run=False)
            with ExitStack() as stack:
                collect.with_id(FLOW).enqueue()
                self.begun(stack, "work", "elsewhere")
                stack.enter_context(live.worker(concurrency=2))
                senders = {name: self.begun(stack, "send", name) for name in ("a", "b")}
                said = {name: each.communicate(timeout=120)[0].splitlines() for name, each in senders.items()}
                assert sum(lines.count("won") for lines in said.values()) == 1
                self.judge(live, {name for name, lines in said.items() if "won" in lines})

    def test_killed_processes_lose_nothing_and_repeat_nothing(self, live: sync.Holdproof) -> None:
        chance = random.Random(11)
        messenger.register(live).with_id(FLOW).enqueue()
        with ExitStack() as stack:
            for number in range(KILLS):
                worker = self.begun(stack, "work", f"worker {number}")
                sender = self.begun(stack, "send", f"sender {number}")
                assert sender.stdout is not None
                # Both are killed at their work: after so many messages of the sender.
                for _ in range(chance.randrange(1, MESSAGES)):
                    if not sender.stdout.readline():
                        break
                sender.kill()
                worker.kill()
            stack.enter_context(live.worker())
            messenger.send(live, "last")
            self.judge(live, set())


class TestSqlite(Messages, OnSqlite): ...


class TestPostgres(Messages, OnPostgres): ...
