"""CrewAI without what costs seconds and serves no test of ours: call `quieten` before anything of it is imported.

- Telemetry and traces would go over the network.
- Each flow opens a memory of its own, in LanceDB and in the user's folder: 366 validators are built at its import.
- `jsonschema` builds a grammar of IRIs at import if it can, to check a format that nothing here uses.
"""

import importlib
import os
import sys
import warnings
from typing import Final

QUIET: Final = {"CREWAI_DISABLE_TELEMETRY": "true", "CREWAI_TRACING_ENABLED": "false", "OTEL_SDK_DISABLED": "true"}


def quieten() -> None:
    """Import CrewAI that way; the memories of its flows have no storage, and any use of one is an error."""
    os.environ.update(QUIET)
    sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        factory = importlib.import_module("crewai.memory.storage.factory")
    storage = object()
    factory.set_memory_storage_factory(lambda spec: storage)
