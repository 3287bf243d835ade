"""Names of namespaces that have a meaning of their own."""

from typing import Final

MAIN: Final = "main"
"""The namespace of whoever names none."""
EVERY: Final = "*"
"""Every namespace, and the duties of the whole store."""
