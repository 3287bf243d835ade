"""Row level security: on PostgreSQL a query that forgot its namespace reaches nothing of another tenant."""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from harness.filling import settled
from holdproof import errors, sync
from holdproof.client import Holdproof
from holdproof.db import Tx, sql
from holdproof.model.verdicts import Verdict
from holdproof.runtime import flow_queries
from holdproof.runtime.flows import FLOWS
from tests.conformance import test_tenancy
from tests.conformance.test_tenancy import OURS, THEIRS

_FORGETFUL_TREE = sql(FLOWS.select("WHERE root_dfid = :root ORDER BY created_at, dfid"))
_EVERY_FLOW = sql("SELECT ns FROM decision_flows")
_SUSPEND_ALL = sql("UPDATE agent_registry SET suspension_reason = 'ours'")
_RETYPE_ALL = sql("UPDATE decision_flows SET flow_type = 'ours'")
_PLANT = sql("UPDATE decision_flows SET ns = 'theirs'")
_DISABLE = sql("ALTER TABLE agent_registry DISABLE ROW LEVEL SECURITY")
_WHO = sql("SELECT current_user::text, coalesce(current_setting('holdproof.ns', true), '')")
_VERSION = sql("SELECT current_setting('server_version_num')::int")


class TestTenancyWithRowSecurity(test_tenancy.TestPostgres):
    """Every method, as on a server without it: nothing that a tenant may do is refused, nothing more is seen."""

    @pytest.fixture(autouse=True)
    def _secured(self, _place: None) -> None:
        sync.roles(self.home, self.url, apply=True)


@pytest.fixture(params=["postgres", "holdproof_app"])
def secured(request: pytest.FixtureRequest, postgres_store: tuple[str, Path]) -> Iterator[sync.Holdproof]:
    """A store with two tenants on a server with row level security, under an administrator and the least rights."""
    url, home = postgres_store
    sync.roles(home, url, apply=True)
    with sync.open(home, url.replace("postgres@", f"{request.param}@")) as store:
        if store.read(lambda tx: tx.all(_VERSION))[0][0] < 160_000:
            pytest.skip("row level security needs PostgreSQL 16")
        for ns in (OURS, THEIRS):
            tenant = sync.Holdproof(store.core, ns)
            tenant.agents.register("trader", version="1.0.0")
            tenant.flows.start("trader", flow_id=f"order-of-{ns}")
        yield store
        settled(store)
    report = sync.verify(home, url, full=True)
    assert report.verdict is Verdict.VALID, report.to_dict()


def test_a_query_without_its_namespace_finds_nothing_of_another_tenant(
    secured: sync.Holdproof, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flow_queries, "_TREE", _FORGETFUL_TREE)
    ours = sync.Holdproof(secured.core, OURS)
    # The query is broken indeed: without a bound client it crosses.
    assert secured.flows.tree(f"order-of-{THEIRS}", ns=OURS).flow.ns == THEIRS
    with pytest.raises(errors.NotFoundError):
        ours.flows.tree(f"order-of-{THEIRS}")
    assert ours.flows.tree(f"order-of-{OURS}").flow.ns == OURS
    assert ours.read(lambda tx: tx.all(_EVERY_FLOW)) == [(OURS,)]
    assert ours.write(lambda tx: tx.all(_EVERY_FLOW)) == [(OURS,)]
    assert sorted(secured.read(lambda tx: tx.all(_EVERY_FLOW))) == [(OURS,), (THEIRS,)]

    async def asked() -> list[Any]:
        bound = Holdproof(secured.core, OURS)
        return [await bound.read(lambda tx: tx.all(_EVERY_FLOW)), await bound.write(lambda tx: tx.all(_EVERY_FLOW))]

    assert asyncio.run(asked()) == [[(OURS,)], [(OURS,)]]


def test_a_statement_without_its_namespace_changes_nothing_of_another_tenant(secured: sync.Holdproof) -> None:
    ours = sync.Holdproof(secured.core, OURS)
    before = secured.agents.get("trader", ns=THEIRS)

    def change(tx: Tx) -> None:
        raise errors.ConflictError("rolled back", counts=[tx.count(_SUSPEND_ALL), tx.count(_RETYPE_ALL)])

    with pytest.raises(errors.ConflictError) as caught:
        ours.write(change)
    assert caught.value.fields["counts"] == [1, 1]
    with pytest.raises(errors.MissingPrivilegeError):
        ours.write(lambda tx: tx.count(_PLANT))
    assert secured.agents.get("trader", ns=THEIRS) == before


def test_tenants_that_share_commits_and_failures_stay_apart(secured: sync.Holdproof) -> None:
    """The role belongs to one operation of a group, also where its neighbours fail, before or after they wrote."""
    seen: dict[str | None, set[Any]] = {OURS: set(), THEIRS: set(), None: set()}
    refused: list[BaseException] = []

    def work(ns: str | None, number: int) -> None:
        bound = sync.Holdproof(secured.core, ns)

        def look(tx: Tx) -> Any:
            if number % 3 == 1:
                raise errors.ConflictError("before it wrote")
            rows = tuple(sorted(tx.all(_EVERY_FLOW)))
            if number % 3 == 2:
                tx.count(_SUSPEND_ALL)
                raise errors.ConflictError("after it wrote")
            return rows, tx.all(_WHO)[0][1]

        for _ in range(6):
            try:
                seen[ns].add(bound.write(look))
            except errors.ConflictError as error:
                refused.append(error)

    threads = [threading.Thread(target=work, args=(ns, number)) for ns in seen for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert len(refused) == 3 * 4 * 6
    assert seen[OURS] == {(((OURS,),), OURS)}
    assert seen[THEIRS] == {(((THEIRS,),), THEIRS)}
    assert seen[None] == {(((OURS,), (THEIRS,)), "")}


_DOUBLE = sql("INSERT INTO agent_registry SELECT * FROM agent_registry")


class _Ended(BaseException):
    """What ends an operation and is no Exception, as Ctrl-C."""


def _doubled(tx: Tx) -> None:
    tx.execute(_DOUBLE)  # pipelined: its failure is noticed later


def _swallowed(tx: Tx) -> None:
    with contextlib.suppress(errors.HoldproofError):
        tx.all(_DOUBLE)


def _interrupted(tx: Tx) -> None:
    tx.count(_SUSPEND_ALL)
    raise _Ended


def _forbidden(tx: Tx) -> None:
    tx.count(_SUSPEND_ALL)
    tx.execute(_DISABLE)


@pytest.mark.parametrize(
    ("end", "kind"),
    [
        (_doubled, errors.ConstraintError),
        (_swallowed, errors.ConstraintError),
        (_interrupted, _Ended),
        (_forbidden, errors.MissingPrivilegeError),
    ],
)
@pytest.mark.parametrize("serializable", [False, True])
def test_the_role_ends_with_an_operation_however_that_ends(
    secured: sync.Holdproof, end: Callable[[Tx], None], kind: type[BaseException], serializable: bool
) -> None:
    """Beside others in shared commits and alone; nobody else ever runs in the role, or in another's namespace."""
    seen: dict[str | None, set[Any]] = {OURS: set(), THEIRS: set(), None: set()}
    failed: list[BaseException] = []

    def work(ns: str | None) -> None:
        bound = sync.Holdproof(secured.core, ns)
        for _ in range(5):
            if ns == OURS:
                try:
                    bound.write(end, serializable=serializable)
                except BaseException as error:
                    failed.append(error)
            seen[ns].add((*sorted(bound.write(lambda tx: tx.all(_EVERY_FLOW), serializable=serializable)),))
            seen[ns].add((*sorted(bound.read(lambda tx: tx.all(_EVERY_FLOW))),))

    threads = [threading.Thread(target=work, args=(ns,)) for ns in (*seen, *seen)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert len(failed) == 2 * 5
    assert {type(each) for each in failed} == {kind}
    assert seen == {OURS: {((OURS,),)}, THEIRS: {((THEIRS,),)}, None: {((OURS,), (THEIRS,))}}


def test_the_role_lasts_for_one_operation(secured: sync.Holdproof) -> None:
    login = secured.read(lambda tx: tx.all(_WHO))
    ours = sync.Holdproof(secured.core, OURS)
    assert ours.read(lambda tx: tx.all(_WHO)) == [("holdproof_tenant", OURS)]
    assert secured.read(lambda tx: tx.all(_WHO)) == login
    assert secured.status().database["row_security"] is True


def test_a_policy_that_is_not_ours_is_found_and_ours_is_not(postgres_store: tuple[str, Path]) -> None:
    url, home = postgres_store
    with sync.open(home, url) as store:
        store.agents.register("trader", version="1.0.0")
        assert store.status().database["row_security"] is False
        settled(store)
    sync.roles(home, url, apply=True)
    assert sync.verify(home, url, full=True).verdict is Verdict.VALID
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute("ALTER POLICY holdproof_tenant ON kernel.notes TO PUBLIC")
    report = sync.verify(home, url, full=True, lock=False)
    assert {each.row for each in report.findings} == {
        "policy notes.holdproof_tenant",
        "policy notes.holdproof_whole",
        "relation notes",
    }


@pytest.mark.parametrize(
    "altered",
    [
        "ALTER POLICY holdproof_tenant ON kernel.decision_flows USING (true)",
        "ALTER POLICY holdproof_whole ON kernel.decision_flows USING (ns = 'main')",
        "ALTER POLICY holdproof_tenant ON kernel.decision_flows TO PUBLIC",
        "DROP POLICY holdproof_tenant ON kernel.decision_flows",
    ],
)
def test_setting_roles_up_again_repairs_a_policy_that_somebody_altered(
    postgres_store: tuple[str, Path], altered: str
) -> None:
    url, home = postgres_store
    sync.roles(home, url, apply=True)
    with sync.open(home, url) as store:
        if store.read(lambda tx: tx.all(_VERSION))[0][0] < 160_000:
            pytest.skip("row level security needs PostgreSQL 16")
    before = _policies(url)
    with psycopg.connect(url) as connection:
        connection.execute(altered.encode())
    assert _policies(url) != before
    sync.roles(home, url, apply=True)
    assert [row[1:] for row in _policies(url)] == [row[1:] for row in before]
    repaired = _policies(url)
    sync.roles(home, url, apply=True)
    assert _policies(url) == repaired, "a policy that is as it should be is not created anew"


def _policies(url: str) -> list[tuple[Any, ...]]:
    """Every policy of the database, its own id first."""
    with psycopg.connect(url) as connection:
        return connection.execute(
            "SELECT p.oid, p.polrelid::regclass::text, p.polname, p.polpermissive, p.polcmd, p.polroles::text,"
            " pg_get_expr(p.polqual, p.polrelid), p.polwithcheck IS NULL FROM pg_policy p ORDER BY 2, 3"
        ).fetchall()


def test_limits_hold_bound_clients_and_block_no_erasure(secured: sync.Holdproof) -> None:
    for ns in (OURS, "main"):
        secured.limits.set(ns, entries_per_minute=1000, bytes=100_000, open_flows=2, objects=5, reason="a plan")
    ours = sync.Holdproof(secured.core, OURS)
    assert ours.limits.get().usage["open_flows"] == 1
    ours.flows.start("trader")
    with pytest.raises(errors.TenantLimitError):
        ours.flows.start("trader")
    ours.objects.put("one", type="note", content="x", subject="ann")
    ours.notes.put(["a"], "b", {"is": 1})
    ours.threads.put_checkpoint("t", {"is": 1})
    assert ours.limits.get().usage["bytes"] > 0
    ours.erase.subject("ann", ns=OURS)
    assert secured.limits.get(ns="main").usage["entries_per_minute"] == 0
