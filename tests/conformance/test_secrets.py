"""Secrets appear nowhere but where they are kept: no log line at any level, no message, traceback, `repr`, answer,
row or report has one, whatever goes wrong."""

import json
import logging
import os
import traceback
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import holdproof
from harness.servers import Postgres
from holdproof import config, sync
from holdproof.cli.app import app
from holdproof.content.kubo import Kubo
from holdproof.db.postgres.connector import Connector
from holdproof.errors import HoldproofError
from holdproof.evidence.key_files import KeyFolder
from holdproof.storage.blobs import open_backend
from holdproof.upkeep import head_webhook, notify
from tests.web import Web, running

SECRET = "hunter2-s3cr3t-Zq9"
PLACES = (
    "postgresql://ann:{s}@127.0.0.1:1/store",
    "postgresql://ann:{s}@no.such.host.invalid/store",
    "postgresql://ann@127.0.0.1:1/store?password={s}",
    "postgresql://ann:{s}@127.0.0.1:1/store?no_such_option=1",
    "postgresql://ann:{s}@127.0.0.1:nonsense/store",
    "postgresql://ann:a/b@{s}@127.0.0.1:1/store",
    "postgresql://ann:{s}%zz@127.0.0.1:1/store",
    "postgresql://ann:{s}@[::1/store",
    "mysql://ann:{s}@127.0.0.1/store",
    "postgresql:ann:{s}@127.0.0.1/store",
)


class Ear:
    """Everything that was said, wherever."""

    def __init__(self, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> None:
        self._caplog, self._capfd = caplog, capfd
        self.heard: list[str] = []

    def hear(self, *said: object) -> None:
        """Anything that a person or a program gets to see."""
        for each in said:
            self.heard += [each if isinstance(each, str) else repr(each), str(each)]
            if isinstance(each, BaseException):
                self.heard += ["".join(traceback.format_exception(each)), repr(vars(each))]
            if isinstance(each, HoldproofError):
                self.heard.append(json.dumps(each.to_dict(), default=str))

    def refused(self, call: Callable[[], object]) -> None:
        """A call that fails, and all that its error says."""
        with pytest.raises((HoldproofError, OSError, ValueError)) as caught:
            call()
        self.hear(caught.value)

    def silent(self, *secrets: str, callers: tuple[str, ...] = ()) -> None:
        """None of the secrets was heard; loggers of `callers` are the test's own."""
        told = self._capfd.readouterr()
        records = [
            f"{each.name} {each.getMessage()} {each.exc_text or ''}"
            for each in self._caplog.records
            if not each.name.startswith(callers)
        ]
        for text in (*self.heard, told.out, told.err, *records):
            for secret in secrets:
                assert secret not in text, text


@pytest.fixture
def ear(caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> Ear:
    caplog.set_level(logging.DEBUG)
    return Ear(caplog, capfd)


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in [name for name in os.environ if name.startswith(("HOLDPROOF_", "XDG_", "PG", "AWS_"))]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    patient = Connector.wire
    # What cannot be reached cannot be reached a second later either.
    monkeypatch.setattr(
        Connector,
        "wire",
        lambda self, name, **options: patient(self, name, **{**options, "patience_s": 0}),
    )


def run(ear: Ear, *words: str, **more: Any) -> str:
    """A command, and all that it says, as text and as JSON and with the whole traceback."""
    said = ""
    for given in (words, (*words, "--json")):
        done = CliRunner().invoke(app, given, env={"HOLDPROOF_DEBUG": "1"}, **more)
        said += done.output
        ear.hear(done.output, *([done.exception] if done.exception is not None else []))
    return said


@pytest.mark.parametrize("place", PLACES)
def test_a_password_of_a_database_is_never_told(ear: Ear, tmp_path: Path, place: str) -> None:
    url, home = place.format(s=SECRET), tmp_path / "home"
    for call in (
        lambda: sync.open(home, url),
        lambda: sync.migrate(home, url),
        lambda: sync.storage(home, url).open("relational"),
        lambda: sync.move(home, url),
        lambda: sync.copy(url, tmp_path / "copy", home),
    ):
        ear.refused(call)
    for tolerant in (sync.check, sync.doctor, sync.verify):
        try:
            ear.hear(tolerant(home, url))
        except HoldproofError as error:
            ear.hear(error)
    for words in (("status",), ("doctor",)):
        run(ear, "--home", str(home), "--url", url, *words)
    ear.silent(SECRET)


@pytest.mark.parametrize("place", PLACES[:3] + PLACES[-2:])
def test_a_password_in_the_settings_is_never_told(
    ear: Ear, tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    (home / "config").mkdir(parents=True)
    monkeypatch.setenv("STORE_URL", place.format(s=SECRET))
    for kind, chosen in (("relational", "postgres"), ("telemetry", "postgres"), ("vector", "pgvector")):
        text = f"providers: {{{kind}: {{type: {chosen}, connection: '${{STORE_URL}}'}}}}\n"
        (home / "config" / "config.yaml").write_text(text)
        for strict in (True, False):
            try:
                ear.hear(config.load(paths=config.Paths.find(home), strict=strict))
            except HoldproofError as error:
                ear.hear(error)
    run(ear, "--home", str(home), "storage", "status")
    ear.silent(SECRET)


def test_a_password_that_works_is_never_told(ear: Ear, tmp_path: Path, postgres: Postgres, postgres_url: str) -> None:
    url = f"{postgres_url}&password={SECRET}"
    with sync.open(tmp_path / "home", url) as store:
        store.blobs.put("a", b"1")
        ear.hear(store, store.core, store.context, store.database, store.database.backend, store.core.settings)
        ear.hear(store.status(), store.storage.status(), store.check(), store.verify.run())
        ear.hear(json.dumps(store.status().to_dict(), default=str))
        [(name, password)] = _login(postgres_url)
        ear.hear(name)
    ear.hear(sync.doctor(tmp_path / "home", url), config.load(paths=config.Paths.find(tmp_path / "home"), url=url))
    for words in (("status",), ("doctor",), ("storage", "status"), ("verify",)):
        run(ear, "--home", str(tmp_path / "home"), "--url", url, *words)
    ear.silent(SECRET, password)


def _login(url: str) -> list[tuple[str, str]]:
    import psycopg  # noqa: PLC0415

    with psycopg.connect(url) as connection:
        return connection.execute("SELECT name, password FROM membrane.membrane_login").fetchall()


def test_keys_of_s3_are_never_told(ear: Ear, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_SESSION_TOKEN", f"{SECRET}-session")
    monkeypatch.setenv("AWS_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setenv("AWS_REGION", "here")
    from holdproof.storage.blobs import s3  # noqa: PLC0415 (an optional extra)

    monkeypatch.setattr(s3, "PATIENCE", timedelta(seconds=0.5))
    place = open_backend("s3://bucket/prefix")
    ear.hear(place, place.where("x"))
    ear.refused(lambda: place.open("ab" * 32))
    given = open_backend(
        "s3://bucket", endpoint="http://127.0.0.1:1", access_key_id="AKIAEXAMPLE", secret_access_key=SECRET
    )
    ear.hear(given, vars(given))
    ear.refused(lambda: given.remove("ab" * 32))
    home = tmp_path / "home"
    (home / "config").mkdir(parents=True)
    (home / "config" / "config.yaml").write_text("providers: {blob: {type: s3, connection: 's3://bucket'}}\n")
    run(ear, "--home", str(home), "blobs", "list")
    run(ear, "--home", str(home), "storage", "status")
    ear.silent(SECRET)


def test_what_a_node_is_reached_by_is_never_told(ear: Ear, tmp_path: Path) -> None:
    url = f"http://ann:{SECRET}@127.0.0.1:1"
    node = Kubo(url, token=SECRET, idle_s=1)
    ear.hear(node, node.url)
    ear.refused(node.version)
    ear.refused(lambda: open_backend(f"ipfs+{url}").open("bafy"))
    home = tmp_path / "home"
    with sync.open(home) as store:
        store.objects.put("x", type="fact")
        store.snapshots.create("one")
        ear.refused(lambda: store.archive.push(node=url, token=SECRET))
        ear.refused(lambda: store.archive.restore("bafyreib", node=url, gateway=url, token=SECRET))
        ear.refused(lambda: store.witness.ask(url))
        ear.refused(lambda: store.witness.add(url, key="nonsense"))
    (home / "config" / "config.yaml").write_text(f"providers: {{blob: {{type: ipfs, connection: 'ipfs+{url}'}}}}\n")
    run(ear, "--home", str(home), "storage", "status")
    run(ear, "--home", str(home), "archive", "push", "--node", url, "--token", SECRET)
    run(ear, "--home", str(home), "witness", "add", url)
    ear.silent(SECRET)


def test_what_a_server_is_reached_by_is_never_told(ear: Ear) -> None:
    url = f"http://ann:{SECRET}@127.0.0.1:1"
    with sync.connect(url, SECRET) as remote:
        ear.hear(remote)
        ear.refused(lambda: remote.flows.list())
        ear.refused(lambda: remote.locks.release_all("x"))
    ear.silent(SECRET)


@pytest.fixture(scope="module")
def web(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Web]:
    with running(tmp_path_factory.mktemp("served") / "home") as found:
        yield found


def test_tokens_links_and_sessions_are_never_told(ear: Ear, web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    made, link = web.store.tokens.create("ci"), web.store.logins.create_link()
    agent = web.store.agents.register("buyer", version="1.0.0")
    ear.hear(made, link, agent, vars(web.store.tokens))
    person = web.logged_in(web.store.logins.create_link().secret)
    session = next(iter(person.cookies.values()))
    gone = web.store.tokens.create("gone")
    web.store.tokens.revoke(gone.token.token_id)
    secrets = (made.secret, link.secret, session, gone.secret, agent.token)
    assert all(secrets)
    for bearer in (*secrets, f"{made.secret}x", made.secret[:-1]):
        caller = web.client(bearer)
        for method, path in (
            ("GET", "/v1/flows/list"),
            ("GET", "/v1/nothing/at-all"),
            ("GET", f"/v1/flows/list?token={made.secret}"),
            ("GET", f"/login?code={link.secret}"),
            ("POST", "/v1/flows/start"),
            ("GET", "/v1/flows/get?dfid=nothing"),
            ("DELETE", "/v1/tokens/list"),
        ):
            answer = caller.request(method, path)
            page = path.startswith("/login") and answer.status_code == 200
            ear.hear("" if page else answer.text, *answer.headers.values())
        ear.hear(caller.post("/v1/tokens/authenticate", json={"secret": 7}).text)
        ear.hear(caller.post("/v1/agents/authenticate", json={"agent_id": "buyer", "token": bearer + "y"}).text)
    ear.hear(web.client().post("/login", data={"code": link.secret + "x"}).text)
    monkeypatch.setattr(type(web.store.core.database), "read", _breaks)
    ear.hear(web.client(made.secret).get("/v1/flows/list").text)
    monkeypatch.undo()
    events = web.store.access_log.list(limit=1000)
    assert events.items
    ear.hear(*events.items, *web.store.tokens.list(all=True).items, web.store.status())
    ear.silent(*secrets, callers=("httpx", "httpcore"))


def _breaks(*_: object, **__: object) -> Any:
    raise RuntimeError("a defect")


def test_passphrases_are_never_told(ear: Ear, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDPROOF_KEY_PASSPHRASE", SECRET)
    home, sealed = tmp_path / "home", tmp_path / "sealed.car"
    with sync.open(home) as store:
        store.objects.put("x", type="fact")
        store.snapshots.create("one")
        store.archive.export_car(sealed, encrypt=f"{SECRET}-archive")
        root = store.keys.export_root()
        ear.hear(store.context.keys, store.context.keys.load("log"), vars(store.context.keys).keys())
        ear.refused(lambda: store.archive.import_car(sealed, passphrase=f"{SECRET}-wrong"))
        recovery = root.recovery
        ear.hear(root)
        ear.refused(lambda: store.keys.recover_root(recovery=recovery[: len(recovery) // 2]))
    spoken = recovery.splitlines()[1]
    monkeypatch.setenv("HOLDPROOF_KEY_PASSPHRASE", f"{SECRET}-wrong")
    ear.refused(lambda: KeyFolder(home / "config" / "keys").load("log"))
    ear.refused(lambda: sync.open(home))
    for words in (("status",), ("doctor",), ("keys", "rotate", "judge"), ("archive", "import", str(sealed))):
        run(ear, "--home", str(home), *words)
    pem = (home / "config" / "keys" / "log.pem").read_text().splitlines()[1]
    ear.silent(SECRET, recovery, spoken, pem)


def test_what_alerts_are_sent_with_is_never_told(ear: Ear, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "HOLDPROOF_NOTIFY_WEBHOOK_URL": f"http://ann:{SECRET}@127.0.0.1:1/{SECRET}",
        "HOLDPROOF_NOTIFY_WEBHOOK_SECRET": SECRET,
        "HOLDPROOF_NOTIFY_TELEGRAM_TOKEN": SECRET,
        "HOLDPROOF_NOTIFY_TELEGRAM_CHAT": "1",
        "HOLDPROOF_NOTIFY_TELEGRAM_URL": "http://127.0.0.1:1",
        "HOLDPROOF_NOTIFY_SIGNAL_URL": f"http://ann:{SECRET}@127.0.0.1:1",
        "HOLDPROOF_NOTIFY_SIGNAL_FROM": "1",
        "HOLDPROOF_NOTIFY_SIGNAL_TO": "2",
        "HOLDPROOF_HEADS_WEBHOOK_URL": f"http://ann:{SECRET}@127.0.0.1:1/{SECRET}",
        "HOLDPROOF_HEADS_WEBHOOK_SECRET": SECRET,
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(notify.Poster.__init__, "__defaults__", (0.2, 1, 0.0))
    monkeypatch.setattr(head_webhook, "_CLOSE_S", 0.5)
    ear.hear(*notify.configured(os.environ)[0], head_webhook.configured(os.environ))
    with sync.open(tmp_path / "home") as store:
        store.agents.register("x", version="1.0.0")
        ear.hear(store.lockdown.lock(reason="a test"), store.status(), sync.doctor(tmp_path / "home"))
    ear.silent(SECRET)


def test_an_async_store_shows_no_secret_either(ear: Ear, tmp_path: Path) -> None:
    store = holdproof.open(tmp_path / "home", f"postgresql://ann:{SECRET}@127.0.0.1:1/store")
    ear.hear(store)
    ear.silent(SECRET)
