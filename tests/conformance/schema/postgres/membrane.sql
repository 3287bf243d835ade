CREATE TABLE agent_state (
  agent_id text NOT NULL,
  genus text,
  state text,
  updated_at text,
  CONSTRAINT agent_state_pkey PRIMARY KEY (agent_id)
);

CREATE TABLE blob_facts (
  one integer NOT NULL,
  mark text NOT NULL,
  CONSTRAINT blob_facts_one_check CHECK ((one = 1)),
  CONSTRAINT blob_facts_pkey PRIMARY KEY (one)
);

CREATE TABLE blob_objects (
  place text NOT NULL,
  address text NOT NULL,
  sha256 text NOT NULL,
  born text NOT NULL,
  stamp text NOT NULL,
  put_at timestamp with time zone NOT NULL,
  doomed_at timestamp with time zone,
  CONSTRAINT blob_objects_pkey PRIMARY KEY (place, address)
);

CREATE TABLE blobs (
  key text NOT NULL,
  size bigint NOT NULL,
  sha256 text NOT NULL,
  content_type text,
  place text NOT NULL,
  address text,
  put_at timestamp with time zone NOT NULL,
  data bytea,
  subject text,
  CONSTRAINT blobs_pkey PRIMARY KEY (key),
  CONSTRAINT blobs_place_address_fkey FOREIGN KEY (place, address) REFERENCES blob_objects(place, address),
  CONSTRAINT blobs_subject_fkey FOREIGN KEY (subject) REFERENCES service_subjects(handle)
);

CREATE TABLE cli_session_agents (
  id text NOT NULL,
  session_id text NOT NULL,
  name text,
  genus text,
  status text DEFAULT 'pending'::text,
  started_at text,
  completed_at text,
  error text,
  metadata text DEFAULT '{}'::text,
  CONSTRAINT cli_session_agents_pkey PRIMARY KEY (id),
  CONSTRAINT cli_session_agents_session_id_fkey FOREIGN KEY (session_id) REFERENCES cli_sessions(id) ON DELETE CASCADE
);

CREATE TABLE cli_session_artifacts (
  id text NOT NULL,
  session_id text NOT NULL,
  name text,
  path text,
  artifact_type text,
  created_at text,
  updated_at text,
  size_bytes bigint DEFAULT 0,
  content_preview text,
  metadata text DEFAULT '{}'::text,
  CONSTRAINT cli_session_artifacts_pkey PRIMARY KEY (id),
  CONSTRAINT cli_session_artifacts_session_id_fkey FOREIGN KEY (session_id) REFERENCES cli_sessions(id) ON DELETE CASCADE
);

CREATE TABLE cli_session_events (
  id text NOT NULL,
  session_id text NOT NULL,
  timestamp text,
  event_type text,
  source text,
  message text,
  data text DEFAULT '{}'::text,
  CONSTRAINT cli_session_events_pkey PRIMARY KEY (id),
  CONSTRAINT cli_session_events_session_id_fkey FOREIGN KEY (session_id) REFERENCES cli_sessions(id) ON DELETE CASCADE
);

CREATE TABLE cli_sessions (
  id text NOT NULL,
  name text NOT NULL,
  session_type text DEFAULT 'interactive'::text,
  state text DEFAULT 'active'::text,
  started_at text NOT NULL,
  ended_at text,
  project_path text,
  project_hash text,
  flow_name text,
  flow_path text,
  budget_level text DEFAULT 'medium'::text,
  tokens_used bigint DEFAULT 0,
  metadata text DEFAULT '{}'::text,
  subject text,
  CONSTRAINT cli_sessions_pkey PRIMARY KEY (id),
  CONSTRAINT cli_sessions_subject_fkey FOREIGN KEY (subject) REFERENCES service_subjects(handle)
);

CREATE TABLE commit_marks (
  worker text NOT NULL,
  mark text NOT NULL,
  at timestamp with time zone NOT NULL,
  CONSTRAINT commit_marks_pkey PRIMARY KEY (worker)
);

CREATE TABLE dreams (
  id text NOT NULL,
  content text NOT NULL,
  source_shapes text NOT NULL,
  confidence double precision DEFAULT 1.0,
  dreamed_at text NOT NULL,
  CONSTRAINT dreams_pkey PRIMARY KEY (id)
);

CREATE TABLE embedding_metadata (
  source_id text NOT NULL,
  model_name text NOT NULL,
  dimensions bigint NOT NULL,
  created_at text NOT NULL,
  needs_reembed bigint DEFAULT 0,
  content text,
  CONSTRAINT embedding_metadata_pkey PRIMARY KEY (source_id)
);

CREATE TABLE instances (
  id text NOT NULL,
  hostname text NOT NULL,
  pid bigint NOT NULL,
  project_path text,
  project_hash text,
  started_at text NOT NULL,
  last_heartbeat text NOT NULL,
  status text NOT NULL DEFAULT 'active'::text,
  CONSTRAINT instances_pkey PRIMARY KEY (id)
);

CREATE TABLE legacy_moves (
  source text NOT NULL,
  fingerprint text NOT NULL,
  kind text NOT NULL,
  found text NOT NULL,
  written_at timestamp with time zone NOT NULL,
  verified_at timestamp with time zone,
  moved_at timestamp with time zone,
  CONSTRAINT legacy_moves_pkey PRIMARY KEY (source, fingerprint)
);

CREATE TABLE membrane_login (
  one integer NOT NULL,
  name text NOT NULL,
  password text NOT NULL,
  CONSTRAINT membrane_login_pkey PRIMARY KEY (one)
);

CREATE TABLE prompt_checkpoints (
  id text NOT NULL,
  timestamp text,
  before_content text,
  after_content text,
  before_sections text,
  after_sections text,
  diff text,
  reason text,
  reasoning_traces text,
  parent_id text,
  CONSTRAINT prompt_checkpoints_pkey PRIMARY KEY (id)
);

CREATE TABLE schema_migrations (
  name text NOT NULL,
  sha256 text NOT NULL,
  applied_at timestamp with time zone NOT NULL,
  leaf_id text,
  leaf_ver bigint,
  leaf_salt bytea,
  CONSTRAINT schema_migrations_pkey PRIMARY KEY (name)
);

CREATE TABLE schema_version (
  version bigint NOT NULL,
  applied_at text NOT NULL,
  CONSTRAINT schema_version_pkey PRIMARY KEY (version)
);

CREATE TABLE self_grow_nursery (
  id text NOT NULL,
  proposal_id text,
  data text,
  handle text,
  usage_count bigint DEFAULT 0,
  success_count bigint DEFAULT 0,
  failure_patterns text,
  germinated_by text,
  germinated_at text,
  promoted_at text,
  pruned_at text,
  rollback_token text,
  created_at text,
  updated_at text,
  CONSTRAINT self_grow_nursery_pkey PRIMARY KEY (id),
  CONSTRAINT self_grow_nursery_proposal_id_fkey FOREIGN KEY (proposal_id) REFERENCES self_grow_proposals(id)
);

CREATE TABLE self_grow_proposals (
  id text NOT NULL,
  data text,
  content_hash text,
  context text,
  entity text,
  proposed_by text,
  proposed_at text,
  status text DEFAULT 'draft'::text,
  created_at text,
  updated_at text,
  CONSTRAINT self_grow_proposals_pkey PRIMARY KEY (id)
);

CREATE TABLE self_grow_rollback_tokens (
  id text NOT NULL,
  handle text,
  promoted_at text,
  expires_at text,
  spec_path text,
  impl_path text,
  spec_content text,
  impl_content text,
  created_at text,
  CONSTRAINT self_grow_rollback_tokens_pkey PRIMARY KEY (id)
);

CREATE TABLE service_subjects (
  handle text NOT NULL,
  name_hash text NOT NULL,
  created_at timestamp with time zone NOT NULL,
  CONSTRAINT service_subjects_name_hash_key UNIQUE (name_hash),
  CONSTRAINT service_subjects_pkey PRIMARY KEY (handle)
);

CREATE TABLE shapes (
  id text NOT NULL,
  shape_type text NOT NULL,
  intensity double precision DEFAULT 1.0,
  persistence double precision DEFAULT 1.0,
  interpretation text,
  project_hash text,
  instance_id text,
  observed_at text NOT NULL,
  embedding_status text DEFAULT 'none'::text,
  CONSTRAINT shapes_pkey PRIMARY KEY (id)
);

CREATE TABLE subject_facts (
  one integer NOT NULL,
  secret text NOT NULL,
  CONSTRAINT subject_facts_one_check CHECK ((one = 1)),
  CONSTRAINT subject_facts_pkey PRIMARY KEY (one)
);

CREATE TABLE upkeep (
  duty text NOT NULL,
  begun_at timestamp with time zone NOT NULL,
  begun_by text NOT NULL,
  ended_at timestamp with time zone,
  error text,
  CONSTRAINT upkeep_pkey PRIMARY KEY (duty)
);

CREATE TABLE vector_facts (
  one bigint NOT NULL,
  key text NOT NULL,
  dimensions bigint NOT NULL,
  model text,
  swept bigint NOT NULL DEFAULT 0,
  created_at timestamp with time zone NOT NULL,
  CONSTRAINT vector_facts_dimensions_check CHECK ((dimensions > 0)),
  CONSTRAINT vector_facts_one_check CHECK ((one = 1)),
  CONSTRAINT vector_facts_pkey PRIMARY KEY (one)
);

CREATE TABLE vector_moves (
  id text NOT NULL,
  model text NOT NULL,
  stamp bigint NOT NULL,
  vector bytea NOT NULL,
  CONSTRAINT vector_moves_pkey PRIMARY KEY (id)
);

CREATE TABLE vectors (
  change bigint NOT NULL,
  id text NOT NULL,
  stamp bigint NOT NULL,
  vector bytea,
  metadata text,
  CONSTRAINT vectors_check CHECK (((stamp = 0) = (vector IS NULL))),
  CONSTRAINT vectors_pkey PRIMARY KEY (id)
);

CREATE UNIQUE INDEX agent_state_pkey ON membrane.agent_state USING btree (agent_id);
CREATE UNIQUE INDEX blob_facts_pkey ON membrane.blob_facts USING btree (one);
CREATE INDEX blob_objects_doomed ON membrane.blob_objects USING btree (doomed_at) WHERE (doomed_at IS NOT NULL);
CREATE INDEX blob_objects_equal ON membrane.blob_objects USING btree (sha256, place, address);
CREATE UNIQUE INDEX blob_objects_pkey ON membrane.blob_objects USING btree (place, address);
CREATE INDEX blobs_object ON membrane.blobs USING btree (place, address) WHERE (address IS NOT NULL);
CREATE UNIQUE INDEX blobs_pkey ON membrane.blobs USING btree (key);
CREATE INDEX blobs_subject ON membrane.blobs USING btree (subject) WHERE (subject IS NOT NULL);
CREATE UNIQUE INDEX cli_session_agents_pkey ON membrane.cli_session_agents USING btree (id);
CREATE INDEX cli_session_agents_session ON membrane.cli_session_agents USING btree (session_id);
CREATE UNIQUE INDEX cli_session_artifacts_pkey ON membrane.cli_session_artifacts USING btree (id);
CREATE INDEX cli_session_artifacts_session ON membrane.cli_session_artifacts USING btree (session_id);
CREATE UNIQUE INDEX cli_session_events_pkey ON membrane.cli_session_events USING btree (id);
CREATE INDEX cli_session_events_session ON membrane.cli_session_events USING btree (session_id, "timestamp");
CREATE UNIQUE INDEX cli_sessions_pkey ON membrane.cli_sessions USING btree (id);
CREATE INDEX cli_sessions_project ON membrane.cli_sessions USING btree (project_hash, started_at);
CREATE INDEX cli_sessions_started ON membrane.cli_sessions USING btree (started_at);
CREATE INDEX cli_sessions_state ON membrane.cli_sessions USING btree (state, started_at);
CREATE INDEX cli_sessions_subject ON membrane.cli_sessions USING btree (subject) WHERE (subject IS NOT NULL);
CREATE UNIQUE INDEX commit_marks_pkey ON membrane.commit_marks USING btree (worker);
CREATE INDEX dreams_dreamed ON membrane.dreams USING btree (dreamed_at);
CREATE UNIQUE INDEX dreams_pkey ON membrane.dreams USING btree (id);
CREATE UNIQUE INDEX embedding_metadata_pkey ON membrane.embedding_metadata USING btree (source_id);
CREATE UNIQUE INDEX instances_pkey ON membrane.instances USING btree (id);
CREATE INDEX instances_project ON membrane.instances USING btree (project_hash);
CREATE INDEX instances_status ON membrane.instances USING btree (status, last_heartbeat);
CREATE UNIQUE INDEX legacy_moves_pkey ON membrane.legacy_moves USING btree (source, fingerprint);
CREATE UNIQUE INDEX membrane_login_pkey ON membrane.membrane_login USING btree (one);
CREATE INDEX prompt_checkpoints_parent ON membrane.prompt_checkpoints USING btree (parent_id);
CREATE UNIQUE INDEX prompt_checkpoints_pkey ON membrane.prompt_checkpoints USING btree (id);
CREATE INDEX prompt_checkpoints_time ON membrane.prompt_checkpoints USING btree ("timestamp");
CREATE UNIQUE INDEX schema_migrations_pkey ON membrane.schema_migrations USING btree (name);
CREATE UNIQUE INDEX schema_version_pkey ON membrane.schema_version USING btree (version);
CREATE INDEX self_grow_nursery_handle ON membrane.self_grow_nursery USING btree (handle);
CREATE UNIQUE INDEX self_grow_nursery_pkey ON membrane.self_grow_nursery USING btree (id);
CREATE INDEX self_grow_nursery_proposal ON membrane.self_grow_nursery USING btree (proposal_id);
CREATE UNIQUE INDEX self_grow_proposals_pkey ON membrane.self_grow_proposals USING btree (id);
CREATE INDEX self_grow_proposals_status ON membrane.self_grow_proposals USING btree (status, created_at);
CREATE INDEX self_grow_rollback_tokens_expires ON membrane.self_grow_rollback_tokens USING btree (expires_at);
CREATE INDEX self_grow_rollback_tokens_handle ON membrane.self_grow_rollback_tokens USING btree (handle);
CREATE UNIQUE INDEX self_grow_rollback_tokens_pkey ON membrane.self_grow_rollback_tokens USING btree (id);
CREATE UNIQUE INDEX service_subjects_name_hash_key ON membrane.service_subjects USING btree (name_hash);
CREATE UNIQUE INDEX service_subjects_pkey ON membrane.service_subjects USING btree (handle);
CREATE INDEX shapes_observed ON membrane.shapes USING btree (observed_at);
CREATE UNIQUE INDEX shapes_pkey ON membrane.shapes USING btree (id);
CREATE INDEX shapes_project ON membrane.shapes USING btree (project_hash, observed_at);
CREATE UNIQUE INDEX subject_facts_pkey ON membrane.subject_facts USING btree (one);
CREATE UNIQUE INDEX upkeep_pkey ON membrane.upkeep USING btree (duty);
CREATE UNIQUE INDEX vector_facts_pkey ON membrane.vector_facts USING btree (one);
CREATE UNIQUE INDEX vector_moves_pkey ON membrane.vector_moves USING btree (id);
CREATE INDEX vectors_change ON membrane.vectors USING btree (change, id) INCLUDE (stamp);
CREATE INDEX vectors_gone ON membrane.vectors USING btree (change) WHERE (stamp = 0);
CREATE UNIQUE INDEX vectors_pkey ON membrane.vectors USING btree (id);
