-- Equal bytes are found by one look; over the index of places it was a walk along every object there.
DROP INDEX blob_objects_sha256;
CREATE INDEX blob_objects_equal ON blob_objects (sha256, place, address);
