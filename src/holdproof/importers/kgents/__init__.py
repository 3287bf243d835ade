"""Import of kgents data: `~/.kgents` and its XDG home.

    report = migrate(stores, roots())

What a start says about data that can be imported is in `storage.legacy_paths`.
"""

from holdproof.importers.kgents.driver import migrate, required
from holdproof.storage.legacy_paths import hint, returned, roots

__all__ = ["hint", "migrate", "required", "returned", "roots"]
