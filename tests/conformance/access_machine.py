"""A plain Python model of tokens and logins, walked beside a real store."""

from dataclasses import dataclass

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from holdproof import errors
from tests.conformance.machines import Machine

_PICK = st.integers(0, 10**6)


@dataclass
class _Held:
    """A secret, until when it opens, and the token it came from."""

    secret: str
    until: float
    token_id: str | None = None


class TokenMachine(Machine):
    def __init__(self) -> None:
        super().__init__()
        self.tokens: dict[str, _Held] = {}
        self.links: list[_Held] = []
        self.sessions: list[_Held] = []
        self.revoked: set[str] = set()

    def opens(self, held: _Held) -> bool:
        token = self.tokens.get(held.token_id or "")
        sound = token is None or (held.token_id not in self.revoked and token.until > self.now)
        return held.until > self.now and sound

    @rule(ttl=st.sampled_from([5, 20, 1000]))
    def create(self, ttl: int) -> None:
        made = self.store.tokens.create(self.name, role="auditor", ttl_s=ttl)
        self.tokens[made.token.token_id] = _Held(made.secret, self.now + ttl, made.token.token_id)

    @precondition(lambda self: self.tokens)
    @rule(pick=_PICK)
    def revoke(self, pick: int) -> None:
        token_id = list(self.tokens)[pick % len(self.tokens)]
        assert self.store.tokens.revoke(token_id).revoked_at is not None
        self.revoked.add(token_id)

    @precondition(lambda self: self.tokens)
    @rule(pick=_PICK)
    def authenticate(self, pick: int) -> None:
        held = list(self.tokens.values())[pick % len(self.tokens)]
        if self.opens(held):
            assert self.store.tokens.authenticate(held.secret).token_id == held.token_id
        else:
            with pytest.raises(errors.UnauthenticatedError):
                self.store.tokens.authenticate(held.secret)

    @rule(pick=_PICK, ttl=st.sampled_from([5, 20]), own=st.booleans())
    def link(self, pick: int, ttl: int, own: bool) -> None:
        token_id = list(self.tokens)[pick % len(self.tokens)] if own and self.tokens else None
        made = self.store.logins.create_link(token_id=token_id, ttl_s=ttl)
        self.links.append(_Held(made.secret, self.now + ttl, token_id))

    @precondition(lambda self: self.links)
    @rule(pick=_PICK)
    def login(self, pick: int) -> None:
        held = self.links[pick % len(self.links)]
        if self.opens(held):
            made = self.store.logins.exchange(held.secret, ttl_s=15)
            self.sessions.append(_Held(made.secret, self.now + 15, held.token_id))
            held.until = -1.0
        else:
            with pytest.raises(errors.UnauthenticatedError):
                self.store.logins.exchange(held.secret)

    @precondition(lambda self: self.sessions)
    @rule(pick=_PICK)
    def look(self, pick: int) -> None:
        held = self.sessions[pick % len(self.sessions)]
        if self.opens(held):
            assert self.store.logins.authenticate(held.secret).token_id == held.token_id
        else:
            with pytest.raises(errors.UnauthenticatedError):
                self.store.logins.authenticate(held.secret)

    @precondition(lambda self: self.sessions)
    @rule(pick=_PICK)
    def logout(self, pick: int) -> None:
        held = self.sessions[pick % len(self.sessions)]
        self.store.logins.logout(held.secret)
        held.until = -1.0
