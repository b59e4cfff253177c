-- Every statement perdure sends to SQLite, one per name, in the order of the port's verbs.

-- name: begin
BEGIN IMMEDIATE

-- name: commit
COMMIT

-- name: begin_reading
BEGIN

-- name: read_counter
SELECT base + (SELECT coalesce(max(id), 0) FROM records) FROM meta

-- name: read_base
SELECT base FROM meta

-- name: read_generation
SELECT generation FROM meta

-- name: raise_base
UPDATE meta SET base = base + ?

-- name: raise_generation
UPDATE meta SET generation = generation + 1, base = base + ? RETURNING generation

-- name: insert_worker
INSERT INTO workers (worker_id, pid, host, boot_id, lock_inode, beat_at, beat_boot, drain_at, death, died_at, version)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (worker_id) DO NOTHING

-- name: delete_worker
DELETE FROM workers WHERE worker_id = ?

-- name: forget_deaths
DELETE FROM workers
WHERE died_at > 0 AND worker_id NOT IN (SELECT worker_id FROM workers ORDER BY died_at DESC LIMIT ?)
      AND worker_id NOT IN (SELECT holder FROM runs WHERE state = 'running')
RETURNING worker_id

-- name: list_workers
SELECT worker_id, pid, host, boot_id, lock_inode, beat_at, beat_boot, drain_at, death, died_at, version FROM workers

-- name: insert_run
INSERT INTO runs (run_id, name, agent, arguments, durability, created_at, updated_at, state, reason, detail, epoch, holder,
                  deliveries, steps, suspects, length, wake_at, heard, tags, tokens, dollars, queue, priority, tenant,
                  turn, version, head, digest)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: update_run
UPDATE runs SET updated_at = ?, state = ?, reason = ?, detail = ?, epoch = ?, holder = ?, deliveries = ?, steps = ?,
                suspects = ?, length = ?, wake_at = ?, heard = ?, tokens = ?, dollars = ?, version = ?, head = ?, digest = ?
WHERE run = ? AND run_id = ? AND epoch = ? AND length = ?

-- name: extend_run
UPDATE runs SET updated_at = ?, deliveries = ?, steps = ?, suspects = ?, length = ?, tokens = ?, dollars = ?, head = ?,
                digest = ?
WHERE run = ? AND run_id = ? AND epoch = ? AND length = ? AND state = 'running'

-- name: insert_record
INSERT INTO records (run, seq, kind, key, name, arguments, at, epoch, body, digest) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: insert_blob
INSERT INTO blobs (digest, stored) VALUES (?, ?)
ON CONFLICT (digest) DO UPDATE SET stored = excluded.stored WHERE stored <> excluded.stored

-- name: read_untaken
SELECT mail, run_id, kind, key, body, sender, at, taken, digest FROM mailbox WHERE mail = ? AND run_id = ? AND taken = 0

-- name: take_mail
UPDATE mailbox SET taken = ?, digest = ?, unheard = 0 WHERE mail = ?

-- name: read_epoch
SELECT epoch FROM runs WHERE run_id = ?

-- name: beat
UPDATE workers SET beat_at = ?, beat_boot = ? WHERE worker_id = ?

-- name: read_worker
SELECT worker_id, pid, host, boot_id, lock_inode, beat_at, beat_boot, drain_at, death, died_at, version
FROM workers WHERE worker_id = ?

-- name: read_run
SELECT run, run_id, name, agent, arguments, durability, created_at, updated_at, state, reason, detail, epoch, holder,
       deliveries, steps, suspects, length, wake_at, heard, tags, tokens, dollars, queue, priority, tenant, turn,
       version, head, digest
FROM runs WHERE run_id = ?

-- name: read_state
SELECT state, detail <> '' FROM runs WHERE run_id = ?

-- name: find_run
SELECT run FROM runs WHERE run_id = ?

-- name: read_run_at
SELECT run, run_id, name, agent, arguments, durability, created_at, updated_at, state, reason, detail, epoch, holder,
       deliveries, steps, suspects, length, wake_at, heard, tags, tokens, dollars, queue, priority, tenant, turn,
       version, head, digest
FROM runs WHERE run = ?

-- name: read_name_at
SELECT name FROM runs WHERE run = ?

-- name: list_numbers
SELECT run FROM runs NOT INDEXED ORDER BY run

-- name: list_runs
SELECT run, run_id, name, agent, arguments, durability, created_at, updated_at, state, reason, detail, epoch, holder,
       deliveries, steps, suspects, length, wake_at, heard, tags, tokens, dollars, queue, priority, tenant, turn,
       version, head, digest
FROM runs ORDER BY created_at DESC, run DESC LIMIT ?

-- name: list_runs_by_call
SELECT run, run_id, name, agent, arguments, durability, created_at, updated_at, state, reason, detail, epoch, holder,
       deliveries, steps, suspects, length, wake_at, heard, tags, tokens, dollars, queue, priority, tenant, turn,
       version, head, digest
FROM runs WHERE agent = ? AND arguments = ? ORDER BY created_at DESC, run DESC LIMIT ?

-- name: list_runs_by_name
SELECT run, run_id, name, agent, arguments, durability, created_at, updated_at, state, reason, detail, epoch, holder,
       deliveries, steps, suspects, length, wake_at, heard, tags, tokens, dollars, queue, priority, tenant, turn,
       version, head, digest
FROM runs WHERE name = ? ORDER BY created_at DESC, run DESC LIMIT ?

-- name: find_runs
SELECT run, run_id, name, agent, arguments, durability, created_at, updated_at, state, reason, detail, epoch, holder,
       deliveries, steps, suspects, length, wake_at, heard, tags, tokens, dollars, queue, priority, tenant, turn,
       version, head, digest
FROM runs WHERE :which ORDER BY created_at DESC, run DESC LIMIT ? OFFSET ?

-- name: count_runs
SELECT count(*) FROM runs WHERE :which

-- name: list_due
SELECT run, run_id, name, agent, arguments, durability, created_at, updated_at, state, reason, detail, epoch, holder,
       deliveries, steps, suspects, length, wake_at, heard, tags, tokens, dollars, queue, priority, tenant, turn,
       version, head, digest
FROM runs
WHERE run IN (
    SELECT run FROM runs WHERE state = 'waiting' AND wake_at > 0 AND wake_at <= ?
    UNION
    SELECT runs.run FROM mailbox AS box CROSS JOIN runs ON runs.run_id = box.run_id
    WHERE box.unheard = 1 AND box.taken = 0 AND box.kind <> 'refused' AND runs.state = 'waiting'
          AND box.mail > runs.heard
)
ORDER BY wake_at, run LIMIT ?

-- name: list_holders
WITH RECURSIVE held (queue, holder) AS (
    SELECT * FROM (SELECT queue, holder FROM runs WHERE state = 'running' ORDER BY queue, holder LIMIT 1)
    UNION ALL
    -- Columns are compared one by one: of a comparison of rows SQLite searches an index for the first column alone.
    SELECT later.queue, later.holder FROM held CROSS JOIN runs AS later ON later.run = coalesce(
        (SELECT run FROM runs WHERE state = 'running' AND queue = held.queue AND holder > held.holder
         ORDER BY queue, holder LIMIT 1),
        (SELECT run FROM runs WHERE state = 'running' AND queue > held.queue ORDER BY queue, holder LIMIT 1)
    )
)
SELECT queue, holder FROM held

-- name: list_held
SELECT run, run_id, name, agent, arguments, durability, created_at, updated_at, state, reason, detail, epoch, holder,
       deliveries, steps, suspects, length, wake_at, heard, tags, tokens, dollars, queue, priority, tenant, turn,
       version, head, digest
FROM runs WHERE state = 'running' AND queue = ? AND holder = ? AND agent = ? AND version = ?
ORDER BY created_at, run LIMIT ?

-- name: list_waiting_lines
WITH RECURSIVE line (queue, agent, version) AS (
    SELECT * FROM (
        SELECT queue, agent, version FROM runs WHERE state = 'waiting' AND wake_at > 0
        ORDER BY queue, agent, version LIMIT 1
    )
    UNION ALL
    SELECT later.queue, later.agent, later.version FROM line CROSS JOIN runs AS later ON later.run = (
        SELECT coalesce(
            (SELECT run FROM runs WHERE state = 'waiting' AND wake_at > 0
                    AND queue = line.queue AND agent = line.agent AND version > line.version
             ORDER BY queue, agent, version LIMIT 1),
            (SELECT run FROM runs WHERE state = 'waiting' AND wake_at > 0 AND queue = line.queue AND agent > line.agent
             ORDER BY queue, agent, version LIMIT 1),
            (SELECT run FROM runs WHERE state = 'waiting' AND wake_at > 0 AND queue > line.queue
             ORDER BY queue, agent, version LIMIT 1)
        )
    )
)
SELECT queue, agent, version FROM line

-- name: list_soonest
SELECT run, run_id, name, agent, arguments, durability, created_at, updated_at, state, reason, detail, epoch, holder,
       deliveries, steps, suspects, length, wake_at, heard, tags, tokens, dollars, queue, priority, tenant, turn,
       version, head, digest
FROM runs
WHERE state = 'waiting' AND wake_at > 0 AND queue = ? AND agent = ? AND version = ? AND wake_at <= ?
      AND detail NOT LIKE '{"code":"paused"%'
ORDER BY wake_at, run LIMIT ?

-- name: list_mailed
SELECT run, run_id, name, agent, arguments, durability, created_at, updated_at, state, reason, detail, epoch, holder,
       deliveries, steps, suspects, length, wake_at, heard, tags, tokens, dollars, queue, priority, tenant, turn,
       version, head, digest
FROM runs
WHERE run IN (
    SELECT runs.run FROM mailbox AS box CROSS JOIN runs ON runs.run_id = box.run_id
    WHERE box.unheard = 1 AND box.taken = 0 AND box.kind <> 'refused' AND runs.state = 'waiting'
          AND box.mail > runs.heard AND (box.kind = 'unpause' OR runs.detail NOT LIKE '{"code":"paused"%')
)
AND agent IN (SELECT value FROM json_each(?)) AND version IN ('', ?) AND queue NOT IN (SELECT value FROM json_each(?))
AND (? OR queue IN (SELECT value FROM json_each(?)))
ORDER BY wake_at, run LIMIT ?

-- name: list_lines
WITH RECURSIVE line (queue, agent, version) AS (
    SELECT * FROM (
        SELECT queue, agent, version FROM runs WHERE state = 'queued' AND wake_at = 0
        ORDER BY queue, agent, version LIMIT 1
    )
    UNION ALL
    SELECT later.queue, later.agent, later.version FROM line CROSS JOIN runs AS later ON later.run = (
        SELECT coalesce(
            (SELECT run FROM runs WHERE state = 'queued' AND wake_at = 0
                    AND queue = line.queue AND agent = line.agent AND version > line.version
             ORDER BY queue, agent, version LIMIT 1),
            (SELECT run FROM runs WHERE state = 'queued' AND wake_at = 0 AND queue = line.queue AND agent > line.agent
             ORDER BY queue, agent, version LIMIT 1),
            (SELECT run FROM runs WHERE state = 'queued' AND wake_at = 0 AND queue > line.queue
             ORDER BY queue, agent, version LIMIT 1)
        )
    )
)
SELECT queue, agent, version FROM line

-- name: list_queued
SELECT run, run_id, name, agent, arguments, durability, created_at, updated_at, state, reason, detail, epoch, holder,
       deliveries, steps, suspects, length, wake_at, heard, tags, tokens, dollars, queue, priority, tenant, turn,
       version, head, digest
FROM runs WHERE state = 'queued' AND wake_at = 0 AND queue = ? AND agent = ? AND version = ?
ORDER BY priority DESC, turn, created_at, run LIMIT ?

-- name: read_first_turn
SELECT turn FROM runs
WHERE state = 'queued' AND wake_at = 0 AND queue = ? AND agent = ? AND version = ? AND priority = ? AND epoch = 0
ORDER BY turn LIMIT 1

-- name: read_own_turn
SELECT turn FROM runs
WHERE state = 'queued' AND wake_at = 0 AND queue = ? AND agent = ? AND version = ? AND priority = ? AND tenant = ?
      AND epoch = 0
ORDER BY turn DESC LIMIT 1

-- name: read_upkeep
SELECT EXISTS (SELECT 1 FROM runs WHERE state = 'queued' AND wake_at > 0 AND wake_at <= ?), EXISTS (
    SELECT 1 FROM mailbox AS box CROSS JOIN runs ON runs.run_id = box.run_id
    WHERE box.unheard = 1 AND (
        box.taken > 0 OR box.kind = 'refused' OR runs.state IN ('completed', 'failed', 'cancelled')
        OR (runs.state = 'waiting' AND box.mail <= runs.heard)
    )
)

-- name: mark_heard
UPDATE mailbox SET unheard = 0 WHERE mail IN (
    SELECT box.mail FROM mailbox AS box CROSS JOIN runs ON runs.run_id = box.run_id
    WHERE box.unheard = 1 AND (
        box.taken > 0 OR box.kind = 'refused' OR runs.state IN ('completed', 'failed', 'cancelled')
        OR (runs.state = 'waiting' AND box.mail <= runs.heard)
    )
    ORDER BY box.mail LIMIT ?
)

-- name: list_delayed
SELECT run, run_id, name, agent, arguments, durability, created_at, updated_at, state, reason, detail, epoch, holder,
       deliveries, steps, suspects, length, wake_at, heard, tags, tokens, dollars, queue, priority, tenant, turn,
       version, head, digest
FROM runs WHERE state = 'queued' AND wake_at > 0 AND wake_at <= ? ORDER BY wake_at, run LIMIT ?

-- name: meet_queue
INSERT INTO queues (name) VALUES (?) ON CONFLICT (name) DO NOTHING

-- name: declare_queue
INSERT INTO queues (name, concurrency, per_worker, rate, burst, bucket) VALUES (?, ?, ?, ?, ?, ?)
ON CONFLICT (name) DO UPDATE SET concurrency = excluded.concurrency, per_worker = excluded.per_worker,
                                 rate = excluded.rate, burst = excluded.burst, bucket = excluded.bucket

-- name: list_queues
SELECT name, concurrency, per_worker, rate, burst, bucket FROM queues

-- name: count_queues
SELECT queue, 'ready', count(*), min(created_at) FROM runs WHERE state = 'queued' AND wake_at = 0 GROUP BY queue
UNION ALL
SELECT queue, 'delayed', count(*), 0.0 FROM runs WHERE state = 'queued' AND wake_at > 0 GROUP BY queue
UNION ALL
SELECT queue, 'running', count(*), 0.0 FROM runs WHERE state = 'running' GROUP BY queue

-- name: read_queue
SELECT name, concurrency, per_worker, rate, burst, bucket FROM queues WHERE name = ?

-- name: count_running
SELECT count(*) FROM runs WHERE state = 'running' AND queue = ?

-- name: read_bucket
SELECT full_at FROM buckets WHERE name = ?

-- name: write_bucket
INSERT INTO buckets (name, full_at) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET full_at = excluded.full_at

-- name: list_schedules
SELECT name, agent, cron, timezone, catch_up, arguments, next_at, last_at, last_run, off_at, digest FROM schedules
ORDER BY name

-- name: insert_schedule
INSERT INTO schedules (name, agent, cron, timezone, catch_up, arguments, next_at, last_at, last_run, off_at, digest)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (name) DO NOTHING

-- name: update_schedule
UPDATE schedules SET name = ?, agent = ?, cron = ?, timezone = ?, catch_up = ?, arguments = ?, next_at = ?, last_at = ?,
                     last_run = ?, off_at = ?, digest = ?
WHERE name = ? AND digest = ?

-- name: delete_schedule
DELETE FROM schedules WHERE name = ? AND digest = ?

-- name: read_debounce
SELECT agent, key, run_id, first_at, newest_at, starts, digest FROM debounces WHERE agent = ? AND key = ?

-- name: write_debounce
INSERT INTO debounces (agent, key, run_id, first_at, newest_at, starts, digest) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (agent, key) DO UPDATE SET run_id = excluded.run_id, first_at = excluded.first_at,
                                       newest_at = excluded.newest_at, starts = excluded.starts, digest = excluded.digest

-- name: list_debounces
SELECT agent, key, run_id, first_at, newest_at, starts, digest FROM debounces WHERE (agent, key) > (?, ?)
ORDER BY agent, key LIMIT ?

-- name: keep_debounce
INSERT INTO debounces (agent, key, run_id, first_at, newest_at, starts, digest) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (agent, key) DO UPDATE SET run_id = excluded.run_id, first_at = excluded.first_at,
                                       newest_at = excluded.newest_at, starts = excluded.starts, digest = excluded.digest
WHERE debounces.newest_at < excluded.newest_at

-- name: forget_debounces
DELETE FROM debounces WHERE (agent, key) IN (
    SELECT debounces.agent, debounces.key FROM debounces LEFT JOIN runs ON runs.run_id = debounces.run_id
    WHERE newest_at < ? AND (state IS NULL OR state <> 'queued') ORDER BY newest_at LIMIT ?
)

-- name: replace_record
UPDATE records SET kind = ?, key = ?, name = ?, arguments = ?, at = ?, epoch = ?, body = ?, digest = ?
WHERE run = ? AND seq = ?

-- name: ask_to_drain
UPDATE workers SET drain_at = ? WHERE worker_id = ?

-- name: record_death
UPDATE workers SET death = ?, died_at = ? WHERE worker_id = ? AND died_at = 0

-- name: load_journal
SELECT seq, kind, key, name, arguments, at, epoch, body, digest FROM records WHERE run = ? ORDER BY seq

-- name: load_blob
SELECT stored FROM blobs WHERE digest = ?

-- name: insert_mail
INSERT INTO mailbox (run_id, kind, key, body, sender, at, taken, digest) VALUES (?, ?, ?, ?, ?, ?, 0, ?)

-- name: find_mail
SELECT mail FROM mailbox WHERE run_id = ? AND kind = ? AND key = ? LIMIT 1

-- name: read_mail
SELECT mail, run_id, kind, key, body, sender, at, taken, digest FROM mailbox WHERE run_id = ? ORDER BY mail

-- name: insert_loss
INSERT INTO losses (generation, at, expected, found, digest) VALUES (?, ?, ?, ?, ?)

-- name: list_losses
SELECT generation, at, expected, found, digest FROM losses ORDER BY generation

-- name: count_stray_records
SELECT count(*) FROM records WHERE run NOT IN (SELECT run FROM runs)

-- name: list_mailboxes
SELECT DISTINCT run_id FROM mailbox

-- name: set_records_aside
INSERT INTO set_aside (run, seq, kind, key, name, arguments, at, epoch, body, digest)
SELECT run, seq, kind, key, name, arguments, at, epoch, body, digest FROM records WHERE run = ? AND seq >= ?

-- name: delete_records
DELETE FROM records WHERE run = ? AND seq >= ?

-- name: reindex
REINDEX

-- name: check_runs
PRAGMA integrity_check(runs)

-- name: check_mailbox
PRAGMA integrity_check(mailbox)

-- name: check_all
PRAGMA integrity_check(20)

-- name: replace_run
UPDATE runs SET run_id = ?, name = ?, agent = ?, arguments = ?, durability = ?, created_at = ?, updated_at = ?, state = ?,
                reason = ?, detail = ?, epoch = ?, holder = ?, deliveries = ?, steps = ?, suspects = ?, length = ?,
                wake_at = ?, heard = ?, tags = ?, tokens = ?, dollars = ?, queue = ?, priority = ?, tenant = ?, turn = ?,
                version = ?, head = ?, digest = ?
WHERE run = ?

-- name: list_every_run
SELECT run, run_id, name, agent, arguments, durability, created_at, updated_at, state, reason, detail, epoch, holder,
       deliveries, steps, suspects, length, wake_at, heard, tags, tokens, dollars, queue, priority, tenant, turn,
       version, head, digest
FROM runs NOT INDEXED ORDER BY run

-- name: read_referring
SELECT body FROM records WHERE run = ? AND kind IN (?, ?, ?) ORDER BY seq

-- name: read_bodies
SELECT run, body FROM records UNION ALL SELECT run, body FROM set_aside

-- name: read_bodies_of
SELECT run, body FROM records WHERE run = ? UNION ALL SELECT run, body FROM set_aside WHERE run = ?

-- name: read_newest
SELECT id, digest FROM records ORDER BY id DESC LIMIT 1

-- name: read_digest
SELECT digest FROM records WHERE id = ?

-- name: read_appended
SELECT kind, body FROM records WHERE id > ? ORDER BY id

-- name: list_blobs
SELECT digest, length(stored) FROM blobs ORDER BY digest

-- name: measure_run
SELECT (SELECT coalesce(sum(octet_length(body)), 0) FROM records WHERE run = ?)
       + (SELECT coalesce(sum(octet_length(body)), 0) FROM mailbox WHERE run_id = ?)

-- name: count_mail
SELECT count(*) FROM mailbox WHERE run_id = ?

-- name: delete_set_aside
DELETE FROM set_aside WHERE run = ?

-- name: delete_mail
DELETE FROM mailbox WHERE run_id = ?

-- name: delete_run
DELETE FROM runs WHERE run = ?

-- name: delete_blob
DELETE FROM blobs WHERE digest = ?

-- name: vacuum
VACUUM

-- name: checkpoint
PRAGMA wal_checkpoint(TRUNCATE)

-- name: import_mail
INSERT INTO mailbox (run_id, kind, key, body, sender, at, taken, digest) VALUES (?, ?, ?, ?, ?, ?, ?, ?)

-- name: read_cabinet
SELECT key, value, digest FROM cabinet WHERE key = ?

-- name: scan_cabinet
SELECT key, value, digest FROM cabinet WHERE key >= ? AND key < ? ORDER BY key LIMIT ?

-- name: newest_in_cabinet
SELECT key FROM cabinet WHERE key >= ? AND key < ? ORDER BY key DESC LIMIT ?

-- name: keep_in_cabinet
INSERT INTO cabinet (key, value, digest) VALUES (?, ?, ?) ON CONFLICT (key) DO NOTHING

-- name: put_into_cabinet
INSERT INTO cabinet (key, value, digest) VALUES (?, ?, ?)
ON CONFLICT (key) DO UPDATE SET value = excluded.value, digest = excluded.digest

-- name: remove_from_cabinet
DELETE FROM cabinet WHERE key = ?

-- name: clear_cabinet
DELETE FROM cabinet WHERE key >= ? AND key < ?
