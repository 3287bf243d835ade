"""What all frozen values share."""

from dataclasses import asdict
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


class Value:
    """A frozen value; every client prints it as its dict."""

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the value as every client prints it: a dict of its fields, nested values included."""
        return asdict(self)  # type: ignore[call-overload,no-any-return]
