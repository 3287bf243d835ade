-- When registered functions are run by the clock. `fired_until` is the last instant that was decided on, `next_at` the
-- next one; each firing is another version of the row. A deleted schedule stays as a row, since its entries do; its name
-- is free again.
CREATE TABLE schedules (
  schedule_id TEXT PRIMARY KEY,
  name TEXT NOT NULL,
  function TEXT NOT NULL,
  function_version TEXT NOT NULL,
--sqlite:  arguments TEXT NOT NULL CHECK (json_valid(arguments)),
--postgres:  arguments JSON NOT NULL,
  instant_as TEXT,
  agent_id TEXT NOT NULL,
  queue TEXT NOT NULL,
  cron TEXT NOT NULL,
  timezone TEXT NOT NULL,
  catch_up TEXT NOT NULL CHECK (catch_up IN ('none', 'one', 'all')),
  paused @int NOT NULL DEFAULT 0 CHECK (paused IN (0, 1)),
  version @int NOT NULL,
  fired_until @time NOT NULL,
  next_at @time NOT NULL,
  created_at @time NOT NULL,
  updated_at @time NOT NULL,
  deleted_at @time,
  ns TEXT NOT NULL DEFAULT 'main',
  leaf_id TEXT NOT NULL,
  leaf_ver @int NOT NULL,
  leaf_salt @blob
);
CREATE UNIQUE INDEX idx_schedules_name ON schedules (ns, name) WHERE deleted_at IS NULL;
CREATE INDEX idx_schedules_next_at ON schedules (ns, next_at) WHERE deleted_at IS NULL AND paused = 0;
