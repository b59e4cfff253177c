-- What a run has spent, where its steps say so, and a quick way to the newest runs.
-- No index may depend on a run's state: SQLite would write it anew with every step.

ALTER TABLE runs ADD COLUMN tokens INTEGER NOT NULL DEFAULT 0
;
ALTER TABLE runs ADD COLUMN dollars REAL NOT NULL DEFAULT 0.0
;
CREATE INDEX runs_by_time ON runs (created_at, run)
