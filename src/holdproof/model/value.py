"""What all frozen values share."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Final

# Columns keep the names of the schemas they come from (DIR's dfid, the Green Agent's battle_id); values have ours.
_ATTRIBUTES: Final = {
    "dfid": "flow_id",
    "root_dfid": "root_flow_id",
    "dfid_parent": "parent_flow_id",
    "battle_id": "evaluation_id",
}


def by_attribute(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row keyed by column as the keyword arguments of its value."""
    return {_ATTRIBUTES.get(column, column): value for column, value in row.items()}


class Value:
    """A frozen value; every face prints it as its dict."""

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        """The value as every face prints it."""
        return asdict(self)  # type: ignore[call-overload,no-any-return]
