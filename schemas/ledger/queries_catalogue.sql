-- Meters, customers, sources, and the ledger's own name.

-- name: ledger_id
-- The ledger's identity.
SELECT ledger_id::text || coalesce((SELECT '.' || max(adoption_id) FROM ledger.adoption), '')
FROM ledger.identity;

-- name: meters
-- All meter versions.
SELECT metric, version, event_name, window_us, publish, scale, skew_max_us, close_delay_us, carry,
       aggregation, rules, ledger.us(effective_from)
FROM ledger.meter_version ORDER BY metric, version;

-- name: meters_settle
-- Waits for additions to the catalogue that are under way: they are dated before this reading.
SELECT pg_advisory_xact_lock_shared(hashtextextended('ledger.meter_version', 0));

-- name: now_us
-- The ledger's time.
SELECT ledger.us(now());

-- name: notice_us
-- How far ahead a changed meter must be announced.
SELECT (extract(epoch FROM ledger.interval_setting('meter_notice')) * 1000000)::bigint;

-- name: append_meters
-- Adds meter versions; the guard of the table checks notice, boundary and order.
INSERT INTO ledger.meter_version (metric, version, event_name, window_us, publish, scale,
    skew_max_us, early_max_us, close_delay_us, carry, aggregation, rules, effective_from, actor,
    reason)
SELECT r.metric, r.version, r.event_name, r.window_us, r.publish, r.scale, r.skew_max_us,
       %(early_max_us)s, r.close_delay_us, r.carry, r.aggregation, r.rules,
       ledger.at(r.effective_from_us), %(actor)s, %(reason)s
FROM json_to_recordset(%(rows)s::json) AS r(metric text, version integer, event_name text,
    window_us bigint, publish text, scale integer, skew_max_us bigint, close_delay_us bigint,
    carry text, aggregation text, rules integer, effective_from_us bigint)
ORDER BY r.metric, r.version;

-- name: map_customer
-- Maps a tenant to a Stripe customer; from when on.
SELECT ledger.us(ledger.map_customer_v1(%(tenant_id)s, %(customer)s,
    ledger.at(%(effective_from_us)s), ledger.at(%(anchor_us)s), %(billing_interval)s,
    %(grace_us)s * interval '1 microsecond', %(actor)s, %(reason)s));

-- name: customers
-- All mappings, by tenant and date.
SELECT tenant_id, customer, ledger.us(effective_from), ledger.us(anchor), billing_interval,
       (extract(epoch FROM grace) * 1000000)::bigint, actor
FROM ledger.customer ORDER BY tenant_id, effective_from;

-- name: unmapped
-- Tenants whose amounts wait for a customer, with the number of entries.
SELECT tenant_id, count(*) FROM ledger.uncovered WHERE lane_id IS NULL GROUP BY 1 ORDER BY 1;

-- name: claim_meters
-- The name of a look at Stripe's meters; NULL: somebody looked a moment ago.
SELECT ledger.claim_meters_v1(%(pause_ms)s * interval '1 millisecond');

-- name: note_meters
-- Notes what a look found; false where another has begun since.
SELECT ledger.note_meters_v1(%(look)s, %(found)s::json);

-- name: source_find
-- A registered source's cluster and timeline.
SELECT system_identifier, timeline FROM ledger.source WHERE source = %(source)s;

-- name: source_add
-- Registers a source; leaves one of that name as it is.
INSERT INTO ledger.source (source, system_identifier, timeline)
VALUES (%(source)s, %(system_identifier)s, %(timeline)s)
ON CONFLICT (source) DO NOTHING;

-- name: source_replace
-- Puts a repaired source's new identity in the place of the old one, with its trace.
WITH replaced AS (
    UPDATE ledger.source
    SET system_identifier = %(system_identifier)s, timeline = %(timeline)s, registered_at = now(),
        registered_by = session_user
    WHERE source = %(source)s AND system_identifier = %(old_system_identifier)s
      AND timeline = %(old_timeline)s
    RETURNING source
)
INSERT INTO ledger.audit_log (action, subject, detail)
SELECT 'replace_source', source,
       jsonb_build_object('system_identifier', %(old_system_identifier)s::text,
                          'timeline', %(old_timeline)s::integer,
                          'new_system_identifier', %(system_identifier)s::text,
                          'new_timeline', %(timeline)s::integer)
FROM replaced;
