"""`holdproof.instrument()`: calls to models, recorded without a change to the program that makes them.

The SDKs of OpenAI, Anthropic, Google and Ollama, and LiteLLM, all speak through httpx or httpx2. So `instrument` wraps
the one place where those send a request, sync and async, and recognises calls to models by their address: no SDK is
patched, and a new version of one changes nothing.

Rules:
- A call is recorded before it is sent, and its answer when it was read: a stream as it ends, or is left.
- Only bodies are recorded: never headers, keys, or what stands behind `?` in an address.
- Nothing that goes wrong with recording changes what the program sees; it becomes a `recorder.gap`.
- Only one recording is active in a process, and ending it puts httpx back as it was.
"""

import atexit
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from holdproof import sync
from holdproof.adapters.capture_run import CaptureRun
from holdproof.adapters.instrument.seam import Seam
from holdproof.adapters.shared_store import Where, embedded, located
from holdproof.errors import ConflictError
from holdproof.kernel import MAIN

__all__ = ["Recording", "instrument"]

_ACTIVE: list["Recording"] = []
_LOCK = threading.Lock()


class Recording:
    """Calls to models that are being recorded; `close` it, or use it as a context manager."""

    def __init__(self, store: sync.Holdproof, run: CaptureRun, *, owned: bool, tracer_provider: Any = None) -> None:
        """Record into a store; an `owned` one is closed at the end."""
        self._store = store
        self._run = run
        self._owned = owned
        self._seam = Seam(run, tracer_provider)

    @property
    def flow_id(self) -> str:
        """The flow that holds what is recorded."""
        return self._run.flow_id

    def _begin(self, detail: Mapping[str, Any]) -> None:
        self._run.start(detail)
        self._seam.install()

    def close(self, reason: str = "the program ended it") -> None:
        """End the recording, and say so in the log; may be called twice."""
        with _LOCK:
            if self not in _ACTIVE:
                return
            _ACTIVE.remove(self)
        self._seam.remove()
        self._run.stop(reason)
        if self._owned:
            self._store.close()

    def __enter__(self) -> "Recording":
        return self

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        self.close("the program ended it" if kind is None else f"the program failed: {kind.__name__}")


def instrument(
    where: Where = None,
    *,
    agent_id: str = "script",
    subject: str | None = None,
    ns: str = MAIN,
    tracer_provider: Any = None,
) -> Recording:
    """Record every call that this process makes to a model, until the process ends or the recording is closed.

    `where` is a folder, a URL or an open store; without it the store that the environment names. `agent_id` is the
    agent that the calls are recorded for. `subject` (or HOLDPROOF_SUBJECT) names the person whose calls these are: they
    are sealed, and go when that person is erased. Each call is a span with `gen_ai.*` attributes too, of
    `tracer_provider` or of the global one, where OpenTelemetry is installed. Raises ConflictError while another
    recording is active.
    """
    with _LOCK:
        if _ACTIVE:
            raise ConflictError(
                "this process is recorded already: close that recording first", flow_id=_ACTIVE[0].flow_id
            )
        owned = isinstance(where, str | Path | None)
        store = sync.open(*located(where)) if isinstance(where, str | Path | None) else _sync(where)
        person = subject or os.environ.get("HOLDPROOF_SUBJECT") or None
        run = CaptureRun(store, agent_id=agent_id, kind="instrument", subject=person, ns=ns)
        recording = Recording(store, run, owned=owned, tracer_provider=tracer_provider)
        try:
            recording._begin({"seam": "httpx"})
        except BaseException:
            if owned:
                store.close()
            raise
        _ACTIVE.append(recording)
    atexit.register(recording.close, "the process ended")
    return recording


def _sync(store: Any) -> sync.Holdproof:
    opened = embedded(store)
    return opened if isinstance(opened, sync.Holdproof) else sync.Holdproof(opened.core, opened.ns)
