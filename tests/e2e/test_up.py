"""`holdproof up` as a process of its own: where it listens, what it tells, how it ends."""

import json
import os
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
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
from psycopg.conninfo import conninfo_to_dict

from harness import filling
from harness.servers import Postgres
from harness.tcp_proxy import Fault, Proxy, to_unix
from holdproof import sync
from holdproof.cli.app import app
from holdproof.errors import ConfigError
from holdproof.server import readiness, scrapes
from holdproof.server.serve import ListenAddress
from holdproof.server.settings import ServerSettings
from tests.web import running

HOLDPROOF = [sys.executable, "-m", "holdproof"]


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
        assert process.wait(60) == 0
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


def test_the_log_tells_of_start_requests_and_stop_as_lines_of_json(tmp_path: Path) -> None:
    with up(tmp_path, "--log-json") as (process, told):
        with httpx.Client(base_url=told["address"]) as client:
            assert client.get("/healthz").status_code == 200
            assert client.get("/v1/agents/list?status=s3cret").status_code == 401
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        assert process.stderr is not None
        text = process.stderr.read()
    lines = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    messages = [line["message"] for line in lines]
    assert f"listening on {told['address']}" in messages
    [request] = [line for line in lines if line["logger"] == "holdproof.server.requests"]
    assert (request["method"], request["path"], request["status"]) == ("GET", "/v1/agents/list", 401)
    assert [message.partition(":")[0] for message in messages[-2:]] == ["stopping", "stopped"]
    assert "s3cret" not in text, "a query may hold a secret"


def test_a_call_that_waits_for_a_person_is_told_to_call_again_when_the_server_stops(tmp_path: Path) -> None:
    """It would hold the end of the server, and be cut off then without a word."""
    with ThreadPoolExecutor(1) as thread:
        with running(tmp_path / "home") as web:
            web.store.agents.register("clerk", version="1")
            asked = web.store.escalations.request(filling.running(web.store, "clerk"), reason="may I?")
            headers = {"Authorization": f"Bearer {web.store.tokens.create('bob').secret}"}
            address = web.listening.address
            waiting = thread.submit(
                httpx.post, f"{address}/v1/escalations/wait", json={"id": asked.id}, headers=headers, timeout=60
            )
            # The other request under way is the one that asks.
            while "holdproof_http_requests_under_way 2" not in httpx.get(f"{address}/metrics", headers=headers).text:
                assert not waiting.done(), waiting.result().text
                time.sleep(0.02)
        answer = waiting.result()
    assert answer.status_code == 503
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["code"] == "request.stopping"


def test_with_a_level_the_log_holds_nothing_below_it(tmp_path: Path) -> None:
    with up(tmp_path, "--log-level", "warning") as (process, told):
        assert httpx.get(f"{told['address']}/healthz").status_code == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        assert process.stderr is not None
        assert "listening on" not in process.stderr.read()


def test_a_database_that_goes_is_logged_and_answered_at_once_and_so_is_its_return(
    tmp_path: Path, postgres: Postgres, postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Kubernetes waits one second for a probe: the answer must not wait for the database."""
    caplog.set_level("INFO", "holdproof.server")
    name = conninfo_to_dict(postgres_url)["dbname"]
    assert readiness._PATIENCE_S < 1
    # Who scrapes, and what: one wait each, or one long one. Prometheus gives up after ten seconds.
    assert max(2 * scrapes._PATIENCE_S, scrapes._FIRST_PATIENCE_S) < 5
    with sync.open(tmp_path, postgres_url) as store:
        token = store.tokens.create("prometheus", role="auditor").secret
    with closing(Proxy(to_unix(postgres.socket))) as proxy:
        url = f"postgresql://postgres@127.0.0.1:{proxy.port}/{name}?sslmode=disable&gssencmode=disable"
        with running(tmp_path, ServerSettings(watch_s=0.1), url=url) as web:
            with httpx.Client(base_url=web.listening.address, timeout=30) as client:
                assert client.get("/readyz").status_code == 200
                scraper = {"Authorization": f"Bearer {token}"}
                text = client.get("/metrics", headers=scraper).text
                assert "holdproof_database_up 1" in text
                assert "holdproof_log_leaves" in text
                proxy.arm(Fault("part", lasts_s=600))
                until(lambda: client.get("/readyz").status_code == 503)
                # The scraper that was let in before sees what the process knows itself; another one is refused.
                answer = client.get("/metrics", headers=scraper, timeout=60)
                assert answer.status_code == 200
                assert "holdproof_database_up 0" in answer.text
                assert "holdproof_http_requests_total" in answer.text
                assert "holdproof_log_leaves" not in answer.text
                refused = client.get("/metrics", headers={"Authorization": "Bearer hp_other"}, timeout=60)
                assert refused.status_code == 503
                assert client.get("/healthz").status_code == 200
                # The watcher sees it too, with nobody asking.
                until(lambda: "the database does not answer" in caplog.text)
                proxy.heal()
                until(lambda: client.get("/readyz").status_code == 200)
            until(lambda: "the database answers again" in caplog.text)


def until(condition: Callable[[], object]) -> None:
    """Wait until something is so; a minute is for machines that have much to do."""
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_a_server_writes_memory_images_that_are_due_by_itself(
    tmp_path: Path, database: str, request: pytest.FixtureRequest
) -> None:
    url = None if database == "sqlite" else str(request.getfixturevalue("postgres_url"))
    with running(tmp_path / "home", url=url, settings=ServerSettings(images_s=0.01)) as web:
        web.store.objects.put("a", type="t", content="kept")
        deadline = time.monotonic() + 30
        while not web.store.image.list().items:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        with web.store.image.open() as image:
            assert image.get("a").content == "kept"


@pytest.mark.parametrize("database", ["sqlite", "postgres"])
def test_a_server_makes_the_backups_that_the_settings_ask_for(
    tmp_path: Path, database: str, request: pytest.FixtureRequest
) -> None:
    url = None if database == "sqlite" else str(request.getfixturevalue("postgres_url"))
    (tmp_path / "home" / "config").mkdir(parents=True)
    (tmp_path / "home" / "config" / "config.yaml").write_text(f"backups: {{folder: {tmp_path / 'backups'}, keep: 2}}\n")
    with running(tmp_path / "home", url=url, settings=ServerSettings(backups_s=0.01)) as web:
        until(lambda: (tmp_path / "backups").is_dir() and bool(web.store.backup.list(tmp_path / "backups").items))
        (made,) = web.store.backup.list(tmp_path / "backups").items
        assert web.store.backup.check(made.path).root == made.root
