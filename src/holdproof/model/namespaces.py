"""Names of namespaces that have a meaning of their own."""

from typing import Final
from urllib.parse import quote

MAIN: Final = "main"
"""The namespace of whoever names none."""
EVERY: Final = "*"
"""Every namespace, and the duties of the whole store."""
TENANT_PATH: Final = "/t/"
"""Where a server has the stores of its tenants: `/t/NAME` before every path of a store."""


def tenant_address(url: str, tenant: str | None) -> str:
    """Return the address of a tenant at a server; that of the server itself without one."""
    return url if tenant is None else f"{url.rstrip('/')}{TENANT_PATH}{quote(tenant, safe='')}"
