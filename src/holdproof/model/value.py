"""What all frozen values share."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

# Columns keep the names of the schemas they come from (DIR's dfid, the Green Agent's battle_id); values have ours.
_COLUMNS: Final = {
    "flow_id": "dfid",
    "root_flow_id": "root_dfid",
    "parent_flow_id": "dfid_parent",
    "evaluation_id": "battle_id",
}
_ATTRIBUTES: Final = {column: attribute for attribute, column in _COLUMNS.items()}


def column_of(attribute: str) -> str:
    """Return the column that an attribute of a value is stored in."""
    return _COLUMNS.get(attribute, attribute)


def by_attribute(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row keyed by column as the keyword arguments of its value."""
    return {_ATTRIBUTES.get(column, column): value for column, value in row.items()}


class Value:
    """A frozen value; every client prints it as its dict."""

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the value as every client prints it: a dict of its fields, nested values included."""
        return asdict(self)  # type: ignore[call-overload,no-any-return]
