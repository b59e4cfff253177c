-- The version of the code that a worker executes: it takes runs that are pinned to this version, and any other.

ALTER TABLE workers ADD COLUMN version TEXT NOT NULL DEFAULT ''
