"""Tenants with stores of their own: created, recorded, proven, exported, moved and deleted as units."""

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg import sql as text

from harness.filling import running, settled
from harness.servers import Postgres
from holdproof import errors, sync
from holdproof.content import disk
from holdproof.crypto import canonical
from holdproof.db import open_database, sql
from holdproof.evidence import tenants as tenant_rows
from holdproof.model.verdicts import Verdict
from holdproof.store.tenants import heads, proofs, unchanged, units
from holdproof.store.tenants.unchanged import RoundMemory

_SIZE = sql("SELECT size FROM log_state")


@dataclass
class Parent:
    """A parent store, and how its tenants are opened."""

    home: Path
    url: str | None
    store: sync.Holdproof

    def open(self, tenant: str, **options: Any) -> sync.Holdproof:
        return sync.open(self.home, self.url, tenant=tenant, **options)

    def folder(self, tenant: str) -> Path:
        return self.home / "tenants" / tenant


@pytest.fixture
def _dropped(request: pytest.FixtureRequest) -> Iterator[Callable[[str], None]]:
    """Databases of tenants go with the test: they are beside the one that it was given."""
    prefixes: list[str] = []
    yield prefixes.append
    if prefixes:
        server: Postgres = request.getfixturevalue("postgres")
        with psycopg.connect(server.url(), autocommit=True) as connection:
            for prefix in prefixes:
                found = connection.execute("SELECT datname FROM pg_database WHERE datname LIKE %s", (f"{prefix}_%",))
                for (name,) in found.fetchall():
                    connection.execute(text.SQL("DROP DATABASE {} WITH (FORCE)").format(text.Identifier(name)))


@pytest.fixture(params=["sqlite", "postgres"])
def parent(request: pytest.FixtureRequest, tmp_path: Path, _dropped: Callable[[str], None]) -> Iterator[Parent]:
    url = None
    if request.param == "postgres":
        url = str(request.getfixturevalue("postgres_url"))
        _dropped(urlsplit(url).path.removeprefix("/"))
    with sync.open(tmp_path / "parent", url) as store:
        yield Parent(tmp_path / "parent", url, store)


def used(parent: Parent, tenant: str) -> str:
    """Use a tenant; return the handle of an entry of it."""
    with parent.open(tenant) as store:
        if not store.agents.list().items:
            store.agents.register("trader", version="1.0.0")
        running(store)
        settled(store)
        return store.log.list(kind="decision").items[0].entry


def recorded(parent: Parent, tenant: str) -> str:
    [check] = parent.store.tenants.record_heads(tenant)
    settled(parent.store)
    return check.state


# --- units -------------------------------------------------------------------------------------------------------


def test_a_tenant_has_a_log_keys_and_a_lockdown_of_its_own(parent: Parent) -> None:
    made = parent.store.tenants.create("acme")
    parent.store.tenants.create("globex")
    assert (made.status, made.finding, made.store is None) == ("active", None, False)
    used(parent, "acme")
    with parent.open("acme") as acme, parent.open("globex") as globex:
        assert acme.log.verifier_keys() != globex.log.verifier_keys() != parent.store.log.verifier_keys()
        assert not globex.flows.list().items
        assert not parent.store.flows.list().items
        acme.lockdown.lock(reason="looked at")
        with pytest.raises(errors.LockedError):
            acme.agents.register("other", version="1.0.0")
        globex.agents.register("other", version="1.0.0")
    assert [each.name for each in parent.store.tenants.list().items] == ["acme", "globex"]
    assert parent.store.verify.run(full=True).verdict is Verdict.VALID


def test_a_name_that_is_mistyped_is_an_error_that_names_those_near_to_it(parent: Parent) -> None:
    parent.store.tenants.create("acme")
    with pytest.raises(errors.TenantNotFoundError, match="did you mean acme") as refused:
        parent.open("acne")
    assert (refused.value.code, refused.value.fields["near"]) == ("tenant.absent", ["acme"])
    for name in ("Acme", "../acme", "a_b", "-a", "a-", "a" * 41, ""):
        with pytest.raises(errors.InvalidInputError):
            parent.store.tenants.create(name)
    with pytest.raises(errors.AlreadyExistsError):
        parent.store.tenants.create("acme")
    assert not parent.folder("acne").exists(), "a mistyped name creates nothing"


def test_of_many_who_create_one_at_once_exactly_one_does(parent: Parent) -> None:
    outcomes: list[str] = []

    def create() -> None:
        try:
            parent.store.tenants.create("acme")
            outcomes.append("created")
        except (errors.AlreadyExistsError, errors.ConflictError):
            outcomes.append("refused")

    threads = [threading.Thread(target=create) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["created", "refused", "refused", "refused"]
    assert used(parent, "acme")


_KILLED = """
import os, sys
from holdproof import sync
from holdproof.store.tenants import heads, units
from holdproof.upkeep.backups import manifest, move
home, url, module, name, when, statement = sys.argv[1:]
module = {"heads": heads, "units": units, "move": move, "manifest": manifest}[module]
real = getattr(module, name)
def killing(*args, **kwargs):
    if when == "after":
        real(*args, **kwargs)
    os._exit(9)
with sync.open(home, url or None) as store:
    setattr(module, name, killing)
    eval(statement)
"""


def killed(parent: Parent, module: str, name: str, when: str, statement: str) -> None:
    """Run a statement on the store in a process that is gone at a call of that function, before or after it."""
    arguments = [str(parent.home), parent.url or "", module, name, when, statement]
    done = subprocess.run([sys.executable, "-c", _KILLED, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 9, done.stderr


def test_creating_goes_on_where_it_was_killed(parent: Parent) -> None:
    killed(parent, "units", "_make", "before", "store.tenants.create('acme')")
    assert parent.store.tenants.get("acme").status == "creating"
    with pytest.raises(errors.TenantNotFoundError, match="create acme"):
        parent.open("acme")
    killed(parent, "heads", "look", "before", "store.tenants.create('acme')")
    assert parent.store.tenants.create("acme").status == "active"
    assert used(parent, "acme")


def test_a_deleted_tenant_is_gone_and_its_last_head_stays_proven(parent: Parent) -> None:
    parent.store.tenants.create("acme")
    entry = used(parent, "acme")
    assert recorded(parent, "acme") == "recorded"
    proof = parent.store.tenants.prove("acme", entry).text
    gone = parent.store.tenants.delete("acme", reason="the contract ended")
    settled(parent.store)
    assert (gone.status, gone.reason) == ("deleted", "the contract ended")
    assert not parent.folder("acme").exists()
    assert not [*(parent.home / "tenants").iterdir()]
    with pytest.raises(errors.TenantNotFoundError):
        parent.open("acme")
    [key] = parent.store.log.verifier_keys()
    assert parent.store.tenants.check_proof(proof, key=key).tenant == "acme"
    [kept] = parent.store.tenants.list(status="deleted").items
    assert kept.size is not None
    again = parent.store.tenants.create("acme")
    assert again.store != gone.store, "a name is free again, and its next tenant is another"
    assert parent.store.verify.run(full=True).verdict is Verdict.VALID


def test_nobody_deletes_a_tenant_that_is_open_locked_or_held(parent: Parent) -> None:
    parent.store.tenants.create("acme")
    with parent.open("acme") as acme:
        with pytest.raises(errors.BusyError):
            parent.store.tenants.delete("acme", reason="too early")
        hold = acme.retention.hold(reason="case 4711")
    with pytest.raises(errors.RetentionHeldError, match="case 4711"):
        parent.store.tenants.delete("acme", reason="too early")
    with parent.open("acme") as acme:
        acme.retention.lift(hold.id, reason="closed")
        acme.lockdown.lock(reason="looked at")
    with pytest.raises(errors.LockedError):
        parent.store.tenants.delete("acme", reason="too early")
    assert parent.store.tenants.get("acme").status == "active"


def test_deleting_goes_on_where_it_was_killed(parent: Parent) -> None:
    for when in ("before", "after"):
        parent.store.tenants.create("acme")
        used(parent, "acme")
        killed(parent, "units", "_remove", when, "store.tenants.delete('acme', reason='the contract ended')")
        assert parent.store.tenants.get("acme").status == "deleting"
        with pytest.raises(errors.TenantNotFoundError, match="delete acme"):
            parent.open("acme")
        assert parent.store.tenants.delete("acme", reason="the contract ended").status == "deleted"
        assert not parent.folder("acme").exists()


def test_of_two_who_delete_one_at_once_one_does(parent: Parent) -> None:
    parent.store.tenants.create("acme")
    outcomes: list[str] = []

    def delete() -> None:
        try:
            outcomes.append(parent.store.tenants.delete("acme", reason="the contract ended").status)
        except (errors.ConflictError, errors.BusyError, errors.NotFoundError):
            outcomes.append("refused")

    threads = [threading.Thread(target=delete) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes.count("deleted") <= 1
    if "deleted" not in outcomes:  # each was in the other's way, and it is as it was
        parent.store.tenants.delete("acme", reason="the contract ended")
    assert not parent.store.tenants.list().items
    assert not parent.folder("acme").exists()


def test_who_deletes_one_second_does_not_take_back_what_the_first_removes(
    parent: Parent, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent.store.tenants.create("acme")
    refused: list[errors.HoldproofError] = []

    def second() -> None:
        try:
            parent.store.tenants.delete("acme", reason="second")
        except errors.HoldproofError as error:
            refused.append(error)

    # In the middle of the first, which has the lock of the home.
    monkeypatch.setattr(disk, "files", meanwhile(disk.files, second))
    assert parent.store.tenants.delete("acme", reason="first").status == "deleted"
    assert [type(each) for each in refused] == [errors.BusyError]
    assert not parent.store.tenants.list().items


def test_who_deletes_one_first_does_not_take_back_what_the_second_removes(
    parent: Parent, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent.store.tenants.create("acme")
    begun, gate = threading.Event(), threading.Event()
    outcomes: list[str] = []

    def removing() -> None:
        begun.set()
        assert gate.wait(60)

    def overtaken() -> None:
        monkeypatch.setattr(disk, "files", meanwhile(disk.files, removing))
        thread.start()
        assert begun.wait(60)

    def second() -> None:
        outcomes.append(parent.store.tenants.delete("acme", reason="second").status)

    thread = threading.Thread(target=second)
    monkeypatch.setattr(units, "_remove", meanwhile(units._remove, overtaken))
    try:
        with pytest.raises(errors.BusyError):
            parent.store.tenants.delete("acme", reason="first")
    finally:
        gate.set()
        thread.join()
    assert outcomes == ["deleted"]
    assert not parent.store.tenants.list().items


def meanwhile(real: Callable[..., Any], act: Callable[[], None]) -> Callable[..., Any]:
    """Return a function that does something else before its first call, in a thread of its own."""
    acts = [act]

    def call(*args: Any, **kwargs: Any) -> Any:
        if acts:
            thread = threading.Thread(target=acts.pop())
            thread.start()
            thread.join()
        return real(*args, **kwargs)

    return call


def test_a_tenant_is_as_usable_as_before_where_its_export_was_killed(parent: Parent, tmp_path: Path) -> None:
    parent.store.tenants.create("acme")
    dest = str(tmp_path / "export")
    killed(parent, "manifest", "sign", "before", f"store.tenants.export('acme', {dest!r})")
    assert not (tmp_path / "export").exists()
    assert used(parent, "acme")
    assert parent.store.tenants.export("acme", dest).path == dest


def test_an_export_is_a_backup_that_restores_without_the_parent(parent: Parent, tmp_path: Path) -> None:
    parent.store.tenants.create("acme")
    used(parent, "acme")
    with parent.open("acme") as acme:  # in use meanwhile
        exported = parent.store.tenants.export("acme", str(tmp_path / "export"), keys=True)
        store_id = acme.status().store_id
    assert exported.store_id == store_id
    sync.restore(tmp_path / "export", tmp_path / "elsewhere")
    with sync.open(tmp_path / "elsewhere") as store:
        assert store.status().store_id == store_id
        assert len(store.flows.list().items) == 1
    with pytest.raises(errors.AlreadyExistsError):
        parent.store.tenants.export("acme", str(tmp_path / "export"))


# --- heads -------------------------------------------------------------------------------------------------------


def test_heads_are_recorded_once_and_only_where_a_log_grew(parent: Parent) -> None:
    for name in ("acme", "globex"):
        parent.store.tenants.create(name)
    used(parent, "acme")
    states = {each.name: each.state for each in parent.store.tenants.record_heads()}
    assert states == {"acme": "recorded", "globex": "unchanged"}
    assert {each.state for each in parent.store.tenants.record_heads()} == {"unchanged"}
    sizes = [each.size for each in parent.store.tenants.heads("acme").items]
    assert sizes == sorted(sizes, reverse=True)
    assert parent.store.tenants.get("acme").size == sizes[0]
    settled(parent.store)
    assert "head of size" in parent.store.log.list(kind="audit").items[0].what


class Frozen:
    """The state of a tenant's database at a moment, to put back: what an attacker does who has it."""

    def __init__(self, parent: Parent, tenant: str, aside: Path) -> None:
        self._parent, self._tenant, self._aside = parent, tenant, aside
        self._place: Path | str = parent.folder(tenant) / "kernel.db"
        if parent.url is None:
            with closing(open_database(self._place)) as database:
                database.read(lambda tx: tx.one(_SIZE)).result()
            shutil.copytree(parent.folder(tenant), aside)
        else:
            self._name = f"{urlsplit(parent.url).path.removeprefix('/')}_{tenant}"
            self._sql(f'CREATE DATABASE "{self._name}_kept" TEMPLATE "{self._name}"')

    def _sql(self, statement: str) -> None:
        assert self._parent.url is not None
        with psycopg.connect(self._parent.url, autocommit=True) as connection:
            connection.execute(statement.encode())

    def put_back(self) -> None:
        if self._parent.url is None:
            # The home too: it keeps heads of its own.
            shutil.rmtree(self._parent.folder(self._tenant))
            shutil.copytree(self._aside, self._parent.folder(self._tenant))
            return
        self._sql(f'DROP DATABASE "{self._name}" WITH (FORCE)')
        self._sql(f'CREATE DATABASE "{self._name}" TEMPLATE "{self._name}_kept"')
        shutil.rmtree(self._parent.folder(self._tenant) / "state")


def test_a_tenant_that_was_rolled_back_or_forked_is_found_by_the_parent(parent: Parent, tmp_path: Path) -> None:
    parent.store.tenants.create("acme")
    used(parent, "acme")
    frozen = Frozen(parent, "acme", tmp_path / "aside")
    used(parent, "acme")
    assert recorded(parent, "acme") == "recorded"
    frozen.put_back()
    [check] = parent.store.tenants.record_heads("acme")
    assert check.state == "finding"
    assert check.what is not None
    assert check.what.startswith("ROLLED_BACK")
    with pytest.raises(errors.TenantFindingError, match="ROLLED_BACK"):
        parent.open("acme")
    # Used again, it is longer than what was recorded, and another history.
    with sync.open(parent.folder("acme"), parent.url and tenant_url(parent.url, "acme")) as acme:
        for _ in range(3):
            running(acme)
        settled(acme)
    assert {each.state for each in parent.store.tenants.record_heads()} == {"finding"}
    assert "acme" in "".join(parent.store.status().degraded)
    with pytest.raises(errors.InvalidInputError):
        parent.store.tenants.accept("acme", reason=" ")
    parent.store.tenants.accept("acme", reason="restored after the fire")
    assert recorded(parent, "acme") == "unchanged"
    assert used(parent, "acme")
    recorded(parent, "acme")
    settled(parent.store)
    # Also what lies under a recorded head of the history that was given up.
    with parent.open("acme") as acme:
        entries = [each.entry for each in acme.log.list(limit=1000).items]
    [key] = parent.store.log.verifier_keys()
    for entry in entries:
        proof = parent.store.tenants.prove("acme", entry).text
        assert json.loads(parent.store.tenants.check_proof(proof, key=key).entry)["id"] == entry
    assert parent.store.verify.run(full=True).verdict is Verdict.VALID


def tenant_url(url: str, tenant: str) -> str:
    name = urlsplit(url).path.removeprefix("/")
    return url.replace(f"/{name}", f"/{name}_{tenant}", 1)


def test_another_store_in_the_place_of_a_tenant_is_found(parent: Parent) -> None:
    parent.store.tenants.create("acme")
    parent.store.tenants.create("globex")
    used(parent, "globex")
    row = parent.store.read(lambda tx: tenant_rows.require(tx, "globex"))
    place = row.place
    if parent.url is None:
        shutil.rmtree(parent.folder("acme"))
        shutil.copytree(parent.folder("globex"), parent.folder("acme"))
    else:
        name = urlsplit(parent.url).path.removeprefix("/")
        with psycopg.connect(parent.url, autocommit=True) as connection:
            connection.execute(f'DROP DATABASE "{name}_acme" WITH (FORCE)'.encode())
            connection.execute(f'CREATE DATABASE "{name}_acme" TEMPLATE "{place}"'.encode())
    [check] = parent.store.tenants.record_heads("acme")
    assert (check.state, "another store" in str(check.what)) == ("finding", True)


def test_an_edited_row_keeps_no_other_tenant_from_being_recorded(parent: Parent) -> None:
    for name in ("acme", "globex"):
        parent.store.tenants.create(name)
    used(parent, "globex")
    settled(parent.store)
    parent.store.write(lambda tx: tx.execute(sql("UPDATE tenants SET place = 'elsewhere' WHERE name = 'acme'")))
    acme, globex = parent.store.tenants.record_heads()
    assert (acme.name, acme.state, str(acme.what)[:8]) == ("acme", "finding", "TAMPERED")
    assert (globex.name, globex.state) == ("globex", "recorded")
    # What was found is no reason to write the row anew: its next version would vouch for the edit.
    for _ in range(2):
        assert parent.store.tenants.record_heads()[0].state == "finding"


def test_a_row_that_names_another_place_opens_nothing(parent: Parent) -> None:
    parent.store.tenants.create("acme")
    settled(parent.store)
    parent.store.write(lambda tx: tx.execute(sql("UPDATE tenants SET place = 'elsewhere'")))
    with pytest.raises(errors.TamperedError):
        parent.open("acme")
    assert "tenants" in {each.table for each in parent.store.verify.run(lock=False).findings}


# --- proofs ------------------------------------------------------------------------------------------------------


def test_a_proof_of_two_paths_holds_offline_and_every_tampered_copy_is_refused(parent: Parent) -> None:
    parent.store.tenants.create("acme")
    parent.store.tenants.create("globex")
    entry = used(parent, "acme")
    with pytest.raises(errors.NotFoundError, match="record-heads acme"):
        parent.store.tenants.prove("acme", entry)
    used(parent, "globex")
    parent.store.tenants.record_heads()
    settled(parent.store)
    proof = parent.store.tenants.prove("acme", entry).text
    other = parent.store.tenants.prove("globex", used_entry(parent, "globex")).text
    [key] = parent.store.log.verifier_keys()
    with parent.open("acme") as acme:
        [own] = acme.log.verifier_keys()
    checked = parent.store.tenants.check_proof(proof, key=key)
    assert json.loads(checked.entry)["id"] == entry
    assert (checked.tenant, checked.parent_origin) == ("acme", parent.store.log.head().checkpoint.origin)
    for copy in tampered(proof, other):
        with pytest.raises(errors.FormatError):
            parent.store.tenants.check_proof(copy, key=key)
    for wrong in (own,):
        with pytest.raises(errors.FormatError):
            parent.store.tenants.check_proof(proof, key=wrong)


def used_entry(parent: Parent, tenant: str) -> str:
    with parent.open(tenant) as store:
        return store.log.list(kind="decision").items[0].entry


def tampered(proof: str, other: str) -> Iterator[str]:
    """Copies that differ in what they say, in each of their parts, or in their form."""
    document = json.loads(proof)
    foreign = json.loads(other)
    record = json.loads(document["record"])
    changes: list[dict[str, Any]] = [
        {"tenant": "globex"},
        {"entry": foreign["entry"]},
        {"record": foreign["record"]},
        {"proof": foreign["proof"]},
        {"salt": foreign["salt"]},
        {"salt": "zz"},
        {"salt": f"{document['salt'][:2]} {document['salt'][2:]}"},
        {"record": canonical.dumps({**record, "name": "globex"}).decode(), "tenant": "globex"},
        {"record": canonical.dumps({**record, "recorded_at": "2020-01-01T00:00:00.000000Z"}).decode()},
        {"record": canonical.dumps({**record, "keys": json.loads(foreign["record"])["keys"]}).decode()},
        {"record": foreign["record"], "salt": foreign["salt"]},
        {"record": foreign["record"], "salt": foreign["salt"], "proof": foreign["proof"]},
        {"entry": document["entry"].replace("index ", "index 1", 1)},
        {"entry": document["proof"]},
        {"proof": document["entry"]},
        {"v": 2},
        {"more": ""},
        {"record": "[]"},
        {"entry": ""},
    ]
    for change in changes:
        yield canonical.dumps({**document, **change}).decode()
    yield json.dumps(document)
    yield proof.replace('"tenant":"acme"', '"tenant":"acme","tenant":"acme"')
    yield proof[:-2]
    yield "{}"
    yield "[]"
    yield "nothing"


def test_a_proof_is_checked_by_a_program_that_opens_no_store(parent: Parent, tmp_path: Path) -> None:
    parent.store.tenants.create("acme")
    entry = used(parent, "acme")
    recorded(parent, "acme")
    (tmp_path / "proof.json").write_text(parent.store.tenants.prove("acme", entry).text)
    [key] = parent.store.log.verifier_keys()
    command = [sys.executable, "-m", "holdproof", "--home", str(tmp_path / "none"), "tenants", "check-proof"]
    done = subprocess.run(
        [*command, str(tmp_path / "proof.json"), "--key", key, "--json"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["tenant"] == "acme"
    assert not (tmp_path / "none").exists()


def test_a_proof_that_is_huge_is_refused() -> None:
    with pytest.raises(errors.FormatError, match="at most"):
        proofs._parse("x" * (proofs.MOST_BYTES + 1))


# --- the rest ----------------------------------------------------------------------------------------------------


def test_the_settings_of_a_project_are_its_stores_and_no_tenants(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tmp_path / "project"
    (project / ".holdproof").mkdir(parents=True)
    settings = (
        f"backups: {{folder: {tmp_path}/backups}}\nproviders: {{blob: {{type: filesystem, path: {tmp_path}/blobs}}}}\n"
    )
    (project / ".holdproof" / "config.yaml").write_text(settings)
    monkeypatch.chdir(project)
    monkeypatch.setenv("HOLDPROOF_HOME", str(tmp_path / "home"))
    command = [sys.executable, "-m", "holdproof", "config", "allow", str(project)]
    subprocess.run(command, check=True, capture_output=True)
    with sync.open() as store:
        assert store.core.context.settings.backups.folder == f"{tmp_path}/backups"
        for name in ("acme", "globex"):
            store.tenants.create(name)
    with sync.open(tenant="acme") as acme, sync.open(tenant="globex") as globex:
        assert acme.core.context.settings.backups.folder is None
        acme.blobs.put("contract", b"of acme")
        assert globex.blobs.get("contract") is None
    assert not (tmp_path / "blobs").exists()


def test_a_store_in_memory_has_no_tenants() -> None:
    with sync.open(":memory:") as store:
        with pytest.raises(errors.InvalidInputError, match="in memory"):
            store.tenants.create("acme")
        assert not store.tenants.list().items


def test_a_tenant_is_moved_between_a_file_and_a_server_and_goes_on_there(parent: Parent, postgres: Postgres) -> None:
    name = "moved_" + urlsplit(parent.url or "/file").path.removeprefix("/")
    postgres.sql(f'DROP DATABASE IF EXISTS "{name}"')
    url = postgres.url(name)
    try:
        parent.store.tenants.create("acme")
        entry = used(parent, "acme")
        recorded(parent, "acme")
        with parent.open("acme"), pytest.raises(errors.BusyError):
            parent.store.tenants.move("acme", url)
        killed(parent, "move", "_inspect", "before", f"store.tenants.move('acme', {url!r})")
        used(parent, "acme")
        moved = parent.store.tenants.move("acme", url)
        assert (moved.place, moved.verdict) == (url, "VALID")
        assert parent.store.tenants.get("acme").place == url
        used(parent, "acme")
        assert recorded(parent, "acme") == "recorded"
        assert parent.store.tenants.prove("acme", entry).leaf_id == entry
        if parent.url is None:
            killed(parent, "units", "_moved_to", "after", "store.tenants.move('acme', 'file')")
            with pytest.raises(errors.MovedError):
                parent.open("acme")
            assert parent.store.tenants.move("acme", "file").place == ""
            assert used(parent, "acme")
            assert recorded(parent, "acme") == "recorded"
        else:
            with pytest.raises(errors.InvalidInputError, match="on servers"):
                parent.store.tenants.move("acme", "file")
        with pytest.raises(errors.InvalidInputError, match="there already"):
            parent.store.tenants.move("acme", "file" if parent.url is None else url)
        assert parent.store.tenants.delete("acme", reason="the contract ended").status == "deleted"
    finally:
        postgres.sql(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')


def test_a_tenant_of_files_goes_to_another_disk_with_its_home(tmp_path: Path) -> None:
    with sync.open(tmp_path / "parent") as store:
        parent = Parent(tmp_path / "parent", None, store)
        store.tenants.create("acme")
        entry = used(parent, "acme")
        recorded(parent, "acme")
        disk2 = tmp_path / "disk2" / "acme"
        with pytest.raises(errors.InvalidInputError, match=r"moved while nobody has it open, and linked from"):
            store.tenants.move("acme", str(disk2))
        disk2.parent.mkdir()
        shutil.move(parent.folder("acme"), disk2)
        parent.folder("acme").symlink_to(disk2)
        assert used(parent, "acme") != entry
        assert recorded(parent, "acme") == "recorded"
        assert store.tenants.prove("acme", entry).leaf_id == entry
        with parent.open("acme") as acme:
            assert acme.verify.run(full=True).verdict is Verdict.VALID
        store.tenants.delete("acme", reason="the contract ended")
        assert not disk2.exists()


def test_without_the_right_to_create_a_database_the_error_says_what_to_do(
    postgres: Postgres, postgres_url: str, tmp_path: Path
) -> None:
    name = urlsplit(postgres_url).path.removeprefix("/")
    with sync.open(tmp_path, postgres_url) as store:
        store.agents.register("trader", version="1.0.0")
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute("CREATE ROLE tenants_app LOGIN NOSUPERUSER NOCREATEDB")
        try:
            for each in ("kernel", "membrane"):
                if connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (each,)).fetchone():
                    connection.execute(f"GRANT holdproof_{each} TO tenants_app".encode())
            url = postgres_url.replace("postgres@", "tenants_app@")
            with sync.open(tmp_path, url) as store:
                with pytest.raises(errors.MissingPrivilegeError, match=f"{name}_acme") as refused:
                    store.tenants.create("acme")
                assert "--place" in str(refused.value.remedy)
                assert not store.tenants.list().items
        finally:
            connection.execute("DROP OWNED BY tenants_app")
            connection.execute("DROP ROLE tenants_app")


def test_a_place_with_a_password_is_not_written_down(tmp_path: Path) -> None:
    with sync.open(tmp_path) as store:
        with pytest.raises(errors.InvalidInputError, match="password"):
            store.tenants.create("acme", place="postgresql://user:secret@db.example/acme")
        with pytest.raises(errors.InvalidInputError):
            store.tenants.create("acme", place="name-without-a-server")
        assert not store.tenants.list().items


# --- rounds that leave out what nobody wrote to ------------------------------------------------------------------


class Rounds:
    """Rounds of one server over a parent; `looked` says which tenants the last one looked at."""

    def __init__(self, parent: Parent, monkeypatch: pytest.MonkeyPatch) -> None:
        self._parent = parent
        self.now = 0.0
        self.memory = RoundMemory(lambda: self.now)
        self.looked: list[str] = []
        observe = heads._observe

        def noted(place: Any, row: Any, last_head: Any) -> Any:
            self.looked.append(row.name)
            return observe(place, row, last_head)

        monkeypatch.setattr(heads, "_observe", noted)
        # Times of files are believed at once; what that means has a test of its own.
        monkeypatch.setattr(unchanged, "_SETTLED_NS", 0)

    def run(self) -> dict[str, str]:
        """Run one round; return the states by tenant."""
        self.looked.clear()
        store = self._parent.store
        checks = store.run(heads.record_changed(store.context, self.memory))
        settled(store)
        return {each.name: each.state for each in checks}

    def until_quiet(self) -> None:
        """Run rounds until one looks at nothing: a server counts what was written a moment later."""
        deadline = time.monotonic() + 60
        while self.run() and self.looked:
            assert time.monotonic() < deadline, "every round looks at something"
            time.sleep(0.1)


def test_a_round_looks_only_at_tenants_that_somebody_wrote_to(parent: Parent, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("acme", "globex"):
        parent.store.tenants.create(name)
    rounds = Rounds(parent, monkeypatch)
    assert rounds.run().keys() == {"acme", "globex"}
    assert sorted(rounds.looked) == ["acme", "globex"], "none was seen before"
    rounds.until_quiet()
    used(parent, "acme")
    deadline = time.monotonic() + 60
    while (states := rounds.run())["acme"] != "recorded":
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert (states["globex"], rounds.looked) == ("unchanged", ["acme"])
    rounds.until_quiet()
    rounds.now += unchanged.LOOK_AGAIN_S
    rounds.run()
    assert sorted(rounds.looked) == ["acme", "globex"], "after an hour everything is looked at"


def test_a_tenant_that_was_put_back_is_found_by_a_round_that_leaves_out_others(
    parent: Parent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("acme", "globex"):
        parent.store.tenants.create(name)
    used(parent, "acme")
    frozen = Frozen(parent, "acme", tmp_path / "aside")
    used(parent, "acme")
    assert recorded(parent, "acme") == "recorded"
    rounds = Rounds(parent, monkeypatch)
    rounds.until_quiet()
    frozen.put_back()
    assert rounds.run() == {"acme": "finding", "globex": "unchanged"}
    assert rounds.looked == ["acme"]


def test_a_round_asks_the_server_once_however_many_pages_of_tenants_there_are(
    parent: Parent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It answers with all databases that it has: once for each page would be the square of them."""
    for name in ("acme", "globex"):
        parent.store.tenants.create(name)
    asked: list[int] = []
    databases = unchanged.databases

    def counted(tx: Any) -> Any:
        asked.append(1)
        return databases(tx)

    monkeypatch.setattr(unchanged, "databases", counted)
    monkeypatch.setattr(heads, "_BATCH", 1)
    rounds = Rounds(parent, monkeypatch)
    assert rounds.run().keys() == {"acme", "globex"}
    assert len(asked) == 1


def test_a_file_that_was_changed_a_moment_ago_is_looked_at_again(tmp_path: Path) -> None:
    database = tmp_path / "kernel.db"
    database.write_bytes(b"now")
    assert unchanged._mark_of_files(database) is None
    (tmp_path / "kernel.db-wal").touch()
    settled_at = time.time_ns() + 10 * unchanged._SETTLED_NS
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "time_ns", lambda: settled_at)
        mark = unchanged._mark_of_files(database)
        assert mark is not None
        assert unchanged._mark_of_files(database) == mark
        status = database.stat()
        database.write_bytes(b"own")
        os.utime(database, ns=(status.st_atime_ns, status.st_mtime_ns))
        assert unchanged._mark_of_files(database) != mark, "the same size and time of writing, and written to"
