"""The materials of a flow for others: CycloneDX ML-BOM, and an in-toto statement that the judge key signs.

The statement:
  subject        flow:<flow id>, SHA-256: the hash of the materials
  predicateType  urn:holdproof:decision-materials:v1
  predicate      the materials as `materials get --json` prints them, and `origin`, the log they were recorded in

Rules:
- A document is made of materials alone: the same record gives the same bytes, and no clock is in it.
- A DBOM of an evaluation stays as it is; this predicate stands beside it, and a further version gets another type.
"""

import json
from collections.abc import Iterator
from functools import partial
from typing import Any, Final
from uuid import UUID

from holdproof import validation
from holdproof.crypto import canonical, dsse, statement
from holdproof.crypto.keys import Signer
from holdproof.crypto.statement import PAYLOAD_TYPE, ResourceDescriptor, Statement
from holdproof.db import Call, Read, Tx, Work, ask
from holdproof.errors import ProofError
from holdproof.evidence import key_use, keys, tree
from holdproof.model.materials import Materials, MaterialsCheck, MaterialsDocument, MemoryUse, ModelUse
from holdproof.model.namespaces import MAIN
from holdproof.store.context import Context
from holdproof.upkeep import materials

PREDICATE_TYPE: Final = "urn:holdproof:decision-materials:v1"
_SPEC: Final = "1.6"
_FLOW: Final = "flow:"


def cyclonedx(tx: Tx, flow_id: str, *, ns: str = MAIN) -> MaterialsDocument:
    """Return the materials of a flow as a CycloneDX ML-BOM, in JSON."""
    uses = materials.get(tx, flow_id, ns=ns)
    text = json.dumps(to_cyclonedx(uses), indent=2, ensure_ascii=False)
    return MaterialsDocument(flow_id, f"cyclonedx-{_SPEC}", text + "\n")


def sign(context: Context, flow_id: str, *, ns: str = MAIN) -> Work[MaterialsDocument]:
    """Return the materials of a flow as an in-toto statement in a DSSE envelope, signed by the judge key."""
    signer: Signer = yield from key_use.use(context, "judge")
    uses, origin = yield from ask(Read(lambda tx: (materials.get(tx, flow_id, ns=ns), tree.state(tx).origin)))
    payload = _encode(uses, origin)
    envelope: dsse.Envelope = yield from ask(Call(partial(dsse.sign, PAYLOAD_TYPE, payload, signer)))
    return MaterialsDocument(flow_id, PREDICATE_TYPE, dsse.encode(envelope).decode() + "\n")


def check(tx: Tx, document: str) -> MaterialsCheck:
    """Check a signed statement about materials: ProofError unless a judge key of this store signed it.

    `unchanged` is whether the record gives the same materials now: a flow that went on, or whose person was erased,
    does not.
    """
    envelope = dsse.parse(validation.words("document", document, most=1 << 28).encode())
    judges = {key.keyid: key for key in keys.keyring(tx, role="judge") if key.revoked_from is None}
    flawed = keys.flaws(tx)
    signer = next(
        (each.keyid for each in envelope.signatures if each.keyid in judges and each.keyid not in flawed), None
    )
    if signer is None:
        raise ProofError("no judge key of this store that still counts has signed the statement")
    dsse.verify(envelope, [keys.public(judges[signer])], payload_type=PAYLOAD_TYPE)
    parsed = statement.parse_whole(envelope.payload)
    if parsed.predicate_type != PREDICATE_TYPE:
        raise ProofError("it is another kind of statement", predicate_type=parsed.predicate_type)
    predicate = parsed.predicate
    flow_id, ns, hash = (str(predicate.get(name)) for name in ("flow_id", "ns", "hash"))
    if predicate.get("origin") not in keys.origins(tx):
        raise ProofError("it is a statement about another store", origin=predicate.get("origin"))
    return MaterialsCheck(flow_id, signer, hash, materials.get(tx, flow_id, ns=ns).hash == hash)


def _encode(uses: Materials, origin: str) -> bytes:
    predicate: dict[str, Any] = {**json.loads(canonical.dump_text(uses.to_dict())), "origin": origin}
    subject = ResourceDescriptor({"sha256": uses.hash}, _FLOW + uses.flow_id)
    return statement.encode(Statement((subject,), PREDICATE_TYPE, predicate))


# --- CycloneDX ---------------------------------------------------------------------------------------------------


def to_cyclonedx(uses: Materials) -> dict[str, Any]:
    """Return materials as a CycloneDX document; pure."""
    components = list(_components(uses))
    flow = {
        "type": "application",
        "bom-ref": _FLOW + uses.flow_id,
        "name": uses.code.name,
        "version": uses.code.version,
        "properties": _properties(
            {
                "flow": uses.flow_id,
                "namespace": uses.ns,
                "agent": uses.agent_id,
                "status": uses.status,
                "materials": uses.hash,
                "inputs": uses.code.inputs_hash,
                "result": uses.result_hash,
                "forked_from": uses.code.forked_from,
                "unreadable": str(uses.unreadable),
                **{f"answer:{each.escalation}": canonical.dump_text(each.to_dict()) for each in uses.answers},
            }
        ),
    }
    return {
        "$schema": f"http://cyclonedx.org/schema/bom-{_SPEC}.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": _SPEC,
        # Derived from the materials, so that the same record has the same document.
        "serialNumber": f"urn:uuid:{UUID(bytes=bytes.fromhex(uses.hash)[:16], version=5)}",
        "version": 1,
        "metadata": {"component": flow},
        "components": components,
        "dependencies": [{"ref": flow["bom-ref"], "dependsOn": [each["bom-ref"] for each in components]}],
    }


def _components(uses: Materials) -> Iterator[dict[str, Any]]:
    for n, model in enumerate(uses.models, 1):
        yield _model(n, model)
    for n, tool in enumerate(uses.tools, 1):
        yield {
            "type": "application",
            "bom-ref": f"tool:{n}",
            "name": tool.name,
            **_hashes(tool.schema_hash),
            "properties": _properties({"kind": "tool", "calls": str(tool.calls)}),
        }
    for n, skill in enumerate(uses.skills, 1):
        approval = {"approval": skill.approval_id, "approved_by": skill.approved_by, "approved_at": skill.approved_at}
        yield {
            "type": "file",
            "bom-ref": f"skill:{n}",
            "name": skill.path,
            "properties": _properties({"kind": "skill", "root": skill.root, **approval}),
        }
    for n, policy in enumerate(uses.policies, 1):
        counts = {"allowed": str(policy.allowed), "denied": str(policy.denied), "escalated": str(policy.escalated)}
        yield {
            "type": "data",
            "bom-ref": f"policies:{n}",
            "name": "policies",
            **_hashes(policy.hash),
            "properties": _properties({"kind": "policies", **counts}),
        }
    for n, item in enumerate(uses.memory, 1):
        yield _memory(n, item)


def _model(n: int, model: ModelUse) -> dict[str, Any]:
    facts = {
        "parameters": canonical.dump_text(model.parameters),
        "system_prompt": model.system_hash,
        "calls": str(model.calls),
        "input_tokens": str(model.input_tokens),
        "output_tokens": str(model.output_tokens),
        "costs_usd": " ".join(model.costs_usd) or None,
        "asked_for": model.name,
    }
    prompts = [{"name": "holdproof:prompt", "value": each} for each in model.prompt_hashes]
    return {
        "type": "machine-learning-model",
        "bom-ref": f"model:{n}",
        "name": model.answered_by or model.name,
        "modelCard": {"modelParameters": {"task": "text-generation"}},
        "properties": [*_properties(facts), *prompts],
    }


def _memory(n: int, item: MemoryUse) -> dict[str, Any]:
    version = {} if item.version is None else {"version": str(item.version)}
    facts = {"kind": "memory", "action": item.action, "cid": item.cid, "tree": item.tree, "namespace": item.ns}
    return {
        "type": "data",
        "bom-ref": f"memory:{n}",
        "name": item.id,
        **version,
        "properties": _properties(facts),
    }


def _hashes(digest: str | None) -> dict[str, Any]:
    is_sha256 = digest is not None and canonical.is_sha256_hex(digest)
    return {"hashes": [{"alg": "SHA-256", "content": digest}]} if is_sha256 else {}


def _properties(facts: dict[str, str | None]) -> list[dict[str, str]]:
    return [{"name": f"holdproof:{name}", "value": value} for name, value in facts.items() if value is not None]
