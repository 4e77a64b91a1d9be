-- What audits, status and trace read, and the seals that audits set.

-- name: cells
-- Verdicts per minute and class of a source, all logs and partitions together; what people named of
-- skipped records is such a verdict.
SELECT ledger.us(minute), verdict_class, sum(count)::bigint,
       mod(sum(digest), 340282366920938463463374607431768211456)::text
FROM (SELECT source, minute, verdict_class, count, digest FROM ledger.cell
      UNION ALL
      SELECT source, minute,
             CASE kind WHEN 'conflict' THEN 'skipped conflict' ELSE 'skipped' END, 1, content
      FROM ledger.skip_name) AS told
WHERE source = %(source)s AND minute >= ledger.at(%(from_us)s) AND minute < ledger.at(%(to_us)s)
GROUP BY minute, verdict_class ORDER BY minute, verdict_class;

-- name: canaries_arrived
-- The partitions whose canary with this token has arrived.
SELECT partition FROM ledger.canary_token
WHERE source = %(source)s AND token = %(token)s ORDER BY partition;

-- name: partitions_followed
-- How many partitions the topic has that is followed now; NULL where nobody noted it.
SELECT max(l.partitions) FROM ledger.log_life AS l JOIN ledger.log_followed AS f USING (log_id)
WHERE l.log_topic = %(topic)s;

-- name: canary_ages
-- Age of the youngest canary of each partition.
SELECT source, partition, ledger.us(received_at), ledger.us(now()) - ledger.us(received_at)
FROM ledger.canary ORDER BY source, partition;

-- name: sums
-- Settled meter events per customer, event name and UTC hour of their timestamp.
SELECT customer, event_name, timestamp_s / 3600 * 3600 AS hour_s, sum(units)::text, count(*)
FROM ledger.meter_event
WHERE state = 'recorded' AND timestamp_s >= %(from_s)s AND timestamp_s < %(to_s)s
GROUP BY 1, 2, 3 ORDER BY 1, 2, 3;

-- name: amounts
-- Both sides of the ledger's own equation, all windows together.
SELECT coalesce(sum(events), 0)::bigint, coalesce(sum(total), 0)::text,
       coalesce(sum(decided), 0)::text, coalesce(sum(settled), 0)::text,
       coalesce(sum(pending), 0)::text, coalesce(sum(held), 0)::text, coalesce(sum(dead), 0)::text,
       coalesce(sum(ambiguous), 0)::text
FROM ledger.balance;

-- name: parked_by_class
-- Parked identities of a source by kind, for the comparison with the cells.
SELECT kind, reason, count(*) FROM ledger.parked
WHERE source = %(source)s AND meter_event_id IS NULL GROUP BY 1, 2 ORDER BY 1, 2;

-- name: skipped_records
-- Records that people decided to go on without, and how far that came.
SELECT s.log_id::text, s.partition, s.record_offset, s.reason, s.actor, ledger.us(s.decided_at),
       s.receipt, d.parked_id IS NOT NULL, coalesce(p.position >= s.record_offset, false), d.record,
       d.event_id IS NOT NULL, n.event_id::text, n.tenant_id, n.event_key, n.actor, n.reason,
       n.receipt
FROM ledger.skip s
LEFT JOIN ledger.skip_name n USING (log_id, partition, record_offset)
LEFT JOIN ledger.parked d ON d.kind = 'dead' AND d.log_id = s.log_id
    AND d.partition = s.partition AND d.record_offset = s.record_offset
LEFT JOIN ledger.position p ON p.log_id = s.log_id AND p.partition = s.partition
ORDER BY s.receipt;

-- name: sealed
-- The seals of a source.
SELECT ledger.us(minute), count, digest::text FROM ledger.sealed_minute
WHERE source = %(source)s AND minute >= ledger.at(%(from_us)s) AND minute < ledger.at(%(to_us)s)
ORDER BY minute;

-- name: seal
-- Seals minutes; one that is sealed stays as it is.
INSERT INTO ledger.sealed_minute (source, minute, count, digest)
SELECT %(source)s, ledger.at(r.minute_us), r.count, r.digest
FROM json_to_recordset(%(rows)s::json) AS r(minute_us bigint, count bigint, digest numeric)
ON CONFLICT (source, minute) DO NOTHING;

-- name: audit_note
-- Notes that an audit was completed.
INSERT INTO ledger.audit_log (action, subject, detail)
VALUES ('audit', %(source)s, %(detail)s::jsonb);

-- name: last_audits
-- The last audit of each source: its age and its verdict.
SELECT DISTINCT ON (subject) subject, ledger.us(now()) - ledger.us(at),
       coalesce((detail ->> 'lost')::bigint, 0), coalesce((detail ->> 'double')::bigint, 0),
       coalesce((detail ->> 'findings')::bigint, 0)
FROM ledger.audit_log WHERE action = 'audit' ORDER BY subject, at DESC;

-- name: prune_canaries
-- Drops single canary tokens that no audit waits for any more.
DELETE FROM ledger.canary_token
WHERE arrived_at < now() - ledger.interval_setting('canary_retention');

-- name: findings
-- Open contradictions, oldest first.
SELECT finding_id, kind, subject, detail::text, ledger.us(found_at)
FROM ledger.finding WHERE cleared_at IS NULL AND NOT starts_with(kind, 'meter_')
ORDER BY finding_id LIMIT %(limit)s;

-- name: misplaced
-- What the work list must never disagree on: entries neither covered nor listed, or both, and
-- lanes that sleep although something is due.
SELECT (SELECT count(*) FROM ledger.meter_log e
        WHERE (EXISTS (SELECT FROM ledger.meter_event_entry x
                       WHERE x.entry_id = e.entry_id AND x.live))
            = (EXISTS (SELECT FROM ledger.uncovered u WHERE u.entry_id = e.entry_id))),
       (SELECT count(*) FROM ledger.level l
        WHERE l.due_at IS NULL AND NOT l.held AND l.total <> coalesce((
            SELECT sum(e.delta) FROM ledger.meter_log e
            WHERE e.kind = 'usage' AND e.tenant_id = l.tenant_id AND e.metric = l.metric
              AND e.window_start = l.window_start AND e.shard = l.shard AND e.log_id = l.log_id
              AND e.catalogue_version = l.catalogue_version), 0));

-- name: status
-- Figures for metrics, as one JSON text.
SELECT json_build_object(
    'now_us', ledger.us(now()),
    'meter_events', coalesce((SELECT json_object_agg(state, n) FROM (
        SELECT state, count(*) AS n FROM ledger.meter_event
        WHERE state IN ('pending', 'ambiguous', 'dead') GROUP BY state) AS s), '{}'::json),
    'oldest_pending_us', (SELECT ledger.us(min(created_at)) FROM ledger.meter_event
                          WHERE state IN ('pending', 'ambiguous')),
    'uncovered', (SELECT count(*) FROM ledger.uncovered WHERE lane_id IS NOT NULL),
    'oldest_uncovered_us', (SELECT ledger.us(min(due_at)) FROM ledger.uncovered
                            WHERE lane_id IS NOT NULL),
    'unmapped', (SELECT count(*) FROM ledger.uncovered WHERE lane_id IS NULL),
    'carry', (SELECT count(*) FROM ledger.uncovered WHERE deadline_at <= now()),
    'levels_due', (SELECT count(*) FROM ledger.level WHERE due_at <= now() AND NOT held),
    'oldest_level_due_us', (SELECT ledger.us(min(due_at)) FROM ledger.level
                            WHERE due_at <= now() AND NOT held),
    'series_held', (SELECT count(*) FROM ledger.level WHERE held),
    'lanes_paused', (SELECT count(*) FROM ledger.lane WHERE paused),
    'parked_open', coalesce((SELECT json_object_agg(kind || '.' || reason, n) FROM (
        SELECT kind, reason, count(*) AS n FROM ledger.parked WHERE state = 'open'
        GROUP BY kind, reason) AS p), '{}'::json),
    'oldest_parked_us', (SELECT ledger.us(min(parked_at)) FROM ledger.parked
                         WHERE state = 'open'),
    'findings_open', (SELECT count(*) FROM ledger.finding WHERE cleared_at IS NULL),
    'halts', coalesce((SELECT json_agg(kind) FROM ledger.halt WHERE lifted_at IS NULL),
                      '[]'::json),
    'canary_age_us_max', (SELECT ledger.us(now()) - ledger.us(min(received_at))
                          FROM ledger.canary))::text;

-- name: trace_parked
-- Parked items of an identity.
SELECT parked_id, kind, reason, state, decided_by, why, partition, record_offset, units::text,
       detail::text
FROM ledger.parked WHERE event_id = %(event_id)s::uuid ORDER BY parked_id;

-- name: trace_level
-- The readings of a tenant's window that contains an instant.
SELECT catalogue_version, ledger.us(window_start), ledger.us(window_end), shard, partition,
       birth_offset, count, total::text, held, ledger.us(due_at)
FROM ledger.level
WHERE tenant_id = %(tenant_id)s AND metric = %(metric)s
  AND window_start <= ledger.at(%(occurred_at_us)s) AND window_end > ledger.at(%(occurred_at_us)s)
ORDER BY catalogue_version, shard, log_id;

-- name: trace_entries
-- Entries of an identity, or of the window that contains an instant, with the state of each.
SELECT e.entry_id, e.kind, e.revision, e.delta, e.event_id::text, e.actor, e.reason,
       ledger.us(e.created_at), s.state, s.meter_event_id
FROM ledger.meter_log e JOIN ledger.entry_state s USING (entry_id)
WHERE e.event_id = %(event_id)s::uuid
   OR (e.tenant_id = %(tenant_id)s AND e.metric = %(metric)s
       AND e.window_start <= ledger.at(%(occurred_at_us)s)
       AND e.window_end > ledger.at(%(occurred_at_us)s))
ORDER BY e.entry_id;

-- name: trace_meter_events
-- Every meter event that ever covered one of these entries.
SELECT meter_event_id, customer, event_name, value, timestamp_s, identifier, generation, state,
       dead_kind, superseded_by, ledger.us(settled_at)
FROM ledger.meter_event
WHERE meter_event_id IN (SELECT x.meter_event_id FROM ledger.meter_event_entry x
                         WHERE x.entry_id = ANY (%(entries)s::bigint[]))
ORDER BY meter_event_id;

-- name: trace_attempts
-- The attempts of meter events.
SELECT attempt_id, meter_event_id, key_generation, worker, ledger.us(started_at),
       ledger.us(finished_at), outcome, http_status, code, message, request_id, cause
FROM ledger.attempt WHERE meter_event_id = ANY (%(events)s::bigint[]) ORDER BY attempt_id;
