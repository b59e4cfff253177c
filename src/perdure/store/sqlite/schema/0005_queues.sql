-- Queues: where a run stands among others, how many of a queue may be running, and how fast they may begin.
-- A step changes no column of these indexes, nor one of their conditions: it would write them.

ALTER TABLE runs ADD COLUMN queue TEXT NOT NULL DEFAULT 'default'
;
ALTER TABLE runs ADD COLUMN priority INTEGER NOT NULL DEFAULT 0
;
ALTER TABLE runs ADD COLUMN tenant TEXT NOT NULL DEFAULT ''
;
ALTER TABLE runs ADD COLUMN turn INTEGER NOT NULL DEFAULT 0
;
ALTER TABLE runs ADD COLUMN version TEXT NOT NULL DEFAULT ''
;
CREATE TABLE queues (
    name        TEXT    PRIMARY KEY,
    concurrency INTEGER NOT NULL DEFAULT 0,
    per_worker  INTEGER NOT NULL DEFAULT 0,
    rate        REAL    NOT NULL DEFAULT 0.0,
    burst       INTEGER NOT NULL DEFAULT 0,
    bucket      TEXT    NOT NULL DEFAULT ''
) STRICT, WITHOUT ROWID
;
INSERT INTO queues (name) VALUES ('default')
;
CREATE TABLE buckets (
    name    TEXT    PRIMARY KEY,
    full_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID
;
DROP INDEX runs_ready
;
CREATE INDEX runs_queued ON runs (queue, agent, version, priority DESC, turn, created_at, run)
WHERE state = 'queued' AND wake_at = 0
;
CREATE INDEX runs_by_tenant ON runs (queue, agent, version, priority, tenant, turn)
WHERE state = 'queued' AND wake_at = 0
;
CREATE INDEX runs_delayed ON runs (wake_at) WHERE state = 'queued' AND wake_at > 0
;
CREATE INDEX runs_held ON runs (queue, holder, agent, version, created_at, run) WHERE state = 'running'
;
CREATE INDEX runs_due ON runs (queue, agent, version, wake_at, run) WHERE state = 'waiting' AND wake_at > 0
;
ALTER TABLE mailbox ADD COLUMN unheard INTEGER NOT NULL DEFAULT 1
;
CREATE INDEX mailbox_unheard ON mailbox (mail, run_id) WHERE unheard = 1
