-- Facts of one partition: all of a batch is one transaction that begins with `position_lock`.
-- Rows travel as one JSON text per kind: a text is cheap to make and is parsed by the server.

-- name: log_known
-- The topic of a registered log, and whether its partitions are noted.
SELECT l.log_topic, l.partitions IS NOT NULL FROM ledger.log_life AS l WHERE l.log_id = %(log_id)s;

-- name: log_note_span
-- Notes how many partitions the topic has whose life began with this log.
INSERT INTO ledger.log_span (log_id, root_id, first_partition, partitions)
SELECT %(log_id)s, %(log_id)s, 0, %(partitions)s
WHERE EXISTS (SELECT FROM ledger.log WHERE log_id = %(log_id)s)
ON CONFLICT DO NOTHING;

-- name: log_register_first
-- Registers the very first log; does nothing when there is any other.
INSERT INTO ledger.log (log_id, log_topic, first, reason)
SELECT %(log_id)s, %(log_topic)s, true, 'the first log this ledger was told of'
WHERE NOT EXISTS (SELECT FROM ledger.log)
ON CONFLICT DO NOTHING;

-- name: log_lives
-- All logs of the topic of this one, by the lives of the topic, the first life and log first; later
-- lives left out.
SELECT l.root_id::text, l.log_id::text, l.first_partition, l.partitions, l.boundaries
FROM ledger.log_life AS l
JOIN ledger.log_life AS r ON r.log_id = l.root_id
JOIN ledger.log_life AS own ON own.log_topic = l.log_topic AND own.log_id = %(root)s
WHERE r.opened_at <= own.opened_at
ORDER BY r.opened_at, l.root_id, l.first_partition;

-- name: position_read
-- The offset up to which a partition's facts are held.
SELECT position FROM ledger.position WHERE log_id = %(log_id)s AND partition = %(partition)s;

-- name: position_lock
-- Locks the partition's row, so that two owners of it go one after the other.
INSERT INTO ledger.position (log_id, partition, log_topic, position, catalogue_hash, updated_at)
VALUES (%(log_id)s, %(partition)s, %(log_topic)s, -1, %(catalogue_hash)s, now())
ON CONFLICT (log_id, partition) DO UPDATE SET updated_at = now()
RETURNING position;

-- name: position_advance
-- Moves the position forward, never back.
UPDATE ledger.position
SET position = greatest(position, %(position)s), catalogue_hash = %(catalogue_hash)s
WHERE log_id = %(log_id)s AND partition = %(partition)s
RETURNING position;

-- name: positions_behind
-- Places of those whose acknowledged offset is beyond what this ledger holds, and what it holds.
SELECT r.n, coalesce(p.position, -1)
FROM json_to_recordset(%(rows)s::json) AS r(n integer, log_id uuid, partition integer,
                                            acknowledged bigint)
LEFT JOIN ledger.position p ON p.log_id = r.log_id AND p.partition = r.partition
WHERE coalesce(p.position, -1) < r.acknowledged ORDER BY r.n;

-- name: note_went_back
-- Notes that a worker remembers more than this ledger holds; whether a person has adopted it.
SELECT ledger.note_went_back_v1(%(log_id)s, %(partition)s, %(acknowledged)s, %(stored)s,
                                %(detail)s::json);

-- name: apply_levels
-- Keeps the reading with the greatest count; touches nothing that contradicts.
INSERT INTO ledger.level AS l (tenant_id, metric, catalogue_version, window_start, window_end,
    shard, log_id, partition, birth_offset, count, total, digest, due_at, updated_at)
SELECT r.tenant_id, r.metric, r.version, ledger.at(r.start_us), ledger.at(r.end_us), r.shard,
       %(log_id)s, %(partition)s, r.birth, r.count, r.total, r.digest,
       -- Spread over the delay, so that a full hour does not come due in one second.
       ledger.at(r.end_us + d.delay_us
                 + d.delay_us * (hashtext(r.tenant_id || r.metric) & 1023) / 1024),
       now()
FROM json_to_recordset(%(rows)s::json) AS r(tenant_id text, metric text, version integer,
    start_us bigint, end_us bigint, shard integer, birth bigint, count bigint, total numeric,
    digest numeric)
LEFT JOIN ledger.meter_version v ON v.metric = r.metric AND v.version = r.version
CROSS JOIN LATERAL (SELECT coalesce(v.close_delay_us, ledger.unknown_meter(r.metric, r.version))
                           AS delay_us) AS d
ON CONFLICT (tenant_id, metric, window_start, catalogue_version, shard, log_id) DO UPDATE
SET count = excluded.count, total = excluded.total, digest = excluded.digest,
    updated_at = excluded.updated_at, due_at = coalesce(l.due_at, excluded.due_at)
WHERE l.count < excluded.count AND l.partition = excluded.partition
  AND l.birth_offset = excluded.birth_offset;

-- name: find_levels
-- Readings that contradict the recorded one: noted, and the series is held.
WITH wrong AS (
    SELECT r.*, l.partition AS known_partition, l.birth_offset, l.count AS known_count,
           l.total AS known_total, l.digest AS known_digest,
           CASE WHEN l.partition = %(partition)s AND l.birth_offset = r.birth
                THEN 'level_differs' ELSE 'level_birth' END AS kind
    FROM json_to_recordset(%(rows)s::json) AS r(tenant_id text, metric text, version integer,
        start_us bigint, shard integer, birth bigint, count bigint, total numeric, digest numeric)
    JOIN ledger.level l ON l.tenant_id = r.tenant_id AND l.metric = r.metric
        AND l.window_start = ledger.at(r.start_us) AND l.catalogue_version = r.version
        AND l.shard = r.shard AND l.log_id = %(log_id)s
    WHERE l.partition <> %(partition)s OR l.birth_offset <> r.birth
       OR (l.count = r.count AND (l.total <> r.total OR l.digest <> r.digest))
), noted AS (
    INSERT INTO ledger.finding (kind, subject, detail)
    SELECT kind, concat_ws(' ', tenant_id, metric, 'v' || version, ledger.at(start_us), shard,
                           %(log_id)s, %(partition)s, birth, count, total, digest),
           jsonb_build_object('tenant_id', tenant_id, 'metric', metric, 'version', version,
               'window_start', ledger.at(start_us), 'shard', shard, 'log_id', %(log_id)s::text,
               'told', jsonb_build_object('partition', %(partition)s::integer, 'birth', birth,
                   'count', count, 'total', total, 'digest', digest::text),
               'recorded', jsonb_build_object('partition', known_partition, 'birth', birth_offset,
                   'count', known_count, 'total', known_total, 'digest', known_digest::text))
    FROM wrong
    ON CONFLICT (kind, subject) DO NOTHING
), held AS (
    UPDATE ledger.level l SET held = true
    FROM wrong w
    WHERE l.tenant_id = w.tenant_id AND l.metric = w.metric
      AND l.window_start = ledger.at(w.start_us) AND l.catalogue_version = w.version
      AND l.shard = w.shard AND l.log_id = %(log_id)s AND NOT l.held
)
SELECT count(*) FROM wrong;

-- name: apply_entries
-- Events and corrections become entries, each identity once for ever.
INSERT INTO ledger.meter_log (kind, tenant_id, metric, catalogue_version, window_start, window_end,
    shard, log_id, partition, record_offset, delta, event_id, content, occurred_at,
    target_event_id, reference, actor, reason)
SELECT r.kind, r.tenant_id, r.metric, r.version, ledger.at(r.start_us), ledger.at(r.end_us),
       r.shard, %(log_id)s, %(partition)s, r.record_offset, r.delta, r.event_id, r.content,
       ledger.at(r.occurred_us), r.target, r.reference, coalesce(r.actor, 'admit'), r.reason
FROM json_to_recordset(%(rows)s::json) AS r(kind text, tenant_id text, metric text,
    version integer, start_us bigint, end_us bigint, shard integer, record_offset bigint,
    delta bigint, event_id uuid, content numeric, occurred_us bigint, target uuid, reference text,
    actor text, reason text)
ON CONFLICT (kind, event_id) WHERE kind <> 'usage' DO NOTHING;

-- name: find_entries
-- Identities that are recorded with another content or amount.
WITH wrong AS (
    SELECT r.*, e.entry_id, e.delta AS known_delta, e.content AS known_content
    FROM json_to_recordset(%(rows)s::json) AS r(kind text, event_id uuid, delta bigint,
        content numeric, record_offset bigint)
    JOIN ledger.meter_log e ON e.kind = r.kind AND e.event_id = r.event_id
    WHERE e.delta <> r.delta OR e.content <> r.content
), noted AS (
    INSERT INTO ledger.finding (kind, subject, detail)
    SELECT 'entry_differs', concat_ws(' ', kind, event_id, content, delta),
           jsonb_build_object('entry_id', entry_id, 'log_id', %(log_id)s::text,
               'partition', %(partition)s::integer, 'offset', record_offset,
               'told', jsonb_build_object('delta', delta, 'content', content::text),
               'recorded', jsonb_build_object('delta', known_delta,
                                              'content', known_content::text))
    FROM wrong
    ON CONFLICT (kind, subject) DO NOTHING
)
SELECT count(*) FROM wrong;

-- name: apply_parked
-- Items for a person; a copy of one that is there already adds nothing, decided or not.
INSERT INTO ledger.parked (kind, reason, log_id, partition, record_offset, event_id, content,
    source, tenant_id, metric, units, catalogue_version, window_start, window_end, shard,
    occurred_at, received_at, detail, record)
SELECT r.kind, r.reason, %(log_id)s, %(partition)s, r.record_offset, r.event_id, r.content,
       r.source, r.tenant_id, r.metric, r.units, r.version, ledger.at(r.start_us),
       ledger.at(r.end_us), r.shard, ledger.at(r.occurred_us), ledger.at(r.received_us),
       ledger.evidence(r.detail), decode(r.record, 'base64')
FROM json_to_recordset(%(rows)s::json) AS r(kind text, reason text, record_offset bigint,
    event_id uuid, content numeric, source text, tenant_id text, metric text, units numeric,
    version integer, start_us bigint, end_us bigint, shard integer, occurred_us bigint,
    received_us bigint, detail text, record text)
ON CONFLICT DO NOTHING;

-- name: apply_cells
-- Keeps the cell with the greatest count.
INSERT INTO ledger.cell AS c (source, minute, verdict_class, log_id, partition, birth_offset,
    count, digest, updated_at)
SELECT r.source, ledger.at(r.minute_us), r.verdict_class, %(log_id)s, %(partition)s, r.birth,
       r.count, r.digest, now()
FROM json_to_recordset(%(rows)s::json) AS r(source text, minute_us bigint, verdict_class text,
    count bigint, digest numeric, birth bigint)
ON CONFLICT (source, minute, verdict_class, log_id, partition) DO UPDATE
SET count = excluded.count, digest = excluded.digest, updated_at = excluded.updated_at
WHERE c.count < excluded.count AND c.birth_offset = excluded.birth_offset;

-- name: find_cells
-- Cells that contradict the recorded one.
WITH wrong AS (
    SELECT r.*, c.birth_offset, c.count AS known_count, c.digest AS known_digest
    FROM json_to_recordset(%(rows)s::json) AS r(source text, minute_us bigint, verdict_class text,
        count bigint, digest numeric, birth bigint)
    JOIN ledger.cell c ON c.source = r.source AND c.minute = ledger.at(r.minute_us)
        AND c.verdict_class = r.verdict_class AND c.log_id = %(log_id)s
        AND c.partition = %(partition)s
    WHERE c.birth_offset <> r.birth OR (c.count = r.count AND c.digest <> r.digest)
), noted AS (
    INSERT INTO ledger.finding (kind, subject, detail)
    SELECT 'cell_differs', concat_ws(' ', source, ledger.at(minute_us), verdict_class, %(log_id)s,
                                     %(partition)s, birth, count, digest),
           jsonb_build_object('source', source, 'minute', ledger.at(minute_us),
               'class', verdict_class, 'partition', %(partition)s::integer,
               'told', jsonb_build_object('birth', birth, 'count', count, 'digest', digest::text),
               'recorded', jsonb_build_object('birth', birth_offset, 'count', known_count,
                                              'digest', known_digest::text))
    FROM wrong
    ON CONFLICT (kind, subject) DO NOTHING
)
SELECT count(*) FROM wrong;

-- name: apply_canaries
-- Single tokens for audits, and the youngest canary per source and partition.
WITH told AS (
    SELECT r.source, r.partition, r.token, ledger.at(r.received_us) AS received_at, r.record_offset
    FROM json_to_recordset(%(rows)s::json) AS r(source text, partition integer, token text,
        received_us bigint, record_offset bigint)
), tokens AS (
    INSERT INTO ledger.canary_token (source, token, partition, received_at, arrived_at)
    SELECT source, token, partition, received_at, now() FROM told
    ON CONFLICT DO NOTHING
)
INSERT INTO ledger.canary AS c (source, partition, received_at, token, log_id, record_offset,
                                arrived_at)
SELECT DISTINCT ON (source, partition) source, partition, received_at, token, %(log_id)s::uuid,
       record_offset, now()
FROM told ORDER BY source, partition, received_at DESC
ON CONFLICT (source, partition) DO UPDATE
SET received_at = excluded.received_at, token = excluded.token, log_id = excluded.log_id,
    record_offset = excluded.record_offset, arrived_at = excluded.arrived_at
WHERE c.received_at < excluded.received_at;
