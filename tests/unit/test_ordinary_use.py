"""What a developer touches first: types of steps, `help` and `repr`, texts as paths, and errors that name the cure."""

import asyncio
import json
import os
import pydoc
import socket
import traceback
from pathlib import Path
from typing import Any, assert_type

import pytest
from click.testing import CliRunner, Result

import holdproof
from holdproof import errors, sync
from holdproof.api.runtime import Flows
from holdproof.cli.app import app
from holdproof.executors import Method
from tests.store_locations import submit


@pytest.fixture(autouse=True)
def clean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("HOLDPROOF_", "XDG_", "PG"))]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOLDPROOF_HOME", "store")


def run(*words: str) -> Result:
    return CliRunner().invoke(app, words)


# --- types, help and repr ------------------------------------------------------------------------------------------


def price(item: str) -> int:
    return len(item)


async def price_later(item: str) -> int:
    return len(item)


def test_a_step_has_the_type_of_its_function_in_both_clients() -> None:
    """The types are checked by mypy, which `make check` runs over this file."""

    def refund(flow: sync.OpenFlow, item: str) -> int:
        return assert_type(flow.step("price", price, item), int)

    async def refund_later(flow: holdproof.OpenFlow, item: str) -> int:
        plain = assert_type(await flow.step("price", price, item), int)
        return plain + assert_type(await flow.step("later", price_later, item), int)

    async def both() -> int:
        async with holdproof.open(":memory:") as store:
            await store.agents.register("buyer", version="1.0.0")
            return await store.flow(agent="buyer")(refund_later)("milk")

    with sync.open(":memory:") as store:
        store.agents.register("buyer", version="1.0.0")
        assert store.flow(agent="buyer")(refund)("milk") == 4
    assert asyncio.run(both()) == 8


def test_help_shows_the_signature_and_the_documentation_of_a_method() -> None:
    with sync.open(":memory:") as store:
        text = pydoc.plain(pydoc.render_doc(store.flows.start))
        assert "agent_id: str" in text
        assert "flow_type: str" in text
        assert "Open a flow for an agent" in text
    # Of the class, without a store.
    assert "start" in pydoc.plain(pydoc.render_doc(Flows))
    assert isinstance(Flows.start, Method)


def test_repr_says_what_a_store_a_resource_and_a_method_are() -> None:
    with sync.open("store", ns="team") as store:
        assert repr(store) == f"<holdproof.sync.Holdproof {Path('store').absolute()}, namespace team>"
        assert repr(store.locks) == "<Locks: acquire, extend, list, release, release_all, try_acquire>"
        assert repr(store.blobs).startswith("<Blobs: ")
        assert repr(store.locks.list).startswith("<method list(*, ")
    assert repr(store).endswith(", closed>")


def test_no_password_is_in_the_repr_of_a_store(postgres_url: str) -> None:
    url = postgres_url.replace("postgres@", "postgres:s3cret@", 1)
    with sync.open(url, home="store") as store:
        assert "s3cret" not in repr(store)


# --- arguments -----------------------------------------------------------------------------------------------------


def test_a_path_may_be_a_text_everywhere() -> None:
    with sync.open("store") as store:
        submit(store, "b-1")
        root = store.keys.export_root(recovery="recovery.txt")
        assert Path("recovery.txt").read_text().strip() == root.recovery.strip()
        store.keys.export_root(recovery="again.txt")
        with pytest.raises(errors.NotFoundError):
            store.imports.green_agent("none.db", dboms="none")
        store.objects.put("a", type="t")
        store.snapshots.create("first")
        store.archive.export_car("1.car")
        store.image.dump("image")
        store.backup.create("backup", keys=True)
        assert [each.path for each in store.backup.list(".").items] == ["backup"]
    assert sync.restore("backup", "other").size > 0


def test_a_dbom_is_verified_by_the_id_of_its_evaluation_or_as_it_was_got() -> None:
    with sync.open("store") as store:
        submit(store, "b-1")
        bom = store.dbom.get("b-1")
        for document in ("b-1", bom, bom.text, bom.text.encode(), json.loads(bom.text)):
            assert store.dbom.verify(document).verdict.word == "VALID"
        with pytest.raises(errors.NotFoundError):
            store.dbom.verify("nobody")
        assert store.dbom.verify("{}").verdict.word == "TAMPERED"


def test_public_keys_are_in_the_list_of_keys() -> None:
    with sync.open("store") as store:
        submit(store, "b-1")
    keys = json.loads(run("keys", "list", "--json").stdout)["items"]
    assert {key["role"] for key in keys} == {"judge", "log", "root"}
    assert all(key["public"].startswith("-----BEGIN PUBLIC KEY-----") for key in keys)


def test_a_list_whose_declaration_names_no_columns_is_a_table_too() -> None:
    with sync.open("store") as store:
        store.agents.register("trader", version="1.0.0")
        with store.flows.run("trader") as flow:
            pass
    head, *rows = run("flows", "transitions", flow.flow_id).stdout.splitlines()
    assert {"FLOW_ID", "TO_STATUS"} <= set(head.split())
    assert "LEAF_ID" not in head
    assert [flow.flow_id in row for row in rows] == [True, True]


# --- errors --------------------------------------------------------------------------------------------------------


def test_a_traceback_ends_with_the_cure() -> None:
    with pytest.raises(errors.NoStoreError) as raised:
        sync.open("typo", create=False)
    shown = "".join(traceback.format_exception(raised.value))
    assert shown.rstrip().endswith(raised.value.remedy)
    assert "holdproof db migrate" in raised.value.remedy


def test_an_error_without_a_cure_of_its_own_is_one_line() -> None:
    with sync.open("store"):
        pass
    done = run("flows", "list", "--limit", "0")
    assert (done.exit_code, len(done.stderr.splitlines())) == (2, 1), done.stderr


def test_a_port_in_use_names_the_option_that_helps() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = run("up", "--port", str(port), "--no-console")
    assert done.exit_code == 7
    *_, message, remedy = done.stderr.splitlines()
    assert (f"port {port}: it is in use" in message, "--port" in remedy) == (True, True), done.stderr


def test_a_home_without_its_log_key_names_where_to_find_it() -> None:
    with sync.open("store"):
        pass
    Path("store/config/keys/log.pem").unlink()
    with sync.open("store") as store, pytest.raises(errors.BadKeyError) as raised:
        store.agents.register("trader", version="1.0.0")
    assert "backup made with --keys" in raised.value.remedy


def test_a_locked_store_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    with sync.open("store") as store:
        store.lockdown.lock(reason="keys were stolen")
    caplog.clear()
    done = run("flows", "list")
    told: list[Any] = [line for line in done.stderr.splitlines() if "LOCKED since" in line]
    assert len(told) == 1, done.stderr
    assert [record for record in caplog.records if "LOCKED since" in record.getMessage()] == []
