"""Bytes that a person saves."""

from urllib.parse import quote

from starlette.responses import Response


def download(data: bytes, name: str, kind: str) -> Response:
    """Bytes to be saved, never to be shown."""
    # RFC 5987 with everything escaped: a flow's id may hold quotes and line breaks.
    headers = {"Content-Disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}"}
    return Response(data, headers=headers, media_type=kind)
