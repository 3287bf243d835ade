"""What a program pays for at its start: heavy modules are loaded at their first use, not by `import`."""

import inspect
import subprocess
import sys
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

import pytest

import holdproof
from holdproof import sync
from holdproof.api import catalogue
from holdproof.executors import Method

HEAVY = {"fastapi", "httpx", "numpy", "psycopg", "pygments", "rich", "typer", "uvicorn", "yaml"}


def imported_by(statement: str) -> set[str]:
    """The top-level modules that a fresh interpreter has loaded after a statement."""
    program = f"{statement}\nimport sys\nprint(*{{name.partition('.')[0] for name in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    return set(done.stdout.split())


@pytest.mark.parametrize(
    "statement", ["import holdproof", "import holdproof.sync", "import holdproof.client", "import holdproof.config"]
)
def test_importing_the_package_loads_no_heavy_module(statement: str) -> None:
    assert imported_by(statement) & HEAVY == set()


def test_importing_the_package_alone_loads_nothing_beyond_the_standard_library() -> None:
    loaded = imported_by("import holdproof")
    assert loaded & {"apsw", "asyncio", "cryptography", *HEAVY} == set()


def test_every_public_name_can_be_imported_and_is_listed() -> None:
    for name in holdproof.__all__:
        assert getattr(holdproof, name) is not None
        assert name in dir(holdproof)


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'opne'"):
        holdproof.opne  # noqa: B018


LIBRARIES_OF_NO_HELP = {"apsw", "asyncio", "cryptography", "rich", *HEAVY}
"""What `--help`, `--version` and a key press of completion must not pay for."""
NEVER_AT_OPENING = (
    "holdproof.importers",
    "holdproof.memory.images.image",
    "holdproof.memory.objects",
    "holdproof.policy",
    "holdproof.remote",
    "holdproof.runtime.flows",
    "holdproof.runtime.escalations",
    "holdproof.server",
    "holdproof.storage.open_stores",
    "holdproof.upkeep.alarm",
    "holdproof.upkeep.kernel_tables",
    "importlib.metadata",
)
"""What a program that opens a store and asks nothing of it must not pay for."""


def modules_of(program: str, *words: str) -> set[str]:
    """The full names of the modules that a fresh interpreter has loaded when a program ends."""
    script = f"import atexit, sys\natexit.register(lambda: print(*sys.modules, file=sys.stderr))\n{program}"
    done = subprocess.run([sys.executable, "-c", script, *words], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return set(done.stderr.splitlines()[-1].split())


def loaded_of(modules: set[str], names: Iterable[str]) -> set[str]:
    return {each for each in modules for name in names if each == name or each.startswith(f"{name}.")}


COMMAND = "from holdproof.cli.app import main\nmain()"


@pytest.mark.parametrize("words", [["--help"], ["--version"], ["flows", "--help"], ["escalations", "--help"]])
def test_help_and_version_load_neither_the_store_nor_what_draws(words: list[str]) -> None:
    modules = modules_of(COMMAND, *words)
    assert loaded_of(modules, {*LIBRARIES_OF_NO_HELP, "holdproof.api", "holdproof.db", "holdproof.store"}) == set()


def test_completing_the_name_of_a_command_loads_neither_the_store_nor_what_draws(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in {
        "_HOLDPROOF_COMPLETE": "bash_complete",
        "COMP_WORDS": "holdproof fl",
        "COMP_CWORD": "1",
    }.items():
        monkeypatch.setenv(name, value)
    program = "from holdproof.cli.app import app\napp.main(prog_name='holdproof')"
    modules = modules_of(program)
    assert loaded_of(modules, {*LIBRARIES_OF_NO_HELP, "holdproof.api", "holdproof.db", "holdproof.store"}) == set()


@pytest.mark.parametrize("client", ["sync", "client"])
def test_importing_a_client_loads_no_operation(client: str) -> None:
    modules = modules_of(f"import holdproof.{client}")
    assert loaded_of(modules, {*NEVER_AT_OPENING, *HEAVY}) == set()


def test_threads_do_not_pay_for_an_event_loop(tmp_path: Path) -> None:
    with sync.open(tmp_path):
        pass
    modules = modules_of(f"from holdproof import sync\nsync.open({str(tmp_path)!r}, create=False).close()")
    assert loaded_of(modules, {"asyncio", "ssl"}) == set()


def test_importing_the_sync_client_loads_no_values_that_only_some_methods_return() -> None:
    modules = modules_of("import holdproof.sync")
    values = {"holdproof.model.memory", "holdproof.model.skills", "holdproof.model.backup", "holdproof.upkeep.notify"}
    assert loaded_of(modules, values) == set()


def test_opening_a_store_again_loads_what_opening_needs_only(tmp_path: Path) -> None:
    with sync.open(tmp_path):
        pass
    modules = modules_of(f"from holdproof import sync\nsync.open({str(tmp_path)!r}, create=False).close()")
    # A reopened store is checked against the keys of its home, which needs no table of the runtime.
    assert loaded_of(modules, {*NEVER_AT_OPENING, *HEAVY}) == set()


def test_a_command_of_one_method_loads_no_other_resource(tmp_path: Path) -> None:
    with sync.open(tmp_path):
        pass
    modules = modules_of(COMMAND, "--home", str(tmp_path), "flows", "list")
    others = {"holdproof.runtime.locks", "holdproof.importers", "holdproof.api.flow_block", "holdproof.memory.objects"}
    assert loaded_of(modules, {*others, *HEAVY} - {"rich"}) == set()


def test_a_method_has_its_own_signature_and_help_though_it_is_loaded_late() -> None:
    with sync.open(":memory:") as store:
        assert next(iter(inspect.signature(store.flows.start).parameters)) == "agent_id"
        assert "Open" in (store.flows.start.__doc__ or "")
        assert store.flows.start.__name__ == "start"


def test_every_declared_method_exists_in_its_module() -> None:
    for name, resource in catalogue.declared_resources():
        for method, declaration in inspect.getmembers_static(resource.kind):
            if isinstance(declaration, Method):
                assert callable(declaration.fn), f"{name}.{method}"


def test_the_version_is_that_of_the_distribution() -> None:
    assert holdproof.__version__ == metadata.version("holdproof")
