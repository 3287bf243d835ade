-- Which flows were forked from a flow: it is not removed while they share its record.
CREATE INDEX idx_flow_calls_forked_from ON flow_calls (ns, forked_from) WHERE forked_from IS NOT NULL;

-- What flows are found by, as a JSON object of texts, under the entry of the flow.
ALTER TABLE decision_flows ADD COLUMN attributes TEXT;

-- The same, one row for each, for searching; `verify` compares the two.
CREATE TABLE flow_attributes (
  dfid TEXT NOT NULL,
  ns TEXT NOT NULL DEFAULT 'main',
  key TEXT NOT NULL,
  value TEXT NOT NULL,
  PRIMARY KEY (dfid, ns, key),
  FOREIGN KEY (dfid, ns) REFERENCES decision_flows (dfid, ns) ON DELETE CASCADE
);
CREATE INDEX idx_flow_attributes_value ON flow_attributes (ns, key, value);
