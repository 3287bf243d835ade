"""The server: HTTP API and console over one store. Needs the extra `server`."""

from holdproof.server.app import create_app
from holdproof.server.settings import ServerSettings

__all__ = ["ServerSettings", "create_app"]
