"""A bucket of S3, or a part of one, as the place of a published log; see targets.LogTarget."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final, Literal

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, NotFoundError, PreconditionError
from obstore.store import S3Store

from holdproof.errors import ConfigError, ConflictError
from holdproof.storage.blobs.s3 import PATIENCE, plain, refusal
from holdproof.upkeep.bucket_address import BucketAddress
from holdproof.upkeep.publishing.targets import CHECKPOINT, MOST_BYTES, StoredCheckpoint, something_else

_FOREVER: Final = "public, max-age=31536000, immutable"
_BRIEFLY: Final = "no-cache"


class LogBucket:
    """See targets.LogTarget. Endpoint and credentials come from the AWS_ variables."""

    def __init__(self, address: BucketAddress) -> None:
        self.where = f"s3://{address.bucket}/{address.folder}".rstrip("/")
        try:
            self._store = S3Store(
                address.bucket,
                prefix=address.folder or None,
                client_options={"timeout": PATIENCE, **({"allow_http": True} if plain({}) else {})},
                retry_config={"max_retries": 3, "retry_timeout": PATIENCE},
            )
        except BaseError as error:
            raise ConfigError(f"{self.where}: {error}") from error

    def checkpoint(self) -> StoredCheckpoint | None:
        """See targets.LogTarget."""
        with self._translated():
            try:
                answer = obstore.get(self._store, CHECKPOINT)
            except (NotFoundError, FileNotFoundError):
                return None
            # Known before any of it is read: it could be larger than the memory.
            if answer.meta["size"] > MOST_BYTES:
                raise something_else(self.where)
            return StoredCheckpoint(answer.bytes().to_bytes(), answer.meta["e_tag"])

    def put(self, path: str, data: bytes) -> None:
        """See targets.LogTarget."""
        attributes = {"Content-Type": "application/octet-stream", "Cache-Control": _FOREVER}
        with self._translated():
            obstore.put(self._store, path, data, attributes=attributes)

    def swap(self, data: bytes, before: StoredCheckpoint | None) -> None:
        """See targets.LogTarget."""
        mode: Literal["create"] | dict[str, object] = "create" if before is None else {"e_tag": before.version}
        attributes = {"Content-Type": "text/plain; charset=utf-8", "Cache-Control": _BRIEFLY}
        with self._translated():
            try:
                obstore.put(self._store, CHECKPOINT, data, attributes=attributes, mode=mode)  # type: ignore[arg-type]
            except (AlreadyExistsError, PreconditionError, FileExistsError) as error:
                raise ConflictError(
                    f"somebody else published to {self.where} meanwhile: run it again", target=self.where
                ) from error

    def drop_partials(self, path: str) -> None:
        """See targets.LogTarget."""
        with self._translated():
            names = [each["path"] for page in obstore.list(self._store, prefix=f"{path}.p") for each in page]
            if names:
                obstore.delete(self._store, names)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except BaseError as error:
            raise refusal(error, self.where) from error
