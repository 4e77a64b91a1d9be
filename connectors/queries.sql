-- What capture asks a service's database.
-- All up to and including publication_tables runs as a role with LOGIN and REPLICATION alone.

-- name: server_identity
-- Which cluster and timeline answers, and whether it is a standby.
SELECT (SELECT system_identifier::text FROM pg_control_system()) AS system_identifier,
       -- The control file learns of a promotion only at the next checkpoint; the WAL's name at once.
       CASE WHEN pg_is_in_recovery() THEN (SELECT timeline_id FROM pg_control_checkpoint())
            ELSE ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::int
       END AS timeline,
       current_database()::text AS database,
       pg_is_in_recovery() AS standby,
       current_setting('server_version_num')::int AS server_version;

-- name: slot
-- The replication slot as the server sees it; positions are bytes from the start of the WAL.
SELECT slot_type::text AS slot_type,
       plugin::text AS plugin,
       database::text AS database,
       active,
       active_pid,
       wal_status::text AS wal_status,
       safe_wal_size::bigint AS safe_wal_bytes,
       (restart_lsn - '0/0'::pg_lsn)::bigint AS restart_lsn,
       (confirmed_flush_lsn - '0/0'::pg_lsn)::bigint AS confirmed_lsn
FROM pg_replication_slots
WHERE slot_name = %(slot)s;

-- name: current_wal
-- How far the WAL is written; asked last, so that no stored position can be ahead of it.
SELECT (pg_current_wal_lsn() - '0/0'::pg_lsn)::bigint AS written_lsn;

-- name: publication
-- What the publication sends.
SELECT p.pubinsert, p.pubupdate, p.pubdelete, p.pubtruncate, p.pubviaroot, p.puballtables
FROM pg_publication AS p
WHERE p.pubname = %(publication)s;

-- name: publication_tables
-- Which tables the publication sends, with their row filters and whether a column list narrows them.
SELECT t.schemaname::text AS schema_name,
       t.tablename::text AS table_name,
       t.rowfilter IS NOT NULL AS row_filter,
       EXISTS (
           SELECT FROM pg_publication_rel AS r
           JOIN pg_publication AS p ON p.oid = r.prpubid
           JOIN pg_class AS c ON c.oid = r.prrelid
           JOIN pg_namespace AS n ON n.oid = c.relnamespace
           WHERE p.pubname = t.pubname
             AND n.nspname = t.schemaname
             AND c.relname = t.tablename
             AND r.prattrs IS NOT NULL
       ) AS column_list
FROM pg_publication_tables AS t
WHERE t.pubname = %(publication)s
ORDER BY t.schemaname, t.tablename;

-- name: drop_slot
-- Drops the slot if it is there; fails while a reader holds it.
SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = %(slot)s;

-- name: create_slot
-- Creates the slot at the current position; waits for transactions that are open now.
SELECT lsn::text AS lsn FROM pg_create_logical_replication_slot(%(slot)s, 'pgoutput');

-- name: create_failover_slot
-- The same from PostgreSQL 17 on, where a slot can follow to a standby.
SELECT lsn::text AS lsn
FROM pg_create_logical_replication_slot(%(slot)s, 'pgoutput', false, false, true);

-- name: open_transactions
-- Transactions that could keep a new slot waiting, oldest first.
SELECT pid, usename::text AS user_name, xact_start
FROM pg_stat_activity
WHERE backend_type = 'client backend' AND xact_start IS NOT NULL AND pid <> pg_backend_pid()
ORDER BY xact_start
LIMIT 10;

-- name: reemit
-- Puts the outbox rows received in the range into the outbox again, with their first identity.
SELECT metering.reemit(%(from)s, %(to)s, %(reason)s) AS rows;

-- name: database_clock
-- The time of the database, which dates received_at.
SELECT clock_timestamp() AS now;
