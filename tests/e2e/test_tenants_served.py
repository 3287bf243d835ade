"""Tenants behind one server: each with its own tokens, few of them open at once, closed for whoever needs one alone."""

import asyncio
import http.client
import json
import os
import shutil
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from click.testing import CliRunner

import holdproof
from holdproof import errors, sync
from holdproof.cli.app import app
from holdproof.evidence import tenants
from holdproof.server import ServerSettings, serve
from holdproof.server.serve import ListenAddress, Listening
from holdproof.server.state import ServerState
from holdproof.server.tenant_metrics import OTHERS, TenantMetrics
from holdproof.server.tenants import TenantPool
from holdproof.store.opening import open_place
from holdproof.store.tenants import open_tenants
from holdproof.store.tenants.places import TenantPlace

NAME = "store.example"
NAMES = tuple(f"t{number}" for number in range(5))
MOST = 2


@dataclass
class Served:
    """A server over tenants, and a token of each."""

    home: Path
    address: str
    operator: str
    tokens: dict[str, str]
    pool: TenantPool
    end: Callable[[], object]
    """Has the server stop, as a signal would."""

    @contextmanager
    def ask(self, path: str, token: str, host: str = "") -> Iterator[http.client.HTTPResponse]:
        """Send a GET as a program without the client would; `host` is the name by which it knows the server."""
        headers = {"Authorization": f"Bearer {token}", "Connection": "close", **({"Host": host} if host else {})}
        with closing(http.client.HTTPConnection(urlsplit(self.address).netloc, timeout=60)) as connection:
            connection.request("GET", path, headers=headers)
            with connection.getresponse() as answer:
                yield answer

    @contextmanager
    def stream(self, tenant: str, token: str) -> Iterator[http.client.HTTPResponse]:
        """Open the stream of a tenant's events; what follows is what was sent until it ended."""
        with self.ask(f"/t/{tenant}/v1/events", token) as stream:
            assert stream.readline() == b"retry: 2000\n"
            yield stream

    def connect(self, tenant: str, token: str | None = None) -> "sync.Holdproof":
        return sync.connect(self.address, token or self.tokens[tenant], tenant=tenant)  # type: ignore[return-value]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, dict[str, str]]:
    """Made once: five tenants, each with a token."""
    folder = tmp_path_factory.mktemp("tenants")
    tokens: dict[str, str] = {}
    with sync.open(folder) as store:
        operator = store.tokens.create("operator", role="operator").secret
        for name in NAMES:
            store.tenants.create(name)
            with sync.open(folder, tenant=name) as tenant:
                tenant.agents.register("trader", version="1.0.0")
                tokens[name] = tenant.tokens.create("app", role="operator").secret
    return folder, operator, tokens


@pytest.fixture
def served(home: tuple[Path, str, dict[str, str]]) -> Iterator[Served]:
    folder, operator, tokens = home
    ready = threading.Event()
    ends: list[tuple[asyncio.AbstractEventLoop, ServerState]] = []
    found: list[tuple[Listening, TenantPool]] = []

    async def run() -> None:
        async with holdproof.open(folder) as store:
            settings = ServerSettings(public_log=True)
            pool = TenantPool(store, settings, most=MOST, round_s=0.2)

            async def watch(state: ServerState) -> None:
                ends.append((asyncio.get_running_loop(), state))
                await asyncio.Event().wait()

            def listening(at: Listening) -> None:
                found.append((at, pool))
                ready.set()

            parts = (*serve.parts(console=True), pool.part)
            place = ListenAddress(port=0, names=frozenset({NAME}))
            await serve.serve(store, place, settings, ready=listening, parts=parts, beside=[watch, pool.run])

    thread = threading.Thread(target=lambda: asyncio.run(run()))
    thread.start()
    assert ready.wait(120)
    [(at, pool)] = found
    while not ends:
        pass
    loop, state = ends[0]
    address = at.address.replace(NAME, "127.0.0.1")
    end = partial(loop.call_soon_threadsafe, state.end_streams)
    yield Served(folder, address, operator, tokens, pool, end)
    end()
    thread.join(120)
    assert not thread.is_alive()
    assert not pool.open, "all are closed with the server"


def test_each_tenant_answers_to_its_own_tokens_only(served: Served) -> None:
    with served.connect("t0") as store:
        flow = store.flows.start("trader")
        assert store.flows.get(flow.flow_id).flow_id == flow.flow_id
        with pytest.raises(errors.NotFoundError):
            store.tenants.list()
    with served.connect("t1") as store:
        assert flow.flow_id not in [each.flow_id for each in store.flows.list().items]
    for token in (served.tokens["t0"], served.operator):
        with served.connect("t1", token) as store, pytest.raises(errors.UnauthenticatedError):
            store.flows.list()
    with sync.connect(served.address, served.tokens["t0"]) as parent, pytest.raises(errors.UnauthenticatedError):
        parent.flows.list()


def test_a_public_log_is_the_parents_and_no_tenants(served: Served) -> None:
    for path in ("/checkpoint", "/tile/0/000.p/1"):
        assert httpx.get(f"{served.address}{path}").status_code == 200
        assert httpx.get(f"{served.address}/t/t0{path}").status_code == 401
        mine = {"Authorization": f"Bearer {served.tokens['t0']}"}
        assert httpx.get(f"{served.address}/t/t0{path}", headers=mine).status_code == 200


def test_a_tenant_answers_to_every_name_that_its_server_goes_by(served: Served) -> None:
    for host, status in ((NAME, 200), ("127.0.0.1", 200), ("elsewhere.example", 421)):
        with served.ask("/t/t0/v1/agents/list", served.tokens["t0"], host) as answer:
            assert answer.status == status


def test_the_stream_of_a_tenant_ends_with_the_server(served: Served) -> None:
    with served.stream("t0", served.tokens["t0"]) as stream:
        served.end()
        # Cut off by the end of its task it would raise IncompleteRead.
        assert stream.read() == b"\n"


def test_a_stream_keeps_nobody_from_deleting_its_tenant(served: Served) -> None:
    with sync.connect(served.address, served.operator) as parent:
        parent.tenants.create("watched")
        with sync.open(served.home, tenant="watched") as tenant:
            secret = tenant.tokens.create("app", role="operator").secret
        with served.stream("watched", secret) as stream:
            assert parent.tenants.delete("watched", reason="tried").status == "deleted"
            assert stream.read() == b"\n"


def test_a_stream_keeps_no_tenant_open_whose_log_is_not_believed(served: Served) -> None:
    with sync.connect(served.address, served.operator) as parent:
        parent.tenants.create("watched")
        with sync.open(served.home, tenant="watched") as tenant:
            secret = tenant.tokens.create("app", role="operator").secret
        with served.stream("watched", secret) as stream:
            with sync.open(served.home) as store:
                store.write(lambda tx: tenants.change(tx, tenants.require(tx, "watched"), finding="TAMPERED: tried"))
            # The next round finds it.
            assert stream.read() == b"\n"
        parent.tenants.delete("watched", reason="tried")


def test_a_name_that_nobody_has_says_no_name_of_others(served: Served) -> None:
    for name in ("t9", "T0", "..%2f", "x" * 200):
        with served.connect(name, "hp_none") as store, pytest.raises(errors.NotFoundError) as refused:
            store.flows.list()
        assert "t0" not in str(refused.value)


def test_no_more_are_open_at_once_than_the_server_was_told(served: Served) -> None:
    def use(number: int) -> int:
        with served.connect(NAMES[number % len(NAMES)]) as store:
            while True:
                try:
                    return len(store.flows.list().items)
                except errors.BusyError:  # all that may be open were in use at that moment
                    continue

    with ThreadPoolExecutor(4) as threads:
        for _ in threads.map(use, range(20)):
            assert len(served.pool.open) <= MOST
    before = threading.active_count(), len(os.listdir("/proc/self/fd"))
    for number in range(10):
        use(number)
    assert threading.active_count() <= before[0] + 4
    assert len(os.listdir("/proc/self/fd")) <= before[1] + 20


def test_a_tenant_that_does_not_open_keeps_nobody_from_another(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    arrival, gate = threading.Event(), threading.Event()

    def slow(place: TenantPlace, **options: bool) -> object:
        if place.name == "t0":
            arrival.set()
            assert gate.wait(60)
        return open_place(place, **options)

    def use(name: str) -> int:
        with served.connect(name) as store:
            return len(store.agents.list().items)

    monkeypatch.setattr("holdproof.server.tenants.open_place", slow)
    with ThreadPoolExecutor(2) as threads:
        waiting = threads.submit(use, "t0")
        try:
            assert arrival.wait(60)
            assert threads.submit(use, "t1").result(20) == 1
            assert not waiting.done()
        finally:
            gate.set()
        assert waiting.result(60) == 1


def test_who_has_shown_no_token_is_not_told_where_a_tenant_lies_or_what_is_wrong(served: Served) -> None:
    with sync.connect(served.address, served.operator) as parent:
        parent.tenants.create("broken")
        for file in (served.home / "tenants" / "broken").glob("kernel.db*"):
            file.unlink()
        for _ in range(2):
            with served.connect("broken", "hp_none") as store, pytest.raises(errors.HoldproofError) as refused:
                store.flows.list()
            assert not isinstance(refused.value, errors.UnauthenticatedError)
            assert str(served.home) not in str(refused.value.to_dict())
            assert "GONE" not in str(refused.value)
            parent.tenants.record_heads("broken")
        parent.tenants.delete("broken", reason="tried")


def test_a_tenant_is_given_back_once_the_last_who_wants_it_alone_has_ended(served: Served) -> None:
    place = TenantPlace("t1", served.home / "tenants" / "t1", None)
    with served.connect("t1") as store:
        assert store.agents.list().items
        with open_tenants.released(place):
            with open_tenants.released(place):
                assert "t1" not in served.pool.open
            with pytest.raises(errors.BusyError):
                store.agents.list()
        assert store.agents.list().items


def test_an_operator_creates_records_and_deletes_tenants_through_the_server_that_has_them_open(served: Served) -> None:
    with sync.connect(served.address, served.operator) as parent:
        parent.tenants.create("short-lived")
        with sync.open(served.home, tenant="short-lived") as tenant:
            secret = tenant.tokens.create("app", role="operator").secret
        with served.connect("short-lived", secret) as tenant:
            tenant.agents.register("trader", version="1.0.0")
            assert "short-lived" in served.pool.open
        assert parent.tenants.delete("short-lived", reason="tried").status == "deleted"
        assert "short-lived" not in served.pool.open
        with served.connect("short-lived", secret) as tenant, pytest.raises(errors.NotFoundError):
            tenant.agents.list()


def test_a_command_reaches_a_tenant_through_the_server(served: Served) -> None:
    words = ["--server", served.address, "--token", served.tokens["t3"], "--tenant", "t3", "agents", "list", "--json"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.stderr
    assert [each["agent_id"] for each in json.loads(done.stdout)["items"]] == ["trader"]


def test_a_round_that_fails_ends_neither_the_rounds_nor_the_service(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds = threading.Semaphore(0)

    def fail(*arguments: object) -> object:
        del arguments
        rounds.release()
        raise ValueError("a defect")

    monkeypatch.setattr("holdproof.store.tenants.heads._observe", fail)
    for _ in range(2):
        assert rounds.acquire(timeout=60)
    with served.connect("t0") as store:
        assert store.agents.list().items


def test_heads_are_recorded_while_tenants_are_used(served: Served) -> None:
    with served.connect("t2") as store:
        flow = store.flows.start("trader")
        size = store.log.head().checkpoint.size
    with sync.connect(served.address, served.operator) as parent:
        for _ in range(200):
            if (parent.tenants.get("t2").size or 0) >= size:
                break
            threading.Event().wait(0.1)
        else:
            raise AssertionError("no round recorded the head")
    assert flow.flow_id


# --- numbers -----------------------------------------------------------------------------------------------------


def scraped(served: Served) -> dict[str, float]:
    """What a scrape of the server says, by name and labels; promtool accepts it, where it is installed."""
    with served.ask("/metrics", served.operator) as answer:
        assert answer.status == 200
        text = answer.read().decode()
    program = shutil.which("promtool")
    if program is not None:
        checked = subprocess.run([program, "check", "metrics"], input=text, capture_output=True, text=True, check=False)
        assert (checked.returncode, checked.stdout + checked.stderr) == (0, "")
    lines = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in lines}


def test_a_scrape_tells_of_each_tenant_by_its_name(served: Served) -> None:
    for name in ("t0", "t1"):
        with served.connect(name) as store:
            store.flows.start("trader")
    with served.connect("t1", "wrong") as store, pytest.raises(errors.UnauthenticatedError):
        store.flows.list()
    with served.ask("/t/nobody/v1/flows/list", served.operator) as refused:
        assert refused.status == 404
    numbers = scraped(served)
    assert numbers["holdproof_tenants_open"] == MOST
    assert numbers['holdproof_tenants{status="active"}'] == len(NAMES)
    assert numbers['holdproof_tenant_requests_total{tenant="t0",status="2xx"}'] >= 1
    assert numbers['holdproof_tenant_requests_total{tenant="t1",status="4xx"}'] == 1
    assert numbers['holdproof_tenant_request_seconds_total{tenant="t1"}'] > 0
    for name in ("t0", "t1"):
        assert numbers[f'holdproof_tenant_flows{{tenant="{name}"}}'] >= 1
        assert numbers[f'holdproof_tenant_database_up{{tenant="{name}"}}'] == 1
        assert numbers[f'holdproof_tenant_locked{{tenant="{name}"}}'] == 0
    assert not [name for name in numbers if "nobody" in name], "who asks for names adds no series"
    assert not [name for name in numbers if 'tenant="t2"' in name], "one that was not used has none"


def test_a_tenant_with_a_finding_is_named_by_a_scrape(served: Served) -> None:
    with sync.open(served.home) as parent:
        row = parent.read(partial(tenants.require, tenant="t4"))
        parent.write(lambda tx: tenants.change(tx, row, finding="TAMPERED: by a test"))
    try:
        numbers = scraped(served)
        assert numbers["holdproof_tenant_findings"] == 1
        assert numbers['holdproof_tenant_finding{tenant="t4"}'] == 1
    finally:
        with sync.open(served.home) as parent:
            parent.tenants.accept("t4", reason="it was a test")
    assert scraped(served)["holdproof_tenant_findings"] == 0


def test_the_numbers_of_requests_are_bounded_whatever_the_number_of_tenants() -> None:
    counted = TenantMetrics(most_named=2)
    for number in range(50):
        counted.observe(f"t{number}", 200, 0.5)
    requests = {each.labels["tenant"]: each.value for each in counted.numbers() if "requests" in each.name}
    assert requests == {"t0": 1, "t1": 1, OTHERS: 48}
