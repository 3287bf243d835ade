-- Whose conversation a transcript is: a handle in `subjects`. Erasing that person removes the transcript.
ALTER TABLE transcripts ADD COLUMN subject TEXT;
CREATE INDEX idx_transcripts_subject ON transcripts (subject) WHERE subject IS NOT NULL;
