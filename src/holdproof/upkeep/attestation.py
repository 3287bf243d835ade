"""What a flow was, in formats of others: a signed in-toto attestation, and W3C PROV.

Rules:
- Both are made of a bundle of the flow that was checked first: nothing that the log does not prove gets in.
- An attestation is signed with the judge key, which signs decisions; PROV has no place for a signature.
"""

from functools import partial
from typing import NamedTuple

from holdproof.crypto import dsse
from holdproof.crypto.dsse import Envelope
from holdproof.crypto.statement import PAYLOAD_TYPE
from holdproof.db import Call, Work, ask
from holdproof.errors import ProofError
from holdproof.evidence import key_use
from holdproof.model.namespaces import MAIN
from holdproof.model.verify import BundleReport
from holdproof.store.context import Context
from holdproof.upkeep import bundle
from holdproof.upkeep.verification import agent_decision, offline, provenance
from holdproof.upkeep.verification.offline import ProvenRecord


class _Checked(NamedTuple):
    """A bundle that holds, and its records."""

    report: BundleReport
    records: list[ProvenRecord]


def attest(context: Context, flow_id: str, *, ns: str = MAIN) -> Work[str]:
    """Return an in-toto attestation of a flow in a DSSE envelope: decision, observed effect, freshness, agreement."""
    checked = yield from _checked(context, flow_id, ns)
    payload = agent_decision.encode(flow_id, checked.records, checked.report.head)
    signer = yield from key_use.use(context, "judge")
    envelope: Envelope = yield from ask(Call(partial(dsse.sign, PAYLOAD_TYPE, payload, signer)))
    return dsse.encode(envelope).decode()


def prov(context: Context, flow_id: str, *, ns: str = MAIN) -> Work[str]:
    """Return a flow as PROV-JSON (W3C): its steps, results, inputs, the agent, and who answered."""
    checked = yield from _checked(context, flow_id, ns)
    return provenance.encode(flow_id, checked.records).decode()


def _checked(context: Context, flow_id: str, ns: str) -> Work[_Checked]:
    data = yield from bundle.export(context, flow_id, kind="flow", ns=ns)
    checked: _Checked = yield from ask(Call(lambda: _Checked(*offline.examine(data))))
    report = checked.report
    if not report.verdict.sound:
        what = report.findings[0].what if report.findings else report.verdict.word
        raise ProofError(f"the records of {flow_id} do not hold: {what}", flow_id=flow_id)
    return checked
