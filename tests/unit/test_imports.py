"""What a program pays for at its start: heavy modules are loaded at their first use, not by `import`."""

import subprocess
import sys

import pytest

import holdproof

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
