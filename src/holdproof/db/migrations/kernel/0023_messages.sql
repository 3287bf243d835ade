-- Messages to a flow, in the order `n` in which they came; `received_at` is set with the step that received one.
CREATE TABLE flow_messages (
  message_id TEXT PRIMARY KEY,
  dfid TEXT NOT NULL,
  n @int NOT NULL,
  topic TEXT NOT NULL,
--sqlite:  value TEXT NOT NULL CHECK (json_valid(value)),
--postgres:  value JSON NOT NULL,
  value_hash TEXT NOT NULL,
  sent_by TEXT,
  idempotency_key TEXT,
  sent_at @time NOT NULL,
  received_at @time,
  ns TEXT NOT NULL DEFAULT 'main',
  leaf_id TEXT NOT NULL,
  leaf_ver @int NOT NULL,
  leaf_salt @blob,
  FOREIGN KEY (dfid, ns) REFERENCES decision_flows (dfid, ns) ON DELETE CASCADE,
  UNIQUE (dfid, ns, n),
  UNIQUE (dfid, ns, idempotency_key)
);
CREATE INDEX idx_flow_messages_waiting ON flow_messages (dfid, ns, topic, n) WHERE received_at IS NULL;

-- Promises of a flow: settled once, by who has the token, of which only the hash is stored. `value` is what one was
-- resolved with, or why it was rejected.
CREATE TABLE flow_promises (
  promise_id TEXT PRIMARY KEY,
  dfid TEXT NOT NULL,
  name TEXT NOT NULL,
  n @int NOT NULL,
  token_hash TEXT NOT NULL UNIQUE,
  state TEXT NOT NULL CHECK (state IN ('PENDING', 'RESOLVED', 'REJECTED')),
--sqlite:  value TEXT CHECK (json_valid(value)),
--postgres:  value JSON,
  value_hash TEXT,
  created_at @time NOT NULL,
  settled_at @time,
  ns TEXT NOT NULL DEFAULT 'main',
  leaf_id TEXT NOT NULL,
  leaf_ver @int NOT NULL,
  leaf_salt @blob,
  FOREIGN KEY (dfid, ns) REFERENCES decision_flows (dfid, ns) ON DELETE CASCADE,
  UNIQUE (dfid, ns, name, n),
  CHECK ((state = 'PENDING') = (value IS NULL))
);

-- What a flow publishes for others to read while it runs: the newest value of each key.
CREATE TABLE flow_values (
  value_id TEXT PRIMARY KEY,
  dfid TEXT NOT NULL,
  key TEXT NOT NULL,
--sqlite:  value TEXT NOT NULL CHECK (json_valid(value)),
--postgres:  value JSON NOT NULL,
  version @int NOT NULL,
  published_at @time NOT NULL,
  ns TEXT NOT NULL DEFAULT 'main',
  leaf_id TEXT NOT NULL,
  leaf_ver @int NOT NULL,
  leaf_salt @blob,
  FOREIGN KEY (dfid, ns) REFERENCES decision_flows (dfid, ns) ON DELETE CASCADE,
  UNIQUE (dfid, ns, key)
);

-- Streams of a flow: items by offset, 0, 1, 2 …; the item that says `closed` is the end, and has no value.
CREATE TABLE flow_stream_items (
  item_id TEXT PRIMARY KEY,
  dfid TEXT NOT NULL,
  stream TEXT NOT NULL,
  position @int NOT NULL,
--sqlite:  value TEXT CHECK (json_valid(value)),
--postgres:  value JSON,
  closed @int NOT NULL DEFAULT 0 CHECK (closed IN (0, 1)),
  written_at @time NOT NULL,
  ns TEXT NOT NULL DEFAULT 'main',
  leaf_id TEXT NOT NULL,
  leaf_ver @int NOT NULL,
  leaf_salt @blob,
  FOREIGN KEY (dfid, ns) REFERENCES decision_flows (dfid, ns) ON DELETE CASCADE,
  UNIQUE (dfid, ns, stream, position),
  CHECK ((closed = 1) = (value IS NULL))
);
