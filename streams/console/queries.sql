-- What only a screen asks of the ledger: the last hour as curves, windows, a tenant's statement, and
-- who did what. Everything else is asked by the statements of the commands.

-- name: recent_attempts
-- The last five minutes of publishing: what came to an end, and what was repeated.
-- Attempts are numbered in their order, so the youngest are found without an index on time.
WITH recent AS (
    SELECT a.meter_event_id, a.started_at, a.outcome
    FROM (SELECT * FROM ledger.attempt ORDER BY attempt_id DESC LIMIT 20000) AS a
    WHERE a.started_at > now() - interval '5 minutes'
)
SELECT count(*)::bigint AS attempts,
       count(DISTINCT m.meter_event_id) FILTER (
           WHERE m.state = 'recorded' AND m.settled_at > now() - interval '5 minutes')::bigint
           AS published,
       count(*) FILTER (WHERE r.started_at > m.first_attempt_at)::bigint AS retries,
       count(*) FILTER (WHERE r.outcome = 'AlreadyRecorded')::bigint AS already_there,
       -- Where more was attempted than is looked at, over the time that it took.
       CASE WHEN count(*) < 20000 THEN 300.0
            ELSE greatest(1, extract(epoch FROM now() - min(r.started_at))) END::float8 AS span_s
FROM recent AS r JOIN ledger.meter_event AS m USING (meter_event_id);

-- name: settle_latency
-- Seconds from a request's making to its settlement, by minute of the last hour.
WITH recent AS (
    SELECT DISTINCT a.meter_event_id
    FROM (SELECT * FROM ledger.attempt ORDER BY attempt_id DESC LIMIT 20000) AS a
    WHERE a.started_at > now() - interval '1 hour'
)
SELECT ledger.us(date_trunc('minute', m.settled_at)) AS minute_us,
       (percentile_cont(0.5) WITHIN GROUP (ORDER BY s.took_s))::float8 AS half_s,
       (percentile_cont(0.99) WITHIN GROUP (ORDER BY s.took_s))::float8 AS most_s
FROM recent AS r
JOIN ledger.meter_event AS m USING (meter_event_id)
CROSS JOIN LATERAL (SELECT extract(epoch FROM m.settled_at - m.created_at) AS took_s) AS s
WHERE m.state = 'recorded' AND m.settled_at > now() - interval '1 hour'
GROUP BY minute_us ORDER BY minute_us;

-- name: ages_in_flight
-- How old what is not settled is: requests up to an age in seconds.
SELECT width_bucket(extract(epoch FROM now() - m.created_at)::float8, %(edges_s)s::float8[])
           AS bucket,
       count(*)::bigint AS count
FROM ledger.meter_event AS m WHERE m.state IN ('pending', 'ambiguous')
GROUP BY bucket ORDER BY bucket;

-- name: last_closed_window
-- The youngest window end whose meters have closed, and how much of it is at Stripe.
WITH closed AS (
    SELECT max(l.window_end) AS window_end
    FROM ledger.level AS l
    JOIN ledger.meter_version AS v ON v.metric = l.metric AND v.version = l.catalogue_version
    WHERE l.window_end + v.close_delay_us * interval '1 microsecond' <= now()
)
SELECT ledger.us(b.window_end) AS window_end_us, count(*)::bigint AS windows,
       sum(b.total + b.decided)::text AS units, sum(b.settled)::text AS settled,
       count(*) FILTER (WHERE b.total + b.decided = b.settled)::bigint AS complete
FROM closed AS c JOIN ledger.balance AS b ON b.window_end = c.window_end
GROUP BY b.window_end;

-- name: sealed_until
-- Up to where each source is proven.
SELECT s.source, ledger.us((SELECT max(m.minute) FROM ledger.sealed_minute AS m
                            WHERE m.source = s.source)) AS minute_us
FROM ledger.source AS s ORDER BY s.source;

-- name: windows
-- Windows with what they came to, the youngest first.
SELECT tenant_id, metric, ledger.us(window_start) AS window_start_us,
       ledger.us(window_end) AS window_end_us, events, total::text AS total,
       decided::text AS decided, settled::text AS settled, pending::text AS pending,
       held::text AS held, dead::text AS dead, ambiguous::text AS ambiguous
FROM ledger.balance
WHERE (%(tenant)s::text IS NULL OR tenant_id = %(tenant)s)
  AND (%(metric)s::text IS NULL OR metric = %(metric)s)
ORDER BY window_start DESC, tenant_id, metric LIMIT %(limit)s;

-- name: statement
-- What a tenant's usage of a span came to, by meter; windows belong where they start.
SELECT metric, count(*)::bigint AS windows, sum(events)::bigint AS events,
       sum(total)::text AS total, sum(decided)::text AS decided, sum(settled)::text AS settled,
       sum(pending)::text AS pending, sum(held)::text AS held, sum(dead)::text AS dead,
       sum(ambiguous)::text AS ambiguous,
       sum(total + decided - settled - pending - held - dead - ambiguous) = 0 AS foots
FROM ledger.balance
WHERE tenant_id = %(tenant)s AND window_start >= ledger.at(%(from_us)s)
  AND window_start < ledger.at(%(to_us)s)
GROUP BY metric ORDER BY metric;

-- name: statement_parked
-- What of the tenant waits for a person in the same span, and is in no amount yet.
SELECT kind, reason, metric, count(*)::bigint AS count, sum(units)::text AS units
FROM ledger.parked
WHERE state = 'open' AND tenant_id = %(tenant)s AND meter_event_id IS NULL AND entry_id IS NULL
  AND coalesce(window_start, occurred_at, parked_at) >= ledger.at(%(from_us)s)
  AND coalesce(window_start, occurred_at, parked_at) < ledger.at(%(to_us)s)
GROUP BY kind, reason, metric ORDER BY kind, reason, metric;

-- name: tenants_waiting
-- Tenants by the age of their oldest amount that no request covers, or whose request is not settled.
SELECT e.tenant_id, count(*)::bigint AS entries, sum(e.delta)::text AS units,
       ledger.us(min(e.created_at)) AS oldest_us
FROM (SELECT u.entry_id FROM ledger.uncovered AS u
      UNION ALL
      SELECT x.entry_id FROM ledger.meter_event AS m
      JOIN ledger.meter_event_entry AS x ON x.meter_event_id = m.meter_event_id AND x.live
      WHERE m.state IN ('pending', 'ambiguous')) AS w
JOIN ledger.meter_log AS e USING (entry_id)
GROUP BY e.tenant_id ORDER BY oldest_us LIMIT 20;

-- name: dead_causes
-- Open dead letters by what ended them, the most frequent first.
SELECT c.cause, p.reason, count(*)::bigint AS count,
       count(p.meter_event_id)::bigint AS requests, ledger.us(min(p.parked_at)) AS oldest_us
FROM ledger.parked AS p
LEFT JOIN LATERAL (SELECT a.code FROM ledger.attempt AS a
                   WHERE a.meter_event_id = p.meter_event_id AND a.code IS NOT NULL
                   ORDER BY a.attempt_id DESC LIMIT 1) AS last ON true
CROSS JOIN LATERAL (SELECT coalesce(last.code, p.reason) AS cause) AS c
WHERE p.kind = 'dead' AND p.state = 'open'
GROUP BY c.cause, p.reason ORDER BY count DESC, c.cause;

-- name: acts
-- Who did what, the youngest first: decisions on amounts and everything else. A decision that the
-- log repeats stands here once, as it was taken.
SELECT * FROM (
    SELECT ledger.us(a.at) AS at_us, a.actor, a.action, a.subject,
           coalesce(a.detail ->> 'reason', a.detail ->> 'why', '') AS reason,
           a.detail::text AS detail, 'audit_log' AS kept_in, a.audit_id AS number
    FROM ledger.audit_log AS a WHERE NOT a.detail ? 'decision'
    UNION ALL
    SELECT ledger.us(d.decided_at), d.actor, d.action,
           concat_ws(', ', 'item ' || d.parked_id, 'entry ' || d.entry_id), d.reason,
           d.detail::text, 'decision', d.decision_id
    FROM ledger.decision AS d) AS both_ways
WHERE (%(actor)s::text IS NULL OR actor = %(actor)s)
  AND (%(action)s::text IS NULL OR action = %(action)s)
ORDER BY at_us DESC, kept_in, number DESC LIMIT %(limit)s;
