-- What agents decide. Tables and columns of the Decision Intelligence Runtime under its own names, then what ties a row
-- to its namespace and to the log; what the kernel needs beyond them stands in further columns or tables of its own.
-- Ids of agents and flows belong to a namespace: keys and references hold both. The id comes first, so that the key's
-- index also serves queries and walks by id alone.
-- JSON is what was given, byte for byte: PostgreSQL's JSON keeps the exact text, as SQLite's TEXT does.

CREATE TABLE agent_registry (
  agent_id TEXT NOT NULL,
--sqlite:  contract TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(contract)),
--postgres:  contract JSON NOT NULL DEFAULT '{}',
  priority @int NOT NULL DEFAULT 0,
  status TEXT NOT NULL DEFAULT 'ACTIVE'
    CHECK (status IN ('ACTIVE', 'SUSPENDED', 'RETIRED', 'DEGRADED', 'ESCALATION_ONLY')),
  agent_version TEXT,
  session_token TEXT,
  suspension_reason TEXT,
  registered_at @time NOT NULL,
  updated_at @time NOT NULL,
--sqlite:  escalation_budget TEXT CHECK (json_valid(escalation_budget)),
--postgres:  escalation_budget JSON,
  ns TEXT NOT NULL DEFAULT 'main',
  leaf_id TEXT NOT NULL,
  leaf_ver @int NOT NULL,
  leaf_salt @blob,
  PRIMARY KEY (agent_id, ns)
);
CREATE INDEX idx_agent_registry_status ON agent_registry (status);

-- The root of every life cycle. The log covers what never changes; the rest follows from flow_transitions. `subject` is
-- the handle of the person whose it is: what the flow records is sealed under that person's key.
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
  priority @int NOT NULL DEFAULT 0,
  started_at @time,
  completed_at @time,
  created_at @time NOT NULL,
  updated_at @time NOT NULL,
  subject TEXT,
  ns TEXT NOT NULL DEFAULT 'main',
  leaf_id TEXT NOT NULL,
  leaf_ver @int NOT NULL,
  leaf_salt @blob,
  PRIMARY KEY (dfid, ns),
  FOREIGN KEY (dfid_parent, ns) REFERENCES decision_flows (dfid, ns),
  FOREIGN KEY (agent_id, ns) REFERENCES agent_registry (agent_id, ns),
  CHECK ((dfid_parent IS NULL AND root_dfid = dfid) OR (dfid_parent IS NOT NULL AND root_dfid <> ''))
);
CREATE INDEX idx_decision_flows_root_dfid ON decision_flows (root_dfid);
CREATE INDEX idx_decision_flows_dfid_parent ON decision_flows (dfid_parent);
CREATE INDEX idx_decision_flows_agent_id ON decision_flows (agent_id);
CREATE INDEX idx_decision_flows_status ON decision_flows (status);
CREATE INDEX idx_decision_flows_created_at ON decision_flows (created_at);

-- `taken_at`: when a context that is read once was read.
CREATE TABLE flow_context (
  dfid TEXT NOT NULL,
--sqlite:  data TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(data)),
--postgres:  data JSON NOT NULL DEFAULT '{}',
  version @int NOT NULL DEFAULT 1,
  updated_at @time NOT NULL,
  taken_at @time,
  ns TEXT NOT NULL DEFAULT 'main',
  leaf_id TEXT NOT NULL,
  leaf_ver @int NOT NULL,
  leaf_salt @blob,
  PRIMARY KEY (dfid, ns),
  FOREIGN KEY (dfid, ns) REFERENCES decision_flows (dfid, ns) ON DELETE CASCADE
);

CREATE TABLE agent_state (
  agent_id TEXT NOT NULL,
--sqlite:  data TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(data)),
--postgres:  data JSON NOT NULL DEFAULT '{}',
  version @int NOT NULL DEFAULT 1,
  updated_at @time NOT NULL,
  ns TEXT NOT NULL DEFAULT 'main',
  leaf_id TEXT NOT NULL,
  leaf_ver @int NOT NULL,
  leaf_salt @blob,
  PRIMARY KEY (agent_id, ns),
  FOREIGN KEY (agent_id, ns) REFERENCES agent_registry (agent_id, ns) ON DELETE CASCADE
);

CREATE TABLE decision_feedback_trajectory (
  id @serial,
  agent_id TEXT NOT NULL,
  dfid TEXT NOT NULL,
  status TEXT NOT NULL,
  reason TEXT,
  score @real,
  source TEXT NOT NULL DEFAULT 'KERNEL' CHECK (source IN ('Human', 'Monitor', 'KERNEL')),
  created_at @time NOT NULL,
  ns TEXT NOT NULL DEFAULT 'main',
  leaf_id TEXT NOT NULL,
  leaf_ver @int NOT NULL,
  leaf_salt @blob,
  FOREIGN KEY (agent_id, ns) REFERENCES agent_registry (agent_id, ns) ON DELETE CASCADE,
  FOREIGN KEY (dfid, ns) REFERENCES decision_flows (dfid, ns) ON DELETE CASCADE
);
CREATE INDEX idx_decision_feedback_trajectory_agent_id ON decision_feedback_trajectory (agent_id);

-- One row a key, from the claim on, so that one statement decides who executes. `result` counts once `state` is DONE.
CREATE TABLE idempotency_cache (
  idempotency_key TEXT NOT NULL,
  request_hash TEXT NOT NULL,
--sqlite:  result TEXT CHECK (json_valid(result)),
--postgres:  result JSON,
  created_at @time NOT NULL,
  expires_at @time NOT NULL,
  state TEXT NOT NULL DEFAULT 'DONE' CHECK (state IN ('RUNNING', 'DONE', 'FAILED', 'UNKNOWN')),
  owner TEXT NOT NULL DEFAULT '',
  lease_until @time,
  error TEXT,
  ns TEXT NOT NULL DEFAULT 'main',
  PRIMARY KEY (ns, idempotency_key),
  CHECK (state <> 'DONE' OR result IS NOT NULL)
);
CREATE INDEX idx_idempotency_cache_expires_at ON idempotency_cache (expires_at);

CREATE TABLE saga_dirty_state (
  dfid TEXT NOT NULL,
  failed_step TEXT NOT NULL DEFAULT '',
--sqlite:  partial_state_json TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(partial_state_json)),
--postgres:  partial_state_json JSON NOT NULL DEFAULT '{}',
  created_at @time NOT NULL,
  ns TEXT NOT NULL DEFAULT 'main',
  PRIMARY KEY (dfid, ns),
  FOREIGN KEY (dfid, ns) REFERENCES decision_flows (dfid, ns) ON DELETE CASCADE
);

-- Shared up to a capacity, or exclusive: `capacity` NULL. Rows past `expires_at` count as gone.
CREATE TABLE resource_locks (
  resource_id TEXT NOT NULL,
  dfid TEXT NOT NULL,
  amount @real NOT NULL DEFAULT 0 CHECK (amount >= 0),
  acquired_at @time NOT NULL,
  expires_at @time,
  capacity @real,
  fence @int NOT NULL,
  ns TEXT NOT NULL DEFAULT 'main',
  FOREIGN KEY (dfid, ns) REFERENCES decision_flows (dfid, ns) ON DELETE CASCADE,
  PRIMARY KEY (ns, resource_id, dfid)
);
CREATE INDEX idx_resource_locks_dfid ON resource_locks (dfid);
CREATE INDEX idx_resource_locks_expires_at ON resource_locks (expires_at);

-- The newest fencing token of each resource; it outlives every lock.
CREATE TABLE lock_fences (
  ns TEXT NOT NULL,
  resource_id TEXT NOT NULL,
  fence @int NOT NULL,
  PRIMARY KEY (ns, resource_id)
);

CREATE TABLE intent_retry (
  dfid TEXT NOT NULL,
  rejection_count @int NOT NULL DEFAULT 0 CHECK (rejection_count >= 0),
  max_retries @int NOT NULL DEFAULT 3 CHECK (max_retries > 0),
  retry_policy TEXT NOT NULL DEFAULT 'EXPONENTIAL_BACKOFF'
    CHECK (retry_policy IN ('EXPONENTIAL_BACKOFF', 'LINEAR', 'NONE')),
  next_retry_at @time,
  backoff_until @time,
  updated_at @time NOT NULL,
  ns TEXT NOT NULL DEFAULT 'main',
  PRIMARY KEY (dfid, ns),
  FOREIGN KEY (dfid, ns) REFERENCES decision_flows (dfid, ns) ON DELETE CASCADE
);
CREATE INDEX idx_intent_retry_next_retry_at ON intent_retry (next_retry_at);

CREATE TABLE escalation_budget (
  id @serial,
  agent_id TEXT NOT NULL,
  created_at @time NOT NULL,
  ns TEXT NOT NULL DEFAULT 'main',
  FOREIGN KEY (agent_id, ns) REFERENCES agent_registry (agent_id, ns) ON DELETE CASCADE
);
CREATE INDEX idx_escalation_budget_agent_id ON escalation_budget (agent_id);
CREATE INDEX idx_escalation_budget_created_at ON escalation_budget (created_at);

-- `answer_json` is the proposal the resolver put in the place of the one shown, or the result of a step that happened;
-- `opened_by` is the agent or the kernel. `kind` says which answers there are: to an approval, or about a step in doubt.
CREATE TABLE escalation_requests (
  id @serial,
  dfid TEXT NOT NULL,
  root_dfid TEXT NOT NULL,
  agent_id TEXT NOT NULL,
  reason TEXT NOT NULL DEFAULT '',
--sqlite:  context_json TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(context_json)),
--sqlite:  proposal_json TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(proposal_json)),
--postgres:  context_json JSON NOT NULL DEFAULT '{}',
--postgres:  proposal_json JSON NOT NULL DEFAULT '{}',
  impact TEXT NOT NULL DEFAULT '',
  status TEXT NOT NULL DEFAULT 'PENDING' CHECK (status IN ('PENDING', 'APPROVED', 'REJECTED', 'CANCELLED')),
  human_decision TEXT,
  created_at @time NOT NULL,
  resolved_at @time,
  deadline @time,
  on_deadline TEXT NOT NULL DEFAULT 'reject' CHECK (on_deadline IN ('reject', 'approve', 'cancel')),
  opened_by TEXT NOT NULL DEFAULT 'agent' CHECK (opened_by IN ('agent', 'kernel')),
  resolved_by TEXT,
  comment TEXT,
--sqlite:  answer_json TEXT CHECK (json_valid(answer_json)),
--postgres:  answer_json JSON,
  kind TEXT NOT NULL DEFAULT 'approval' CHECK (kind IN ('approval', 'in_doubt')),
  ns TEXT NOT NULL DEFAULT 'main',
  leaf_id TEXT NOT NULL,
  leaf_ver @int NOT NULL,
  leaf_salt @blob,
  FOREIGN KEY (dfid, ns) REFERENCES decision_flows (dfid, ns) ON DELETE CASCADE,
  FOREIGN KEY (agent_id, ns) REFERENCES agent_registry (agent_id, ns)
);
CREATE INDEX idx_escalation_requests_dfid ON escalation_requests (dfid);
CREATE INDEX idx_escalation_requests_root_dfid ON escalation_requests (root_dfid);
CREATE INDEX idx_escalation_requests_agent_id ON escalation_requests (agent_id);
CREATE INDEX idx_escalation_requests_status ON escalation_requests (status);
-- Counted at every scrape and every `status`: few expire, and the table only grows.
CREATE INDEX idx_escalation_requests_expired ON escalation_requests (resolved_at) WHERE resolved_by = 'deadline';

-- `result`: with the transition that ends a flow, what its function returned, or how it failed.
CREATE TABLE flow_transitions (
  id @serial,
  dfid TEXT NOT NULL,
  root_dfid TEXT NOT NULL,
  from_status TEXT,
  to_status TEXT NOT NULL,
  correlation_id TEXT,
  causation_id TEXT,
  created_at @time NOT NULL,
  reason TEXT,
--sqlite:  result TEXT CHECK (json_valid(result)),
--postgres:  result JSON,
  ns TEXT NOT NULL DEFAULT 'main',
  leaf_id TEXT NOT NULL,
  leaf_ver @int NOT NULL,
  leaf_salt @blob,
  FOREIGN KEY (dfid, ns) REFERENCES decision_flows (dfid, ns) ON DELETE CASCADE
);
CREATE INDEX idx_flow_transitions_dfid ON flow_transitions (dfid);
CREATE INDEX idx_flow_transitions_root_dfid ON flow_transitions (root_dfid);
CREATE INDEX idx_flow_transitions_created_at ON flow_transitions (created_at);

CREATE TABLE decision_ledger_entries (
  id @serial,
  dfid TEXT NOT NULL,
  root_dfid TEXT NOT NULL,
  agent_id TEXT NOT NULL,
--sqlite:  intent_payload TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(intent_payload)),
--postgres:  intent_payload JSON NOT NULL DEFAULT '{}',
  context_ref TEXT NOT NULL,
  evidence_hash TEXT NOT NULL,
  signature TEXT NOT NULL DEFAULT '',
  committed_at @time NOT NULL,
  ns TEXT NOT NULL DEFAULT 'main',
  leaf_id TEXT NOT NULL,
  leaf_ver @int NOT NULL,
  leaf_salt @blob,
  FOREIGN KEY (dfid, ns) REFERENCES decision_flows (dfid, ns) ON DELETE CASCADE,
  FOREIGN KEY (agent_id, ns) REFERENCES agent_registry (agent_id, ns)
);
CREATE UNIQUE INDEX idx_decision_ledger_entries_dfid ON decision_ledger_entries (dfid, ns);
CREATE INDEX idx_decision_ledger_entries_agent_id ON decision_ledger_entries (agent_id);
CREATE INDEX idx_decision_ledger_entries_committed_at ON decision_ledger_entries (committed_at);

CREATE TABLE decision_audit_events (
  id @serial,
  dfid TEXT NOT NULL,
  root_dfid TEXT NOT NULL,
  event_type TEXT NOT NULL,
  severity TEXT NOT NULL DEFAULT 'INFO' CHECK (severity IN ('DEBUG', 'INFO', 'WARNING', 'ERROR', 'CRITICAL')),
  correlation_id TEXT,
  causation_id TEXT,
  step_id TEXT NOT NULL DEFAULT '',
  state TEXT NOT NULL DEFAULT '',
--sqlite:  detail_json TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(detail_json)),
--postgres:  detail_json JSON NOT NULL DEFAULT '{}',
  created_at @time NOT NULL,
  ns TEXT NOT NULL DEFAULT 'main',
  leaf_id TEXT NOT NULL,
  leaf_ver @int NOT NULL,
  leaf_salt @blob,
  FOREIGN KEY (dfid, ns) REFERENCES decision_flows (dfid, ns) ON DELETE CASCADE
);
CREATE INDEX idx_decision_audit_events_dfid ON decision_audit_events (dfid);
CREATE INDEX idx_decision_audit_events_root_dfid ON decision_audit_events (root_dfid);
CREATE INDEX idx_decision_audit_events_event_type ON decision_audit_events (event_type);
CREATE INDEX idx_decision_audit_events_created_at ON decision_audit_events (created_at);
CREATE INDEX idx_decision_audit_events_severity ON decision_audit_events (severity);
