-- The limits of a queue, NULL for none; a queue without a row has no limits. A deleted queue keeps its row, so that its
-- entries in the log have one.
CREATE TABLE queues (
  name TEXT NOT NULL,
  concurrency @int CHECK (concurrency > 0),
  worker_concurrency @int CHECK (worker_concurrency > 0),
  partition_concurrency @int CHECK (partition_concurrency > 0),
  rate_limit @int CHECK (rate_limit > 0),
  rate_period_s @real,
  paused @int NOT NULL DEFAULT 0 CHECK (paused IN (0, 1)),
  created_at @time NOT NULL,
  updated_at @time NOT NULL,
  deleted_at @time,
  ns TEXT NOT NULL DEFAULT 'main',
  leaf_id TEXT NOT NULL,
  leaf_ver @int NOT NULL,
  leaf_salt @blob,
  PRIMARY KEY (name, ns)
);

-- When flows of a queue with a rate limit were started, as long as its period looks back.
CREATE TABLE queue_starts (
  dfid TEXT NOT NULL,
  queue TEXT NOT NULL,
  started_at @time NOT NULL,
  ns TEXT NOT NULL DEFAULT 'main',
  PRIMARY KEY (dfid, ns),
  FOREIGN KEY (dfid, ns) REFERENCES decision_flows (dfid, ns) ON DELETE CASCADE
);
CREATE INDEX idx_queue_starts ON queue_starts (ns, queue, started_at);

-- Processes that run flows, as each says of itself; one that was killed is told by its last heartbeat.
CREATE TABLE workers (
  worker_id TEXT PRIMARY KEY,
  name TEXT NOT NULL,
  host TEXT NOT NULL,
  pid @int NOT NULL,
  functions TEXT NOT NULL,
  queues TEXT,
  concurrency @int NOT NULL,
  running @int NOT NULL DEFAULT 0,
  state TEXT NOT NULL CHECK (state IN ('RUNNING', 'STOPPING')),
  started_at @time NOT NULL,
  heartbeat_at @time NOT NULL,
  ns TEXT NOT NULL DEFAULT 'main'
);
CREATE INDEX idx_workers_ns ON workers (ns, started_at);

-- Who works on what: only leased flows are in it, however many sleep.
CREATE INDEX idx_flow_leases_worker ON flow_leases (ns, queue, worker) WHERE worker <> '';
-- The next moment at which something is due, whatever its queue.
CREATE INDEX idx_flow_leases_due ON flow_leases (ns, expires_at);
