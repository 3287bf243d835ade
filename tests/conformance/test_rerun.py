"""The suites once more, each function of a transaction run in vain first: nothing outside of it may have changed."""

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
    test_messages,
    test_nearest,
    test_notes,
    test_objects,
    test_pruning,
    test_schedules,
    test_search,
    test_sessions,
    test_snapshots,
    test_steps,
    test_telemetry,
    test_threads,
    test_transcripts,
    test_values,
)
from tests.rerun import Rerun


class TestArchives(Rerun, test_archive.TestInMemory): ...


class TestBattles(Rerun, test_evaluations.TestMemory): ...


class TestBlobs(Rerun, test_blobs.TestInMemory): ...


class TestEscalations(Rerun, test_escalations.TestMemory): ...


class TestExports(Rerun, test_exports.TestMemory): ...


class TestFlows(Rerun, test_flows.TestMemory): ...


class TestGarbage(Rerun, test_garbage.TestInMemory): ...


class TestIdempotency(Rerun, test_idempotency.TestMemory): ...


class TestImages(Rerun, test_image.TestInMemory): ...


class TestLispFiles(Rerun, test_lisp_files.TestInMemory): ...


class TestLocks(Rerun, test_locks.TestMemory): ...


class TestLogAudit(Rerun, test_log_audit.TestMemory): ...


class TestMessages(Rerun, test_messages.TestMemoryMessages): ...


class TestNearest(Rerun, test_nearest.TestInMemory): ...


class TestNotes(Rerun, test_notes.TestMemory): ...


class TestObjects(Rerun, test_objects.TestInMemory): ...


class TestPruning(Rerun, test_pruning.TestInMemory): ...


class TestSchedules(Rerun, test_schedules.TestMemory): ...


class TestSearch(Rerun, test_search.TestInMemory): ...


class TestSessions(Rerun, test_sessions.TestMemory): ...


class TestSnapshots(Rerun, test_snapshots.TestInMemory): ...


class TestSteps(Rerun, test_steps.TestMemory): ...


class TestTelemetry(Rerun, test_telemetry.TestMemory): ...


class TestThreads(Rerun, test_threads.TestMemory): ...


class TestTranscripts(Rerun, test_transcripts.TestMemory): ...


class TestValues(Rerun, test_values.TestInMemory): ...
