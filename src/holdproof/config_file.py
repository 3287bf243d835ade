"""One settings file: YAML of bounded size with each key once, and errors that name the place."""

import os
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdproof import config_trust
from holdproof.errors import ConfigError
from holdproof.lazy import lazy_module

if TYPE_CHECKING:
    import yaml
else:
    yaml = lazy_module("yaml")

_MAX_BYTES = 256 * 1024


@cache
def _loader() -> "type[yaml.SafeLoader]":
    """Return the YAML loader of settings: refuses a key that occurs twice, and gives every error a line.

    The class is made at its first use, since its base would load PyYAML in programs that have no settings file.
    """

    class Loader(yaml.SafeLoader):
        def compose_mapping_node(self, anchor: Any) -> "yaml.MappingNode":
            node: yaml.MappingNode = super().compose_mapping_node(anchor)
            names: set[str] = set()
            for key, _ in node.value:
                if isinstance(key, yaml.ScalarNode) and key.value in names:
                    problem = f"the key {key.value!r} occurs twice"
                    raise yaml.MarkedYAMLError(problem=problem, problem_mark=key.start_mark)
                names.add(str(key.value))
            return node

        def construct_object(self, node: "yaml.Node", deep: bool = False) -> Any:
            try:
                return super().construct_object(node, deep)
            except (ValueError, LookupError, AttributeError, TypeError, ArithmeticError) as error:
                # PyYAML lets these out for a date like 2024-99-99 or a forced tag.
                raise yaml.MarkedYAMLError(problem="not a valid value", problem_mark=node.start_mark) from error

    return Loader


def parse(file: Path) -> tuple[dict[Any, Any], str]:
    """Parse one file; returns its keys and its digest. ConfigError with line and column for what is wrong with it."""
    place: dict[str, Any] = {}
    try:
        if not file.is_file():  # a pipe would block, a dangling link is broken and not absent
            raise ConfigError(f"{file}: not a file that can be read", file=str(file))
        with file.open("rb") as stream:
            if os.fstat(stream.fileno()).st_uid not in {os.geteuid(), 0}:  # it could move the store elsewhere
                raise ConfigError(f"{file}: belongs to another user; make it yours if you trust it", file=str(file))
            raw = stream.read(_MAX_BYTES + 1)
        if len(raw) > _MAX_BYTES:
            raise ConfigError(f"{file}: larger than {_MAX_BYTES} bytes", file=str(file))
        tree = _loader()(raw.decode()).get_single_data()
        if isinstance(tree, dict | None):
            return tree or {}, config_trust.digest(raw)
        problem = "must hold keys and values"
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = {"line": mark.line + 1, "column": mark.column + 1} if mark else {}
        problem = error.problem or "not valid YAML"
    except (UnicodeDecodeError, yaml.reader.ReaderError) as error:
        start = error.start if isinstance(error, UnicodeDecodeError) else len(raw.decode()[: error.position].encode())
        place = {"line": raw[:start].count(b"\n") + 1, "column": start - raw.rfind(b"\n", 0, start)}
        problem = "not plain UTF-8 text"
    except RecursionError:
        problem = "nested too deeply"
    except OSError as error:
        problem = error.strerror or str(error)
    where = ", ".join([str(file), *(f"{name} {number}" for name, number in place.items())])
    raise ConfigError(f"{where}: {problem}", file=str(file), **place)
