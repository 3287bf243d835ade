"""Durable execution under kills, replay and fork: `python -m proof kills`, `replays` and `forks`."""
