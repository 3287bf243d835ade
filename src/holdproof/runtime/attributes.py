"""Attributes: what flows are found by, such as `{"customer": "c-17"}`.

Rules:
- They are texts, given when the flow is opened, and never change.
- They stand in the row of the flow, under its entry in the log; `flow_attributes` repeats them for searching, and
  `verify` compares the two (checks.py).
- They are stored in the clear, so that they can be searched, and cannot be erased: a flow of a subject takes none.
"""

from collections.abc import Mapping
from typing import Final

from holdproof import validation
from holdproof.crypto import canonical
from holdproof.db import Tx, sql
from holdproof.errors import InvalidInputError

MOST: Final = 32
"""How many attributes a flow has, at most."""


def text(attributes: Mapping[str, str] | None, *, subject: str | None) -> str | None:
    """Return attributes as the row of their flow holds them; None where there are none."""
    if not attributes:
        return None
    if subject is not None:
        raise InvalidInputError("attributes are not encrypted: a flow with a subject takes none", field="attributes")
    if len(attributes) > MOST:
        raise InvalidInputError(f"a flow has at most {MOST} attributes", field="attributes")
    return canonical.dump_text(checked(attributes))


def checked(attributes: Mapping[str, str]) -> dict[str, str]:
    """Return attributes whose names and values can be stored."""
    return {validation.name("attributes", key): validation.name("attributes", attributes[key]) for key in attributes}


_ADD = sql("INSERT INTO flow_attributes (dfid, ns, key, value) VALUES (:dfid, :ns, :key, :value)")


def add(tx: Tx, flow_id: str, attributes: Mapping[str, str], *, ns: str) -> None:
    """Write the attributes of a new flow for searching."""
    for key, value in attributes.items():
        tx.execute(_ADD, dfid=flow_id, ns=ns, key=key, value=value, expect=1)


_GET = sql("SELECT key, value FROM flow_attributes WHERE dfid = :dfid AND ns = :ns ORDER BY key")


def find(tx: Tx, flow_id: str, *, ns: str) -> dict[str, str]:
    """Return the attributes of a flow; none for one that is not there."""
    return dict(tx.all(_GET, dfid=flow_id, ns=ns))
