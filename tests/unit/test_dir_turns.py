"""What a thread was told by a storage of DIR."""

from holdproof.adapters.dir import turns
from holdproof.adapters.dir.turns import LastRead


def test_what_is_told_is_believed_once() -> None:
    last_read: LastRead[int] = LastRead()
    assert last_read.record("a", value=1) == 1
    assert (last_read.take("a"), last_read.take("a")) == (1, None)


def test_looks_that_no_write_follows_do_not_pile_up() -> None:
    last_read: LastRead[int] = LastRead()
    last_read.record("first", value=0)
    for number in range(turns._MOST):
        last_read.record("first", value=-1)
        last_read.record(str(number), value=number)
    assert (last_read.take("0"), last_read.take("first"), last_read.take("1")) == (None, -1, 1)
