"""Which place a text names."""

from pathlib import Path
from typing import Any

from holdproof.errors import ConfigError, InvalidInputError, MissingExtraError
from holdproof.storage.blobs.blob_backend import BlobBackend
from holdproof.storage.blobs.files import Files
from holdproof.storage.blobs.ipfs import Ipfs


def open_place(target: str | Path, **options: Any) -> BlobBackend:
    """The place a text names: a folder, `s3://bucket/prefix`, or `ipfs+http://127.0.0.1:5001`.

    A folder takes no options. Those of S3 are obstore's (`endpoint`, `region`, `access_key_id`, …), and what is not
    given comes from the AWS_ variables; IPFS takes a bearer `token` and `idle_s`, the longest silence. Both take
    `spools`, a folder for temporary files.
    """
    scheme, found, rest = str(target).partition("://")
    if not found:
        if options:
            raise InvalidInputError(f"a folder takes no option {min(options)!r}", option=min(options))
        return Files(Path(target))
    if scheme == "s3":
        return _s3(rest, **options)
    if scheme in {"ipfs+http", "ipfs+https"}:
        return Ipfs(f"{scheme.removeprefix('ipfs+')}://{rest}", **options)
    raise ConfigError(f"no place for blobs: {scheme}://; use a folder, s3:// or ipfs+http://", scheme=scheme)


def _s3(rest: str, **options: Any) -> BlobBackend:
    try:
        from holdproof.storage.blobs.s3 import S3  # noqa: PLC0415 (an optional extra)
    except ImportError as error:
        raise MissingExtraError("S3 needs its client: pip install 'holdproof[s3]'") from error
    bucket, _, prefix = rest.partition("/")
    return S3(bucket, prefix, **options)
