-- Durable work inside a flow: the n-th step of that name, the `position`-th of all that the code reached. A row that says
-- STARTED and has no living worker is in doubt; RETRYING failed and is tried again at `retry_at`.
CREATE TABLE flow_steps (
  step_id TEXT PRIMARY KEY,
  dfid TEXT NOT NULL,
  name TEXT NOT NULL,
  n @int NOT NULL,
  position @int NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('STARTED', 'RETRYING', 'DONE', 'FAILED', 'UNKNOWN')),
  compensates TEXT,
--sqlite:  arguments TEXT CHECK (json_valid(arguments)),
--postgres:  arguments JSON,
  arguments_hash TEXT,
--sqlite:  result TEXT CHECK (json_valid(result)),
--postgres:  result JSON,
  error TEXT,
  undo @int NOT NULL DEFAULT 0 CHECK (undo IN (0, 1)),
  attempts @int NOT NULL DEFAULT 1,
  retry_at @time,
  worker TEXT NOT NULL DEFAULT '',
  started_at @time NOT NULL,
  finished_at @time,
  ns TEXT NOT NULL DEFAULT 'main',
  leaf_id TEXT NOT NULL,
  leaf_ver @int NOT NULL,
  leaf_salt @blob,
  FOREIGN KEY (dfid, ns) REFERENCES decision_flows (dfid, ns) ON DELETE CASCADE,
  UNIQUE (dfid, ns, name, n),
  CHECK (state <> 'DONE' OR result IS NOT NULL)
);

-- Tasks: which worker works on a flow, '' for nobody, and when the flow is due. With a worker `expires_at` is the end of
-- its lease; without one the moment from which any worker may go on: now, a wake-up, a deadline, or never.
-- `token` grows with every worker, so that an older one can be told.
CREATE TABLE flow_leases (
  dfid TEXT NOT NULL,
  worker TEXT NOT NULL,
  token @int NOT NULL,
  heartbeat_at @time NOT NULL,
  expires_at @time NOT NULL,
  queue TEXT NOT NULL DEFAULT '',
  partition_key TEXT,
  priority @int NOT NULL DEFAULT 0,
  ns TEXT NOT NULL DEFAULT 'main',
  PRIMARY KEY (dfid, ns),
  FOREIGN KEY (dfid, ns) REFERENCES decision_flows (dfid, ns) ON DELETE CASCADE
);
CREATE INDEX idx_flow_leases_expires_at ON flow_leases (expires_at);
CREATE INDEX idx_flow_leases_queue ON flow_leases (ns, queue, priority, expires_at);

-- The registered function that a flow runs, with what it was called with, so that any worker can run it again.
-- `agent_id` is the agent that asked for it at a server: it is run again only for that one.
CREATE TABLE flow_calls (
  dfid TEXT NOT NULL,
  name TEXT NOT NULL,
  version TEXT NOT NULL,
--sqlite:  arguments TEXT NOT NULL CHECK (json_valid(arguments)),
--postgres:  arguments JSON NOT NULL,
  arguments_hash TEXT NOT NULL,
  agent_id TEXT,
  queue TEXT,
  partition_key TEXT,
  not_before @time,
  deduplicate TEXT,
  forked_from TEXT,
  forked_at @int,
  effects TEXT,
--sqlite:  answers TEXT CHECK (json_valid(answers)),
--postgres:  answers JSON,
  ns TEXT NOT NULL DEFAULT 'main',
  leaf_id TEXT NOT NULL,
  leaf_ver @int NOT NULL,
  leaf_salt @blob,
  PRIMARY KEY (dfid, ns),
  FOREIGN KEY (dfid, ns) REFERENCES decision_flows (dfid, ns) ON DELETE CASCADE
);
CREATE INDEX idx_flow_calls_name ON flow_calls (ns, name, version);
CREATE INDEX idx_flow_calls_deduplicate ON flow_calls (ns, queue, deduplicate) WHERE deduplicate IS NOT NULL;
