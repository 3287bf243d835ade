"""The input of `evaluations.submit`: checked, embedded and sealed before anything is signed.

Rules:
- Bad input is a typed error before anything is written: a score that is no finite number, an evaluation id that is no
  file name, a result without JSON, a vector of another length or with something else than finite numbers.
- The intent vector comes from the caller or the configured embedder; without either it is empty, never invented.
- The result of a labelled subject is sealed before it is hashed; breakdown and vector are inside the seal.
"""

import base64
import json
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from holdproof import validation
from holdproof.content import encryption
from holdproof.crypto import dbom
from holdproof.crypto.canonical import sha256_hex
from holdproof.crypto.dbom import Fields
from holdproof.db import Call, Tx, Work, ask
from holdproof.errors import InvalidInputError
from holdproof.evidence import dbom_files
from holdproof.model.times import to_text
from holdproof.store.context import Context

SEALED: Final = "sealed:"
_TASKS: Final = ("intent", "task", "task_description", "description")
_MOST_NUMBERS: Final = 65_536
# The spaces and the order are part of the format: what is hashed is this text.
_RAW_JSON: Final = partial(json.dumps, sort_keys=True, allow_nan=False)


@dataclass(frozen=True, slots=True)
class Draft:
    """An evaluation that passed every check and is not signed yet."""

    evaluation_id: str
    ns: str
    score: float
    breakdown: str | None
    raw_result: str
    timestamp: str
    vector: tuple[float, ...]
    subject: str | None = None

    @property
    def fields(self) -> Fields:
        """Return the fields that the judge signs."""
        return Fields(self.evaluation_id, sha256_hex(self.raw_result.encode()), self.vector, self.score, self.timestamp)


def draft(
    context: Context,
    result: Any,
    *,
    evaluation_id: str,
    score: float,
    breakdown: Any,
    intent: Any,
    timestamp: str | None,
    ns: str,
) -> Work[Draft]:
    """Check the input of a submit, and embed the task unless the caller gave a vector."""
    dbom_files.check_name(evaluation_id, "evaluation_id")
    dbom_files.check_name(ns, "ns")
    number = validation.number("score", score)
    text = _text_of(breakdown)
    raw = validation.to_json("result", result, _RAW_JSON)
    moment = to_text(context.database.clock()) if timestamp is None else timestamp
    vector = to_vector((yield from _embed(context, result, intent)), context.dimensions)
    checked = Draft(evaluation_id, ns, number, text, raw, moment, vector)
    dbom.check(checked.fields)
    return checked


def _text_of(breakdown: Any) -> str | None:
    """Return the breakdown as text: a text as it is, anything else as JSON."""
    if breakdown is None:
        return None
    text = breakdown if isinstance(breakdown, str) else validation.to_json("breakdown", breakdown, _RAW_JSON)
    return validation.words("breakdown", text, most=sys.maxsize)


def _embed(context: Context, result: Any, intent: Any) -> Work[Any]:
    """Return the vector of the caller, or the embedder's for the text of the task; empty where there is neither."""
    text = intent if isinstance(intent, str) else task_of(result) if intent is None else None
    embedder = context.embedder
    if text is not None and embedder is not None:
        return (yield from ask(Call(partial(embedder, text))))
    if isinstance(intent, str):
        raise InvalidInputError("intent is a text, but no embedder is configured: open(embedder=…)", field="intent")
    return () if intent is None else intent


def task_of(result: Any) -> str | None:
    """Return the text of the task inside a result, under the names that a Green Agent uses; None without one."""
    texts = (result.get(name) for name in _TASKS) if isinstance(result, dict) else ()
    return next((text for text in texts if isinstance(text, str) and text.strip()), None)


def to_vector(vector: Any, dimensions: int | None = None) -> tuple[float, ...]:
    """Return an intent vector as finite floats; InvalidInputError for another length than the configured one."""
    tolist: Callable[[], Any] | None = getattr(vector, "tolist", None)  # arrays of numpy and torch
    try:
        numbers = tuple(tolist() if tolist else vector)
    except TypeError as error:
        raise InvalidInputError("intent is not a list of numbers", field="intent") from error
    if len(numbers) > _MOST_NUMBERS or (dimensions is not None and numbers and len(numbers) != dimensions):
        expected = f"{dimensions} numbers" if dimensions is not None else f"{_MOST_NUMBERS} numbers at most"
        raise InvalidInputError(f"intent has {len(numbers)} numbers, not {expected}", field="intent", dim=len(numbers))
    # The common case, all floats, is checked without a Python call per number.
    if {*map(type, numbers)} - {float}:
        numbers = tuple(validation.number("intent", number) for number in numbers)
    elif not all(map(math.isfinite, numbers)):
        raise InvalidInputError("intent holds NaN or infinity", field="intent")
    return numbers


def seal(tx: Tx, draft: Draft, subject: str) -> Draft:
    """Return the same draft with everything about its subject inside an encrypted envelope."""
    handle = encryption.label(tx, subject, ns=draft.ns)
    inside = {"breakdown": draft.breakdown, "result": json.loads(draft.raw_result), "v_intent": draft.vector}
    envelope = encryption.seal_for(tx, handle, validation.to_json("result", inside, _RAW_JSON).encode())
    text = SEALED + base64.b64encode(envelope).decode()
    return Draft(draft.evaluation_id, draft.ns, draft.score, None, text, draft.timestamp, (), handle)


def unseal(tx: Tx, text: str) -> Any:
    """Decrypt a sealed result: `breakdown`, `result` and `v_intent`; ErasedError once its key is destroyed."""
    return json.loads(encryption.open(tx, base64.b64decode(text.removeprefix(SEALED))))
