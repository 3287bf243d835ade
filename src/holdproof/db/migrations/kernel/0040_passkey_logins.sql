-- As what a passkey opens the console: a role, with or without a token, and a namespace ('*' for all); NULL where it
-- only signs answers.
ALTER TABLE passkeys ADD COLUMN login_role TEXT;
ALTER TABLE passkeys ADD COLUMN login_token_id TEXT;
ALTER TABLE passkeys ADD COLUMN login_ns TEXT;

-- With which passkey somebody came in: the session ends with it.
ALTER TABLE access_logins ADD COLUMN credential_id TEXT;

-- A challenge may be for a login, of whoever answers it. SQLite cannot change a CHECK; challenges last for minutes.
--postgres:ALTER TABLE passkey_challenges DROP CONSTRAINT passkey_challenges_purpose_check;
--postgres:ALTER TABLE passkey_challenges ADD CONSTRAINT passkey_challenges_purpose_check CHECK (purpose IN ('register', 'answer', 'login'));
--sqlite:DROP TABLE passkey_challenges;
--sqlite:CREATE TABLE passkey_challenges (
--sqlite:  challenge TEXT PRIMARY KEY,
--sqlite:  purpose TEXT NOT NULL CHECK (purpose IN ('register', 'answer', 'login')),
--sqlite:  person TEXT NOT NULL,
--sqlite:  nonce TEXT NOT NULL,
--sqlite:  origin TEXT NOT NULL,
--sqlite:  escalation_id INTEGER,
--sqlite:  statement_hash TEXT,
--sqlite:  expires_at TEXT NOT NULL,
--sqlite:  used_at TEXT,
--sqlite:  ns TEXT NOT NULL DEFAULT 'main'
--sqlite:);
