"""Verbs keep the exact types of their operations: mypy checks the `assert_type` lines, pytest the rest."""

import asyncio
import inspect
from contextlib import closing
from typing import assert_type

import pytest

from holdfast.db import MEMORY, Refused, Tx, Work, Write, ask, open_database
from holdfast.errors import ConflictError
from holdfast.faces import AsyncFace, Face, Noun, Reads, Runs, SyncFace, Writes


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


class Numbers(Noun[Face]):
    double = Writes(double)
    half = Reads(half)
    guarded = Writes(guarded)
    spanning = Runs(spanning)


def test_async_verbs_answer_with_the_type_of_their_operation() -> None:
    async def play(numbers: Numbers[AsyncFace]) -> None:
        assert assert_type(await numbers.double(3, times=2), int) == 12
        assert assert_type(await numbers.half(3), float) == 1.5
        assert assert_type(await numbers.guarded(True), str) == "done"
        assert assert_type(await numbers.spanning("x"), bytes) == b"x"
        with pytest.raises(ConflictError):
            await numbers.guarded(False)

    with closing(open_database(MEMORY)) as database:
        asyncio.run(play(Numbers(AsyncFace(database))))


def test_sync_verbs_answer_with_the_type_of_their_operation() -> None:
    with closing(open_database(MEMORY)) as database:
        numbers = Numbers(SyncFace(database))
        assert assert_type(numbers.double(3, times=2), int) == 12
        assert assert_type(numbers.half(3), float) == 1.5
        assert assert_type(numbers.guarded(True), str) == "done"
        assert assert_type(numbers.spanning("x"), bytes) == b"x"


def test_the_signature_of_a_verb_has_no_transaction() -> None:
    with closing(open_database(MEMORY)) as database:
        verb = Numbers(SyncFace(database)).double
        assert str(inspect.signature(verb)) == "(number: int, *, times: int = 1) -> int"


def test_wrong_arguments_fail_like_a_call_of_the_operation() -> None:
    with closing(open_database(MEMORY)) as database:
        numbers = Numbers(SyncFace(database))
        with pytest.raises(TypeError, match="unexpected keyword"):
            numbers.double(1, tims=2)  # type: ignore[call-arg]
        with pytest.raises(TypeError, match="missing"):
            numbers.double()  # type: ignore[call-arg]
