"""One command per method, made from its declaration.

Rules:
- The name is the method's, with hyphens; what it does and answers is what the method does and answers.
- What Python takes by position is an argument, what it takes by keyword only is an option of the same name. What may
  be left out and Python takes either way is either here too.
- A text is taken as it is, but for what people shorten (typed.py); numbers and words are read by their type. A list of
  texts is an option that may be repeated, a path of labels has dots between them, and anything else is JSON, or `@FILE`
  with JSON in it.
- What a declaration reads from `files` is the name of a file, `-` for stdin. So are bytes.
- A function is named `module:function`; one that reports progress is a progress bar.
- `--out FILE` writes an answer that is a document or a stream to a file, which is whole or not there.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import click

from holdproof import sync
from holdproof.api import wire
from holdproof.api.catalogue import MethodSpec, Parameter, method_spec, without_namespaces
from holdproof.cli import complete, draw, typed
from holdproof.cli.bar import bar
from holdproof.cli.call import (
    SETTINGS,
    CommandContext,
    Described,
    ask_or_refuse,
    find_function,
    finish,
    merge_options,
    shared_options,
)
from holdproof.cli.files import STDIO, json_value, load, read, read_pieces
from holdproof.cli.render import Draw, aside, warn
from holdproof.cli.storage import delivered, json_lines, opened
from holdproof.db import MEMORY
from holdproof.errors import InvalidInputError, NotFoundError
from holdproof.model.page import Page

_PROGRESS: Final = "progress"
_LINES: Final = "lines"
"""The drawing of streams that are JSON lines for people too."""
_OUT: Final = "out_file"
_YES: Final = "assume_yes"
_TEXTS: Final = frozenset({"content"})
"""Parameters of any type that are a text here; `@FILE` and `-` read it from a file."""
_BY_NAME: Final = "named_"
"""What the dest of an option begins with whose parameter is an argument too."""
"""The options that the next page is asked for with, by the parameter that the method has."""


def command(resource: str, method: str, *, words: str = "") -> click.Command:
    """Make the command of a method; `words` are those it is called by, where they are not the method's own."""
    spec = method_spec(resource, method)
    words = words or f"{resource} {method}".replace("_", "-")
    own = [each for each in spec.parameters if each.name != _PROGRESS]
    parameters = [
        _argument(spec, each) if each.positional and not is_flag(each) else _option(spec, each) for each in own
    ]
    optional = [each for each in own if each.positional and not each.required and not each.many and not is_flag(each)]
    parameters += [_option(spec, each, dest=f"{_BY_NAME}{each.name}") for each in optional]
    if _is_document(spec):
        help = "Write the answer to this file instead of printing it."
        parameters.append(click.Option(["--out", _OUT], metavar="FILE", help=help))
    if spec.exposure.confirm:
        parameters.append(click.Option(["--yes", _YES], is_flag=True, help="Do not ask."))
    generated = Described(
        words.rpartition(" ")[2],
        callback=partial(_run, spec),
        params=[*parameters, *shared_options(parameters)],
        help=spec.summary,
        epilog=f"Example: {example(spec, words)}",
        context_settings=SETTINGS,
    )
    positional = [each for each in spec.parameters if each.positional and not is_flag(each)]
    generated.descriptions = [(each.name.upper(), _describe(spec, each)) for each in positional]
    return generated


def example(spec: MethodSpec, words: str = "") -> str:
    """Return a call of the method on the command line: the declared one, or one made from its arguments."""
    arguments = spec.exposure.example
    if not arguments:
        arguments = " ".join(each.name.upper() for each in spec.parameters if each.positional and each.required)
    return f"holdproof {words or f'{spec.resource} {spec.method}'.replace('_', '-')} {arguments}".rstrip()


def _is_document(spec: MethodSpec) -> bool:
    answer = spec.answer.schema({})
    kinds = [answer, *answer.get("anyOf", ())]
    texts = any(kind.get("type") == "string" or wire.is_bytes(kind) for kind in kinds)
    return spec.streams or texts or bool(spec.exposure.document)


# --- parameters --------------------------------------------------------------------------------------------------


def _argument(spec: MethodSpec, parameter: Parameter) -> click.Argument:
    word = parameter.name.upper()
    return click.Argument(
        [parameter.name],
        required=parameter.required,
        nargs=-1 if parameter.many else 1,
        metavar=word if parameter.required else f"[{word}]",
        shell_complete=complete.BY_NAME.get((spec.resource, parameter.name), complete.BY_PARAMETER.get(parameter.name)),
    )


def _option(spec: MethodSpec, parameter: Parameter, *, dest: str | None = None) -> click.Option:
    if is_flag(parameter):
        return _flag(parameter)
    return click.Option(
        [f"--{parameter.name.replace('_', '-')}", dest or parameter.name],
        required=parameter.required,
        multiple=is_texts(parameter),
        metavar=_metavar(spec, parameter),
        help=_describe(spec, parameter),
        envvar=spec.exposure.variables.get(parameter.name),
        shell_complete=complete.BY_PARAMETER.get(parameter.name),
    )


def _flag(parameter: Parameter) -> click.Option:
    word = parameter.name.replace("_", "-")
    flags = f"--{word}" if parameter.default is False else f"--{word}/--no-{word}"
    return click.Option([flags, parameter.name], default=None, is_flag=True, help=parameter.description)


def is_flag(parameter: Parameter) -> bool:
    """Say whether it is true or false."""
    schema = parameter.shape.schema({})
    kinds = [kind for kind in schema.get("anyOf", [schema]) if kind.get("type") != "null"]
    return [kind.get("type") for kind in kinds] == ["boolean"]


def is_texts(parameter: Parameter) -> bool:
    """Say whether it is a list of texts, each of which is one option."""
    item = parameter.shape.item
    return not parameter.positional and item is not None and item.schema({}) == {"type": "string"}


def _metavar(spec: MethodSpec, parameter: Parameter) -> str:
    if parameter.shape.callback:
        return "MODULE:FUNCTION"
    if parameter.name in spec.exposure.files or parameter.shape.local:
        return "FILE"
    schema = parameter.shape.schema({})
    kinds = [kind for kind in schema.get("anyOf", [schema]) if kind.get("type") != "null"]
    if len(kinds) == 1 and "enum" in kinds[0]:
        return "|".join(kinds[0]["enum"])
    scalar = parameter.shape.scalar or is_texts(parameter)
    return {"integer": "N", "number": "NUMBER"}.get(kinds[0].get("type", ""), "TEXT") if scalar and kinds else "JSON"


def _describe(spec: MethodSpec, parameter: Parameter) -> str:
    text = parameter.description
    if parameter.name in spec.exposure.files:
        text = f"{text.rstrip('.')}: a file, or - for stdin."
    if parameter.default not in (None, "", (), False):
        text = f"{text}  [default: {wire.dump(parameter.default)}]"
    if is_texts(parameter):
        text = f"{text} May be repeated."
    if variable := spec.exposure.variables.get(parameter.name):
        text = f"{text.rstrip('.')} (or {variable})."
    return text


# --- arguments ---------------------------------------------------------------------------------------------------


def _convert(spec: MethodSpec, parameter: Parameter, word: Any) -> Any:
    """Turn what stands on the command line into the value that the method takes."""
    if isinstance(word, bool):
        return word
    if isinstance(word, tuple):
        return [_scalar(parameter, each) for each in word] if parameter.many else _texts(parameter, word)
    if parameter.name in spec.exposure.files:
        return _from_file(parameter, word)
    if parameter.shape.callback:
        return find_function(word)
    plain = parameter.shape.local or parameter.shape.scalar or _is_bare_text(parameter, word)
    return _scalar(parameter, typed.word(spec, parameter, word)) if plain else _structure(parameter, word)


def _is_bare_text(parameter: Parameter, word: str) -> bool:
    """Say whether a word is the text of what may be a text or more, as a function by its name, and not JSON."""
    may_be_text = {"type": "string"} in parameter.shape.schema({}).get("anyOf", ())
    return may_be_text and parameter.name not in _TEXTS and not word.startswith(("{", "[", '"', "@", STDIO))


def _scalar(parameter: Parameter, word: str) -> Any:
    try:
        return parameter.shape.read(word, parameter.name)
    except InvalidInputError:
        # The one way to say None where the default is something else, as for a token that never ends.
        if word == "null":
            return parameter.shape.load(None, parameter.name)
        if parameter.shape.local:
            return word
        raise


def _texts(parameter: Parameter, words: tuple[str, ...]) -> Any:
    # One JSON list is accepted too, so that a list can be copied from JSON output.
    if len(words) == 1 and words[0].startswith("["):
        return parameter.shape.load(json_value(words[0], parameter.name), parameter.name)
    return parameter.shape.load(list(words), parameter.name)


def _structure(parameter: Parameter, word: str) -> Any:
    if parameter.name in _TEXTS:
        return read(word.removeprefix("@")) if word == STDIO or word.startswith("@") else word
    schema = parameter.shape.schema({})
    if wire.is_bytes(schema) or any(map(wire.is_bytes, schema.get("anyOf", ()))):
        return b"".join(read_pieces(word))
    if parameter.shape.item is not None and wire.is_bytes(parameter.shape.item.schema({})):
        return read_pieces(word)
    if parameter.name == "path" and not word.startswith("["):
        return parameter.shape.load(word.split(".") if word else [], parameter.name)
    if word.startswith("@") or word == STDIO:
        return parameter.shape.load(load(word.removeprefix("@")), parameter.name)
    return parameter.shape.load(json_value(word, parameter.name), parameter.name)


def _from_file(parameter: Parameter, word: str) -> Any:
    if parameter.shape.scalar:
        return parameter.shape.read(read(word).strip(), parameter.name)
    if any(map(wire.is_bytes, parameter.shape.schema({}).get("anyOf", ()))):
        # As they are: JSON that is read and written again may hide what somebody changed.
        return Path(word) if parameter.shape.local and word != STDIO else b"".join(read_pieces(word))
    return parameter.shape.load(load(word), parameter.name)


# --- running -----------------------------------------------------------------------------------------------------


def _run(spec: MethodSpec, **words: Any) -> None:
    call = merge_options(click.get_current_context(), words).at_tenant()
    out = words.pop(_OUT, None)
    _confirm(spec, words)
    values = {}
    for parameter in spec.parameters:
        word = words.get(parameter.name)
        # What may be left out can be passed as an option of the same name too.
        if word in (None, ()):
            word = words.get(f"{_BY_NAME}{parameter.name}")
        # What was not passed is left to the method, which has a default for it.
        if word not in (None, ()):
            values[parameter.name] = _convert(spec, parameter, word)
    exit_code = spec.exposure.exit_code or (lambda _: 0)
    if spec.streams and spec.exposure.draw == _LINES:
        out = out or STDIO
    # `finish` prints a stream item by item and does not return.
    if spec.streams and out is None:
        finish(_stream(spec, call, values), call, exit_code, _draw(spec))
    with _target(spec, call, values) as target, bar() as tell:
        if tell is not None and spec.parameter(_PROGRESS) is not None:
            values[_PROGRESS] = partial(_progress, tell, spec.method)
        args, kwargs = spec.arguments(values)
        answer = getattr(target, spec.method)(*args, **kwargs)
        if spec.streams:
            answer = _save(spec, answer, out, tell, call)
    _refuse_absent(spec, answer, values)
    # Computed now: below, the answer may be replaced by the name of the file it was written to.
    code = exit_code(answer)
    if out is not None and not spec.streams:
        answer = _written(spec, answer, out, as_json=call.as_json)
    elif isinstance(answer, bytes) and not call.as_json:
        delivered([answer], "-", call.as_json)
        raise click.exceptions.Exit(code)
    if spec.exposure.note is not None and (text := spec.exposure.note(answer)):
        aside(f"note: {text}\n")
    plain = answer if spec.streams else _plain(spec, answer)
    finish(plain, call, lambda _: code, _draw_with_properties(spec, answer) if out is None else None)


def _save(
    spec: MethodSpec, items: Iterable[Any], out: str, tell: Callable[[str, int, int], None] | None, call: CommandContext
) -> dict[str, Any]:
    """Write a stream to a file that is whole or not there, or as JSON lines to stdout; say how much it was."""
    count = 0

    def counted() -> Iterator[Any]:
        nonlocal count
        for each in items:
            yield each
            count += 1
            # Drawing costs more than writing a line.
            if tell is not None and count % 100 == 0:
                tell(spec.resource, count, 0)

    lines = spec.exposure.draw == _LINES
    size = delivered(json_lines(counted()), out, call.as_json and not lines)
    # stdout has the items: a summary would be read as one more.
    if out == STDIO:
        raise click.exceptions.Exit(0)
    return {"written": out, **({"items": count} if lines else {}), "bytes": size}


def _confirm(spec: MethodSpec, words: dict[str, Any]) -> None:
    question = spec.exposure.confirm
    if not question:
        return
    assumed = words.pop(_YES)
    # As with a passphrase: then what the question warns of does not happen.
    if words.get(spec.exposure.confirm_unless) is not None:
        return
    if assumed:
        # What a question begins with is worth knowing also where nobody is asked.
        if fact := question.rpartition(". ")[0]:
            warn(fact)
        return
    ask_or_refuse(question.format(**words))


@contextmanager
def _target(spec: MethodSpec, call: CommandContext, values: dict[str, Any]) -> Iterator[Any]:
    """Open what the method belongs to, the store or only the store of services, and find the ids that were cut."""
    if spec.exposure.storeless:
        # A method needs some store to run on; this one lives and ends with the command.
        with sync.open(MEMORY) as empty:
            yield getattr(empty, spec.resource)
        return
    if call.remote is not None:
        with call.open(create=False) as store:
            resource = getattr(store, spec.resource, None)
            # What a remote client has beyond the catalogue runs here, as `flows.result` does.
            if not spec.remote and spec.method not in dir(type(resource)):
                call.require_local(f"{spec.resource} {spec.method}".replace("_", "-"))
            typed.whole_ids(store, values, spec)
            yield resource
        return
    if spec.resource in without_namespaces() and spec.resource != "storage":
        with opened(call, spec.resource, create=spec.exposure.creates) as target:
            yield target
        return
    with call.open(create=spec.exposure.creates) as store:
        typed.whole_ids(store, values, spec)
        yield getattr(store, spec.resource)


def _stream(spec: MethodSpec, call: CommandContext, values: dict[str, Any]) -> Iterator[Any]:
    with _target(spec, call, values) as target:
        args, kwargs = spec.arguments(values)
        for item in getattr(target, spec.method)(*args, **kwargs):
            yield wire_plain(item)


def _progress(tell: Callable[[str, int, int], None], name: str, *numbers: Any) -> None:
    """Draw progress, however much of it the method reports: the step, how much, of how much."""
    step = numbers[0] if isinstance(numbers[0], str) else name
    counts = [each for each in numbers if not isinstance(each, str)]
    tell(step, counts[0], counts[1] if len(counts) > 1 else 0)


def _refuse_absent(spec: MethodSpec, answer: Any, values: Mapping[str, Any]) -> None:
    """Let `get` of what is absent fail here too, where the method of the seed answers None."""
    if answer is None and spec.reads and spec.method in {"get", "stat"}:
        name = ", ".join(str(value) for value in values.values())
        raise NotFoundError(f"there is no {name} in {spec.resource}", resource=spec.resource)


def _written(spec: MethodSpec, answer: Any, out: str, *, as_json: bool) -> dict[str, Any]:
    document = getattr(answer, spec.exposure.document) if spec.exposure.document else answer
    data = document if isinstance(document, bytes) else f"{document}\n".encode()
    return {"written": out, "bytes": delivered([data], out, as_json)}


def _plain(spec: MethodSpec, answer: Any) -> Any:
    """Return an answer as every client prints it: as HTTP sends it, or where nobody sends it, with all that it says."""
    if not spec.remote and not spec.exposure.document and hasattr(answer, "to_dict"):
        return answer.to_dict()
    return wire_plain(answer)


def wire_plain(value: Any) -> Any:
    """Return an answer as HTTP sends it; what cannot cross a wire, as its own fields."""
    try:
        return wire.dump(value)
    except InvalidInputError:
        return value.to_dict() if hasattr(value, "to_dict") else value


def _draw_with_properties(spec: MethodSpec, answer: Any) -> Draw | None:
    """Draw an answer with the properties that the declaration names as columns; JSON has its fields only."""
    drawing = _draw(spec)
    names = [*spec.exposure.columns, *([spec.exposure.document] if spec.exposure.document else [])]
    if drawing is None or not names:
        return drawing
    return lambda plain: drawing(_with_properties(names, answer, plain))


def _with_properties(names: Sequence[str], value: Any, plain: Any) -> Any:
    if isinstance(value, Page):
        return {**plain, "items": _with_properties(names, value.items, plain["items"])}
    if isinstance(value, list | tuple):
        return [_with_properties(names, *pair) for pair in zip(value, plain, strict=True)]
    if not isinstance(plain, Mapping):
        return plain
    absent = [name for name in names if name not in plain and hasattr(value, name)]
    return {**plain, **{name: wire_plain(getattr(value, name)) for name in absent}}


def _draw(spec: MethodSpec) -> Draw | None:
    if spec.exposure.draw and spec.exposure.draw != _LINES:
        return draw.DRAWINGS[spec.exposure.draw]
    if spec.exposure.document:
        return partial(draw.document, spec.exposure.document)
    return partial(draw.answer, spec.exposure.columns)
