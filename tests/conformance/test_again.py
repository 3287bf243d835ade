"""The suites once more, each function of a transaction run in vain first: nothing outside of it may have changed."""

from collections.abc import Iterator

import pytest

from tests.again import again
from tests.conformance import (
    test_archive,
    test_blobs,
    test_escalations,
    test_evaluations,
    test_exports,
    test_flows,
    test_garbage,
    test_idempotency,
    test_image,
    test_lisp_files,
    test_locks,
    test_log_audit,
    test_nearest,
    test_notes,
    test_objects,
    test_pruning,
    test_search,
    test_sessions,
    test_snapshots,
    test_steps,
    test_telemetry,
    test_threads,
    test_transcripts,
    test_values,
)


class Again:
    @pytest.fixture(autouse=True)
    def _again(self) -> Iterator[None]:
        with again():
            yield


class TestArchives(Again, test_archive.TestInMemory): ...


class TestBattles(Again, test_evaluations.TestMemory): ...


class TestBlobs(Again, test_blobs.TestInMemory): ...


class TestEscalations(Again, test_escalations.TestMemory): ...


class TestExports(Again, test_exports.TestMemory): ...


class TestFlows(Again, test_flows.TestMemory): ...


class TestGarbage(Again, test_garbage.TestInMemory): ...


class TestIdempotency(Again, test_idempotency.TestMemory): ...


class TestImages(Again, test_image.TestInMemory): ...


class TestLispFiles(Again, test_lisp_files.TestInMemory): ...


class TestLocks(Again, test_locks.TestMemory): ...


class TestLogAudit(Again, test_log_audit.TestMemory): ...


class TestNearest(Again, test_nearest.TestInMemory): ...


class TestNotes(Again, test_notes.TestMemory): ...


class TestObjects(Again, test_objects.TestInMemory): ...


class TestPruning(Again, test_pruning.TestInMemory): ...


class TestSearch(Again, test_search.TestInMemory): ...


class TestSessions(Again, test_sessions.TestMemory): ...


class TestSnapshots(Again, test_snapshots.TestInMemory): ...


class TestSteps(Again, test_steps.TestMemory): ...


class TestTelemetry(Again, test_telemetry.TestMemory): ...


class TestThreads(Again, test_threads.TestMemory): ...


class TestTranscripts(Again, test_transcripts.TestMemory): ...


class TestValues(Again, test_values.TestInMemory): ...
