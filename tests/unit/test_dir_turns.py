"""What a thread was told by a storage of DIR."""

from holdproof.adapters.dir import turns
from holdproof.adapters.dir.turns import Seen


def test_what_is_told_is_believed_once() -> None:
    seen: Seen[int] = Seen()
    assert seen.tell("a", value=1) == 1
    assert (seen.take("a"), seen.take("a")) == (1, None)


def test_looks_that_no_write_follows_do_not_pile_up() -> None:
    seen: Seen[int] = Seen()
    seen.tell("first", value=0)
    for number in range(turns._MOST):
        seen.tell("first", value=-1)
        seen.tell(str(number), value=number)
    assert (seen.take("0"), seen.take("first"), seen.take("1")) == (None, -1, 1)
