"""Bundles that were handed out, of battles and of flows: what a stranger makes of a forged one."""

import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final

from harness.forged_bundles import FLOWS, FORGED, OMITTED, TWINS, Change, members
from holdproof import errors
from holdproof.crypto import canonical, dsse
from holdproof.evidence.key_files import KeyFolder
from holdproof.upkeep import bundle
from holdproof.upkeep.verification import offline
from proof.attacks.attacked_store import Place
from proof.attacks.matrix import CARRIER, NOTHING, REFUSED, STRANGER, Attack, Got, refused

_LEFT_OUT: Final = "a bundle proves what is in it; that nothing was left out is asked of the store or its log"


def attacks() -> Iterator[Attack]:
    """Tampered twins, checked with the root key that the stranger got another way."""
    kinds: tuple[tuple[str, Mapping[str, Change]], ...] = (("evaluation", TWINS), ("flow", FLOWS), ("flow", FORGED))
    for kind, twins in kinds:
        for name, change in twins.items():
            act = partial(_check, kind, change)
            yield Attack(
                f"{kind} bundle", name, CARRIER, act, ("TAMPERED", REFUSED), (STRANGER,), locks=False, shares=True
            )
    yield Attack(
        "battle bundle",
        "trust from before its head",
        CARRIER,
        _outdated,
        ("TAMPERED",),
        (STRANGER,),
        locks=False,
        shares=True,
    )
    for name, change in OMITTED.items():
        yield Attack(
            "flow bundle",
            name,
            CARRIER,
            partial(_check, "flow", change),
            ("VALID",),
            (NOTHING,),
            locks=False,
            shares=True,
            design=_LEFT_OUT,
        )


def _outdated(place: Place) -> Got:
    """As root signed it when the log was shorter."""
    root = KeyFolder(place.home / "config" / "keys").load("root")

    def change(found: dict[str, bytes]) -> None:
        envelope = dsse.parse(found["trust.json"])
        said = json.loads(envelope.payload)
        payload = canonical.dumps({**said, "size": said["size"] - 2})
        found["trust.json"] = dsse.encode(dsse.sign(envelope.payload_type, payload, root))

    return _check("evaluation", change, place)


def _check(kind: str, change: Callable[[dict[str, bytes]], object], place: Place) -> Got:
    root = KeyFolder(place.home / "config" / "keys").load("root").public
    data = (place.elsewhere / f"{kind}.zip").read_bytes()
    assert offline.check(data, root=root).verdict.sound
    found = members(data)
    change(found)
    try:
        checked = offline.check(bundle.pack(found), root=root)
    except errors.HoldproofError as error:
        return refused(error, STRANGER)
    if checked.verdict.sound:
        return Got(checked.verdict.word, 0, False, NOTHING, "")
    first = checked.findings[0]
    return Got(checked.verdict.word, checked.verdict.exit_code, False, STRANGER, f"{first.file}: {first.what}"[:200])
