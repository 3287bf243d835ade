"""Passkeys: a real Chromium with a virtual authenticator signs exactly what was shown; nothing else counts."""

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from harness.filling import running
from holdproof import errors, sync
from holdproof.crypto import passkey_answers
from holdproof.testing import FrozenClock
from tests.browsers import aside, chromium
from tests.receiver import Receiver

_CREATE = """async options => {
  const made = await navigator.credentials.create(
    {publicKey: PublicKeyCredential.parseCreationOptionsFromJSON(options)});
  return made.toJSON();
}"""
_SIGN = """async options => {
  const signed = await navigator.credentials.get(
    {publicKey: PublicKeyCredential.parseRequestOptionsFromJSON(options)});
  return signed.toJSON();
}"""


class Signer:
    """A person at a browser with an authenticator of their own, at two origins of one host."""

    def __init__(self, browser: Any, server: Receiver, elsewhere: Receiver) -> None:
        self.origin = server.url.replace("127.0.0.1", "localhost")
        self._other = elsewhere.url.replace("127.0.0.1", "localhost")
        self._context = browser.new_context()
        self.page = self._context.new_page()
        self.page.goto(f"{self.origin}/")
        devtools = self._context.new_cdp_session(self.page)
        devtools.send("WebAuthn.enable")
        options = {
            "protocol": "ctap2",
            "transport": "internal",
            "hasUserVerification": True,
            "isUserVerified": True,
            "automaticPresenceSimulation": True,
        }
        devtools.send("WebAuthn.addVirtualAuthenticator", {"options": options})

    def create(self, options: Any) -> Any:
        return self.page.evaluate(_CREATE, options)

    def sign(self, options: Any, *, elsewhere: bool = False) -> Any:
        self.page.goto(f"{self._other if elsewhere else self.origin}/")
        return self.page.evaluate(_SIGN, options)


@pytest.fixture
def clock() -> FrozenClock:
    return FrozenClock()


@pytest.fixture(params=["sqlite", "postgres"])
def store(request: pytest.FixtureRequest, tmp_path: Path, clock: FrozenClock) -> Iterator[sync.Holdproof]:
    url = request.getfixturevalue("postgres_url") if request.param == "postgres" else None
    opened = aside(lambda: sync.open(tmp_path / "home", url, clock=clock))
    try:
        yield opened
    finally:
        aside(opened.close)


@pytest.fixture
def signer() -> Iterator[Signer]:
    with closing(Receiver(200)) as server, closing(Receiver(200)) as elsewhere, chromium() as browser:
        yield Signer(browser, server, elsewhere)


def _prepare(store: sync.Holdproof, signer: Signer) -> int:
    """People, a passkey of Ann's, and an escalation that needs it."""

    def begin() -> Any:
        store.agents.register("trader", version="1.0.0")
        for name in ("ann", "bob"):
            store.people.put(name, groups=["finance"])
        return store.passkeys.register_options("ann", origin=signer.origin)

    credential = signer.create(aside(begin).options)

    def finish() -> int:
        store.passkeys.register(credential, by="ann")
        asked = store.escalations.request(
            running(store), reason="pay?", proposal={"cents": 900}, approvers="1 of finance with passkey"
        )
        return asked.id

    return aside(finish)


def _refused(kind: type[errors.HoldproofError], call: Callable[[], object]) -> None:
    with pytest.raises(kind):
        aside(call)


def _flipped(text: str, at: int) -> str:
    data = bytearray(passkey_answers.to_bytes(text))
    data[at] ^= 1
    return passkey_answers.to_text(bytes(data))


def _resigned(evidence: dict[str, Any], part: str, at: int) -> dict[str, Any]:
    """The evidence of an answer with another bit in a part of what the authenticator answered."""
    assertion = evidence["assertion"]
    response = assertion["response"]
    changed = {**assertion, "response": {**response, part: _flipped(response[part], at)}}
    return {**evidence, "assertion": changed}


def test_an_approver_signs_exactly_the_bytes_shown_and_anybody_can_check_it(
    store: sync.Holdproof, signer: Signer
) -> None:
    id = _prepare(store, signer)
    _refused(errors.PasskeyRequiredError, lambda: store.escalations.resolve(id, "approve", by="ann"))
    asked = aside(lambda: store.passkeys.challenge(id, "approve", by="ann", comment="fine"))
    assert json.loads(asked.statement)["request"]["proposal"] == {"cents": 900}
    assertion = signer.sign(asked.options)
    done = aside(lambda: store.passkeys.answer(id, "approve", assertion=assertion, by="ann", comment="fine"))
    assert (done.outcome, done.resolved_by) == ("approved as proposed", "ann")
    [answer] = aside(lambda: store.escalations.approvals(id)).answers
    assert (answer.statement, answer.statement_hash) == (asked.statement, asked.statement_hash)

    facts = answer.to_dict()
    assert passkey_answers.problem_of(facts) == ""
    assert passkey_answers.problem_of({**facts, "statement": None}) == ""  # erased: the hash was signed
    evidence = facts["passkey"]
    forged = [
        {**facts, "statement": facts["statement"].replace("900", "100")},
        {**facts, "statement": None, "statement_hash": "00" * 32},
        {**facts, "passkey": {**evidence, "nonce": passkey_answers.to_text(bytes(32))}},
        {**facts, "passkey": {**evidence, "origin": "https://elsewhere.example"}},
        {**facts, "passkey": {**evidence, "rp_id": "elsewhere.example"}},
        {**facts, "passkey": {**evidence, "public_key": _flipped(evidence["public_key"], -1)}},
        # The presence and the verification of the person, the counter, what the browser saw, the signature itself.
        *({**facts, "passkey": _resigned(evidence, "authenticatorData", at)} for at in (32, 36)),
        *({**facts, "passkey": _resigned(evidence, part, 20)} for part in ("clientDataJSON", "signature")),
        {**facts, "passkey": {**evidence, "assertion": {}}},
    ]
    assert [number for number, each in enumerate(forged) if not passkey_answers.problem_of(each)] == []
    assert len(forged) > 10
    report = aside(lambda: store.verify.run(full=True, lock=False))
    assert report.findings == []


def test_other_bytes_another_person_and_a_replay_are_refused(
    store: sync.Holdproof, signer: Signer, clock: FrozenClock
) -> None:
    id = _prepare(store, signer)

    def challenged() -> Any:
        return signer.sign(aside(lambda: store.passkeys.challenge(id, "approve", by="ann")).options)

    other_words: list[dict[str, Any]] = [
        {"decision": "reject", "by": "ann"},
        {"decision": "approve", "by": "ann", "comment": "another"},
        {"decision": "approve", "by": "ann", "proposal": {"cents": 1}},
        {"decision": "approve", "by": "bob"},
    ]
    for words in other_words:
        assertion = challenged()
        _refused(errors.PasskeyRefusedError, lambda a=assertion, w=words: store.passkeys.answer(id, assertion=a, **w))  # type: ignore[misc]
    # What is asked has changed since: the signature is for other bytes.
    assertion = challenged()
    aside(lambda: store.escalations.ask(id, "which customer?", by="bob"))
    _refused(errors.PasskeyRefusedError, lambda: store.passkeys.answer(id, "approve", assertion=assertion, by="ann"))
    late = challenged()
    clock.advance(301)
    _refused(errors.PasskeyRefusedError, lambda: store.passkeys.answer(id, "approve", assertion=late, by="ann"))
    good = challenged()
    second = aside(lambda: store.escalations.request(running(store), reason="pay?", approvers="finance with passkey"))
    _refused(errors.PasskeyRefusedError, lambda: store.passkeys.answer(second.id, "approve", assertion=good, by="ann"))
    assert aside(lambda: store.passkeys.answer(id, "approve", assertion=good, by="ann")).approved
    _refused(errors.PasskeyRefusedError, lambda: store.passkeys.answer(second.id, "approve", assertion=good, by="ann"))
    assert aside(lambda: store.escalations.get(second.id)).status == "PENDING"


def test_a_signature_at_another_origin_is_refused(store: sync.Holdproof, signer: Signer) -> None:
    id = _prepare(store, signer)
    options = aside(lambda: store.passkeys.challenge(id, "approve", by="ann")).options
    assertion = signer.sign(options, elsewhere=True)
    _refused(errors.PasskeyRefusedError, lambda: store.passkeys.answer(id, "approve", assertion=assertion, by="ann"))
    assert aside(lambda: store.escalations.approvals(id)).answers == ()


def test_a_passkey_that_was_revoked_or_edited_signs_nothing(store: sync.Holdproof, signer: Signer) -> None:
    id = _prepare(store, signer)
    options = aside(lambda: store.passkeys.challenge(id, "approve", by="ann")).options
    assertion = signer.sign(options)
    [passkey] = aside(lambda: store.passkeys.list()).items
    aside(lambda: store.passkeys.revoke(passkey.credential_id, by="bob"))
    _refused(errors.PasskeyRefusedError, lambda: store.passkeys.answer(id, "approve", assertion=assertion, by="ann"))
    _refused(errors.NotFoundError, lambda: store.passkeys.challenge(id, "approve", by="ann"))
    _refused(errors.InvalidInputError, lambda: store.passkeys.register_options("ann", origin="http://example.org"))
    _refused(errors.InvalidInputError, lambda: store.passkeys.register({"id": "x"}, by="ann"))
