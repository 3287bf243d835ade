"""Pin a root in a repository of the real Kubo core, alone: `python kubo_pin.py LIBRARY REPO BLOCKS ROOT`.

BLOCKS is a folder of files that are named by their multihash in base32. No bootstrap, no listener, no routing: what is
not in the repository is nowhere. Says as JSON how pinning ended; it does not end where a block is missing.
"""

import ctypes
import json
import shutil
import sys
from pathlib import Path


def main(library: str, repo: Path, blocks: Path, root: str) -> None:
    kubo = ctypes.CDLL(library)
    for name in ("CreateRepo", "RunNode", "PinCID"):
        getattr(kubo, name).restype = ctypes.c_int
    kubo.ListPins.restype = ctypes.c_char_p
    place = ctypes.c_char_p(str(repo).encode())
    kubo.CreateRepo(place)
    _alone(repo / "config")
    store = repo / "blocks"
    store.mkdir()
    (store / "SHARDING").write_text("/repo/flatfs/shard/v1/next-to-last/2\n")
    for block in blocks.iterdir():
        shard = store / block.name[-3:-1]
        shard.mkdir(exist_ok=True)
        shutil.copy(block, shard / f"{block.name}.data")
    kubo.RunNode(place)
    print("pinning", flush=True)
    outcome = kubo.PinCID(place, ctypes.c_char_p(root.encode()))
    print(json.dumps({"outcome": outcome, "pins": json.loads(kubo.ListPins(place) or b"[]") or []}), flush=True)


def _alone(path: Path) -> None:
    """No peer is asked for anything, and nobody can ask us."""
    config = json.loads(path.read_text())
    config["Bootstrap"] = []
    config["Addresses"] = {
        "Swarm": [],
        "API": [],
        "Gateway": [],
        "Announce": [],
        "AppendAnnounce": [],
        "NoAnnounce": [],
    }
    config["Discovery"] = {"MDNS": {"Enabled": False}}
    config["Routing"] = {"Type": "none"}
    config["AutoNAT"] = {"ServiceMode": "disabled"}
    config["Swarm"] = {"DisableNatPortMap": True, "RelayClient": {"Enabled": False}}
    config["Datastore"]["HashOnRead"] = True
    path.write_text(json.dumps(config))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4])
