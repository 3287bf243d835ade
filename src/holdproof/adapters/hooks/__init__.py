"""Hooks of coding agents (Claude Code, Codex, Gemini CLI, Cursor): what they do, recorded under the log.

A hook is a new process for every event, so its part is small and imports next to nothing (client.py). It hands the
event to a recorder, a process of its own that has the store open (service.py, recorder.py), and puts it into a spool
where there is none.
"""
