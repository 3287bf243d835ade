"""Connecting to one database: the settings of a session, or of each transaction where a pooler stands before it.

Rules:
- Rows, durability and waits depend on settings. A server takes them with the connection. A pooler (PgBouncer and its
  kind) refuses or drops them, and gives each transaction another session: there they go with every transaction.
- A pooler is recognised, not configured: it refuses the settings, or they are not in effect on the first connection.
- The login of the application tables is its own through a pooler as well, or the connection is refused.
"""

import time
from collections.abc import Callable, Mapping
from copy import copy
from functools import partial
from typing import Final

from psycopg.conninfo import make_conninfo

from holdproof.db.clock import system_random
from holdproof.db.postgres import conninfo, liveness
from holdproof.db.postgres.wire import OptionsRefusedError, Wire, timeout_s
from holdproof.db.sql import sql_postgres
from holdproof.errors import ConfigError, HoldproofError, UnavailableError

# A login may change its own defaults; what is said while connecting counts before them, and `RESET ALL` returns to it.
_APPLICATION_SETTINGS: Final = {
    "default_transaction_read_only": "off",
    "default_transaction_deferrable": "off",
    "idle_session_timeout": "0",
    "standard_conforming_strings": "on",
    "row_security": "on",
}
CATALOG_PATH: Final = "pg_catalog,pg_temp"
"""The search path of statements of the owner around opening."""
_LONGEST_PAUSE_S: Final = 1.0

_PATH = sql_postgres("SELECT pg_catalog.current_setting('search_path')")
_ROLE_SETTINGS = sql_postgres("SELECT 1 FROM pg_catalog.pg_settings WHERE source IN ('user', 'database user') LIMIT 1")
_USER = sql_postgres("SELECT current_user::text")


def pooled_name(name: str) -> str:
    """Return how the names of all connections begin that are opened under a name through a pooler."""
    return f"{name}-"


class Connector:
    """Opens connections to one database: the same settings, the same schema, bounded waits."""

    def __init__(
        self,
        url: str,
        space: str,
        *,
        connect_s: float,
        lock_s: float,
        read_s: float,
        silence_s: float | None = None,
        direct_url: str | None = None,
    ) -> None:
        self.space = space
        self.channel = f"holdproof_{space}"
        self.pooled = False
        """Whether a pooler stands before the server; known once a connection was opened."""
        self._checked = False
        self._connect_s = connect_s
        self._silence_s = liveness.SILENCE_S if silence_s is None else silence_s
        # A database or a role may have other defaults; rows, durability and waits depend on these.
        self._settings = {
            "lock_timeout": f"{lock_s}s",
            "idle_in_transaction_session_timeout": "60s",
            # A machine that vanished: the server asks for it, and rolls back what it left open within seconds.
            "tcp_keepalives_idle": "5",
            "tcp_keepalives_interval": "2",
            "tcp_keepalives_count": "3",
            "tcp_user_timeout": "10s",
            "synchronous_commit": "on",
            # Only the owner creates anything in it. Temporary tables last: by default they would hide its tables.
            "search_path": f"{space},pg_temp",
            "TimeZone": "UTC",
            "DateStyle": "ISO",
            "bytea_output": "hex",
            "extra_float_digits": "1",
        }
        self._read_s = read_s
        self._base = conninfo.parse(url)
        self._renew: Callable[[], tuple[str, str] | None] | None = None
        limits = {"connect_s": connect_s, "lock_s": lock_s, "read_s": read_s, "silence_s": silence_s}
        self._direct = None if direct_url is None else Connector(direct_url, space, **limits)  # type: ignore[arg-type]

    @property
    def settings(self) -> Mapping[str, str]:
        """The settings of its connections, by name."""
        return self._settings

    @property
    def for_sessions(self) -> "Connector | None":
        """The connector of what lasts longer than a transaction (LISTEN); None where a pooler allows no such thing."""
        return self._direct if self.pooled else self

    def for_applications(
        self, credentials: tuple[str, str] | None, renew: Callable[[], tuple[str, str] | None]
    ) -> "Connector":
        """Return a connector whose statements all have a timeout, with another login unless that is None.

        `renew` sets that login's password again and removes settings that SQL of applications gave it.
        """
        other = copy(self)
        if self._direct is not None:
            other._direct = self._direct.for_applications(credentials, renew)
        if credentials is not None:
            other._use(credentials)
            other._renew = renew
        other._settings = {**self._settings, **_APPLICATION_SETTINGS, "statement_timeout": f"{self._read_s}s"}
        return other

    def _use(self, credentials: tuple[str, str]) -> None:
        name, password = credentials
        self._base = {**self._base, "user": name, "password": password}

    def wire(
        self, name: str, *, reads: bool = False, patience_s: float | None = None, catalog_only: bool = False
    ) -> Wire:
        """Open a connection; keeps trying while the server restarts, for `patience_s`.

        `catalog_only` is for statements of the owner around opening: they name every schema, and nothing that another
        login may have created is found by a bare name.
        """
        settings = dict(self._settings)
        if catalog_only:
            settings["search_path"] = CATALOG_PATH
        if reads:
            # Read-only is said by each BEGIN: as a setting of the session, a server would look like a standby to
            # libpq, and a URL with target_session_attrs=read-write would find no server.
            settings["statement_timeout"] = f"{self._read_s}s"
        deadline = time.monotonic() + (self._connect_s if patience_s is None else patience_s)
        pause = 0.02
        renewed = self._renew is None
        while True:
            wire = None
            try:
                wire = self._open(name, settings)
                if renewed or not self._has_role_settings(wire):
                    return wire
                wire.close()
            except UnavailableError:
                # A changed password looks like any other refusal here: libpq gives no code for it.
                if time.monotonic() + pause > deadline:
                    raise
                time.sleep(pause)
                pause = min(_LONGEST_PAUSE_S, pause * 2)
            if not renewed:
                # Where only settings remain, those above count before them: the second connection is used as it is.
                renewed = self._renew_login() or wire is not None

    def _open(self, name: str, settings: dict[str, str]) -> Wire:
        """Open one connection as the server or its pooler takes it."""
        if not self.pooled:
            try:
                wire = self._open_session(name, settings)
            except OptionsRefusedError:
                self.pooled = True
            else:
                if self._checked or self._takes_effect(wire, settings):
                    return wire
                wire.close()
        return self._open_pooled(name, settings)

    def _open_session(self, name: str, settings: dict[str, str]) -> Wire:
        """Open a connection that has the settings for as long as it lasts."""
        url_options = self._base.get("options")
        options = " ".join(
            [*([url_options] if url_options else []), *(f"-c {key}={value}" for key, value in settings.items())]
        )
        address = self._address(name, options=options)
        return Wire(address, silence_s=self._silence_s, is_active=partial(liveness.backend_is_active, address))

    def _takes_effect(self, wire: Wire, settings: dict[str, str]) -> bool:
        """Return whether the settings of the first connection reached the server; a pooler may drop them unasked."""
        [(path,)] = wire.look(_PATH)
        self.pooled = path != settings["search_path"]
        self._checked = True
        return not self.pooled

    def _open_pooled(self, name: str, settings: dict[str, str]) -> Wire:
        """Open a connection to a pooler, whose transactions each bring their settings."""
        # A name of its own, by which its transaction is found on the server: process ids there are the pooler's.
        name = f"{pooled_name(name)}{system_random(4).hex()}"
        address = self._address(name)
        # Its sockets to the server are the pooler's, which looks after them itself.
        own = {key: value for key, value in settings.items() if not key.startswith("tcp_")}
        statement = _local({**own, "application_name": name, "client_encoding": "UTF8"})
        probe = address if self._direct is None else self._direct._address("holdproof-probe")
        is_active = partial(liveness.transaction_is_active, probe, name)
        try:
            wire = Wire(address, silence_s=timeout_s(self._base), settings=statement)
        except OptionsRefusedError as error:
            raise ConfigError(f"the pooler before the server takes no options in the database URL: {error}") from error
        try:
            # A pooler accepts connections while the server is away: only an answer, in the time that connecting may
            # take, shows that it is there.
            wire.send(_USER, {})
            [(user,)] = wire.sync()
            self._refuse_other_login(str(user))
        except HoldproofError:
            wire.close()
            raise
        wire.silence_s = self._silence_s
        wire.is_active = lambda _: is_active()
        return wire

    def _refuse_other_login(self, user: str) -> None:
        """Raise ConfigError where a pooler runs the applications' SQL under another login than theirs."""
        if self._renew is not None and user != self._base["user"]:
            raise ConfigError(
                f"the pooler before the server logs in as {user}, where SQL of applications must run as"
                f" {self._base['user']}: remove user= from its line of the database, and let it authenticate every"
                " login (PgBouncer: auth_user and auth_query)",
                login=user,
            )

    def _address(self, name: str, **parts: str) -> str:
        return make_conninfo(**{**self._base, "client_encoding": "UTF8", "application_name": name, **parts})

    def _has_role_settings(self, wire: Wire) -> bool:
        """Return whether defaults of the login are in effect: only SQL of applications can have set them."""
        wire.send(_ROLE_SETTINGS, {})
        return bool(wire.sync())

    def _renew_login(self) -> bool:
        """Undo what the login changed about itself; returns whether that was possible: the server may be down."""
        assert self._renew is not None
        try:
            credentials = self._renew()
        except HoldproofError:
            return False
        if credentials is not None:
            self._use(credentials)
        return True


def _local(settings: dict[str, str]) -> str:
    """Return one statement that makes these settings for the transaction it is in."""
    calls = (f"pg_catalog.set_config('{key}', '{value}', true)" for key, value in settings.items())
    return f"SELECT {', '.join(calls)}"
