"""Verbs keep the exact types of their operations: mypy checks the `assert_type` lines, pytest the rest."""

import asyncio
import inspect
from contextlib import closing
from typing import assert_type

import pytest

from holdproof.db import MEMORY, Give, Refused, Stream, Tx, Work, Write, ask, call, open_database
from holdproof.errors import ConflictError
from holdproof.executors import AsyncExecutor, Executor, Reads, Resource, Runs, StreamsWith, SyncExecutor, Writes


def double(tx: Tx, number: int, *, times: int = 1) -> int:
    """A number, doubled."""
    del tx
    return number << times


def half(tx: Tx, number: int) -> float:
    """A number, halved."""
    del tx
    return number / 2


def guarded(tx: Tx, allowed: bool) -> str | Refused:
    """An operation that may record and refuse."""
    del tx
    return "done" if allowed else Refused(ConflictError("not allowed"))


def spanning(label: str) -> Work[bytes]:
    """Work that spans transactions."""
    yield from ask(Write(lambda tx: double(tx, 1)))
    return label.encode()


class Numbers(Resource[Executor]):
    double = Writes(double)
    half = Reads(half)
    guarded = Writes(guarded)
    spanning = Runs(spanning)


def test_async_verbs_answer_with_the_type_of_their_operation() -> None:
    async def play(numbers: Numbers[AsyncExecutor]) -> None:
        assert assert_type(await numbers.double(3, times=2), int) == 12
        assert assert_type(await numbers.half(3), float) == 1.5
        assert assert_type(await numbers.guarded(True), str) == "done"
        assert assert_type(await numbers.spanning("x"), bytes) == b"x"
        with pytest.raises(ConflictError):
            await numbers.guarded(False)

    with closing(open_database(MEMORY)) as database:
        asyncio.run(play(Numbers(AsyncExecutor(database))))


def test_sync_verbs_answer_with_the_type_of_their_operation() -> None:
    with closing(open_database(MEMORY)) as database:
        numbers = Numbers(SyncExecutor(database))
        assert assert_type(numbers.double(3, times=2), int) == 12
        assert assert_type(numbers.half(3), float) == 1.5
        assert assert_type(numbers.guarded(True), str) == "done"
        assert assert_type(numbers.spanning("x"), bytes) == b"x"


def test_the_signature_of_a_verb_has_no_transaction() -> None:
    with closing(open_database(MEMORY)) as database:
        verb = Numbers(SyncExecutor(database)).double
        assert str(inspect.signature(verb)) == "(number: int, *, times: int = 1) -> int"


def test_wrong_arguments_fail_like_a_call_of_the_operation() -> None:
    with closing(open_database(MEMORY)) as database:
        numbers = Numbers(SyncExecutor(database))
        with pytest.raises(TypeError, match="unexpected keyword"):
            numbers.double(1, tims=2)  # type: ignore[call-arg]
        with pytest.raises(TypeError, match="missing"):
            numbers.double()  # type: ignore[call-arg]


# --- streams ---------------------------------------------------------------------------------------------------------


class Bowl:
    """What the noun below holds; says when it was put away."""

    closed = False


def pieces(bowl: Bowl, count: int, *, fail_at: int = -1) -> Stream[str]:
    """Numbers, one after the other."""
    try:
        for number in range(count):
            if number == fail_at:
                raise ConflictError("enough")
            doubled = yield from ask(Write(lambda tx: double(tx, number)))  # noqa: B023
            yield Give(str((yield from call(int, doubled))))
    finally:
        bowl.closed = True


class Bowls(Resource[Executor]):
    pieces = StreamsWith(pieces)

    def __init__(self, face: Executor) -> None:
        super().__init__(face)
        self._bowl = Bowl()

    @property
    def held(self) -> Bowl:
        return self._bowl


def test_a_stream_is_an_iterator_in_the_sync_face() -> None:
    with closing(open_database(MEMORY)) as database:
        bowls = Bowls(SyncExecutor(database))
        assert assert_type(list(bowls.pieces(3)), list[str]) == ["0", "2", "4"]
        with pytest.raises(ConflictError):
            list(bowls.pieces(3, fail_at=1))
        assert str(inspect.signature(bowls.pieces)).startswith("(count: int, *, fail_at: int = -1)")


def test_a_stream_is_an_async_iterator_in_the_async_face() -> None:
    async def play(bowls: Bowls[AsyncExecutor]) -> None:
        assert assert_type([piece async for piece in bowls.pieces(3)], list[str]) == ["0", "2", "4"]
        with pytest.raises(ConflictError):
            [piece async for piece in bowls.pieces(3, fail_at=1)]

    with closing(open_database(MEMORY)) as database:
        asyncio.run(play(Bowls(AsyncExecutor(database))))


def test_a_stream_that_is_left_early_is_put_away() -> None:
    with closing(open_database(MEMORY)) as database:
        bowls = Bowls(SyncExecutor(database))
        stream = bowls.pieces(100)
        assert next(stream) == "0"
        assert not bowls.held.closed
        stream.close()  # type: ignore[attr-defined]
        assert bowls.held.closed
