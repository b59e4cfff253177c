-- Runs that wait: when to look at them again, up to which mail they had heard, and what they are tagged with.

ALTER TABLE runs ADD COLUMN wake_at REAL NOT NULL DEFAULT 0.0
;
ALTER TABLE runs ADD COLUMN heard INTEGER NOT NULL DEFAULT 0
;
ALTER TABLE runs ADD COLUMN tags TEXT NOT NULL DEFAULT ''
;
CREATE INDEX runs_by_wake ON runs (wake_at) WHERE state = 'waiting' AND wake_at > 0
;
CREATE INDEX mailbox_untaken ON mailbox (run_id, mail) WHERE taken = 0
