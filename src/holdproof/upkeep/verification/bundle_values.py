"""Values in bundles: the large parts of what flows recorded, which stand beside their records.

A record names such a part by its CID, which is its hash (runtime/recorded.py): as the record is proven, so are its
parts. They are the files `values/CID` of a bundle, each exactly the block that its name hashes.
"""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from holdproof.content import blocks
from holdproof.crypto import cid as cids
from holdproof.crypto import dagcbor_fast
from holdproof.crypto.cid import CID
from holdproof.crypto.mst import Get
from holdproof.errors import FormatError, InvalidInputError

MOST: Final = 10_000
"""How many parts a bundle has, at most."""
FOLDER: Final = "values/"
_NAME: Final = re.compile(r"b[a-z2-7]{58}")
_COLUMNS: Final = {
    "flow_calls": ("arguments", "answers"),
    "flow_steps": ("arguments", "result"),
    "flow_transitions": ("result",),
}
"""The columns that hold recorded values."""


def named(table: str, content: Mapping[str, Any]) -> set[str]:
    """Return the parts that a record names."""
    names: set[str] = set()
    for column in _COLUMNS.get(table, ()):
        text = content.get(column)
        if isinstance(text, str) and '"$cid"' in text:
            try:
                names |= _links(json.loads(text))
            except ValueError as error:
                raise FormatError(f"{table}: {column} is no JSON") from error
    return names


def closure(get: Get, names: Iterable[str]) -> dict[str, bytes]:
    """Return these parts and all that they lead to, by CID, each compared with its hash; ProofError for a lost one."""
    parts: dict[str, bytes] = {}
    waiting = [*names]
    while waiting:
        name = waiting.pop()
        if name in parts:
            continue
        if len(parts) == MOST:
            raise InvalidInputError(f"a bundle has at most {MOST} parts of values")
        parts[name] = blocks.require(get, cids.parse_argument(name))
        waiting += _links(dagcbor_fast.decode(parts[name]))
    return parts


def check_names(names: Any) -> list[str]:
    """Return the names of parts as bundle.json lists them; FormatError for anything else."""
    if not isinstance(names, list) or not 1 <= len(names) <= MOST:
        raise FormatError(f"bundle.json: not 1 to {MOST} values")
    if not all(isinstance(name, str) and _NAME.fullmatch(name) for name in names) or sorted({*names}) != names:
        raise FormatError("bundle.json: values are not named by their CIDs, in order")
    return names


def _links(value: Any) -> set[str]:
    """Return what a value leads to: the references of recorded values, and the links of Merkle lists."""
    links: set[str] = set()
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, CID):
            links.add(str(each))
        elif isinstance(each, dict):
            reference = each.get("$cid")
            links |= {reference} if isinstance(reference, str) else set()
            waiting += each.values()
        elif isinstance(each, list):
            waiting += each
    return links
