-- What `tailrace ingest` asks of the outbox, as a member of metering_writer.

-- name: record_events
-- Records all or, with 22023, none; results in the order of the items.
SELECT index, event_id::text, status, received_at
FROM metering.record_usage_batch(%(items)s::jsonb);

-- name: event_problems
-- What would be refused of these, and why.
SELECT index, field, rule, hint
FROM metering.usage_batch_problems(%(items)s::jsonb);

-- name: conflict_contents
-- Both contents of the conflicts among these items: what was offered now, and what stands.
SELECT asked.index, c.content, c.first_content, c.first_received_at,
       k.metric, k.quantity::text, k.occurred_at
FROM unnest(%(indexes)s::integer[], %(received)s::timestamptz[]) AS asked (index, received_at)
CROSS JOIN LATERAL (SELECT %(items)s::jsonb -> asked.index AS item) AS i
CROSS JOIN LATERAL metering.find_key(i.item ->> 'tenant_id', i.item ->> 'event_key') AS k
CROSS JOIN LATERAL metering.find_conflicts(i.item ->> 'tenant_id', i.item ->> 'event_key') AS c
WHERE k.kind = 'usage' AND c.kind = 'usage' AND c.received_at = asked.received_at
  AND c.metric = i.item ->> 'metric' AND c.quantity = (i.item ->> 'quantity')::numeric;

-- name: lasting_commits
-- An answer says that a crash forgets nothing; where commits do not wait for the disk, ours do.
SELECT set_config('synchronous_commit', 'on', false)
WHERE current_setting('synchronous_commit') = 'off';

-- name: may_record
-- Whether this login may record; an error where the outbox is not installed.
SELECT has_function_privilege('metering.record_usage_batch(jsonb)', 'EXECUTE')
   AND has_function_privilege('metering.usage_batch_problems(jsonb)', 'EXECUTE')
   AND has_function_privilege('metering.find_conflicts(text, text)', 'EXECUTE')
   AND NOT pg_is_in_recovery();
