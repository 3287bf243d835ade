"""Have heads anchored in another log: by the settings in a Rekor v2, or with a proof that a person brings.

    anchor: {url: https://log2025-1.rekor.sigstore.dev, key: log2025-1.rekor.sigstore.dev+ID+KEY, every_s: 86400}

Rules:
- An answer is checked under the key of the settings before it is stored; no other log is believed.
- The log is told the hash of a head, and a key made for this one entry with its signature; nothing else.
- A locked store could not keep the answer: the log is not asked.
- No network call inside a transaction. By the clock only a log that grew is anchored: an anchor is an entry itself.
"""

from functools import partial

from holdproof import validation
from holdproof.config_sections import AnchorLog
from holdproof.content.credentials import split_credentials
from holdproof.crypto import anchor, keys, tlog_proof
from holdproof.crypto.checkpoint import SignedCheckpoint
from holdproof.crypto.vkey import VerifierKey
from holdproof.db import Call, Read, Work, Write, ask, call
from holdproof.errors import BadKeyError, ConfigError, HoldproofError, NotFoundError, UnreachableError
from holdproof.evidence import anchors, bounded_http
from holdproof.model.anchors import Anchor
from holdproof.store.context import Context
from holdproof.upkeep import time_stamping

_TAKEN = (200, 201)
_MOST_CHARACTERS = 1 << 20


def create(context: Context, *, timeout_s: float = 30.0) -> Work[Anchor]:
    """Have the newest head logged by the Rekor v2 of the settings; return its place there.

    NotFoundError where the settings name no log; ProofError for an answer that its key does not vouch for.
    """
    settings = context.settings.anchor
    if settings.url is None:
        raise _unconfigured()
    key = _key(settings)
    url, opens = split_credentials(settings.url.rstrip("/"))
    signed: SignedCheckpoint = yield from ask(Read(partial(time_stamping.unlocked_head, context=context)))
    head = signed.encode()
    # A key of its own for each entry: Rekor takes none without a signature, and nothing rests on this one.
    body: bytes = yield from call(lambda: anchor.request(head, keys.generate()))
    answer: bounded_http.Reply = yield from ask(
        Call(
            partial(
                bounded_http.send,
                "POST",
                f"{url}{anchor.PATH}",
                f"the log {url}",
                timeout_s=timeout_s,
                opens=opens,
                body=body,
                kind=anchor.CONTENT_TYPE,
            )
        )
    )
    if answer.status not in _TAKEN:
        raise UnreachableError(f"the log {url} answered {answer.status}", url=url, status=answer.status)
    proof = anchor.parse_answer(answer.body)
    anchor.verify(proof, head, key)
    return (yield from ask(Write(partial(anchors.record, head=head.decode(), proof=proof, key=key, url=url))))


def put(context: Context, head: str, proof: str) -> Work[Anchor]:
    """Keep a proof that a head of this log is an entry of the log of the settings: for logs that are asked otherwise.

    The entry is the head as `log head` writes it, or a hashedrekord of Rekor in the proof's `extra`. ProofError for a
    proof that the key of the settings does not vouch for, or a head of another log; NotFoundError without such a key.
    """
    if context.settings.anchor.key is None:
        raise _unconfigured()
    key = _key(context.settings.anchor)
    validation.words("head", head, most=_MOST_CHARACTERS)
    validation.words("proof", proof, most=_MOST_CHARACTERS)
    parsed = tlog_proof.parse(proof.encode())
    anchor.verify(parsed, head.encode(), key)
    return (yield from ask(Write(partial(anchors.record, head=head, proof=parsed, key=key))))


def beat(context: Context) -> Work[Anchor | None]:
    """Have the newest head anchored if that is due by the settings; None where it is not, or nothing new was logged."""
    settings = context.settings.anchor
    if settings.url is None or not (yield from ask(Read(partial(anchors.due, every_s=settings.every_s)))):
        return None
    return (yield from create(context))


def _unconfigured() -> NotFoundError:
    return NotFoundError(
        "no log to anchor heads in is configured: `anchor: {url: …, key: …}` in config.yaml names one", key="anchor"
    )


def _key(settings: AnchorLog) -> VerifierKey:
    """Return the key of the other log; one that is configured wrongly is told before anybody is asked."""
    if settings.key is None:
        raise ConfigError(
            "a log to anchor heads in is trusted by its key: `anchor: {key: NAME+ID+KEY}` in config.yaml, as the log"
            " publishes it",
            key="anchor.key",
        )
    try:
        return anchor.parse_key(settings.key)
    except BadKeyError as error:
        raise ConfigError(f"anchor.key: {error.message}", key="anchor.key") from error


def trusted(context: Context) -> str | None:
    """Return the verifier key that the settings trust; None where they name none."""
    try:
        return _key(context.settings.anchor).encode()
    except HoldproofError:
        return None
