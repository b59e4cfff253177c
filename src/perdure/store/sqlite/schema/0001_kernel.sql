-- Runs and their journals, the mailbox, the workers, and what was noticed to be lost.
-- One statement per block; blocks are separated by a line holding only a semicolon.

CREATE TABLE meta (
    one        INTEGER PRIMARY KEY CHECK (one = 1),
    generation INTEGER NOT NULL,
    base       INTEGER NOT NULL
) STRICT
;
INSERT INTO meta (one, generation, base) VALUES (1, 1, 0)
;
CREATE TABLE runs (
    run        INTEGER PRIMARY KEY,
    run_id     TEXT    NOT NULL UNIQUE,
    name       TEXT    NOT NULL,
    agent      TEXT    NOT NULL,
    arguments  BLOB    NOT NULL,
    durability TEXT    NOT NULL,
    created_at REAL    NOT NULL,
    updated_at REAL    NOT NULL,
    state      TEXT    NOT NULL,
    reason     TEXT    NOT NULL,
    detail     TEXT    NOT NULL,
    epoch      INTEGER NOT NULL,
    holder     TEXT    NOT NULL,
    deliveries INTEGER NOT NULL,
    steps      INTEGER NOT NULL,
    suspects   INTEGER NOT NULL,
    length     INTEGER NOT NULL,
    head       BLOB    NOT NULL,
    digest     BLOB    NOT NULL
) STRICT
;
CREATE INDEX runs_by_call ON runs (agent, arguments, created_at)
;
CREATE INDEX runs_by_name ON runs (name)
;
CREATE TABLE records (
    id        INTEGER PRIMARY KEY,
    run       INTEGER NOT NULL,
    seq       INTEGER NOT NULL,
    kind      TEXT    NOT NULL,
    key       TEXT    NOT NULL,
    name      TEXT    NOT NULL,
    arguments BLOB    NOT NULL,
    at        REAL    NOT NULL,
    epoch     INTEGER NOT NULL,
    body      TEXT    NOT NULL,
    digest    BLOB    NOT NULL
) STRICT
;
CREATE UNIQUE INDEX records_by_run ON records (run, seq)
;
CREATE TABLE blobs (
    digest BLOB NOT NULL UNIQUE,
    stored BLOB NOT NULL
) STRICT
;
CREATE TABLE mailbox (
    mail   INTEGER PRIMARY KEY,
    run_id TEXT    NOT NULL,
    kind   TEXT    NOT NULL,
    key    TEXT    NOT NULL,
    body   TEXT    NOT NULL,
    sender TEXT    NOT NULL,
    at     REAL    NOT NULL,
    taken  INTEGER NOT NULL,
    digest BLOB    NOT NULL
) STRICT
;
CREATE INDEX mailbox_by_run ON mailbox (run_id, mail)
;
CREATE TABLE workers (
    worker_id  TEXT    PRIMARY KEY,
    pid        INTEGER NOT NULL,
    host       TEXT    NOT NULL,
    boot_id    TEXT    NOT NULL,
    lock_inode INTEGER NOT NULL,
    beat_at    REAL    NOT NULL,
    beat_boot  REAL    NOT NULL
) STRICT, WITHOUT ROWID
;
CREATE TABLE losses (
    generation INTEGER PRIMARY KEY,
    at         REAL    NOT NULL,
    expected   INTEGER NOT NULL,
    found      INTEGER NOT NULL,
    digest     BLOB    NOT NULL
) STRICT
;
CREATE TABLE set_aside (
    id        INTEGER PRIMARY KEY,
    run       INTEGER NOT NULL,
    seq       INTEGER NOT NULL,
    kind      TEXT,
    key       TEXT,
    name      TEXT,
    arguments BLOB,
    at        REAL,
    epoch     INTEGER,
    body      TEXT,
    digest    BLOB
)
