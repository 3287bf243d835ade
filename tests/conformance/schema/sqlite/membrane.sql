CREATE TABLE agent_state (
  agent_id TEXT PRIMARY KEY,
  genus TEXT,
  state TEXT,
  updated_at TEXT
);

CREATE TABLE blob_facts (
  one INTEGER PRIMARY KEY CHECK (one = 1),
  mark TEXT NOT NULL
);

CREATE TABLE blob_objects (
  place TEXT NOT NULL,
  address TEXT NOT NULL,
  sha256 TEXT NOT NULL,
  born TEXT NOT NULL,
  stamp TEXT NOT NULL,
  put_at TEXT NOT NULL,
  doomed_at TEXT,
  PRIMARY KEY (place, address)
);

CREATE INDEX blob_objects_doomed ON blob_objects (doomed_at) WHERE doomed_at IS NOT NULL;

CREATE INDEX blob_objects_equal ON blob_objects (sha256, place, address);

CREATE TABLE blobs (
  key TEXT PRIMARY KEY,
--postgres:  key TEXT COLLATE "C" PRIMARY KEY,
  size INTEGER NOT NULL,
  sha256 TEXT NOT NULL,
  content_type TEXT,
  place TEXT NOT NULL,
  address TEXT,
  put_at TEXT NOT NULL,
  data BLOB, subject TEXT REFERENCES service_subjects (handle),
  FOREIGN KEY (place, address) REFERENCES blob_objects (place, address)
);

CREATE INDEX blobs_object ON blobs (place, address) WHERE address IS NOT NULL;

CREATE INDEX blobs_subject ON blobs (subject) WHERE subject IS NOT NULL;

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
  size_bytes INTEGER DEFAULT 0,
  content_preview TEXT,
  metadata TEXT DEFAULT '{}'
);

CREATE INDEX cli_session_artifacts_session ON cli_session_artifacts (session_id);

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
  tokens_used INTEGER DEFAULT 0,
  metadata TEXT DEFAULT '{}'
, subject TEXT REFERENCES service_subjects (handle));

CREATE INDEX cli_sessions_project ON cli_sessions (project_hash, started_at);

CREATE INDEX cli_sessions_started ON cli_sessions (started_at);

CREATE INDEX cli_sessions_state ON cli_sessions (state, started_at);

CREATE INDEX cli_sessions_subject ON cli_sessions (subject) WHERE subject IS NOT NULL;

CREATE TABLE dreams (
  id TEXT PRIMARY KEY,
  content TEXT NOT NULL,
  source_shapes TEXT NOT NULL,
  confidence REAL DEFAULT 1.0,
  dreamed_at TEXT NOT NULL
);

CREATE INDEX dreams_dreamed ON dreams (dreamed_at);

CREATE TABLE embedding_metadata (
  source_id TEXT PRIMARY KEY,
  model_name TEXT NOT NULL,
  dimensions INTEGER NOT NULL,
  created_at TEXT NOT NULL,
  needs_reembed INTEGER DEFAULT 0,
  content TEXT
);

CREATE TABLE instances (
  id TEXT PRIMARY KEY,
  hostname TEXT NOT NULL,
  pid INTEGER NOT NULL,
  project_path TEXT,
  project_hash TEXT,
  started_at TEXT NOT NULL,
  last_heartbeat TEXT NOT NULL,
  status TEXT NOT NULL DEFAULT 'active'
);

CREATE INDEX instances_project ON instances (project_hash);

CREATE INDEX instances_status ON instances (status, last_heartbeat);

CREATE TABLE legacy_moves (
  source TEXT NOT NULL,
  fingerprint TEXT NOT NULL,
  kind TEXT NOT NULL,
  found TEXT NOT NULL,
  written_at TEXT NOT NULL,
  verified_at TEXT,
  moved_at TEXT,
  PRIMARY KEY (source, fingerprint)
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

CREATE INDEX prompt_checkpoints_parent ON prompt_checkpoints (parent_id);

CREATE INDEX prompt_checkpoints_time ON prompt_checkpoints (timestamp);

CREATE TABLE schema_migrations (name TEXT PRIMARY KEY, sha256 TEXT NOT NULL, applied_at TEXT NOT NULL, leaf_id TEXT, leaf_ver INTEGER, leaf_salt BLOB);

CREATE TABLE schema_version (
  version INTEGER PRIMARY KEY,
  applied_at TEXT NOT NULL
);

CREATE TABLE self_grow_nursery (
  id TEXT PRIMARY KEY,
  proposal_id TEXT REFERENCES self_grow_proposals (id),
  data TEXT,
  handle TEXT,
  usage_count INTEGER DEFAULT 0,
  success_count INTEGER DEFAULT 0,
  failure_patterns TEXT,
  germinated_by TEXT,
  germinated_at TEXT,
  promoted_at TEXT,
  pruned_at TEXT,
  rollback_token TEXT,
  created_at TEXT,
  updated_at TEXT
);

CREATE INDEX self_grow_nursery_handle ON self_grow_nursery (handle);

CREATE INDEX self_grow_nursery_proposal ON self_grow_nursery (proposal_id);

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

CREATE INDEX self_grow_rollback_tokens_expires ON self_grow_rollback_tokens (expires_at);

CREATE INDEX self_grow_rollback_tokens_handle ON self_grow_rollback_tokens (handle);

CREATE TABLE service_subjects (
  handle TEXT PRIMARY KEY,
  name_hash TEXT NOT NULL UNIQUE,
  created_at TEXT NOT NULL
);

CREATE TABLE shapes (
  id TEXT PRIMARY KEY,
  shape_type TEXT NOT NULL,
  intensity REAL DEFAULT 1.0,
  persistence REAL DEFAULT 1.0,
  interpretation TEXT,
  project_hash TEXT,
  instance_id TEXT,
  observed_at TEXT NOT NULL,
  embedding_status TEXT DEFAULT 'none'
);

CREATE INDEX shapes_observed ON shapes (observed_at);

CREATE INDEX shapes_project ON shapes (project_hash, observed_at);

CREATE TABLE subject_facts (
  one INTEGER PRIMARY KEY CHECK (one = 1),
  secret TEXT NOT NULL
);

CREATE TABLE upkeep (
  duty TEXT PRIMARY KEY,
  begun_at TEXT NOT NULL,
  begun_by TEXT NOT NULL,
  ended_at TEXT,
  error TEXT
);

CREATE TABLE vector_facts (
  one INTEGER PRIMARY KEY CHECK (one = 1),
  key TEXT NOT NULL,
  dimensions INTEGER NOT NULL CHECK (dimensions > 0),
  model TEXT,
  swept INTEGER NOT NULL DEFAULT 0,
  created_at TEXT NOT NULL
);

CREATE TABLE vector_moves (
  id TEXT PRIMARY KEY,
--postgres:  id TEXT COLLATE "C" PRIMARY KEY,
  model TEXT NOT NULL,
  stamp INTEGER NOT NULL,
  vector BLOB NOT NULL
);

CREATE TABLE vectors (
  change INTEGER PRIMARY KEY,
  id TEXT NOT NULL UNIQUE,
--postgres:  change BIGINT NOT NULL,
--postgres:  id TEXT COLLATE "C" PRIMARY KEY,
  stamp INTEGER NOT NULL,
  vector BLOB,
  metadata TEXT,
  CHECK ((stamp = 0) = (vector IS NULL))
);

CREATE INDEX vectors_change ON vectors (change, stamp);

CREATE INDEX vectors_gone ON vectors (change) WHERE stamp = 0;

