"""How a server is set up."""

from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from holdproof.evidence.witness_server import Cosigner

from holdproof.errors import ConfigError

LOOPBACK: Final = frozenset({"127.0.0.1", "localhost", "::1"})
MIB: Final = 1 << 20
EVERYBODY: Final = "*"


@dataclass(frozen=True, slots=True)
class ProxyLogin:
    """Which header names a person, and who of them may come in as what."""

    header: str
    operators: frozenset[str] = frozenset()
    auditors: frozenset[str] = frozenset()

    def check(self, proxies: str | None) -> None:
        """Raise ConfigError where anybody could send the header, or where it would let nobody in."""
        if proxies is None:
            raise ConfigError(
                "a login header counts only from a proxy: name its address with --proxy", header=self.header
            )
        networks = [_network(each.strip(), self.header) for each in proxies.split(",")]
        if any(each is None or each.prefixlen == 0 for each in networks):
            raise ConfigError(
                "a login header counts only from addresses that nobody else has: name the proxy's with --proxy, not"
                f" {proxies}",
                header=self.header,
            )
        if not self.operators | self.auditors:
            raise ConfigError(
                "the login header lets nobody in: name people with --login-operator or --login-auditor",
                header=self.header,
            )

    def role_of(self, name: str) -> str | None:
        """Return as what a person comes in; None for who does not."""
        for role, names in (("operator", self.operators), ("auditor", self.auditors)):
            if name in names:
                return role
        for role, names in (("operator", self.operators), ("auditor", self.auditors)):
            if EVERYBODY in names:
                return role
        return None


def _network(address: str, header: str) -> IPv4Network | IPv6Network | None:
    """Return the addresses of a proxy; None for everybody. ConfigError for a name, which no connection comes from."""
    if address == EVERYBODY:
        return None
    try:
        return ip_network(address, strict=False)
    except ValueError as error:
        message = f"a login header counts only from an address: --proxy takes one like 10.0.0.2, not {address!r}"
        raise ConfigError(message, header=header) from error


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """What a server allows; the defaults are those of `holdproof up` on this machine."""

    hosts: frozenset[str] = LOOPBACK
    """The names it answers to, without ports; none for any. A page of another name cannot reach it by rebinding DNS."""
    secure: bool = False
    """Whether people reach it over TLS: cookies are Secure, and browsers remember to come that way."""
    proxy_login: ProxyLogin | None = None
    """Which header of a trusted proxy says who somebody is; None for none."""
    public_log: bool = False
    """Whether checkpoint and tiles are for everybody; they tell how much happened and when, not what."""
    session_s: float = 12 * 3600.0
    body_bytes: int = 16 * MIB
    most_values: int = 100_000
    """How many values a body may have."""
    url_bytes: int = 8192
    header_bytes: int = 32_768
    stall_s: float = 10.0
    """How long a body may stand still; beyond that it has to come at `least_bytes_s`."""
    least_bytes_s: float = 16_384.0
    rate_s: float = 1000.0
    """Requests a second for each token, and for each address; 0 for no limit."""
    burst: float = 2000.0
    denied_cost: float = 20.0
    """As how many requests one counts that was refused."""
    most_streams: int = 256
    most_streams_per_caller: int = 32
    heartbeat_s: float = 15.0
    poll_s: float = 0.5
    flush_s: float = 5.0
    watch_s: float = 2.0
    """How often the database is looked at, for the log; 0 for never."""
    sweep_s: float = 30.0
    """How often what time has ended is put away; 0 for never."""
    channels_s: float = 5.0
    """How often people are told through channels what waits for them; 0 for never."""
    witness_s: float = 60.0
    """How often the witnesses of this log are asked to cosign its newest head; 0 for never."""
    stamp_s: float = 60.0
    """How often the server looks whether a time token or an anchor is due; 0 for never."""
    witness: "Cosigner | None" = None
    """The witness that runs here, for logs of others."""
    images_s: float = 30.0
    """How often memory images that are due are written; 0 for never."""
    backups_s: float = 60.0
    """How often the server looks whether a backup is due; 0 for never."""

    @property
    def cookie(self) -> str:
        """The name of the session's cookie; with `__Host-` no other host can have set it."""
        return "__Host-holdproof" if self.secure else "holdproof"
