-- How large the store was, an hour at a time: a chart of months, and of the time before the server was started.
CREATE TABLE store_growth (
  hour TEXT NOT NULL PRIMARY KEY,
  at @time NOT NULL,
  entries @int NOT NULL,
  bytes @int NOT NULL
);
