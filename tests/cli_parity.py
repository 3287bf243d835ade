"""A store whose verbs are said to the command line: a command runs here, on the same store, and its JSON is the answer.

`SAID` is every verb of these nouns that has a command, `UNSAID` every other with the reason why not. What a command has
no word for (a value that no option takes) is asked of the store itself.
"""

import contextlib
import io
import json
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from holdproof import errors, sync
from holdproof.api import problems
from holdproof.api.catalogue import MethodSpec, entries
from holdproof.cli.app import app
from holdproof.cli.call import Call

_WORDS: Final = ("code", "message", "remedy")
_SAYABLE: Final = (str, int, float)
_TEXT: Final = (str,)
"""Of a content, because a number is a content too, and another one than its text."""


@dataclass(frozen=True)
class Said:
    """The command of a verb: its words, where it calls things otherwise, and the part of its answer that counts."""

    words: str
    names: Mapping[str, str] = field(default_factory=dict)
    part: str | None = None


_AGENT: Final = {"agent_id": "agent"}
SAID: Final[Mapping[tuple[str, str], Said]] = {
    ("agents", "get"): Said("agents show"),
    ("agents", "list"): Said("agents list"),
    ("agents", "register"): Said("agents register"),
    ("agents", "set_status"): Said("agents set-status"),
    ("audit", "for_flow"): Said("audit list"),
    ("audit", "get"): Said("audit show"),
    ("audit", "search"): Said("audit search"),
    ("contexts", "read"): Said("contexts show"),
    ("contexts", "versions"): Said("contexts versions", part="versions"),
    ("escalations", "budget"): Said("escalations budget"),
    ("escalations", "get"): Said("escalations show"),
    ("escalations", "pending"): Said("escalations history", _AGENT),
    ("escalations", "pending"): Said("escalations list", _AGENT),
    ("escalations", "resolve"): Said("escalations resolve", {"resolution": "answer"}),
    ("feedback", "recent"): Said("feedback recent", part="feedback"),
    ("feedback", "trajectory"): Said("feedback trajectory", part="feedback"),
    ("flows", "cancel"): Said("flows cancel"),
    ("flows", "list"): Said("flows list", _AGENT),
    ("flows", "orphans"): Said("flows orphans", part="orphans"),
    ("flows", "search"): Said("flows search", _AGENT),
    ("flows", "steps"): Said("flows steps", part="steps"),
    ("flows", "timeline"): Said("flows show"),
    ("flows", "transition"): Said("flows transition"),
    ("image", "list"): Said("image list", part="images"),
    ("locks", "list"): Said("locks list", part="locks"),
    ("locks", "release"): Said("locks release", part="released"),
    ("objects", "at"): Said("objects list", {"snapshot": "at"}),
    ("objects", "delete"): Said("objects delete", part="nothing"),
    ("objects", "embed"): Said("objects embed", part="embedded"),
    ("objects", "get"): Said("objects get"),
    ("objects", "history"): Said("objects history", part="versions"),
    ("objects", "list"): Said("objects list"),
    ("objects", "put"): Said("objects put", {"children": "child"}),
    ("objects", "reindex"): Said("objects reindex", part="objects"),
    ("objects", "search"): Said("objects search", part="objects"),
    ("objects", "version"): Said("objects version"),
    ("sagas", "clear"): Said("sagas clear", part="cleared"),
    ("sagas", "get"): Said("sagas show"),
    ("sagas", "list_dirty"): Said("sagas list", part="dirty"),
    ("snapshots", "create"): Said("snapshots create"),
    ("snapshots", "diff"): Said("snapshots diff"),
    ("snapshots", "get"): Said("snapshots get"),
    ("snapshots", "list"): Said("snapshots list"),
    ("snapshots", "rollback"): Said("snapshots rollback"),
    ("state", "read"): Said("state show"),
    ("state", "versions"): Said("state versions", part="versions"),
}

_DECIDES: Final = "an agent decides, in its program; a person at a terminal looks, answers and cleans up"
_SECRET: Final = "a secret has no place in the words of a command"
_PART: Final = "another command shows it with more around it"
_MANY: Final = "a program's way to do many things as one"
UNSAID: Final[Mapping[tuple[str, str], str]] = {
    **{("agents", verb): _SECRET for verb in ("authenticate",)},
    **{("audit", verb): _DECIDES for verb in ("record",)},
    ("audit", "export"): "it is `export audit`, a file and no answer",
    **{("contexts", verb): _DECIDES for verb in ("put", "update", "take")},
    **{("escalations", verb): _DECIDES for verb in ("request", "wait")},
    ("escalations", "due"): "`escalations list` shows deadlines",
    ("escalations", "waiting"): _PART,
    ("escalations", "expire"): "`sweep run` does it",
    ("feedback", "record"): _DECIDES,
    **{("flows", verb): _DECIDES for verb in ("start", "lease", "heartbeat", "release")},
    **{("flows", verb): _PART for verb in ("get", "tree", "transitions", "pace")},
    ("flows", "export"): "it is `export flows`, a file and no answer",
    ("flows", "recover"): "`flows recover` takes a function by its name, not as one",
    **{("locks", verb): _DECIDES for verb in ("acquire", "try_acquire", "extend", "release_all")},
    **{("objects", verb): _MANY for verb in ("annotate", "apply")},
    ("objects", "children"): "`objects tree` shows them, and those below",
    ("objects", "nearest"): "`objects search --like` prints objects and distances in one",
    **{("sagas", verb): _DECIDES for verb in ("compensate", "mark_dirty")},
    ("snapshots", "merge"): _MANY,
    **{("state", verb): _DECIDES for verb in ("put", "update")},
    **{("image", verb): "it writes or reads files, as tests of the command do" for verb in ("beat", "dump", "load")},
}


class Unspeakable(Exception):
    """There is no word for it."""


class Speaking:
    """Runs commands in this process, on a store that is open here; one at a time, for they write to one stdout."""

    def __init__(self, store: sync.Holdproof, folder: Path) -> None:
        self._store, self._folder, self._lock = store, folder, threading.Lock()
        self._root: Any = app

    def ask(self, entry: MethodSpec, said: Said, given: Mapping[str, Any]) -> Any:
        """The answer of a verb, by its command."""
        words = self._words(entry, said, given)
        code, told = self._run(words)
        if isinstance(told, dict) and "error" in told:
            raise self._error(told["error"], code)
        answer = told if said.part is None else told.get(said.part)
        return entry.answer.load(answer, "")

    def _run(self, words: list[str]) -> tuple[int, Any]:
        with self._lock, pytest.MonkeyPatch.context() as patch:
            patch.setattr(Call, "open", lambda _: contextlib.nullcontext(self._store))
            with contextlib.redirect_stdout(io.StringIO()) as out, pytest.raises(SystemExit) as ended:
                self._root.main([*words], prog_name="holdproof")
        return int(ended.value.code or 0), json.loads(out.getvalue())

    def _error(self, told: dict[str, Any], code: int) -> errors.HoldproofError:
        fields = {name: value for name, value in told.items() if name not in _WORDS}
        error = problems.error({"code": told["code"], "detail": told["message"], "fields": fields})
        assert error.exit_code == code, f"{told['code']} ends with {error.exit_code}, the command with {code}"
        return error

    def _words(self, entry: MethodSpec, said: Said, given: Mapping[str, Any]) -> list[str]:
        command = self._root
        for word in said.words.split():
            command = command.commands[word]
        known = {each.name: each for each in command.params}
        placed: list[str] = []
        options: list[str] = []
        for name, value in given.items():
            parameter = entry.parameter(name)
            assert parameter is not None
            taken = known.get(said.names.get(name, name))
            usual = not parameter.required and value == parameter.default and type(value) is type(parameter.default)
            if usual and (taken is None or taken.param_type_name == "option" or value in {None, ""}):
                continue
            if taken is None:
                raise Unspeakable(name)
            texts = list(self._texts(taken, value))
            if taken.param_type_name == "argument":
                placed += texts
            elif taken.is_flag:
                options += taken.opts[:1] if value else []
            else:
                options += [f"{taken.opts[0]}={text}" for text in texts]
        return [*said.words.split(), "--json", *options, "--", *placed]

    def _texts(self, taken: Any, value: Any) -> Iterator[str]:
        """A value as words; what is a file or JSON to the command becomes one."""
        if taken.name == "answer":
            value = {"APPROVED": "approve", "REJECTED": "reject", "CANCELLED": "cancel"}.get(value, value)
        if taken.multiple:
            if not isinstance(value, list | tuple) or not all(isinstance(each, str) for each in value):
                raise Unspeakable(taken.name)
            yield from value
        elif taken.name in {"contract", "proposal"}:
            file = self._folder / f"{taken.name}.json"
            file.write_text(_json(value))
            yield str(file)
        elif taken.name in {"attributes", "meta"}:
            yield _json(value)
        elif taken.param_type_name == "option" and taken.is_flag:
            return
        elif type(value) in (_TEXT if taken.name == "content" else _SAYABLE) and "\0" not in str(value):
            yield str(value)
        else:
            raise Unspeakable(taken.name)


def _json(value: Any) -> str:
    """JSON that comes back as it was, or no word for it."""
    try:
        text = json.dumps(value, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise Unspeakable(str(error)) from error
    if json.loads(text) != value:
        raise Unspeakable("JSON says something else")
    return text


class SpokenNoun:
    """A noun whose verbs are said, where there is a command."""

    def __init__(self, speaking: Speaking, near: Any, name: str) -> None:
        self._speaking, self._near, self._name = speaking, near, name

    def __getattr__(self, verb: str) -> Any:
        """A verb of the noun."""
        said, near = SAID.get((self._name, verb)), getattr(self._near, verb)
        if said is None:
            return near
        entry = entries()[self._name, verb]

        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                return self._speaking.ask(entry, said, entry.signature.bind(*args, **kwargs).arguments)
            except Unspeakable:
                return near(*args, **kwargs)

        return call


class Spoken:
    """A store, its nouns said to the command line as far as that has words."""

    def __init__(self, near: sync.Holdproof, folder: Path) -> None:
        self.near, self._speaking = near, Speaking(near, folder)
        for name in {noun for noun, _ in SAID}:
            setattr(self, name, SpokenNoun(self._speaking, getattr(near, name), name))

    def __getattr__(self, name: str) -> Any:
        """All else, of the store itself."""
        return getattr(self.near, name)

    def __enter__(self) -> "Spoken":
        return self

    def __exit__(self, *_: object) -> None:
        self.near.close()
