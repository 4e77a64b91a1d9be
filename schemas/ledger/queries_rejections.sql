-- Error reports: noting them, and taking back what they name.

-- name: known_reports
-- Which of these reports the ledger has.
SELECT event_id FROM ledger.error_report WHERE event_id = ANY (%(ids)s::text[]);

-- name: note_report
-- Notes a report with the requests it names; false where it was noted before.
SELECT ledger.note_report_v1(%(report)s::json, %(samples)s::json, %(reach)s::json);

-- name: lock_rejected
-- The meter events that a report names, or NULL: those in doubt, locked until the transaction ends.
SELECT array_agg(id) FROM ledger.lock_rejected_v1(%(report)s, %(reach)s::json) AS id;

-- name: accused
-- What is known of meter events that reports name.
SELECT m.meter_event_id, m.state, m.dead_kind, m.rejected_at IS NOT NULL,
       (SELECT array_agg(x.key_generation) FROM ledger.rejection x
        WHERE x.meter_event_id = m.meter_event_id),
       coalesce((SELECT json_agg(json_build_array(a.key_generation, a.outcome, a.http_status))
                 FROM ledger.attempt a WHERE a.meter_event_id = m.meter_event_id), '[]')
FROM ledger.meter_event m WHERE m.meter_event_id = ANY (%(events)s::bigint[])
ORDER BY m.meter_event_id;

-- name: take_back
-- Makes rejected meter events dead, with the reports as evidence.
SELECT ledger.take_back_v1(%(decisions)s::json);

-- name: doubt_unnamed
-- Marks the cells that the errors beyond a report's samples may be of.
SELECT ledger.doubt_unnamed_v1(%(report)s, %(reach)s::json);

-- name: narrow_doubt
-- Gives up marks that what was just decided has explained.
SELECT ledger.narrow_doubt_v1(%(events)s::bigint[], %(reach)s::json);

-- name: claim_sweep
-- From when on to read Stripe's reports; NULL: another reader did so a moment ago.
SELECT ledger.claim_sweep_v1(%(pause_ms)s * interval '1 millisecond');

-- name: swept
-- Everything up to then has been read.
SELECT ledger.swept_v1(%(until_us)s);

-- name: unanswered
-- Notes that Stripe gave no answer to a sweep, or refused its key.
SELECT ledger.unanswered_v1(%(refused)s, %(cause)s);

-- name: reports
-- The youngest reports with what they came to.
SELECT r.event_id, r.event_type,
       coalesce(r.event_name, (SELECT min(m.event_name) FROM ledger.rejection x
                               JOIN ledger.meter_event m USING (meter_event_id)
                               WHERE x.event_id = r.event_id)) AS event_name,
       ledger.us(r.validation_start) AS start_us,
       ledger.us(r.validation_end) AS end_us, r.error_count, r.unnamed, r.noted_by,
       ledger.us(r.noted_at) AS noted_us,
       (SELECT count(*) FROM ledger.rejection x WHERE x.event_id = r.event_id) AS named,
       (SELECT count(DISTINCT x.meter_event_id) FROM ledger.rejection x
        WHERE x.event_id = r.event_id) AS meter_events,
       (SELECT coalesce(json_object_agg(code, n ORDER BY code), '{}')::text
        FROM (SELECT code, count(*) AS n FROM ledger.rejection x
              WHERE x.event_id = r.event_id GROUP BY code) AS c) AS codes
FROM ledger.error_report r ORDER BY r.noted_at DESC, r.event_id LIMIT %(limit)s;

-- name: unknown_requests
-- Requests that reports name and this ledger does not know, youngest report first: those of a ledger
-- that was restored, of another one on the same account, and those whose answer was lost.
SELECT x.event_id, x.idempotency_key, x.code, x.message, ledger.us(r.noted_at) AS noted_us
FROM ledger.rejection x JOIN ledger.error_report r USING (event_id)
WHERE x.meter_event_id IS NULL AND (x.identifier IS NULL OR x.identifier LIKE 'm1:%%')
ORDER BY r.noted_at DESC, x.event_id, x.idempotency_key, x.code LIMIT %(limit)s;

-- name: doubts
-- Cells that wait for reconciliation, oldest first.
SELECT customer, event_name, ledger.us(window_start) AS start_us, ledger.us(window_end) AS end_us,
       reason, ledger.us(noted_at) AS noted_us
FROM ledger.doubt WHERE settled_at IS NULL ORDER BY noted_at, doubt_id LIMIT %(limit)s;

-- name: sweep_state
-- Up to when Stripe's reports have been read, and how many cells wait.
SELECT (SELECT ledger.us(swept_until) FROM ledger.report_sweep) AS swept_us,
       (SELECT count(*) FROM ledger.error_report) AS reports,
       (SELECT count(*) FROM ledger.doubt WHERE settled_at IS NULL) AS doubts,
       (SELECT count(*) FROM ledger.rejection
        WHERE meter_event_id IS NULL
          AND (identifier IS NULL OR identifier LIKE 'm1:%%')) AS unknown,
       ledger.us(now()) AS now_us;
