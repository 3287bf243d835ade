"""Faults of servers and places: PostgreSQL and its network, S3, IPFS, disks that fill up.

python -m proof servers --seed 1                                   everything
python -m proof servers --place postgres --place-rounds 50         more of one
python -m proof servers --place s3 --seed 1 --place-round 7        one round again
"""

import argparse
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from _pytest.outcomes import Skipped

from harness.servers import IpfsNode, Postgres, Seaweed
from proof.report import Proof, Say
from proof.servers import full, ipfs, postgres, s3
from proof.servers.tally import HARMS, Tally

CLAIM: Final = (
    "servers that die, networks that cut, stall and lose answers, places that fail half-way and disks that fill up"
    " lose nothing acknowledged, leave nothing half done or done twice, and give every caller an answer"
)
PLACES: Final = ("disk", "s3", "ipfs", "postgres")


def arguments(parser: Any) -> None:
    """Which place, how often, and which round alone."""
    parser.add_argument("--place", choices=PLACES, help="one place only")
    parser.add_argument("--place-rounds", type=int, default=27, metavar="N", help="rounds at each place (default 27)")
    parser.add_argument("--place-round", type=int, metavar="N", help="this round alone, as a report names it")


def run(given: argparse.Namespace, say: Say) -> Proof:
    """Try each place; the counts."""
    tally, alone = Tally(), given.place_round
    rounds, first = (given.place_rounds, 0) if alone is None else (1, alone)
    for place in [given.place] if given.place else PLACES:
        say(f"servers: {place}, seed {given.seed}")
        with tempfile.TemporaryDirectory(prefix="holdproof-proof-") as folder:
            _TRIED[place](tally, Path(folder), given.seed, rounds, first)
        say(f"servers: {tally.counts()}")
    for line in tally.skipped:
        say(f"servers: left out: {line}")
    return Proof("servers", CLAIM, given.seed, tally.counts(), tuple(tally.broken), tuple(tally.rows()))


def _on(make: Callable[[], Any], use: Callable[[Any], None], tally: Tally) -> None:
    """Have a server for a while, if there is one."""
    try:
        server = make()
    except Skipped as reason:
        tally.skipped.append(str(reason))
        return
    try:
        use(server)
    finally:
        server.stop()


def _disk(tally: Tally, folder: Path, seed: int, rounds: int, first: int) -> None:
    """A walk is always a whole one: at every page, or at every so many bytes."""
    del rounds, first
    full.run(tally, folder, seed, 0)


def _s3(tally: Tally, folder: Path, seed: int, rounds: int, first: int) -> None:
    _on(Seaweed, lambda server: s3.run(tally, server, folder, seed, 4 * rounds if rounds > 1 else 1, first), tally)


def _ipfs(tally: Tally, folder: Path, seed: int, rounds: int, first: int) -> None:
    _on(IpfsNode, lambda node: ipfs.run(tally, node, folder, seed, rounds, first), tally)
    if tally.skipped and "IPFS" in tally.skipped[-1]:
        ipfs.run(tally, None, folder, seed, rounds, first)


def _postgres(tally: Tally, folder: Path, seed: int, rounds: int, first: int) -> None:
    _on(Postgres, lambda server: postgres.run(tally, server, folder, seed, rounds, first=first), tally)


_TRIED: Final = {"disk": _disk, "s3": _s3, "ipfs": _ipfs, "postgres": _postgres}

__all__ = ["HARMS", "arguments", "run"]
