-- What every tenant, metric and window came to. One row per window; always
-- total + decided = settled + pending + held + dead + ambiguous.
SET LOCAL ROLE ledger_owner;

-- Each entry with the state of its amount.
CREATE VIEW ledger.entry_state AS
SELECT e.entry_id, e.kind, e.tenant_id, e.metric, e.window_start, e.window_end, e.delta,
       m.meter_event_id,
       CASE WHEN m.state IN ('recorded', 'nothing') THEN 'settled'
            WHEN m.state = 'ambiguous' OR m.dead_kind = 'ambiguous' THEN 'ambiguous'
            WHEN m.state = 'dead' THEN 'dead'
            WHEN m.state = 'pending' THEN 'pending'
            WHEN u.entry_id IS NOT NULL AND u.lane_id IS NULL THEN 'unmapped'
            WHEN u.deadline_at <= now() THEN 'carry'
            ELSE 'pending' END AS state
FROM ledger.meter_log e
LEFT JOIN ledger.meter_event_entry x ON x.entry_id = e.entry_id AND x.live
LEFT JOIN ledger.meter_event m ON m.meter_event_id = x.meter_event_id
LEFT JOIN ledger.uncovered u ON u.entry_id = e.entry_id;

-- Each level with what its entries do not say yet.
CREATE VIEW ledger.level_rest AS
SELECT l.tenant_id, l.metric, l.window_start, l.window_end, l.count, l.total,
       l.total - coalesce(last.level_total, 0) AS rest,
       CASE WHEN l.held THEN 'series_held'
            WHEN c.customer IS NULL THEN 'unmapped'
            WHEN ledger.billing_deadline(c.anchor, c.billing_interval, c.grace,
                                         l.window_end - interval '1 second') <= now() THEN 'carry'
            ELSE 'pending' END AS state
FROM ledger.level l
LEFT JOIN LATERAL (
    SELECT e.level_total FROM ledger.meter_log e
    WHERE e.kind = 'usage' AND e.tenant_id = l.tenant_id AND e.metric = l.metric
      AND e.window_start = l.window_start AND e.shard = l.shard AND e.log_id = l.log_id
      AND e.catalogue_version = l.catalogue_version
    ORDER BY e.revision DESC LIMIT 1) AS last ON true
LEFT JOIN LATERAL (
    SELECT m.* FROM ledger.customer m
    WHERE m.tenant_id = l.tenant_id AND m.effective_from <= l.window_start
    ORDER BY m.effective_from DESC LIMIT 1) AS c ON true;

CREATE VIEW ledger.balance AS
SELECT tenant_id, metric, window_start, window_end,
       sum(events)::bigint AS events,
       sum(total) AS total,
       sum(decided) AS decided,
       coalesce(sum(amount) FILTER (WHERE state = 'settled'), 0) AS settled,
       coalesce(sum(amount) FILTER (WHERE state = 'pending'), 0) AS pending,
       coalesce(sum(amount) FILTER (WHERE state IN ('unmapped', 'carry', 'series_held')), 0) AS held,
       coalesce(sum(amount) FILTER (WHERE state = 'dead'), 0) AS dead,
       coalesce(sum(amount) FILTER (WHERE state = 'ambiguous'), 0) AS ambiguous
FROM (
    SELECT tenant_id, metric, window_start, window_end, count AS events, total, 0 AS decided,
           rest AS amount, state
    FROM ledger.level_rest
    UNION ALL
    SELECT tenant_id, metric, window_start, window_end, (kind = 'event')::integer,
           CASE WHEN kind = 'event' THEN delta ELSE 0 END,
           CASE WHEN kind IN ('usage', 'event') THEN 0 ELSE delta END, delta, state
    FROM ledger.entry_state
) AS part
GROUP BY tenant_id, metric, window_start, window_end;

RESET ROLE;
