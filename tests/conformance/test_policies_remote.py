"""Policies from elsewhere: the remote client and the async client, agents at the server, the command line, two
processes of which one is killed."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from click.testing import CliRunner

from holdproof import errors, sync
from holdproof.cli.app import app
from holdproof.client import Holdproof
from holdproof.remote import connect_sync
from holdproof.server import create_app, serve
from tests.served import staged

ALL = "permit(principal, action, resource);"
WRITES = f"""{ALL}
@id("size") forbid(principal, action == Action::"memory.write", resource)
when {{ context has content && context.content == "a yacht" }};
@id("first") @advice("ask") forbid(principal, action == Action::"memory.write", resource == Memory::"objects.delete");
"""
_DIES = """
import os, signal, sys
from holdproof import sync
with sync.open(sys.argv[1]) as store:
    @store.flow(agent="trader", lease_s=0.2)
    def refund(flow, cents):
        return flow.step("pay", lambda cents: os.kill(os.getpid(), signal.SIGKILL), cents, on_unknown="retry")
    refund(100)
"""


@pytest.fixture
def near(sqlite_home: Path) -> Iterator[sync.Holdproof]:
    with sync.open(sqlite_home) as store:
        store.agents.register("trader", version="1.0.0")
        yield store


def test_a_remote_client_creates_activates_and_reads_policies(near: sync.Holdproof) -> None:
    with staged() as stage, stage.showing(near.core) as token, connect_sync(stage.url, token) as far:
        assert far.policies.create("tools", ALL).version == 1
        with pytest.raises(errors.PolicySyntaxError) as caught:
            far.policies.create("tools", "permit(principal\n);")
        assert caught.value.fields["line"] == 2
        assert far.policies.activate("tools").state == "ACTIVE"
        assert far.policies.decide("trader", "tool.call", "search", context={"n": 1}).decision == "allow"
        assert far.policies.reevaluate("forbid(principal, action, resource);").differences[0].draft == "deny"
        far.policies.create("stop", "forbid(principal, action, resource);")
        far.policies.activate("stop")
        with pytest.raises(errors.PolicyDeniedError):
            far.flows.start("trader")
        assert near.policies.decisions(decision="deny").items[0].reasons == ["stop/1"]


def test_the_async_client_does_the_same(near: sync.Holdproof) -> None:
    async def main() -> None:
        store = Holdproof(near.core)
        await store.policies.create("stop", "forbid(principal, action, resource);")
        await store.policies.activate("stop")
        with pytest.raises(errors.PolicyDeniedError):
            await store.flows.start("trader")
        with pytest.raises(errors.PolicyDeniedError):
            async with store.flows.run("trader"):
                raise AssertionError("it is not entered")

    asyncio.run(main())
    assert len(near.policies.decisions(decision="deny").items) == 2


def test_an_agent_at_the_server_reads_policies_by_a_grant_and_is_held_by_them(near: sync.Holdproof) -> None:
    near.policies.create("writes", WRITES)
    near.policies.activate("writes")
    granted = near.tokens.create("a", role="agent", agent_id="trader", resources=["objects", "policies"]).secret
    operator = near.tokens.create("ops").secret
    plain = near.tokens.create("b", role="agent", agent_id="trader").secret

    async def main() -> None:
        server = create_app(Holdproof(near.core), parts=serve.parts(console=True))
        transport = httpx.ASGITransport(server)
        headers = {"Authorization": f"Bearer {granted}"}
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=headers) as client:
            note = {"id": "n", "type": "note", "content": "tea"}
            assert (await client.post("/v1/objects/put", json=note)).status_code == 200
            denied = await client.post("/v1/objects/put", json={**note, "content": "a yacht"})
            assert (denied.status_code, denied.json()["code"]) == (403, "policy.denied")
            waits = await client.post("/v1/objects/delete", json={"id": "n"})
            assert (waits.status_code, waits.json()["code"]) == (409, "flow.waiting")
            [pending] = near.escalations.list(status="PENDING").items
            assert f"escalation {pending.id}" in waits.text
            near.escalations.resolve(pending.id, "approve", by="ada")
            assert (await client.post("/v1/objects/delete", json={"id": "n"})).status_code == 200
            assert (await client.get("/v1/policies/list")).status_code == 200
            created = await client.post("/v1/policies/create", json={"name": "mine", "text": ALL})
            retired = await client.post("/v1/policies/retire", json={"name": "writes"})
            assert (created.status_code, retired.status_code) == (403, 403)
            owner = {"Authorization": f"Bearer {operator}"}
            signed = await client.post(
                "/v1/policies/create", json={"name": "x", "text": ALL, "by": "eve"}, headers=owner
            )
            assert signed.json()["created_by"] == "operator:ops"
            without = await client.get("/v1/policies/list", headers={"Authorization": f"Bearer {plain}"})
            assert without.status_code == 403

    asyncio.run(main())
    decisions = [each.decision for each in near.policies.decisions(action="memory.write").items]
    assert decisions == ["allow", "ask", "deny", "allow"]


def posting(near: sync.Holdproof, resources: list[str], *calls: tuple[str, dict[str, Any]]) -> list[httpx.Response]:
    """Make calls, one after the other, as an agent by a grant of its token."""
    token = near.tokens.create("granted", role="agent", agent_id="trader", resources=resources).secret

    async def main() -> list[httpx.Response]:
        transport = httpx.ASGITransport(create_app(Holdproof(near.core), parts=serve.parts(console=True)))
        headers = {"Authorization": f"Bearer {token}"}
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=headers) as client:
            return [await client.post(f"/v1/{path}", json=body) for path, body in calls]

    return asyncio.run(main())


def test_an_agent_writes_by_a_grant_where_there_never_was_a_policy(near: sync.Holdproof) -> None:
    [written] = posting(near, ["objects"], ("objects/put", {"id": "n", "type": "note", "content": "tea"}))
    assert written.status_code == 200, written.text


def test_statements_inside_a_transaction_are_decided_about_as_outside(near: sync.Holdproof) -> None:
    near.policies.create(
        "writes",
        f'{ALL} @id("drop") forbid(principal, action, resource == Memory::"relational.execute")'
        ' when { context.query like "*DROP*" };',
    )
    near.policies.activate("writes")
    create = {"query": "CREATE TABLE t (x INTEGER)"}
    token = near.tokens.create("tables", role="agent", agent_id="trader", resources=["relational"]).secret

    async def main() -> list[httpx.Response]:
        transport = httpx.ASGITransport(create_app(Holdproof(near.core), parts=serve.parts(console=True)))
        headers = {"Authorization": f"Bearer {token}"}
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=headers) as client:
            answers = [await client.post("/v1/relational/execute", json=create)]
            block = (await client.post("/v1/relational/transaction", json={})).json()["block"]
            for method, query in (
                ("execute", "INSERT INTO t VALUES (1)"),
                ("execute", "DROP TABLE t"),
                ("fetch_all", "SELECT x FROM t"),
            ):
                answers.append(await client.post(f"/v1/blocks/{block}/{method}", json={"query": query}))
            return [*answers, await client.post(f"/v1/blocks/{block}/leave", json={})]

    created, inserted, dropped, fetched, left = asyncio.run(main())
    assert [each.status_code for each in (created, inserted, fetched, left)] == [200] * 4
    assert (dropped.status_code, dropped.json()["code"]) == (403, "policy.denied")
    assert near.relational.fetch_all("SELECT x FROM t") == [{"x": 1}]
    decided = [(each.resource, each.decision) for each in reversed(near.policies.decisions().items)]
    assert decided[-3:] == [
        ("relational.execute", "allow"),
        ("relational.execute", "deny"),
        ("relational.fetch_all", "allow"),
    ]


def test_the_command_line_reads_policies_from_files_and_from_stdin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDPROOF_HOME", str(tmp_path / "home"))
    runner = CliRunner()
    (tmp_path / "tools.cedar").write_text(ALL)
    created = runner.invoke(app, ["policies", "create", "tools", str(tmp_path / "tools.cedar"), "--by", "ada"])
    assert created.exit_code == 0, created.output
    again = runner.invoke(app, ["policies", "create", "tools", "-", "--json"], input=f"{ALL}\n{ALL}")
    assert json.loads(again.stdout)["version"] == 2
    wrong = runner.invoke(app, ["policies", "create", "tools", "-"], input=f"{ALL}\npermit;")
    assert (wrong.exit_code, "line 2" in wrong.output) == (2, True)
    assert runner.invoke(app, ["policies", "activate", "tools"]).exit_code == 0
    assert runner.invoke(app, ["agents", "register", "buyer", "--version", "1"]).exit_code == 0
    refused = ["policies", "decide", "nobody", "tool.call", "search"]
    assert runner.invoke(app, refused).exit_code == 3
    allowed = [*refused[:2], "buyer", *refused[3:], "--json"]
    assert json.loads(runner.invoke(app, allowed).stdout)["decision"] == "allow"
    draft = runner.invoke(app, ["policies", "reevaluate", "-", "--json"], input="forbid(principal, action, resource);")
    assert json.loads(draft.stdout)["differences"][0]["draft"] == "deny"


def test_a_worker_that_is_killed_between_decision_and_act_leaves_both_decided_once(
    near: sync.Holdproof, sqlite_home: Path
) -> None:
    near.policies.create("all", ALL)
    near.policies.activate("all")
    dead = subprocess.run([sys.executable, "-c", _DIES, str(sqlite_home)], env={**os.environ}, check=False)
    assert dead.returncode == -signal.SIGKILL
    before = near.policies.decisions().items
    assert [each.action for each in before] == ["step", "flow.start"]
    paid: list[int] = []

    @near.flow(agent="trader", lease_s=10)
    def refund(flow: object, cents: int) -> None:
        flow.step("pay", paid.append, cents, on_unknown="retry")  # type: ignore[attr-defined]

    # Once the dead worker's lease has expired; asking is what makes it due.
    while not (reruns := near.flows.recover().reruns):
        pass
    assert ([each.flow.status for each in reruns], paid) == (["COMPLETED"], [100])
    assert near.policies.decisions().items == before
    assert near.verify.run(full=True, lock=False).findings == []
