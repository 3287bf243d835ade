"""`python -m holdproof`, and the program `holdproof`."""

import sys
from importlib import import_module

# The agents whose hooks may call this program; the command line has the same names, and knows what they mean.
_HOOKED = ("claude-code", "codex", "gemini", "cursor")


def main() -> None:
    """Run the command line; a hook's event takes a way of its own that imports next to nothing.

    A coding agent waits for its hook at every tool call, and the command line costs ten times what recording does.
    """
    words = sys.argv[1:]
    if len(words) > 1 and words[0] == "hook" and words[1] in _HOOKED and not {"-h", "--help"} & set(words):
        sys.exit(import_module("holdproof.adapters.hooks.client").main(words[1:]))
    import_module("holdproof.cli.app").main()


if __name__ == "__main__":
    main()
