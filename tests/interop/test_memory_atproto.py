"""npm `@atproto/repo` verifies what a store exports, and refuses it after one flipped byte."""

import random
from pathlib import Path

import pytest

from holdproof import sync
from holdproof.crypto import car, mst
from holdproof.crypto import cid as cids
from tests.interop.npm import Node
from tests.interop.test_atproto_repo import PACKAGE, SCRIPT


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Node:
    return Node(tmp_path_factory.mktemp("atproto"), SCRIPT, PACKAGE)


def test_an_export_of_a_store_is_accepted_and_refused_after_one_flipped_byte(node: Node, tmp_path: Path) -> None:
    path = tmp_path / "good.car"
    with sync.open(tmp_path / "home") as store:
        for turn in range(2):
            store.objects.apply(
                {
                    f"o{number} ä": {
                        "type": "note",
                        "content": f"{turn}",
                        "attributes": {"f": number / 3, "i": 2**70 + number, "$k": None, "l": [b"x", True, -1]},
                        "meta": {"vector": [0.5, number / 7]},
                        "parent": "top",
                    }
                    for number in range(turn, 60)
                }
            )
            made = store.snapshots.create(f"turn {turn}")
        store.archive.export_car(path, history=False)
    data = path.read_bytes()
    [answer] = node.run(["verdict", str(path), made.did, made.did])
    assert answer.get("good"), answer
    tree = dict(mst.walk(car.load(data).blocks.get, cids.parse_text(made.root)))
    assert dict(answer["creates"]) == {key: str(cid) for key, cid in tree.items()}
    chance, calls = random.Random(3), []
    for number in range(40):
        at = chance.randrange(len(data))
        wrong = tmp_path / f"{number}.car"
        wrong.write_bytes(data[:at] + bytes([data[at] ^ (1 << chance.randrange(8))]) + data[at + 1 :])
        calls.append(["verdict", str(wrong), made.did, made.did])
    assert not any(answer["good"] for answer in node.run(*calls))
