-- What imports of other programs' data found: one row for each row of the source, with every value that its own row here
-- does not hold as it was. `row_key` is the key of that row, empty where there is none.
CREATE TABLE imported_rows (
  id @serial,
  source_key TEXT NOT NULL,
  importer TEXT NOT NULL,
  source TEXT NOT NULL,
  source_table TEXT NOT NULL,
  source_id TEXT NOT NULL,
  row_key TEXT NOT NULL,
  verdict TEXT NOT NULL CHECK (verdict IN ('TAKEN', 'ADAPTED', 'KEPT')),
  note TEXT NOT NULL,
--sqlite:  beside TEXT NOT NULL CHECK (json_valid(beside)),
--postgres:  beside JSON NOT NULL,
  imported_at @time NOT NULL,
  ns TEXT NOT NULL DEFAULT 'main',
  leaf_id TEXT NOT NULL,
  leaf_ver @int NOT NULL,
  leaf_salt @blob
);
CREATE UNIQUE INDEX imported_rows_source_key ON imported_rows (source_key);
