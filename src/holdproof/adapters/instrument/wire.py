"""What model services are sent and answer, over HTTP: OpenAI, Anthropic, Google, Ollama, and services like theirs.

Pure functions of addresses and JSON bodies. A service is known by the path of its address, so a gateway, a server on
this machine or another company's compatible service is recognised too.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

Json = Mapping[str, Any]

# The first that fits counts: /v1/chat/completions ends with the path of plain completions too.
_PATHS: Final = (
    ("/chat/completions", "openai", "chat"),
    ("/completions", "openai", "text_completion"),
    ("/responses", "openai", "responses"),
    ("/embeddings", "openai", "embeddings"),
    ("/v1/messages", "anthropic", "chat"),
    (":generateContent", "gcp.gemini", "generate_content"),
    (":streamGenerateContent", "gcp.gemini", "generate_content"),
    (":embedContent", "gcp.gemini", "embeddings"),
    ("/api/chat", "ollama", "chat"),
    ("/api/generate", "ollama", "text_completion"),
    ("/api/embed", "ollama", "embeddings"),
)
_CONTENT: Final = ("messages", "input", "contents", "prompt")
_SYSTEM: Final = ("system", "instructions", "systemInstruction", "system_instruction")
_LAST: Final = ("[DONE]", '{"type":"message_stop"', '{"type": "message_stop"')
_APART: Final = frozenset({"model", "tools", *_CONTENT, *_SYSTEM})


@dataclass(frozen=True, slots=True)
class CapturedCall:
    """A call to a model: which, with which parameters, on which messages, and the tools it may ask for."""

    provider: str
    operation: str
    model: str
    messages: list[Any]
    system: Any
    tools: Any
    parameters: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """What a model answered; `complete` is False for a stream that nobody read to its end."""

    model: str | None
    output: Any
    input_tokens: int | None
    output_tokens: int | None
    finish: list[str] = field(default_factory=list)
    complete: bool = True


def recognise(method: str, path: str, body: bytes) -> CapturedCall | None:
    """Return the call that a request is; None for every other request."""
    if method != "POST":
        return None
    match = next(((provider, operation) for end, provider, operation in _PATHS if path.endswith(end)), None)
    if match is None:
        return None
    request = _object(body)
    if request is None:
        return None
    provider, operation = match
    # Google names the model in the address.
    named = path.rpartition("/")[2].partition(":")[0] if provider == "gcp.gemini" else ""
    content: Any = next((request[name] for name in _CONTENT if name in request), [])
    return CapturedCall(
        provider,
        operation,
        str(request.get("model") or named or "unknown"),
        list(content) if isinstance(content, list) else [content],
        next((request[name] for name in _SYSTEM if name in request), None),
        request.get("tools"),
        {name: value for name, value in request.items() if name not in _APART},
    )


def understand(call: CapturedCall, content_type: str, text: str, *, complete: bool) -> ModelAnswer:
    """Return what a body of an answer says, whole or as a stream of events."""
    if content_type.startswith("text/event-stream"):
        pieces = list(_events(text))
        # SDKs stop reading at the last event, before the connection ends.
        complete = complete or any(f"data: {mark}" in text for mark in _LAST)
    elif content_type.startswith("application/x-ndjson"):
        pieces = list(_lines(text.splitlines()))
    else:
        whole = _object(text.encode("utf-8", "replace"))
        if whole is None:
            return ModelAnswer(None, text, None, None, complete=complete)
        return _read(call, whole, complete)
    return _joined(call, pieces, complete)


def _object(body: bytes) -> Json | None:
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _events(text: str) -> Iterator[Json]:
    """Yield the JSON of server-sent events."""
    return _lines(line[5:] for line in text.splitlines() if line.startswith("data:"))


def _lines(lines: Any) -> Iterator[Json]:
    for line in lines:
        value = _object(line.encode("utf-8", "replace"))
        if value is not None:
            yield value


def _read(call: CapturedCall, body: Json, complete: bool) -> ModelAnswer:
    """Return what one whole answer says."""
    usage = _usage(body)
    output, finish = _output(call, body)
    model = body.get("model") or body.get("modelVersion")
    return ModelAnswer(None if model is None else str(model), output, *usage, finish, complete)


def _usage(body: Json) -> tuple[int | None, int | None]:
    """Return the tokens in and out, in whichever words."""
    usage = body.get("usage") or body.get("usageMetadata") or body
    if not isinstance(usage, Mapping):
        return None, None
    ways_in = ("prompt_tokens", "input_tokens", "promptTokenCount", "prompt_eval_count")
    ways_out = ("completion_tokens", "output_tokens", "candidatesTokenCount", "eval_count")
    counts = [
        next((usage[name] for name in names if isinstance(usage.get(name), int)), None) for names in (ways_in, ways_out)
    ]
    return counts[0], counts[1]


def _output(call: CapturedCall, body: Json) -> tuple[Any, list[str]]:
    """Return what a model wrote, and why it stopped."""
    if call.operation == "embeddings":
        # Thousands of numbers that nobody reads; how many vectors there are says enough.
        vectors = body.get("data") or body.get("embeddings") or [body.get("embedding")]
        return {"vectors": len(vectors) if isinstance(vectors, list) else 0}, []
    if isinstance(body.get("choices"), list):
        choices = [each for each in body["choices"] if isinstance(each, Mapping)]
        return [each.get("message", each.get("text")) for each in choices], _words(choices, "finish_reason")
    if isinstance(body.get("candidates"), list):
        candidates = [each for each in body["candidates"] if isinstance(each, Mapping)]
        return [each.get("content") for each in candidates], _words(candidates, "finishReason")
    for name in ("content", "output", "message", "response", "error"):
        if name in body:
            reason = body.get("stop_reason") or body.get("done_reason") or body.get("status")
            return body[name], [str(reason)] if reason else []
    return dict(body), []


def _words(entries: Sequence[Json], name: str) -> list[str]:
    return [str(each[name]) for each in entries if each.get(name)]


# --- streams -----------------------------------------------------------------------------------------------------


def _joined(call: CapturedCall, pieces: list[Json], complete: bool) -> ModelAnswer:
    """Return what a stream of pieces says together."""
    # OpenAI's responses end with the whole answer.
    for piece in reversed(pieces):
        if isinstance(piece.get("response"), Mapping):
            return _read(call, piece["response"], complete)
    if call.provider == "anthropic":
        return _anthropic(pieces, complete)
    model: str | None = None
    usage: tuple[int | None, int | None] = (None, None)
    finish: list[str] = []
    texts: dict[int, dict[str, Any]] = {}
    for piece in pieces:
        model = str(piece.get("model") or piece.get("modelVersion") or model or "") or None
        counts = _usage(piece)
        usage = (usage[0] if counts[0] is None else counts[0], usage[1] if counts[1] is None else counts[1])
        for index, delta, reason in _deltas(piece):
            _merge(texts.setdefault(index, {}), delta)
            finish += [reason] if reason else []
    return ModelAnswer(model, [texts[index] for index in sorted(texts)], *usage, finish, complete)


def _deltas(piece: Json) -> Iterator[tuple[int, Json, str | None]]:
    """Yield what a piece adds: to which answer, what, and why that ends."""
    for name, delta_name, reason_name in (
        ("choices", "delta", "finish_reason"),
        ("candidates", "content", "finishReason"),
    ):
        for each in piece.get(name) or ():
            delta = each.get(delta_name)
            # Plain completions stream texts without a delta around them.
            text = {"text": each["text"]} if isinstance(each.get("text"), str) else {}
            yield int(each.get("index") or 0), delta if isinstance(delta, Mapping) else text, each.get(reason_name)
    for name in ("message", "response"):
        if name in piece:
            delta = piece[name] if isinstance(piece[name], Mapping) else {"text": piece[name]}
            yield 0, delta, piece.get("done_reason")


def _merge(whole: dict[str, Any], delta: Json) -> None:
    """Add a piece to what came before: texts and lists grow, everything else is replaced."""
    for name, value in delta.items():
        before = whole.get(name)
        if value is None:
            whole.setdefault(name, None)
        elif isinstance(value, str) and isinstance(before, str) and name not in {"role", "type", "id"}:
            whole[name] = before + value
        elif isinstance(value, Mapping) and isinstance(before, dict):
            _merge(before, value)
        elif isinstance(value, list):
            whole[name] = before if isinstance(before, list) else []
            _merge_list(whole[name], value)
        else:
            whole[name] = dict(value) if isinstance(value, Mapping) else value


def _merge_list(whole: list[Any], pieces: list[Any]) -> None:
    """Add elements to a list; one with an index belongs to the element that has it."""
    for piece in pieces:
        index = piece.get("index") if isinstance(piece, Mapping) else None
        same = next((each for each in whole if isinstance(each, dict) and each.get("index") == index), None)
        if index is None or same is None:
            whole.append(dict(piece) if isinstance(piece, Mapping) else piece)
        else:
            _merge(same, piece)


def _anthropic(pieces: list[Json], complete: bool) -> ModelAnswer:
    """Return what the events of a message of Anthropic say together."""
    model: str | None = None
    tokens: dict[str, int | None] = {"input": None, "output": None}
    finish: list[str] = []
    blocks: dict[int, dict[str, Any]] = {}
    for piece in pieces:
        message = piece.get("message")
        if isinstance(message, Mapping):
            model = str(message.get("model") or "") or None
        count_in, count_out = _usage(message if isinstance(message, Mapping) else piece)
        tokens = {
            "input": tokens["input"] if count_in is None else count_in,
            "output": tokens["output"] if count_out is None else count_out,
        }
        index = int(piece.get("index") or 0)
        if isinstance(piece.get("content_block"), Mapping):
            blocks[index] = dict(piece["content_block"])
        delta = piece.get("delta")
        if isinstance(delta, Mapping):
            finish += [str(delta["stop_reason"])] if delta.get("stop_reason") else []
            texts = {name: value for name, value in delta.items() if name != "type" and isinstance(value, str)}
            if index in blocks and piece.get("type") == "content_block_delta":
                _merge(blocks[index], texts)
    return ModelAnswer(
        model, [blocks[at] for at in sorted(blocks)], tokens["input"], tokens["output"], finish, complete
    )
