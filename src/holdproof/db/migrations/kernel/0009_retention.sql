-- What retention removed, one row a batch: the rule, and by table the handles of the records that went.
CREATE TABLE prunings (
  id TEXT PRIMARY KEY,
  what TEXT NOT NULL,
  rule TEXT NOT NULL,
  who TEXT NOT NULL,
  count @int NOT NULL,
  handles TEXT NOT NULL,
  pruned_at @time NOT NULL,
  ns TEXT NOT NULL,
  leaf_id TEXT NOT NULL,
  leaf_ver @int NOT NULL,
  leaf_salt @blob
);
