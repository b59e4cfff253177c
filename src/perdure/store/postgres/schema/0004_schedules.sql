-- Schedules: when an agent is to run by itself, and up to where that was seen to. Debounces: starts that become one run.

CREATE TABLE schedules (
    name      TEXT             PRIMARY KEY,
    agent     TEXT             NOT NULL,
    cron      TEXT             NOT NULL,
    timezone  TEXT             NOT NULL,
    catch_up  TEXT             NOT NULL,
    arguments TEXT             NOT NULL,
    next_at   DOUBLE PRECISION NOT NULL,
    last_at   DOUBLE PRECISION NOT NULL,
    last_run  TEXT             NOT NULL,
    off_at    DOUBLE PRECISION NOT NULL,
    digest    BYTEA            NOT NULL
)
;
CREATE TABLE debounces (
    agent     TEXT             NOT NULL,
    key       TEXT             NOT NULL,
    run_id    TEXT             NOT NULL,
    first_at  DOUBLE PRECISION NOT NULL,
    newest_at DOUBLE PRECISION NOT NULL,
    starts    TEXT             NOT NULL,
    digest    BYTEA            NOT NULL,
    PRIMARY KEY (agent, key)
)
;
CREATE INDEX debounces_by_time ON debounces (newest_at)
