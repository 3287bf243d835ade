"""Threads: checkpoints of agent frameworks."""
