-- Schedules: when an agent is to run by itself, and up to where that was seen to. Debounces: starts that become one run.

CREATE TABLE schedules (
    name      TEXT PRIMARY KEY,
    agent     TEXT NOT NULL,
    cron      TEXT NOT NULL,
    timezone  TEXT NOT NULL,
    catch_up  TEXT NOT NULL,
    arguments TEXT NOT NULL,
    next_at   REAL NOT NULL,
    last_at   REAL NOT NULL,
    last_run  TEXT NOT NULL,
    off_at    REAL NOT NULL,
    digest    BLOB NOT NULL
) STRICT, WITHOUT ROWID
;
CREATE TABLE debounces (
    agent     TEXT NOT NULL,
    key       TEXT NOT NULL,
    run_id    TEXT NOT NULL,
    first_at  REAL NOT NULL,
    newest_at REAL NOT NULL,
    starts    TEXT NOT NULL,
    digest    BLOB NOT NULL,
    PRIMARY KEY (agent, key)
) STRICT, WITHOUT ROWID
;
CREATE INDEX debounces_by_time ON debounces (newest_at)
