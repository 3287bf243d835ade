"""The work, the same for everybody: tables, statements and their parameters.

`txn`   SELECT + UPDATE + INSERT, the textbook transaction.
`unit`  the eight statements of one agent decision: flow, transition, running, transition,
        idempotency, lock, audit, completed.
`logged` the same, and the decision's row has a leaf in the log; peers, who have no log, write a constant in its place.
`read`  one row by its primary key.
"""

import itertools
import os
import re
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

Step = tuple[str, tuple[Any, ...]]
ROWS = 1_000
READ_ROWS = 10_000
RESOURCES = 1_000

# Tokens as in the product's migrations; `plain` gives peers the same tables. No name is one of the product's own, so
# that they can stand in a real store.
SCHEMA = """
CREATE TABLE accounts (id @int PRIMARY KEY, balance @int NOT NULL, updated_at @time);
CREATE TABLE entries (
  id TEXT PRIMARY KEY, account_id @int NOT NULL REFERENCES accounts(id), amount @int NOT NULL,
  created_at @time);
CREATE INDEX entries_account ON entries(account_id);
CREATE TABLE items (id @int PRIMARY KEY, name TEXT NOT NULL, body TEXT NOT NULL);
CREATE TABLE flows (
  flow_id TEXT PRIMARY KEY, agent_id TEXT NOT NULL, status TEXT NOT NULL, input TEXT NOT NULL, output TEXT,
  created_at @time NOT NULL, updated_at @time NOT NULL, leaf_id TEXT, leaf_ver @int, leaf_salt @blob);
CREATE INDEX flows_status ON flows(status, updated_at);
CREATE TABLE transitions (
  flow_id TEXT NOT NULL REFERENCES flows(flow_id), seq @int NOT NULL, from_status TEXT,
  to_status TEXT NOT NULL, at @time NOT NULL, PRIMARY KEY (flow_id, seq));
CREATE TABLE answers (
  key TEXT PRIMARY KEY, flow_id TEXT NOT NULL REFERENCES flows(flow_id), response TEXT NOT NULL,
  expires_at @time NOT NULL);
CREATE INDEX answers_expires ON answers(expires_at);
CREATE TABLE claims (
  resource TEXT PRIMARY KEY, holder TEXT NOT NULL, fencing @int NOT NULL, acquired_at @time NOT NULL);
CREATE TABLE events (
  event_id TEXT PRIMARY KEY, flow_id TEXT NOT NULL REFERENCES flows(flow_id), kind TEXT NOT NULL,
  payload TEXT NOT NULL, at @time NOT NULL);
CREATE INDEX events_flow ON events(flow_id);
CREATE INDEX events_at ON events(at);
"""
_TYPES = {
    "sqlite": {"@int": "INTEGER", "@time": "TEXT", "@blob": "BLOB"},
    "postgres": {"@int": "BIGINT", "@time": "TEXT", "@blob": "BYTEA"},
}

FILL_ACCOUNTS = "INSERT INTO accounts(id, balance) VALUES (:id, :balance)"
FILL_ITEMS = "INSERT INTO items(id, name, body) VALUES (:id, :name, :body)"

TXN_SELECT = "SELECT balance FROM accounts WHERE id = :account"
TXN_UPDATE = "UPDATE accounts SET balance = balance + :amount, updated_at = :now WHERE id = :account"
TXN_INSERT = "INSERT INTO entries(id, account_id, amount, created_at) VALUES (:id, :account, :amount, :now)"

UNIT_CREATE = """INSERT INTO flows(flow_id, agent_id, status, input, created_at, updated_at)
  VALUES (:flow, :agent, 'CREATED', :input, :now, :now)"""
UNIT_CREATED = """INSERT INTO transitions(flow_id, seq, from_status, to_status, at)
  VALUES (:flow, 1, NULL, 'CREATED', :now)"""
UNIT_RUN = """UPDATE flows SET status = 'RUNNING', updated_at = :now
  WHERE flow_id = :flow AND status = 'CREATED'"""
UNIT_RUNNING = """INSERT INTO transitions(flow_id, seq, from_status, to_status, at)
  VALUES (:flow, 2, 'CREATED', 'RUNNING', :now)"""
UNIT_REMEMBER = """INSERT INTO answers(key, flow_id, response, expires_at)
  VALUES (:key, :flow, :response, :now)"""
UNIT_LOCK = """INSERT INTO claims(resource, holder, fencing, acquired_at)
  VALUES (:resource, :flow, 1, :now)
  ON CONFLICT (resource) DO UPDATE
  SET holder = excluded.holder, fencing = claims.fencing + 1, acquired_at = excluded.acquired_at"""
UNIT_AUDIT = """INSERT INTO events(event_id, flow_id, kind, payload, at)
  VALUES (:event, :flow, 'decided', :payload, :now)"""
UNIT_COMPLETE = """UPDATE flows SET status = 'COMPLETED', output = :output, updated_at = :now
  WHERE flow_id = :flow AND status = 'RUNNING'"""
LOGGED_COMPLETE = """UPDATE flows SET status = 'COMPLETED', output = :output, updated_at = :now,
  leaf_id = :leaf, leaf_ver = 1, leaf_salt = :salt WHERE flow_id = :flow AND status = 'RUNNING'"""

_TXN = (TXN_SELECT, TXN_UPDATE, TXN_INSERT)
_UNIT = (
    *(UNIT_CREATE, UNIT_CREATED, UNIT_RUN, UNIT_RUNNING),
    *(UNIT_REMEMBER, UNIT_LOCK, UNIT_AUDIT, UNIT_COMPLETE),
)
READ = "SELECT id, name, body FROM items WHERE id = :id"

AGENT = "agent-7"
INPUT = '{"goal":"rebalance","limits":{"max_order":25000,"venue":"XETR"},"model":"m-4","temperature":0}'
OUTPUT = '{"decision":"hold","confidence":0.82,"reasons":["spread too wide","budget nearly spent"]}'
PAYLOAD = '{"actor":"agent-7","policy":"p-12","inputs":3,"outcome":"hold","cost_usd":0.0142}'

LEAF, SALT = "01990000-0000-7000-8000-000000000000", bytes(16)

_NAME = re.compile(r":([a-z]+)")
_serial = itertools.count(int.from_bytes(os.urandom(4), "big"))


def plain(dialect: str) -> str:
    """The tables without type tokens, as a peer creates them."""
    text = SCHEMA
    for token, name in _TYPES[dialect].items():
        text = text.replace(token, name)
    return text


def positional(text: str, mark: str = "?") -> str:
    """The statement with `?` (or `%s`) for each parameter, which is the fastest way to bind."""
    return _NAME.sub(mark, text)


def new_id() -> str:
    """A UUIDv7 as text: sorted by time like the product's own, so that indexes grow alike."""
    text = f"{time.time_ns() // 1_000_000:012x}7{next(_serial) & 0xFFFFFFFF:08x}{os.urandom(6).hex()[:11]}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def now() -> str:
    """The moment as text, as peers write it."""
    return datetime.now(UTC).isoformat()


class Statements:
    """The statements bound by position: what each peer runs."""

    def __init__(self, mark: str = "?") -> None:
        self._txn = [positional(text, mark) for text in _TXN]
        self._unit = [positional(text, mark) for text in _UNIT]
        self._logged = positional(LOGGED_COMPLETE, mark)
        self.read = positional(READ, mark)
        self.fill_accounts, self.fill_items = positional(FILL_ACCOUNTS, mark), positional(FILL_ITEMS, mark)

    def txn(self, number: int) -> list[Step]:
        """The three statements of one transaction."""
        moment, account = now(), number % ROWS
        select, update, insert = self._txn
        return [
            (select, (account,)),
            (update, (5, moment, account)),
            (insert, (new_id(), account, 5, moment)),
        ]

    def unit(self, number: int) -> list[Step]:
        """The eight statements of one decision."""
        flow, moment = new_id(), now()
        parameters: tuple[tuple[Any, ...], ...] = (
            (flow, AGENT, INPUT, moment, moment),
            (flow, moment),
            (moment, flow),
            (flow, moment),
            (f"key-{flow}", flow, OUTPUT, moment),
            (f"resource-{number % RESOURCES}", flow, moment),
            (f"event-{flow}", flow, PAYLOAD, moment),
            (OUTPUT, moment, flow),
        )
        return list(zip(self._unit, parameters, strict=True))

    def logged(self, number: int) -> list[Step]:
        """The same, with the columns of a leaf."""
        *steps, (_, (output, moment, flow)) = self.unit(number)
        return [*steps, (self._logged, (output, moment, LEAF, SALT, flow))]


StepMaker = Callable[[int], list[Step]]


def account_rows() -> list[tuple[int, int]]:
    """The accounts every store begins with."""
    return [(number, 1_000) for number in range(ROWS)]


def item_rows() -> list[tuple[int, str, str]]:
    """The rows that are read."""
    return [(number, f"item {number}", PAYLOAD) for number in range(READ_ROWS)]
