"""Topics: nobody who waits is forgotten."""

import threading

from holdproof.db.topics import Topics


def test_a_signal_after_the_look_answers_at_once() -> None:
    topics = Topics()
    since = topics.epoch
    topics.signal(["a"])
    assert not topics.subscribe("a", since, lambda: None)
    assert topics.subscribe("a", topics.epoch, lambda: None)


def test_a_waiter_is_woken_once_and_one_that_gave_up_never() -> None:
    topics, woken = Topics(), list[str]()
    stay, leave = (lambda: woken.append("stayed")), (lambda: woken.append("left"))
    topics.subscribe("a", topics.epoch, stay)
    topics.subscribe("a", topics.epoch, leave)
    topics.unsubscribe("a", leave)
    topics.signal(["a"])
    topics.signal(["a"])
    assert woken == ["stayed"]


def test_no_wake_up_is_lost_between_racing_threads() -> None:
    topics, seen, total = Topics(), [0], 2_000

    def look() -> None:
        while True:
            since, bell = topics.epoch, threading.Event()
            if seen[0] == total:
                return
            if topics.subscribe("a", since, bell.set):
                assert bell.wait(30), "a wake-up was lost"

    threads = [threading.Thread(target=look) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(total):
        seen[0] += 1
        topics.signal(["a"])
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)


def test_a_waiter_that_cannot_be_woken_does_not_keep_the_others_asleep() -> None:
    """As when its event loop was closed: `call_soon_threadsafe` raises."""
    topics, woken = Topics(), list[str]()

    def closed() -> None:
        raise RuntimeError("Event loop is closed")

    topics.subscribe("a", topics.epoch, closed)
    topics.subscribe("a", topics.epoch, lambda: woken.append("second"))
    topics.signal(["a"])
    assert woken == ["second"]
