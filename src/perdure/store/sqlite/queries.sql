-- Every statement perdure sends to SQLite, one per name, in the order of the port's verbs.

-- name: begin
BEGIN IMMEDIATE

-- name: commit
COMMIT

-- name: rollback
ROLLBACK

-- name: read_meta
SELECT generation, base, (SELECT coalesce(max(id), 0) FROM records) FROM meta

-- name: raise_base
UPDATE meta SET base = base + ?

-- name: raise_generation
UPDATE meta SET generation = generation + 1, base = base + ? RETURNING generation

-- name: insert_worker
INSERT INTO workers (worker_id, pid, host, boot_id, lock_inode, beat_at, beat_boot) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (worker_id) DO NOTHING

-- name: delete_worker
DELETE FROM workers WHERE worker_id = ?

-- name: list_workers
SELECT worker_id, pid, host, boot_id, lock_inode, beat_at, beat_boot FROM workers

-- name: insert_run
INSERT INTO runs (run_id, name, agent, arguments, durability, created_at, updated_at, state, reason, detail, epoch, holder,
                  deliveries, steps, suspects, length, head, digest)
VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: update_run
UPDATE runs SET updated_at = ?, state = ?, reason = ?, detail = ?, epoch = ?, holder = ?, deliveries = ?, steps = ?,
                suspects = ?, length = ?, head = ?, digest = ?
WHERE run = ? AND epoch = ? AND length = ?

-- name: insert_record
INSERT INTO records (run, seq, kind, key, name, arguments, at, epoch, body, digest) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)

-- name: insert_blob
INSERT INTO blobs (digest, stored) VALUES (?, ?) ON CONFLICT (digest) DO NOTHING

-- name: take_mail
UPDATE mailbox SET taken = ? WHERE mail = ? AND taken = 0

-- name: read_epoch
SELECT epoch FROM runs WHERE run_id = ?

-- name: beat
UPDATE workers SET beat_at = ?, beat_boot = ? WHERE worker_id = ?

-- name: read_worker
SELECT worker_id, pid, host, boot_id, lock_inode, beat_at, beat_boot FROM workers WHERE worker_id = ?

-- name: read_run
SELECT run, run_id, name, agent, arguments, durability, created_at, updated_at, state, reason, detail, epoch, holder,
       deliveries, steps, suspects, length, head, digest
FROM runs WHERE run_id = ?

-- name: list_runs
SELECT run, run_id, name, agent, arguments, durability, created_at, updated_at, state, reason, detail, epoch, holder,
       deliveries, steps, suspects, length, head, digest
FROM runs ORDER BY created_at DESC, run DESC LIMIT ?

-- name: list_runs_by_call
SELECT run, run_id, name, agent, arguments, durability, created_at, updated_at, state, reason, detail, epoch, holder,
       deliveries, steps, suspects, length, head, digest
FROM runs WHERE agent = ? AND arguments = ? ORDER BY created_at DESC, run DESC LIMIT ?

-- name: list_runs_by_name
SELECT run, run_id, name, agent, arguments, durability, created_at, updated_at, state, reason, detail, epoch, holder,
       deliveries, steps, suspects, length, head, digest
FROM runs WHERE name = ? ORDER BY created_at DESC, run DESC LIMIT ?

-- name: list_unfinished
SELECT run, run_id, name, agent, arguments, durability, created_at, updated_at, state, reason, detail, epoch, holder,
       deliveries, steps, suspects, length, head, digest
FROM runs WHERE state NOT IN ('completed', 'cancelled')

-- name: load_journal
SELECT seq, kind, key, name, arguments, at, epoch, body, digest FROM records WHERE run = ? ORDER BY seq

-- name: load_blob
SELECT stored FROM blobs WHERE digest = ?

-- name: insert_mail
INSERT INTO mailbox (run_id, kind, key, body, sender, at, taken, digest) VALUES (?, ?, ?, ?, ?, ?, 0, ?)

-- name: read_mail
SELECT mail, run_id, kind, key, body, sender, at, taken, digest FROM mailbox WHERE run_id = ? ORDER BY mail

-- name: insert_loss
INSERT INTO losses (generation, at, expected, found) VALUES (?, ?, ?, ?)

-- name: list_losses
SELECT generation, at, expected, found FROM losses ORDER BY generation

-- name: count_stray_records
SELECT count(*) FROM records WHERE run NOT IN (SELECT run FROM runs)

-- name: list_mailboxes
SELECT DISTINCT run_id FROM mailbox

-- name: set_records_aside
INSERT INTO set_aside (run, seq, kind, key, name, arguments, at, epoch, body, digest)
SELECT run, seq, kind, key, name, arguments, at, epoch, body, digest FROM records WHERE run = ? AND seq >= ?

-- name: delete_records
DELETE FROM records WHERE run = ? AND seq >= ?

-- name: replace_run
UPDATE runs SET agent = ?, arguments = ?, updated_at = ?, state = ?, reason = ?, detail = ?, epoch = ?, holder = ?,
                deliveries = ?, steps = ?, suspects = ?, length = ?, head = ?, digest = ?
WHERE run = ?
