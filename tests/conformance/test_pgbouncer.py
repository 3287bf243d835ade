"""A real PgBouncer before the server: a store is refused there, in every mode, with the cure."""

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from holdproof import errors, sync

_PROGRAM = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
_SETTINGS = """\
[databases]
{name} = host={host} dbname={name} user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = {mode}
ignore_startup_parameters = {ignored}
"""


@pytest.fixture(params=["session", "transaction"])
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["extra_float_digits", "extra_float_digits,options"], ids=["refuses", "ignores"])
def pooled_url(request: pytest.FixtureRequest, mode: str, empty_postgres_url: str) -> Iterator[str]:
    """The database behind a pooler that refuses the settings of connections, or ignores them."""
    if _PROGRAM is None:
        pytest.skip("pgbouncer is not installed")
    parts = conninfo_to_dict(empty_postgres_url)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # Not below pytest's own folder, which another user could not read.
    folder = Path(tempfile.mkdtemp(prefix="holdproof-pgbouncer-"))
    folder.chmod(0o755)
    file = folder / "pgbouncer.ini"
    name = parts["dbname"]
    file.write_text(
        _SETTINGS.format(name=name, host=parts["host"], port=port, mode=mode, ignored=request.param), encoding="utf-8"
    )
    # It refuses to run as root, as the server does.
    user = "nobody" if os.geteuid() == 0 else None
    pooler = subprocess.Popen([_PROGRAM, "-q", str(file)], user=user, stderr=subprocess.DEVNULL)
    url = f"postgresql://postgres@127.0.0.1:{port}/{name}"
    try:
        _until_it_answers(url)
        yield url
    finally:
        pooler.terminate()
        pooler.wait(10)
        shutil.rmtree(folder, ignore_errors=True)


def _until_it_answers(url: str) -> None:
    for attempts_left in reversed(range(200)):
        try:
            with closing(psycopg.connect(url)):
                return
        except psycopg.OperationalError:
            if not attempts_left:
                raise
            time.sleep(0.05)


def test_a_pooler_that_drops_the_settings_of_connections_is_refused_with_the_cure(
    pooled_url: str, tmp_path: Path
) -> None:
    with pytest.raises(errors.ConfigError, match=r"PgBouncer.*name the server itself"):
        sync.open(pooled_url, home=tmp_path)
