-- The words of the objects of the tree, for searching: follow from their records.
CREATE TABLE object_text (
  id @serial,
  ns TEXT NOT NULL,
  key TEXT NOT NULL,
  cid TEXT NOT NULL,
  body TEXT NOT NULL,
  UNIQUE (ns, key)
);
--postgres:CREATE INDEX idx_object_text_body ON object_text USING gin (to_tsvector('simple', body));
--sqlite:CREATE VIRTUAL TABLE object_search USING fts5(body, content='object_text', content_rowid='id', tokenize="unicode61 remove_diacritics 0");
--sqlite:CREATE TRIGGER object_text_added AFTER INSERT ON object_text BEGIN
--sqlite:  INSERT INTO object_search (rowid, body) VALUES (new.id, new.body);
--sqlite:END;
--sqlite:CREATE TRIGGER object_text_changed AFTER UPDATE ON object_text BEGIN
--sqlite:  INSERT INTO object_search (object_search, rowid, body) VALUES ('delete', old.id, old.body);
--sqlite:  INSERT INTO object_search (rowid, body) VALUES (new.id, new.body);
--sqlite:END;
--sqlite:CREATE TRIGGER object_text_removed AFTER DELETE ON object_text BEGIN
--sqlite:  INSERT INTO object_search (object_search, rowid, body) VALUES ('delete', old.id, old.body);
--sqlite:END;
