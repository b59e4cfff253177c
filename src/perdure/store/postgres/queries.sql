-- Every statement perdure sends to PostgreSQL, one per name, in the order of the port's verbs.

-- name: read_clock
SELECT extract(epoch FROM clock_timestamp())::float8

-- name: read_durability
SELECT current_setting('fsync', true), current_setting('synchronous_commit', true)

-- name: hold_life
SELECT pg_try_advisory_lock(%s)

-- name: end_life
SELECT pg_terminate_backend(pid) FROM pg_locks
WHERE locktype = 'advisory' AND objsubid = 1 AND granted AND pid <> pg_backend_pid()
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND ((classid::bigint << 32) | objid::bigint) = %s

-- name: is_life_held
SELECT count(*) FROM pg_locks
WHERE locktype = 'advisory' AND objsubid = 1 AND granted
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
  AND ((classid::bigint << 32) | objid::bigint) = %s

-- name: notify
SELECT pg_notify(%s, %s)

-- name: insert_worker
INSERT INTO workers (worker_id, pid, host, boot_id, lock_inode, beat_at, beat_boot, version)
VALUES (%s, %s, %s, %s, %s, extract(epoch FROM clock_timestamp())::float8, %s, %s)
ON CONFLICT (worker_id) DO UPDATE SET beat_at = excluded.beat_at
RETURNING beat_at

-- name: delete_worker
DELETE FROM workers WHERE worker_id = %s

-- name: forget_workers
DELETE FROM workers WHERE beat_at < extract(epoch FROM clock_timestamp())::float8 - %s

-- name: forget_deaths
DELETE FROM workers
WHERE died_at > 0 AND worker_id NOT IN (SELECT worker_id FROM workers ORDER BY died_at DESC LIMIT %s)
      AND worker_id NOT IN (SELECT holder FROM runs WHERE state = 'running')

-- name: insert_run
INSERT INTO runs (run_id, name, agent, arguments, durability, created_at, updated_at, state, reason, detail, epoch, holder,
                  deliveries, steps, suspects, length, wake_at, heard, tags, tokens, dollars, queue, priority, tenant,
                  turn, version, head, digest)
VALUES (%s, %s, %s, %b, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %b, %b)
ON CONFLICT (run_id) DO NOTHING
RETURNING run

-- name: create_run
WITH created AS (
    INSERT INTO runs (run_id, name, agent, arguments, durability, created_at, updated_at, state, reason, detail, epoch,
                      holder, deliveries, steps, suspects, length, wake_at, heard, tags, tokens, dollars, queue,
                      priority, tenant, turn, version, head, digest)
    VALUES (%s::text, %s::text, %s::text, %s::bytea, %s::text, %s::float8, %s::float8, %s::text, %s::text, %s::text,
            %s::bigint, %s::text, %s::bigint, %s::bigint, %s::bigint, %s::bigint, %s::float8, %s::bigint, %s::text,
            %s::bigint, %s::float8, %s::text, %s::bigint, %s::text, %s::bigint, %s::text, %s::bytea, %s::bytea)
    ON CONFLICT (run_id) DO NOTHING
    RETURNING run
), written AS (
    INSERT INTO records (run, seq, kind, key, name, arguments, at, epoch, body, digest)
    SELECT created.run, record.*
    FROM created, unnest(%s::bigint[], %s::text[], %s::text[], %s::text[], %s::bytea[], %s::float8[], %s::bigint[],
                         %s::text[], %s::bytea[]) AS record
), beaten AS (
    UPDATE workers SET beat_at = extract(epoch FROM clock_timestamp())::float8
    WHERE worker_id = %s::text AND EXISTS (SELECT 1 FROM created)
)
SELECT run FROM created

-- name: append_one
WITH fenced AS (
    UPDATE runs SET updated_at = %s::float8, state = %s::text, reason = %s::text, detail = %s::text, epoch = %s::bigint,
                    holder = %s::text, deliveries = %s::bigint, steps = %s::bigint, suspects = %s::bigint,
                    length = %s::bigint, wake_at = %s::float8, heard = %s::bigint, tokens = %s::bigint,
                    dollars = %s::float8, version = %s::text, head = %s::bytea, digest = %s::bytea
    WHERE run_id = %s::text AND epoch = %s::bigint AND length = %s::bigint
    RETURNING run
)
INSERT INTO records (run, seq, kind, key, name, arguments, at, epoch, body, digest)
SELECT run, %s::bigint, %s::text, %s::text, %s::text, %s::bytea, %s::float8, %s::bigint, %s::text, %s::bytea FROM fenced

-- name: append_step
WITH fenced AS (
    UPDATE runs SET updated_at = %s::float8, deliveries = %s::bigint, steps = %s::bigint, suspects = %s::bigint,
                    length = length + 1, tokens = %s::bigint, dollars = %s::float8, head = %s::bytea, digest = %s::bytea
    WHERE run_id = %s::text AND epoch = %s::bigint AND length = %s::bigint AND state = 'running'
    RETURNING run, length - 1 AS seq, updated_at, epoch, head
)
INSERT INTO records (run, seq, kind, key, name, arguments, at, epoch, body, digest)
SELECT run, seq, %s::text, %s::text, %s::text, %s::bytea, updated_at, epoch, %s::text, head FROM fenced

-- name: append_many
WITH given AS (
    SELECT * FROM unnest(%s::bigint[], %s::text[], %s::bigint[], %s::bigint[], %s::float8[], %s::text[], %s::text[],
                         %s::text[], %s::bigint[], %s::text[], %s::bigint[], %s::bigint[], %s::bigint[], %s::bigint[],
                         %s::float8[], %s::bigint[], %s::bigint[], %s::float8[], %s::text[], %s::bytea[], %s::bytea[])
        AS given (place, run_id, epoch, before, updated_at, state, reason, detail, newest, holder, deliveries, steps,
                  suspects, length, wake_at, heard, tokens, dollars, version, head, digest)
), fenced AS (
    UPDATE runs SET updated_at = given.updated_at, state = given.state, reason = given.reason, detail = given.detail,
                    epoch = given.newest, holder = given.holder, deliveries = given.deliveries, steps = given.steps,
                    suspects = given.suspects, length = given.length, wake_at = given.wake_at, heard = given.heard,
                    tokens = given.tokens, dollars = given.dollars, version = given.version, head = given.head,
                    digest = given.digest
    FROM given
    WHERE runs.run_id = given.run_id AND runs.epoch = given.epoch AND runs.length = given.before
    RETURNING runs.run, given.place
), written AS (
    INSERT INTO records (run, seq, kind, key, name, arguments, at, epoch, body, digest)
    SELECT fenced.run, seq, kind, key, name, arguments, at, epoch, body, digest
    FROM unnest(%s::bigint[], %s::bigint[], %s::text[], %s::text[], %s::text[], %s::bytea[], %s::float8[], %s::bigint[],
                %s::text[], %s::bytea[])
        AS record (place, seq, kind, key, name, arguments, at, epoch, body, digest)
    JOIN fenced ON fenced.place = record.place
)
SELECT place FROM fenced

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
UPDATE mailbox SET taken = %s, digest = %b, unheard = 0 WHERE mail = %s

-- name: read_epoch
SELECT epoch FROM runs WHERE run_id = %s

-- name: beat
UPDATE workers SET beat_at = extract(epoch FROM clock_timestamp())::float8 WHERE worker_id = %s RETURNING beat_at

-- name: read_worker
SELECT worker_id, pid, host, boot_id, lock_inode, beat_at, beat_boot, drain_at, death, died_at, version,
       extract(epoch FROM clock_timestamp())::float8 - beat_at
FROM workers WHERE worker_id = %s

-- name: list_workers
SELECT worker_id, pid, host, boot_id, lock_inode, beat_at, beat_boot, drain_at, death, died_at, version,
       extract(epoch FROM clock_timestamp())::float8 - beat_at
FROM workers

-- name: read_run
SELECT run, run_id, name, agent, arguments, durability, created_at, updated_at, state, reason, detail, epoch, holder,
       deliveries, steps, suspects, length, wake_at, heard, tags, tokens, dollars, queue, priority, tenant, turn,
       version, head, digest
FROM runs WHERE run_id = %s

-- name: lock_run
SELECT run, run_id, name, agent, arguments, durability, created_at, updated_at, state, reason, detail, epoch, holder,
       deliveries, steps, suspects, length, wake_at, heard, tags, tokens, dollars, queue, priority, tenant, turn,
       version, head, digest
FROM runs WHERE run_id = %s FOR NO KEY UPDATE

-- name: lock_state
SELECT state, detail <> '' FROM runs WHERE run_id = %s FOR NO KEY UPDATE

-- name: read_run_at
SELECT run, run_id, name, agent, arguments, durability, created_at, updated_at, state, reason, detail, epoch, holder,
       deliveries, steps, suspects, length, wake_at, heard, tags, tokens, dollars, queue, priority, tenant, turn,
       version, head, digest
FROM runs WHERE run = %s

-- name: list_numbers
SELECT run FROM runs ORDER BY run

-- name: list_runs
SELECT run, run_id, name, agent, arguments, durability, created_at, updated_at, state, reason, detail, epoch, holder,
       deliveries, steps, suspects, length, wake_at, heard, tags, tokens, dollars, queue, priority, tenant, turn,
       version, head, digest
FROM runs ORDER BY created_at DESC, run DESC LIMIT %s

-- name: list_runs_by_call
SELECT run, run_id, name, agent, arguments, durability, created_at, updated_at, state, reason, detail, epoch, holder,
       deliveries, steps, suspects, length, wake_at, heard, tags, tokens, dollars, queue, priority, tenant, turn,
       version, head, digest
FROM runs WHERE agent = %s AND arguments = %b ORDER BY created_at DESC, run DESC LIMIT %s

-- name: list_runs_by_name
SELECT run, run_id, name, agent, arguments, durability, created_at, updated_at, state, reason, detail, epoch, holder,
       deliveries, steps, suspects, length, wake_at, heard, tags, tokens, dollars, queue, priority, tenant, turn,
       version, head, digest
FROM runs WHERE name = %s ORDER BY created_at DESC, run DESC LIMIT %s

-- name: find_runs
SELECT run, run_id, name, agent, arguments, durability, created_at, updated_at, state, reason, detail, epoch, holder,
       deliveries, steps, suspects, length, wake_at, heard, tags, tokens, dollars, queue, priority, tenant, turn,
       version, head, digest
FROM runs WHERE :which ORDER BY created_at DESC, run DESC LIMIT %s OFFSET %s

-- name: count_runs
SELECT count(*) FROM runs WHERE :which

-- name: list_due
SELECT run, run_id, name, agent, arguments, durability, created_at, updated_at, state, reason, detail, epoch, holder,
       deliveries, steps, suspects, length, wake_at, heard, tags, tokens, dollars, queue, priority, tenant, turn,
       version, head, digest
FROM runs
WHERE run IN (
    SELECT run FROM runs WHERE state = 'waiting' AND wake_at > 0 AND wake_at <= %s
    UNION
    SELECT runs.run FROM mailbox AS box JOIN runs ON runs.run_id = box.run_id
    WHERE box.unheard = 1 AND box.taken = 0 AND box.kind <> 'refused' AND runs.state = 'waiting'
          AND box.mail > runs.heard
)
ORDER BY wake_at, run LIMIT %s

-- name: list_holders
WITH RECURSIVE held (queue, holder) AS (
    (SELECT queue, holder FROM runs WHERE state = 'running' ORDER BY queue, holder LIMIT 1)
    UNION ALL
    SELECT later.queue, later.holder FROM held CROSS JOIN LATERAL (
        SELECT queue, holder FROM runs
        WHERE state = 'running' AND (runs.queue, runs.holder) > (held.queue, held.holder)
        ORDER BY queue, holder LIMIT 1
    ) AS later
)
SELECT queue, holder, died_at, extract(epoch FROM clock_timestamp())::float8 - beat_at
FROM held LEFT JOIN workers ON workers.worker_id = held.holder

-- name: list_lives
SELECT (classid::bigint << 32) | objid::bigint FROM pg_locks
WHERE locktype = 'advisory' AND objsubid = 1 AND granted
  AND database = (SELECT oid FROM pg_database WHERE datname = current_database())

-- name: list_held
SELECT found.* FROM unnest(%s::text[], %s::text[], %s::text[], %s::text[]) AS line (queue, holder, agent, version)
CROSS JOIN LATERAL (
    SELECT run, run_id, name, agent, arguments, durability, created_at, updated_at, state, reason, detail, epoch, holder,
           deliveries, steps, suspects, length, wake_at, heard, tags, tokens, dollars, queue, priority, tenant, turn,
           version, head, digest
    FROM runs
    WHERE state = 'running' AND runs.queue = line.queue AND runs.holder = line.holder AND runs.agent = line.agent
          AND runs.version = line.version
    ORDER BY created_at, run LIMIT %s
) AS found

-- name: list_waiting_lines
WITH RECURSIVE line (queue, agent, version) AS (
    (
        SELECT queue, agent, version FROM runs WHERE state = 'waiting' AND wake_at > 0
        ORDER BY queue, agent, version LIMIT 1
    )
    UNION ALL
    SELECT later.queue, later.agent, later.version FROM line CROSS JOIN LATERAL (
        SELECT queue, agent, version FROM runs
        WHERE state = 'waiting' AND wake_at > 0
              AND (runs.queue, runs.agent, runs.version) > (line.queue, line.agent, line.version)
        ORDER BY queue, agent, version LIMIT 1
    ) AS later
)
SELECT queue, agent, version FROM line

-- name: list_soonest
SELECT found.* FROM unnest(%s::text[], %s::text[], %s::text[]) AS line (queue, agent, version)
CROSS JOIN LATERAL (
    SELECT run, run_id, name, agent, arguments, durability, created_at, updated_at, state, reason, detail, epoch, holder,
           deliveries, steps, suspects, length, wake_at, heard, tags, tokens, dollars, queue, priority, tenant, turn,
           version, head, digest
    FROM runs
    WHERE state = 'waiting' AND wake_at > 0 AND runs.queue = line.queue AND runs.agent = line.agent
          AND runs.version = line.version AND wake_at <= %s AND detail NOT LIKE '{"code":"paused"%%'
    ORDER BY wake_at, run LIMIT %s
) AS found

-- name: list_mailed
SELECT run, run_id, name, agent, arguments, durability, created_at, updated_at, state, reason, detail, epoch, holder,
       deliveries, steps, suspects, length, wake_at, heard, tags, tokens, dollars, queue, priority, tenant, turn,
       version, head, digest
FROM runs
WHERE run IN (
    SELECT runs.run FROM mailbox AS box JOIN runs ON runs.run_id = box.run_id
    WHERE box.unheard = 1 AND box.taken = 0 AND box.kind <> 'refused' AND runs.state = 'waiting'
          AND box.mail > runs.heard AND (box.kind = 'unpause' OR runs.detail NOT LIKE '{"code":"paused"%%')
)
AND agent = ANY(%s) AND version = ANY(%s) AND NOT queue = ANY(%s) AND (%s OR queue = ANY(%s))
ORDER BY wake_at, run LIMIT %s

-- name: list_lines
WITH RECURSIVE line (queue, agent, version) AS (
    (
        SELECT queue, agent, version FROM runs WHERE state = 'queued' AND wake_at = 0
        ORDER BY queue, agent, version LIMIT 1
    )
    UNION ALL
    SELECT later.queue, later.agent, later.version FROM line CROSS JOIN LATERAL (
        SELECT queue, agent, version FROM runs
        WHERE state = 'queued' AND wake_at = 0
              AND (runs.queue, runs.agent, runs.version) > (line.queue, line.agent, line.version)
        ORDER BY queue, agent, version LIMIT 1
    ) AS later
)
SELECT queue, agent, version FROM line

-- name: list_queued
SELECT found.* FROM unnest(%s::text[], %s::text[], %s::text[]) AS line (queue, agent, version)
CROSS JOIN LATERAL (
    SELECT run, run_id, name, agent, arguments, durability, created_at, updated_at, state, reason, detail, epoch, holder,
           deliveries, steps, suspects, length, wake_at, heard, tags, tokens, dollars, queue, priority, tenant, turn,
           version, head, digest
    FROM runs
    WHERE state = 'queued' AND wake_at = 0 AND runs.queue = line.queue AND runs.agent = line.agent
          AND runs.version = line.version
    ORDER BY priority DESC, turn, created_at, run LIMIT %s
) AS found

-- name: read_turns
SELECT (
    SELECT turn FROM runs
    WHERE state = 'queued' AND wake_at = 0 AND runs.queue = line.queue AND runs.agent = line.agent
          AND runs.version = line.version AND runs.priority = line.priority AND epoch = 0
    ORDER BY turn LIMIT 1
), (
    SELECT turn FROM runs
    WHERE state = 'queued' AND wake_at = 0 AND runs.queue = line.queue AND runs.agent = line.agent
          AND runs.version = line.version AND runs.priority = line.priority AND runs.tenant = line.tenant AND epoch = 0
    ORDER BY turn DESC LIMIT 1
)
FROM unnest(%s::text[], %s::text[], %s::text[], %s::bigint[], %s::text[]) WITH ORDINALITY
    AS line (queue, agent, version, priority, tenant, place)
ORDER BY place

-- name: read_upkeep
SELECT EXISTS (SELECT 1 FROM runs WHERE state = 'queued' AND wake_at > 0 AND wake_at <= %s), EXISTS (
    SELECT 1 FROM mailbox AS box JOIN runs ON runs.run_id = box.run_id
    WHERE box.unheard = 1 AND (
        box.taken > 0 OR box.kind = 'refused' OR runs.state IN ('completed', 'failed', 'cancelled')
        OR (runs.state = 'waiting' AND box.mail <= runs.heard)
    )
)

-- name: mark_heard
UPDATE mailbox SET unheard = 0 WHERE mail IN (
    SELECT box.mail FROM mailbox AS box JOIN runs ON runs.run_id = box.run_id
    WHERE box.unheard = 1 AND (
        box.taken > 0 OR box.kind = 'refused' OR runs.state IN ('completed', 'failed', 'cancelled')
        OR (runs.state = 'waiting' AND box.mail <= runs.heard)
    )
    ORDER BY box.mail LIMIT %s
    FOR UPDATE OF box SKIP LOCKED
)

-- name: list_delayed
SELECT run, run_id, name, agent, arguments, durability, created_at, updated_at, state, reason, detail, epoch, holder,
       deliveries, steps, suspects, length, wake_at, heard, tags, tokens, dollars, queue, priority, tenant, turn,
       version, head, digest
FROM runs WHERE state = 'queued' AND wake_at > 0 AND wake_at <= %s ORDER BY wake_at, run LIMIT %s
FOR NO KEY UPDATE SKIP LOCKED

-- name: wake_runs
UPDATE runs SET updated_at = woken.updated_at, wake_at = 0, turn = woken.turn, digest = woken.digest
FROM unnest(%s::bigint[], %s::float8[], %s::bigint[], %s::bytea[]) AS woken (run, updated_at, turn, digest)
WHERE runs.run = woken.run

-- name: meet_queue
INSERT INTO queues (name) VALUES (%s) ON CONFLICT (name) DO NOTHING

-- name: declare_queue
INSERT INTO queues (name, concurrency, per_worker, rate, burst, bucket) VALUES (%s, %s, %s, %s, %s, %s)
ON CONFLICT (name) DO UPDATE SET concurrency = excluded.concurrency, per_worker = excluded.per_worker,
                                 rate = excluded.rate, burst = excluded.burst, bucket = excluded.bucket

-- name: list_queues
SELECT name, concurrency, per_worker, rate, burst, bucket FROM queues

-- name: list_loads
SELECT queues.name, concurrency, per_worker, rate, burst, bucket,
       CASE WHEN concurrency = 0 THEN 0
            ELSE (SELECT count(*) FROM runs WHERE state = 'running' AND runs.queue = queues.name) END,
       coalesce(full_at, 0), (extract(epoch FROM clock_timestamp()) * 1000000)::bigint * 1000
FROM queues LEFT JOIN buckets
    ON buckets.name = CASE WHEN bucket = '' THEN 'queue:' || queues.name ELSE bucket END
WHERE concurrency > 0 OR rate > 0

-- name: count_queues
SELECT queue, 'ready', count(*), min(created_at) FROM runs WHERE state = 'queued' AND wake_at = 0 GROUP BY queue
UNION ALL
SELECT queue, 'delayed', count(*), 0.0 FROM runs WHERE state = 'queued' AND wake_at > 0 GROUP BY queue
UNION ALL
SELECT queue, 'running', count(*), 0.0 FROM runs WHERE state = 'running' GROUP BY queue

-- name: read_queue
SELECT name, concurrency, per_worker, rate, burst, bucket FROM queues WHERE name = %s

-- name: lock_queue
UPDATE queues SET name = name WHERE name = %s RETURNING name, concurrency, per_worker, rate, burst, bucket

-- name: count_running
SELECT count(*) FROM runs WHERE state = 'running' AND queue = %s

-- name: make_bucket
INSERT INTO buckets (name, full_at) VALUES (%s, 0) ON CONFLICT (name) DO NOTHING

-- name: lock_bucket
SELECT full_at, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint * 1000 FROM buckets WHERE name = %s FOR UPDATE

-- name: write_bucket
UPDATE buckets SET full_at = %s WHERE name = %s

-- name: list_schedules
SELECT name, agent, cron, timezone, catch_up, arguments, next_at, last_at, last_run, off_at, digest FROM schedules
ORDER BY name

-- name: insert_schedule
INSERT INTO schedules (name, agent, cron, timezone, catch_up, arguments, next_at, last_at, last_run, off_at, digest)
VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %b)
ON CONFLICT (name) DO NOTHING

-- name: update_schedule
UPDATE schedules SET name = %s, agent = %s, cron = %s, timezone = %s, catch_up = %s, arguments = %s, next_at = %s,
                     last_at = %s, last_run = %s, off_at = %s, digest = %b
WHERE name = %s AND digest = %b

-- name: delete_schedule
DELETE FROM schedules WHERE name = %s AND digest = %b

-- name: make_debounce
INSERT INTO debounces (agent, key, run_id, first_at, newest_at, starts, digest) VALUES (%s, %s, '', 0, 0, '', '')
ON CONFLICT (agent, key) DO NOTHING

-- name: read_debounce
SELECT agent, key, run_id, first_at, newest_at, starts, digest FROM debounces WHERE agent = %s AND key = %s FOR UPDATE

-- name: write_debounce
UPDATE debounces SET run_id = %s, first_at = %s, newest_at = %s, starts = %s, digest = %b WHERE agent = %s AND key = %s

-- name: list_debounces
SELECT agent, key, run_id, first_at, newest_at, starts, digest FROM debounces WHERE (agent, key) > (%s, %s)
ORDER BY agent, key LIMIT %s

-- name: keep_debounce
INSERT INTO debounces (agent, key, run_id, first_at, newest_at, starts, digest) VALUES (%s, %s, %s, %s, %s, %s, %b)
ON CONFLICT (agent, key) DO UPDATE SET run_id = excluded.run_id, first_at = excluded.first_at,
                                       newest_at = excluded.newest_at, starts = excluded.starts, digest = excluded.digest
WHERE debounces.newest_at < excluded.newest_at

-- name: forget_debounces
DELETE FROM debounces WHERE newest_at < %s AND (agent, key) IN (
    SELECT debounces.agent, debounces.key FROM debounces LEFT JOIN runs ON runs.run_id = debounces.run_id
    WHERE newest_at < %s AND (state IS NULL OR state <> 'queued') ORDER BY newest_at LIMIT %s
)

-- name: replace_record
UPDATE records SET kind = %s, key = %s, name = %s, arguments = %b, at = %s, epoch = %s, body = %s, digest = %b
WHERE run = %s AND seq = %s

-- name: ask_to_drain
UPDATE workers SET drain_at = extract(epoch FROM clock_timestamp())::float8 WHERE worker_id = %s

-- name: record_death
UPDATE workers SET death = %s, died_at = extract(epoch FROM clock_timestamp())::float8 WHERE worker_id = %s AND died_at = 0

-- name: load_journal
SELECT seq, kind, key, name, arguments, at, epoch, body, digest FROM records WHERE run = %s ORDER BY seq

-- name: load_run
WITH found AS (
    SELECT run, run_id, name, agent, arguments, durability, created_at, updated_at, state, reason, detail, epoch, holder,
           deliveries, steps, suspects, length, wake_at, heard, tags, tokens, dollars, queue, priority, tenant, turn,
           version, head, digest
    FROM runs WHERE run_id = %s
)
SELECT found.*, NULL AS at_seq, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL FROM found
UNION ALL
SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
       NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL,
       seq, kind, key, name, arguments, at, epoch, body, digest
FROM records WHERE run = (SELECT run FROM found)
ORDER BY at_seq NULLS FIRST

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
                length = %s, wake_at = %s, heard = %s, tags = %s, tokens = %s, dollars = %s, queue = %s, priority = %s,
                tenant = %s, turn = %s, version = %s, head = %b, digest = %b
WHERE run = %s

-- name: list_every_run
SELECT run, run_id, name, agent, arguments, durability, created_at, updated_at, state, reason, detail, epoch, holder,
       deliveries, steps, suspects, length, wake_at, heard, tags, tokens, dollars, queue, priority, tenant, turn,
       version, head, digest
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

-- name: read_runs
SELECT run, run_id, name, agent, arguments, durability, created_at, updated_at, state, reason, detail, epoch, holder,
       deliveries, steps, suspects, length, wake_at, heard, tags, tokens, dollars, queue, priority, tenant, turn,
       version, head, digest
FROM runs WHERE run_id = ANY(%s)

-- name: lock_runs
SELECT run, run_id, name, agent, arguments, durability, created_at, updated_at, state, reason, detail, epoch, holder,
       deliveries, steps, suspects, length, wake_at, heard, tags, tokens, dollars, queue, priority, tenant, turn,
       version, head, digest
FROM runs WHERE run_id = ANY(%s) ORDER BY run FOR NO KEY UPDATE

-- name: load_journals
SELECT run, seq, kind, key, name, arguments, at, epoch, body, digest FROM records WHERE run = ANY(%s) ORDER BY run, seq

-- name: read_mails
SELECT mail, run_id, kind, key, body, sender, at, taken, digest FROM mailbox WHERE run_id = ANY(%s) ORDER BY mail

-- name: read_cabinet
SELECT key, value, digest FROM cabinet WHERE key = ANY(%s)

-- name: scan_cabinet
SELECT key, value, digest FROM cabinet WHERE key >= %b AND key < %b ORDER BY key LIMIT %s

-- name: newest_in_cabinet
SELECT key FROM cabinet WHERE key >= %b AND key < %b ORDER BY key DESC LIMIT %s

-- name: keep_in_cabinet
INSERT INTO cabinet (key, value, digest) SELECT * FROM unnest(%s::bytea[], %s::bytea[], %s::bytea[])
ON CONFLICT (key) DO NOTHING

-- name: put_into_cabinet
INSERT INTO cabinet (key, value, digest) SELECT * FROM unnest(%s::bytea[], %s::bytea[], %s::bytea[])
ON CONFLICT (key) DO UPDATE SET value = excluded.value, digest = excluded.digest

-- name: remove_from_cabinet
DELETE FROM cabinet WHERE key = ANY(%s)

-- name: clear_cabinet
DELETE FROM cabinet WHERE key >= %b AND key < %b

-- name: share_cabinet_row
SELECT key FROM cabinet WHERE key = %b FOR SHARE

-- name: lock_cabinet_row
SELECT key FROM cabinet WHERE key = %b FOR UPDATE
