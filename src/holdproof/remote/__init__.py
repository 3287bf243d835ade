"""A store on a server, with the face of an embedded one: `holdproof.connect(url, token)`.

What crosses the wire is made from the catalogue of nouns and verbs (api/catalogue.py); functions of the caller stay
here, and the server calls them back.
"""

from holdproof.remote.store import Remote, SyncRemote, connect, connect_sync

__all__ = ["Remote", "SyncRemote", "connect", "connect_sync"]
