-- Billing deadlines: cycles, what misses them, and what became of it.

-- name: carry_overdue
-- Carries or parks what missed its invoice; how many entries were carried, parked, left in doubt.
SELECT carried, parked, doubts FROM ledger.carry_overdue_v1(%(limit)s);

-- name: payers
-- Customers with a billing cycle now or later: tenant, customer, grace, and the ledger's margin.
SELECT tenant_id, customer,
       (extract(epoch FROM coalesce(grace, ledger.interval_setting('finalisation_grace')))
        * 1000000)::bigint,
       (extract(epoch FROM ledger.interval_setting('finalisation_margin')) * 1000000)::bigint
FROM (
    SELECT c.*, lead(effective_from) OVER (PARTITION BY tenant_id ORDER BY effective_from) AS until
    FROM ledger.customer c) AS dated
WHERE anchor IS NOT NULL AND (until IS NULL OR until > now()) ORDER BY 1, 2;

-- name: margin_us
-- How long before an invoice is closed nothing is sent for it any more, and the default grace.
SELECT (extract(epoch FROM ledger.interval_setting('finalisation_margin')) * 1000000)::bigint,
       (extract(epoch FROM ledger.interval_setting('finalisation_grace')) * 1000000)::bigint;

-- name: overdue
-- Entries that missed their invoice and wait for a decision, oldest deadline first.
SELECT entry_id, tenant_id, metric, kind, customer, event_name, ledger.us(window_start),
       ledger.us(window_end), delta, ledger.us(deadline_at), policy, parked_id, rule
FROM ledger.overdue
WHERE delta <> 0
  AND (%(entries)s::bigint[] IS NULL OR entry_id = ANY (%(entries)s::bigint[]))
  AND (%(tenant)s::text IS NULL OR tenant_id = %(tenant)s)
  AND (%(metric)s::text IS NULL OR metric = %(metric)s)
ORDER BY deadline_at, delta < 0, entry_id LIMIT %(limit)s;

-- name: carried
-- What became of entries that missed their invoice, latest first.
SELECT c.entry_id, e.tenant_id, e.metric, c.customer, c.event_name, e.delta,
       ledger.us(c.deadline_at), c.policy, c.out_entry_id, c.in_entry_id, c.reference, c.actor,
       c.reason, ledger.us(c.carried_at)
FROM ledger.carry c JOIN ledger.meter_log e USING (entry_id)
WHERE (%(entries)s::bigint[] IS NULL OR c.entry_id = ANY (%(entries)s::bigint[]))
  AND (%(tenant)s::text IS NULL OR e.tenant_id = %(tenant)s)
  AND (%(metric)s::text IS NULL OR e.metric = %(metric)s)
ORDER BY c.carried_at DESC, c.entry_id LIMIT %(limit)s;

-- name: carry_entry
-- A person's decision on one overdue entry; the row of it, whose it is, and whether it was made now.
SELECT out_entry_id, in_entry_id, reference, actor, carried_at = now() AS fresh
FROM ledger.carry_entry(%(entry)s, %(reason)s, %(elsewhere)s, %(payer)s);

-- name: deadlines
-- Unsettled amounts by deadline, customer and state, soonest first.
SELECT ledger.us(deadline_at), customer, event_name, state, count(*), sum(units)::text,
       ledger.us(max(moves_at)), bool_or(moves_at IS NULL), bool_or(paused)
FROM ledger.deadline
GROUP BY deadline_at, customer, event_name, state ORDER BY deadline_at, customer, event_name, state;

-- name: missed
-- What was settled after missing its invoice, by deadline and where it went.
SELECT ledger.us(c.deadline_at), c.customer, c.event_name,
       CASE WHEN c.in_entry_id IS NULL THEN 'elsewhere' ELSE 'carried' END AS state,
       count(*), sum(e.delta)::text
FROM ledger.carry c JOIN ledger.meter_log e USING (entry_id)
WHERE c.deadline_at >= ledger.at(%(since_us)s)
GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4;

-- name: halted
-- Whether publishing stands still for all.
SELECT EXISTS (SELECT FROM ledger.halt WHERE lifted_at IS NULL);
