-- Who may act at the server. A secret is kept as its hash only; `nouns` is a JSON list, NULL for no list.
CREATE TABLE access_tokens (
  token_id TEXT PRIMARY KEY,
  name TEXT NOT NULL,
  role TEXT NOT NULL CHECK (role IN ('operator', 'auditor', 'agent')),
  agent_id TEXT,
  nouns TEXT,
  secret_hash TEXT NOT NULL UNIQUE,
  created_by TEXT NOT NULL,
  created_at @time NOT NULL,
  expires_at @time,
  revoked_at @time,
  revoked_by TEXT,
  last_used_at @time,
  ns TEXT NOT NULL,
  leaf_id TEXT NOT NULL,
  leaf_ver @int NOT NULL,
  leaf_salt @blob,
  CHECK ((role = 'agent') = (agent_id IS NOT NULL))
);

-- Links to log in by, and the sessions they were exchanged for; `token_id` is the token they end with.
CREATE TABLE access_logins (
  login_id TEXT PRIMARY KEY,
  kind TEXT NOT NULL CHECK (kind IN ('link', 'session')),
  token_id TEXT REFERENCES access_tokens (token_id) ON DELETE CASCADE,
  name TEXT NOT NULL,
  role TEXT NOT NULL CHECK (role IN ('operator', 'auditor')),
  secret_hash TEXT NOT NULL UNIQUE,
  created_at @time NOT NULL,
  expires_at @time NOT NULL,
  ended_at @time,
  ns TEXT NOT NULL
);
CREATE INDEX idx_access_logins_token_id ON access_logins (token_id);
CREATE INDEX idx_access_logins_expires_at ON access_logins (expires_at);

-- What happened at the door: who was refused, and how often within a minute; who came in, who left.
CREATE TABLE access_events (
  id @serial,
  event TEXT NOT NULL,
  status @int NOT NULL,
  code TEXT NOT NULL,
  caller TEXT NOT NULL,
  address TEXT NOT NULL,
  method TEXT NOT NULL,
  path TEXT NOT NULL,
  detail TEXT NOT NULL,
  count @int NOT NULL,
  created_at @time NOT NULL
);
