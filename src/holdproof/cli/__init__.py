"""The command line: parses, calls one operation, prints. Errors are mapped once, in `app.Root`."""

from holdproof.cli.app import main

__all__ = ["main"]
