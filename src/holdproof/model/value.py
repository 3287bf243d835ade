"""What all frozen values share."""

from collections.abc import Mapping
from dataclasses import asdict, fields, is_dataclass
from enum import Enum
from functools import lru_cache
from os import PathLike
from typing import Any, Final

# Columns keep the names of the schemas they come from (DIR's dfid, the Green Agent's battle_id); values have ours.
_COLUMNS: Final = {
    "flow_id": "dfid",
    "root_flow_id": "root_dfid",
    "parent_flow_id": "dfid_parent",
    "evaluation_id": "battle_id",
}


def column_of(attribute: str) -> str:
    """Return the column that an attribute of a value is stored in."""
    return _COLUMNS.get(attribute, attribute)


# What is written as the text, number or mapping that it is, also where it was declared as a dataclass.
_WRITTEN_AS_IS: Final = (str, bytes, bytearray, int, float, Enum, Mapping, PathLike)


@lru_cache(maxsize=1024)
def field_names(kind: type) -> tuple[str, ...] | None:
    """Return the names of a dataclass's fields; None for a type that is none, or is more than that."""
    if not is_dataclass(kind) or issubclass(kind, _WRITTEN_AS_IS):
        return None
    return tuple(each.name for each in fields(kind))


class Value:
    """A frozen value; every client prints it as its dict."""

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the value as every client prints it: a dict of its fields, nested values included."""
        return asdict(self)  # type: ignore[call-overload,no-any-return]
