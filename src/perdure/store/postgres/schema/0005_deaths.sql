-- How a worker's process ended, where whoever started it was told, and when.

ALTER TABLE workers ADD COLUMN death TEXT NOT NULL DEFAULT ''
;
ALTER TABLE workers ADD COLUMN died_at DOUBLE PRECISION NOT NULL DEFAULT 0.0
