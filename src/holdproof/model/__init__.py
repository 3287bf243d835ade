"""Frozen values, enums and legal transitions; no I/O."""
