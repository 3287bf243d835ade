"""Tampered twins of bundles: what a forger makes of one that is sound."""

import io
import json
import zipfile
from collections.abc import Callable

from holdproof.crypto import attest, b64, canonical, checkpoint, dsse, keys, merkle, tlog_proof
from holdproof.crypto import dbom as dboms
from holdproof.crypto.checkpoint import LogCheckpoint
from holdproof.crypto.tlog_proof import TlogProof
from holdproof.evidence.trust import PAYLOAD_TYPE
from holdproof.upkeep import bundle
from holdproof.upkeep.verification import report_page


def members(data: bytes) -> dict[str, bytes]:
    """Return the parts of a bundle but its page, which a forger makes anew or leaves out: nothing is to rest on it."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return {name: archive.read(name) for name in archive.namelist() if name != report_page.NAME}


Change = Callable[[dict[str, bytes]], object]


def edit(name: str, old: bytes, new: bytes) -> Change:
    def change(found: dict[str, bytes]) -> None:
        assert old in found[name], f"{old!r} is not in {name}"
        found[name] = found[name].replace(old, new)

    return change


def resign(found: dict[str, bytes]) -> None:
    """A stranger signs the DBOM with a key that is called the judge's."""
    key = keys.generate()
    made = attest.sign(dboms.parse(found["dbom.json"]).fields, key)
    found["dbom.json"], found["dbom.dsse.json"] = dboms.encode(made), dsse.encode(attest.to_envelope(made))


def other_score(found: dict[str, bytes]) -> None:
    """Record, salt and leaf all fit, but such a leaf is not in the tree."""
    content = found["records/0001.json"].replace(b'"score":0.7', b'"score":0.9')
    salt = bytes.fromhex(json.loads(found["bundle.json"])["records"][0]["salt"])
    digest = canonical.sha256_hex(salt + content).encode()
    leaf = found["records/0001.leaf.json"]
    found["records/0001.json"] = content
    found["records/0001.leaf.json"] = leaf.replace(leaf[6:70], digest)


def own_trust(found: dict[str, bytes]) -> None:
    """trust.json with a stranger as root: good only for whoever brings no root along."""
    envelope = dsse.parse(found["trust.json"])
    value = json.loads(envelope.payload)
    forger = keys.generate("ed25519")
    for key in value["keys"]:
        if key["role"] == "root":
            key |= {"public": forger.public.to_pem().decode(), "keyid": forger.keyid}
    signed = dsse.sign(envelope.payload_type, json.dumps(value).encode(), forger)
    found["trust.json"] = dsse.encode(signed)


def other_head(found: dict[str, bytes]) -> None:
    lines = found["head.note"].split(b"\n")
    lines[2] = b64.encode(bytes(32)).encode()
    found["head.note"] = b"\n".join(lines)


def relabel(found: dict[str, bytes], kind: str, subject: str) -> None:
    """The same record and proof under another kind, and perhaps as that of somebody else."""
    about = json.loads(found["bundle.json"]) | {"kind": kind, "subject": subject}
    found["bundle.json"] = canonical.dumps(about)
    del found["dbom.json"], found["dbom.dsse.json"]


def edit_trust(found: dict[str, bytes], old: str, new: str) -> None:
    """trust.json, edited and signed by a stranger's root; the head is made to name the same origin."""
    own_trust(found)
    envelope = dsse.parse(found["trust.json"])
    forger = keys.generate("ed25519")
    value = json.loads(canonical.dumps(json.loads(envelope.payload)).decode().replace(old, new))
    for key in value["keys"]:
        if key["role"] == "root":
            key |= {"public": forger.public.to_pem().decode(), "keyid": forger.keyid}
    found["trust.json"] = dsse.encode(dsse.sign(envelope.payload_type, canonical.dumps(value), forger))
    found["head.note"] = found["head.note"].replace(b"holdproof/", f"{value['origins'][0].split('/')[0]}/".encode(), 1)


def say_twice(found: dict[str, bytes]) -> None:
    """A DBOM whose score stands in it twice: a human reads the first one, a program the second."""
    edit("dbom.json", b'"dbom_version"', b'"score_cis": 0.9, "dbom_version"')(found)


def retype_trust(found: dict[str, bytes]) -> None:
    """The words of trust.json as a statement of another type."""
    edit("trust.json", b"application/vnd.holdproof.trust+json", b"application/vnd.in-toto+json")(found)


TWINS: dict[str, Change] = {
    "record edited": edit("records/0001.json", b'"score":0.7', b'"score":0.9'),
    "record and leaf edited": other_score,
    "leaf edited": edit("records/0001.leaf.json", b'"t":"dbom"', b'"t":"dbim"'),
    "salt edited": edit("bundle.json", b'"salt":"', b'"salt":"00'),
    "proof edited": edit("records/0001.tlog-proof", b"index ", b"index 1"),
    "head edited": other_head,
    "DBOM edited": edit("dbom.json", b'"score_cis": 0.7', b'"score_cis": 0.9'),
    "DBOM signed by a stranger": resign,
    "envelope edited": edit("dbom.dsse.json", b'"sig":"', b'"sig":"MEUC'),
    "trust edited": edit("trust.json", b'"payload":"', b'"payload":"eyJ9'),
    "kind edited": lambda found: relabel(found, "weather", "b3"),
    "said to be imported": lambda found: relabel(found, "imported", "after"),
    "validity of a key no number": lambda found: edit_trust(found, '"until":null', '"until":"never"'),
    "origin no name of a key": lambda found: edit_trust(found, '"origins":["holdproof/', '"origins":["hold fast/'),
    "subject edited": edit("bundle.json", b'"subject":"after"', b'"subject":"b3"'),
    "a score that stands there twice": say_twice,
    "trust as a statement of another type": retype_trust,
    "a part that is not its own": lambda found: found.update({"dbom_after.json": b"{}"}),
}


# --- of flows ----------------------------------------------------------------------------------------------------

_SUFFIXES = (".json", ".leaf.json", ".tlog-proof")


def listed(found: dict[str, bytes]) -> list[dict[str, str]]:
    """The records of a bundle, with the table of each."""
    about = json.loads(found["bundle.json"])
    return [{**each, "table": each["projection"].partition("/")[0]} for each in about["records"]]


def arrange(found: dict[str, bytes], order: Callable[[list[str]], list[int]]) -> None:
    """Have other records, or these in another order: `order` says which, from the table of each."""
    about = json.loads(found["bundle.json"])
    before, taken = about["records"], order([each["table"] for each in listed(found)])
    parts = [[found.pop(each["name"] + suffix) for suffix in _SUFFIXES] for each in before]
    about["records"] = [{**before[old], "name": f"records/{new:04}"} for new, old in enumerate(taken, 1)]
    for entry, old in zip(about["records"], taken, strict=True):
        found.update({entry["name"] + suffix: data for suffix, data in zip(_SUFFIXES, parts[old], strict=True)})
    found["bundle.json"] = canonical.dumps(about)


def _of(table: str, tables: list[str]) -> list[int]:
    return [number for number, each in enumerate(tables) if each == table]


def _but(left_out: Callable[[list[str]], int]) -> Change:
    return lambda found: arrange(found, lambda tables: [n for n in range(len(tables)) if n != left_out(tables)])


def _twice(table: str) -> Change:
    return lambda found: arrange(found, lambda tables: [*range(len(tables)), _of(table, tables)[0]])


def _exchanged(tables: list[str]) -> list[int]:
    first, second, *_ = _of("flow_transitions", tables)
    order = [*range(len(tables))]
    order[first], order[second] = second, first
    return order


def _record(table: str, old: bytes, new: bytes) -> Change:
    """The first record of a table, edited, with nothing else."""

    def change(found: dict[str, bytes]) -> None:
        name = next(each["name"] for each in listed(found) if each["table"] == table)
        edit(f"{name}.json", old, new)(found)

    return change


def _other_flow(found: dict[str, bytes]) -> None:
    about = json.loads(found["bundle.json"]) | {"subject": "019a0000-0000-7000-8000-000000000000"}
    found["bundle.json"] = canonical.dumps(about)


FLOWS: dict[str, Change] = {
    "its opening edited": _record("decision_flows", b'"agent_id":"', b'"agent_id":"x'),
    "a transition edited": _record("flow_transitions", b'"to_status":"', b'"to_status":"X'),
    "an answer edited": _record("escalation_requests", b'"status":"APPROVED"', b'"status":"REJECTED"'),
    "its ledger edited": _record("decision_ledger_entries", b'"agent_id":"', b'"agent_id":"x'),
    "an event edited": _record("decision_audit_events", b'"event_type":"SEEN"', b'"event_type":"GONE"'),
    "its context edited": _record("flow_context", b'"version":1', b'"version":2'),
    "a leaf edited": edit("records/0002.leaf.json", b'"ver":1', b'"ver":2'),
    "a salt edited": edit("bundle.json", b'"salt":"', b'"salt":"00'),
    "a proof edited": edit("records/0002.tlog-proof", b"index ", b"index 1"),
    "the proof of another record": lambda found: found.update(
        {"records/0002.tlog-proof": found["records/0001.tlog-proof"]}
    ),
    "the head edited": other_head,
    "trust edited": edit("trust.json", b'"payload":"', b'"payload":"eyJ9'),
    "trust of a stranger": own_trust,
    "said to be another flow": _other_flow,
    "said to be a battle": lambda found: found.update(
        {"bundle.json": found["bundle.json"].replace(b'"kind":"flow"', b'"kind":"evaluation"')}
    ),
}
"""What no holder of a bundle can change."""

FORGED: dict[str, Change] = {
    "its opening left out": _but(lambda tables: _of("decision_flows", tables)[0]),
    "a transition in the middle left out": _but(lambda tables: _of("flow_transitions", tables)[0]),
    "two transitions exchanged": lambda found: arrange(found, _exchanged),
    "a transition twice": _twice("flow_transitions"),
    "its opening twice": _twice("decision_flows"),
    "an entry of the ledger twice": _twice("decision_ledger_entries"),
    "an event twice": _twice("decision_audit_events"),
}
"""Records that are sound each by itself, and are not the flow together."""


def _unasked(tables: list[str]) -> list[int]:
    """Without the transitions to a human and back: where they led, the flow stood before."""
    gone = {*_of("flow_transitions", tables)[1:3], *_of("escalation_requests", tables)}
    return [number for number in range(len(tables)) if number not in gone]


OMITTED: dict[str, Change] = {
    "its last transition left out": _but(lambda tables: _of("flow_transitions", tables)[-1]),
    "an event left out": _but(lambda tables: _of("decision_audit_events", tables)[0]),
    "the answer of a human left out": _but(lambda tables: _of("escalation_requests", tables)[0]),
    "a question and its answer left out, and the wait between": lambda found: arrange(found, _unasked),
}
"""What a bundle cannot show: that it is all there is."""


def _path(hashes: list[bytes], at: int) -> list[bytes]:
    """RFC 6962, 2.1.1."""
    if len(hashes) == 1:
        return []
    split = 1 << ((len(hashes) - 1).bit_length() - 1)
    if at < split:
        return [*_path(hashes[:split], at), merkle.root(hashes[split:])]
    return [*_path(hashes[split:], at - split), merkle.root(hashes[:split])]


def invented(kind: str, subject: str, rows: list[tuple[str, str, dict[str, canonical.Json]]]) -> bytes:
    """A bundle that a stranger made from nothing, under keys of their own: sound, but for what its records say.

    Each row has a projection, the type of its leaf, and its content.
    """
    log, root, origin = keys.generate("ed25519"), keys.generate("ed25519"), "holdproof/invented"
    contents = [canonical.dumps(content) for _, _, content in rows]
    leaves = [
        canonical.dumps(
            {
                "h": canonical.sha256_hex(bytes(16) + content),
                "id": str(number),
                "ns": "main",
                "p": projection,
                "t": leaf,
                "ts": "",
                "v": 1,
                "ver": 1,
            }
        )
        for number, ((projection, leaf, _), content) in enumerate(zip(rows, contents, strict=True))
    ]
    hashes = merkle.leaf_hashes(leaves)
    head = checkpoint.sign(LogCheckpoint(origin, len(leaves), merkle.root(hashes)), log)
    listed_keys: list[canonical.Json] = [
        {
            "keyid": key.keyid,
            "role": role,
            "alg": key.alg,
            "public": key.public.to_pem().decode(),
            "from": 0,
            "until": None,
        }
        for role, key in (("log", log), ("root", root))
    ]
    trusted = canonical.dumps({"v": 1, "origins": [origin], "size": len(leaves), "issued_at": "", "keys": listed_keys})
    entries: list[canonical.Json] = [
        {"name": f"records/{at:04}", "projection": row[0], "leaf_id": str(at - 1), "leaf_ver": 1, "salt": "00" * 16}
        for at, row in enumerate(rows, 1)
    ]
    found = {
        "VERIFY.md": b"",
        "bundle.json": canonical.dumps({"v": 1, "kind": kind, "subject": subject, "records": entries}),
        "head.note": head.encode(),
        "trust.json": dsse.encode(dsse.sign(PAYLOAD_TYPE, trusted, root)),
    }
    for at, (content, leaf) in enumerate(zip(contents, leaves, strict=True)):
        proof = TlogProof(at, tuple(_path(hashes, at)), head)
        name = f"records/{at + 1:04}"
        found |= {f"{name}.json": content, f"{name}.leaf.json": leaf, f"{name}.tlog-proof": tlog_proof.encode(proof)}
    return bundle.pack(found)
