"""A real IPFS node, and a gateway, behind a proxy that fails: archives pushed and restored, a pusher that is killed.

After each fault: the store that pushed verifies, the same archive goes through and has the name it must have; the store
that restored has all of it or is as it was before.
"""

import random
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import yaml

from harness.http_proxy import KINDS, Fault, Proxy
from harness.ipfs_gateway import Gateway
from harness.servers import IpfsNode
from holdproof import errors, sync
from holdproof.crypto import car
from holdproof.memory.archive.archive import Mode
from proof.servers.blobs import Rounds
from proof.servers.tally import Tally

QUICK: Final = tuple(kind for kind in KINDS if kind != "stall")
"""What ends by itself; blobs wait half a minute for a node that says nothing."""
_PATIENCE: Final[dict[str, Any]] = {"idle_s": 2.0, "budget_s": 20.0}
_ASIDE: Final = "import sys; from proof.servers import ipfs; ipfs.main(sys.argv[1:])"
_MODES: Final[tuple[Mode, Mode]] = ("dag", "file")
_HUNG_S: Final = 60.0
_KILL: Final = "kill -9 of the pusher"


class Node:
    """Blobs in the node; see blobs.Bucket."""

    name = "ipfs blobs"

    def __init__(self, proxy: Proxy, home: Path) -> None:
        self._home = home
        settings = {"providers": {"blob": {"type": "ipfs", "connection": f"ipfs+{proxy.url}"}}}
        (home / "config").mkdir(parents=True)
        (home / "config" / "config.yaml").write_text(yaml.safe_dump(settings))

    def open(self) -> sync.Holdproof:
        """See Bucket."""
        return sync.open(self._home)

    def lying(self) -> None:
        """See Bucket: a node has what others asked it for, too."""


def run(tally: Tally, node: IpfsNode | None, folder: Path, seed: int, rounds: int, first: int = 0) -> None:
    """So many rounds of everything; a gateway of blocks stands in for what needs no node."""
    _archives(tally, folder, seed, range(first, first + rounds), node)
    if node is None:
        return
    proxy = Proxy(int(urlsplit(node.url).port or 0))
    try:
        Rounds(tally, Node(proxy, folder / "blobs"), proxy, seed).run(rounds, first, QUICK)
        _kills(tally, node, proxy, folder, seed, rounds)
    finally:
        proxy.close()


# --- archives ----------------------------------------------------------------------------------------------------


class Archives:
    """One store that pushes, and many that restore."""

    def __init__(self, tally: Tally, folder: Path, seed: int) -> None:
        self.tally, self.folder, self.seed = tally, folder, seed
        self.store = sync.open(folder / "pushing")
        self._made = 0
        self.grow(random.Random(seed))

    def grow(self, chance: random.Random) -> None:
        """Have something new to push."""
        for number in range(30):
            self.store.objects.put(f"o{number}", type="t", content=chance.randbytes(300).hex())
        self.store.snapshots.create()

    @property
    def did(self) -> str:
        """Who signed."""
        return self.store.snapshots.get().did

    def state(self, store: sync.Holdproof) -> dict[str, Any]:
        """What a store knows."""
        return {each.id: each.content for each in store.objects.list(limit=1000).items}

    def tried(self, place: str, kind: str, number: int, call: Callable[[], Any]) -> Any:
        """The answer of a call, or None; counted, and blamed if it has no end or no type."""
        answers, refused = list[Any](), list[Exception]()

        def run() -> None:
            try:
                answers.append(call())
            except Exception as error:
                refused.append(error)

        calling = threading.Thread(target=run, daemon=True)
        calling.start()
        calling.join(_HUNG_S)
        if calling.is_alive():
            self.blame(place, kind, number, "hung", f"no end in {_HUNG_S:g} s")
        if refused and not isinstance(refused[0], errors.HoldproofError):
            self.blame(place, kind, number, "untyped", repr(refused[0]))
        self.tally.count(place, kind, acknowledged=len(answers), refused=len(refused))
        return answers[0] if answers else None

    def blame(self, place: str, kind: str, number: int, harm: str, what: str) -> None:
        """See Tally."""
        self.tally.blame(place, kind, harm, what, f"--place ipfs --seed {self.seed} --place-round {number}")

    def sound(self, place: str, kind: str, number: int, store: sync.Holdproof) -> None:
        """The whole store verifies."""
        report = store.verify.run(full=True, lock=False)
        if not report.verdict.sound:
            self.blame(place, kind, number, "undetected", f"{report.verdict.word}: {report.findings[:2]}")

    def push(self, proxy: Proxy, number: int, kind: str, chance: random.Random) -> None:
        """A push that a fault strikes, and the same without one."""
        self.grow(chance)
        given: dict[str, Any] = {"mode": chance.choice(("dag", "file")), "node": proxy.url, **_PATIENCE}
        proxy.arm(Fault(kind, chance.randrange(2), chance.choice((1, 5))))
        first = self.tried("ipfs push", kind, number, lambda: self.store.archive.push(**given))
        self.tally.count("ipfs push", kind, injected=proxy.heal())
        second = self.store.archive.push(**given)
        if first is not None and first.cid != second.cid:
            self.blame("ipfs push", kind, number, "undetected", f"{first.cid} was acknowledged, {second.cid} it is")
        self.restore(proxy, number, kind, chance, {"node": proxy.url}, second.cid)
        self.sound("ipfs push", kind, number, self.store)

    def restore(
        self, proxy: Proxy, number: int, kind: str, chance: random.Random, where: dict[str, str], cid: str
    ) -> None:
        """A restore that a fault strikes, into a store with something else in it, and the same without one."""
        place = f"ipfs restore by {next(iter(where))}"
        self._made += 1
        with sync.open(self.folder / f"restoring{self._made}") as other:
            other.objects.put("mine", type="t", content="mine")
            given: dict[str, Any] = {"did": self.did, "force": True, **where, **_PATIENCE}
            proxy.arm(Fault(kind, 0, chance.choice((1, 5))))
            done = self.tried(place, kind, number, lambda: other.archive.restore(cid, **given))
            self.tally.count(place, kind, injected=proxy.heal())
            expected = self.state(self.store) if done is not None else {"mine": "mine"}
            if self.state(other) != expected:
                self.blame(place, kind, number, "partial", "the store is neither as before nor as the archive")
            if done is None:
                other.archive.restore(cid, **given)
            if self.state(other) != self.state(self.store):
                self.blame(place, kind, number, "lost", "the archive did not come back whole")
            self.sound(place, kind, number, other)


def _archives(tally: Tally, folder: Path, seed: int, rounds: range, node: IpfsNode | None) -> None:
    archives, kinds = Archives(tally, folder, seed), tuple(KINDS)
    try:
        for number in rounds:
            chance, kind = random.Random(f"{seed} {number}"), kinds[number % len(kinds)]
            if node is not None:
                with closing(Proxy(int(urlsplit(node.url).port or 0))) as proxy:
                    archives.push(proxy, number, kind, chance)
            _by_gateway(archives, number, kind, chance)
    finally:
        archives.store.close()


def _by_gateway(archives: Archives, number: int, kind: str, chance: random.Random) -> None:
    file = archives.folder / "archive.car"
    cid = archives.store.archive.export_car(file).cid
    gateway = Gateway(car.load(file.read_bytes()).blocks)
    try:
        with closing(Proxy(int(urlsplit(gateway.url).port or 0))) as proxy:
            archives.restore(proxy, number, kind, chance, {"gateway": proxy.url}, cid)
    finally:
        gateway.close()


# --- a pusher that is killed -------------------------------------------------------------------------------------


def _kills(tally: Tally, node: IpfsNode, proxy: Proxy, folder: Path, seed: int, rounds: int) -> None:
    """The process ends in the middle of a request; the next push goes through, and nobody lost anything."""
    archives = Archives(tally, folder / "kills", seed)
    try:
        for number in range(rounds):
            chance = random.Random(f"{seed} kill {number}")
            mode = _MODES[chance.randrange(2)]
            before = archives.state(archives.store)
            proxy.arm(Fault("stall", chance.randrange(2)))
            words = [str(folder / "kills" / "pushing"), proxy.url, mode]
            pusher = subprocess.Popen([sys.executable, "-c", _ASIDE, *words])
            while not proxy.struck and pusher.poll() is None:
                proxy.healed.wait(0.005)
            pusher.kill()
            pusher.wait()
            tally.count("ipfs push", _KILL, injected=proxy.heal())
            archives.store.archive.push(mode=mode, node=node.url)
            tally.count("ipfs push", _KILL, acknowledged=1)
            if archives.state(archives.store) != before:
                archives.blame("ipfs push", _KILL, number, "lost", "the store that pushed is another one")
            archives.sound("ipfs push", _KILL, number, archives.store)
    finally:
        archives.store.close()


def main(words: list[str]) -> None:
    """Push, until somebody kills us."""
    home, node, mode = words
    with sync.open(home) as store, suppress(errors.HoldproofError):
        store.archive.push(mode=_MODES[mode == "file"], node=node)
