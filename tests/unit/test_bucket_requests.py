"""Requests to a bucket that are under way at once: their results, how many wait, and how a failure ends them."""

import itertools
import threading
import time
from collections.abc import Iterator

import pytest

from holdproof.model.progress import Progress
from holdproof.upkeep.backups import bucket_backups
from holdproof.upkeep.backups.backup_list import no_progress


def test_results_come_in_the_order_of_the_items() -> None:
    chances = [0.02, 0.0, 0.01, 0.0, 0.005] * 60

    def work(item: tuple[int, float], told: Progress) -> int:
        del told
        number, pause_s = item
        time.sleep(pause_s)
        return number

    assert [*bucket_backups._at_once(work, enumerate(chances), no_progress)] == [*range(len(chances))]


def test_of_millions_of_files_only_some_wait_in_memory() -> None:
    taken = 0

    def files() -> Iterator[int]:
        nonlocal taken
        for number in itertools.count():
            taken += 1
            yield number

    results = bucket_backups._at_once(lambda item, told: item, files(), no_progress)
    assert [*itertools.islice(results, 300)] == [*range(300)]
    del results
    assert taken <= 300 + bucket_backups._MOST_AHEAD


def test_the_first_failure_ends_a_large_file_that_is_under_way() -> None:
    begun = threading.Event()
    is_ended = False

    def work(item: str, told: Progress) -> None:
        nonlocal is_ended
        if item == "damaged":
            assert begun.wait(60)
            raise OSError(item)
        begun.set()
        try:
            for done in range(1_000):
                told("sending large", done, 1_000)
                time.sleep(0.06)
        except Exception:
            is_ended = True
            raise

    with pytest.raises(OSError, match="damaged"):
        list(bucket_backups._at_once(work, ["damaged", "large", "never begun"], no_progress))
    assert is_ended
