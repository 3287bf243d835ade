"""The four coding agents: what their events mean, what files a call changed, and how they are told a decision.

Pure functions of an event as the agent sends it. The formats are those of the agents' own documentation in November
2026: hooks of Claude Code, Codex, Gemini CLI and Cursor.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

Event = Mapping[str, Any]

CLAUDE: Final = "claude-code"
CODEX: Final = "codex"
GEMINI: Final = "gemini"
CURSOR: Final = "cursor"
TOOLS: Final = (CLAUDE, CODEX, GEMINI, CURSOR)

SESSION_STARTED: Final = "session.started"
SESSION_ENDED: Final = "session.ended"
PROMPT: Final = "prompt"
CALL: Final = "tool.requested"
RESULT: Final = "tool.finished"
FAILURE: Final = "tool.failed"
EDIT: Final = "file.changed"
COMMIT: Final = "commit"
TURN_ENDED: Final = "turn.ended"
_OTHER: Final = "hook"

_CLAUDE_EVENTS: Final = {
    "SessionStart": SESSION_STARTED,
    "UserPromptSubmit": PROMPT,
    "PreToolUse": CALL,
    "PostToolUse": RESULT,
    "PostToolUseFailure": FAILURE,
    "PermissionRequest": "permission.requested",
    "PermissionDenied": "permission.denied",
    "Notification": "notification",
    "SubagentStart": "subagent.started",
    "SubagentStop": "subagent.ended",
    "PreCompact": "context.compacted",
    "Stop": TURN_ENDED,
    "SessionEnd": SESSION_ENDED,
}
_CODEX_EVENTS: Final = {
    name: kind
    for name, kind in _CLAUDE_EVENTS.items()
    if name not in {"PostToolUseFailure", "PermissionDenied", "Notification", "SessionEnd"}
}
_GEMINI_EVENTS: Final = {
    "SessionStart": SESSION_STARTED,
    "BeforeAgent": PROMPT,
    "BeforeTool": CALL,
    "AfterTool": RESULT,
    "Notification": "notification",
    "PreCompress": "context.compacted",
    "AfterAgent": TURN_ENDED,
    "SessionEnd": SESSION_ENDED,
}
_CURSOR_EVENTS: Final = {
    "sessionStart": SESSION_STARTED,
    "beforeSubmitPrompt": PROMPT,
    "beforeShellExecution": CALL,
    "beforeMCPExecution": CALL,
    "beforeReadFile": CALL,
    "afterShellExecution": RESULT,
    "afterMCPExecution": RESULT,
    "afterFileEdit": EDIT,
    "afterAgentResponse": "response",
    "stop": TURN_ENDED,
    "sessionEnd": SESSION_ENDED,
}
EVENTS: Final[Mapping[str, Mapping[str, str]]] = {
    CLAUDE: _CLAUDE_EVENTS,
    CODEX: _CODEX_EVENTS,
    GEMINI: _GEMINI_EVENTS,
    CURSOR: _CURSOR_EVENTS,
}
"""What each agent's events are called in the log; these are the ones that `install` subscribes to."""

_SHELL: Final = "shell"
_READ: Final = "read"
_SHELLS: Final = frozenset({"Bash", "shell", "local_shell", "exec_command", "run_shell_command", _SHELL})
# Longer ones first: of `*** Move to: ` no other is a beginning.
_PATCH_FILES: Final = ("*** Update File: ", "*** Add File: ", "*** Delete File: ", "*** Move to: ")


@dataclass(frozen=True, slots=True)
class AgentCall:
    """The tool call that an event is about: its name, its arguments, and the agent's id for it where it has one."""

    name: str
    arguments: Mapping[str, Any]
    id: str


@dataclass(frozen=True, slots=True)
class FileChange:
    """What a call did to a file: the lines that it wrote, and the lines that it took away."""

    path: str
    added: str
    removed: str


def kind_of(tool: str, event: Event) -> str:
    """Return what an event is called in the log; `hook` for one that this version does not know."""
    kind = EVENTS.get(tool, {}).get(str(event.get("hook_event_name", "")), _OTHER)
    response = event.get("tool_response")
    # Gemini has no event of its own for a tool that failed.
    failed = kind == RESULT and isinstance(response, Mapping) and bool(response.get("error"))
    return FAILURE if failed else kind


def call_of(tool: str, event: Event) -> AgentCall | None:
    """Return the tool call that an event is about; None for events of another kind."""
    if kind_of(tool, event) not in {CALL, RESULT, FAILURE}:
        return None
    if tool == CURSOR:
        return _cursor_call(event)
    tool_input = event.get("tool_input")
    arguments = tool_input if isinstance(tool_input, Mapping) else {"input": tool_input}
    return AgentCall(str(event.get("tool_name") or "unknown"), arguments, str(event.get("tool_use_id") or ""))


def _cursor_call(event: Event) -> AgentCall:
    """Return the call of one of Cursor's events, which have fields of their own for each kind of tool."""
    name = str(event["hook_event_name"])
    if "Shell" in name:
        return AgentCall(_SHELL, {"command": event.get("command", "")}, "")
    if name == "beforeReadFile":
        return AgentCall(_READ, {"file_path": event.get("file_path", "")}, "")
    tool_input = event.get("tool_input")
    # Cursor sends the arguments of an MCP tool as the text of a JSON object.
    parsed = _parsed(tool_input) if isinstance(tool_input, str) else tool_input
    arguments = parsed if isinstance(parsed, Mapping) else {"input": tool_input}
    return AgentCall(str(event.get("tool_name") or "unknown"), arguments, "")


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def is_shell(call: AgentCall) -> bool:
    """Return whether a call runs a command, which may commit."""
    return call.name in _SHELLS


def changes(tool: str, event: Event) -> list[FileChange]:
    """Return what an event says was written to files: edits, new files and patches; nothing of what commands did."""
    if tool == CURSOR and kind_of(tool, event) == EDIT:
        return list(_edits(str(event.get("file_path", "")), event.get("edits")))
    call = call_of(tool, event)
    if call is None or kind_of(tool, event) != RESULT:
        return []
    if call.name == "apply_patch":
        patch = call.arguments.get("command") or call.arguments.get("input") or call.arguments.get("patch")
        return list(_patched(str(patch or "")))
    return _written(call.arguments)


def _written(arguments: Mapping[str, Any]) -> list[FileChange]:
    """Return what a call that edits or writes one file did to it; nothing for a call that does neither."""
    path = str(arguments.get("file_path") or arguments.get("notebook_path") or "")
    if isinstance(arguments.get("edits"), list):
        return list(_edits(path, arguments["edits"]))
    text = arguments.get("content", arguments.get("new_string", arguments.get("new_source")))
    if not path or not isinstance(text, str):
        return []
    return [FileChange(path, text, str(arguments.get("old_string") or ""))]


def _edits(path: str, edits: Any) -> Iterator[FileChange]:
    for edit in edits if isinstance(edits, list) else ():
        if isinstance(edit, Mapping):
            yield FileChange(path, str(edit.get("new_string") or ""), str(edit.get("old_string") or ""))


def _patched(patch: str) -> Iterator[FileChange]:
    """Yield what each file of a patch in Codex's format got and lost; the lines around are on both sides."""
    path = ""
    added: list[str] = []
    removed: list[str] = []
    for line in [*patch.splitlines(), "*** End"]:
        if line.startswith(("*** ", "@@")):
            if added or removed:
                yield FileChange(path, "\n".join(added), "\n".join(removed))
            added = []
            removed = []
            path = next((line.removeprefix(mark) for mark in _PATCH_FILES if line.startswith(mark)), path)
        elif line.startswith("+"):
            added.append(line[1:])
        elif line.startswith("-"):
            removed.append(line[1:])
        else:
            added.append(line[1:])
            removed.append(line[1:])


def answer(tool: str, event: Event, decision: str, reason: str) -> str:
    """Return what the agent is told about a call: a text for the hook's standard output, empty where it may go on.

    Nothing is said where policies allow: the agent's own rules and questions still count. Codex and Gemini cannot ask
    anybody from a hook, so that a call which needs an answer is denied there, and may be tried again after it.
    """
    if decision not in {"deny", "ask"}:
        return ""
    if tool == CURSOR:
        asks = decision == "ask" and event.get("hook_event_name") != "beforeReadFile"
        permission = "ask" if asks else "deny"
        return json.dumps({"permission": permission, "user_message": reason, "agent_message": reason})
    if tool == GEMINI:
        return json.dumps({"decision": "deny", "reason": reason})
    word = "ask" if decision == "ask" and tool == CLAUDE else "deny"
    ruling = {"hookEventName": "PreToolUse", "permissionDecision": word, "permissionDecisionReason": reason}
    return json.dumps({"hookSpecificOutput": ruling})


def asks_in_the_agent(tool: str, event: Event) -> bool:
    """Return whether the agent itself asks its user about this call, where a policy wants somebody asked."""
    return tool == CLAUDE or (tool == CURSOR and event.get("hook_event_name") != "beforeReadFile")
