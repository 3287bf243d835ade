"""The task stores of A2A: the document of one transcript for each task of each owner.

Rules:
- A task is written whole, the last writer's, and is durable when the call returns.
- With versions, a writer that has not seen the last write is refused, whichever of the two stores wrote it; a
  cancellation overwrites whatever has not ended.
- What one owner saves, no other sees; the same id of two owners is two tasks.
"""

from typing import Any, Final

from a2a.server.cluster.task_store import ConcurrentTaskModificationError, StoredTask, VersionedTaskStore
from a2a.server.cluster.version import TaskVersion
from a2a.server.context import ServerCallContext
from a2a.server.events.event_queue import Event
from a2a.server.tasks.task_store import TaskStore
from a2a.types.a2a_pb2 import ListTasksRequest, ListTasksResponse, Task, TaskState
from a2a.utils.constants import DEFAULT_LIST_TASKS_PAGE_SIZE
from a2a.utils.errors import InvalidParamsError
from a2a.utils.task import ListTasksCursor, decode_list_tasks_cursor, decode_page_token, encode_list_tasks_cursor
from google.protobuf.json_format import MessageToDict, ParseDict

from holdproof.adapters import documents
from holdproof.adapters.a2a.owners import OwnedStore
from holdproof.adapters.shared_store import shield_until_done
from holdproof.errors import ConflictError, InvalidInputError, NotFoundError
from holdproof.kernel import Tx, transcripts
from holdproof.model.transcripts import Transcript

PREFIX: Final = "a2a/"
_ENDED: Final = frozenset(
    {
        TaskState.TASK_STATE_COMPLETED,
        TaskState.TASK_STATE_CANCELED,
        TaskState.TASK_STATE_FAILED,
        TaskState.TASK_STATE_REJECTED,
    }
)


class _Tasks(OwnedStore):
    """What both stores do alike: find, list and delete."""

    async def _find(self, task_id: str, context: ServerCallContext) -> Transcript | None:
        name = documents.joined(PREFIX, self._owner(context), task_id)
        store = await self._shared.store()
        try:
            return await store.transcripts.get(name, **self._within())
        except NotFoundError:
            return None

    async def list(self, params: ListTasksRequest, context: ServerCallContext) -> ListTasksResponse:
        """List tasks of the caller, the last changed first, a page at a time."""
        prefix = documents.joined(PREFIX, self._owner(context), "")
        store = await self._shared.store()
        within = self._within()
        rows = await store.read(lambda tx: [each.state for each in documents.every(tx, prefix, **within)])
        matching = sorted((row for row in rows if _matches(row, params)), key=_sort_key, reverse=True)
        page_size = params.page_size or DEFAULT_LIST_TASKS_PAGE_SIZE
        start = _start(matching, params.page_token) if params.page_token else 0
        page = matching[start : start + page_size]
        more = start + page_size < len(matching)
        return ListTasksResponse(
            # Only the tasks of the page are decoded: that costs more than all the rest.
            tasks=[_task(row) for row in page],
            total_size=len(matching),
            page_size=page_size,
            next_page_token=_token(page[-1]) if more else None,
        )

    async def delete(self, task_id: str, context: ServerCallContext) -> None:
        """Delete a task of the caller; nothing where there is none."""
        name = documents.joined(PREFIX, self._owner(context), task_id)
        store = await self._shared.store()
        await shield_until_done(store.transcripts.delete(name, **self._within()))


class HoldproofTaskStore(_Tasks, TaskStore):
    """Tasks on a store; of two writers the last one counts."""

    async def save(self, task: Task, context: ServerCallContext) -> None:
        """Write a task in the place of the one with its id."""
        row = _row(task)
        owner = self._owner(context)
        name = documents.joined(PREFIX, owner, task.id)
        store = await self._shared.store()
        await shield_until_done(store.transcripts.put_state(name, row, **self._label(owner)))

    async def get(self, task_id: str, context: ServerCallContext) -> Task | None:
        """Return a task of the caller, None where there is none."""
        transcript = await self._find(task_id, context)
        return None if transcript is None else _task(transcript.state)


class HoldproofVersionedTaskStore(_Tasks, VersionedTaskStore):
    """Tasks on a store; a writer that missed a change is refused."""

    async def save(
        self,
        task: Task,
        *,
        event: Event | None = None,
        prev: Task | None = None,
        prev_version: TaskVersion,
        context: ServerCallContext,
    ) -> TaskVersion:
        """Write a task if nobody wrote since `prev_version`; return its new version."""
        del event, prev
        row = _row(task)
        owner = self._owner(context)
        name = documents.joined(PREFIX, owner, task.id)
        label = self._label(owner)
        cancels = task.status.state == TaskState.TASK_STATE_CANCELED
        # 0 stands for a transcript that is not there yet, as a missing version does for a task.
        expected = None if cancels else int(prev_version._value)

        def write(tx: Tx) -> int:
            if cancels and not _is_running(tx, name, label["ns"]):
                raise ConcurrentTaskModificationError(task.id)
            return transcripts.put_state(tx, name, row, expected=expected, **label)

        store = await self._shared.store()
        try:
            return TaskVersion(await shield_until_done(store.write(write)))
        except ConflictError as error:
            raise ConcurrentTaskModificationError(task.id) from error

    async def get(self, task_id: str, context: ServerCallContext) -> StoredTask | None:
        """Return a task of the caller with its version, None where there is none."""
        transcript = await self._find(task_id, context)
        return None if transcript is None else StoredTask(_task(transcript.state), TaskVersion(transcript.rev))


def _is_running(tx: Tx, name: str, ns: str) -> bool:
    """Whether there is such a task, and it has not ended; nobody changes it before this transaction ends."""
    try:
        transcripts.get(tx, name, ns=ns)
    except NotFoundError:
        return False
    # Changing nothing takes the row, so that what is read now stays so.
    return transcripts.update_state(tx, name, {}, ns=ns)["state"] not in _ENDED


def _row(task: Any) -> dict[str, Any]:
    """Return a task as it is stored: what listings filter and sort by, and the task as JSON."""
    if not isinstance(task, Task):
        raise InvalidInputError(f"a task must be a Task of a2a.types, not {type(task).__name__}", field="task")
    timed = task.HasField("status") and task.status.HasField("timestamp")
    return {
        "id": task.id,
        "at": task.status.timestamp.ToNanoseconds() if timed else None,
        "state": task.status.state,
        "context": task.context_id,
        "task": MessageToDict(task),
    }


def _task(row: dict[str, Any]) -> Task:
    # A field of a newer version of the SDK must not make a task unreadable to an older one beside it.
    task = Task()
    ParseDict(row["task"], task, ignore_unknown_fields=True)
    return task


def _matches(row: dict[str, Any], params: ListTasksRequest) -> bool:
    if params.context_id and row["context"] != params.context_id:
        return False
    if params.status and row["state"] != params.status:
        return False
    if params.HasField("status_timestamp_after"):
        return row["at"] is not None and row["at"] >= params.status_timestamp_after.ToNanoseconds()
    return True


def _sort_key(row: dict[str, Any]) -> tuple[bool, int, str]:
    """Return what listings are sorted by, the greatest first: A2A has tasks without a time last."""
    return (row["at"] is not None, row["at"] or 0, row["id"])


def _token(row: dict[str, Any]) -> str:
    token: str = encode_list_tasks_cursor(ListTasksCursor(timestamp_ns=row["at"], task_id=row["id"]))
    return token


def _start(rows: list[dict[str, Any]], token: str) -> int:
    """Return where the page of a token begins; tokens of older versions name the first task of the page."""
    cursor = decode_list_tasks_cursor(token)
    if cursor is not None:
        last = cursor.sort_key()
        return next((at for at, row in enumerate(rows) if _sort_key(row) < last), len(rows))
    first = decode_page_token(token)
    for at, row in enumerate(rows):
        if row["id"] == first:
            return at
    raise InvalidParamsError(f"Invalid page token: {token}")
