-- Which flows were forked from a flow: it is not removed while they share its record.
CREATE INDEX idx_flow_calls_forked_from ON flow_calls (ns, forked_from) WHERE forked_from IS NOT NULL;
