"""The hook configuration of the four agents: what `install` adds to it, and `uninstall` takes out again.

Rules:
- Every other setting stays as it is, and in its order; a file that is not plain JSON is refused, not rewritten.
- Installing twice changes nothing; installing with other options replaces what was installed.
- Uninstalling removes what installing added, with the lists and the file that are empty then.
- A file is replaced in one step, and a link to it stays a link: settings are often kept elsewhere.
"""

import contextlib
import json
import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from holdproof.adapters.hooks import tools
from holdproof.errors import FormatError, InvalidInputError, ReadOnlyError

_WAIT_S: Final = 60
"""How long an agent waits for a hook that policies decide in."""
_BRIEF_S: Final = 10
_USER_FOLDERS: Final = {
    tools.CLAUDE: ("CLAUDE_CONFIG_DIR", ".claude"),
    tools.CODEX: ("CODEX_HOME", ".codex"),
    tools.GEMINI: ("", ".gemini"),
    tools.CURSOR: ("", ".cursor"),
}
_FILES: Final = {
    tools.CLAUDE: "settings.json",
    tools.CODEX: "hooks.json",
    tools.GEMINI: "settings.json",
    tools.CURSOR: "hooks.json",
}
# The command names a program on this machine, so that it does not belong into a file that a team shares.
_LOCAL: Final = {tools.CLAUDE: "settings.local.json"}
_MATCHED: Final = frozenset(
    {
        *("PreToolUse", "PostToolUse", "PostToolUseFailure", "PermissionRequest", "PermissionDenied"),
        *("BeforeTool", "AfterTool"),
    }
)


@dataclass(frozen=True, slots=True)
class Configuration:
    """A configuration file, as it is and as it would be; None for a file that is not there."""

    path: Path
    before: str | None
    after: str | None

    @property
    def unchanged(self) -> bool:
        """Whether there is nothing to do."""
        return self.before == self.after


def path_of(tool: str, *, user: bool, project: Path, env: Mapping[str, str] = os.environ) -> Path:
    """Return the file that an agent reads its hooks from: its user's, or the project's."""
    variable, folder = _USER_FOLDERS[tool]
    if user:
        home = env.get(variable) if variable else None
        return Path(home or Path(env.get("HOME") or Path.home()) / folder) / _FILES[tool]
    return project / folder / _LOCAL.get(tool, _FILES[tool])


def command_of(
    program: str,
    tool: str,
    *,
    state: Path,
    home: str | None,
    agent: str | None,
    gate: bool,
    subject: str | None = None,
) -> str:
    """Return the command that the agent runs for each event."""
    words = [*shlex.split(program), "hook", tool, "--state", str(state)]
    words += ["--home", home] if home is not None else []
    words += ["--agent", agent] if agent is not None else []
    words += ["--subject", subject] if subject is not None else []
    words += ["--gate"] if gate else []
    return shlex.join(words)


def installed(tool: str, path: Path, command: str, *, gate: bool) -> Configuration:
    """Return a configuration with our hooks in it."""
    before, settings = _read(path)
    without = _without(tool, settings)
    hooks = dict(_hooks(without, path))
    for event, kind in tools.EVENTS[tool].items():
        seconds = _WAIT_S if gate and kind == tools.CALL else _BRIEF_S
        hooks[event] = [*hooks.get(event, []), _entry(tool, event, command, seconds)]
    after = {**({"version": 1} if tool == tools.CURSOR else {}), **without, "hooks": hooks}
    return Configuration(path, before, before if after == settings else _text(after))


def uninstalled(tool: str, path: Path) -> Configuration:
    """Return a configuration without our hooks; a file in which nothing else is left goes."""
    before, settings = _read(path)
    after = _without(tool, settings)
    if after == settings:
        return Configuration(path, before, before)
    nothing: tuple[dict[str, Any], ...] = ({}, {"version": 1})
    return Configuration(path, before, None if after in nothing else _text(after))


def write(configuration: Configuration) -> None:
    """Replace a configuration file by what it would be, in one step."""
    # The file that a link leads to is replaced, not the link.
    path = Path(os.path.realpath(configuration.path))
    try:
        if configuration.after is None:
            path.unlink(missing_ok=True)
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f".{path.name}.holdproof")
        part.write_text(configuration.after, encoding="utf-8")
        with contextlib.suppress(FileNotFoundError):
            part.chmod(path.stat().st_mode & 0o777)
        part.replace(path)
    except OSError as error:
        raise ReadOnlyError(f"{path} cannot be written: {error.strerror}", path=str(path)) from error


def _read(path: Path) -> tuple[str | None, dict[str, Any]]:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None, {}
    except (OSError, UnicodeDecodeError) as error:
        raise FormatError(f"{path} cannot be read: {error}", path=str(path)) from error
    try:
        settings = json.loads(text) if text.strip() else {}
    except ValueError as error:
        message = (
            f"{path} is not plain JSON ({error}); nothing was changed: take comments out, or add the hooks by hand"
        )
        raise FormatError(message, path=str(path)) from error
    if not isinstance(settings, dict):
        raise FormatError(f"{path} is no JSON object; nothing was changed", path=str(path))
    return text, settings


def _text(settings: dict[str, Any]) -> str:
    return json.dumps(settings, indent=2, ensure_ascii=False) + "\n"


def _hooks(settings: dict[str, Any], path: Path) -> dict[str, Any]:
    hooks = settings.get("hooks", {})
    if not isinstance(hooks, dict) or not all(isinstance(each, list) for each in hooks.values()):
        raise FormatError(f"{path}: hooks is not a list for each event; nothing was changed", path=str(path))
    return hooks


def _entry(tool: str, event: str, command: str, seconds: int) -> dict[str, Any]:
    if tool == tools.CURSOR:
        return {"command": command, "timeout": seconds}
    # Gemini counts in thousandths of a second.
    hook: dict[str, Any] = {"type": "command", "command": command}
    hook["timeout"] = seconds * 1000 if tool == tools.GEMINI else seconds
    if tool == tools.GEMINI:
        hook["name"] = "holdproof"
    matcher = {"matcher": "*"} if event in _MATCHED else {}
    return {**matcher, "hooks": [hook]}


def _without(tool: str, settings: dict[str, Any]) -> dict[str, Any]:
    """Return settings without our hooks, and without what is empty for it."""
    hooks = settings.get("hooks")
    if not isinstance(hooks, dict):
        return dict(settings)
    other_hooks: dict[str, Any] = {}
    for event, entries in hooks.items():
        others = [other for each in entries for other in _others(tool, each)] if isinstance(entries, list) else entries
        if others or not entries:
            other_hooks[event] = others
    if other_hooks or not hooks:
        return {**settings, "hooks": other_hooks}
    return {name: value for name, value in settings.items() if name != "hooks"}


def _others(tool: str, entry: Any) -> list[Any]:
    """Return an entry without our hooks; nothing where it has no other."""
    if not isinstance(entry, dict):
        return [entry]
    if "command" in entry:
        return [] if _is_ours(tool, entry) else [entry]
    if not isinstance(entry.get("hooks"), list):
        return [entry]
    others = [each for each in entry["hooks"] if not _is_ours(tool, each)]
    if len(others) == len(entry["hooks"]):
        return [entry]
    return [{**entry, "hooks": others}] if others else []


def _is_ours(tool: str, hook: Any) -> bool:
    command = hook.get("command") if isinstance(hook, dict) else None
    pattern = rf"holdproof\S*\s(.*\s)?hook {re.escape(tool)}\s"
    return isinstance(command, str) and re.search(pattern, f"{command} ") is not None


def check(tool: str) -> str:
    """Validate the name of an agent."""
    if tool not in tools.TOOLS:
        raise InvalidInputError(f"there are no hooks for {tool}: one of {', '.join(tools.TOOLS)}", tool=tool)
    return tool
