"""Hooks of coding agents: their events recorded under the log, holes found, calls decided; on every backend."""

import json
from pathlib import Path
from typing import Any

import pytest

from holdproof import errors
from holdproof.adapters import captured
from holdproof.adapters.hooks import provenance
from holdproof.adapters.hooks.recorder import Recorder
from tests.conformance import hook_events
from tests.conformance.hook_sessions import Hooked, committed, repository
from tests.conformance.store_backends import StoreInMemory, StoreOnPostgres, StoreOnSqlite, sound

POLICY = """
@id("all") permit(principal, action, resource);
@id("no-force") forbid(principal, action == Action::"tool.call", resource)
when { context has command && context.command like "*--force*" };
@id("ask-rm") @advice("ask") forbid(principal, action == Action::"tool.call", resource)
when { context has command && context.command like "rm *" };
"""


def shell(command: str, cwd: Path, name: str = "PreToolUse", call: str = "c1") -> dict[str, Any]:
    facts = {"session_id": "s1", "cwd": str(cwd), "hook_event_name": name, "tool_name": "Bash"}
    return {**facts, "tool_input": {"command": command}, "tool_use_id": call}


class Hooks:
    home: Path
    url: str | None
    disk: bool

    @pytest.fixture(autouse=True)
    def _recorder(self, tmp_path: Path) -> Any:
        with self.open() as store:  # type: ignore[attr-defined]
            self.tree = repository(tmp_path / "work")
            self.hooked = Hooked(store, tmp_path / "state")
            self.store = store
            yield
            sound(store)

    def test_the_session_of_a_person_is_sealed_and_goes_with_that_person(self) -> None:
        said = "ada lives in Zurich " * 500
        event = {"session_id": "s1", "cwd": str(self.tree), "hook_event_name": "UserPromptSubmit", "prompt": said}
        [first, second, third] = [self.hooked.message("claude-code", event) for _ in range(3)]
        assert self.hooked.recorder.handle(first | {"subject": "ada"})["recorded"] is True
        # The flow knows whose it is: an event that does not say so is sealed all the same.
        assert self.hooked.recorder.handle(second)["recorded"] is True
        prompts = self.hooked.events("claude-code.s1", "prompt")
        assert [prompt.detail["event"]["prompt"] for prompt in prompts] == [said, said]
        self.store.erase.subject("ada")
        # Whoever goes on after that is recorded without a word.
        assert self.hooked.recorder.handle(third | {"subject": "ada"})["recorded"] is True
        for prompt in self.hooked.events("claude-code.s1", "prompt"):
            assert set(prompt.detail) == {"$erased"}

    @pytest.mark.parametrize(
        ("tool", "kinds"),
        [
            (
                "claude-code",
                "session.started prompt tool.requested tool.finished file.changed tool.requested tool.finished"
                " turn.ended session.ended",
            ),
            ("codex", "session.started prompt tool.requested tool.finished file.changed turn.ended"),
            (
                "gemini",
                "session.started prompt tool.requested tool.finished file.changed tool.requested tool.failed"
                " turn.ended session.ended",
            ),
            (
                "cursor",
                "prompt tool.requested tool.finished tool.requested tool.finished file.changed file.changed turn.ended",
            ),
        ],
    )
    def test_every_event_of_a_session_is_recorded_once_and_whole(self, tool: str, kinds: str) -> None:
        events = getattr(hook_events, tool.partition("-")[0])(self.tree)
        self.hooked.replay(tool, events)
        session = events[0].get("session_id") or events[0]["conversation_id"]
        recorded = self.hooked.events(f"{tool}.{session}")
        assert [each.event_type for each in recorded] == kinds.split()
        assert [each.detail["event"] for each in recorded if "n" in each.detail] == events
        status = self.store.flows.get(f"{tool}.{session}").status
        assert status == ("COMPLETED" if "session.ended" in kinds else "RUNNING")

    def test_what_a_call_changed_names_the_file_within_its_repository(self) -> None:
        for tool in ("claude-code", "codex", "gemini", "cursor"):
            self.hooked.replay(tool, getattr(hook_events, tool.partition("-")[0])(self.tree))
        changes = [each.detail for each in self.hooked.events(kind="file.changed") if "added" in each.detail]
        assert [each["path"] for each in changes] == ["hello.py"] * 4
        assert {each["added"].rstrip("\n") for each in changes} == {hook_events.HELLO.rstrip("\n")}

    def test_a_dropped_event_appears_as_a_gap(self, monkeypatch: pytest.MonkeyPatch) -> None:
        events = hook_events.claude(self.tree)
        self.hooked.replay("claude-code", events[:2])
        self.hooked.message("claude-code", events[2])  # numbered, and then lost
        self.hooked.replay("claude-code", events[3:5])
        monkeypatch.setattr("time.monotonic", lambda: 1e9)
        self.hooked.recorder.look()
        self.hooked.recorder.look()
        [gap] = self.hooked.events(kind=captured.GAP)
        assert gap.detail["missing"] == [[3, 3]]
        assert gap.severity == "WARNING"

    def test_events_that_overtake_each_other_leave_no_gap(self, monkeypatch: pytest.MonkeyPatch) -> None:
        first, second, third = [self.hooked.message("codex", each) for each in hook_events.codex(self.tree)[:3]]
        for message in (third, first, second):
            assert self.hooked.recorder.handle(message)["recorded"] is True
        monkeypatch.setattr("time.monotonic", lambda: 1e9)
        self.hooked.recorder.look()
        assert self.hooked.events(kind=captured.GAP) == []

    def test_an_event_that_is_sent_again_is_recorded_once(self) -> None:
        message = self.hooked.message("codex", hook_events.codex(self.tree)[0])
        self.hooked.recorder.handle(message)
        self.hooked.recorder.handle(message)
        # Another recorder knows from the store what was recorded.
        Recorder(self.store, self.hooked.state).handle(message)
        assert self.hooked.kinds("codex.0199-codex") == ["session.started"]

    def test_a_counter_that_begins_again_is_said_and_loses_nothing(self) -> None:
        events = hook_events.codex(self.tree)
        self.hooked.replay("codex", events[:2])
        self.hooked.numbers.clear()
        self.hooked.replay("codex", events[2:3])
        kinds = self.hooked.kinds("codex.0199-codex")
        assert kinds == ["session.started", "prompt", captured.GAP, "tool.requested"]

    def test_a_call_that_no_hook_reported_is_found_in_the_transcript(self) -> None:
        events = hook_events.claude(self.tree)
        path = self.tree / "transcript.jsonl"
        path.write_text("", encoding="utf-8")
        self.hooked.replay("claude-code", events[:4])
        calls = [{"type": "tool_use", "id": id, "name": "Write"} for id in ("toolu_01ABC123", "toolu_skipped")]
        path.write_text(json.dumps({"message": {"role": "assistant", "content": calls}}) + "\n", encoding="utf-8")
        self.hooked.replay("claude-code", events[6:7])
        [gap] = self.hooked.events(kind=captured.GAP)
        assert gap.detail["unseen"] == [{"call": "toolu_skipped", "name": "Write"}]

    def test_a_recorder_that_starts_stops_or_dies_says_so(self) -> None:
        first = Recorder(self.store, self.hooked.state)
        first.start()
        first.stop("nothing to do")
        Recorder(self.store, self.hooked.state).start()  # and it dies
        Recorder(self.store, self.hooked.state).start()
        kinds = [each.event_type for each in self.hooked.events()]
        started, stopped, died = captured.STARTED, captured.STOPPED, captured.DIED
        assert kinds == [started, stopped, started, died, started]

    def test_events_wait_in_the_spool_while_the_store_is_lost_and_the_loss_is_recorded(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def lost(*_: Any, **__: Any) -> Any:
            raise errors.UnavailableError("the store is gone")

        events = hook_events.codex(self.tree)
        self.hooked.replay("codex", events[:1])
        with monkeypatch.context() as patch:
            patch.setattr(self.store, "write", lost)
            message = self.hooked.message("codex", events[1])
            answer = self.hooked.recorder.handle(message)
            assert (answer["recorded"], "the store is gone" in answer["error"]) == (False, True)
            (self.hooked.state / "spool" / "1.json").write_text(json.dumps(message), encoding="utf-8")
            assert "the store is gone" in (self.hooked.state / "recorder.error").read_text(encoding="utf-8")
        self.hooked.recorder.drain()
        assert self.hooked.kinds("codex.0199-codex") == ["session.started", "prompt"]
        [loss] = self.hooked.events(kind=captured.STORE_LOST)
        assert set(loss.detail) >= {"since", "until", "error"}
        assert list((self.hooked.state / "spool").iterdir()) == []
        assert not (self.hooked.state / "recorder.error").exists()

    def test_long_texts_stand_once_in_the_content_store(self) -> None:
        text = "x = 1\n" * 50_000
        events = hook_events.claude(self.tree)
        for event in events[2:4]:
            event["tool_input"]["content"] = text
        self.hooked.replay("claude-code", events[2:4])
        stored = [each.detail["event"]["tool_input"]["content"] for each in self.hooked.events() if "n" in each.detail]
        assert stored[0] == stored[1] == {"$value": stored[0]["$value"], "bytes": len(text)}
        assert self.store.values.get(stored[0]["$value"]) == text

    def test_what_json_cannot_hold_is_recorded_as_text(self) -> None:
        event = {"session_id": "odd", "cwd": str(self.tree), "hook_event_name": "Notification"}
        odd = {"huge": 2**70, "not": float("nan"), "half": "\ud800", "unknown": [[1.5]]}
        assert self.hooked.hand("claude-code", {**event, **odd})["recorded"] is True
        [recorded] = self.hooked.events("claude-code.odd")
        assert recorded.detail["event"]["huge"] == str(2**70)
        assert recorded.detail["event"]["half"] == "?"

    def test_the_hunks_of_a_commit_carry_their_provenance(self) -> None:
        events = hook_events.claude(self.tree)
        self.hooked.replay("claude-code", events[:4])
        (self.tree / "hello.py").write_text(hook_events.HELLO, encoding="utf-8")
        (self.tree / "README").write_text("a project\nby hand\n", encoding="utf-8")
        head = committed(self.tree, "hello")
        self.hooked.replay("claude-code", events[4:6])
        blame = provenance.blame(self.store, str(self.tree))
        by_hand, written = sorted(blame.hunks, key=lambda hunk: hunk.path)
        assert (blame.commit, blame.complete) == (head, False)
        assert (by_hand.path, by_hand.matched, by_hand.flow_id) == ("README", 0, None)
        assert (written.path, written.lines, written.matched) == ("hello.py", 2, 2)
        assert (written.call, written.flow_id) == ("toolu_01ABC123", "claude-code.2f6c1a9e-claude")
        assert written.prompt is not None
        assert self.store.audit.get(written.prompt).detail["event"]["prompt"] == "Write a function that says hello"
        # The agent committed in this session: the same stands under the log.
        [commit] = self.hooked.events(kind="commit")
        assert commit.detail == json.loads(json.dumps(blame.to_dict()))

    def test_lines_that_do_not_follow_one_another_are_counted_and_not_claimed(self) -> None:
        events = hook_events.claude(self.tree)
        self.hooked.replay("claude-code", events[:4])
        (self.tree / "hello.py").write_text("def hello():\n    # changed\n    return 'hello'\n", encoding="utf-8")
        committed(self.tree, "hello")
        [hunk] = provenance.blame(self.store, str(self.tree)).hunks
        assert (hunk.lines, hunk.matched) == (3, 2)

    # --- policies ------------------------------------------------------------------------------------------------

    def _policies(self) -> None:
        self.store.policies.create("hooks", POLICY, by="ada")
        self.store.policies.activate("hooks", by="ada")

    def test_what_policies_allow_is_left_to_the_agents_own_rules(self) -> None:
        self._policies()
        answer = self.hooked.hand("claude-code", shell("ls", self.tree), gate=True)
        assert answer == {"recorded": True, "stdout": ""}
        [event] = self.hooked.events("claude-code.s1")
        assert event.detail["decision"]["decision"] == "allow"

    @pytest.mark.parametrize("tool", ["claude-code", "codex"])
    def test_a_denied_call_is_denied_in_the_agents_words_and_recorded(self, tool: str) -> None:
        self._policies()
        answer = self.hooked.hand(tool, shell("git push --force", self.tree), gate=True)
        ruling = json.loads(answer["stdout"])["hookSpecificOutput"]
        assert (ruling["hookEventName"], ruling["permissionDecision"]) == ("PreToolUse", "deny")
        assert "no-force" in ruling["permissionDecisionReason"]
        [event] = self.hooked.events(f"{tool}.s1")
        assert (event.severity, event.detail["decision"]["decision"]) == ("WARNING", "deny")

    def test_gemini_and_cursor_are_told_in_their_own_words(self) -> None:
        self._policies()
        common = {"session_id": "s1", "conversation_id": "s1", "cwd": str(self.tree), "tool_name": "run_shell_command"}
        call = {**common, "command": "rm x --force", "tool_input": {"command": "rm x --force"}}
        told = self.hooked.hand("gemini", {**call, "hook_event_name": "BeforeTool"}, gate=True)
        assert json.loads(told["stdout"])["decision"] == "deny"
        told = self.hooked.hand("cursor", {**call, "hook_event_name": "beforeShellExecution"}, gate=True)
        assert json.loads(told["stdout"])["permission"] == "deny"

    def test_what_a_policy_asks_about_the_agent_asks_its_user_and_the_answer_is_recorded(self) -> None:
        self._policies()
        for call in ("c1", "c2"):
            answer = self.hooked.hand("claude-code", shell("rm x", self.tree, call=call), gate=True)
            assert json.loads(answer["stdout"])["hookSpecificOutput"]["permissionDecision"] == "ask"
            self.hooked.hand("claude-code", shell("rm x", self.tree, "PostToolUse", call), gate=True)
        approvals = self.store.escalations.list(status=None).items
        assert [each.status for each in approvals] == ["APPROVED", "APPROVED"]
        assert all("in claude-code" in str(each.resolved_by) for each in approvals)

    def test_what_the_user_refused_is_cancelled_when_the_session_ends(self) -> None:
        self._policies()
        self.hooked.hand("claude-code", shell("rm x", self.tree), gate=True)
        end = {"session_id": "s1", "cwd": str(self.tree), "hook_event_name": "SessionEnd", "reason": "exit"}
        self.hooked.hand("claude-code", end, gate=True)
        assert [each.status for each in self.store.escalations.list(status=None).items] == ["CANCELLED"]

    @pytest.mark.parametrize("is_said_again", [True, False])
    def test_what_policies_decide_about_in_the_session_of_a_person_is_sealed(self, is_said_again: bool) -> None:
        self._policies()
        place = "/home/ada-of-zurich"
        begins = {"session_id": "s1", "cwd": str(self.tree), "hook_event_name": "SessionStart"}
        self.hooked.recorder.handle(self.hooked.message("claude-code", begins) | {"subject": "ada"})
        subject = {"subject": "ada"} if is_said_again else {}
        for command in (f"ls {place}", f"rm {place}", f"git push --force {place}"):
            event = shell(command, self.tree, call=command[:2])
            answer = self.hooked.recorder.handle(self.hooked.message("claude-code", event, gate=True) | subject)
            assert answer["recorded"] is True
        [escalation] = self.store.escalations.list().items
        assert place in json.dumps(escalation.to_dict())
        self.store.erase.subject("ada")
        decisions = self.store.policies.decisions().items
        assert [each.decision for each in decisions] == ["deny", "ask", "allow"]
        shown = [each.to_dict() for each in [*decisions, *self.store.escalations.list(status=None).items]]
        assert place not in json.dumps(shown, default=str)

    def test_an_agent_that_cannot_ask_is_denied_until_the_inbox_has_answered(self) -> None:
        self._policies()
        answer = self.hooked.hand("codex", shell("rm x", self.tree), gate=True)
        ruling = json.loads(answer["stdout"])["hookSpecificOutput"]
        [waiting] = self.store.escalations.list().items
        assert ruling["permissionDecision"] == "deny"
        assert f"escalations resolve {waiting.id}" in ruling["permissionDecisionReason"]
        self.store.escalations.resolve(waiting.id, "approve", by="ada")
        assert self.hooked.hand("codex", shell("rm x", self.tree), gate=True)["stdout"] == ""
        # Once: the next call of the same kind is asked about anew.
        assert self.hooked.hand("codex", shell("rm x", self.tree), gate=True)["stdout"] != ""

    def test_policies_that_cannot_be_asked_let_nothing_pass(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def lost(*_: Any, **__: Any) -> Any:
            raise errors.UnavailableError("the store is gone")

        monkeypatch.setattr(self.store.policies, "decide", lost, raising=False)
        answer = self.hooked.hand("codex", shell("ls", self.tree), gate=True)
        assert json.loads(answer["stdout"])["hookSpecificOutput"]["permissionDecision"] == "deny"


class TestHooksOnSqlite(Hooks, StoreOnSqlite):
    pass


class TestHooksInMemory(Hooks, StoreInMemory):
    pass


class TestHooksOnPostgres(Hooks, StoreOnPostgres):
    pass
