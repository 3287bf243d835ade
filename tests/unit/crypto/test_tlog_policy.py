"""tlog-policy files: which are read, which are refused with their line, and what satisfies them."""

import pytest

from holdproof.crypto import checkpoint, keys, note, tlog_policy
from holdproof.crypto.checkpoint import LogCheckpoint, SignedCheckpoint
from holdproof.crypto.vkey import COSIGNATURE_V1, ED25519, ML_DSA_44, VerifierKey
from holdproof.errors import FormatError, ProofError

LOG = keys.from_seed(bytes([9]) * 32)
SIGNERS = {name: keys.from_seed(bytes([n]) * 32) for n, name in enumerate(("x1", "x2", "x3", "y1", "y2"))}
LOG_KEY = VerifierKey("log.example", ED25519, LOG.public)
KEYS = {name: VerifierKey(f"{name}.example", COSIGNATURE_V1, signer.public) for name, signer in SIGNERS.items()}
WITNESSES = "".join(f"witness {name} {key.encode()}\n" for name, key in KEYS.items())
NESTED = (
    f"# two of X, and one of Y\n\nlog {LOG_KEY.encode()} https://log.example\n{WITNESSES}"
    "group X 2 x1 x2 x3\n\tgroup  Y\tany y1 y2 \ngroup both all X Y\nquorum both\n"
)


def head(*names: str, origin: str = "log.example") -> SignedCheckpoint:
    signed = checkpoint.sign(LogCheckpoint(origin, 7, b"\3" * 32), LOG)
    lines = [note.cosign(signed.note.text, KEYS[name].name, SIGNERS[name], seconds=1) for name in names]
    return SignedCheckpoint(signed.checkpoint, signed.note.add(*lines))


@pytest.mark.parametrize(
    ("names", "enough"),
    [
        (("x1", "x3", "y2"), True),
        (("x1", "x2", "x3", "y1", "y2"), True),
        (("x1", "x2", "x3"), False),
        (("x1", "y1", "y2"), False),
        ((), False),
    ],
)
def test_a_quorum_counts_through_its_groups(names: tuple[str, ...], enough: bool) -> None:
    policy = tlog_policy.parse(NESTED)
    if enough:
        assert tlog_policy.verify(policy, head(*names)) == [*names]
        return
    with pytest.raises(ProofError, match="too few"):
        tlog_policy.verify(policy, head(*names))


def test_the_log_must_be_named_and_must_have_signed() -> None:
    policy = tlog_policy.parse(NESTED)
    with pytest.raises(ProofError, match="does not name this log"):
        tlog_policy.verify(policy, head("x1", "x2", "y1", origin="other.example"))
    stolen = checkpoint.sign(LogCheckpoint("log.example", 7, b"\3" * 32), SIGNERS["x1"])
    with pytest.raises(ProofError):
        tlog_policy.verify(policy, stolen)
    assert tlog_policy.verify(tlog_policy.parse("quorum none\n"), head(), [LOG_KEY]) == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# nothing\n",
        "quorum none\nquorum none\n",
        "quorum x1\n",
        "quorum none\r\n",
        "quorum none\x00\n",
        f"{WITNESSES}quorum z\n",
        f"{WITNESSES}group none any x1\nquorum x1\n",
        f"{WITNESSES}group x1 any x2\nquorum x1\n",
        f"{WITNESSES}group G 0 x1\nquorum G\n",
        f"{WITNESSES}group G 3 x1 x2\nquorum G\n",
        f"{WITNESSES}group G some x1 x2\nquorum G\n",
        f"{WITNESSES}group G any\nquorum G\n",
        f"{WITNESSES}group G any H\ngroup H any x1\nquorum G\n",
        f"{WITNESSES}group G any x1\ngroup H any x1\nquorum G\n",
        f"{WITNESSES}group G 2 x1 x1\nquorum G\n",
        f"{WITNESSES}witness x1 {VerifierKey('z', COSIGNATURE_V1, LOG.public).encode()}\nquorum x1\n",
        f"{WITNESSES}witness z {KEYS['x1'].encode()}\nquorum x1\n",
        f"witness z {LOG_KEY.encode()}\nquorum z\n",
        f"log {KEYS['x1'].encode()}\nquorum none\n",
        f"log {LOG_KEY.encode()}\nlog {LOG_KEY.encode()}\nquorum none\n",
        "log nonsense\nquorum none\n",
        "friend x1\nquorum none\n",
    ],
)
def test_what_is_no_policy_is_refused(text: str) -> None:
    with pytest.raises(FormatError):
        tlog_policy.parse(text)


def test_keys_of_logs_and_witnesses_may_be_ml_dsa_and_any_key_of_a_log_is_enough() -> None:
    log = keys.generate("ml-dsa-44")
    witness = keys.generate("ml-dsa-44")
    log_key = VerifierKey("log.example", ML_DSA_44, log.public)
    witness_key = VerifierKey("w", ML_DSA_44, witness.public)
    text = f"log {log_key.encode()}\nlog {LOG_KEY.encode()}\nwitness w {witness_key.encode()}\nquorum w\n"
    policy = tlog_policy.parse(text)
    with pytest.raises(ProofError, match="too few"):
        tlog_policy.verify(policy, head())
    text = head().note.text
    for signed in (head().note, note.SignedNote(text, (note.cosign(text, "log.example", log, seconds=1),))):
        whole = signed.add(note.cosign(signed.text, "w", witness, seconds=1))
        assert tlog_policy.verify(policy, SignedCheckpoint(head().checkpoint, whole)) == ["w"]
    with pytest.raises(FormatError, match="not the key of a witness"):
        tlog_policy.parse(f"witness z {LOG_KEY.encode()}\nquorum z\n")


def test_one_witness_under_two_names_does_not_make_a_quorum() -> None:
    twice = VerifierKey("again.example", COSIGNATURE_V1, SIGNERS["x1"].public)
    with pytest.raises(FormatError, match="line 6"):
        tlog_policy.parse(f"{WITNESSES}witness again {twice.encode()}\ngroup G 2 x1 again\nquorum G\n")


def test_what_is_written_is_read_back() -> None:
    named = {name: (key, f"https://{name}.example") for name, key in KEYS.items()}
    named["witnesses"] = (VerifierKey("w", COSIGNATURE_V1, keys.generate("ed25519").public), "https://w.example")
    policy = tlog_policy.parse(tlog_policy.encode([LOG_KEY], named, 3))
    assert (policy.logs, policy.groups[policy.quorum].threshold) == ((LOG_KEY,), 3)
    assert {name: key for name, (key, _) in named.items()} == policy.witnesses
    assert tlog_policy.parse(tlog_policy.encode([LOG_KEY], {}, 0)).quorum == "none"
