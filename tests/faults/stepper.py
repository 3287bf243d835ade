"""A worker that orders ten things, one step each, and may be killed anywhere; the last order fails and all is undone.

python -m tests.faults.stepper HOME URL DFID WORLD FAIL
"""

import os
import sys
import time

from holdfast import errors, sync

STEPS = 6


def main(home: str, url: str, dfid: str, world: str, fail: str) -> None:
    def act(what: str) -> str:
        file = os.open(world, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(file, f"{what}\n".encode())
        os.close(file)
        time.sleep(0.01)  # time to be killed in, with the deed done and not yet written down
        return what

    with sync.open(home, url or None) as store:
        print("open", flush=True)
        while True:
            try:
                with store.flows.run(resume=dfid, lease_s=0.5) as flow:
                    for number in range(STEPS):
                        flow.step(f"order {number}", act, f"do {number}", compensate=lambda done: act(f"un{done}"))
                    if fail == "fail":
                        raise ZeroDivisionError
                return
            except ZeroDivisionError:
                return
            except errors.FlowEndedError:
                return
            except errors.ConflictError:  # the lease of the one before has not run out
                time.sleep(0.05)


if __name__ == "__main__":
    main(*sys.argv[1:])
