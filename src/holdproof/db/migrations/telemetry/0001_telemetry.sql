-- What happened. The newest events are rows; as they grow they are sealed into compressed chunks of a thousand.

CREATE TABLE telemetry_events (
  id @serial,
  at @int NOT NULL,
  line TEXT NOT NULL
);

CREATE TABLE telemetry_chunks (
  id @serial,
  first_at @int NOT NULL,
  last_at @int NOT NULL,
  events @int NOT NULL,
  codec TEXT NOT NULL,
  data @blob NOT NULL
);
CREATE INDEX telemetry_chunks_last ON telemetry_chunks (last_at, id);
CREATE INDEX telemetry_chunks_codec ON telemetry_chunks (codec, last_at);

-- Which chunks hold events of a span, trace, type or instance; keys are hashes, so a chunk found may hold none.
CREATE TABLE telemetry_finds (
  key @int NOT NULL,
  chunk @int NOT NULL REFERENCES telemetry_chunks (id) ON DELETE CASCADE,
  PRIMARY KEY (key, chunk)
--sqlite:) WITHOUT ROWID;
--postgres:);
CREATE INDEX telemetry_finds_chunk ON telemetry_finds (chunk);
