"""The error tree: every class has a face of its own."""

import ast
import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdproof import errors
from holdproof.errors import HoldproofError


def _tree(root: type[HoldproofError] = HoldproofError) -> Iterator[type[HoldproofError]]:
    yield root
    for child in root.__subclasses__():
        if child.__module__.startswith("holdproof.errors."):
            yield from _tree(child)


TREE = list(dict.fromkeys(_tree()))
each = pytest.mark.parametrize("kind", TREE, ids=lambda kind: kind.__name__)


def test_the_package_shows_the_whole_tree() -> None:
    assert {getattr(errors, name) for name in errors.__all__} == set(TREE)


def test_every_code_is_unique() -> None:
    codes = [kind.code for kind in TREE]
    assert sorted(codes) == sorted(set(codes))


@each
def test_a_class_says_what_the_user_can_do(kind: type[HoldproofError]) -> None:
    assert "__doc__" in vars(kind)
    text = " ".join((kind.__doc__ or "").split())
    assert text.endswith((".", "`"))
    error = kind("it failed")
    # One that fits any error of its class says nothing beside a message; what is said is below a traceback too.
    assert error.remedy == ("" if vars(kind).get("generic") else text)
    assert getattr(error, "__notes__", []) == ([] if vars(kind).get("generic") else [text])
    assert kind("it failed", remedy="Do this.").__notes__ == ["Do this."]


@each
def test_a_class_has_a_code_a_status_and_an_exit_code(kind: type[HoldproofError]) -> None:
    assert "code" in vars(kind), "a code of its own, not its parent's"
    assert kind.code == kind.code.lower().strip()
    assert kind.code.replace(".", "").replace("_", "").isalnum()
    assert type(kind.status) is int
    assert 400 <= kind.status <= 599
    assert type(kind.exit_code) is int
    assert 1 <= kind.exit_code <= 125


@each
def test_a_class_is_named_an_error(kind: type[HoldproofError]) -> None:
    assert kind.__name__.endswith("Error")


@each
def test_an_error_as_a_dict_holds_code_message_remedy_and_fields(kind: type[HoldproofError]) -> None:
    error = kind("it failed", resource="r", holder=3)
    assert error.to_dict() == {
        "code": kind.code,
        "message": "it failed",
        "remedy": error.remedy,
        "resource": "r",
        "holder": 3,
    }
    assert (str(error), error.message, error.fields) == ("it failed", "it failed", {"resource": "r", "holder": 3})


def test_a_field_cannot_take_the_place_of_the_code_or_the_message() -> None:
    fields = {"code": "else", "message": "else", "remedy": "else"}
    facts = HoldproofError("it failed", **fields).to_dict()
    assert (facts["code"], facts["message"]) == ("error", "it failed")


@each
def test_an_error_survives_a_trip_to_another_process(kind: type[HoldproofError]) -> None:
    again = pickle.loads(pickle.dumps(kind("it failed", resource="r")))
    assert type(again) is kind
    assert again.to_dict() == kind("it failed", resource="r").to_dict()


# --- what is not there -------------------------------------------------------------------------------------------

SOURCE = Path(errors.__file__).parents[1]
COMMANDS = (Path(__file__).parents[1] / "e2e" / "commands.txt").read_text().splitlines()


def _absences() -> Iterator[tuple[str, ast.Call, str]]:
    """Every error about a name that is not there, with the constant parts of its message; of what users name."""
    for path in sorted(SOURCE.rglob("*.py")):
        if "server" in path.relative_to(SOURCE).parts:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "NotFoundError":
                parts = [each.value for each in ast.walk(node.args[0]) if isinstance(each, ast.Constant)]
                yield f"{path.relative_to(SOURCE)}:{node.lineno}", node, " ".join(map(str, parts))


def test_a_name_that_is_not_there_comes_with_the_way_to_those_that_are() -> None:
    bare = []
    for place, node, text in _absences():
        # A message that says where it was looked for is about a place, which has no list.
        said = any(mark in text for mark in ("`", ":", ";", " at ", " in ", " here"))
        cured = {"listed_by", "remedy"} & {each.arg for each in node.keywords} or said
        if text.startswith(("there is no ", "no blob", "there is nobody")) and not cured:
            bare.append(f"{place} {text}")
    assert bare == []


def test_the_command_that_lists_what_is_there_exists() -> None:
    named = {
        str(each.value.value)
        for _, node, _ in _absences()
        for each in node.keywords
        if each.arg == "listed_by" and isinstance(each.value, ast.Constant)
    }
    assert len(named) > 10
    assert named - set(COMMANDS) == set()
    error = errors.NotFoundError("there is no flow x", listed_by="flows list", flow_id="x")
    assert error.to_dict() == {
        "flow_id": "x",
        "code": "not_found",
        "message": "there is no flow x",
        "remedy": "`holdproof flows list` names those there are.",
    }
