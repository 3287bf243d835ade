"""Which files are mutated, and which tests must notice: those of the file first, wider ones if none of these does."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
_CRYPTO: Final = "tests/unit/crypto/test_"
_ALONE: Final = ("-k", "not Postgres and not mutat and not walk and not racing")
"""On a database server every mutant would take seconds; what differs there has tests of its own."""
_IN_MEMORY: Final = ("-k", "not Postgres and not TestSqlite and not mutat and not walk and not racing")
"""Where one suite runs on a file and in memory, by the same statements: once is enough."""


@dataclass(frozen=True, order=True, slots=True)
class Target:
    """A file, and the tests that run against its mutants, stage by stage."""

    file: str
    stages: tuple[tuple[str, ...], ...]
    light: bool = False
    """Whether its tests need none of the package but what they name: then the rest is not imported."""

    @property
    def module(self) -> str:
        """Its name for the importer."""
        return self.file.removeprefix("src/").removesuffix(".py").replace("/", ".")

    def source(self) -> str:
        """Its text."""
        return (ROOT / self.file).read_text(encoding="utf-8")


def _crypto(name: str, *wider: str) -> Target:
    stages = tuple((f"{_CRYPTO}{each}.py", "--confcutdir=tests/unit/crypto", *_ALONE) for each in (name, *wider))
    return Target(f"src/holdproof/crypto/{name}.py", stages, light=True)


def _domain(file: str, *stages: str) -> Target:
    return Target(f"src/holdproof/{file}.py", tuple((*stage.split(), *_ALONE) for stage in stages))


def _guard(file: str, *stages: str) -> Target:
    """A guard of the runtime: on a database in memory first, which is there at once."""
    first = (*stages[0].split(), "-k", "TestMemory and not walk and not racing")
    return Target(f"src/holdproof/{file}.py", (first, *((*stage.split(), *_ALONE) for stage in stages[1:])))


def _log(file: str, *stages: str) -> Target:
    return Target(f"src/holdproof/evidence/{file}.py", tuple((*stage.split(), *_IN_MEMORY) for stage in stages))


_C: Final = "tests/conformance/test_"
TARGETS: Final = (
    *(_crypto(name) for name in ("b64", "base58", "car", "cid", "commit", "didkey", "frontier")),
    *(_crypto(name) for name in ("sealed", "tid", "tiles", "varint", "mst_node", "attest")),
    _crypto("canonical", "dbom"),
    _crypto("checkpoint", "witness"),
    _crypto("dagcbor", "ipld"),
    _crypto("dbom", "dbom_text"),
    _crypto("dsse", "statement", "attest"),
    _crypto("keys", "signatures", "points"),
    _crypto("merkle", "frontier", "tiles"),
    _crypto("mlist", "mst"),
    _crypto("note", "checkpoint", "witness"),
    _crypto("signatures", "keys", "statement"),
    _crypto("sigstore", "attest"),
    _crypto("statement", "attest"),
    _crypto("tlog_proof", "checkpoint"),
    _crypto("vkey", "note", "witness"),
    _crypto("witness", "checkpoint"),
    _guard("runtime/locks", f"{_C}locks.py", f"{_C}flows.py {_C}recovery.py"),
    _guard("runtime/idempotency", f"{_C}idempotency.py", f"{_C}steps.py"),
    _guard("runtime/escalations", f"{_C}escalations.py", f"{_C}steps.py {_C}agents.py"),
    _guard("runtime/escalation_rows", f"{_C}escalations.py", f"{_C}flows.py"),
    _domain("runtime/budgets", f"{_C}escalations.py tests/unit/test_budgets.py", f"{_C}dir.py"),
    _guard("access/tokens", f"{_C}tokens.py", "tests/unit/test_cli_tokens.py"),
    _guard("access/logins", f"{_C}tokens.py"),
    _domain("server/permissions", "tests/unit/test_access.py", "tests/e2e/test_door.py"),
    _domain("server/authentication", "tests/e2e/test_door.py"),
    _log("leaves", "tests/unit/test_log_leaves.py", f"{_C}log.py"),
    _log("heads", "tests/unit/test_log_heads.py", f"{_C}log_audit.py"),
    _log("replay", "tests/unit/test_log_replay.py", f"{_C}log.py"),
    _log("log", f"{_C}log.py", f"{_C}log_audit.py {_C}log_keys.py"),
    _log("tree", f"{_C}log.py", f"{_C}log_audit.py"),
    _log("audit", f"{_C}log_audit.py", f"{_C}log.py"),
)
