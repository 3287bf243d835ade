"""The server: HTTP API and console over one store. Needs the extra `server`."""

from holdfast.server.app import create_app
from holdfast.server.settings import Settings

__all__ = ["Settings", "create_app"]
