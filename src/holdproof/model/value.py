"""What all frozen values share."""

from dataclasses import asdict
from typing import Any


class Value:
    """A frozen value; every face prints it as its dict."""

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        """The value as every face prints it."""
        return asdict(self)  # type: ignore[call-overload,no-any-return]
