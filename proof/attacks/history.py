"""The log itself: leaves, tree, heads, cut tails, the past put back; by thieves of less and of more; its witnesses."""

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

from harness import attacks as known
from harness import witnesses
from harness.attacks import regrow, rewrite, signed_by, thief
from harness.filling import settled, submit
from harness.witnesses import made, serving
from holdproof import errors
from holdproof.crypto import keys
from holdproof.crypto.canonical import sha256_hex
from holdproof.crypto.checkpoint import LogCheckpoint
from proof.attacks.attacked_store import Lab, Place
from proof.attacks.matrix import (
    FILES,
    FULL,
    LOG_KEY,
    MACHINE,
    NOTHING,
    OPENING,
    PLAIN,
    REFUSED,
    ROWS,
    WITNESS,
    Attack,
    Got,
    refused,
)

AREA: Final = "log"
_GRAVE: Final = ("TAMPERED", "ROLLED_BACK", "FORKED")
_PAST: Final = "a state that once was is a consistent log: only a head kept out of reach tells"
_THIEF: Final = "what only the log key vouches for can be rewritten by whoever holds it; a head kept elsewhere tells"
_STREAM: Final = "stream, salt, agent_id, kind, ns, n"
_EXPLAINED: Final = "breakdown = 'another explanation'"


def attacks(lab: Lab) -> Iterator[Attack]:
    """All attacks on the log that this database allows."""
    yield from _statements(lab.template)
    yield from _trees()
    yield from _past(lab)
    yield from _heads()


# --- statements --------------------------------------------------------------------------------------------------


def _statements(template: Place) -> Iterator[Attack]:
    """What the specification lists, as statements on rows, leaves and schema."""
    named = known.ROWS if template.url is None else {**known.SERVER, "leaves swapped in the log": _SWAPPED}
    for name, statements in named.items():
        act = partial(_run, statements)
        by = (FULL, PLAIN) if name in known.ONLY_FULL else (PLAIN,)  # a kept head may tell before the tree does
        yield Attack("evidence", name, ROWS, act, _GRAVE, by)
    if template.url is None:
        for name, statement in known.SCHEMA.items():
            yield Attack("schema", name, ROWS, partial(_run, [statement]), names="schema")
        yield Attack("schema", "a covering index that lies while rows are intact", ROWS, _lie)
    for what, statement in _FACTS.items():
        yield Attack(AREA, what, ROWS, partial(_run, [statement]), (*_GRAVE, REFUSED), (PLAIN, OPENING), locks=None)


_SWAPPED: Final = known.ROWS["leaves swapped in the log"]
_FACTS: Final = {
    "the store's name changed": "UPDATE store_facts SET value = 'other' WHERE key = 'store_id'",
    "the store's name deleted": "DELETE FROM store_facts",
    "the state of the log deleted": "DELETE FROM log_state",
    "the size of the log grown": "UPDATE log_state SET size = size + 1",
    "the size of the log cut": "UPDATE log_state SET size = size - 1",
    "the head emptied": "UPDATE log_state SET head = ''",
    "the origin renamed": "UPDATE log_state SET origin = origin || 'x'",
    "every leaf deleted": "DELETE FROM log_leaves",
    "the origin no name of a log": "UPDATE log_state SET origin = 'two words'",
}


def _run(statements: list[str], place: Place) -> None:
    place.past.run(*statements)


def _lie(place: Place) -> None:
    known.lie_by_index(place.home)


# --- row, leaf and tree ------------------------------------------------------------------------------------------


def _trees() -> Iterator[Attack]:
    yield Attack(
        AREA, "a row and its leaf edited to fit", ROWS, lambda place: rewrite(place.past), _GRAVE, (FULL, PLAIN)
    )
    yield Attack(AREA, "only what no judge signs, and its leaf, edited to fit", ROWS, _explain, _GRAVE, (FULL, PLAIN))
    yield Attack(AREA, "row, leaf and tree edited to fit", ROWS, partial(_forge, None), _GRAVE)
    yield Attack(AREA, "the head signed anew by a stranger", ROWS, _resign)
    yield Attack(AREA, "the head signed anew, with the stranger in the keyring", ROWS, _admit, names="keyring")
    yield Attack(AREA, "history rewritten, a head was kept", LOG_KEY, _steal, ("FORKED",))
    yield Attack(
        AREA, "a score rewritten, no head was kept", LOG_KEY, partial(_steal, change="score = 0.99", hide=True)
    )
    design = partial(_steal, hide=True)
    yield Attack(
        AREA,
        "an explanation rewritten, no head was kept",
        MACHINE,
        design,
        ("VALID",),
        (NOTHING,),
        locks=False,
        design=_THIEF,
    )
    yield Attack(
        AREA,
        "the same, and a witness is asked",
        MACHINE,
        partial(_witnessed, design),
        (REFUSED,),
        (WITNESS,),
        locks=None,
    )


def _explain(place: Place) -> None:
    rewrite(place.past, _EXPLAINED)
    forget(place.home)


def _forge(key: keys.PrivateKey | None, place: Place) -> None:
    rewrite(place.past)
    regrow(place.past, None if key is None else signed_by(key))


def _resign(place: Place) -> None:
    regrow(place.past, signed_by(keys.generate("ed25519")))


def _admit(place: Place) -> None:
    stranger = keys.generate("ed25519")
    place.past.ask(
        "UPDATE keyring SET keyid = ?, public = ? WHERE role = 'log'", stranger.keyid, stranger.public.to_pem().decode()
    )
    regrow(place.past, signed_by(stranger))


def _steal(
    place: Place,
    change: str = _EXPLAINED,
    *,
    hide: bool = False,
    witness: Callable[[], object] = lambda: None,
) -> None:
    witness()
    rewrite(place.past, change)
    regrow(place.past, thief(place.home))
    if hide:
        forget(place.home)


def forget(home: Path) -> None:
    """As if nobody had kept a head elsewhere."""
    (home / "state" / "heads.jsonl").unlink()


# --- the past ----------------------------------------------------------------------------------------------------


def _past(lab: Lab) -> Iterator[Attack]:
    kinds: dict[str, Callable[..., None]] = {
        "yesterday's store put back": partial(_yesterday, lab),
        "the tail cut back to a head that was signed": _cut,
    }
    for name, act in kinds.items():
        hidden = partial(_hiding, act)
        yield Attack(AREA, f"{name}, a head was kept", ROWS, act, ("ROLLED_BACK",))
        yield Attack(
            AREA, f"{name}, no head was kept", MACHINE, hidden, ("VALID",), (NOTHING,), locks=False, design=_PAST
        )
        yield Attack(
            AREA,
            f"{name}, no head was kept, and a witness is asked",
            MACHINE,
            partial(_witnessed, hidden),
            (REFUSED,),
            (WITNESS,),
            locks=None,
        )

    yield Attack(
        AREA, "the tail cut back, dressed up as a restore", ROWS, _restored, (*_GRAVE, REFUSED), (PLAIN, OPENING)
    )
    yield Attack(AREA, "a record deleted, dressed up as erased", ROWS, _erased, names="battles")


def _restored(place: Place) -> None:
    _cut(place)
    (place.home / "dboms" / "dbom_later.json").unlink()
    known.as_restored(place.past)


def _erased(place: Place) -> None:
    known.as_erased(place.past, "after")
    (place.home / "dboms" / "dbom_after.json").unlink()
    with place.open() as store:
        settled(store)


def _grow(place: Place) -> None:
    """Another day's work; a witness that knows the store sees it."""
    with place.open() as store:
        submit(store, "later", 0.9)
        settled(store)


def _yesterday(lab: Lab, place: Place, witness: Callable[[], object] = lambda: None) -> None:
    _grow(place)
    witness()
    lab.yesterday(place)


def _cut(place: Place, witness: Callable[[], object] = lambda: None) -> None:
    """The attacker kept the signed head of the shorter log: what is left is a consistent store."""
    [state] = place.past.ask("SELECT size, frontier, head FROM log_state")
    streams = place.past.ask(f"SELECT {_STREAM} FROM log_streams")
    _grow(place)
    witness()
    place.past.ask("DELETE FROM battles WHERE battle_id = 'later'")
    place.past.ask("DELETE FROM log_leaves WHERE idx >= ?", state[0])
    place.past.ask("UPDATE log_state SET size = ?, frontier = ?, head = ?", *state)
    place.past.ask("DELETE FROM log_streams")  # the counts of the shorter log, too: else verify --full counts more
    for stream in streams:
        place.past.ask(f"INSERT INTO log_streams ({_STREAM}) VALUES (?, ?, ?, ?, ?, ?)", *stream)


def _hiding(act: Callable[..., None], place: Place, **options: Any) -> None:
    act(place, **options)
    forget(place.home)
    (place.home / "dboms" / "dbom_later.json").unlink()


def _witnessed(act: Callable[..., None], place: Place) -> Got:
    """A witness that has cosigned what is to be forgotten is asked once more."""
    with place.open() as store:
        served = made(store, place.folder / "witness.json")
    with serving(served) as url:

        def ask() -> None:
            with place.open() as store:
                witnesses.cosign(store, url, key=served.key.encode())

        act(place, witness=ask)
        try:
            ask()
        except errors.HoldproofError as error:
            return refused(error, WITNESS)
    return Got("VALID", 0, False, NOTHING, "")


# --- heads kept beside the store ---------------------------------------------------------------------------------


def _heads() -> Iterator[Attack]:
    yield Attack(
        AREA,
        "the file of kept heads deleted",
        FILES,
        lambda place: forget(place.home),
        ("VALID",),
        (NOTHING,),
        locks=False,
        design="it guards against whoever has the database alone; a witness guards against the machine",
    )
    yield Attack(AREA, "a head kept that was never signed", FILES, _boast, ("ROLLED_BACK", "FORKED"))
    yield Attack(AREA, "a kept head of another history", FILES, _contradict, ("FORKED",))


def _kept(place: Place, size: int, root: bytes) -> None:
    """Write a line as the store does; nobody but it can sign, but the file is not asked for a signature."""
    [(origin,)] = place.past.ask("SELECT origin FROM log_state")
    head = signed_by(keys.generate("ed25519"))(LogCheckpoint(origin, size, root))
    text = json.dumps({"head": head, "sha256": sha256_hex(head.encode())})
    with (place.home / "state" / "heads.jsonl").open("a") as file:
        file.write(text + "\n")


def _boast(place: Place) -> None:
    _kept(place, 100_000, bytes(32))


def _contradict(place: Place) -> None:
    [(size,)] = place.past.ask("SELECT size FROM log_state")
    _kept(place, size, bytes(32))
