-- How much of each kind happened in an hour, by agent: counted as it passes, so that an overview of months reads few rows.
-- Up to which moment it is counted stands in `store_facts`.
CREATE TABLE activity_hours (
  ns TEXT NOT NULL,
  hour TEXT NOT NULL,
  agent_id TEXT NOT NULL,
  started @int NOT NULL DEFAULT 0,
  completed @int NOT NULL DEFAULT 0,
  failed @int NOT NULL DEFAULT 0,
  cancelled @int NOT NULL DEFAULT 0,
  escalations @int NOT NULL DEFAULT 0,
  answers @int NOT NULL DEFAULT 0,
  expired @int NOT NULL DEFAULT 0,
  PRIMARY KEY (ns, hour, agent_id)
);
CREATE INDEX idx_escalation_requests_created_at ON escalation_requests (created_at);
CREATE INDEX idx_escalation_requests_resolved_at ON escalation_requests (resolved_at) WHERE resolved_at IS NOT NULL;
