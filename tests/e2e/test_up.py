"""`holdproof up` as a process of its own: where it listens, what it tells, how it ends."""

import json
import os
import signal
import ssl
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from holdproof import sync
from holdproof.cli.app import app
from holdproof.errors import ConfigError
from holdproof.server.serve import ListenAddress
from tests.web import running

HOLDPROOF = [sys.executable, "-m", "holdproof.cli"]


def environment(home: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("HOLDPROOF", "XDG_", "PG"))}
    return {**kept, "HOLDPROOF_HOME": str(home), "HOME": str(home)}


@contextmanager
def up(home: Path, *words: str) -> Iterator[tuple["subprocess.Popen[str]", dict[str, Any]]]:
    """A server that listens, and what it told."""
    process = subprocess.Popen(
        [*HOLDPROOF, "up", "--port", "0", "--json", *words],
        env=environment(home),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        told = ""
        for line in process.stdout:
            told += line
            if line.startswith("}"):
                break
        assert told, process.communicate()[1]
        yield process, json.loads(told)
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def test_it_tells_its_address_and_a_link_and_ends_by_a_signal_with_its_store_closed(tmp_path: Path) -> None:
    with up(tmp_path) as (process, told):
        assert told["address"].startswith("http://127.0.0.1:")
        with httpx.Client(base_url=told["address"]) as client:
            assert client.get("/readyz").json()["status"] == "ready"
            code = told["link"].split("code=")[1]
            assert client.post("/login", data={"code": code}).status_code == 303
            assert client.get("/v1/agents/list").status_code == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
        assert process.stderr is not None
        assert "Traceback" not in process.stderr.read()
    with sync.open(tmp_path) as store:
        assert [each.event for each in store.access_log.list().items] == ["login"]
        assert store.verify.run().verdict.sound


@pytest.mark.parametrize(
    ("place", "said"),
    [
        (ListenAddress("0.0.0.0", 0), "holdproof tokens create"),
        (ListenAddress("192.0.2.1", 0), "holdproof tokens create"),
        (ListenAddress(port=0, tls_cert=Path("x")), "go together"),
        (ListenAddress(port=0, tls_cert=Path("x"), tls_key=Path("y")), "cannot be used"),
    ],
)
def test_it_does_not_listen_before_it_is_safe_to(tmp_path: Path, place: ListenAddress, said: str) -> None:
    with pytest.raises(ConfigError, match=said), running(tmp_path, place=place):
        pytest.fail("it listens")


def test_a_port_that_is_taken_is_said_to_be(tmp_path: Path) -> None:
    with running(tmp_path / "a") as web:
        taken = ListenAddress(port=web.port)
        with pytest.raises(ConfigError, match="in use"), running(tmp_path / "b", place=taken):
            pytest.fail("it listens")


def certificate(folder: Path) -> tuple[Path, Path]:
    """A certificate for this machine, signed by itself."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    (folder / "cert.pem").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    plain = serialization.NoEncryption()
    kind = serialization.PrivateFormat.PKCS8
    (folder / "key.pem").write_bytes(key.private_bytes(serialization.Encoding.PEM, kind, plain))
    return folder / "cert.pem", folder / "key.pem"


def test_over_tls_the_cookie_is_for_tls_only(tmp_path: Path) -> None:
    cert, key = certificate(tmp_path)
    trust = ssl.create_default_context(cafile=str(cert))
    with sync.open(tmp_path / "home") as store:
        token = store.tokens.create("ci").secret
    place = ListenAddress("0.0.0.0", 0, cert, key)
    with running(tmp_path / "home", place=place, verify=trust) as web:
        assert web.listening.address.startswith("https://127.0.0.1:")
        answer = web.client().post("/login", data={"code": web.listening.link.split("code=")[1]})
        assert answer.headers["set-cookie"].startswith("__Host-holdproof=")
        assert "secure" in answer.headers["set-cookie"].lower()
        assert "max-age" in answer.headers["strict-transport-security"]
        assert web.client(token).get("/v1/agents/list").status_code == 200


def test_without_the_extra_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "holdproof.server", None)
    result = CliRunner().invoke(app, ["--home", str(tmp_path), "up", "--json"])
    assert result.exit_code == 7
    assert "holdproof[server]" in json.loads(result.stdout)["error"]["message"]
