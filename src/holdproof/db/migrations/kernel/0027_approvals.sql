-- Who has to answer an escalation, such as `2 of finance`; NULL where anybody who may answer may.
ALTER TABLE escalation_requests ADD COLUMN approvers TEXT;

-- People who approve, by name, and the groups they belong to. Who was removed stays as a row, since its entries do.
CREATE TABLE people (
  name TEXT NOT NULL,
--sqlite:  member_of TEXT NOT NULL CHECK (json_valid(member_of)),
--postgres:  member_of JSON NOT NULL,
  email TEXT,
  created_at @time NOT NULL,
  updated_at @time NOT NULL,
  updated_by TEXT NOT NULL,
  removed_at @time,
  ns TEXT NOT NULL DEFAULT 'main',
  leaf_id TEXT NOT NULL,
  leaf_ver @int NOT NULL,
  leaf_salt @blob,
  PRIMARY KEY (name, ns)
);

-- Who answers in the place of whom, and until when; one hop, never a chain.
CREATE TABLE delegations (
  id @serial,
  from_person TEXT NOT NULL,
  to_person TEXT NOT NULL,
  until @time NOT NULL,
  created_at @time NOT NULL,
  created_by TEXT NOT NULL,
  ended_at @time,
  ended_by TEXT,
  ns TEXT NOT NULL DEFAULT 'main',
  leaf_id TEXT NOT NULL,
  leaf_ver @int NOT NULL,
  leaf_salt @blob
);
CREATE INDEX idx_delegations_to_person ON delegations (ns, to_person) WHERE ended_at IS NULL;

-- What a person answered, and what they were shown. `seat` is whom the answer counts for: the person, or whoever
-- delegated to them. `statement` is the text of request and answer whose hash a passkey signs.
CREATE TABLE escalation_answers (
  id @serial,
  escalation_id @int NOT NULL,
  dfid TEXT NOT NULL,
  person TEXT NOT NULL,
  seat TEXT NOT NULL,
  answered_by TEXT NOT NULL,
  decision TEXT NOT NULL,
--sqlite:  answer_json TEXT CHECK (json_valid(answer_json)),
--postgres:  answer_json JSON,
  comment TEXT,
  shown_hash TEXT NOT NULL,
  statement TEXT NOT NULL,
  statement_hash TEXT NOT NULL,
--sqlite:  passkey_json TEXT CHECK (json_valid(passkey_json)),
--postgres:  passkey_json JSON,
  created_at @time NOT NULL,
  ns TEXT NOT NULL DEFAULT 'main',
  leaf_id TEXT NOT NULL,
  leaf_ver @int NOT NULL,
  leaf_salt @blob,
  FOREIGN KEY (dfid, ns) REFERENCES decision_flows (dfid, ns) ON DELETE CASCADE
);
-- One person answers once, and nobody's seat counts twice.
CREATE UNIQUE INDEX idx_escalation_answers_person ON escalation_answers (escalation_id, person);
CREATE UNIQUE INDEX idx_escalation_answers_seat ON escalation_answers (escalation_id, seat);
CREATE INDEX idx_escalation_answers_dfid ON escalation_answers (dfid);

-- What is said about an escalation before it is answered: a question to the agent, its reply, a reassignment, a reminder.
CREATE TABLE escalation_messages (
  id @serial,
  escalation_id @int NOT NULL,
  dfid TEXT NOT NULL,
  kind TEXT NOT NULL CHECK (kind IN ('question', 'reply', 'reassigned', 'reminder')),
  text TEXT NOT NULL,
  said_by TEXT NOT NULL,
  created_at @time NOT NULL,
  ns TEXT NOT NULL DEFAULT 'main',
  leaf_id TEXT NOT NULL,
  leaf_ver @int NOT NULL,
  leaf_salt @blob,
  FOREIGN KEY (dfid, ns) REFERENCES decision_flows (dfid, ns) ON DELETE CASCADE
);
CREATE INDEX idx_escalation_messages_escalation ON escalation_messages (escalation_id, id);
-- One reminder of each escalation, whichever process sweeps.
CREATE UNIQUE INDEX idx_escalation_messages_reminder ON escalation_messages (escalation_id) WHERE kind = 'reminder';
CREATE INDEX idx_escalation_messages_dfid ON escalation_messages (dfid);
