"""Tenants with stores of their own: one declaration per method."""

from typing import TYPE_CHECKING, Any, Final

from holdproof.executors import Executor, Reads, Resource, Runs, RunsWith
from holdproof.lazy import lazy_functions
from holdproof.model.verdicts import Verdict

if TYPE_CHECKING:
    from holdproof.evidence import tenants
    from holdproof.store.tenants import heads, proofs, units
else:
    globals().update(lazy_functions("holdproof.evidence", "tenants"))
    globals().update(lazy_functions("holdproof.store.tenants", "heads proofs units"))

_TENANT: Final = {"tenant": "The tenant's name."}
_ENTRY: Final = "0198a7c2-9c1e-7a3b-8f00-5d2c6e1b4a97"


def _exit_checks(answer: Any) -> int:
    """Return the code of tampering where a tenant has a finding; 6 where one could only not be reached."""
    states = {each.state for each in answer}
    if "finding" in states:
        return int(Verdict.TAMPERED.exit_code)
    return 6 if "unreachable" in states else 0


class TenantsResource(Resource[Executor]):
    """Tenants: stores of their own below this one, which knows their names and records their heads."""

    group = "Operate"

    create = RunsWith(
        units.create,
        grantable=False,
        creates=True,
        parameters={
            "tenant": "Its name: small letters, digits and hyphens.",
            "place": "An empty database for it: a name on this store's server, or a URL without password.",
        },
        example="acme",
        note=lambda tenant: f"use it with `holdproof --tenant {tenant.name} ...`",
    )
    get = Reads(tenants.get, parameters=_TENANT, example="acme")
    list = Reads(
        tenants.list,
        columns=("name", "status", "size", "recorded_at", "finding", "place", "created_at"),
        parameters={"status": "Only tenants with this status; `deleted` shows those that are gone."},
    )
    record_heads = RunsWith(
        heads.record_heads,
        grantable=False,
        columns=("name", "state", "size", "what"),
        parameters={"tenant": "One tenant; all without it."},
        example="acme",
        exit_code=_exit_checks,
    )
    accept = RunsWith(
        heads.accept, grantable=False, parameters=_TENANT, example="acme --reason 'restored after the fire'"
    )
    prove = RunsWith(
        proofs.prove,
        reads=True,
        document="text",
        parameters={**_TENANT, "leaf_id": "The handle of the record, as in `log prove`."},
        example=f"acme {_ENTRY} --out proof.json",
    )
    check_proof = Runs(
        proofs.check_proof,
        storeless=True,
        reads=True,
        files=("document",),
        parameters={"document": "What `tenants prove` wrote", "key": "The parent's log key, from somebody you trust."},
        example="proof.json --key KEY",
    )
    export = RunsWith(
        units.export,
        grantable=False,
        parameters={**_TENANT, "dest": "A new folder."},
        example="acme /mnt/backups/acme",
    )
    move = RunsWith(
        units.move,
        grantable=False,
        parameters={**_TENANT, "place": "An empty database: a name on this store's server, a URL, or `file`."},
        example="acme postgresql://db.example/acme",
    )
    delete = RunsWith(
        units.delete,
        grantable=False,
        parameters=_TENANT,
        example="acme --reason 'contract ended'",
        confirm="Delete the tenant {tenant!r} with everything in it for good?",
    )
    # Last: from here on the name is the method's, no longer the module's.
    heads = Reads(
        tenants.heads, columns=("recorded_at", "size", "origin", "id"), parameters=_TENANT, example="acme --limit 5"
    )
