"""The small parts of the server that need no server: buckets, the book at the door, metrics, names of hosts."""

import asyncio
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from starlette.types import Message, Receive, Scope, Send

import holdproof
from holdproof.api import wire
from holdproof.client import Holdproof
from holdproof.errors import RequestError, UnavailableError
from holdproof.model.access import AccessEvent
from holdproof.model.page import Page
from holdproof.model.value import field_names
from holdproof.server import access_log_buffer, bodies, pages, scrapes, tenant_metrics
from holdproof.server.access_log_buffer import AccessLogBuffer
from holdproof.server.metrics import Metrics, MetricValue
from holdproof.server.middleware import Middleware, SecurityHeadersMiddleware
from holdproof.server.permissions import Caller
from holdproof.server.rate_limit import Buckets
from holdproof.server.serve import ListenAddress
from holdproof.server.state import ScopedStores

EVENT = AccessEvent(0, "denied", 401, "c", "", "1.2.3.4", "GET", "/x", "no", 1, "")


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Book:
    """What a store's tokens keep."""

    def __init__(self) -> None:
        self.events: list[AccessEvent] = []
        self.used: dict[str, str] = {}
        self.broken = False

    @property
    def tokens(self) -> "Book":
        return self

    @property
    def access_log(self) -> "Book":
        return self

    async def record(self, events: list[AccessEvent]) -> None:
        if self.broken:
            raise UnavailableError("no disk")
        self.events += events

    async def touch(self, used: dict[str, str]) -> None:
        self.used |= used


def made(clock: Clock) -> tuple[Book, AccessLogBuffer]:
    book = Book()
    return book, AccessLogBuffer(cast("Holdproof", book), lambda: "now", clock)


def test_a_bucket_lets_a_burst_pass_and_then_its_rate() -> None:
    clock = Clock()
    buckets = Buckets(2.0, 4.0, clock)
    assert [buckets.take("a") for _ in range(4)] == [0.0] * 4
    assert buckets.take("a") == pytest.approx(0.5)
    assert buckets.take("b") == 0.0
    clock.now += 0.5
    assert buckets.take("a") == 0.0
    assert buckets.take("a") > 0
    buckets.charge("a", 100)
    clock.now += 2.4
    assert buckets.take("a") == pytest.approx(0.1)
    assert Buckets(0, 0, clock).take("a") == 0.0


def test_buckets_do_not_grow_without_end() -> None:
    buckets = Buckets(1.0, 1.0, Clock())
    for number in range(10_050):
        buckets.take(str(number))
    assert buckets.take("10049") > 0
    assert buckets.take("0") == 0.0


def test_more_of_the_same_within_a_minute_is_counted_and_written_once() -> None:
    clock = Clock()
    book, door = made(clock)

    async def story() -> None:
        for _ in range(5):
            await door.note(EVENT)
        assert [each.count for each in book.events] == [1]
        await door.flush()
        assert len(book.events) == 1
        clock.now += access_log_buffer.WINDOW_S
        await door.flush()
        assert [each.count for each in book.events] == [1, 4]
        await door.note(EVENT)
        await door.flush(ending=True)
        assert [each.count for each in book.events] == [1, 4, 1]

    asyncio.run(story())


def test_a_flood_of_kinds_becomes_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(access_log_buffer, "MOST", 3)
    book, door = made(Clock())

    async def story() -> None:
        for number in range(20):
            await door.note(AccessEvent(0, "denied", 401, "c", "", f"a{number}", "GET", "/", "", 1, ""))
        await door.flush(ending=True)

    asyncio.run(story())
    assert [(each.address, each.count) for each in book.events] == [("a0", 1), ("a1", 1), ("a2", 1), ("", 1), ("", 16)]


def test_a_book_that_cannot_be_written_stops_nobody(caplog: pytest.LogCaptureFixture) -> None:
    book, door = made(Clock())
    book.broken = True
    asyncio.run(door.note(EVENT))
    assert "could not be written" in caplog.text


def test_the_last_use_of_a_token_is_written_every_few_minutes() -> None:
    clock = Clock()
    book, door = made(clock)
    door.used("t")
    asyncio.run(door.flush())
    assert book.used == {"t": "now"}
    book.used.clear()
    door.used("t")
    asyncio.run(door.flush())
    assert book.used == {}
    clock.now += 301
    door.used("t")
    asyncio.run(door.flush())
    assert book.used == {"t": "now"}


def test_metrics_are_what_prometheus_reads() -> None:
    metrics = Metrics()
    metrics.observe("GET", '/a"b\\c\n', 200, 0.002)
    metrics.observe("GET", '/a"b\\c\n', 200, 99.0)
    lines = metrics.text(
        [MetricValue("up", "Up.", 12345678), MetricValue("size", "Size.", 2.5, {"part": "wal"})]
    ).splitlines()
    route = r'route="/a\"b\\c\n"'
    assert f'holdproof_http_requests_total{{method="GET",{route},status="200"}} 2' in lines
    assert f'holdproof_http_request_seconds_bucket{{method="GET",{route},le="0.0025"}} 1' in lines
    assert f'holdproof_http_request_seconds_bucket{{method="GET",{route},le="+Inf"}} 2' in lines
    assert f'holdproof_http_request_seconds_count{{method="GET",{route}}} 2' in lines
    assert lines[-4:] == ["up 12345678", "# HELP size Size.", "# TYPE size gauge", 'size{part="wal"} 2.5']


@pytest.mark.parametrize(
    ("place", "local", "hosts"),
    [
        (ListenAddress(), True, {"127.0.0.1", "localhost", "::1"}),
        (ListenAddress("localhost"), True, {"127.0.0.1", "localhost", "::1"}),
        (ListenAddress("127.0.0.9"), True, {"127.0.0.1", "localhost", "::1", "127.0.0.9"}),
        (ListenAddress("0.0.0.0"), False, set()),
        (
            ListenAddress("0.0.0.0", names=frozenset({"hf.example"})),
            False,
            {"127.0.0.1", "localhost", "::1", "hf.example"},
        ),
        (ListenAddress("10.0.0.1"), False, {"127.0.0.1", "localhost", "::1", "10.0.0.1"}),
        (ListenAddress("hf.example"), False, {"127.0.0.1", "localhost", "::1", "hf.example"}),
    ],
)
def test_where_it_listens_says_who_reaches_it_and_by_which_names(place: ListenAddress, local: bool, hosts: Any) -> None:
    assert place.local is local
    assert place.hosts == hosts


@pytest.mark.parametrize("body", [b"\xff=1", b"a", b"&".join(b"a=1" for _ in range(1001))])
def test_what_is_no_form_is_refused(body: bytes) -> None:
    with pytest.raises(RequestError):
        pages.parse(body)


def test_a_form_keeps_empty_fields_and_their_order() -> None:
    assert pages.parse(b"b=&a=1+2&b=%C3%A9") == [("b", ""), ("a", "1 2"), ("b", "é")]
    assert pages.parse(b"") == []


def test_a_caller_sees_a_store_for_its_namespace_and_the_whole_for_nouns_that_know_none(tmp_path: Path) -> None:
    async def main() -> None:
        async with holdproof.open(tmp_path / "home") as store:
            faces, bound = ScopedStores(store), Caller("agent", "bot", "far", "bot", frozenset({"relational"}))
            assert faces.of(Caller("operator", "ann")) is store
            assert faces.of(bound, "relational") is store
            assert faces.of(bound, "flows").ns == "far"
            assert faces.of(bound, "flows") is faces.of(bound, "objects"), "it is made once"

    asyncio.run(main())


@pytest.mark.parametrize("answers", [True, False])
def test_a_scraper_that_is_not_known_yet_waits_longer_before_the_database_counts_as_gone(
    answers: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A database that is only busy answers in a while."""
    monkeypatch.setattr(scrapes, "_FIRST_PATIENCE_S", 60 if answers else 0)

    async def scrape() -> Caller | None:
        scrapers, busy = scrapes.Scrapers(), asyncio.Event()

        async def look() -> Caller | None:
            await busy.wait()
            return Caller("auditor", "test")

        asyncio.get_running_loop().call_later(0.01, busy.set)
        return await scrapers.caller("Bearer x", look)

    if answers:
        assert asyncio.run(scrape()) == Caller("auditor", "test")
    else:
        with pytest.raises(UnavailableError):
            asyncio.run(scrape())


def test_a_scrape_outlives_a_tenant_that_is_closed_under_it() -> None:
    """Closing ends the look into the tenant's database; who asked for numbers was not cancelled."""

    async def run() -> list[MetricValue]:
        asked = asyncio.Event()

        async def hang() -> None:
            asked.set()
            await asyncio.Event().wait()

        numbers: scrapes.SingleLook[list[MetricValue]] = scrapes.SingleLook(60)
        store = SimpleNamespace(lockdown=SimpleNamespace(status=hang))
        state = cast(Any, SimpleNamespace(numbers=numbers, store=store))
        scrape = asyncio.ensure_future(tenant_metrics.of_open({"acme": state}))
        await asked.wait()
        numbers.cancel()
        return await scrape

    [up] = asyncio.run(run())
    assert (up.name, up.value) == ("holdproof_tenant_database_up", 0)


def test_who_asks_and_is_cancelled_leaves_the_look_to_others() -> None:
    async def run() -> int:
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        look: scrapes.SingleLook[int] = scrapes.SingleLook(60)

        async def question() -> int:
            return await answer

        first = asyncio.ensure_future(look.ask(question))
        await asyncio.sleep(0)
        second = asyncio.ensure_future(look.ask(question))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.wait([first])
        assert first.cancelled()
        answer.set_result(7)
        return await second

    assert asyncio.run(run()) == 7


@dataclass(frozen=True)
class Held:
    name: str
    size: int
    inner: "Held | None" = None


class Level(IntEnum):
    LOW = 1


@dataclass(frozen=True)
class NamedLevel(dict[str, int]):
    name: str = ""


@pytest.mark.parametrize(
    ("value", "count"),
    [
        (None, 1),
        ("text", 1),
        (b"bytes", 1),
        (1.5, 1),
        ([], 1),
        ([1, "two", None], 4),
        ({"a": [1, 2], "b": "x"}, 5),
        (Held("a", 1), 4),
        (Held("a", 1, Held("b", 2)), 7),
        ([Held("a", 1)] * 2, 9),
        (Page([Held("a", 1)], None), 7),
        (Level.LOW, 1),
        (iter([1, 2, 3]), 1),
    ],
)
def test_every_value_of_an_answer_is_counted(value: Any, count: int) -> None:
    assert bodies._count_up_to(value, 1_000) == count


def test_counting_ends_where_an_answer_is_large_enough_for_a_thread() -> None:
    endless: list[Any] = []
    endless.append(endless)
    assert bodies._count_up_to(endless, 2_000) == 2_000


def test_only_what_is_a_dataclass_and_nothing_else_is_sent_by_its_fields() -> None:
    assert field_names(Held) == ("name", "size", "inner")
    assert field_names(str) is None
    assert field_names(Level) is None
    assert field_names(NamedLevel) is None, "it is a mapping, and sent as one"
    assert wire.dump(Held("a", 1, Held("b", 2))) == {
        "name": "a",
        "size": 1,
        "inner": {"name": "b", "size": 2, "inner": None},
    }


def test_an_answer_keeps_the_headers_it_brings_and_gets_those_it_lacks() -> None:
    async def answer(_scope: Scope, _receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"Cache-Control", b"max-age=5")]})
        await send({"type": "http.response.body", "body": b""})

    messages: list[Any] = []

    async def main() -> None:
        async def send(message: Message) -> None:
            messages.append(message)

        state = SimpleNamespace(settings=SimpleNamespace(secure=True))
        app = SimpleNamespace(state=SimpleNamespace(holdproof=state))
        await SecurityHeadersMiddleware(answer)({"type": "http", "app": app}, cast("Receive", None), send)

    asyncio.run(main())
    names = [name.lower() for name, _ in messages[0]["headers"]]
    assert len(names) == len(set(names)), "none is there twice"
    assert (b"Cache-Control", b"max-age=5") in messages[0]["headers"]
    assert {b"x-frame-options", b"strict-transport-security", b"content-security-policy"} <= set(names)


def test_what_is_no_request_is_not_passed_on() -> None:
    async def app(scope: Scope, _receive: Receive, _send: Send) -> None:
        passed.append(scope["type"])

    async def main() -> None:
        for kind in ("websocket", "lifespan", "http"):
            await Middleware(app)({"type": kind}, cast("Receive", None), cast("Send", None))

    passed: list[str] = []
    asyncio.run(main())
    assert passed == ["lifespan", "http"]
