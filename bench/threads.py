"""Callers as threads."""

import threading
from collections.abc import Callable


def threads(count: int, act: Callable[[int], None]) -> None:
    """Run `act(0)` … `act(count - 1)`, each in its thread; the first failure is raised."""
    failures: list[BaseException] = []

    def guarded(number: int) -> None:
        try:
            act(number)
        except BaseException as error:
            failures.append(error)

    running = [threading.Thread(target=guarded, args=(number,)) for number in range(count)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join()
    if failures:
        raise failures[0]
