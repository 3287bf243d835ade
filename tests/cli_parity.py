"""A store whose methods are called on the command line: a command runs here, and its JSON is the answer.

It runs on the open store itself, or with `--server` on one that shows it.

What a command cannot express (a value that no word stands for, a function of this process) is called on the store
itself.
"""

import contextlib
import io
import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from holdproof import errors, sync
from holdproof.api import problems, wire
from holdproof.api.catalogue import MethodSpec, Parameter, entries
from holdproof.cli import generate, index
from holdproof.cli.app import app
from holdproof.cli.call import CommandContext

_ERROR_WORDS: Final = ("code", "message", "remedy")


class Inexpressible(Exception):
    """No word stands for it."""


def has_command(spec: MethodSpec) -> bool:
    """Say whether a method is called by its generated command here."""
    called_back = any(each.shape.callback and each.required for each in spec.parameters)
    commands = index.commands()[spec.resource.replace("_", "-")].get("commands", {})
    command = commands.get(spec.method.replace("_", "-"), {"module": ""})
    return "module" not in command and not spec.streams and not called_back


class _OutputByThread(io.TextIOBase):
    """Gives each thread a text of its own: a command may wait for what another one does."""

    def __init__(self) -> None:
        self._local = threading.local()

    def begin(self) -> None:
        """Begin an empty text for this thread."""
        self._local.text = io.StringIO()

    def text(self) -> str:
        """Return what this thread wrote since it began."""
        return str(self._local.text.getvalue())

    def write(self, text: str) -> int:
        """See TextIOBase."""
        return int(self._local.text.write(text))


class CommandLine:
    """Runs commands in this process, on a store that is open here, in any number of threads.

    `through` are options that name a server: then commands reach the store through it.
    """

    def __init__(self, store: sync.Holdproof, folder: Path, through: Sequence[str] = ()) -> None:
        self._through = through
        self._store = store
        self._folder = folder
        self._lock = threading.Lock()
        self._running = 0
        self._patches = contextlib.ExitStack()
        self._output = _OutputByThread()

    def call(self, spec: MethodSpec, arguments: Mapping[str, Any]) -> Any:
        """Return the answer of a method, by its command."""
        words = self._words(spec, arguments)
        code, answer = self._run(words)
        if isinstance(answer, dict) and "error" in answer:
            raise self._error(answer["error"], code)
        return spec.answer.load(answer, "")

    def _run(self, words: list[str]) -> tuple[int, Any]:
        self._output.begin()
        with self._in_process(), pytest.raises(SystemExit) as ended:
            app.main([*self._through, *words], prog_name="holdproof")
        return int(ended.value.code or 0), json.loads(self._output.text())

    @contextlib.contextmanager
    def _in_process(self) -> Iterator[None]:
        """Let commands use the open store and write to their thread's text; the last that ends puts all back."""
        with self._lock:
            if self._running == 0:
                patch = self._patches.enter_context(pytest.MonkeyPatch.context())
                if not self._through:
                    patch.setattr(CommandContext, "open", lambda _, *, create: contextlib.nullcontext(self._store))
                self._patches.enter_context(contextlib.redirect_stdout(self._output))
            self._running += 1
        try:
            yield
        finally:
            with self._lock:
                self._running -= 1
                if self._running == 0:
                    self._patches.close()

    def _error(self, facts: dict[str, Any], code: int) -> errors.HoldproofError:
        fields = {name: value for name, value in facts.items() if name not in _ERROR_WORDS}
        error = problems.error({"code": facts["code"], "detail": facts["message"], "fields": fields})
        assert error.exit_code == code, f"{facts['code']} ends with {error.exit_code}, the command with {code}"
        return error

    def _words(self, spec: MethodSpec, arguments: Mapping[str, Any]) -> list[str]:
        placed: list[str] = []
        options: list[str] = []
        for name, value in arguments.items():
            parameter = spec.parameter(name)
            assert parameter is not None
            if not parameter.required and value == parameter.default and type(value) is type(parameter.default):
                continue
            texts = list(self._texts(spec, parameter, value))
            if parameter.positional and (parameter.required or parameter.many):
                placed += texts
            elif isinstance(value, bool):
                options.append(f"--{'' if value else 'no-'}{name.replace('_', '-')}")
            else:
                options += [f"--{name.replace('_', '-')}={text}" for text in texts]
        return [spec.resource.replace("_", "-"), spec.method.replace("_", "-"), "--json", *options, "--", *placed]

    def _texts(self, spec: MethodSpec, parameter: Parameter, value: Any) -> Iterator[str]:
        """Yield a value as words; what the command reads from a file becomes one."""
        if parameter.shape.callback:
            raise Inexpressible(parameter.name)
        if parameter.name in spec.exposure.files:
            file = self._folder / f"{parameter.name}-{threading.get_ident()}.json"
            file.write_bytes(_document(value) if parameter.shape.local else _json(value).encode())
            yield str(file)
        elif isinstance(value, bool):
            if not generate.is_flag(parameter) or (value is False and parameter.default is False):
                raise Inexpressible(parameter.name)
            yield ""
        elif parameter.many or generate.is_texts(parameter):
            yield from _many(parameter, value)
        elif parameter.shape.scalar or parameter.name == "content":
            yield _scalar(parameter, value)
        else:
            yield _json(value)


def _document(value: Any) -> bytes:
    """Return what a file holds that a command passes on as it is."""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    return value if isinstance(value, bytes) else _json(value).encode()


def _many(parameter: Parameter, values: Any) -> Iterator[str]:
    if not isinstance(values, list | tuple) or not values or not all(isinstance(each, str) for each in values):
        raise Inexpressible(parameter.name)
    if any("\0" in each or each.startswith("[") for each in values):
        raise Inexpressible(parameter.name)
    yield from values


def _scalar(parameter: Parameter, value: Any) -> str:
    """Return a plain value as the word that stands for it; a number is no text, and `@` begins the name of a file."""
    kinds = parameter.shape.schema({})
    texts = [kind.get("type") == "string" for kind in kinds.get("anyOf", [kinds]) if kind.get("type") != "null"]
    text = all(texts) or parameter.name == "content"
    if type(value) not in ((str,) if text else (str, int, float)) or "\0" in str(value):
        raise Inexpressible(parameter.name)
    if parameter.name == "content" and (value == "-" or value.startswith("@")):
        raise Inexpressible(parameter.name)
    return str(value)


def _json(value: Any) -> str:
    """Return JSON that comes back as it was, if there is such."""
    try:
        plain = wire.dump(value)
        text = json.dumps(plain, allow_nan=False)
    except (TypeError, ValueError, errors.InvalidInputError) as error:
        raise Inexpressible(str(error)) from error
    if json.loads(text) != plain or "\0" in text:
        raise Inexpressible("JSON says something else")
    return text


class CommandResource:
    """A resource whose methods are called on the command line, where there is a command."""

    def __init__(self, line: CommandLine, near: Any, name: str) -> None:
        self._line = line
        self._near = near
        self._name = name

    def __getattr__(self, method: str) -> Any:
        """Return a method of the resource."""
        near = getattr(self._near, method)
        spec = entries().get((self._name, method))
        if spec is None or not has_command(spec):
            return near

        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                return self._line.call(spec, spec.signature.bind(*args, **kwargs).arguments)
            except Inexpressible:
                return near(*args, **kwargs)

        return call


class CommandStore:
    """A store, its resources called on the command line as far as that has words."""

    def __init__(
        self, near: sync.Holdproof, folder: Path, resources: frozenset[str], through: Sequence[str] = ()
    ) -> None:
        self.near = near
        line = CommandLine(near, folder, through)
        for name in resources:
            setattr(self, name, CommandResource(line, getattr(near, name), name))

    def __getattr__(self, name: str) -> Any:
        """Return everything else of the store itself."""
        return getattr(self.near, name)

    def __enter__(self) -> "CommandStore":
        return self

    def __exit__(self, *_: object) -> None:
        self.near.close()
