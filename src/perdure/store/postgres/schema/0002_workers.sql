-- What a worker looks for: runs that may go on, by state and agent; and whether somebody asked a worker to drain.

CREATE INDEX runs_ready ON runs (state, agent, created_at, run) WHERE state IN ('queued', 'running', 'waiting')
;
ALTER TABLE workers ADD COLUMN drain_at DOUBLE PRECISION NOT NULL DEFAULT 0.0
