-- Claiming, freezing, settling.

-- name: cut_entries
-- Cuts the next entries of series that are due; gives their number.
SELECT ledger.cut_entries_v1(%(limit)s);

-- name: lock_lanes
-- Lanes with something due, locked until the transaction ends.
SELECT array_agg(lane_id) FROM ledger.lock_lanes_v1(%(limit)s) AS lane_id;

-- name: merge_pending
-- Supersedes due requests that were surely not executed and have company for their window.
SELECT ledger.merge_pending_v1(%(lanes)s::bigint[]);

-- name: due_retries
-- The first due meter event of each lane, by lane.
SELECT DISTINCT ON (lane_id) lane_id, meter_event_id
FROM ledger.meter_event
WHERE lane_id = ANY (%(lanes)s::bigint[]) AND next_attempt_at <= now()
ORDER BY lane_id, meter_event_id;

-- name: freeze_candidates
-- The oldest entries of each lane that may become one request now.
SELECT l.lane_id, l.customer, l.event_name, ledger.us(g.window_start) AS window_start_us,
       ledger.us(g.window_end) AS window_end_us, g.units::bigint AS units, g.entry_ids,
       e.event_id::text AS event_id, ledger.us(g.occurred_at) AS occurred_at_us,
       p.generation, p.attempts_used, ledger.us(now()) AS now_us
FROM ledger.lane l
CROSS JOIN LATERAL (
    SELECT window_start, window_end, single, min(occurred_at) AS occurred_at,
           array_agg(entry_id ORDER BY entry_id) AS entry_ids, sum(delta) AS units
    FROM (
        -- A sum of more than 15 digits is sent in parts: what goes beyond waits for its turn.
        SELECT w.*, max(abs(running)) OVER (PARTITION BY window_start, window_end, single
                                            ORDER BY entry_id) AS greatest_sum
        FROM (
            SELECT u.*, sum(u.delta) OVER (PARTITION BY u.window_start, u.window_end, u.single
                                           ORDER BY u.entry_id) AS running
            FROM (
                SELECT x.*, CASE WHEN x.occurred_at IS NOT NULL THEN x.entry_id END AS single
                FROM ledger.uncovered x
                WHERE x.lane_id = l.lane_id AND x.due_at <= now()
                  AND (x.deadline_at IS NULL OR x.deadline_at > now())
                  -- A ledger that went back may have sent it: Stripe's sums tell first.
                  AND NOT EXISTS (
                        SELECT FROM ledger.doubt d
                        WHERE d.customer = l.customer AND d.event_name = l.event_name
                          AND d.window_start <= x.window_start AND d.window_end > x.window_start
                          AND d.settled_at IS NULL AND d.reason LIKE 'ledger_adopted%%')
                  -- What a waiting request will take in when it is due again is left to it.
                  AND (x.occurred_at IS NOT NULL OR NOT EXISTS (
                        SELECT FROM ledger.meter_event m
                        WHERE m.lane_id = l.lane_id AND m.window_start = x.window_start
                          AND m.window_end = x.window_end AND m.state = 'pending'
                          AND NOT m.possibly_executed AND NOT m.per_entry))
                ORDER BY x.window_start, x.entry_id LIMIT 1000) AS u) AS w) AS s
    WHERE greatest_sum < 1000000000000000
    GROUP BY window_start, window_end, single
    -- A negative amount never overtakes what is not settled: it could eat other usage.
    HAVING sum(delta) >= 0 OR NOT EXISTS (
        SELECT FROM ledger.meter_event m
        WHERE m.lane_id = l.lane_id AND m.state IN ('pending', 'ambiguous', 'dead'))
    ORDER BY window_start, min(entry_id) LIMIT 1) AS g
JOIN ledger.meter_log e ON e.entry_id = g.entry_ids[1]
CROSS JOIN LATERAL (
    SELECT coalesce(max(m.generation), 0) + 1 AS generation,
           coalesce(max(m.attempts_used), 0) AS attempts_used
    FROM ledger.meter_event_entry x JOIN ledger.meter_event m USING (meter_event_id)
    WHERE x.entry_id = ANY (g.entry_ids)) AS p
WHERE l.lane_id = ANY (%(lanes)s::bigint[]);

-- name: freeze
-- Inserts frozen requests with their entries; in the order given, their ids, and whether to send.
SELECT meter_event_id, sendable FROM ledger.freeze_v1(%(requests)s::json);

-- name: lend
-- Writes the attempts and lends the lanes; the ids of the attempts.
SELECT array_agg(attempt_id) FROM ledger.lend_v1(%(events)s::bigint[], %(worker)s, %(lease_ms)s);

-- name: attempt_stands
-- Whether the attempt that is remembered is there, and the last one that is; halts if not.
SELECT stands, attempt_id, started_us
FROM ledger.attempt_stands_v1(%(attempt_id)s, %(started_us)s);

-- name: lent
-- The claims of attempts just written.
SELECT m.lane_id, m.meter_event_id, a.attempt_id, m.customer, m.event_name, m.value,
       m.timestamp_s, m.identifier, m.payload_hash, m.key_generation, m.attempts_used,
       (SELECT count(*) FROM ledger.attempt b
        WHERE b.meter_event_id = m.meter_event_id AND b.attempt_id < a.attempt_id),
       ledger.us(m.first_attempt_at), m.possibly_executed, ledger.us(now()),
       ledger.us(a.lease_until)
FROM ledger.attempt a JOIN ledger.meter_event m USING (meter_event_id)
WHERE a.attempt_id = ANY (%(attempts)s::bigint[])
ORDER BY a.attempt_id;

-- name: rest_lanes
-- Lets lanes sleep until something is known to be due.
SELECT ledger.rest_lanes_v1(%(lanes)s::bigint[]);

-- name: pause_lane
-- Takes a lane out until a person has looked.
UPDATE ledger.lane SET paused = true, pause_reason = %(reason)s WHERE lane_id = %(lane)s;

-- name: settle_many
-- Writes the outcomes of many attempts in one transaction; their number.
SELECT ledger.settle_many_v1(%(settlements)s::json);

-- name: dead_letters
-- Dead meter events that are not in the dead-letter topic yet.
SELECT parked_id, reason, meter_event_id, tenant_id, metric, units::text,
       ledger.us(window_start), ledger.us(window_end), ledger.us(parked_at), detail::text
FROM ledger.parked
WHERE meter_event_id IS NOT NULL AND published_at IS NULL
ORDER BY parked_id LIMIT %(limit)s;

-- name: dead_letters_published
-- Marks them as written to the topic.
UPDATE ledger.parked SET published_at = now()
WHERE parked_id = ANY (%(items)s::bigint[]) AND published_at IS NULL;
