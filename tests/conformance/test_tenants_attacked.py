"""Tenants against who wants more than theirs: foreign databases, rollbacks before a move, holds that are in the way."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from harness.raw_access import Past
from harness.servers import Postgres
from holdproof import errors, sync
from holdproof.crypto import checkpoint, keys, vkey
from holdproof.evidence import tenants
from holdproof.model.verdicts import Verdict
from tests.conformance.test_tenants import Frozen, Parent, _dropped, killed, parent, recorded, tenant_url, used
from tests.conformance.test_vouched import admit

__all__ = ["_dropped", "parent"]


@pytest.fixture
def server(postgres: Postgres, postgres_url: str, tmp_path: Path, _dropped: object) -> Iterator[Parent]:
    """A parent on a server, whose databases go with the test."""
    del postgres
    assert callable(_dropped)
    _dropped(urlsplit(postgres_url).path.removeprefix("/"))
    with sync.open(tmp_path / "parent", postgres_url) as store:
        yield Parent(tmp_path / "parent", postgres_url, store)


@contextmanager
def connected(parent: Parent, tenant: str) -> "Iterator[psycopg.Connection[tuple[object, ...]]]":
    """A connection to the database that a tenant of that name has, or would have."""
    assert parent.url is not None
    name = urlsplit(parent.url).path.removeprefix("/")
    with psycopg.connect(parent.url.replace(f"/{name}", f"/{name}_{tenant}", 1), autocommit=True) as connection:
        yield connection


def create_database(parent: Parent, tenant: str) -> str:
    """Create the database that a tenant of that name would get; return its name."""
    assert parent.url is not None
    name = f"{urlsplit(parent.url).path.removeprefix('/')}_{tenant}"
    with psycopg.connect(parent.url, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"'.encode())
    return name


def test_a_database_of_somebody_else_becomes_no_tenants_and_is_never_removed(server: Parent) -> None:
    name = create_database(server, "acme")
    with connected(server, "acme") as connection:
        connection.execute("CREATE TABLE orders (id INTEGER)")
    for place in (None, name):
        with pytest.raises(errors.AlreadyExistsError, match=r"public\.orders"):
            server.store.tenants.create("acme", place=place)
    server.store.tenants.create("globex")
    with pytest.raises(errors.AlreadyExistsError, match=r"public\.orders"):
        server.store.tenants.move("globex", name)
    # Killed after it was noted, and before anybody looked.
    killed(server, "units", "_make", "before", "store.tenants.create('other', place=None)")
    create_database(server, "other")
    with connected(server, "other") as connection:
        connection.execute("CREATE TABLE orders (id INTEGER)")
    with pytest.raises(errors.AlreadyExistsError, match=r"public\.orders"):
        server.store.tenants.delete("other", reason="never used")
    for tenant in ("acme", "other"):
        with connected(server, tenant) as connection:
            assert connection.execute("SELECT count(*) FROM orders").fetchone() == (0,)


def test_an_interrupted_tenant_takes_and_removes_the_database_of_no_other(server: Parent) -> None:
    server.store.tenants.create("acme")
    used(server, "acme")
    place = server.store.tenants.get("acme").place
    killed(server, "heads", "look", "before", "store.tenants.create('other')")
    for _ in range(2):
        with pytest.raises(errors.ConflictError):
            server.store.tenants.create("other", place=place)
    server.store.tenants.delete("other", reason="never used")
    assert used(server, "acme")


def test_a_store_in_the_place_of_a_tenant_is_not_removed_with_it(server: Parent) -> None:
    for tenant in ("acme", "globex"):
        server.store.tenants.create(tenant)
        used(server, tenant)
    assert server.url is not None
    name = urlsplit(server.url).path.removeprefix("/")
    with psycopg.connect(server.url, autocommit=True) as connection:
        connection.execute(f'DROP DATABASE "{name}_acme" WITH (FORCE)'.encode())
        connection.execute(f'ALTER DATABASE "{name}_globex" RENAME TO "{name}_acme"'.encode())
    assert recorded(server, "acme") == "finding"
    with pytest.raises(errors.ConflictError, match="globex"):
        server.store.tenants.delete("acme", reason="the contract ended")
    with connected(server, "acme") as connection:
        assert connection.execute("SELECT count(*) FROM kernel.log_state").fetchone() == (1,)


def test_deleting_a_tenant_removes_no_login_that_it_names_and_was_not_made_for_it(server: Parent) -> None:
    server.store.tenants.create("acme")
    with connected(server, "acme") as connection:
        connection.execute("CREATE ROLE somebody_else")
        try:
            connection.execute("CREATE SCHEMA membrane")
            connection.execute("CREATE TABLE membrane.membrane_login (name TEXT)")
            connection.execute("INSERT INTO membrane.membrane_login VALUES ('somebody_else')")
            connection.close()
            server.store.tenants.delete("acme", reason="the contract ended")
        finally:
            with psycopg.connect(str(server.url), autocommit=True) as other:
                other.execute("DROP ROLE somebody_else")


def test_a_move_does_not_excuse_a_tenant_that_was_rolled_back(
    parent: Parent, postgres: Postgres, tmp_path: Path
) -> None:
    name = "moved_" + urlsplit(parent.url or "/rolled").path.removeprefix("/")
    postgres.sql(f'DROP DATABASE IF EXISTS "{name}"')
    try:
        parent.store.tenants.create("acme")
        used(parent, "acme")
        frozen = Frozen(parent, "acme", tmp_path / "aside")
        used(parent, "acme")
        assert recorded(parent, "acme") == "recorded"
        frozen.put_back()
        with pytest.raises(errors.TenantFindingError, match="ROLLED_BACK"):
            parent.store.tenants.move("acme", postgres.url(name))
        assert recorded(parent, "acme") == "finding"
    finally:
        postgres.sql(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')


def test_a_hold_keeps_a_tenant_with_a_finding_too(parent: Parent, tmp_path: Path) -> None:
    parent.store.tenants.create("acme")
    with parent.open("acme") as acme:
        acme.retention.hold(reason="case 4711")
    used(parent, "acme")
    frozen = Frozen(parent, "acme", tmp_path / "aside")
    used(parent, "acme")
    recorded(parent, "acme")
    frozen.put_back()
    assert recorded(parent, "acme") == "finding"
    with pytest.raises(errors.RetentionHeldError, match="case 4711"):
        parent.store.tenants.delete("acme", reason="in the way")
    assert parent.store.tenants.get("acme").status == "active"


def test_what_is_damaged_can_be_deleted(parent: Parent) -> None:
    parent.store.tenants.create("acme")
    used(parent, "acme")
    recorded(parent, "acme")
    if parent.url is None:
        shutil.rmtree(parent.folder("acme"))
    else:
        name = urlsplit(parent.url).path.removeprefix("/")
        with psycopg.connect(parent.url, autocommit=True) as connection:
            connection.execute(f'DROP DATABASE "{name}_acme" WITH (FORCE)'.encode())
    assert recorded(parent, "acme") == "finding"
    assert parent.store.tenants.delete("acme", reason="lost").status == "deleted"


# --- keys --------------------------------------------------------------------------------------------------------


def behind(parent: Parent, tenant: str) -> Past:
    """The database of a tenant as somebody has it who does not have the tenant's keys."""
    return Past(parent.folder(tenant), parent.url and tenant_url(parent.url, tenant))


def test_a_head_that_is_signed_by_a_key_put_into_the_keyring_is_found_by_the_parent(parent: Parent) -> None:
    parent.store.tenants.create("acme")
    used(parent, "acme")
    assert recorded(parent, "acme") == "recorded"
    used(parent, "acme")
    forged = keys.generate("ed25519")
    past = behind(parent, "acme")
    admit(past, forged.public)
    [(text,)] = past.ask("SELECT head FROM log_state")
    signed = checkpoint.sign(checkpoint.parse(text.encode()).checkpoint, forged)
    past.ask("UPDATE log_state SET head = ?", signed.encode().decode())
    [check] = parent.store.tenants.record_heads("acme")
    assert (check.state, "TAMPERED: its newest head is signed by a log key" in str(check.what)) == ("finding", True)
    with pytest.raises(errors.TenantFindingError, match="TAMPERED"):
        parent.open("acme")


def test_a_key_put_into_the_keyring_is_not_recorded_with_a_head(parent: Parent) -> None:
    parent.store.tenants.create("acme")
    used(parent, "acme")
    forged = keys.generate("ed25519").public
    admit(behind(parent, "acme"), forged)
    assert recorded(parent, "acme") == "recorded"
    newest = parent.store.read(lambda tx: tenants.last_head(tx, tenants.require(tx, "acme").id))
    assert newest is not None
    assert [vkey.parse(line).public.keyid == forged.keyid for line in newest.keys.split("\n")] == [False]


@pytest.mark.parametrize("lost", [False, True])
def test_a_log_key_that_the_old_one_or_root_admitted_is_no_finding(parent: Parent, lost: bool) -> None:
    parent.store.tenants.create("acme")
    used(parent, "acme")
    assert recorded(parent, "acme") == "recorded"
    if lost:
        (parent.folder("acme") / "config" / "keys" / "log.pem").unlink()
    for _ in range(2):
        with parent.open("acme") as store:
            store.keys.rotate("log")
    used(parent, "acme")
    assert recorded(parent, "acme") == "recorded"


# --- homes that are links ----------------------------------------------------------------------------------------


def test_a_tenant_whose_home_is_a_link_is_deleted_whole(parent: Parent, tmp_path: Path) -> None:
    parent.store.tenants.create("acme")
    used(parent, "acme")
    elsewhere = tmp_path / "disk" / "acme"
    elsewhere.parent.mkdir()
    shutil.move(parent.folder("acme"), elsewhere)
    parent.folder("acme").symlink_to(elsewhere)
    used(parent, "acme")
    assert parent.store.tenants.delete("acme", reason="the contract ended").status == "deleted"
    assert not elsewhere.exists()
    assert list(parent.folder("acme").parent.iterdir()) == []
    parent.store.tenants.create("acme")
    assert used(parent, "acme")
    assert parent.store.verify.run(full=True).verdict is Verdict.VALID


def test_a_link_to_what_others_have_is_not_deleted_with_a_tenant(tmp_path: Path) -> None:
    with sync.open(tmp_path / "parent") as store:
        parent = Parent(tmp_path / "parent", None, store)
        for tenant in ("acme", "globex"):
            store.tenants.create(tenant)
        shutil.rmtree(parent.folder("acme"))
        for target in (parent.folder("globex"), parent.home, tmp_path):
            parent.folder("acme").symlink_to(target)
            with pytest.raises(errors.ConflictError, match="remove the link"):
                store.tenants.delete("acme", reason="the contract ended")
            parent.folder("acme").unlink()
        assert used(parent, "globex")
