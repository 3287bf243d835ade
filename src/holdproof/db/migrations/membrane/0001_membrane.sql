-- What services keep: instances, shapes and dreams, sessions, proposals, the state of agents.

CREATE TABLE instances (
  id TEXT PRIMARY KEY,
  hostname TEXT NOT NULL,
  pid @int NOT NULL,
  project_path TEXT,
  project_hash TEXT,
  started_at TEXT NOT NULL,
  last_heartbeat TEXT NOT NULL,
  status TEXT NOT NULL DEFAULT 'active'
);
CREATE INDEX instances_status ON instances (status, last_heartbeat);
CREATE INDEX instances_project ON instances (project_hash);

CREATE TABLE shapes (
  id TEXT PRIMARY KEY,
  shape_type TEXT NOT NULL,
  intensity @real DEFAULT 1.0,
  persistence @real DEFAULT 1.0,
  interpretation TEXT,
  project_hash TEXT,
  instance_id TEXT,
  observed_at TEXT NOT NULL,
  embedding_status TEXT DEFAULT 'none'
);
CREATE INDEX shapes_project ON shapes (project_hash, observed_at);
CREATE INDEX shapes_observed ON shapes (observed_at);

CREATE TABLE dreams (
  id TEXT PRIMARY KEY,
  content TEXT NOT NULL,
  source_shapes TEXT NOT NULL,
  confidence @real DEFAULT 1.0,
  dreamed_at TEXT NOT NULL
);
CREATE INDEX dreams_dreamed ON dreams (dreamed_at);

CREATE TABLE embedding_metadata (
  source_id TEXT PRIMARY KEY,
  model_name TEXT NOT NULL,
  dimensions @int NOT NULL,
  created_at TEXT NOT NULL,
  needs_reembed @int DEFAULT 0,
  content TEXT
);

CREATE TABLE schema_version (
  version @int PRIMARY KEY,
  applied_at TEXT NOT NULL
);

CREATE TABLE agent_state (
  agent_id TEXT PRIMARY KEY,
  genus TEXT,
  state TEXT,
  updated_at TEXT
);

CREATE TABLE prompt_checkpoints (
  id TEXT PRIMARY KEY,
  timestamp TEXT,
  before_content TEXT,
  after_content TEXT,
  before_sections TEXT,
  after_sections TEXT,
  diff TEXT,
  reason TEXT,
  reasoning_traces TEXT,
  parent_id TEXT
);
CREATE INDEX prompt_checkpoints_time ON prompt_checkpoints (timestamp);
CREATE INDEX prompt_checkpoints_parent ON prompt_checkpoints (parent_id);

CREATE TABLE cli_sessions (
  id TEXT PRIMARY KEY,
  name TEXT NOT NULL,
  session_type TEXT DEFAULT 'interactive',
  state TEXT DEFAULT 'active',
  started_at TEXT NOT NULL,
  ended_at TEXT,
  project_path TEXT,
  project_hash TEXT,
  flow_name TEXT,
  flow_path TEXT,
  budget_level TEXT DEFAULT 'medium',
  tokens_used @int DEFAULT 0,
  metadata TEXT DEFAULT '{}'
);
CREATE INDEX cli_sessions_state ON cli_sessions (state, started_at);
CREATE INDEX cli_sessions_project ON cli_sessions (project_hash, started_at);
CREATE INDEX cli_sessions_started ON cli_sessions (started_at);

CREATE TABLE cli_session_events (
  id TEXT PRIMARY KEY,
  session_id TEXT NOT NULL REFERENCES cli_sessions (id) ON DELETE CASCADE,
  timestamp TEXT,
  event_type TEXT,
  source TEXT,
  message TEXT,
  data TEXT DEFAULT '{}'
);
CREATE INDEX cli_session_events_session ON cli_session_events (session_id, timestamp);

CREATE TABLE cli_session_agents (
  id TEXT PRIMARY KEY,
  session_id TEXT NOT NULL REFERENCES cli_sessions (id) ON DELETE CASCADE,
  name TEXT,
  genus TEXT,
  status TEXT DEFAULT 'pending',
  started_at TEXT,
  completed_at TEXT,
  error TEXT,
  metadata TEXT DEFAULT '{}'
);
CREATE INDEX cli_session_agents_session ON cli_session_agents (session_id);

CREATE TABLE cli_session_artifacts (
  id TEXT PRIMARY KEY,
  session_id TEXT NOT NULL REFERENCES cli_sessions (id) ON DELETE CASCADE,
  name TEXT,
  path TEXT,
  artifact_type TEXT,
  created_at TEXT,
  updated_at TEXT,
  size_bytes @int DEFAULT 0,
  content_preview TEXT,
  metadata TEXT DEFAULT '{}'
);
CREATE INDEX cli_session_artifacts_session ON cli_session_artifacts (session_id);

CREATE TABLE self_grow_proposals (
  id TEXT PRIMARY KEY,
  data TEXT,
  content_hash TEXT,
  context TEXT,
  entity TEXT,
  proposed_by TEXT,
  proposed_at TEXT,
  status TEXT DEFAULT 'draft',
  created_at TEXT,
  updated_at TEXT
);
CREATE INDEX self_grow_proposals_status ON self_grow_proposals (status, created_at);

CREATE TABLE self_grow_nursery (
  id TEXT PRIMARY KEY,
  proposal_id TEXT REFERENCES self_grow_proposals (id),
  data TEXT,
  handle TEXT,
  usage_count @int DEFAULT 0,
  success_count @int DEFAULT 0,
  failure_patterns TEXT,
  germinated_by TEXT,
  germinated_at TEXT,
  promoted_at TEXT,
  pruned_at TEXT,
  rollback_token TEXT,
  created_at TEXT,
  updated_at TEXT
);
CREATE INDEX self_grow_nursery_proposal ON self_grow_nursery (proposal_id);
CREATE INDEX self_grow_nursery_handle ON self_grow_nursery (handle);

CREATE TABLE self_grow_rollback_tokens (
  id TEXT PRIMARY KEY,
  handle TEXT,
  promoted_at TEXT,
  expires_at TEXT,
  spec_path TEXT,
  impl_path TEXT,
  spec_content TEXT,
  impl_content TEXT,
  created_at TEXT
);
CREATE INDEX self_grow_rollback_tokens_handle ON self_grow_rollback_tokens (handle);
CREATE INDEX self_grow_rollback_tokens_expires ON self_grow_rollback_tokens (expires_at);
