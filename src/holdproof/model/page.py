"""One page of a listing, the same for every resource."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from holdproof.model.value import Value

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Page(Value, Generic[T]):
    """Some items, and the cursor of the page that follows; None on the last page."""

    items: list[T]
    next_cursor: str | None = None

    def __iter__(self) -> Iterator[T]:
        """Iterate over the items of this page, not over those of the pages that follow."""
        return iter(self.items)

    def __len__(self) -> int:
        """Return how many items are on this page, not how many there are."""
        return len(self.items)

    def __getitem__(self, index: int) -> T:
        """Return one item of this page by its position."""
        return self.items[index]

    def to_dict(self) -> dict[str, Any]:
        """Return the page as JSON shows it; items print themselves, since some hold bytes or links."""
        items = [item.to_dict() if isinstance(item, Value) else item for item in self.items]
        return {"items": items, "next_cursor": self.next_cursor}
