"""The catalogue of verbs: nothing is forgotten, and what stays out is named."""

import inspect
from typing import Any

from holdproof.api import OpenFlow, Resources
from holdproof.api.catalogue import block_methods, entries
from holdproof.executors import Method, Resource
from holdproof.storage.relational import Transaction

STAYS = {
    "archive.export_car",
    "archive.export_lisp",
    "archive.import_car",
    "archive.import_lisp",
    "backup.check",
    "backup.create",
    "backup.list",
    "backup.rotate",
    "blobs.close",
    "dbom.check_intent",
    "dbom.verify",
    "flows.replay",
    "flows.replay_all",
    "flows.result",
    "image.open",
    "imports.dir",
    "imports.green_agent",
    "keys.export_root",
    "keys.join",
    "keys.recover_root",
    "log.publish",
    "retention.archive",
    "relational.close",
    "skills.approve",
    "skills.fingerprint",
    "skills.load",
    "skills.watch",
    "telemetry.close",
    "tenants.export",
    "vectors.close",
    "vectors.reembed",
}
"""What needs the process that has the store open, or the disk of its machine."""


def test_every_verb_is_offered_or_named_as_staying() -> None:
    nouns: Any = Resources(None)
    every = {
        f"{name}.{verb}"
        for name, noun in vars(nouns).items()
        if isinstance(noun, Resource)
        for verb, found in inspect.getmembers_static(noun.kind)
        if isinstance(found, Method)
    }
    offered = {f"{noun}.{verb}" for noun, verb in entries()}
    assert every - offered == STAYS


def test_nothing_hidden_is_a_parameter() -> None:
    for entry in entries().values():
        assert not {each.name for each in entry.parameters} & {"tx", "registry", "self"}, entry.name
        assert entry.summary, entry.name
        assert [each.name for each in entry.parameters] == list(entry.signature.parameters)


def test_no_place_on_a_disk_can_be_given_by_a_stranger() -> None:
    paths = {
        f"{each.resource}.{each.method}"
        for each in entries().values()
        if (path := each.parameter("path")) and path.offered
    }
    names = {
        "log.tile",
        *("notes.delete", "notes.get", "notes.put", "notes.search", "notes.touch"),
        "sessions.record_artifact",
        "skills.revoke",
        "skills.status",
    }  # names of ours, nothing is opened
    assert paths == names
    named = {"dest", "src", "recovery", "folder", "dboms"}
    for entry in entries().values():
        assert not named & {each.name for each in entry.parameters if each.offered}, entry.name


def test_every_method_inside_a_block_is_offered_remotely_but_for_those_that_are_named() -> None:
    for kind, offered, stays in (
        # They call functions of the caller: written by hand on both sides, or left to the process of the store.
        (OpenFlow, block_methods("flow"), {"step", "gather", "map"}),
        (Transaction, block_methods("transaction"), {"close"}),
    ):
        declared = {name for name, each in vars(kind).items() if isinstance(each, Method)}
        assert declared == offered.keys() | stays


def test_a_method_inside_a_block_takes_what_its_likeness_outside_takes_but_for_the_flow() -> None:
    for name, spec in block_methods("flow").items():
        # `send` names the flow that it is about, and is itself sent once: it needs no key.
        if spec.exposure.like is not None and name != "send":
            outside = {each.name for each in entries()[spec.exposure.like].parameters}
            assert {each.name for each in spec.parameters} == outside - {"flow_id", "ns"}, name
            assert [*spec.signature.parameters] == [each.name for each in spec.parameters]
    assert {name for name, spec in block_methods("flow").items() if spec.exposure.like} == {"approve", "lock", "send"}
