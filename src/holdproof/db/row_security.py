"""Row level security: on PostgreSQL the server itself keeps the statements of a bound client in its namespace.

Rules:
- The role `holdproof_tenant` sees and changes rows of the namespace that the setting `holdproof.ns` names, and of no
  other; without the setting it sees none. Nobody logs in as it: the store's login takes it on for one operation of a
  client that is bound to a namespace, and lays it down before the next and before the log and the commit.
- Operations of many tenants share a transaction (group commit), so role and setting belong to the operation.
- For every other role each policy is `true`: what is bound to no namespace pays nothing.
- Rules of retention are the one table with a namespace that is left out.
- It is a second wall against a wrong query. SQL that an attacker writes could lay the role down; rows of the log's own
  tables have no namespace and are not covered.
- It needs PostgreSQL 16, where a role can be taken on without its policies holding for the login (WITH INHERIT FALSE).
"""

from typing import Final

from holdproof.db.sql import sql_postgres

_ROLE: Final = "holdproof_tenant"
_SETTING: Final = "holdproof.ns"
_WHOLE: Final = "holdproof_whole"
_SPACE: Final = "kernel"

IS_READY = sql_postgres(
    "SELECT CASE WHEN current_setting('server_version_num')::int < 160000 THEN false ELSE EXISTS (SELECT 1"  # noqa: S608
    f" FROM pg_catalog.pg_roles r JOIN pg_catalog.pg_class c ON c.oid = to_regclass('{_SPACE}.decision_flows')"
    f" WHERE r.rolname = '{_ROLE}' AND c.relrowsecurity AND pg_has_role(current_user, r.oid, 'SET')) END"
)
"""Whether this login can take the role on in this database."""
TAKE_ON = sql_postgres(f"SELECT set_config('role', '{_ROLE}', true), set_config('{_SETTING}', :ns, true)")
LAY_DOWN = sql_postgres(f"SELECT set_config('role', 'none', true), set_config('{_SETTING}', '', true)")

_EXEMPT: Final = "retention_rules"
"""Read as a whole by whoever removes anything: a rule that somebody deleted in any namespace ends all removing."""

_POLICIES: Final = {
    _WHOLE: ("AS PERMISSIVE FOR ALL TO PUBLIC USING (true)", "permissive * public true "),
    _ROLE: (
        f"AS RESTRICTIVE FOR ALL TO {_ROLE} USING (ns = current_setting(''{_SETTING}''))",
        f"restrictive * {_ROLE} (ns = current_setting('{_SETTING}'::text)) ",
    ),
}
"""How each policy is created, in a quoted text, and how verification reads it from the catalogue."""
_ALL_COMMANDS: Final = "p.polcmd = '*' AND p.polwithcheck IS NULL"
_AS_CREATED: Final = {
    _WHOLE: f"{_ALL_COMMANDS} AND p.polpermissive AND p.polroles = '{{0}}'"
    " AND pg_catalog.pg_get_expr(p.polqual, p.polrelid) = 'true'",
    _ROLE: f"{_ALL_COMMANDS} AND NOT p.polpermissive AND p.polroles = ARRAY['{_ROLE}'::regrole::oid]"
    f" AND pg_catalog.pg_get_expr(p.polqual, p.polrelid) = '(ns = current_setting(''{_SETTING}''::text))'",
}
"""Whether a row of the catalogue is the policy as it is created."""


def setup(application: str) -> str:
    """Return the statement that creates the role and the policies of every table with a namespace."""
    # One that is as it was created stays, without a lock on its table; one that was altered is created anew.
    policies = " ".join(
        f"IF NOT EXISTS (SELECT 1 FROM pg_catalog.pg_policy p WHERE p.polrelid = name"  # noqa: S608 (constants)
        f" AND p.polname = '{policy}' AND {_AS_CREATED[policy]}) THEN"
        f" EXECUTE format('DROP POLICY IF EXISTS {policy} ON %s', name);"
        f" EXECUTE format('CREATE POLICY {policy} ON %s {definition}', name); END IF;"
        for policy, (definition, _) in _POLICIES.items()
    )
    return (
        "DO $$ DECLARE name regclass; BEGIN"  # noqa: S608 (names are constants, and checked by the caller)
        " IF current_setting('server_version_num')::int < 160000 THEN RETURN; END IF;"
        f" BEGIN CREATE ROLE {_ROLE} NOLOGIN; EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END;"
        f" GRANT holdproof_{_SPACE} TO {_ROLE};"
        f" EXECUTE 'GRANT {_ROLE} TO {application} WITH INHERIT FALSE, SET TRUE';"
        " FOR name IN SELECT c.oid FROM pg_catalog.pg_class c JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid"
        f" WHERE c.relnamespace = '{_SPACE}'::regnamespace AND c.relkind IN ('r', 'p') AND a.attname = 'ns'"
        f" AND NOT a.attisdropped AND c.relname <> '{_EXEMPT}' LOOP {policies}"
        " EXECUTE format('ALTER TABLE %s ENABLE ROW LEVEL SECURITY', name); END LOOP; END $$"
    )


def without_policies(objects: dict[str, str]) -> dict[str, str]:
    """Return the objects of a schema without the policies of `setup`; a table with other policies stays as it is."""
    plain = dict(objects)
    for name in objects:
        if not name.startswith("relation "):
            continue
        table = name.removeprefix("relation ")
        if all(objects.get(f"policy {table}.{policy}") == text for policy, (_, text) in _POLICIES.items()):
            for policy in _POLICIES:
                del plain[f"policy {table}.{policy}"]
            kind, columns = plain[name].split(": ", 1)
            plain[name] = f"{kind.removesuffix('t')}f: {columns}"
    return plain
