-- What people have to be told, once each: `about` names the escalation or reminder. `outcome` says whether anybody was
-- reached; NULL while that is not known yet.
CREATE TABLE notifications (
  id @serial,
  event TEXT NOT NULL,
  about TEXT NOT NULL,
--sqlite:  channels TEXT NOT NULL CHECK (json_valid(channels)),
--postgres:  channels JSON NOT NULL,
  created_at @time NOT NULL,
  ended_at @time,
  outcome TEXT CHECK (outcome IN ('delivered', 'undelivered')),
--sqlite:  problems TEXT CHECK (json_valid(problems)),
--postgres:  problems JSON,
  ns TEXT NOT NULL DEFAULT 'main',
  leaf_id TEXT NOT NULL,
  leaf_ver @int NOT NULL,
  leaf_salt @blob
);
CREATE UNIQUE INDEX idx_notifications_about ON notifications (about);

-- What is still to be sent through which channel: tried again with growing pauses until it was delivered or given up.
CREATE TABLE notification_deliveries (
  notification_id @int NOT NULL,
  channel TEXT NOT NULL,
  attempts @int NOT NULL DEFAULT 0,
  next_at @time,
  delivered_at @time,
  problem TEXT,
  PRIMARY KEY (notification_id, channel)
);
CREATE INDEX idx_notification_deliveries_next_at ON notification_deliveries (next_at) WHERE next_at IS NOT NULL;

-- The passkeys of people: a public key, and the address it signs at. `sign_count` is the authenticator's counter.
CREATE TABLE passkeys (
  credential_id TEXT PRIMARY KEY,
  person TEXT NOT NULL,
  public_key TEXT NOT NULL,
  rp_id TEXT NOT NULL,
  origin TEXT NOT NULL,
  sign_count @int NOT NULL DEFAULT 0,
  created_at @time NOT NULL,
  created_by TEXT NOT NULL,
  revoked_at @time,
  revoked_by TEXT,
  ns TEXT NOT NULL DEFAULT 'main',
  leaf_id TEXT NOT NULL,
  leaf_ver @int NOT NULL,
  leaf_salt @blob
);
CREATE INDEX idx_passkeys_person ON passkeys (ns, person);

-- What somebody was asked to sign: used once, within minutes. `statement_hash` is that of an answer.
CREATE TABLE passkey_challenges (
  challenge TEXT PRIMARY KEY,
  purpose TEXT NOT NULL CHECK (purpose IN ('register', 'answer')),
  person TEXT NOT NULL,
  nonce TEXT NOT NULL,
  origin TEXT NOT NULL,
  escalation_id @int,
  statement_hash TEXT,
  expires_at @time NOT NULL,
  used_at @time,
  ns TEXT NOT NULL DEFAULT 'main'
);
