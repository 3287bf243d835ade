"""What a network may do to PostgreSQL: a server that says nothing, one that takes its time, one that never connects."""

import socket
import threading
from collections.abc import Iterator
from contextlib import closing

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict
from psycopg.generators import fetch

from harness.servers import Postgres
from harness.tcp_proxy import Fault, Proxy, to_unix
from holdproof import errors
from holdproof.db import Database, Tx, open_database
from holdproof.db.postgres import catalogue, liveness
from holdproof.db.postgres.wire import connect as dial
from holdproof.testing.schema import MIGRATIONS, add, value


@pytest.fixture
def proxy(postgres: Postgres) -> Iterator[Proxy]:
    with closing(Proxy(to_unix(postgres.socket))) as made:
        yield made


@pytest.fixture
def through(proxy: Proxy, empty_postgres_url: str) -> str:
    name = conninfo_to_dict(empty_postgres_url)["dbname"]
    return f"postgresql://postgres@127.0.0.1:{proxy.port}/{name}?sslmode=disable&gssencmode=disable"


@pytest.fixture
def db(through: str) -> Iterator[Database]:
    opening = open_database(through, migrations=MIGRATIONS, workers=1, readers=1, silence_s=0.2)
    with closing(opening) as database:
        yield database


@pytest.mark.parametrize("kind", ["stall up", "stall down", "mute", "withhold", "late", "swallow", "half down"])
def test_a_line_that_dies_without_a_word_costs_a_writer_nothing(db: Database, proxy: Proxy, kind: str) -> None:
    """It hung for ever where the line stayed open: nothing but TCP was asked, and that saw nothing wrong."""
    db.write(lambda tx: add(tx, "before")).result()
    proxy.arm(Fault(kind, lasts_s=0.1))
    assert db.write(lambda tx: add(tx, "c")).result(60) == "c"
    assert proxy.heal()
    assert db.read(lambda tx: [value(tx, name) for name in ("before", "c")]).result(60) == [0, 0]


@pytest.mark.parametrize("kind", ["stall up", "stall down", "cut down", "half down"])
def test_a_line_that_dies_without_a_word_costs_a_reader_nothing(db: Database, proxy: Proxy, kind: str) -> None:
    db.write(lambda tx: add(tx, "c", 5)).result()
    proxy.arm(Fault(kind))
    assert db.read(lambda tx: value(tx, "c")).result(60) == 5
    assert proxy.heal()


def test_a_statement_may_take_its_time_while_the_server_is_at_it(db: Database) -> None:
    def slow(tx: Tx) -> str:
        tx.script("SELECT pg_sleep(1)")
        return add(tx, "c")

    assert db.write(slow).result(60) == "c"


def test_who_waits_for_the_end_of_our_question_is_not_at_work(empty_postgres_url: str) -> None:
    """It calls itself active: the statement is done, and the word that ends the question was lost on its way."""
    with closing(psycopg.connect(empty_postgres_url)) as connection:
        line = connection.pgconn
        line.enter_pipeline_mode()
        line.send_query_params(b"SELECT 1", None)
        line.send_flush_request()
        line.flush()
        connection.wait(fetch(line))
        with psycopg.connect(empty_postgres_url) as other:
            [(state,)] = other.execute("SELECT state FROM pg_stat_activity WHERE pid = %s", [line.backend_pid])
        assert state == "active"
        assert not liveness.backend_is_active(empty_postgres_url, line.backend_pid)


def test_who_cannot_be_asked_is_not_at_work(through: str, proxy: Proxy) -> None:
    with closing(psycopg.connect(through)) as connection:
        assert not liveness.backend_is_active(through, connection.pgconn.backend_pid), "it has nothing to do"
        proxy.close()
        assert not liveness.backend_is_active(through, connection.pgconn.backend_pid)


def test_a_copy_whose_line_dies_without_a_word_is_a_typed_error(
    through: str, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(liveness, "SILENCE_S", 0.2)
    with closing(catalogue.connect(through)) as connection:
        proxy.arm(Fault("stall up"))
        with pytest.raises(errors.UnavailableError), catalogue.translated():
            connection.execute("SELECT 1")


def test_connecting_holds_up_no_other_thread() -> None:
    """libpq's own way to connect keeps the interpreter to itself: a server in this process could never answer."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def hang_up() -> None:
            listening.accept()[0].close()

        answering = threading.Thread(target=hang_up)
        answering.start()
        port = listening.getsockname()[1]
        with pytest.raises(errors.UnavailableError) as caught:
            dial(f"host=127.0.0.1 port={port} sslmode=disable gssencmode=disable connect_timeout=30")
        answering.join()
    assert "timeout" not in str(caught.value)


def test_the_next_host_is_tried_after_one_that_does_not_answer(postgres: Postgres, through: str, proxy: Proxy) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        made = dial(f"{through.replace(f':{proxy.port}/', f':{port},127.0.0.1:{proxy.port}/')}&connect_timeout=2")
        assert made.backend_pid
        made.finish()
