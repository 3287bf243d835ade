"""The remote client: a store on a server, with the methods of an embedded one: `holdproof.connect(url, token)`.

What crosses the wire is made from the catalogue of methods (api/catalogue.py); functions of the caller stay here, and
the server calls them back.
"""

from holdproof.remote.store import Remote, SyncRemote, connect, connect_sync

__all__ = ["Remote", "SyncRemote", "connect", "connect_sync"]
