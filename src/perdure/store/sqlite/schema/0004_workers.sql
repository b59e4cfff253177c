-- What a worker looks for: runs that may go on, by state and agent; and whether somebody asked a worker to drain.
-- The statement that extends a journal by a step leaves every column of this index alone, or each step would write it.

CREATE INDEX runs_ready ON runs (state, agent, created_at, run, holder) WHERE state IN ('queued', 'running', 'waiting')
;
ALTER TABLE workers ADD COLUMN drain_at REAL NOT NULL DEFAULT 0.0
