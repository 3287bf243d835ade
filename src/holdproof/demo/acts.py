"""The acts, in the order in which they are played."""

import signal
import subprocess
import sys
from typing import Final

from holdproof import errors
from holdproof.config import Paths
from holdproof.content import disk
from holdproof.demo import forgery, shipping
from holdproof.demo.scene import Act, Background, Scene
from holdproof.model.flows import Flow

_LIMIT: Final = 500


def deciding(scene: Scene) -> None:
    """Two agents want the same budget; one gets it. An order that is sent twice is placed once."""
    act = "deciding"
    store = scene.store
    for name in ("buyer", "scout", "shipper"):
        store.agents.register(name, version="1.0.0", contract={"limit": _LIMIT})
    with store.flows.run("buyer", flow_type="restock") as flow:
        [lock] = flow.lock({"budget:office": 1})
        scene.say(act, f"buyer holds budget:office, fence {lock.fence}", flow_id=flow.flow_id, fence=lock.fence)
        other = store.flows.start("scout", flow_type="restock")
        try:
            store.locks.acquire(other.flow_id, {"budget:office": 1}, timeout_s=0)
        except errors.ContentionTimeoutError as error:
            scene.say(act, f"scout is told to wait: {error.message}", code=error.code)
        calls: list[str] = []

        def place() -> str:
            calls.append("paper")
            return "order 17"

        key = f"order {flow.flow_id}"
        answers = [store.idempotency.once(key, {"item": "paper"}, place) for _ in range(2)]
        text = f"the order was sent {len(answers)} times and placed {len(calls)} time: {answers[0]}"
        scene.say(act, text, answers=answers, placed=len(calls))
    store.flows.transition(other.flow_id, "CANCELLED")
    scene.facts["flow"] = flow.flow_id


def asking(scene: Scene) -> None:
    """An agent wants more than it may; a person allows less than it wants."""
    act = "asking"
    store = scene.store
    # The demonstration may run on a store where other questions wait already.
    known_ids = {each.id for each in store.escalations.list(status="PENDING").items}
    deciding = Background(lambda: scene.large_order({"item": "chairs", "amount": 900}))
    escalation = scene.until(
        lambda: next(
            (each for each in store.escalations.list(status="PENDING").items if each.id not in known_ids), None
        )
    )
    scene.say(
        act, f"buyer asks: {escalation.reason}, it wants {escalation.proposal['amount']}", escalation=escalation.id
    )
    waiting = store.flows.get(escalation.flow_id)
    scene.say(act, f"its flow waits for an answer: {waiting.status}", flow_id=escalation.flow_id)
    less = {"item": "chairs", "amount": 400}
    store.escalations.resolve(escalation.id, "approve", by="ann", proposal=less, comment="four hundred is enough")
    done = deciding.result()
    scene.say(act, f"ann approves {less['amount']} instead; the flow goes on and orders {done['amount']}", order=done)
    scene.facts["asked"] = escalation.flow_id


def killed(scene: Scene) -> None:
    """A worker is killed after the carrier has the parcel and before anybody wrote it down."""
    act = "killed"
    store = scene.store
    parcel = f"parcel {len(scene.shop.booked) + 17}"
    paths = store.core.paths
    settings = store.core.settings
    home = str(paths.data) if Paths.find(paths.data) == paths else ""  # or where the environment says, as here
    words = [home, settings.database_url or "", str(scene.folder / "carrier.txt"), parcel]
    # A real process, because only a process can be killed without a chance to clean up.
    with subprocess.Popen(  # noqa: S603 (our own words)
        [sys.executable, "-m", "holdproof.demo.shipping", *words], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as child:
        assert child.stdout is not None
        line = child.stdout.readline().decode().strip()
        # SIGKILL, not a polite signal: nothing of the worker may run after this line.
        child.send_signal(signal.SIGKILL)
        scene.say(act, f"the worker {line} {parcel}, and then: kill -9 {child.pid}", pid=child.pid)
        child.wait()
    ended = scene.until(lambda: _recovered(scene))
    times = scene.shop.booked.count(parcel)
    scene.say(
        act,
        f"another worker took its flow up and ended it: {ended.status}; the carrier has the parcel {times} time",
        flow_id=ended.flow_id,
        booked=times,
    )
    scene.facts["killed"] = ended.flow_id


def _recovered(scene: Scene) -> Flow | None:
    """Return the flow of the dead worker, once its lease has run out and it was ended here."""
    again = scene.store.flows.recover().reruns
    return next((each.flow for each in again if each.flow.flow_type == shipping.FLOW), None)


def judged(scene: Scene) -> None:
    """An evaluation is signed, and stands in the log."""
    act = "judged"
    store = scene.store
    name = f"demo-{scene.facts['killed'][-8:]}"
    evaluation = store.evaluations.submit(
        {"task": "ship a parcel", "verdict": "shipped once, in spite of a dead worker"},
        evaluation_id=name,
        score=0.95,
        intent=[0.1, 0.9, 0.4],
    )
    head = store.log.head().checkpoint
    scene.say(
        act,
        f"the evaluation {evaluation.evaluation_id} is signed (score {evaluation.score})",
        dbom_hash=evaluation.dbom_hash,
    )
    scene.say(act, f"it stands in the log of {head.size} entries, root {head.root.hex()[:16]}…", size=head.size)
    scene.facts["evaluation"] = evaluation.evaluation_id


def remembered(scene: Scene) -> None:
    """What the agents know has states, and a state can be compared with another."""
    act = "remembered"
    store = scene.store
    store.objects.put("carrier", type="fact", content="fetches parcels at noon")
    first = store.snapshots.create("before the lesson", author="shipper")
    store.objects.put("carrier", type="fact", content="ignores a parcel that it has already")
    [change] = store.snapshots.diff(first.cid).differences
    scene.say(act, f"a snapshot is {first.cid[:20]}…", cid=first.cid)
    before, after = change.fields["content"]
    scene.say(act, f"since then the agent learned: {before!r} became {after!r}", key=change.id)
    scene.facts["snapshot"] = first.cid


def tampered(scene: Scene) -> None:
    """Somebody with the database file improves a score. (A copy of the store is forged, so that this one lives on.)"""
    act = "tampered"
    store = scene.store
    if store.database.dialect != "sqlite" or store.core.context.head_file is None:
        scene.say(act, "this store is no file, so nobody edits one here")
        return
    home = forgery.forge(store, scene.folder, scene.facts["evaluation"])
    scene.say(act, "somebody with the database file sets the score to 1.0, checksums and all", home=str(home))
    outcome = forgery.look(home)
    scene.say(act, f"verify: {outcome.verdict}: {outcome.what}", verdict=outcome.verdict, finding=outcome.what)
    scene.say(act, f"the store is locked: {outcome.refused}", lockdown=outcome.lockdown)
    scene.facts["forged"] = str(home)


def proven(scene: Scene) -> None:
    """All of it can be checked by somebody who trusts nobody."""
    act = "proven"
    store = scene.store
    # On PostgreSQL the sequencer signs within a tenth of a second; until then entries are pending.
    scene.until(lambda: True if store.log.pending() == 0 else None)
    report = store.verify.run(full=True)
    checked = sum(report.checked.values())
    scene.say(act, f"verify: {report.verdict.word}, {checked} things checked", verdict=report.verdict.word)
    file = scene.folder / f"{scene.facts['evaluation']}.zip"
    disk.deliver(file, [store.bundle.export(scene.facts["evaluation"])])
    scene.say(act, f"the evaluation with all that proves it: {file}", bundle=str(file))
    scene.facts["bundle"] = str(file)


ACTS: Final[tuple[Act, ...]] = (deciding, asking, killed, judged, remembered, tampered, proven)
