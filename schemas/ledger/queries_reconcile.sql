-- Reconciling with Stripe's sums, taking on a restored ledger, and what became of the last audits.

-- name: cells
-- The ledger's side of every cell of a range, as of now.
SELECT customer, event_name, start_us, end_us, recorded, doubtful, reported, in_flight, waiting,
       waiting_negative, waiting_entries, reasons, ready, quiet_from_us,
       ledger.at(end_us) <= now() AS is_over,
       coalesce(ledger.at(deadline_us) <= now(), false) AS is_late
FROM ledger.cells_v1(%(from_us)s, %(to_us)s, %(customer)s, %(event_name)s);

-- name: lanes
-- Customers and event names that were ever sent to. A ledger that went back may have forgotten
-- some: then all that the mappings of now could have led to.
SELECT customer, event_name
FROM (SELECT l.customer, l.event_name FROM ledger.lane l
      UNION
      SELECT c.customer, v.event_name FROM ledger.customer c CROSS JOIN ledger.meter_version v
      WHERE EXISTS (SELECT FROM ledger.halt
                    WHERE kind = 'ledger_went_back' AND lifted_at IS NULL)
         OR EXISTS (SELECT FROM ledger.adoption
                    WHERE adopted_at > now() - ledger.interval_setting('adoption_reach'))) AS p
WHERE (%(customer)s::text IS NULL OR customer = %(customer)s)
  AND (%(event_name)s::text IS NULL OR event_name = %(event_name)s)
ORDER BY 1, 2;

-- name: limits
-- How long sums must stand still, cell lengths by event name, the ledger's id and time.
SELECT (extract(epoch FROM ledger.interval_setting('reconcile_still')) * 1000000)::bigint
           AS still_us,
       (SELECT i.ledger_id::text || coalesce((SELECT '.' || max(a.adoption_id)
                                              FROM ledger.adoption a), '')
        FROM ledger.identity i) AS ledger_id,
       coalesce((SELECT json_object_agg(n.event_name, ledger.cell_us(n.event_name))
                 FROM (SELECT DISTINCT v.event_name FROM ledger.meter_version v) AS n),
                '{}'::json) AS cell_us,
       ledger.us(now()) AS now_us;

-- name: note_readings
-- Notes what Stripe said, and how many reads of its allowance that took.
SELECT ledger.note_readings_v1(%(rows)s::json, %(reads)s);

-- name: readings
-- What Stripe said of a cell, oldest first; only the latest hundred.
SELECT reading_id, ledger.us(read_at) AS at_us, value::text AS value
FROM (SELECT * FROM ledger.summary_reading
      WHERE customer = %(customer)s AND event_name = %(event_name)s
        AND cell_start = ledger.at(%(start_us)s) AND cell_end = ledger.at(%(end_us)s)
      ORDER BY reading_id DESC LIMIT 100) AS latest
ORDER BY reading_id;

-- name: settle_cell
-- Writes down what Stripe's sums proved of one cell: settled, carried or moved.
SELECT ledger.settle_cell_v1(%(told)s::json, %(reason)s, %(actor)s) AS outcome;

-- name: receipts
-- Cells of a range that were settled before, oldest first, and what became of what was sent.
SELECT ledger.us(a.at) AS at_us, a.actor, a.detail ->> 'reason' AS reason,
       a.detail ->> 'customer' AS customer, a.detail ->> 'event_name' AS event_name,
       (a.detail ->> 'start_us')::bigint AS start_us,
       jsonb_array_length(a.detail -> 'present')::bigint AS present,
       jsonb_array_length(a.detail -> 'absent')::bigint AS absent,
       a.detail ->> 'net_units' AS net_units, m.meter_event_id AS net_request,
       m.state AS net_state
FROM ledger.audit_log a
LEFT JOIN ledger.meter_event m ON m.meter_event_id = (a.detail ->> 'net_request')::bigint
WHERE a.action = 'reconcile'
  AND (a.detail ->> 'start_us')::bigint >= %(from_us)s
  AND (a.detail ->> 'start_us')::bigint < %(to_us)s
  AND (%(customer)s::text IS NULL OR a.detail ->> 'customer' = %(customer)s)
  AND (%(event_name)s::text IS NULL OR a.detail ->> 'event_name' = %(event_name)s)
ORDER BY a.audit_id;

-- name: take_back_unnamed
-- Takes back what Stripe rejected and did not name: taken_back or moved.
SELECT ledger.take_back_unnamed_v1(%(told)s::json, %(reason)s, %(actor)s) AS outcome;

-- name: dated
-- The latest date of requests.
SELECT max(timestamp_s) AS timestamp_s FROM ledger.meter_event
WHERE meter_event_id = ANY (%(events)s::bigint[]);

-- name: reads
-- How many times Stripe was read in the last 30 days.
SELECT coalesce(sum((detail ->> 'reads')::bigint), 0)::bigint AS reads FROM ledger.audit_log
WHERE action = 'read_summaries' AND at > now() - interval '30 days';

-- name: went_back
-- Partitions of which workers remember more than this ledger holds, and nobody has adopted it.
SELECT b.log_id::text AS log_id, l.log_topic AS topic, b.partition, b.stored, b.acknowledged,
       ledger.us(b.noted_at) AS noted_us
FROM ledger.went_back b LEFT JOIN ledger.log l ON l.log_id = b.log_id
WHERE b.adoption_id IS NULL ORDER BY l.log_topic, b.log_id, b.partition;

-- name: adoption_state
-- Whether publishing is halted because the ledger went back, and what is unsettled.
SELECT EXISTS (SELECT FROM ledger.halt
               WHERE kind = 'ledger_went_back' AND lifted_at IS NULL) AS halted,
       (SELECT (detail ->> 'attempt_id')::bigint FROM ledger.halt
        WHERE kind = 'ledger_went_back' AND lifted_at IS NULL) AS forgotten_attempt,
       (SELECT count(*) FROM ledger.meter_event
        WHERE state IN ('pending', 'ambiguous', 'dead')) AS unsettled,
       (SELECT count(*) FROM ledger.doubt
        WHERE settled_at IS NULL AND reason LIKE 'ledger_adopted%%') AS cells_to_compare;

-- name: adoptions
-- The receipts of adoptions, youngest first.
SELECT adoption_id, ledger.us(adopted_at) AS at_us, actor, reason, detail::text AS detail
FROM ledger.adoption ORDER BY adoption_id DESC LIMIT 1;

-- name: adopt
-- Takes a restored ledger on; NULL: there is nothing to adopt.
SELECT ledger.adopt_v1(%(reason)s, %(actor)s, %(declared)s) AS adoption_id;
