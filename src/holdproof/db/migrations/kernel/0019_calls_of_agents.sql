-- The agent that asked for a registered function at a server: it is run again only for that one.
ALTER TABLE flow_calls ADD COLUMN agent_id TEXT;
