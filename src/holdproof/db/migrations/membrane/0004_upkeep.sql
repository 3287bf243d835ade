-- Duties that any instance may do and one is enough for: who began each last, and how that ended.

CREATE TABLE upkeep (
  duty TEXT PRIMARY KEY,
  begun_at @time NOT NULL,
  begun_by TEXT NOT NULL,
  ended_at @time,
  error TEXT
);
