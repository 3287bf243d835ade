"""Have heads stamped by the time authority of the settings (RFC 3161), by hand or by the clock.

    time: {url: https://tsa.example/tsr, certificate: /etc/holdproof/tsa.pem, every_s: 3600}

Rules:
- An answer is checked under the certificate of the settings before it is stored; no other authority is believed.
- The authority is told the hash of a head and a random number, nothing else.
- A locked store could not keep the answer: the authority is not asked.
- No network call inside a transaction. By the clock only a log that grew is stamped: a token is an entry itself.
"""

from functools import partial
from pathlib import Path

from holdproof.config_sections import TimeAuthority
from holdproof.content.credentials import split_credentials
from holdproof.crypto import timestamp
from holdproof.crypto.checkpoint import SignedCheckpoint
from holdproof.db import Call, Read, Tx, Work, Write, ask
from holdproof.db.clock import system_random
from holdproof.errors import ConfigError, HoldproofError, NotFoundError, UnreachableError
from holdproof.evidence import bounded_http, lockdown, log, timestamps
from holdproof.model.timestamps import Timestamp
from holdproof.store.context import Context


def create(context: Context, *, timeout_s: float = 10.0) -> Work[Timestamp]:
    """Have the newest head stamped by the time authority of the settings; return what it signed.

    NotFoundError where the settings name none; ProofError for an answer that its certificate does not vouch for.
    """
    authority = context.settings.time
    if authority.url is None:
        raise NotFoundError(
            "no time authority is configured: `time: {url: …, certificate: …}` in config.yaml names one", key="time"
        )
    url, opens = split_credentials(authority.url)
    head: SignedCheckpoint = yield from ask(Read(partial(unlocked_head, context=context)))
    nonce = int.from_bytes(system_random(8)) >> 1
    query = timestamp.request(head.encode(), nonce)
    pem: str = yield from ask(Call(partial(_certificate, authority)))
    answer: bounded_http.Reply = yield from ask(
        Call(
            partial(
                bounded_http.send,
                "POST",
                url,
                f"the time authority {url}",
                timeout_s=timeout_s,
                opens=opens,
                body=query,
                kind=timestamp.QUERY_TYPE,
            )
        )
    )
    if answer.status != 200:
        raise UnreachableError(f"the time authority {url} answered {answer.status}", url=url, status=answer.status)
    stamp = timestamp.verify(answer.body, head.encode(), timestamp.certificates(pem), nonce=nonce)
    record = partial(timestamps.record, url=url, head=head, certificate=pem, response=answer.body, stamp=stamp)
    return (yield from ask(Write(record)))


def beat(context: Context) -> Work[Timestamp | None]:
    """Have the newest head stamped if that is due by the settings; None where it is not, or nothing new was logged."""
    authority = context.settings.time
    if authority.url is None or not (yield from ask(Read(partial(timestamps.due, every_s=authority.every_s)))):
        return None
    return (yield from create(context))


def unlocked_head(tx: Tx, context: Context) -> SignedCheckpoint:
    """Return the newest head; LockedError where the store could not keep what an outsider says of it."""
    locked = lockdown.gate_of(context.database).flag() or lockdown.current(tx)
    if locked is not None:
        raise lockdown.refusal(locked)
    return log.head(tx)


def _certificate(authority: TimeAuthority) -> str:
    """Return the certificates of the settings, in PEM."""
    if authority.certificate is None:
        raise ConfigError(
            "a time authority is trusted by its certificate: `certificate` beside its `url` names a file of PEM",
            key="time.certificate",
        )
    path = Path(authority.certificate).expanduser()
    try:
        pem = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: the time authority's certificate cannot be read", key="time.certificate") from error
    # One that is configured wrongly is told before anybody is asked.
    timestamp.certificates(pem)
    return pem


def trusted(context: Context) -> frozenset[str]:
    """Return the fingerprints of the certificates that the settings trust; none where they name no authority."""
    try:
        return timestamp.fingerprints(_certificate(context.settings.time))
    except HoldproofError:
        return frozenset()
