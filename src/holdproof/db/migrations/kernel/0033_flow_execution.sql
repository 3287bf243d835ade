-- What people ask of a flow that does not move: what it waits for, as its worker last said, and whose place its worker
-- took when it found the lease expired.
ALTER TABLE flow_leases ADD COLUMN waits_for TEXT;
ALTER TABLE flow_leases ADD COLUMN previous_worker TEXT;
ALTER TABLE flow_leases ADD COLUMN previous_heartbeat_at @time;

-- Flows are listed and counted by when they were opened, within a namespace; a count by status needs no row.
CREATE INDEX idx_decision_flows_listed ON decision_flows (ns, created_at, status);
