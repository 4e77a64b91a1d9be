-- What people decide: items in full, what a decision would do, and the decisions themselves.

-- name: parked_item
-- One item with where it came from, its request, and how its own invoice stands.
SELECT p.parked_id, p.kind, p.reason, p.state, p.source, p.tenant_id, p.metric,
       p.units::text AS units, p.event_id::text AS event_id, p.meter_event_id,
       ledger.us(p.window_start) AS window_start_us, ledger.us(p.window_end) AS window_end_us,
       ledger.us(p.occurred_at) AS occurred_us, ledger.us(p.received_at) AS received_us,
       ledger.us(p.parked_at) AS parked_us, ledger.us(p.decided_at) AS decided_us, p.decided_by,
       p.why, p.detail::text AS detail, p.record, l.log_topic, p.partition, p.record_offset,
       v.scale, place.customer AS payer, place.closed,
       ledger.us(place.own_deadline_at) AS deadline_us, b.units::text AS window_units,
       period.units::text AS period_units,
       ledger.needs_four_eyes(p.metric, p.units, period.alone_units) AS four_eyes,
       m.customer, m.event_name, m.value, m.timestamp_s, m.identifier, m.generation,
       m.state AS request_state, m.possibly_executed, ledger.in_doubt(m) AS doubtful,
       CASE WHEN m.state = 'dead' THEN ledger.redrive_course(m, NULL) END AS course
FROM ledger.parked p
LEFT JOIN ledger.log l USING (log_id)
LEFT JOIN ledger.meter_version v ON v.metric = p.metric AND v.version = p.catalogue_version
LEFT JOIN ledger.meter_event m USING (meter_event_id)
LEFT JOIN LATERAL ledger.place_amount(p.tenant_id, p.metric, p.catalogue_version, p.window_start,
    p.window_end, p.occurred_at, NULL) AS place ON p.kind = 'review' AND p.window_start IS NOT NULL
LEFT JOIN LATERAL (
    SELECT coalesce(sum(total + decided), 0) AS units FROM ledger.balance x
    WHERE x.tenant_id = p.tenant_id AND x.metric = p.metric AND x.window_start = p.window_start
) AS b ON p.window_start IS NOT NULL AND p.kind = 'review'
LEFT JOIN LATERAL ledger.period_standing(p.tenant_id, p.metric, p.window_start) AS period
    ON p.reason = 'correction_limit' AND p.window_start IS NOT NULL AND p.state = 'open'
WHERE p.parked_id = %(item)s;

-- name: item_attempts
-- Every attempt of an item's request.
SELECT attempt_id, key_generation, worker, ledger.us(started_at) AS started_us,
       ledger.us(finished_at) AS finished_us, outcome, http_status, code, message, request_id, cause
FROM ledger.attempt WHERE meter_event_id = %(event)s ORDER BY attempt_id;

-- name: item_versions
-- What else the ledger was told under an item's identity.
SELECT 'entry ' || entry_id AS told_by, true AS counted, false AS first, metric,
       delta::text AS units, ledger.us(occurred_at) AS occurred_us,
       ledger.us(created_at) AS received_us
FROM ledger.meter_log WHERE event_id = %(event_id)s
UNION ALL
SELECT 'item ' || parked_id, false, reason <> 'conflict', metric, units::text,
       ledger.us(occurred_at), ledger.us(received_at)
FROM ledger.parked WHERE event_id = %(event_id)s AND parked_id <> %(item)s
ORDER BY received_us;

-- name: item_decisions
-- What was decided on an item, oldest first.
SELECT action, entry_id, actor, reason, ledger.us(decided_at) AS decided_us, detail::text AS detail
FROM ledger.decision WHERE parked_id = %(item)s ORDER BY decision_id;

-- name: parked_states
-- How items stand, by number.
SELECT parked_id, kind, reason, state, decided_by, ledger.us(decided_at) AS decided_us, why,
       tenant_id, metric, units::text AS units
FROM ledger.parked WHERE parked_id = ANY (%(items)s::bigint[]) ORDER BY parked_id;

-- name: approve_item
-- Bills a reviewed item; gives its entry.
SELECT ledger.approve(%(item)s, %(reason)s, %(proof)s, %(into)s) AS entry_id;

-- name: reject_item
-- Decides that an item is not billed.
SELECT ledger.reject(%(item)s, %(reason)s);

-- name: entry_effect
-- An entry, where it stands, and what its window comes to with it.
SELECT e.entry_id, e.tenant_id, e.metric, e.delta, ledger.us(e.window_start) AS window_start_us,
       ledger.us(e.window_end) AS window_end_us, s.state, v.event_name,
       ledger.us(u.deadline_at) AS deadline_us, l.customer,
       (SELECT sum(b.total + b.decided) FROM ledger.balance b
        WHERE b.tenant_id = e.tenant_id AND b.metric = e.metric
          AND b.window_start = e.window_start)::text AS after_units
FROM ledger.meter_log e
JOIN ledger.entry_state s USING (entry_id)
JOIN ledger.meter_version v ON v.metric = e.metric AND v.version = e.catalogue_version
LEFT JOIN ledger.uncovered u USING (entry_id)
LEFT JOIN ledger.lane l USING (lane_id)
WHERE e.entry_id = %(entry)s;

-- name: redrive_selection
-- Dead items by number, or the open ones by cause, tenant and time; each with its course.
SELECT p.parked_id, p.state, p.reason, p.decided_by, ledger.us(p.decided_at) AS decided_us, p.why,
       p.units::text AS units, m.meter_event_id, m.customer, m.event_name, m.identifier,
       m.timestamp_s, ledger.in_doubt(m) AS doubtful,
       CASE WHEN m.state = 'dead' THEN ledger.redrive_course(m, %(proof)s) ELSE 'no_request' END
           AS course
FROM ledger.parked p LEFT JOIN ledger.meter_event m USING (meter_event_id)
WHERE p.kind = 'dead'
  AND (p.parked_id = ANY (%(items)s::bigint[])
       OR (%(items)s::bigint[] IS NULL AND p.state = 'open' AND p.meter_event_id IS NOT NULL))
  AND (%(cause)s::text IS NULL OR p.reason = %(cause)s
       OR EXISTS (SELECT FROM ledger.attempt a
                  WHERE a.meter_event_id = p.meter_event_id AND a.code = %(cause)s))
  AND (%(tenant)s::text IS NULL OR p.tenant_id = %(tenant)s
       OR EXISTS (SELECT FROM ledger.meter_event_entry x JOIN ledger.meter_log e USING (entry_id)
                  WHERE x.meter_event_id = p.meter_event_id AND e.tenant_id = %(tenant)s))
  AND (%(from_us)s::bigint IS NULL OR p.parked_at >= ledger.at(%(from_us)s))
  AND (%(to_us)s::bigint IS NULL OR p.parked_at < ledger.at(%(to_us)s))
ORDER BY p.parked_id;

-- name: redrive_causes
-- What open dead requests died of: kinds, and codes of their attempts.
SELECT DISTINCT cause FROM ledger.parked p
CROSS JOIN LATERAL (
    SELECT p.reason AS cause
    UNION ALL
    SELECT a.code FROM ledger.attempt a
    WHERE a.meter_event_id = p.meter_event_id AND a.code IS NOT NULL) AS c
WHERE p.kind = 'dead' AND p.state = 'open' AND p.meter_event_id IS NOT NULL
ORDER BY cause;

-- name: redrive_item
-- Sends a dead meter event again.
SELECT ledger.redrive(%(item)s, %(reason)s, %(proof)s) AS meter_event_id;

-- name: plan_correction
-- What a correction would do, and who asks.
SELECT p.problem, p.hint, p.version, p.scale, p.event_name, p.customer, p.closed, p.four_eyes,
       ledger.us(p.meant_start) AS meant_start_us, ledger.us(p.window_start) AS window_start_us,
       ledger.us(p.window_end) AS window_end_us, ledger.us(p.deadline_at) AS deadline_us,
       ledger.us(p.own_deadline_at) AS own_deadline_us, p.window_before::text AS window_before,
       ledger.us(p.period_from) AS period_from_us, ledger.us(p.period_to) AS period_to_us,
       p.period_before::text AS period_before, p.waiting_before::text AS waiting_before,
       p.limit_units::text AS limit_units, p.alone_before::text AS alone_before, p.entry_id,
       p.proposal_id, session_user::text AS actor, ledger.us(now()) AS now_us
FROM ledger.plan_correction(%(tenant)s, %(metric)s, ledger.at(%(instant_us)s), %(units)s, %(key)s,
                            %(into)s) AS p;

-- name: metric_scale
-- Decimal places of a metric at an instant.
SELECT scale FROM ledger.meter_version
WHERE metric = %(metric)s AND effective_from <= ledger.at(%(instant_us)s)
ORDER BY effective_from DESC LIMIT 1;

-- name: correct
-- Books a correction; gives its entry.
SELECT ledger.correct(%(tenant)s, %(metric)s, ledger.at(%(instant_us)s), %(units)s, %(key)s,
                      %(reason)s, %(target)s, %(into)s) AS entry_id;

-- name: propose_correction
-- Asks another login for a correction; gives the proposal.
SELECT ledger.propose_correction(%(tenant)s, %(metric)s, ledger.at(%(instant_us)s), %(units)s,
                                 %(key)s, %(reason)s, %(target)s, %(into)s) AS proposal_id;

-- name: proposals
-- Proposals, the open ones or all; newest last.
SELECT p.proposal_id, p.tenant_id, p.metric, p.units::text AS units, p.correction_key,
       p.choice AS into, p.reason, p.proposed_by, ledger.us(p.proposed_at) AS proposed_us, p.state,
       p.decided_by, ledger.us(p.decided_at) AS decided_us, p.why, p.entry_id,
       ledger.us(p.instant) AS instant_us, p.target_event_id::text AS target
FROM ledger.proposal p
WHERE (%(proposal)s::bigint IS NULL OR p.proposal_id = %(proposal)s)
  AND (%(decided)s OR p.state = 'open')
  AND (%(tenant)s::text IS NULL OR p.tenant_id = %(tenant)s)
ORDER BY p.proposal_id;

-- name: corrections
-- Corrections in the books, newest last.
SELECT e.entry_id, e.tenant_id, e.metric, e.delta::text AS units, e.reference AS correction_key,
       e.actor, e.reason, ledger.us(e.window_start) AS window_start_us,
       ledger.us(e.occurred_at) AS occurred_us, ledger.us(e.created_at) AS created_us,
       e.target_event_id::text AS target, s.state
FROM ledger.meter_log e JOIN ledger.entry_state s USING (entry_id)
WHERE e.kind = 'correction' AND (%(key)s::text IS NULL OR e.reference = %(key)s)
  AND (%(tenant)s::text IS NULL OR e.tenant_id = %(tenant)s)
ORDER BY e.entry_id;

-- name: ended_by
-- Items that a correction's entry resolved.
SELECT parked_id FROM ledger.decision
WHERE action = 'end' AND detail -> 'corrections' @> to_jsonb(%(entry)s::bigint) ORDER BY parked_id;

-- name: approve_proposal
-- The second pair of eyes; gives the entry.
SELECT ledger.approve_proposal(%(proposal)s, %(reason)s, %(into)s) AS entry_id;

-- name: reject_proposal
-- Turns a proposal down, or takes one's own back.
SELECT ledger.reject_proposal(%(proposal)s, %(reason)s);

-- name: event_known
-- When and under which metric the ledger knows an identity.
SELECT metric, ledger.us(occurred_at) AS occurred_us FROM ledger.meter_log
WHERE event_id = %(event_id)s AND kind IN ('event', 'approval')
UNION ALL
SELECT metric, ledger.us(occurred_at) FROM ledger.parked
WHERE event_id = %(event_id)s AND occurred_at IS NOT NULL
LIMIT 1;

-- name: correction_limits
-- What one person may correct alone, for all metrics and for single ones.
SELECT substr(name, 18) AS metric, value AS units FROM ledger.setting
WHERE name = 'correction_limit' OR name LIKE 'correction\_limit.%%' ORDER BY name;

-- name: set_correction_limit
-- Sets such a limit; false when it is so already.
SELECT ledger.set_correction_limit(%(units)s, %(metric)s, %(reason)s) AS changed;
