-- Cedar policies, each version once; `statement` is the signed statement about it. What is active stands in
-- `policy_sets`, too, so that no edited state can switch a policy off.
CREATE TABLE policies (
  policy_id TEXT PRIMARY KEY,
  name TEXT NOT NULL,
  version @int NOT NULL CHECK (version >= 1),
  text TEXT NOT NULL,
  hash TEXT NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('DRAFT', 'ACTIVE', 'RETIRED')),
  created_by TEXT NOT NULL,
  created_at @time NOT NULL,
  changed_by TEXT NOT NULL,
  changed_at @time NOT NULL,
  keyid TEXT NOT NULL,
  statement TEXT NOT NULL,
  ns TEXT NOT NULL DEFAULT 'main',
  leaf_id TEXT NOT NULL,
  leaf_ver @int NOT NULL,
  leaf_salt @blob,
  UNIQUE (ns, name, version)
);

-- The active policies of a namespace, one row for each that ever had a policy: `active` is a JSON list of
-- [name, version, hash], `hash` that of the list, `revision` counts its changes.
CREATE TABLE policy_sets (
  ns TEXT PRIMARY KEY,
  revision @int NOT NULL,
  hash TEXT NOT NULL,
  active TEXT NOT NULL,
  changed_by TEXT NOT NULL,
  changed_at @time NOT NULL,
  leaf_id TEXT NOT NULL,
  leaf_ver @int NOT NULL,
  leaf_salt @blob
);

-- What policies decided, and on what; `request` is sealed where the flow is a person's. A refused start has no flow.
CREATE TABLE policy_decisions (
  id @serial,
  dfid TEXT,
  agent_id TEXT NOT NULL,
  action TEXT NOT NULL,
  resource TEXT NOT NULL,
  n @int NOT NULL,
  decision TEXT NOT NULL CHECK (decision IN ('allow', 'deny', 'ask')),
  policy_hash TEXT NOT NULL,
  inputs_hash TEXT NOT NULL,
  request TEXT NOT NULL,
  reasons TEXT NOT NULL,
  escalation @int,
  decided_at @time NOT NULL,
  ns TEXT NOT NULL DEFAULT 'main',
  leaf_id TEXT NOT NULL,
  leaf_ver @int NOT NULL,
  leaf_salt @blob,
  FOREIGN KEY (dfid, ns) REFERENCES decision_flows (dfid, ns) ON DELETE CASCADE
);
CREATE INDEX idx_policy_decisions_dfid ON policy_decisions (dfid, ns, action, resource, n);
CREATE INDEX idx_policy_decisions_decided_at ON policy_decisions (ns, decided_at, id);
CREATE INDEX idx_policy_decisions_act ON policy_decisions (ns, agent_id, action, resource, inputs_hash);
