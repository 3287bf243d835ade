-- What the certificate of an erasure says, as canonical JSON: what went, what was derived, what is left and why.
ALTER TABLE erasures ADD COLUMN certificate TEXT;
