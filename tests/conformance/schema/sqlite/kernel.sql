CREATE TABLE access_events (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  event TEXT NOT NULL,
  status INTEGER NOT NULL,
  code TEXT NOT NULL,
  caller TEXT NOT NULL,
  address TEXT NOT NULL,
  method TEXT NOT NULL,
  path TEXT NOT NULL,
  detail TEXT NOT NULL,
  count INTEGER NOT NULL,
  created_at TEXT NOT NULL
);

CREATE TABLE access_logins (
  login_id TEXT PRIMARY KEY,
  kind TEXT NOT NULL CHECK (kind IN ('link', 'session')),
  token_id TEXT REFERENCES access_tokens (token_id) ON DELETE CASCADE,
  name TEXT NOT NULL,
  role TEXT NOT NULL CHECK (role IN ('operator', 'auditor')),
  secret_hash TEXT NOT NULL UNIQUE,
  created_at TEXT NOT NULL,
  expires_at TEXT NOT NULL,
  ended_at TEXT,
  ns TEXT NOT NULL
, credential_id TEXT);

CREATE INDEX idx_access_logins_expires_at ON access_logins (expires_at);

CREATE INDEX idx_access_logins_token_id ON access_logins (token_id);

CREATE TABLE access_tokens (
  token_id TEXT PRIMARY KEY,
  name TEXT NOT NULL,
  role TEXT NOT NULL CHECK (role IN ('operator', 'auditor', 'agent')),
  agent_id TEXT,
  nouns TEXT,
  secret_hash TEXT NOT NULL UNIQUE,
  created_by TEXT NOT NULL,
  created_at TEXT NOT NULL,
  expires_at TEXT,
  revoked_at TEXT,
  revoked_by TEXT,
  last_used_at TEXT,
  ns TEXT NOT NULL,
  leaf_id TEXT NOT NULL,
  leaf_ver INTEGER NOT NULL,
  leaf_salt BLOB,
  CHECK ((role = 'agent') = (agent_id IS NOT NULL))
);

CREATE TABLE accesses (
  id TEXT PRIMARY KEY,
  kind TEXT NOT NULL CHECK (kind IN ('read', 'export')),
  who TEXT NOT NULL,
  what TEXT NOT NULL,
  target TEXT NOT NULL,
  accessed_at TEXT NOT NULL,
  ns TEXT NOT NULL DEFAULT 'main',
  leaf_id TEXT NOT NULL,
  leaf_ver INTEGER NOT NULL,
  leaf_salt BLOB
);

CREATE INDEX idx_accesses_leaf ON accesses (leaf_id);

CREATE INDEX idx_accesses_target ON accesses (target, who, what, accessed_at);

CREATE TABLE activity_hours (
  ns TEXT NOT NULL,
  hour TEXT NOT NULL,
  agent_id TEXT NOT NULL,
  started INTEGER NOT NULL DEFAULT 0,
  completed INTEGER NOT NULL DEFAULT 0,
  failed INTEGER NOT NULL DEFAULT 0,
  cancelled INTEGER NOT NULL DEFAULT 0,
  escalations INTEGER NOT NULL DEFAULT 0,
  answers INTEGER NOT NULL DEFAULT 0,
  expired INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (ns, hour, agent_id)
);

CREATE TABLE agent_registry (
  agent_id TEXT NOT NULL,
  contract TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(contract)),
--postgres:  contract JSON NOT NULL DEFAULT '{}',
  priority INTEGER NOT NULL DEFAULT 0,
  status TEXT NOT NULL DEFAULT 'ACTIVE'
    CHECK (status IN ('ACTIVE', 'SUSPENDED', 'RETIRED', 'DEGRADED', 'ESCALATION_ONLY')),
  agent_version TEXT,
  session_token TEXT,
  suspension_reason TEXT,
  registered_at TEXT NOT NULL,
  updated_at TEXT NOT NULL,
  escalation_budget TEXT CHECK (json_valid(escalation_budget)),
--postgres:  escalation_budget JSON,
  ns TEXT NOT NULL DEFAULT 'main',
  leaf_id TEXT NOT NULL,
  leaf_ver INTEGER NOT NULL,
  leaf_salt BLOB,
  PRIMARY KEY (agent_id, ns)
);

CREATE INDEX idx_agent_registry_status ON agent_registry (status);

CREATE TABLE agent_state (
  agent_id TEXT NOT NULL,
  data TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(data)),
--postgres:  data JSON NOT NULL DEFAULT '{}',
  version INTEGER NOT NULL DEFAULT 1,
  updated_at TEXT NOT NULL,
  ns TEXT NOT NULL DEFAULT 'main',
  leaf_id TEXT NOT NULL,
  leaf_ver INTEGER NOT NULL,
  leaf_salt BLOB,
  PRIMARY KEY (agent_id, ns),
  FOREIGN KEY (agent_id, ns) REFERENCES agent_registry (agent_id, ns) ON DELETE CASCADE
);

CREATE TABLE battles (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  battle_id TEXT NOT NULL,
  timestamp TEXT NOT NULL,
  score REAL,
  breakdown TEXT,
  raw_result TEXT,
  dbom_hash TEXT,
  ns TEXT NOT NULL,
  dbom TEXT,
  subject TEXT,
  legacy TEXT,
  legacy_key TEXT UNIQUE,
  leaf_id TEXT NOT NULL,
  leaf_ver INTEGER NOT NULL,
  leaf_salt BLOB
);

CREATE INDEX idx_battles_battle_id ON battles (ns, battle_id, id);

CREATE INDEX idx_battles_subject ON battles (subject);

CREATE TABLE decision_audit_events (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  dfid TEXT NOT NULL,
  root_dfid TEXT NOT NULL,
  event_type TEXT NOT NULL,
  severity TEXT NOT NULL DEFAULT 'INFO' CHECK (severity IN ('DEBUG', 'INFO', 'WARNING', 'ERROR', 'CRITICAL')),
  correlation_id TEXT,
  causation_id TEXT,
  step_id TEXT NOT NULL DEFAULT '',
  state TEXT NOT NULL DEFAULT '',
  detail_json TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(detail_json)),
--postgres:  detail_json JSON NOT NULL DEFAULT '{}',
  created_at TEXT NOT NULL,
  ns TEXT NOT NULL DEFAULT 'main',
  leaf_id TEXT NOT NULL,
  leaf_ver INTEGER NOT NULL,
  leaf_salt BLOB,
  FOREIGN KEY (dfid, ns) REFERENCES decision_flows (dfid, ns) ON DELETE CASCADE
);

CREATE INDEX idx_decision_audit_events_created_at ON decision_audit_events (created_at);

CREATE INDEX idx_decision_audit_events_dfid ON decision_audit_events (dfid);

CREATE INDEX idx_decision_audit_events_event_type ON decision_audit_events (event_type);

CREATE INDEX idx_decision_audit_events_root_dfid ON decision_audit_events (root_dfid);

CREATE INDEX idx_decision_audit_events_severity ON decision_audit_events (severity);

CREATE TABLE decision_feedback_trajectory (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  agent_id TEXT NOT NULL,
  dfid TEXT NOT NULL,
  status TEXT NOT NULL,
  reason TEXT,
  score REAL,
  source TEXT NOT NULL DEFAULT 'KERNEL' CHECK (source IN ('Human', 'Monitor', 'KERNEL')),
  created_at TEXT NOT NULL,
  ns TEXT NOT NULL DEFAULT 'main',
  leaf_id TEXT NOT NULL,
  leaf_ver INTEGER NOT NULL,
  leaf_salt BLOB,
  FOREIGN KEY (agent_id, ns) REFERENCES agent_registry (agent_id, ns) ON DELETE CASCADE,
  FOREIGN KEY (dfid, ns) REFERENCES decision_flows (dfid, ns) ON DELETE CASCADE
);

CREATE INDEX idx_decision_feedback_trajectory_agent_id ON decision_feedback_trajectory (agent_id);

CREATE TABLE decision_flows (
  dfid TEXT NOT NULL,
  root_dfid TEXT NOT NULL,
  dfid_parent TEXT,
  agent_id TEXT NOT NULL,
  flow_type TEXT NOT NULL DEFAULT 'DEFAULT',
  flow_version TEXT NOT NULL DEFAULT '1.0',
  status TEXT NOT NULL DEFAULT 'CREATED' CHECK (status IN ('CREATED', 'RUNNING', 'WAITING_ESCALATION', 'COMPLETED',
    'FAILED', 'CANCELLED', 'COMPENSATING', 'COMPENSATED')),
  created_by_type TEXT,
  created_by_id TEXT,
  priority INTEGER NOT NULL DEFAULT 0,
  started_at TEXT,
  completed_at TEXT,
  created_at TEXT NOT NULL,
  updated_at TEXT NOT NULL,
  subject TEXT,
  ns TEXT NOT NULL DEFAULT 'main',
  leaf_id TEXT NOT NULL,
  leaf_ver INTEGER NOT NULL,
  leaf_salt BLOB, attributes TEXT,
  PRIMARY KEY (dfid, ns),
  FOREIGN KEY (dfid_parent, ns) REFERENCES decision_flows (dfid, ns),
  FOREIGN KEY (agent_id, ns) REFERENCES agent_registry (agent_id, ns),
  CHECK ((dfid_parent IS NULL AND root_dfid = dfid) OR (dfid_parent IS NOT NULL AND root_dfid <> ''))
);

CREATE INDEX idx_decision_flows_agent_id ON decision_flows (agent_id);

CREATE INDEX idx_decision_flows_created_at ON decision_flows (created_at);

CREATE INDEX idx_decision_flows_dfid_parent ON decision_flows (dfid_parent);

CREATE INDEX idx_decision_flows_listed ON decision_flows (ns, created_at, status);

CREATE INDEX idx_decision_flows_root_dfid ON decision_flows (root_dfid);

CREATE INDEX idx_decision_flows_status ON decision_flows (status, ns);

CREATE TABLE decision_ledger_entries (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  dfid TEXT NOT NULL,
  root_dfid TEXT NOT NULL,
  agent_id TEXT NOT NULL,
  intent_payload TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(intent_payload)),
--postgres:  intent_payload JSON NOT NULL DEFAULT '{}',
  context_ref TEXT NOT NULL,
  evidence_hash TEXT NOT NULL,
  signature TEXT NOT NULL DEFAULT '',
  committed_at TEXT NOT NULL,
  ns TEXT NOT NULL DEFAULT 'main',
  leaf_id TEXT NOT NULL,
  leaf_ver INTEGER NOT NULL,
  leaf_salt BLOB,
  FOREIGN KEY (dfid, ns) REFERENCES decision_flows (dfid, ns) ON DELETE CASCADE,
  FOREIGN KEY (agent_id, ns) REFERENCES agent_registry (agent_id, ns)
);

CREATE INDEX idx_decision_ledger_entries_agent_id ON decision_ledger_entries (agent_id);

CREATE INDEX idx_decision_ledger_entries_committed_at ON decision_ledger_entries (committed_at);

CREATE UNIQUE INDEX idx_decision_ledger_entries_dfid ON decision_ledger_entries (dfid, ns);

CREATE TABLE delegations (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  from_person TEXT NOT NULL,
  to_person TEXT NOT NULL,
  until TEXT NOT NULL,
  created_at TEXT NOT NULL,
  created_by TEXT NOT NULL,
  ended_at TEXT,
  ended_by TEXT,
  ns TEXT NOT NULL DEFAULT 'main',
  leaf_id TEXT NOT NULL,
  leaf_ver INTEGER NOT NULL,
  leaf_salt BLOB
);

CREATE INDEX idx_delegations_to_person ON delegations (ns, to_person) WHERE ended_at IS NULL;

CREATE TABLE erasures (
  id TEXT PRIMARY KEY,
  kind TEXT NOT NULL CHECK (kind IN ('subject', 'record')),
  target TEXT NOT NULL,
  who TEXT NOT NULL,
  count INTEGER NOT NULL,
  leaf_ids TEXT NOT NULL,
  erased_at TEXT NOT NULL,
  files TEXT NOT NULL,
  leaf_id TEXT NOT NULL,
  leaf_ver INTEGER NOT NULL,
  leaf_salt BLOB
, certificate TEXT);

CREATE TABLE escalation_answers (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  escalation_id INTEGER NOT NULL,
  dfid TEXT NOT NULL,
  person TEXT NOT NULL,
  seat TEXT NOT NULL,
  answered_by TEXT NOT NULL,
  decision TEXT NOT NULL,
  answer_json TEXT CHECK (json_valid(answer_json)),
--postgres:  answer_json JSON,
  comment TEXT,
  shown_hash TEXT NOT NULL,
  statement TEXT NOT NULL,
  statement_hash TEXT NOT NULL,
  passkey_json TEXT CHECK (json_valid(passkey_json)),
--postgres:  passkey_json JSON,
  created_at TEXT NOT NULL,
  ns TEXT NOT NULL DEFAULT 'main',
  leaf_id TEXT NOT NULL,
  leaf_ver INTEGER NOT NULL,
  leaf_salt BLOB,
  FOREIGN KEY (dfid, ns) REFERENCES decision_flows (dfid, ns) ON DELETE CASCADE
);

CREATE INDEX idx_escalation_answers_dfid ON escalation_answers (dfid);

CREATE UNIQUE INDEX idx_escalation_answers_person ON escalation_answers (escalation_id, person);

CREATE UNIQUE INDEX idx_escalation_answers_seat ON escalation_answers (escalation_id, seat);

CREATE TABLE escalation_budget (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  agent_id TEXT NOT NULL,
  created_at TEXT NOT NULL,
  ns TEXT NOT NULL DEFAULT 'main',
  FOREIGN KEY (agent_id, ns) REFERENCES agent_registry (agent_id, ns) ON DELETE CASCADE
);

CREATE INDEX idx_escalation_budget_agent_id ON escalation_budget (agent_id);

CREATE INDEX idx_escalation_budget_created_at ON escalation_budget (created_at);

CREATE TABLE escalation_messages (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  escalation_id INTEGER NOT NULL,
  dfid TEXT NOT NULL,
  kind TEXT NOT NULL CHECK (kind IN ('question', 'reply', 'reassigned', 'reminder')),
  text TEXT NOT NULL,
  said_by TEXT NOT NULL,
  created_at TEXT NOT NULL,
  ns TEXT NOT NULL DEFAULT 'main',
  leaf_id TEXT NOT NULL,
  leaf_ver INTEGER NOT NULL,
  leaf_salt BLOB,
  FOREIGN KEY (dfid, ns) REFERENCES decision_flows (dfid, ns) ON DELETE CASCADE
);

CREATE INDEX idx_escalation_messages_dfid ON escalation_messages (dfid);

CREATE INDEX idx_escalation_messages_escalation ON escalation_messages (escalation_id, id);

CREATE UNIQUE INDEX idx_escalation_messages_reminder ON escalation_messages (escalation_id) WHERE kind = 'reminder';

CREATE TABLE escalation_requests (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  dfid TEXT NOT NULL,
  root_dfid TEXT NOT NULL,
  agent_id TEXT NOT NULL,
  reason TEXT NOT NULL DEFAULT '',
  context_json TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(context_json)),
  proposal_json TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(proposal_json)),
--postgres:  context_json JSON NOT NULL DEFAULT '{}',
--postgres:  proposal_json JSON NOT NULL DEFAULT '{}',
  impact TEXT NOT NULL DEFAULT '',
  status TEXT NOT NULL DEFAULT 'PENDING' CHECK (status IN ('PENDING', 'APPROVED', 'REJECTED', 'CANCELLED')),
  human_decision TEXT,
  created_at TEXT NOT NULL,
  resolved_at TEXT,
  deadline TEXT,
  on_deadline TEXT NOT NULL DEFAULT 'reject' CHECK (on_deadline IN ('reject', 'approve', 'cancel')),
  opened_by TEXT NOT NULL DEFAULT 'agent' CHECK (opened_by IN ('agent', 'kernel')),
  resolved_by TEXT,
  comment TEXT,
  answer_json TEXT CHECK (json_valid(answer_json)),
--postgres:  answer_json JSON,
  kind TEXT NOT NULL DEFAULT 'approval' CHECK (kind IN ('approval', 'in_doubt')),
  ns TEXT NOT NULL DEFAULT 'main',
  leaf_id TEXT NOT NULL,
  leaf_ver INTEGER NOT NULL,
  leaf_salt BLOB, approvers TEXT,
  FOREIGN KEY (dfid, ns) REFERENCES decision_flows (dfid, ns) ON DELETE CASCADE,
  FOREIGN KEY (agent_id, ns) REFERENCES agent_registry (agent_id, ns)
);

CREATE INDEX idx_escalation_requests_agent_id ON escalation_requests (agent_id);

CREATE INDEX idx_escalation_requests_created_at ON escalation_requests (created_at);

CREATE INDEX idx_escalation_requests_dfid ON escalation_requests (dfid);

CREATE INDEX idx_escalation_requests_expired ON escalation_requests (resolved_at) WHERE resolved_by = 'deadline';

CREATE INDEX idx_escalation_requests_resolved_at ON escalation_requests (resolved_at) WHERE resolved_at IS NOT NULL;

CREATE INDEX idx_escalation_requests_root_dfid ON escalation_requests (root_dfid);

CREATE INDEX idx_escalation_requests_status ON escalation_requests (status);

CREATE TABLE flow_attributes (
  dfid TEXT NOT NULL,
  ns TEXT NOT NULL DEFAULT 'main',
  key TEXT NOT NULL,
  value TEXT NOT NULL,
  PRIMARY KEY (dfid, ns, key),
  FOREIGN KEY (dfid, ns) REFERENCES decision_flows (dfid, ns) ON DELETE CASCADE
);

CREATE INDEX idx_flow_attributes_value ON flow_attributes (ns, key, value);

CREATE TABLE flow_calls (
  dfid TEXT NOT NULL,
  name TEXT NOT NULL,
  version TEXT NOT NULL,
  arguments TEXT NOT NULL CHECK (json_valid(arguments)),
--postgres:  arguments JSON NOT NULL,
  arguments_hash TEXT NOT NULL,
  agent_id TEXT,
  queue TEXT,
  partition_key TEXT,
  not_before TEXT,
  deduplicate TEXT,
  forked_from TEXT,
  forked_at INTEGER,
  effects TEXT,
  answers TEXT CHECK (json_valid(answers)),
--postgres:  answers JSON,
  ns TEXT NOT NULL DEFAULT 'main',
  leaf_id TEXT NOT NULL,
  leaf_ver INTEGER NOT NULL,
  leaf_salt BLOB,
  PRIMARY KEY (dfid, ns),
  FOREIGN KEY (dfid, ns) REFERENCES decision_flows (dfid, ns) ON DELETE CASCADE
);

CREATE INDEX idx_flow_calls_deduplicate ON flow_calls (ns, queue, deduplicate) WHERE deduplicate IS NOT NULL;

CREATE INDEX idx_flow_calls_forked_from ON flow_calls (ns, forked_from) WHERE forked_from IS NOT NULL;

CREATE INDEX idx_flow_calls_name ON flow_calls (ns, name, version);

CREATE TABLE flow_context (
  dfid TEXT NOT NULL,
  data TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(data)),
--postgres:  data JSON NOT NULL DEFAULT '{}',
  version INTEGER NOT NULL DEFAULT 1,
  updated_at TEXT NOT NULL,
  taken_at TEXT,
  ns TEXT NOT NULL DEFAULT 'main',
  leaf_id TEXT NOT NULL,
  leaf_ver INTEGER NOT NULL,
  leaf_salt BLOB,
  PRIMARY KEY (dfid, ns),
  FOREIGN KEY (dfid, ns) REFERENCES decision_flows (dfid, ns) ON DELETE CASCADE
);

CREATE TABLE flow_leases (
  dfid TEXT NOT NULL,
  worker TEXT NOT NULL,
  token INTEGER NOT NULL,
  heartbeat_at TEXT NOT NULL,
  expires_at TEXT NOT NULL,
  queue TEXT NOT NULL DEFAULT '',
  partition_key TEXT,
  priority INTEGER NOT NULL DEFAULT 0,
  ns TEXT NOT NULL DEFAULT 'main', waits_for TEXT, previous_worker TEXT, previous_heartbeat_at TEXT,
  PRIMARY KEY (dfid, ns),
  FOREIGN KEY (dfid, ns) REFERENCES decision_flows (dfid, ns) ON DELETE CASCADE
);

CREATE INDEX idx_flow_leases_due ON flow_leases (ns, expires_at);

CREATE INDEX idx_flow_leases_expires_at ON flow_leases (expires_at);

CREATE INDEX idx_flow_leases_queue ON flow_leases (ns, queue, priority, expires_at);

CREATE INDEX idx_flow_leases_worker ON flow_leases (ns, queue, worker) WHERE worker <> '';

CREATE TABLE flow_messages (
  message_id TEXT PRIMARY KEY,
  dfid TEXT NOT NULL,
  n INTEGER NOT NULL,
  topic TEXT NOT NULL,
  value TEXT NOT NULL CHECK (json_valid(value)),
--postgres:  value JSON NOT NULL,
  value_hash TEXT NOT NULL,
  sent_by TEXT,
  idempotency_key TEXT,
  sent_at TEXT NOT NULL,
  received_at TEXT,
  ns TEXT NOT NULL DEFAULT 'main',
  leaf_id TEXT NOT NULL,
  leaf_ver INTEGER NOT NULL,
  leaf_salt BLOB,
  FOREIGN KEY (dfid, ns) REFERENCES decision_flows (dfid, ns) ON DELETE CASCADE,
  UNIQUE (dfid, ns, n),
  UNIQUE (dfid, ns, idempotency_key)
);

CREATE INDEX idx_flow_messages_waiting ON flow_messages (dfid, ns, topic, n) WHERE received_at IS NULL;

CREATE TABLE flow_promises (
  promise_id TEXT PRIMARY KEY,
  dfid TEXT NOT NULL,
  name TEXT NOT NULL,
  n INTEGER NOT NULL,
  token_hash TEXT NOT NULL UNIQUE,
  state TEXT NOT NULL CHECK (state IN ('PENDING', 'RESOLVED', 'REJECTED')),
  value TEXT CHECK (json_valid(value)),
--postgres:  value JSON,
  value_hash TEXT,
  created_at TEXT NOT NULL,
  settled_at TEXT,
  ns TEXT NOT NULL DEFAULT 'main',
  leaf_id TEXT NOT NULL,
  leaf_ver INTEGER NOT NULL,
  leaf_salt BLOB,
  FOREIGN KEY (dfid, ns) REFERENCES decision_flows (dfid, ns) ON DELETE CASCADE,
  UNIQUE (dfid, ns, name, n),
  CHECK ((state = 'PENDING') = (value IS NULL))
);

CREATE TABLE flow_steps (
  step_id TEXT PRIMARY KEY,
  dfid TEXT NOT NULL,
  name TEXT NOT NULL,
  n INTEGER NOT NULL,
  position INTEGER NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('STARTED', 'RETRYING', 'DONE', 'FAILED', 'UNKNOWN')),
  compensates TEXT,
  arguments TEXT CHECK (json_valid(arguments)),
--postgres:  arguments JSON,
  arguments_hash TEXT,
  result TEXT CHECK (json_valid(result)),
--postgres:  result JSON,
  error TEXT,
  undo INTEGER NOT NULL DEFAULT 0 CHECK (undo IN (0, 1)),
  attempts INTEGER NOT NULL DEFAULT 1,
  retry_at TEXT,
  worker TEXT NOT NULL DEFAULT '',
  started_at TEXT NOT NULL,
  finished_at TEXT,
  ns TEXT NOT NULL DEFAULT 'main',
  leaf_id TEXT NOT NULL,
  leaf_ver INTEGER NOT NULL,
  leaf_salt BLOB,
  FOREIGN KEY (dfid, ns) REFERENCES decision_flows (dfid, ns) ON DELETE CASCADE,
  UNIQUE (dfid, ns, name, n),
  CHECK (state <> 'DONE' OR result IS NOT NULL)
);

CREATE TABLE flow_stream_items (
  item_id TEXT PRIMARY KEY,
  dfid TEXT NOT NULL,
  stream TEXT NOT NULL,
  position INTEGER NOT NULL,
  value TEXT CHECK (json_valid(value)),
--postgres:  value JSON,
  closed INTEGER NOT NULL DEFAULT 0 CHECK (closed IN (0, 1)),
  written_at TEXT NOT NULL,
  ns TEXT NOT NULL DEFAULT 'main',
  leaf_id TEXT NOT NULL,
  leaf_ver INTEGER NOT NULL,
  leaf_salt BLOB,
  FOREIGN KEY (dfid, ns) REFERENCES decision_flows (dfid, ns) ON DELETE CASCADE,
  UNIQUE (dfid, ns, stream, position),
  CHECK ((closed = 1) = (value IS NULL))
);

CREATE TABLE flow_transitions (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  dfid TEXT NOT NULL,
  root_dfid TEXT NOT NULL,
  from_status TEXT,
  to_status TEXT NOT NULL,
  correlation_id TEXT,
  causation_id TEXT,
  created_at TEXT NOT NULL,
  reason TEXT,
  result TEXT CHECK (json_valid(result)),
--postgres:  result JSON,
  ns TEXT NOT NULL DEFAULT 'main',
  leaf_id TEXT NOT NULL,
  leaf_ver INTEGER NOT NULL,
  leaf_salt BLOB,
  FOREIGN KEY (dfid, ns) REFERENCES decision_flows (dfid, ns) ON DELETE CASCADE
);

CREATE INDEX idx_flow_transitions_created_at ON flow_transitions (created_at);

CREATE INDEX idx_flow_transitions_dfid ON flow_transitions (dfid);

CREATE INDEX idx_flow_transitions_root_dfid ON flow_transitions (root_dfid);

CREATE TABLE flow_values (
  value_id TEXT PRIMARY KEY,
  dfid TEXT NOT NULL,
  key TEXT NOT NULL,
  value TEXT NOT NULL CHECK (json_valid(value)),
--postgres:  value JSON NOT NULL,
  version INTEGER NOT NULL,
  published_at TEXT NOT NULL,
  ns TEXT NOT NULL DEFAULT 'main',
  leaf_id TEXT NOT NULL,
  leaf_ver INTEGER NOT NULL,
  leaf_salt BLOB,
  FOREIGN KEY (dfid, ns) REFERENCES decision_flows (dfid, ns) ON DELETE CASCADE,
  UNIQUE (dfid, ns, key)
);

CREATE TABLE head_anchors (
  id TEXT PRIMARY KEY,
  origin TEXT NOT NULL,
  size INTEGER NOT NULL,
  head TEXT NOT NULL,
  url TEXT,
  log TEXT NOT NULL,
  log_index INTEGER NOT NULL,
  key TEXT NOT NULL,
  proof TEXT NOT NULL,
  created_at TEXT NOT NULL,
  leaf_id TEXT NOT NULL,
  leaf_ver INTEGER NOT NULL,
  leaf_salt BLOB
);

CREATE INDEX idx_head_anchors_size ON head_anchors (origin, size);

CREATE TABLE idempotency_cache (
  idempotency_key TEXT NOT NULL,
  request_hash TEXT NOT NULL,
  result TEXT CHECK (json_valid(result)),
--postgres:  result JSON,
  created_at TEXT NOT NULL,
  expires_at TEXT NOT NULL,
  state TEXT NOT NULL DEFAULT 'DONE' CHECK (state IN ('RUNNING', 'DONE', 'FAILED', 'UNKNOWN')),
  owner TEXT NOT NULL DEFAULT '',
  lease_until TEXT,
  error TEXT,
  ns TEXT NOT NULL DEFAULT 'main',
  PRIMARY KEY (ns, idempotency_key),
  CHECK (state <> 'DONE' OR result IS NOT NULL)
);

CREATE INDEX idx_idempotency_cache_expires_at ON idempotency_cache (expires_at);

CREATE TABLE imported_rows (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  source_key TEXT NOT NULL,
  importer TEXT NOT NULL,
  source TEXT NOT NULL,
  source_table TEXT NOT NULL,
  source_id TEXT NOT NULL,
  row_key TEXT NOT NULL,
  verdict TEXT NOT NULL CHECK (verdict IN ('TAKEN', 'ADAPTED', 'KEPT')),
  note TEXT NOT NULL,
  beside TEXT NOT NULL CHECK (json_valid(beside)),
--postgres:  beside JSON NOT NULL,
  imported_at TEXT NOT NULL,
  ns TEXT NOT NULL DEFAULT 'main',
  leaf_id TEXT NOT NULL,
  leaf_ver INTEGER NOT NULL,
  leaf_salt BLOB
);

CREATE UNIQUE INDEX imported_rows_source_key ON imported_rows (source_key);

CREATE TABLE intent_retry (
  dfid TEXT NOT NULL,
  rejection_count INTEGER NOT NULL DEFAULT 0 CHECK (rejection_count >= 0),
  max_retries INTEGER NOT NULL DEFAULT 3 CHECK (max_retries > 0),
  retry_policy TEXT NOT NULL DEFAULT 'EXPONENTIAL_BACKOFF'
    CHECK (retry_policy IN ('EXPONENTIAL_BACKOFF', 'LINEAR', 'NONE')),
  next_retry_at TEXT,
  backoff_until TEXT,
  updated_at TEXT NOT NULL,
  ns TEXT NOT NULL DEFAULT 'main',
  PRIMARY KEY (dfid, ns),
  FOREIGN KEY (dfid, ns) REFERENCES decision_flows (dfid, ns) ON DELETE CASCADE
);

CREATE INDEX idx_intent_retry_next_retry_at ON intent_retry (next_retry_at);

CREATE TABLE keyring (
  keyid TEXT PRIMARY KEY,
  role TEXT NOT NULL CHECK (role IN ('judge', 'memory', 'log', 'root', 'log-pq')),
  alg TEXT NOT NULL,
  public TEXT NOT NULL,
  statement TEXT NOT NULL,
  revoked_from INTEGER,
  added_at TEXT NOT NULL,
  leaf_id TEXT NOT NULL,
  leaf_ver INTEGER NOT NULL,
  leaf_salt BLOB
);

CREATE INDEX idx_keyring_role ON keyring (role);

CREATE TABLE lock_fences (
  ns TEXT NOT NULL,
  resource_id TEXT NOT NULL,
  fence INTEGER NOT NULL,
  PRIMARY KEY (ns, resource_id)
);

CREATE TABLE lockdowns (
  id TEXT PRIMARY KEY,
  verdict TEXT NOT NULL,
  reason TEXT NOT NULL,
  findings TEXT NOT NULL,
  locked_at TEXT NOT NULL,
  unlocked_at TEXT,
  statement TEXT,
  leaf_id TEXT NOT NULL,
  leaf_ver INTEGER NOT NULL,
  leaf_salt BLOB
);

CREATE TABLE log_cosignatures (
  url TEXT PRIMARY KEY REFERENCES log_witnesses (url),
  origin TEXT NOT NULL,
  size INTEGER NOT NULL,
  head TEXT NOT NULL,
  cosigned_at TEXT NOT NULL
);

CREATE TABLE log_leaves (
  idx INTEGER PRIMARY KEY,
  id TEXT NOT NULL,
  ver INTEGER NOT NULL,
  leaf TEXT NOT NULL,
  UNIQUE (id, ver)
);

CREATE TABLE log_state (
  id INTEGER PRIMARY KEY CHECK (id = 1),
  origin TEXT NOT NULL,
  size INTEGER NOT NULL,
  frontier BLOB NOT NULL,
  head TEXT NOT NULL,
  updated_at TEXT NOT NULL
);

CREATE TABLE log_stems (
  level INTEGER NOT NULL,
  idx INTEGER NOT NULL,
  hash BLOB NOT NULL,
  PRIMARY KEY (level, idx)
);

CREATE TABLE log_streams (
  stream TEXT PRIMARY KEY,
  salt TEXT NOT NULL,
  agent_id TEXT NOT NULL,
  kind TEXT NOT NULL,
  ns TEXT NOT NULL,
  n INTEGER NOT NULL,
  UNIQUE (agent_id, kind, ns)
);

CREATE TABLE log_tiles (
  level INTEGER NOT NULL,
  idx INTEGER NOT NULL,
  hashes BLOB NOT NULL,
  PRIMARY KEY (level, idx)
);

CREATE TABLE log_witnesses (
  url TEXT PRIMARY KEY,
  vkey TEXT NOT NULL,
  added_at TEXT NOT NULL
, locks INTEGER NOT NULL DEFAULT 0, removed_at TEXT, reason TEXT, leaf_id TEXT, leaf_ver INTEGER, leaf_salt BLOB);

CREATE TABLE note_vectors (
  note INTEGER NOT NULL REFERENCES notes (n) ON DELETE CASCADE,
  field TEXT NOT NULL,
  dimensions INTEGER NOT NULL,
  vector BLOB NOT NULL,
  PRIMARY KEY (note, field)
);

CREATE TABLE notes (
  n INTEGER PRIMARY KEY AUTOINCREMENT,
  ns TEXT NOT NULL,
  path TEXT NOT NULL,
  key TEXT NOT NULL,
--postgres:  path TEXT COLLATE "C" NOT NULL,
--postgres:  key TEXT COLLATE "C" NOT NULL,
  value TEXT NOT NULL,
  h BLOB NOT NULL,
  subject TEXT,
  ttl_s REAL,
  expires_at TEXT,
  created_at TEXT NOT NULL,
  updated_at TEXT NOT NULL,
  UNIQUE (ns, path, key)
);

CREATE INDEX idx_notes_expires ON notes (expires_at) WHERE expires_at IS NOT NULL;

CREATE INDEX idx_notes_subject ON notes (subject) WHERE subject IS NOT NULL;

CREATE TABLE notification_deliveries (
  notification_id INTEGER NOT NULL,
  channel TEXT NOT NULL,
  attempts INTEGER NOT NULL DEFAULT 0,
  next_at TEXT,
  delivered_at TEXT,
  problem TEXT,
  PRIMARY KEY (notification_id, channel)
);

CREATE INDEX idx_notification_deliveries_next_at ON notification_deliveries (next_at) WHERE next_at IS NOT NULL;

CREATE TABLE notifications (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  event TEXT NOT NULL,
  about TEXT NOT NULL,
  channels TEXT NOT NULL CHECK (json_valid(channels)),
--postgres:  channels JSON NOT NULL,
  created_at TEXT NOT NULL,
  ended_at TEXT,
  outcome TEXT CHECK (outcome IN ('delivered', 'undelivered')),
  problems TEXT CHECK (json_valid(problems)),
--postgres:  problems JSON,
  ns TEXT NOT NULL DEFAULT 'main',
  leaf_id TEXT NOT NULL,
  leaf_ver INTEGER NOT NULL,
  leaf_salt BLOB
);

CREATE UNIQUE INDEX idx_notifications_about ON notifications (about);

CREATE TABLE object_history (
  ns TEXT NOT NULL,
  entry INTEGER NOT NULL,
  cid TEXT NOT NULL,
  data BLOB NOT NULL,
  PRIMARY KEY (ns, entry)
);

CREATE TABLE object_index (
  ns TEXT NOT NULL,
  key TEXT NOT NULL,
  type TEXT NOT NULL,
  parent TEXT,
  cid TEXT NOT NULL,
  PRIMARY KEY (ns, key)
);

CREATE INDEX idx_object_index_parent ON object_index (ns, parent, key);

CREATE VIRTUAL TABLE object_search USING fts5(body, content='object_text', content_rowid='id', tokenize="unicode61 remove_diacritics 0");

CREATE TABLE 'object_search_config'(k PRIMARY KEY, v) WITHOUT ROWID;

CREATE TABLE 'object_search_data'(id INTEGER PRIMARY KEY, block BLOB);

CREATE TABLE 'object_search_docsize'(id INTEGER PRIMARY KEY, sz BLOB);

CREATE TABLE 'object_search_idx'(segid, term, pgno, PRIMARY KEY(segid, term)) WITHOUT ROWID;

CREATE TRIGGER object_text_added AFTER INSERT ON object_text BEGIN
  INSERT INTO object_search (rowid, body) VALUES (new.id, new.body);
END;

CREATE TRIGGER object_text_changed AFTER UPDATE ON object_text BEGIN
  INSERT INTO object_search (object_search, rowid, body) VALUES ('delete', old.id, old.body);
  INSERT INTO object_search (rowid, body) VALUES (new.id, new.body);
END;

CREATE TRIGGER object_text_removed AFTER DELETE ON object_text BEGIN
  INSERT INTO object_search (object_search, rowid, body) VALUES ('delete', old.id, old.body);
END;

CREATE TABLE object_text (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  ns TEXT NOT NULL,
  key TEXT NOT NULL,
  cid TEXT NOT NULL,
  body TEXT NOT NULL,
  UNIQUE (ns, key)
);

CREATE TABLE object_vectors (
  ns TEXT NOT NULL,
  key TEXT NOT NULL,
  cid TEXT NOT NULL,
  dimensions INTEGER NOT NULL,
  vector BLOB NOT NULL,
  PRIMARY KEY (ns, key)
);

CREATE INDEX idx_object_vectors_dimensions ON object_vectors (ns, dimensions, key);

CREATE TABLE object_versions (
  ns TEXT NOT NULL,
  key TEXT NOT NULL,
  n INTEGER NOT NULL,
  cid TEXT,
  version INTEGER NOT NULL,
  at TEXT NOT NULL, pruned_at TEXT,
  PRIMARY KEY (ns, key, n)
);

CREATE INDEX idx_object_versions_pruned ON object_versions (cid) WHERE pruned_at IS NOT NULL;

CREATE TABLE objects (
  h BLOB PRIMARY KEY NOT NULL,
  data BLOB NOT NULL
);

CREATE TABLE passkey_challenges (
  challenge TEXT PRIMARY KEY,
  purpose TEXT NOT NULL CHECK (purpose IN ('register', 'answer', 'login')),
  person TEXT NOT NULL,
  nonce TEXT NOT NULL,
  origin TEXT NOT NULL,
  escalation_id INTEGER,
  statement_hash TEXT,
  expires_at TEXT NOT NULL,
  used_at TEXT,
  ns TEXT NOT NULL DEFAULT 'main'
);

CREATE TABLE passkeys (
  credential_id TEXT PRIMARY KEY,
  person TEXT NOT NULL,
  public_key TEXT NOT NULL,
  rp_id TEXT NOT NULL,
  origin TEXT NOT NULL,
  sign_count INTEGER NOT NULL DEFAULT 0,
  created_at TEXT NOT NULL,
  created_by TEXT NOT NULL,
  revoked_at TEXT,
  revoked_by TEXT,
  ns TEXT NOT NULL DEFAULT 'main',
  leaf_id TEXT NOT NULL,
  leaf_ver INTEGER NOT NULL,
  leaf_salt BLOB
, login_role TEXT, login_token_id TEXT, login_ns TEXT);

CREATE INDEX idx_passkeys_person ON passkeys (ns, person);

CREATE TABLE people (
  name TEXT NOT NULL,
  member_of TEXT NOT NULL CHECK (json_valid(member_of)),
--postgres:  member_of JSON NOT NULL,
  email TEXT,
  created_at TEXT NOT NULL,
  updated_at TEXT NOT NULL,
  updated_by TEXT NOT NULL,
  removed_at TEXT,
  ns TEXT NOT NULL DEFAULT 'main',
  leaf_id TEXT NOT NULL,
  leaf_ver INTEGER NOT NULL,
  leaf_salt BLOB,
  PRIMARY KEY (name, ns)
);

CREATE TABLE policies (
  policy_id TEXT PRIMARY KEY,
  name TEXT NOT NULL,
  version INTEGER NOT NULL CHECK (version >= 1),
  text TEXT NOT NULL,
  hash TEXT NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('DRAFT', 'ACTIVE', 'RETIRED')),
  created_by TEXT NOT NULL,
  created_at TEXT NOT NULL,
  changed_by TEXT NOT NULL,
  changed_at TEXT NOT NULL,
  keyid TEXT NOT NULL,
  statement TEXT NOT NULL,
  ns TEXT NOT NULL DEFAULT 'main',
  leaf_id TEXT NOT NULL,
  leaf_ver INTEGER NOT NULL,
  leaf_salt BLOB,
  UNIQUE (ns, name, version)
);

CREATE TABLE policy_decisions (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  dfid TEXT,
  agent_id TEXT NOT NULL,
  action TEXT NOT NULL,
  resource TEXT NOT NULL,
  n INTEGER NOT NULL,
  decision TEXT NOT NULL CHECK (decision IN ('allow', 'deny', 'ask')),
  policy_hash TEXT NOT NULL,
  inputs_hash TEXT NOT NULL,
  request TEXT NOT NULL,
  reasons TEXT NOT NULL,
  escalation INTEGER,
  decided_at TEXT NOT NULL,
  ns TEXT NOT NULL DEFAULT 'main',
  leaf_id TEXT NOT NULL,
  leaf_ver INTEGER NOT NULL,
  leaf_salt BLOB,
  FOREIGN KEY (dfid, ns) REFERENCES decision_flows (dfid, ns) ON DELETE CASCADE
);

CREATE INDEX idx_policy_decisions_act ON policy_decisions (ns, agent_id, action, resource, inputs_hash);

CREATE INDEX idx_policy_decisions_decided_at ON policy_decisions (ns, decided_at, id);

CREATE INDEX idx_policy_decisions_dfid ON policy_decisions (dfid, ns, action, resource, n);

CREATE TABLE policy_sets (
  ns TEXT PRIMARY KEY,
  revision INTEGER NOT NULL,
  hash TEXT NOT NULL,
  active TEXT NOT NULL,
  changed_by TEXT NOT NULL,
  changed_at TEXT NOT NULL,
  leaf_id TEXT NOT NULL,
  leaf_ver INTEGER NOT NULL,
  leaf_salt BLOB
);

CREATE TABLE prunings (
  id TEXT PRIMARY KEY,
  what TEXT NOT NULL,
  rule TEXT NOT NULL,
  who TEXT NOT NULL,
  count INTEGER NOT NULL,
  handles TEXT NOT NULL,
  pruned_at TEXT NOT NULL,
  ns TEXT NOT NULL,
  leaf_id TEXT NOT NULL,
  leaf_ver INTEGER NOT NULL,
  leaf_salt BLOB
);

CREATE TABLE queue_starts (
  dfid TEXT NOT NULL,
  queue TEXT NOT NULL,
  started_at TEXT NOT NULL,
  ns TEXT NOT NULL DEFAULT 'main',
  PRIMARY KEY (dfid, ns),
  FOREIGN KEY (dfid, ns) REFERENCES decision_flows (dfid, ns) ON DELETE CASCADE
);

CREATE INDEX idx_queue_starts ON queue_starts (ns, queue, started_at);

CREATE TABLE queues (
  name TEXT NOT NULL,
  concurrency INTEGER CHECK (concurrency > 0),
  worker_concurrency INTEGER CHECK (worker_concurrency > 0),
  partition_concurrency INTEGER CHECK (partition_concurrency > 0),
  rate_limit INTEGER CHECK (rate_limit > 0),
  rate_period_s REAL,
  paused INTEGER NOT NULL DEFAULT 0 CHECK (paused IN (0, 1)),
  created_at TEXT NOT NULL,
  updated_at TEXT NOT NULL,
  deleted_at TEXT,
  ns TEXT NOT NULL DEFAULT 'main',
  leaf_id TEXT NOT NULL,
  leaf_ver INTEGER NOT NULL,
  leaf_salt BLOB,
  PRIMARY KEY (name, ns)
);

CREATE TABLE refs (
  name TEXT PRIMARY KEY,
  cid TEXT NOT NULL,
  rev INTEGER NOT NULL,
  ns TEXT NOT NULL,
  updated_at TEXT NOT NULL,
  entries INTEGER NOT NULL DEFAULT 0,
  history TEXT,
  leaf_id TEXT NOT NULL,
  leaf_ver INTEGER NOT NULL,
  leaf_salt BLOB
);

CREATE TABLE resource_locks (
  resource_id TEXT NOT NULL,
  dfid TEXT NOT NULL,
  amount REAL NOT NULL DEFAULT 0 CHECK (amount >= 0),
  acquired_at TEXT NOT NULL,
  expires_at TEXT,
  capacity REAL,
  fence INTEGER NOT NULL,
  ns TEXT NOT NULL DEFAULT 'main',
  FOREIGN KEY (dfid, ns) REFERENCES decision_flows (dfid, ns) ON DELETE CASCADE,
  PRIMARY KEY (ns, resource_id, dfid)
);

CREATE INDEX idx_resource_locks_dfid ON resource_locks (dfid);

CREATE INDEX idx_resource_locks_expires_at ON resource_locks (expires_at);

CREATE TABLE restores (
  n INTEGER PRIMARY KEY,
  origin TEXT NOT NULL,
  previous TEXT NOT NULL,
  size INTEGER NOT NULL,
  trusted TEXT NOT NULL,
  abandoned TEXT NOT NULL,
  source TEXT NOT NULL,
  restored_at TEXT NOT NULL,
  leaf_id TEXT NOT NULL,
  leaf_ver INTEGER NOT NULL,
  leaf_salt BLOB
);

CREATE TABLE retention_archives (
  id TEXT PRIMARY KEY,
  what TEXT NOT NULL,
  month TEXT NOT NULL,
  count INTEGER NOT NULL,
  place TEXT NOT NULL,
  sha256 TEXT NOT NULL,
  positions TEXT NOT NULL,
  who TEXT NOT NULL,
  archived_at TEXT NOT NULL,
  leaf_id TEXT NOT NULL,
  leaf_ver INTEGER NOT NULL,
  leaf_salt BLOB
);

CREATE TABLE retention_rules (
  id TEXT PRIMARY KEY,
  kind TEXT NOT NULL CHECK (kind IN ('floor', 'hold')),
  scope TEXT NOT NULL,
  target TEXT NOT NULL,
  days INTEGER,
  reason TEXT NOT NULL,
  set_at TEXT NOT NULL,
  lifted_at TEXT,
  lift_reason TEXT,
  statement TEXT NOT NULL,
  ns TEXT NOT NULL DEFAULT 'main',
  leaf_id TEXT NOT NULL,
  leaf_ver INTEGER NOT NULL,
  leaf_salt BLOB
);

CREATE INDEX idx_retention_rules_target ON retention_rules (ns, scope, target);

CREATE TABLE saga_dirty_state (
  dfid TEXT NOT NULL,
  failed_step TEXT NOT NULL DEFAULT '',
  partial_state_json TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(partial_state_json)),
--postgres:  partial_state_json JSON NOT NULL DEFAULT '{}',
  created_at TEXT NOT NULL,
  ns TEXT NOT NULL DEFAULT 'main',
  PRIMARY KEY (dfid, ns),
  FOREIGN KEY (dfid, ns) REFERENCES decision_flows (dfid, ns) ON DELETE CASCADE
);

CREATE TABLE schedules (
  schedule_id TEXT PRIMARY KEY,
  name TEXT NOT NULL,
  function TEXT NOT NULL,
  function_version TEXT NOT NULL,
  arguments TEXT NOT NULL CHECK (json_valid(arguments)),
--postgres:  arguments JSON NOT NULL,
  instant_as TEXT,
  agent_id TEXT NOT NULL,
  queue TEXT NOT NULL,
  cron TEXT NOT NULL,
  timezone TEXT NOT NULL,
  catch_up TEXT NOT NULL CHECK (catch_up IN ('none', 'one', 'all')),
  paused INTEGER NOT NULL DEFAULT 0 CHECK (paused IN (0, 1)),
  version INTEGER NOT NULL,
  fired_until TEXT NOT NULL,
  next_at TEXT NOT NULL,
  created_at TEXT NOT NULL,
  updated_at TEXT NOT NULL,
  deleted_at TEXT,
  ns TEXT NOT NULL DEFAULT 'main',
  leaf_id TEXT NOT NULL,
  leaf_ver INTEGER NOT NULL,
  leaf_salt BLOB
);

CREATE UNIQUE INDEX idx_schedules_name ON schedules (ns, name) WHERE deleted_at IS NULL;

CREATE INDEX idx_schedules_next_at ON schedules (ns, next_at) WHERE deleted_at IS NULL AND paused = 0;

CREATE TABLE schema_migrations (name TEXT PRIMARY KEY, sha256 TEXT NOT NULL, applied_at TEXT NOT NULL, leaf_id TEXT, leaf_ver INTEGER, leaf_salt BLOB);

CREATE TABLE sealed_blocks (
  subject TEXT NOT NULL,
  cid TEXT NOT NULL,
  what TEXT NOT NULL,
  PRIMARY KEY (subject, cid)
);

CREATE TABLE skill_approvals (
  id TEXT PRIMARY KEY,
  ns TEXT NOT NULL,
  path TEXT NOT NULL,
  n INTEGER NOT NULL,
  action TEXT NOT NULL CHECK (action IN ('approve', 'revoke')),
  place TEXT NOT NULL,
  rules TEXT NOT NULL,
  root TEXT NOT NULL,
  size INTEGER NOT NULL,
  blocks TEXT NOT NULL,
  approved_by TEXT NOT NULL,
  comment TEXT NOT NULL,
  approved_at TEXT NOT NULL,
  keyid TEXT NOT NULL,
  statement TEXT NOT NULL,
  leaf_id TEXT NOT NULL,
  leaf_ver INTEGER NOT NULL,
  leaf_salt BLOB,
  UNIQUE (ns, path, n)
);

CREATE TABLE skill_lockdowns (
  id TEXT PRIMARY KEY,
  ns TEXT NOT NULL,
  path TEXT NOT NULL,
  against INTEGER NOT NULL,
  reason TEXT NOT NULL,
  changes TEXT NOT NULL,
  root TEXT,
  locked_at TEXT NOT NULL,
  leaf_id TEXT NOT NULL,
  leaf_ver INTEGER NOT NULL,
  leaf_salt BLOB,
  UNIQUE (ns, path, against)
);

CREATE TABLE snapshots (
  id TEXT PRIMARY KEY,
  ns TEXT NOT NULL,
  cid TEXT NOT NULL,
  root TEXT NOT NULL,
  rev TEXT NOT NULL,
  prev TEXT,
  note TEXT NOT NULL,
  created_at TEXT NOT NULL,
  leaf_id TEXT NOT NULL,
  leaf_ver INTEGER NOT NULL,
  leaf_salt BLOB,
  UNIQUE (ns, cid)
);

CREATE INDEX idx_snapshots_rev ON snapshots (ns, rev);

CREATE TABLE store_facts (
  key TEXT PRIMARY KEY,
  value TEXT NOT NULL,
  updated_at TEXT NOT NULL
);

CREATE TABLE store_growth (
  hour TEXT NOT NULL PRIMARY KEY,
  at TEXT NOT NULL,
  entries INTEGER NOT NULL,
  bytes INTEGER NOT NULL
);

CREATE TABLE subjects (
  handle TEXT PRIMARY KEY,
  ns TEXT NOT NULL,
  name_hash TEXT,
  key BLOB,
  created_at TEXT NOT NULL,
  erased_at TEXT,
  leaf_id TEXT,
  leaf_ver INTEGER,
  leaf_salt BLOB,
  UNIQUE (ns, name_hash)
);

CREATE TABLE tenant_heads (
  id TEXT PRIMARY KEY,
  tenant_id TEXT NOT NULL,
  name TEXT NOT NULL,
  origin TEXT NOT NULL,
  size INTEGER NOT NULL,
  head TEXT NOT NULL,
  keys TEXT NOT NULL,
  recorded_at TEXT NOT NULL,
  leaf_id TEXT NOT NULL,
  leaf_ver INTEGER NOT NULL,
  leaf_salt BLOB
);

CREATE INDEX idx_tenant_heads_size ON tenant_heads (tenant_id, origin, size);

CREATE INDEX idx_tenant_heads_tenant ON tenant_heads (tenant_id, id);

CREATE TABLE tenant_limits (
  id TEXT PRIMARY KEY,
  limits TEXT NOT NULL,
  reason TEXT NOT NULL,
  set_at TEXT NOT NULL,
  statement TEXT NOT NULL,
  ns TEXT NOT NULL,
  leaf_id TEXT NOT NULL,
  leaf_ver INTEGER NOT NULL,
  leaf_salt BLOB
);

CREATE INDEX idx_tenant_limits_ns ON tenant_limits (ns, id);

CREATE TABLE tenant_usage (
  ns TEXT PRIMARY KEY,
  minute TEXT NOT NULL,
  entries INTEGER NOT NULL,
  bytes INTEGER NOT NULL
);

CREATE TABLE tenants (
  id TEXT PRIMARY KEY,
  name TEXT NOT NULL,
  status TEXT NOT NULL,
  place TEXT NOT NULL,
  store TEXT,
  finding TEXT,
  reason TEXT,
  created_at TEXT NOT NULL,
  changed_at TEXT NOT NULL,
  leaf_id TEXT NOT NULL,
  leaf_ver INTEGER NOT NULL,
  leaf_salt BLOB
);

CREATE UNIQUE INDEX idx_tenants_name ON tenants (name) WHERE status <> 'deleted';

CREATE TABLE thread_blocks (
  thread INTEGER NOT NULL REFERENCES threads (n),
  h BLOB NOT NULL,
  data BLOB NOT NULL,
  PRIMARY KEY (thread, h)
);

CREATE TABLE thread_checkpoints (
  n INTEGER PRIMARY KEY,
--postgres:  n BIGINT GENERATED BY DEFAULT AS IDENTITY PRIMARY KEY,
  thread INTEGER NOT NULL REFERENCES threads (n),
  checkpoint_ns TEXT NOT NULL,
  checkpoint_id TEXT NOT NULL,
--postgres:  checkpoint_id TEXT COLLATE "C" NOT NULL,
  parent_id TEXT,
  run_id TEXT,
  epoch INTEGER NOT NULL,
  metadata TEXT NOT NULL,
  state BLOB NOT NULL,
  h BLOB NOT NULL,
  created_at TEXT NOT NULL,
  UNIQUE (thread, checkpoint_ns, checkpoint_id)
);

CREATE INDEX idx_thread_checkpoints_run ON thread_checkpoints (run_id) WHERE run_id IS NOT NULL;

CREATE TABLE thread_entries (
  id TEXT PRIMARY KEY,
  thread INTEGER NOT NULL REFERENCES threads (n),
  thread_id TEXT NOT NULL,
  checkpoint_ns TEXT NOT NULL,
  checkpoint_id TEXT NOT NULL,
--postgres:  checkpoint_id TEXT COLLATE "C" NOT NULL,
  h TEXT NOT NULL,
  logged_at TEXT NOT NULL,
  ns TEXT NOT NULL,
  leaf_id TEXT NOT NULL,
  leaf_ver INTEGER NOT NULL,
  leaf_salt BLOB
);

CREATE UNIQUE INDEX idx_thread_entries_checkpoint ON thread_entries (thread, checkpoint_ns, checkpoint_id);

CREATE INDEX idx_thread_entries_leaf ON thread_entries (leaf_id);

CREATE TABLE thread_facts (
  ns TEXT NOT NULL,
  key TEXT NOT NULL,
  value TEXT NOT NULL,
  thread INTEGER NOT NULL REFERENCES threads (n),
  PRIMARY KEY (ns, key, value, thread)
) WITHOUT ROWID;

CREATE INDEX idx_thread_facts_thread ON thread_facts (thread);

CREATE TABLE thread_lines (
  thread INTEGER NOT NULL REFERENCES threads (n),
  checkpoint_ns TEXT NOT NULL,
  epoch INTEGER NOT NULL,
  writer TEXT NOT NULL, writes INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (thread, checkpoint_ns)
) WITHOUT ROWID;

CREATE TABLE thread_writes (
  thread INTEGER NOT NULL REFERENCES threads (n),
  checkpoint_ns TEXT NOT NULL,
  checkpoint_id TEXT NOT NULL,
--postgres:  checkpoint_id TEXT COLLATE "C" NOT NULL,
  task_id TEXT NOT NULL,
  idx INTEGER NOT NULL,
  channel TEXT NOT NULL,
  task_path TEXT NOT NULL,
  value BLOB NOT NULL,
  PRIMARY KEY (thread, checkpoint_ns, checkpoint_id, task_id, idx)
) WITHOUT ROWID;

CREATE TABLE threads (
  n INTEGER PRIMARY KEY AUTOINCREMENT,
  ns TEXT NOT NULL,
  thread_id TEXT NOT NULL,
  status TEXT NOT NULL,
  status_of TEXT NOT NULL DEFAULT '',
  facts TEXT NOT NULL,
  created_at TEXT NOT NULL,
  updated_at TEXT NOT NULL,
  deleted_at TEXT,
  dead_id TEXT NOT NULL DEFAULT '',
  UNIQUE (ns, thread_id)
);

CREATE INDEX idx_threads_status ON threads (ns, status, updated_at, n);

CREATE INDEX idx_threads_updated ON threads (ns, updated_at, n);

CREATE TABLE time_tokens (
  id TEXT PRIMARY KEY,
  origin TEXT NOT NULL,
  size INTEGER NOT NULL,
  head TEXT NOT NULL,
  url TEXT NOT NULL,
  authority TEXT NOT NULL,
  certificate TEXT NOT NULL,
  token TEXT NOT NULL,
  stamped_at TEXT NOT NULL,
  created_at TEXT NOT NULL,
  leaf_id TEXT NOT NULL,
  leaf_ver INTEGER NOT NULL,
  leaf_salt BLOB
);

CREATE INDEX idx_time_tokens_size ON time_tokens (origin, size);

CREATE TABLE transcript_items (
  transcript INTEGER NOT NULL REFERENCES transcripts (n),
  seq INTEGER NOT NULL,
  key TEXT,
  tag TEXT,
  body TEXT NOT NULL,
  PRIMARY KEY (transcript, seq)
);

CREATE UNIQUE INDEX idx_transcript_items_key ON transcript_items (transcript, key) WHERE key IS NOT NULL;

CREATE INDEX idx_transcript_items_tag ON transcript_items (transcript, tag, seq) WHERE tag IS NOT NULL;

CREATE TABLE transcripts (
  n INTEGER PRIMARY KEY AUTOINCREMENT,
  ns TEXT NOT NULL,
  name TEXT NOT NULL,
--postgres:  name TEXT COLLATE "C" NOT NULL,
  rev INTEGER NOT NULL,
  last INTEGER NOT NULL,
  state TEXT NOT NULL,
  created_at TEXT NOT NULL,
  updated_at TEXT NOT NULL, subject TEXT,
  UNIQUE (ns, name)
);

CREATE INDEX idx_transcripts_subject ON transcripts (subject) WHERE subject IS NOT NULL;

CREATE TABLE verifications (
  id TEXT PRIMARY KEY,
  who TEXT NOT NULL,
  level TEXT NOT NULL,
  verdict TEXT NOT NULL,
  found INTEGER NOT NULL,
  findings TEXT NOT NULL,
  log_size INTEGER NOT NULL,
  log_root TEXT NOT NULL,
  verified_at TEXT NOT NULL,
  leaf_id TEXT NOT NULL,
  leaf_ver INTEGER NOT NULL,
  leaf_salt BLOB
);

CREATE INDEX idx_verifications_leaf ON verifications (leaf_id);

CREATE TABLE witness_disputes (
  id TEXT PRIMARY KEY,
  url TEXT NOT NULL,
  verdict TEXT NOT NULL,
  what TEXT NOT NULL,
  origin TEXT NOT NULL,
  size INTEGER NOT NULL,
  disputed_at TEXT NOT NULL,
  leaf_id TEXT NOT NULL,
  leaf_ver INTEGER NOT NULL,
  leaf_salt BLOB
);

CREATE TABLE workers (
  worker_id TEXT PRIMARY KEY,
  name TEXT NOT NULL,
  host TEXT NOT NULL,
  pid INTEGER NOT NULL,
  functions TEXT NOT NULL,
  queues TEXT,
  concurrency INTEGER NOT NULL,
  running INTEGER NOT NULL DEFAULT 0,
  state TEXT NOT NULL CHECK (state IN ('RUNNING', 'STOPPING')),
  started_at TEXT NOT NULL,
  heartbeat_at TEXT NOT NULL,
  ns TEXT NOT NULL DEFAULT 'main'
);

CREATE INDEX idx_workers_ns ON workers (ns, started_at);

