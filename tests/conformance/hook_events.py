"""Sessions of four coding agents, event by event, in the shapes that their documentation gives (November 2026)."""

from pathlib import Path
from typing import Any

HELLO = "def hello():\n    return 'hello'\n"
GOODBYE = "def goodbye():\n    return 'goodbye'\n"
PATCH = f"""*** Begin Patch
*** Add File: hello.py
{"".join(f"+{line}" for line in HELLO.splitlines(keepends=True))}*** End Patch
"""


def claude(cwd: Path, session: str = "2f6c1a9e-claude") -> list[dict[str, Any]]:
    common = {
        "session_id": session,
        "transcript_path": str(cwd / "transcript.jsonl"),
        "cwd": str(cwd),
        "permission_mode": "default",
    }
    write = {
        "tool_name": "Write",
        "tool_input": {"file_path": str(cwd / "hello.py"), "content": HELLO},
        "tool_use_id": "toolu_01ABC123",
    }
    shell = {
        "tool_name": "Bash",
        "tool_input": {"command": "git commit -am hello", "description": "Commit", "timeout": 120000},
        "tool_use_id": "toolu_01DEF456",
    }
    return [
        {**common, "hook_event_name": "SessionStart", "source": "startup", "model": "claude-sonnet-4-5"},
        {**common, "hook_event_name": "UserPromptSubmit", "prompt": "Write a function that says hello"},
        {**common, "hook_event_name": "PreToolUse", **write},
        {**common, "hook_event_name": "PostToolUse", **write, "tool_response": {"success": True}},
        {**common, "hook_event_name": "PreToolUse", **shell},
        {**common, "hook_event_name": "PostToolUse", **shell, "tool_response": {"stdout": "", "stderr": ""}},
        {**common, "hook_event_name": "Stop", "stop_hook_active": False},
        {**common, "hook_event_name": "SessionEnd", "reason": "prompt_input_exit"},
    ]


def codex(cwd: Path, session: str = "0199-codex") -> list[dict[str, Any]]:
    common = {
        "session_id": session,
        "transcript_path": None,
        "cwd": str(cwd),
        "model": "gpt-5.2-codex",
        "permission_mode": "default",
    }
    turn = {**common, "turn_id": "turn-1"}
    patch = {"tool_name": "apply_patch", "tool_input": {"command": PATCH}, "tool_use_id": "call_1"}
    return [
        {**common, "hook_event_name": "SessionStart", "source": "startup"},
        {**turn, "hook_event_name": "UserPromptSubmit", "prompt": "Write a function that says hello"},
        {**turn, "hook_event_name": "PreToolUse", **patch},
        {**turn, "hook_event_name": "PostToolUse", **patch, "tool_response": "Success. Updated: A hello.py"},
        {**turn, "hook_event_name": "Stop", "stop_hook_active": False, "last_assistant_message": "Done."},
    ]


def gemini(cwd: Path, session: str = "gem-1") -> list[dict[str, Any]]:
    common = {
        "session_id": session,
        "transcript_path": str(cwd / "chat.json"),
        "cwd": str(cwd),
        "timestamp": "2026-11-18T10:00:00.000Z",
    }
    write = {"tool_name": "write_file", "tool_input": {"file_path": str(cwd / "hello.py"), "content": HELLO}}
    broken = {"tool_name": "run_shell_command", "tool_input": {"command": "false"}}
    failure = {"llmContent": "exit 1", "returnDisplay": "exit 1", "error": {"message": "exit 1"}}
    return [
        {**common, "hook_event_name": "SessionStart", "source": "startup"},
        {**common, "hook_event_name": "BeforeAgent", "prompt": "Write a function that says hello"},
        {**common, "hook_event_name": "BeforeTool", **write},
        {
            **common,
            "hook_event_name": "AfterTool",
            **write,
            "tool_response": {"llmContent": "ok", "returnDisplay": "ok"},
        },
        {**common, "hook_event_name": "BeforeTool", **broken},
        {**common, "hook_event_name": "AfterTool", **broken, "tool_response": failure},
        {
            **common,
            "hook_event_name": "AfterAgent",
            "prompt": "Write",
            "prompt_response": "Done",
            "stop_hook_active": False,
        },
        {**common, "hook_event_name": "SessionEnd", "reason": "exit"},
    ]


def cursor(cwd: Path, session: str = "conv-123") -> list[dict[str, Any]]:
    common = {
        "conversation_id": session,
        "generation_id": "gen-456",
        "workspace_roots": [str(cwd)],
        "model": "gpt-5",
        "cursor_version": "2.4.0",
        "user_email": None,
    }
    shell = {"command": "npm install express", "cwd": str(cwd)}
    query = {"tool_name": "database_query", "tool_input": '{"query": "SELECT 1"}', "url": "http://localhost:3000"}
    edits = [{"old_string": "", "new_string": HELLO}]
    return [
        {**common, "hook_event_name": "beforeSubmitPrompt", "prompt": "Write hello", "attachments": []},
        {**common, "hook_event_name": "beforeShellExecution", **shell},
        {**common, "hook_event_name": "afterShellExecution", **shell, "output": "added 1 package", "duration": 150},
        {**common, "hook_event_name": "beforeMCPExecution", **query},
        {**common, "hook_event_name": "afterMCPExecution", **query, "result_json": "[1]", "duration": 250},
        {**common, "hook_event_name": "afterFileEdit", "file_path": str(cwd / "hello.py"), "edits": edits},
        {**common, "hook_event_name": "stop", "status": "completed", "loop_count": 0},
    ]
