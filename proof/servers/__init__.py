"""Faults of servers and places."""
