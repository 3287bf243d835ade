"""Fuzzing: a thin sample of `python -m proof fuzz`, and proof that it sees what breaks."""

import pytest

from holdproof.errors import FormatError, HoldproofError
from proof.fuzz import attempt, child, told
from proof.fuzz.targets import MODULES, Target, find

DOORS = ("http", "bundles", "manifests")
"""Those whose good inputs need a store of their own: seconds rather than milliseconds."""


def sample(name: str, most: int) -> None:
    outcome = child.fuzz(name, 7, 60, most, bytearray(8 + child.HELD))
    assert outcome["found"] == []
    assert outcome["counts"]["inputs"] == most


@pytest.mark.parametrize("name", sorted(MODULES.keys() - set(DOORS)))
def test_damaged_inputs_are_refused_with_typed_errors(name: str) -> None:
    sample(name, 150)


@pytest.mark.slow
@pytest.mark.parametrize("name", DOORS)
def test_damaged_inputs_at_a_door_are_refused_with_typed_errors(name: str) -> None:
    sample(name, 45)


@pytest.mark.parametrize("name", sorted(MODULES.keys() - {*DOORS, "config"}))
def test_good_inputs_are_accepted(name: str) -> None:
    """Else the fuzzer would damage what is refused anyway."""
    target = find(name)
    target.ready()
    for seed in target.seeds():
        target.run(seed)


# --- a fuzzer that can fail --------------------------------------------------------------------------------------


def _broken(data: bytes) -> None:
    if b"hang" in data:
        while True:
            pass
    if b"large" in data:
        _ = b"x" * (300 << 20)
    if b"crash" in data:
        raise KeyError("x")
    if b"typed" in data:
        raise FormatError("refused")


@pytest.mark.parametrize(
    ("data", "trouble"), [(b"crash", "crash: KeyError"), (b"hang", "hang:"), (b"large", "blow-up:"), (b"typed", None)]
)
def test_what_a_target_must_not_do_is_reported(
    data: bytes, trouble: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = Target("broken", lambda: [b"good", b"fine", data, data], _broken)
    monkeypatch.setattr(child, "find", lambda _: target)
    monkeypatch.setattr(child, "CPU_S", 0.02)
    monkeypatch.setattr(child, "MEMORY", 100 << 20)
    outcome = child.fuzz("broken", 1, 60, 4, bytearray(8 + child.HELD))
    found = [one["trouble"] for one in outcome["found"]]
    assert [one.startswith(trouble or "") for one in found] == ([] if trouble is None else [True])
    assert all(bytes.fromhex(one["input"]) == data for one in outcome["found"])


def test_inputs_that_reach_new_lines_are_kept() -> None:
    outcome = child.fuzz("lisp", 1, 60, 300, bytearray(8 + child.HELD))
    assert outcome["counts"]["corpus"] > len(find("lisp").seeds())
    assert outcome["counts"]["lines reached"] > 100


def test_a_process_of_its_own_says_what_came_of_it() -> None:
    assert attempt("tiles", 1, 60, 50) == child.fuzz("tiles", 1, 60, 50, bytearray(8 + child.HELD))


def test_a_trouble_says_how_to_try_it_again() -> None:
    line = told({"target": "car", "input": "00ff", "trouble": "crash: X"})
    assert "python -m proof fuzz --target car --input 00ff" in line
    with pytest.raises(HoldproofError):
        find("car").run(bytes.fromhex("00ff"))
