-- Every statement perdure sends to PostgreSQL, one per name, in the order of the port's verbs.

-- name: read_clock
SELECT extract(epoch FROM clock_timestamp())::float8

-- name: read_durability
SELECT current_setting('fsync', true), current_setting('synchronous_commit', true)

-- name: hold_life
SELECT pg_advisory_lock(%s)

-- name: is_life_held
SELECT count(*) FROM pg_locks
WHERE locktype = 'advisory' AND objsubid = 1 AND granted
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND ((classid::bigint << 32) | objid::bigint) = %s

-- name: insert_worker
INSERT INTO workers (worker_id, pid, host, boot_id, lock_inode, beat_at, beat_boot)
VALUES (%s, %s, %s, %s, %s, extract(epoch FROM clock_timestamp())::float8, %s)
ON CONFLICT (worker_id) DO UPDATE SET beat_at = excluded.beat_at
RETURNING beat_at

-- name: delete_worker
DELETE FROM workers WHERE worker_id = %s

-- name: forget_workers
DELETE FROM workers WHERE beat_at < extract(epoch FROM clock_timestamp())::float8 - %s

-- name: insert_run
INSERT INTO runs (run_id, name, agent, arguments, durability, created_at, updated_at, state, reason, detail, epoch, holder,
                  deliveries, steps, suspects, length, wake_at, heard, tags, tokens, dollars, head, digest)
VALUES (%s, %s, %s, %b, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %b, %b)
ON CONFLICT (run_id) DO NOTHING
RETURNING run

-- name: append_one
WITH fenced AS (
    UPDATE runs SET updated_at = %s, state = %s, reason = %s, detail = %s, epoch = %s, holder = %s, deliveries = %s,
                    steps = %s, suspects = %s, length = %s, wake_at = %s, heard = %s, tokens = %s, dollars = %s,
                    head = %b, digest = %b
    WHERE run_id = %s AND epoch = %s AND length = %s
    RETURNING run
)
INSERT INTO records (run, seq, kind, key, name, arguments, at, epoch, body, digest)
SELECT run, %s, %s, %s, %s, %b, %s, %s, %s, %b FROM fenced

-- name: append_many
WITH given AS (
    SELECT * FROM unnest(%s::text[], %s::bigint[], %s::bigint[], %s::float8[], %s::text[], %s::text[], %s::text[],
                         %s::bigint[], %s::text[], %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[], %s::float8[],
                         %s::bigint[], %s::bigint[], %s::float8[], %s::bytea[], %s::bytea[])
        AS given (run_id, epoch, before, updated_at, state, reason, detail, newest, holder, deliveries, steps, suspects,
                  length, wake_at, heard, tokens, dollars, head, digest)
), fenced AS (
    UPDATE runs SET updated_at = given.updated_at, state = given.state, reason = given.reason, detail = given.detail,
                    epoch = given.newest, holder = given.holder, deliveries = given.deliveries, steps = given.steps,
                    suspects = given.suspects, length = given.length, wake_at = given.wake_at, heard = given.heard,
                    tokens = given.tokens, dollars = given.dollars, head = given.head, digest = given.digest
    FROM given
    WHERE runs.run_id = given.run_id AND runs.epoch = given.epoch AND runs.length = given.before
    RETURNING runs.run, runs.run_id
), written AS (
    INSERT INTO records (run, seq, kind, key, name, arguments, at, epoch, body, digest)
    SELECT fenced.run, seq, kind, key, name, arguments, at, epoch, body, digest
    FROM unnest(%s::text[], %s::bigint[], %s::text[], %s::text[], %s::text[], %s::bytea[], %s::float8[], %s::bigint[],
                %s::text[], %s::bytea[])
        AS record (run_id, seq, kind, key, name, arguments, at, epoch, body, digest)
    JOIN fenced ON fenced.run_id = record.run_id
)
SELECT run_id FROM fenced

-- name: read_heads
SELECT run_id, epoch, length, head FROM runs WHERE run_id = ANY(%s)

-- name: insert_record
INSERT INTO records (run, seq, kind, key, name, arguments, at, epoch, body, digest)
VALUES (%s, %s, %s, %s, %s, %b, %s, %s, %s, %b)

-- name: insert_blob
INSERT INTO blobs (digest, stored) VALUES (%b, %b)
ON CONFLICT (digest) DO UPDATE SET stored = excluded.stored WHERE blobs.stored <> excluded.stored

-- name: read_untaken
SELECT mail, run_id, kind, key, body, sender, at, taken, digest FROM mailbox
WHERE mail = %s AND run_id = %s AND taken = 0 FOR UPDATE

-- name: take_mail
UPDATE mailbox SET taken = %s, digest = %b WHERE mail = %s

-- name: read_epoch
SELECT epoch FROM runs WHERE run_id = %s

-- name: beat
UPDATE workers SET beat_at = extract(epoch FROM clock_timestamp())::float8 WHERE worker_id = %s

-- name: read_worker
SELECT worker_id, pid, host, boot_id, lock_inode, beat_at, beat_boot, drain_at,
       extract(epoch FROM clock_timestamp())::float8 - beat_at
FROM workers WHERE worker_id = %s

-- name: list_workers
SELECT worker_id, pid, host, boot_id, lock_inode, beat_at, beat_boot, drain_at,
       extract(epoch FROM clock_timestamp())::float8 - beat_at
FROM workers

-- name: read_run
SELECT run, run_id, name, agent, arguments, durability, created_at, updated_at, state, reason, detail, epoch, holder,
       deliveries, steps, suspects, length, wake_at, heard, tags, tokens, dollars, head, digest
FROM runs WHERE run_id = %s

-- name: lock_run
SELECT run, run_id, name, agent, arguments, durability, created_at, updated_at, state, reason, detail, epoch, holder,
       deliveries, steps, suspects, length, wake_at, heard, tags, tokens, dollars, head, digest
FROM runs WHERE run_id = %s FOR NO KEY UPDATE

-- name: lock_state
SELECT state FROM runs WHERE run_id = %s FOR NO KEY UPDATE

-- name: read_run_at
SELECT run, run_id, name, agent, arguments, durability, created_at, updated_at, state, reason, detail, epoch, holder,
       deliveries, steps, suspects, length, wake_at, heard, tags, tokens, dollars, head, digest
FROM runs WHERE run = %s

-- name: list_numbers
SELECT run FROM runs ORDER BY run

-- name: list_runs
SELECT run, run_id, name, agent, arguments, durability, created_at, updated_at, state, reason, detail, epoch, holder,
       deliveries, steps, suspects, length, wake_at, heard, tags, tokens, dollars, head, digest
FROM runs ORDER BY created_at DESC, run DESC LIMIT %s

-- name: list_runs_by_call
SELECT run, run_id, name, agent, arguments, durability, created_at, updated_at, state, reason, detail, epoch, holder,
       deliveries, steps, suspects, length, wake_at, heard, tags, tokens, dollars, head, digest
FROM runs WHERE agent = %s AND arguments = %b ORDER BY created_at DESC, run DESC LIMIT %s

-- name: list_runs_by_name
SELECT run, run_id, name, agent, arguments, durability, created_at, updated_at, state, reason, detail, epoch, holder,
       deliveries, steps, suspects, length, wake_at, heard, tags, tokens, dollars, head, digest
FROM runs WHERE name = %s ORDER BY created_at DESC, run DESC LIMIT %s

-- name: find_runs
SELECT run, run_id, name, agent, arguments, durability, created_at, updated_at, state, reason, detail, epoch, holder,
       deliveries, steps, suspects, length, wake_at, heard, tags, tokens, dollars, head, digest
FROM runs WHERE :which ORDER BY created_at DESC, run DESC LIMIT %s OFFSET %s

-- name: count_runs
SELECT count(*) FROM runs WHERE :which

-- name: list_due
SELECT run, run_id, name, agent, arguments, durability, created_at, updated_at, state, reason, detail, epoch, holder,
       deliveries, steps, suspects, length, wake_at, heard, tags, tokens, dollars, head, digest
FROM runs
WHERE state = 'waiting' AND (
    (wake_at > 0 AND wake_at <= %s)
    OR EXISTS (SELECT 1 FROM mailbox AS box WHERE box.run_id = runs.run_id AND box.taken = 0
               AND box.mail > runs.heard AND box.kind <> 'refused')
)
ORDER BY wake_at, run LIMIT %s

-- name: list_holders
SELECT DISTINCT holder FROM runs WHERE state = 'running'

-- name: list_held
SELECT run, run_id, name, agent, arguments, durability, created_at, updated_at, state, reason, detail, epoch, holder,
       deliveries, steps, suspects, length, wake_at, heard, tags, tokens, dollars, head, digest
FROM runs WHERE state = 'running' AND agent = ANY(%s) AND holder = ANY(%s) ORDER BY created_at, run LIMIT %s

-- name: list_queued
SELECT run, run_id, name, agent, arguments, durability, created_at, updated_at, state, reason, detail, epoch, holder,
       deliveries, steps, suspects, length, wake_at, heard, tags, tokens, dollars, head, digest
FROM runs WHERE state = 'queued' AND agent = %s ORDER BY created_at, run LIMIT %s

-- name: ask_to_drain
UPDATE workers SET drain_at = extract(epoch FROM clock_timestamp())::float8 WHERE worker_id = %s

-- name: load_journal
SELECT seq, kind, key, name, arguments, at, epoch, body, digest FROM records WHERE run = %s ORDER BY seq

-- name: load_blob
SELECT stored FROM blobs WHERE digest = %b

-- name: insert_mail
INSERT INTO mailbox (run_id, kind, key, body, sender, at, taken, digest) VALUES (%s, %s, %s, %s, %s, %s, 0, %b)
RETURNING mail

-- name: find_mail
SELECT mail FROM mailbox WHERE run_id = %s AND kind = %s AND key = %s LIMIT 1

-- name: read_mail
SELECT mail, run_id, kind, key, body, sender, at, taken, digest FROM mailbox WHERE run_id = %s ORDER BY mail

-- name: count_stray_records
SELECT count(*) FROM records WHERE run NOT IN (SELECT run FROM runs)

-- name: list_mailboxes
SELECT DISTINCT run_id FROM mailbox

-- name: set_records_aside
INSERT INTO set_aside (run, seq, kind, key, name, arguments, at, epoch, body, digest)
SELECT run, seq, kind, key, name, arguments, at, epoch, body, digest FROM records WHERE run = %s AND seq >= %s

-- name: delete_records
DELETE FROM records WHERE run = %s AND seq >= %s

-- name: replace_run
UPDATE runs SET run_id = %s, name = %s, agent = %s, arguments = %b, durability = %s, created_at = %s, updated_at = %s,
                state = %s, reason = %s, detail = %s, epoch = %s, holder = %s, deliveries = %s, steps = %s, suspects = %s,
                length = %s, wake_at = %s, heard = %s, tags = %s, tokens = %s, dollars = %s, head = %b, digest = %b
WHERE run = %s

-- name: list_every_run
SELECT run, run_id, name, agent, arguments, durability, created_at, updated_at, state, reason, detail, epoch, holder,
       deliveries, steps, suspects, length, wake_at, heard, tags, tokens, dollars, head, digest
FROM runs ORDER BY run

-- name: list_active
SELECT run FROM runs WHERE state NOT IN ('completed', 'cancelled') AND NOT run_id = ANY(%s)

-- name: read_referring
SELECT body FROM records WHERE run = ANY(%s) AND kind = ANY(%s)

-- name: read_bodies
SELECT run, body FROM records UNION ALL SELECT run, body FROM set_aside

-- name: list_blobs
SELECT digest, length(stored) FROM blobs

-- name: lock_blobs
SELECT digest FROM blobs WHERE digest = ANY(%s) ORDER BY digest FOR UPDATE

-- name: measure_records
SELECT count(*), coalesce(sum(octet_length(body)), 0)::bigint FROM records WHERE run = ANY(%s)

-- name: measure_mail
SELECT count(*), coalesce(sum(octet_length(body)), 0)::bigint FROM mailbox WHERE run_id = ANY(%s)

-- name: prune_records
DELETE FROM records WHERE run = ANY(%s)

-- name: prune_set_aside
DELETE FROM set_aside WHERE run = ANY(%s)

-- name: prune_mail
DELETE FROM mailbox WHERE run_id = ANY(%s)

-- name: prune_runs
DELETE FROM runs WHERE run = ANY(%s)

-- name: prune_blobs
DELETE FROM blobs WHERE digest = ANY(%s)

-- name: import_mail
INSERT INTO mailbox (run_id, kind, key, body, sender, at, taken, digest) VALUES (%s, %s, %s, %s, %s, %s, %s, %b)
RETURNING mail
