"""The parts of hooks that need no store: numbers, patches of git and Codex, configuration files of agents."""

import json
from pathlib import Path

import pytest

from holdproof import errors
from holdproof.adapters.hooks import git, install, tools
from holdproof.adapters.hooks.numbers import DUPLICATE, LATE, NEW, RESTARTED, Numbers

COMMAND = "/opt/bin/holdproof hook {} --state /tmp/state"


def installed(tool: str, path: Path) -> install.Configuration:
    return install.installed(tool, path, COMMAND.format(tool), gate=False)


class TestNumbers:
    def test_a_number_is_missing_once_it_has_not_come_for_a_while(self) -> None:
        numbers = Numbers()
        numbers.take(1, "a", 0)
        numbers.take(5, "b", 0)
        assert numbers.overdue(1) == []
        numbers.take(3, "c", 1)
        assert numbers.overdue(10) == [(2, 2), (4, 4)]
        numbers.declare([(2, 2)])
        assert numbers.overdue(10) == [(4, 4)]
        assert numbers.arrival(2, "0") == LATE

    def test_what_comes_again_is_told_from_a_counter_that_began_again(self) -> None:
        numbers = Numbers()
        numbers.take(1, "a", 0)
        assert numbers.arrival(1, "a") == DUPLICATE
        assert numbers.arrival(1, "b") == RESTARTED
        assert numbers.arrival(2, "b") == NEW

    def test_the_first_event_of_a_session_shows_those_before_it(self) -> None:
        numbers = Numbers()
        numbers.take(3, "a", 0)
        assert numbers.overdue(10) == [(1, 2)]

    def test_a_recorder_goes_on_where_another_stood(self) -> None:
        numbers = Numbers({7: "a", 9: "b", 11: "c"}, declared=[(8, 8)])
        assert numbers.overdue(0) == [(10, 10)]

    def test_a_million_missing_numbers_are_one_range(self) -> None:
        numbers = Numbers()
        numbers.take(1_000_000, "a", 0)
        assert numbers.overdue(10) == [(1, 999_999)]


class TestPatches:
    def test_hunks_of_git_name_file_start_and_lines(self) -> None:
        patch = (
            "diff --git a/new.py b/new.py\nnew file mode 100644\n--- /dev/null\n+++ b/new.py\n@@ -0,0 +1,2 @@\n+a\n+b\n"
            "diff --git a/gone b/gone\n--- a/gone\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n\\ No newline at end of file\n"
            "diff --git a/with space b/with space\n--- a/with space\t\n+++ b/with space\t\n"
            "@@ -3 +3 @@ def f():\n---- x\n++++ y\n"
        )
        assert list(git.parse(patch)) == [
            git.Hunk("new.py", 1, ("a", "b"), ()),
            git.Hunk("gone", 0, (), ("x",)),
            git.Hunk("with space", 3, ("+++ y",), ("--- x",)),
        ]

    def test_a_patch_of_codex_is_split_by_file_and_hunk(self) -> None:
        patch = (
            "*** Begin Patch\n*** Update File: a.py\n@@ def f():\n same\n-old\n+new\n*** Add File: b.py\n+b\n"
            "*** Delete File: c.py\n*** End Patch"
        )
        event = {"hook_event_name": "PostToolUse", "tool_name": "apply_patch", "tool_input": {"command": patch}}
        assert tools.changes("codex", event) == [
            tools.FileChange("a.py", "same\nnew", "same\nold"),
            tools.FileChange("b.py", "b", ""),
        ]

    def test_events_of_other_versions_are_recorded_under_a_general_name(self) -> None:
        assert tools.kind_of("claude-code", {"hook_event_name": "SomethingNew"}) == "hook"
        assert tools.kind_of("claude-code", {}) == "hook"

    def test_a_revision_cannot_be_an_option_of_git(self, tmp_path: Path) -> None:
        with pytest.raises(errors.InvalidInputError):
            git.commit(str(tmp_path), "--output=x")


class TestInstall:
    @pytest.mark.parametrize("tool", tools.TOOLS)
    def test_installing_twice_changes_nothing_and_uninstalling_leaves_what_was(self, tool: str, tmp_path: Path) -> None:
        path = tmp_path / "settings.json"
        theirs = [{"command": "mine.sh"}] if tool == "cursor" else [{"hooks": [{"type": "command", "command": "mine"}]}]
        [event, *_] = tools.EVENTS[tool]
        before = {"version": 1, "model": "x", "hooks": {event: theirs, "Other": theirs}, "z": [1]}
        path.write_text(json.dumps(before), encoding="utf-8")
        install.write(installed(tool, path))
        settings = json.loads(path.read_text(encoding="utf-8"))
        assert settings["hooks"][event][:1] == theirs
        assert len(settings["hooks"][event]) == 2
        assert set(tools.EVENTS[tool]) <= set(settings["hooks"])
        assert installed(tool, path).unchanged
        install.write(install.uninstalled(tool, path))
        after = json.loads(path.read_text(encoding="utf-8"))
        assert (after, list(after)) == (before, list(before))

    @pytest.mark.parametrize("tool", tools.TOOLS)
    def test_a_file_that_was_not_there_is_gone_again(self, tool: str, tmp_path: Path) -> None:
        path = tmp_path / "new" / "settings.json"
        install.write(installed(tool, path))
        assert path.is_file()
        install.write(install.uninstalled(tool, path))
        assert not path.exists()
        assert install.uninstalled(tool, path).unchanged

    def test_other_options_replace_what_was_installed(self, tmp_path: Path) -> None:
        path = tmp_path / "settings.json"
        install.write(installed("claude-code", path))
        gated = install.installed("claude-code", path, f"{COMMAND.format('claude-code')} --gate", gate=True)
        install.write(gated)
        [entry] = json.loads(path.read_text(encoding="utf-8"))["hooks"]["PreToolUse"]
        assert entry["hooks"][0]["command"].endswith("--gate")

    def test_a_file_with_comments_is_refused_and_stays(self, tmp_path: Path) -> None:
        path = tmp_path / "settings.json"
        path.write_text('{"a": 1} // mine\n', encoding="utf-8")
        with pytest.raises(errors.FormatError, match="nothing was changed"):
            installed("gemini", path)
        assert path.read_text(encoding="utf-8") == '{"a": 1} // mine\n'

    def test_a_link_stays_a_link(self, tmp_path: Path) -> None:
        (tmp_path / "dotfiles").write_text("{}", encoding="utf-8")
        (tmp_path / "hooks.json").symlink_to(tmp_path / "dotfiles")
        install.write(installed("codex", tmp_path / "hooks.json"))
        assert (tmp_path / "hooks.json").is_symlink()
        assert "hooks" in json.loads((tmp_path / "dotfiles").read_text(encoding="utf-8"))

    def test_each_agent_is_given_the_file_it_reads(self, tmp_path: Path) -> None:
        env = {"HOME": "/home/ada", "CODEX_HOME": "/srv/codex"}
        user = [str(install.path_of(tool, user=True, project=tmp_path, env=env)) for tool in tools.TOOLS]
        assert user == [
            "/home/ada/.claude/settings.json",
            "/srv/codex/hooks.json",
            "/home/ada/.gemini/settings.json",
            "/home/ada/.cursor/hooks.json",
        ]
        project = install.path_of("claude-code", user=False, project=tmp_path)
        assert project == tmp_path / ".claude" / "settings.local.json"
