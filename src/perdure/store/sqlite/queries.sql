-- Every statement perdure sends to SQLite, one per name, in the order of the port's verbs.

-- name: begin
BEGIN IMMEDIATE

-- name: commit
COMMIT

-- name: begin_reading
BEGIN

-- name: read_counter
SELECT base + (SELECT coalesce(max(id), 0) FROM records) FROM meta

-- name: read_generation
SELECT generation FROM meta

-- name: raise_base
UPDATE meta SET base = base + ?

-- name: raise_generation
UPDATE meta SET generation = generation + 1, base = base + ? RETURNING generation

-- name: insert_worker
INSERT INTO workers (worker_id, pid, host, boot_id, lock_inode, beat_at, beat_boot, drain_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (worker_id) DO NOTHING

-- name: delete_worker
DELETE FROM workers WHERE worker_id = ?

-- name: list_workers
SELECT worker_id, pid, host, boot_id, lock_inode, beat_at, beat_boot, drain_at FROM workers

-- name: insert_run
INSERT INTO runs (run_id, name, agent, arguments, durability, created_at, updated_at, state, reason, detail, epoch, holder,
                  deliveries, steps, suspects, length, wake_at, heard, tags, tokens, dollars, head, digest)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: update_run
UPDATE runs SET updated_at = ?, state = ?, reason = ?, detail = ?, epoch = ?, holder = ?, deliveries = ?, steps = ?,
                suspects = ?, length = ?, wake_at = ?, heard = ?, tokens = ?, dollars = ?, head = ?, digest = ?
WHERE run = ? AND run_id = ? AND epoch = ? AND length = ?

-- name: extend_run
UPDATE runs SET updated_at = ?, deliveries = ?, steps = ?, suspects = ?, length = ?, tokens = ?, dollars = ?, head = ?,
                digest = ?
WHERE run = ? AND run_id = ? AND epoch = ? AND length = ?

-- name: insert_record
INSERT INTO records (run, seq, kind, key, name, arguments, at, epoch, body, digest) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: insert_blob
INSERT INTO blobs (digest, stored) VALUES (?, ?)
ON CONFLICT (digest) DO UPDATE SET stored = excluded.stored WHERE stored <> excluded.stored

-- name: read_untaken
SELECT mail, run_id, kind, key, body, sender, at, taken, digest FROM mailbox WHERE mail = ? AND run_id = ? AND taken = 0

-- name: take_mail
UPDATE mailbox SET taken = ?, digest = ? WHERE mail = ?

-- name: read_epoch
SELECT epoch FROM runs WHERE run_id = ?

-- name: beat
UPDATE workers SET beat_at = ?, beat_boot = ? WHERE worker_id = ?

-- name: read_worker
SELECT worker_id, pid, host, boot_id, lock_inode, beat_at, beat_boot, drain_at FROM workers WHERE worker_id = ?

-- name: read_run
SELECT run, run_id, name, agent, arguments, durability, created_at, updated_at, state, reason, detail, epoch, holder,
       deliveries, steps, suspects, length, wake_at, heard, tags, tokens, dollars, head, digest
FROM runs WHERE run_id = ?

-- name: read_state
SELECT state FROM runs WHERE run_id = ?

-- name: find_run
SELECT run FROM runs WHERE run_id = ?

-- name: read_run_at
SELECT run, run_id, name, agent, arguments, durability, created_at, updated_at, state, reason, detail, epoch, holder,
       deliveries, steps, suspects, length, wake_at, heard, tags, tokens, dollars, head, digest
FROM runs WHERE run = ?

-- name: read_name_at
SELECT name FROM runs WHERE run = ?

-- name: list_numbers
SELECT run FROM runs NOT INDEXED ORDER BY run

-- name: list_runs
SELECT run, run_id, name, agent, arguments, durability, created_at, updated_at, state, reason, detail, epoch, holder,
       deliveries, steps, suspects, length, wake_at, heard, tags, tokens, dollars, head, digest
FROM runs ORDER BY created_at DESC, run DESC LIMIT ?

-- name: list_runs_by_call
SELECT run, run_id, name, agent, arguments, durability, created_at, updated_at, state, reason, detail, epoch, holder,
       deliveries, steps, suspects, length, wake_at, heard, tags, tokens, dollars, head, digest
FROM runs WHERE agent = ? AND arguments = ? ORDER BY created_at DESC, run DESC LIMIT ?

-- name: list_runs_by_name
SELECT run, run_id, name, agent, arguments, durability, created_at, updated_at, state, reason, detail, epoch, holder,
       deliveries, steps, suspects, length, wake_at, heard, tags, tokens, dollars, head, digest
FROM runs WHERE name = ? ORDER BY created_at DESC, run DESC LIMIT ?

-- name: find_runs
SELECT run, run_id, name, agent, arguments, durability, created_at, updated_at, state, reason, detail, epoch, holder,
       deliveries, steps, suspects, length, wake_at, heard, tags, tokens, dollars, head, digest
FROM runs WHERE :which ORDER BY created_at DESC, run DESC LIMIT ? OFFSET ?

-- name: count_runs
SELECT count(*) FROM runs WHERE :which

-- name: list_due
SELECT run, run_id, name, agent, arguments, durability, created_at, updated_at, state, reason, detail, epoch, holder,
       deliveries, steps, suspects, length, wake_at, heard, tags, tokens, dollars, head, digest
FROM runs
WHERE state = 'waiting' AND (
    (wake_at > 0 AND wake_at <= ?)
    OR EXISTS (SELECT 1 FROM mailbox AS box WHERE box.run_id = runs.run_id AND box.taken = 0
               AND box.mail > runs.heard AND box.kind <> 'refused')
)
ORDER BY wake_at, run LIMIT ?

-- name: list_holders
SELECT DISTINCT holder FROM runs WHERE state = 'running'

-- name: list_held
SELECT run, run_id, name, agent, arguments, durability, created_at, updated_at, state, reason, detail, epoch, holder,
       deliveries, steps, suspects, length, wake_at, heard, tags, tokens, dollars, head, digest
FROM runs WHERE state = 'running' AND agent IN (SELECT value FROM json_each(?)) AND holder IN (SELECT value FROM json_each(?))
ORDER BY created_at, run LIMIT ?

-- name: list_queued
SELECT run, run_id, name, agent, arguments, durability, created_at, updated_at, state, reason, detail, epoch, holder,
       deliveries, steps, suspects, length, wake_at, heard, tags, tokens, dollars, head, digest
FROM runs WHERE state = 'queued' AND agent = ? ORDER BY created_at, run LIMIT ?

-- name: ask_to_drain
UPDATE workers SET drain_at = ? WHERE worker_id = ?

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
                wake_at = ?, heard = ?, tags = ?, tokens = ?, dollars = ?, head = ?, digest = ?
WHERE run = ?

-- name: list_every_run
SELECT run, run_id, name, agent, arguments, durability, created_at, updated_at, state, reason, detail, epoch, holder,
       deliveries, steps, suspects, length, wake_at, heard, tags, tokens, dollars, head, digest
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
