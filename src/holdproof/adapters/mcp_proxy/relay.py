"""What the proxy does with a message, whichever way it came: record it, decide about it, pass it on.

Rules:
- A message is recorded before it is passed on: what the server was asked is under the log before it can have acted.
- With a gate a tool call passes only when it is recorded and the policies allow it. Denied, it is answered with a
  result that is an error, which the model can read. Asked about, it waits for the answer of the escalation.
- A client that cancels a call that waits has it dropped, and its escalation cancelled: nothing reaches the server.
- Without a gate a store that is lost stops nothing; what was not recorded becomes an entry as soon as one can be made.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from holdproof.adapters import captured
from holdproof.adapters.capture_run import CaptureRun
from holdproof.errors import HoldproofError, PolicyDeniedError
from holdproof.kernel import autocreate
from holdproof.model.policies import PolicyDecision

Message = dict[str, Any]

CALL: Final = "tools/call"
_ACTION: Final = "tool.call"
_CANCELLED: Final = "notifications/cancelled"
_SERVER_ERROR: Final = -32_000
_LOOK_S: Final = 1.0
_PROGRESS_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class RelayOutcome:
    """What becomes of a client's message: passed on, or answered by the proxy, or neither."""

    forward: bool
    reply: Message | None = None


class _Waiting:
    """A call that waits for an answer."""

    def __init__(self) -> None:
        self.cancelled = threading.Event()


class Relay:
    """Records and decides about the messages of one connection."""

    def __init__(self, run: CaptureRun, *, gate: bool, closing: threading.Event | None = None) -> None:
        """Record into a run; once `closing` is set no call waits any longer."""
        self.run = run
        self.gate = gate
        self.closing = closing or threading.Event()
        self._lock = threading.Lock()
        self._methods: dict[str, Message] = {}
        self._waiting: dict[str, _Waiting] = {}

    def from_client(self, message: Message, send: Callable[[Message], None]) -> RelayOutcome:
        """Record and decide about a message to the server; waits where a person is asked.

        `send` gives the client a message while it waits: that its call is still alive.
        """
        key = _key(message)
        if message.get("method") == _CANCELLED:
            self._cancel(message)
        if "method" in message and key is not None:
            with self._lock:
                self._methods[key] = message
        is_call = message.get("method") == CALL and key is not None
        if is_call and self.gate:
            return self._decided(message, send)
        recorded = self._record("client", message)
        if self.gate and not recorded:
            return self._refused(message, "the store cannot record it")
        return RelayOutcome(True)

    def from_server(self, message: Message) -> None:
        """Record a message to the client."""
        self._record("server", message)

    def server_gone(self, reason: str, sent: Sequence[Message] | None = None) -> list[Message]:
        """Record that the server is gone, and return the answers of the requests that it leaves open.

        With `sent` of those messages only: over HTTP each exchange fails for itself.
        """
        with self._lock:
            keys = [*self._methods] if sent is None else [_key(each) for each in sent]
            requests = [self._methods.pop(key) for key in keys if key is not None and key in self._methods]
        unanswered = [{"id": each.get("id"), "method": each["method"]} for each in requests]
        facts = {"reason": reason, "unanswered": unanswered}
        self.run.record("mcp.server_gone", facts, severity="WARNING" if requests else "INFO")
        return [_error(each, f"the MCP server is gone: {reason}") for each in requests]

    # --- recording -----------------------------------------------------------------------------------------------

    def _record(self, sender: str, message: Message, decision: Mapping[str, Any] | None = None) -> bool:
        key = _key(message)
        request: Message | None = None
        if sender == "server" and key is not None and "method" not in message:
            with self._lock:
                request = self._methods.pop(key, None)
        kind = _kind(sender, message, request)
        detail: dict[str, Any] = {"from": sender, "message": message}
        if request is not None:
            detail["method"] = request["method"]
        tool = _tool(request if request is not None else message)
        if tool is not None:
            detail["tool"] = tool
        if decision is not None:
            detail["decision"] = dict(decision)
        bad = kind == "tool.failed" or (decision is not None and decision["decision"] == "deny")
        return self.run.record(kind, detail, severity="WARNING" if bad else "INFO", step_id=key or "")

    # --- deciding ------------------------------------------------------------------------------------------------

    def _decided(self, message: Message, send: Callable[[Message], None]) -> RelayOutcome:
        """Let the policies decide about a tool call."""
        store = self.run.store
        agent_id = self.run.agent_id
        ns = self.run.ns
        name, arguments = _call(message)
        try:
            store.write(lambda tx: autocreate.agent(tx, agent_id, ns=ns))
            decision = self._decide(name, arguments)
            facts = {"decision": decision.decision, "id": decision.id}
            if decision.escalation is not None and decision.decision == "ask":
                facts["escalation"] = decision.escalation
            if not self._record("client", message, facts):
                return self._refused(message, "the store cannot record it")
            if decision.decision == "ask":
                assert decision.escalation is not None, "what is asked has an escalation"
                return self._asked(message, decision.escalation, send)
        except PolicyDeniedError as error:
            self._record("client", message, {"decision": "deny", "reason": error.message})
            return self._refused(message, error.message)
        except HoldproofError as error:
            self._record("client", message, {"decision": "deny", "reason": error.message})
            return self._refused(message, f"the policies could not be asked: {error.message}")
        return RelayOutcome(True)

    def _decide(self, name: str, arguments: Mapping[str, Any]) -> PolicyDecision:
        """Let the policies decide about a call; its arguments are recorded as its events are."""
        run = self.run
        return run.store.policies.decide(run.agent_id, _ACTION, name, context=arguments, subject=run.subject, ns=run.ns)

    def _asked(self, message: Message, escalation: int, send: Callable[[Message], None]) -> RelayOutcome:
        """Wait for the answer of an escalation, then decide again."""
        key = _key(message) or ""
        waiting = _Waiting()
        with self._lock:
            self._waiting[key] = waiting
        try:
            if not self._answered(message, escalation, waiting, send):
                return self._dropped(key, escalation)
        finally:
            with self._lock:
                self._waiting.pop(key, None)
        name, arguments = _call(message)
        decision = self._decide(name, arguments)
        facts = {"decision": decision.decision, "id": decision.id, "escalation": escalation, "tool": name}
        if decision.decision != "allow" or not self.run.record("tool.approved", facts, step_id=key):
            return self._refused(message, "it is asked about once more, or could not be recorded: try again")
        return RelayOutcome(True)

    def _answered(self, message: Message, escalation: int, waiting: _Waiting, send: Callable[[Message], None]) -> bool:
        """Wait until an escalation is answered; False where the client cancelled, or is gone."""
        token = _progress_token(message)
        looks = 0
        while not waiting.cancelled.is_set() and not self.closing.is_set():
            answer = self.run.store.escalations.wait(escalation, timeout_s=_LOOK_S, ns=self.run.ns)
            if answer.status != "PENDING":
                return True
            looks += 1
            # Clients give up on a call from which they hear nothing.
            if token is not None and looks % int(_PROGRESS_S / _LOOK_S) == 0:
                text = f"waits for an answer to escalation {escalation}"
                params = {"progressToken": token, "progress": looks, "message": text}
                send({"jsonrpc": "2.0", "method": "notifications/progress", "params": params})
        return False

    def _dropped(self, key: str, escalation: int) -> RelayOutcome:
        comment = "the client cancelled the call, or went away"
        by = f"{self.run.agent_id} (client)"
        self.run.store.escalations.resolve(escalation, "cancel", by=by, comment=comment, ns=self.run.ns)
        self.run.record("tool.cancelled", {"escalation": escalation, "reason": comment}, step_id=key)
        with self._lock:
            self._methods.pop(key, None)
        return RelayOutcome(False)

    def _cancel(self, message: Message) -> None:
        params = message.get("params")
        target = params.get("requestId") if isinstance(params, Mapping) else None
        with self._lock:
            waiting = self._waiting.get(_text(target))
        if waiting is not None:
            waiting.cancelled.set()

    def _refused(self, message: Message, reason: str) -> RelayOutcome:
        """Answer a message in the server's place; a notification has no answer."""
        key = _key(message)
        if key is None or "method" not in message:
            return RelayOutcome(False)
        with self._lock:
            self._methods.pop(key, None)
        if message["method"] != CALL:
            return RelayOutcome(False, _error(message, f"Holdproof: {reason}"))
        content = [{"type": "text", "text": f"Holdproof did not let this call pass: {reason}"}]
        result = {"content": content, "isError": True}
        reply = {"jsonrpc": "2.0", "id": message["id"], "result": result}
        self.run.record("tool.refused", {"message": reply, "tool": _tool(message)}, step_id=key)
        return RelayOutcome(False, reply)


def _text(id: Any) -> str:
    """Return an id with its type: 1 and "1" are two requests."""
    return f"{type(id).__name__}:{id}"


def _key(message: Message) -> str | None:
    return _text(message["id"]) if message.get("id") is not None else None


def _call(message: Message) -> tuple[str, Mapping[str, Any]]:
    """Return name and arguments of a tool call, as policies are asked about them."""
    params = message.get("params")
    params = params if isinstance(params, Mapping) else {}
    arguments = params.get("arguments", {})
    by_name = arguments if isinstance(arguments, Mapping) else {"arguments": arguments}
    return str(params.get("name") or "unknown"), captured.plain(by_name)


def _tool(message: Message | None) -> str | None:
    if message is None or message.get("method") != CALL:
        return None
    return _call(message)[0]


def _kind(sender: str, message: Message, request: Message | None) -> str:
    """Return what a message is called in the log."""
    if "method" in message:
        if message["method"] == CALL and sender == "client":
            return "tool.requested"
        return "mcp.request" if message.get("id") is not None else "mcp.notification"
    failed = "error" in message
    if _tool(request) is not None:
        result = message.get("result")
        failed = failed or (isinstance(result, Mapping) and bool(result.get("isError")))
        return "tool.failed" if failed else "tool.finished"
    if "unparsed" in message:
        return "mcp.unparsed"
    return "mcp.error" if failed else "mcp.result"


def _progress_token(message: Message) -> Any:
    params = message.get("params")
    meta = params.get("_meta") if isinstance(params, Mapping) else None
    return meta.get("progressToken") if isinstance(meta, Mapping) else None


def _error(message: Message, text: str) -> Message:
    return {"jsonrpc": "2.0", "id": message.get("id"), "error": {"code": _SERVER_ERROR, "message": text}}
