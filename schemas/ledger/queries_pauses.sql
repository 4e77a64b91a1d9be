-- What operators order: pauses of publishing, records that are skipped.

-- name: pause
-- Pauses publishing; whether it was not paused before, receipt, by whom, since when, why.
SELECT changed, receipt, by_whom, ledger.us(since), because
FROM ledger.pause_v1(%(scope)s, %(subject)s, %(reason)s, %(actor)s);

-- name: resume
-- Ends a pause; no row where there never was one.
SELECT changed, receipt, by_whom, ledger.us(since), because
FROM ledger.resume_v1(%(scope)s, %(subject)s, %(reason)s, %(actor)s);

-- name: pauses
-- Pauses in force, with the lanes and amounts that wait for their end; of these amounts, what has no
-- lane yet, because its tenant has no customer.
SELECT p.scope, p.subject, p.reason, p.paused_by, ledger.us(p.paused_at), p.paused_receipt,
       w.lanes, (w.units + n.units)::text, n.units::text
FROM ledger.pause p
CROSS JOIN LATERAL (
    SELECT count(*) AS lanes, coalesce(sum(x.units), 0) AS units
    FROM ledger.lane l
    CROSS JOIN LATERAL (
        SELECT sum(part.units) AS units FROM (
            SELECT sum(m.units) AS units FROM ledger.meter_event m
            WHERE m.lane_id = l.lane_id AND m.state IN ('pending', 'ambiguous')
            UNION ALL
            SELECT sum(u.delta) FROM ledger.uncovered u WHERE u.lane_id = l.lane_id) AS part) AS x
    WHERE ledger.pause_concerns(p.scope, p.subject, l.customer, l.event_name)) AS w
CROSS JOIN LATERAL (
    SELECT coalesce(sum(u.delta), 0) AS units
    FROM ledger.uncovered u JOIN ledger.meter_log e USING (entry_id)
    WHERE u.lane_id IS NULL AND ledger.pause_awaits(p.scope, p.subject, e.tenant_id, e.metric)) AS n
WHERE p.resumed_at IS NULL
ORDER BY p.paused_at, p.pause_id;

-- name: pauses_active
-- Pauses in force by scope, for metrics.
SELECT scope, count(*) FROM ledger.pause WHERE resumed_at IS NULL GROUP BY scope;

-- name: pause_plan
-- What a pause would hold back: lanes with something to send, requests in flight, requests in
-- doubt and their oldest first attempt, the nearest billing deadline, other tenants concerned.
WITH concerned AS (
    SELECT l.* FROM ledger.lane l
    WHERE ledger.pause_concerns(%(scope)s, %(subject)s, l.customer, l.event_name)
), waiting AS (
    SELECT m.state = 'ambiguous' AS doubt, m.first_attempt_at, m.deadline_at, m.units
    FROM ledger.meter_event m JOIN concerned USING (lane_id)
    WHERE m.state IN ('pending', 'ambiguous')
    UNION ALL
    SELECT false, NULL, u.deadline_at, u.delta
    FROM ledger.uncovered u JOIN concerned USING (lane_id)
)
SELECT (SELECT count(*) FROM concerned WHERE next_due_at IS NOT NULL),
       (SELECT count(*) FROM concerned WHERE claimed_until > now()),
       (SELECT coalesce(sum(units), 0)::text FROM waiting),
       (SELECT count(*) FROM waiting WHERE doubt),
       ledger.us((SELECT min(first_attempt_at) FROM waiting WHERE doubt)),
       ledger.us((SELECT min(deadline_at) FROM waiting WHERE deadline_at > now())),
       (SELECT array_agg(DISTINCT c.tenant_id ORDER BY c.tenant_id)
        FROM ledger.customer c JOIN concerned USING (customer)
        WHERE %(scope)s = 'tenant' AND c.tenant_id <> %(subject)s),
       ledger.us(now());

-- name: tenant_known
-- Whether anything was ever recorded or mapped for a tenant.
SELECT EXISTS (SELECT FROM ledger.customer c WHERE c.tenant_id = %(tenant)s)
    OR EXISTS (SELECT FROM ledger.level l WHERE l.tenant_id = %(tenant)s)
    OR EXISTS (SELECT FROM ledger.meter_log e WHERE e.tenant_id = %(tenant)s);

-- name: lanes_stopped
-- Lanes that publishing itself took out, because Stripe could not take what is next in them.
SELECT l.lane_id, l.customer, l.event_name, l.pause_reason FROM ledger.lane l
WHERE l.paused ORDER BY l.lane_id;

-- name: resume_lane
-- Lets such a lane go on; false where it was not stopped.
SELECT ledger.resume_lane(%(lane)s, %(reason)s);

-- name: report_held
-- A worker says that a record holds its partition.
INSERT INTO ledger.held_record AS h (log_id, partition, record_offset, fingerprint, reason,
                                     record_bytes, worker)
VALUES (%(log_id)s, %(partition)s, %(offset)s, %(fingerprint)s, %(reason)s, %(record_bytes)s,
        %(worker)s)
ON CONFLICT (log_id, partition, record_offset) DO UPDATE
SET reason = excluded.reason, worker = excluded.worker, seen_at = now()
WHERE h.fingerprint = excluded.fingerprint;

-- name: held_records
-- Records that held a partition and are not passed yet, or were decided on.
SELECT h.log_id::text, h.partition, h.record_offset, h.fingerprint, h.reason, h.record_bytes,
       h.worker, ledger.us(h.held_at), ledger.us(h.seen_at), s.reason, s.actor,
       ledger.us(s.decided_at), s.receipt,
       EXISTS (SELECT FROM ledger.parked d
               WHERE d.kind = 'dead' AND d.log_id = h.log_id AND d.partition = h.partition
                 AND d.record_offset = h.record_offset),
       coalesce(p.position >= h.record_offset, false), ledger.us(now()),
       n.tenant_id, n.event_key, n.actor, n.receipt
FROM ledger.held_record h
LEFT JOIN ledger.skip s USING (log_id, partition, record_offset)
LEFT JOIN ledger.skip_name n USING (log_id, partition, record_offset)
LEFT JOIN ledger.position p ON p.log_id = h.log_id AND p.partition = h.partition
WHERE s.log_id IS NOT NULL OR p.position IS NULL OR p.position < h.record_offset
ORDER BY h.held_at, h.partition;

-- name: skip_record
-- Decides that the held record is dead-lettered; as `pause` answers.
SELECT changed, receipt, by_whom, ledger.us(since), because
FROM ledger.skip_record_v1(%(partition)s, %(offset)s, %(reason)s, %(actor)s);

-- name: name_skipped
-- Notes which recorded identity a skipped record was; as `skip_record` answers.
SELECT changed, receipt, by_whom, ledger.us(since), because
FROM ledger.name_skipped_v1(%(named)s::json, %(reason)s, %(actor)s);

-- name: skips
-- All decisions to skip a record.
SELECT log_id::text, partition, record_offset, fingerprint, reason, actor, receipt
FROM ledger.skip ORDER BY receipt;
