"""One page of a listing, the same for every resource."""

from dataclasses import dataclass
from typing import Generic, TypeVar

from holdproof.model.value import Value

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Page(Value, Generic[T]):
    """Some items, and the cursor of the page that follows; None on the last page."""

    items: list[T]
    next_cursor: str | None = None
