-- What commands ask of the ledger and of a service's database, beside the packages' own statements.

-- name: source_name
-- The name of this outbox.
SELECT source FROM metering.source;

-- name: registry_minutes
-- Identities of the registry per minute of received_at and kind: one statement, one snapshot.
SELECT (extract(epoch FROM minute) * 1000000)::bigint AS minute_us, kind, count, digest
FROM metering.audit_minutes(%(from)s, %(to)s);

-- name: registry_identities
-- Every identity of a range of received_at.
SELECT event_id::text AS event_id, kind, tenant_id, event_key, content
FROM metering.identities(%(from)s, %(to)s);

-- name: canary_kept_from
-- Canary rows before this instant were swept away; NULL for none.
SELECT CASE WHEN isfinite(value::timestamptz)
       THEN (extract(epoch FROM value::timestamptz) * 1000000)::bigint END AS kept_from_us
FROM metering.setting WHERE name = 'canary_kept_from';

-- name: changed_seals
-- Sealed minutes that hold something else now, by the source's own account.
SELECT (extract(epoch FROM minute) * 1000000)::bigint AS minute_us, kind, sealed_count, count
FROM metering.sealed_changes(%(from)s, %(to)s);

-- name: canary_under_way
-- Seconds since the oldest canary was sent that has not come through, by partition what came; NULL
-- for none.
SELECT (extract(epoch FROM clock_timestamp() - min(sent.received_at)))::float8 AS age_s
FROM metering.canary AS sent
LEFT JOIN unnest(%(partitions)s::integer[], %(came)s::timestamptz[])
    AS came (partition, received_at) USING (partition)
WHERE came.received_at IS NULL OR sent.received_at > came.received_at;

-- name: recorded_within
-- Identities recorded in the last seconds (the last day where nobody says how many), and the oldest.
SELECT count(*) AS count,
       (extract(epoch FROM clock_timestamp() - min(received_at)))::float8 AS age_s
FROM metering.usage_key
WHERE received_at > now() - make_interval(secs => coalesce(%(news_s)s::float8, 86400));

-- name: emit_canaries
-- One canary row per partition, under one token.
SELECT count(*) AS emitted FROM metering.emit_canaries(%(token)s::uuid);

-- name: outbox_partitions
-- Which source this outbox is, and how many partitions it knows of.
SELECT source, partition_count FROM metering.source;

-- name: grow_partitions
-- Tells the outbox that the topics have more partitions.
SELECT action, detail FROM metering.grow_partitions(%(partitions)s::integer);

-- name: source_now
-- The source database's time, which dates received_at.
SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS now_us;

-- name: open_transactions
-- Transactions of the source that may still commit, oldest first.
SELECT pid, gid, user_name, application_name, state, writes_usage,
       (extract(epoch FROM started_at) * 1000000)::bigint AS started_us
FROM metering.open_transactions();

-- name: seal_source_minutes
-- Tells the source which minutes are proven: its retention may drop only those.
SELECT metering.seal(%(minutes)s::timestamptz[]) AS fresh;

-- name: identity_equations
-- Identities by first verdict beside where they must have gone; all in one snapshot.
WITH cells AS (
    SELECT verdict_class, sum(count) AS count, sum(digest) AS digest
    FROM ledger.cell GROUP BY verdict_class
), amounts AS (
    SELECT sum(count) AS count, sum(digest) AS digest
    FROM (SELECT count, digest FROM ledger.level
          UNION ALL
          SELECT 1, content FROM ledger.meter_log WHERE kind = 'event') AS both_ways
), corrections AS (
    SELECT count(*) AS count, sum(content) AS digest
    FROM ledger.meter_log e
    WHERE kind = 'correction' AND log_id IS NOT NULL
      AND NOT EXISTS (SELECT FROM ledger.decision d
                      WHERE d.entry_id = e.entry_id AND d.action = 'approve')
), parked AS (
    SELECT CASE WHEN kind = 'dead' THEN 'dead' WHEN reason = 'conflict' THEN 'conflict'
                ELSE 'review' END AS verdict_class,
           count(*) AS count, sum(content) AS digest
    FROM ledger.parked
    WHERE log_id IS NOT NULL AND event_id IS NOT NULL GROUP BY 1
), sides AS (
    SELECT 'accepted' AS verdict_class, 'levels and event entries' AS place, count, digest
    FROM amounts
    UNION ALL SELECT 'correction', 'correction entries', count, digest FROM corrections
    UNION ALL SELECT v.name, 'parked items', p.count, p.digest
    FROM (VALUES ('review'), ('conflict'), ('dead')) AS v(name)
    LEFT JOIN parked p ON p.verdict_class = v.name
)
SELECT s.verdict_class, s.place, coalesce(c.count, 0)::bigint AS judged,
       coalesce(s.count, 0)::bigint AS placed,
       coalesce(c.digest, 0) %% 340282366920938463463374607431768211456
           = coalesce(s.digest, 0) %% 340282366920938463463374607431768211456 AS same_content
FROM sides s LEFT JOIN cells c USING (verdict_class);

-- name: units_recorded
-- What services recorded by tenant, metric and window of a meter's version: identities, digest and
-- units, those of minutes that move apart. Left out is what never had an amount downstream.
WITH meter AS (
    SELECT * FROM unnest(%(metrics)s::text[], %(from_ats)s::timestamptz[],
                         %(until_ats)s::timestamptz[], %(lengths)s::interval[],
                         %(factors)s::numeric[])
        AS m (metric, from_at, until_at, length, factor)
), moving AS (
    SELECT false AS conflict, minute FROM unnest(%(moving_usage)s::timestamptz[]) AS u (minute)
    UNION ALL
    SELECT true, minute FROM unnest(%(moving_conflicts)s::timestamptz[]) AS c (minute)
), recorded AS (
    SELECT k.kind, k.tenant_id, k.metric, k.occurred_at, k.received_at, k.quantity, k.content
    FROM metering.usage_key AS k
    WHERE k.kind = 'usage' AND k.received_at >= %(received_from)s
    UNION ALL
    -- By their own table: a correction may be much younger than the window that it corrects.
    SELECT k.kind, k.tenant_id, k.metric, k.occurred_at, k.received_at, k.quantity, k.content
    FROM metering.usage_correction AS c
    JOIN metering.usage_key AS k
        ON k.tenant_id = c.tenant_id AND k.event_key = c.event_key AND k.kind = 'correction'
    UNION ALL
    SELECT 'conflict', c.tenant_id, c.metric, c.occurred_at, c.received_at, c.quantity, c.content
    FROM metering.usage_conflict AS c
    WHERE c.received_at >= %(received_from)s
), placed AS (
    SELECT r.kind, r.tenant_id, r.metric,
           date_bin(m.length, r.occurred_at, 'epoch'::timestamptz) AS start_at,
           v.minute IS NOT NULL OR r.received_at < %(from)s AS moving,
           r.quantity * m.factor AS units, r.content
    FROM recorded AS r
    JOIN meter AS m
        ON m.metric = r.metric AND r.occurred_at >= m.from_at AND r.occurred_at < m.until_at
    LEFT JOIN moving AS v
        ON v.minute = date_trunc('minute', r.received_at, 'UTC')
       AND v.conflict = (r.kind = 'conflict')
    WHERE r.content <> ALL (%(without)s::bytea[])
)
SELECT kind, tenant_id, metric, (extract(epoch FROM start_at) * 1000000)::bigint AS start_us,
       CASE WHEN moving THEN 'moving' ELSE 'certain' END AS side, count(*) AS count,
       mod(sum(('x' || encode(substring(content FROM 1 FOR 4), 'hex'))::bit(32)::bigint)
               * 79228162514264337593543950336
           + sum(('x' || encode(substring(content FROM 5 FOR 4), 'hex'))::bit(32)::bigint)
               * 18446744073709551616
           + sum(('x' || encode(substring(content FROM 9 FOR 4), 'hex'))::bit(32)::bigint)
               * 4294967296
           + sum(('x' || encode(substring(content FROM 13 FOR 4), 'hex'))::bit(32)::bigint),
           340282366920938463463374607431768211456) AS digest,
       trim_scale(sum(units)) AS units
FROM placed
WHERE start_at >= %(from)s AND units = trunc(units)
GROUP BY kind, tenant_id, metric, start_at, moving
ORDER BY kind COLLATE "C", tenant_id COLLATE "C", metric COLLATE "C", start_at;

-- name: units_counted
-- What the ledger holds of the same: levels, entries that came from records, and items that wait or
-- waited for a person.
WITH meter AS (
    SELECT * FROM unnest(%(metrics)s::text[], %(from_ats)s::timestamptz[],
                         %(until_ats)s::timestamptz[], %(lengths)s::interval[])
        AS m (metric, from_at, until_at, length)
), counted AS (
    SELECT 'usage' AS kind, tenant_id, metric, window_start AS start_at, count, digest,
           total AS units
    FROM ledger.level WHERE window_start >= %(from)s
    UNION ALL
    SELECT CASE kind WHEN 'event' THEN 'usage' ELSE kind END, tenant_id, metric, window_start, 1,
           content, delta
    FROM ledger.meter_log AS e
    WHERE window_start >= %(from)s
      AND (kind = 'event' OR (kind = 'correction' AND log_id IS NOT NULL AND NOT EXISTS (
            SELECT FROM ledger.decision AS d WHERE d.entry_id = e.entry_id AND d.action = 'approve')))
    UNION ALL
    SELECT CASE p.reason WHEN 'conflict' THEN 'conflict' WHEN 'correction_limit' THEN 'correction'
                ELSE 'usage' END,
           p.tenant_id, p.metric, date_bin(m.length, p.occurred_at, 'epoch'::timestamptz), 1,
           p.content, p.units
    FROM ledger.parked AS p
    JOIN meter AS m
        ON m.metric = p.metric AND p.occurred_at >= m.from_at AND p.occurred_at < m.until_at
    WHERE p.kind = 'review' AND p.log_id IS NOT NULL AND p.event_id IS NOT NULL
      AND p.units IS NOT NULL AND p.source = %(source)s
      AND (p.reason = 'correction_limit' OR p.received_at >= %(received_from)s)
)
SELECT kind, tenant_id, metric, ledger.us(start_at) AS start_us, 'counted' AS side,
       sum(count) AS count, mod(sum(digest), 340282366920938463463374607431768211456) AS digest,
       trim_scale(sum(units)) AS units
FROM counted
WHERE start_at >= %(from)s
GROUP BY kind, tenant_id, metric, start_at
ORDER BY kind COLLATE "C", tenant_id COLLATE "C", metric COLLATE "C", start_at;

-- name: units_unknown
-- Contents of identities that have a verdict and no amount: dead letters, items whose amount is no
-- amount, and what people named of records that nobody could read.
SELECT content::text AS content FROM ledger.parked
WHERE source = %(source)s AND log_id IS NOT NULL AND event_id IS NOT NULL
  AND (kind = 'dead' OR units IS NULL)
UNION ALL
SELECT content::text FROM ledger.skip_name WHERE source = %(source)s;

-- name: unfooted_requests
-- Requests that say another amount than the entries that they cover; they are frozen from these.
SELECT m.meter_event_id, m.customer, m.event_name, m.units, m.value, sum(e.delta) AS entries
FROM ledger.meter_event AS m
JOIN ledger.meter_event_entry AS x ON x.meter_event_id = m.meter_event_id AND x.live
JOIN ledger.meter_log AS e ON e.entry_id = x.entry_id
GROUP BY m.meter_event_id
HAVING sum(e.delta) <> m.units OR m.value <> m.units::text
ORDER BY m.meter_event_id LIMIT 100;

-- name: unfooted_approvals
-- Approved items whose entry says another amount.
SELECT p.parked_id, p.tenant_id, p.metric, p.units, e.delta
FROM ledger.decision AS d
JOIN ledger.parked AS p ON p.parked_id = d.parked_id
JOIN ledger.meter_log AS e ON e.entry_id = d.entry_id
WHERE d.action = 'approve' AND e.event_id = p.event_id AND e.delta <> p.units
ORDER BY p.parked_id LIMIT 100;

-- name: balance_totals
-- The whole ledger in one line, and how many of its rows do not foot.
SELECT count(*)::bigint AS windows,
       coalesce(sum(events), 0)::bigint AS events,
       coalesce(sum(settled), 0) AS settled, coalesce(sum(pending), 0) AS pending,
       coalesce(sum(held), 0) AS held, coalesce(sum(dead), 0) AS dead,
       coalesce(sum(ambiguous), 0) AS ambiguous,
       count(*) FILTER (WHERE total + decided <> settled + pending + held + dead + ambiguous)::bigint
           AS unbalanced
FROM ledger.balance;

-- name: unregistered
-- Sources with verdicts that neither this audit nor anybody's registry accounts for.
SELECT c.source, sum(c.count)::bigint AS count FROM ledger.cell c
WHERE c.source <> %(audited)s AND NOT EXISTS (SELECT FROM ledger.source s WHERE s.source = c.source)
GROUP BY c.source ORDER BY c.source;

-- name: overdrawn_levels
-- Series whose entries say more records or another amount than their level ever said.
SELECT l.tenant_id, l.metric, ledger.us(l.window_start) AS window_start_us
FROM ledger.level l
JOIN LATERAL (SELECT max(e.level_count) AS counted FROM ledger.meter_log e
              WHERE e.kind = 'usage' AND e.tenant_id = l.tenant_id AND e.metric = l.metric
                AND e.window_start = l.window_start AND e.shard = l.shard
                AND e.catalogue_version = l.catalogue_version AND e.log_id = l.log_id) AS cut ON true
WHERE cut.counted > l.count LIMIT 100;

-- name: active_halts
-- Reasons why publishing stands still for all.
SELECT kind, ledger.us(since) AS since_us, detail::text AS detail FROM ledger.halt
WHERE lifted_at IS NULL ORDER BY since;

-- name: lives
-- The lives of a topic that were opened, the latest first, and what the ledger holds of each. A life
-- has a log for the partitions that it began with, and one for those of each growth.
SELECT r.log_id::text AS log_id, ledger.us(r.opened_at) AS opened_us, r.opened_by, r.reason,
       max(l.partitions) AS partitions, coalesce(sum(held.partitions), 0)::bigint AS held,
       coalesce(sum(held.records), 0)::bigint AS records
FROM ledger.log_life AS l
JOIN ledger.log AS r ON r.log_id = l.root_id
LEFT JOIN (SELECT p.log_id, count(*) AS partitions, sum(p.position + 1) AS records
           FROM ledger.position AS p GROUP BY p.log_id) AS held ON held.log_id = l.log_id
WHERE l.log_topic = %(topic)s
GROUP BY r.log_id ORDER BY r.opened_at DESC;

-- name: followed_logs
-- The logs that are followed now; none while the ledger was told of none.
SELECT log_id::text AS log_id FROM ledger.log_followed;

-- name: log_grown
-- How often the topic grew whose life began with this log, to how many partitions (NULL: nobody noted
-- any), and whether this login may say more of it; no row for a log that is not followed.
SELECT (count(*) - 1)::integer AS growths, max(l.partitions) AS partitions,
       has_function_privilege(session_user, 'ledger.grow_log_v1(uuid, uuid, integer, integer,'
                              ' bigint[], text, text)', 'EXECUTE') AS may
FROM ledger.log_life AS l WHERE l.root_id = %(root)s HAVING count(*) > 0;

-- name: note_partitions
-- Notes how many partitions a topic has before it grows; changes nothing that is noted.
SELECT ledger.note_partitions_v1(%(root)s, %(present)s);

-- name: grow_log
-- Makes a growth known; false where it was known.
SELECT ledger.grow_log_v1(%(root)s, %(grown)s, %(present)s, %(wanted)s, %(boundaries)s, %(reason)s,
                          %(actor)s) AS fresh;

-- name: open_log
-- Goes on with another log of a topic.
SELECT ledger.open_log(%(topic)s, %(log_id)s, %(why)s);

-- name: settled_hours
-- What Stripe must say per customer, event name and UTC hour, and what may or may not be in it yet.
WITH requests AS (
    SELECT customer, event_name, (timestamp_s / 3600 * 3600)::bigint AS hour_s,
           coalesce(sum(units) FILTER (WHERE state = 'recorded'), 0)::bigint AS units,
           count(*) FILTER (WHERE (state IN ('pending', 'ambiguous')
                                   AND first_attempt_at IS NOT NULL)
                               OR (state = 'dead' AND possibly_executed))::bigint AS doubtful
    FROM ledger.meter_event
    WHERE identifier IS NOT NULL AND timestamp_s >= %(from_s)s
    GROUP BY 1, 2, 3
), adopted AS (
    -- What a lost ledger may have sent is in Stripe's sum or not, until it was compared.
    SELECT d.customer, d.event_name, h.hour_s::bigint, count(*)::bigint AS doubtful
    FROM ledger.doubt d
    CROSS JOIN LATERAL generate_series(
        extract(epoch FROM date_trunc('hour', d.window_start))::bigint,
        extract(epoch FROM d.window_end)::bigint - 1, 3600) AS h(hour_s)
    WHERE d.settled_at IS NULL AND d.reason LIKE 'ledger_adopted%%' AND h.hour_s >= %(from_s)s
    GROUP BY 1, 2, 3
)
SELECT customer, event_name, hour_s, coalesce(r.units, 0)::bigint AS units,
       (coalesce(r.doubtful, 0) + coalesce(a.doubtful, 0))::bigint AS doubtful
FROM requests r FULL JOIN adopted a USING (customer, event_name, hour_s)
ORDER BY hour_s, customer, event_name;

-- name: status_meter_events
-- Meter events by state.
SELECT state, count(*)::bigint AS count, coalesce(sum(units), 0)::bigint AS units
FROM ledger.meter_event GROUP BY state ORDER BY state;

-- name: status_pending
-- The oldest request that is not settled, and amounts not yet cut or frozen.
SELECT (SELECT ledger.us(min(created_at)) FROM ledger.meter_event
        WHERE state IN ('pending', 'ambiguous')) AS oldest_request_us,
       (SELECT ledger.us(min(first_attempt_at)) FROM ledger.meter_event
        WHERE state IN ('pending', 'ambiguous')) AS oldest_attempt_us,
       (SELECT ledger.us(min(first_attempt_at)) FROM ledger.meter_event
        WHERE state IN ('pending', 'ambiguous') AND possibly_executed) AS oldest_doubt_us,
       ledger.us(least(
           (SELECT min(deadline_at) FROM ledger.uncovered WHERE deadline_at > now()),
           (SELECT min(deadline_at) FROM ledger.meter_event
            WHERE state IN ('pending', 'ambiguous') AND deadline_at > now()))) AS next_deadline_us,
       (SELECT count(*) FROM ledger.level WHERE due_at IS NOT NULL AND NOT held)::bigint
           AS levels_open,
       (SELECT count(*) FROM ledger.level WHERE held)::bigint AS levels_held,
       (SELECT count(*) FROM ledger.uncovered WHERE lane_id IS NOT NULL)::bigint AS entries_waiting,
       (SELECT count(*) FROM ledger.uncovered WHERE lane_id IS NULL)::bigint AS entries_unmapped,
       (SELECT count(DISTINCT tenant_id) FROM ledger.uncovered WHERE lane_id IS NULL)::bigint
           AS tenants_unmapped,
       (SELECT count(*) FROM ledger.uncovered WHERE deadline_at <= now())::bigint
           AS entries_overdue,
       (SELECT count(*) FROM ledger.lane WHERE paused)::bigint AS lanes_paused,
       (SELECT count(*) FROM ledger.proposal WHERE state = 'open')::bigint AS proposals_open,
       (SELECT count(*) FROM ledger.doubt
        WHERE settled_at IS NULL AND reason LIKE 'ledger_adopted%%')::bigint AS cells_to_compare,
       ledger.us(now()) AS now_us;

-- name: status_unmapped
-- The tenants without a customer whose usage waits, the largest amounts first.
SELECT tenant_id, count(*)::bigint AS entries, sum(delta)::text AS units FROM ledger.uncovered
WHERE lane_id IS NULL GROUP BY tenant_id ORDER BY sum(delta) DESC, tenant_id LIMIT 20;

-- name: status_idle
-- Since when something could be sent and no worker has sent anything; NULL for nothing. Lanes that
-- have to wait for something rest, so they are not counted.
WITH due AS (
    SELECT lane_id FROM ledger.lane
    WHERE NOT paused AND next_due_at <= now() AND (claimed_until IS NULL OR claimed_until <= now())
)
SELECT ledger.us(greatest(
           min(since),
           (SELECT started_at FROM ledger.attempt ORDER BY attempt_id DESC LIMIT 1))) AS since_us
FROM (
    -- Usage of last week that was recorded just now is due just now.
    (SELECT greatest(u.due_at, e.created_at) AS since
     FROM ledger.uncovered AS u JOIN due USING (lane_id) JOIN ledger.meter_log AS e USING (entry_id)
     WHERE u.due_at <= now() ORDER BY u.entry_id LIMIT 1)
    UNION ALL
    SELECT min(m.next_attempt_at) FROM ledger.meter_event AS m JOIN due USING (lane_id)
    WHERE m.state IN ('pending', 'ambiguous') AND m.next_attempt_at <= now()
) AS waiting HAVING min(since) IS NOT NULL;

-- name: status_sink
-- What the last attempts of all workers say of Stripe: failures since it last answered anybody. And
-- what sweeps say, which go on while nothing can be sent; an answer to an attempt ends their word.
WITH last AS (
    SELECT attempt_id, finished_at, http_status, coalesce(code, cause) AS said,
           outcome = 'Systemic' AS refused,
           coalesce(http_status < 500 AND http_status NOT IN (401, 403, 409, 429), false) AS answered,
           coalesce(http_status >= 500 OR http_status IN (401, 403),
                    outcome IN ('Retry', 'Ambiguous')) AS failed
    FROM (SELECT * FROM ledger.attempt ORDER BY attempt_id DESC LIMIT 500) AS a
    WHERE finished_at IS NOT NULL
      AND (http_status IS NOT NULL OR cause IS NULL OR cause <> ALL (%(unsent)s::text[]))
), since AS (
    SELECT * FROM last
    WHERE failed AND attempt_id > coalesce((SELECT max(attempt_id) FROM last WHERE answered), 0)
), swept AS (
    SELECT * FROM ledger.report_sweep
    WHERE silent_times > 0
      AND claimed_at > coalesce((SELECT max(finished_at) FROM last WHERE answered), '-infinity')
)
SELECT ledger.us(greatest((SELECT max(finished_at) FROM last WHERE answered),
                          (SELECT answered_at FROM ledger.report_sweep))) AS answered_us,
       ((SELECT count(*) FROM since)
        + coalesce((SELECT silent_times FROM swept), 0))::bigint AS failures,
       ledger.us(least((SELECT min(finished_at) FROM since),
                       (SELECT silent_since FROM swept))) AS failing_since_us,
       coalesce((SELECT refused FROM since ORDER BY attempt_id DESC LIMIT 1),
                (SELECT refused FROM swept), false) AS refused,
       coalesce((SELECT concat_ws(' ', 'HTTP ' || http_status, said) FROM since
                 ORDER BY attempt_id DESC LIMIT 1),
                (SELECT cause FROM swept)) AS cause;

-- name: status_parked
-- Open items by kind, reason, what ended a request or the field that a record broke, and meter.
SELECT kind, reason, metric, count(*)::bigint AS count, ledger.us(min(parked_at)) AS oldest_us,
       cause, outcome, min(rule) AS rule, count(DISTINCT rule)::integer AS rules,
       coalesce(cause = code, false) AS by_code
FROM (SELECT p.kind, p.reason, p.metric, p.parked_at, a.code, a.outcome,
             CASE WHEN p.kind = 'dead'
                  THEN coalesce(p.detail -> 'rejections' -> -1 ->> 'code', a.code,
                                p.detail ->> 'path') END AS cause,
             CASE WHEN p.reason = 'malformed' THEN p.detail ->> 'rule' END AS rule
      FROM ledger.parked AS p
      LEFT JOIN LATERAL (SELECT t.code, t.outcome FROM ledger.attempt AS t
                         WHERE t.meter_event_id = p.meter_event_id
                         ORDER BY t.attempt_id DESC LIMIT 1) AS a ON true
      WHERE p.state = 'open') AS item
GROUP BY kind, reason, cause, code, outcome, metric ORDER BY kind, reason, cause, metric;

-- name: status_findings
-- Contradictions that nobody has cleared, by their kind; those of series are counted as held.
SELECT kind, count(*)::bigint AS count FROM ledger.finding
WHERE cleared_at IS NULL AND kind NOT LIKE 'level%%' AND NOT starts_with(kind, 'meter_')
GROUP BY kind ORDER BY kind;

-- name: findings
-- Open findings, the oldest first; or one, whatever became of it, with the receipt of its clearing.
SELECT finding_id, kind, subject, detail::text AS detail, ledger.us(found_at) AS found_us,
       ledger.us(cleared_at) AS cleared_us, cleared_by, why,
       (SELECT max(audit_id) FROM ledger.audit_log
        WHERE action = 'clear_finding' AND subject = finding_id::text) AS receipt
FROM ledger.finding
WHERE CASE WHEN %(finding)s::bigint IS NULL THEN cleared_at IS NULL
           ELSE finding_id = %(finding)s END
ORDER BY finding_id LIMIT 10000;

-- name: clear_finding
-- Clears a finding; false where it is not open.
SELECT ledger.clear_finding(%(finding)s, %(reason)s) AS changed;

-- name: status_meters
-- Meters at Stripe that are wrong or not there, as of the last look of a worker.
SELECT subject AS event_name, substr(kind, 7) AS kind, detail ->> 'rule' AS rule,
       ledger.us(found_at) AS found_us
FROM ledger.finding
WHERE cleared_at IS NULL AND starts_with(kind, 'meter_') ORDER BY subject, kind;

-- name: status_corrected
-- Dead items that ended because corrections took their amounts back.
SELECT count(*)::bigint AS count FROM ledger.parked WHERE state = 'corrected';

-- name: status_canaries
-- Age of the youngest canary by source: the worst partition speaks for all.
SELECT source, count(*)::bigint AS partitions, ledger.us(min(received_at)) AS oldest_us,
       (array_agg(partition ORDER BY received_at))[1] AS worst_partition
FROM ledger.canary GROUP BY source ORDER BY source;

-- name: status_positions
-- How far each partition's facts are in the ledger; of each topic the life that is followed now.
SELECT p.log_topic, p.log_id::text AS log_id, p.partition, p.position, p.catalogue_hash,
       ledger.us(p.updated_at) AS updated_us
FROM ledger.position AS p JOIN ledger.log_followed AS l USING (log_id)
ORDER BY p.log_topic, p.partition, p.log_id;

-- name: status_audits
-- The last audit of each source.
SELECT DISTINCT ON (subject) subject AS source, ledger.us(at) AS at_us,
       detail ->> 'lost' AS lost, detail ->> 'double' AS double
FROM ledger.audit_log WHERE action = 'audit' ORDER BY subject, at DESC;

-- name: incomplete_windows
-- Closed windows that are not all at Stripe, by metric: how many, and since when the oldest is over.
-- Asked of the work lists alone: it costs what waits, not what was ever billed.
WITH waiting AS (
    SELECT tenant_id, metric, window_start, window_end FROM ledger.level
    WHERE held OR due_at <= now()
    UNION
    SELECT e.tenant_id, e.metric, e.window_start, e.window_end
    FROM ledger.uncovered u JOIN ledger.meter_log e USING (entry_id) WHERE u.due_at <= now()
    UNION
    SELECT e.tenant_id, e.metric, e.window_start, e.window_end
    FROM ledger.meter_event m
    JOIN ledger.meter_event_entry x ON x.meter_event_id = m.meter_event_id AND x.live
    JOIN ledger.meter_log e USING (entry_id)
    WHERE m.state IN ('pending', 'ambiguous')
       OR (m.state = 'dead' AND EXISTS (SELECT FROM ledger.parked p
                                        WHERE p.meter_event_id = m.meter_event_id
                                          AND p.state = 'open'))
)
SELECT metric, count(*)::bigint AS windows,
       extract(epoch FROM now() - min(window_end))::float8 AS oldest_s
FROM waiting WHERE window_end <= now() GROUP BY metric ORDER BY metric;

-- name: parked_items
-- Items of one kind that wait for a person, oldest first.
SELECT parked_id, reason, source, tenant_id, metric, units::text AS units,
       event_id::text AS event_id, meter_event_id, ledger.us(window_start) AS window_start_us,
       ledger.us(occurred_at) AS occurred_us, ledger.us(received_at) AS received_us,
       ledger.us(parked_at) AS parked_us, detail::text AS detail
FROM ledger.parked
WHERE state = 'open' AND kind = %(kind)s
  AND (%(tenant)s::text IS NULL OR tenant_id = %(tenant)s)
ORDER BY parked_id LIMIT %(limit)s;

-- name: parked_count
-- How many wait in all, and how many ended because corrections took their amounts back.
SELECT (SELECT count(*) FROM ledger.parked
        WHERE state = 'open' AND kind = %(kind)s
          AND (%(tenant)s::text IS NULL OR tenant_id = %(tenant)s)) AS count,
       (SELECT count(*) FROM ledger.parked
        WHERE state = 'corrected' AND kind = %(kind)s
          AND (%(tenant)s::text IS NULL OR tenant_id = %(tenant)s)) AS corrected;

-- name: trace_registry
-- What the registry holds of a key: the usage event, and a correction of the same key.
SELECT event_id::text AS event_id, kind, metric, quantity::text AS quantity, kafka_key, shard,
       content, conflicts,
       (extract(epoch FROM occurred_at) * 1000000)::bigint AS occurred_us,
       (extract(epoch FROM received_at) * 1000000)::bigint AS received_us
FROM metering.find_key(%(tenant_id)s, %(event_key)s);

-- name: trace_parked
-- Parked items of an identity, conflicts with it and skipped records of it included.
SELECT parked_id, kind, parked.reason, state, units::text AS units, partition, record_offset,
       ledger.us(parked_at) AS parked_us, decided_by, ledger.us(parked.decided_at) AS decided_us,
       why, detail::text AS detail, skip.receipt AS skip_receipt
FROM ledger.parked LEFT JOIN ledger.skip USING (log_id, partition, record_offset)
WHERE event_id = %(event_id)s ORDER BY parked_id;

-- name: trace_level
-- The readings of a window, all shards and logs.
SELECT shard, log_id::text AS log_id, partition, birth_offset, count, total::text AS total, held,
       ledger.us(due_at) AS due_us, ledger.us(updated_at) AS updated_us
FROM ledger.level
WHERE tenant_id = %(tenant_id)s AND metric = %(metric)s
  AND window_start = ledger.at(%(window_start_us)s) AND catalogue_version = %(version)s
ORDER BY shard, log_id;

-- name: trace_entries
-- Entries of the identity itself, of corrections of it, and of its window where it counts by level.
SELECT entry_id, kind, revision, delta, level_count, event_id::text AS event_id,
       target_event_id::text AS target_event_id, actor, reason, reference,
       ledger.us(window_start) AS window_start_us, ledger.us(window_end) AS window_end_us,
       ledger.us(created_at) AS created_us
FROM ledger.meter_log
WHERE event_id = %(event_id)s OR target_event_id = %(event_id)s
   OR (kind = 'usage' AND tenant_id = %(tenant_id)s AND metric = %(metric)s
       AND window_start = ledger.at(%(window_start_us)s) AND catalogue_version = %(version)s)
ORDER BY entry_id;

-- name: trace_meter_events
-- Requests that cover these entries, superseded ones included.
SELECT DISTINCT m.meter_event_id, m.customer, m.event_name, m.value, m.units, m.timestamp_s,
       m.identifier, m.generation, m.state, m.dead_kind, m.attempts_used, m.possibly_executed,
       ledger.us(m.created_at) AS created_us, ledger.us(m.next_attempt_at) AS next_attempt_us,
       ledger.us(m.settled_at) AS settled_us, m.superseded_by
FROM ledger.meter_event m JOIN ledger.meter_event_entry x USING (meter_event_id)
WHERE x.entry_id = ANY (%(entries)s::bigint[]) ORDER BY m.meter_event_id;

-- name: trace_attempts
-- Every attempt of these requests.
SELECT attempt_id, meter_event_id, key_generation, worker, ledger.us(started_at) AS started_us,
       ledger.us(finished_at) AS finished_us, outcome, http_status, code, message, request_id, cause
FROM ledger.attempt WHERE meter_event_id = ANY (%(events)s::bigint[]) ORDER BY attempt_id;

-- name: trace_waiting
-- Which of these entries no request covers yet, and what they wait for.
SELECT u.entry_id, u.lane_id, ledger.us(u.due_at) AS due_us,
       ledger.us(u.deadline_at) AS deadline_us,
       EXISTS (SELECT FROM ledger.doubt d JOIN ledger.lane l USING (customer, event_name)
               WHERE l.lane_id = u.lane_id AND d.settled_at IS NULL
                 AND d.reason LIKE 'ledger_adopted%%' AND d.window_start <= u.window_start
                 AND d.window_end > u.window_start) AS doubted
FROM ledger.uncovered u WHERE u.entry_id = ANY (%(entries)s::bigint[]) ORDER BY u.entry_id;

-- name: trace_now
-- The ledger's clock.
SELECT ledger.us(now()) AS now_us;

-- name: trace_lanes
-- The lanes of what is not settled of these entries and requests, with what is in doubt in them.
SELECT l.lane_id, l.customer, l.event_name, l.paused, l.pause_reason,
       (SELECT count(*) FROM ledger.meter_event m
        WHERE m.lane_id = l.lane_id AND m.state = 'ambiguous')::bigint AS doubts
FROM ledger.lane l
WHERE l.lane_id IN (
    SELECT u.lane_id FROM ledger.uncovered u WHERE u.entry_id = ANY (%(entries)s::bigint[])
    UNION ALL
    SELECT m.lane_id FROM ledger.meter_event m
    WHERE m.meter_event_id = ANY (%(events)s::bigint[]) AND m.state IN ('pending', 'ambiguous'))
ORDER BY l.lane_id;

-- name: trace_pauses
-- Pauses in force that concern these lanes; without a lane yet, this tenant and this meter.
WITH lanes AS (
    SELECT l.customer, l.event_name FROM ledger.lane l
    WHERE l.lane_id = ANY (%(lanes)s::bigint[])
)
SELECT p.scope, p.subject, p.reason, p.paused_by AS by, ledger.us(p.paused_at) AS since_us
FROM ledger.pause p
WHERE p.resumed_at IS NULL
  AND CASE WHEN EXISTS (SELECT FROM lanes)
      THEN EXISTS (SELECT FROM lanes l
                   WHERE ledger.pause_concerns(p.scope, p.subject, l.customer, l.event_name))
      ELSE ledger.pause_awaits(p.scope, p.subject, %(tenant_id)s, %(metric)s) END
ORDER BY p.paused_at, p.pause_id;

-- name: trace_dead
-- Open dead items of these requests.
SELECT parked_id, meter_event_id, reason FROM ledger.parked
WHERE kind = 'dead' AND state = 'open' AND meter_event_id = ANY (%(events)s::bigint[])
ORDER BY parked_id;

-- name: trace_meters
-- What is wrong at Stripe with the meter of a metric, by the last look of a worker.
SELECT f.subject AS event_name, substr(f.kind, 7) AS kind, f.detail ->> 'rule' AS rule
FROM ledger.finding f
WHERE f.cleared_at IS NULL AND starts_with(f.kind, 'meter_')
  AND f.subject IN (SELECT v.event_name FROM ledger.meter_version v WHERE v.metric = %(metric)s)
ORDER BY f.subject, f.kind;

-- name: trace_named
-- Whether somebody said that a skipped record was this identity.
SELECT partition, record_offset, kind, actor, reason, receipt, ledger.us(named_at) AS named_us
FROM ledger.skip_name WHERE event_id = %(event_id)s AND kind = %(kind)s;

-- name: trace_seal
-- When the minute of an identity was proven.
SELECT ledger.us(sealed_at) AS sealed_us FROM ledger.sealed_minute
WHERE source = %(source)s AND minute = date_trunc('minute', ledger.at(%(received_us)s));


-- name: repair_range
-- Where a re-emission may begin, and the first minute that holds usage and that no audit has sealed.
WITH bounds AS (
    SELECT clock_timestamp() - value::interval AS oldest FROM metering.setting
    WHERE name = 'reemit_horizon'
), recorded AS (
    SELECT date_trunc('minute', k.received_at, 'UTC') AS minute
    FROM metering.usage_key AS k, bounds AS b WHERE k.received_at >= b.oldest
    UNION
    SELECT date_trunc('minute', c.received_at, 'UTC')
    FROM metering.usage_conflict AS c, bounds AS b WHERE c.received_at >= b.oldest
)
SELECT (extract(epoch FROM b.oldest) * 1000000)::bigint AS oldest_us,
       (SELECT (extract(epoch FROM min(r.minute)) * 1000000)::bigint FROM recorded AS r
        WHERE NOT EXISTS (SELECT FROM metering.sealed_minute AS s
                          WHERE s.minute = r.minute AND s.kind = 'usage')) AS unsealed_us
FROM bounds AS b;

-- name: push_metric
-- Tells the service's database of a meter: from then on it refuses unknown ones.
SELECT metering.put_metric(%(name)s, %(scale)s) AS changed;


-- name: doctor_service
-- What the service's server and this login are, for `tailrace doctor`.
SELECT current_setting('wal_level') AS wal_level, session_user::text AS login,
       (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS now_us,
       (SELECT rolsuper FROM pg_roles WHERE rolname = session_user) AS is_super,
       (SELECT rolcanlogin AND rolreplication FROM pg_roles WHERE rolname = 'metering_cdc')
           AS cdc_reads,
       (SELECT string_agg(attribute, ' ') FROM pg_roles AS r, LATERAL (VALUES
            ('NOSUPERUSER', r.rolsuper), ('NOCREATEROLE', r.rolcreaterole),
            ('NOCREATEDB', r.rolcreatedb), ('NOBYPASSRLS', r.rolbypassrls)) AS a (attribute, has)
        WHERE r.rolname = 'metering_cdc' AND a.has) AS cdc_loses,
       (SELECT string_agg(quote_ident(g.rolname), ', ') FROM pg_auth_members AS m
        JOIN pg_roles AS r ON r.oid = m.member JOIN pg_roles AS g ON g.oid = m.roleid
        WHERE r.rolname = 'metering_cdc') AS cdc_is;

-- name: doctor_outbox
-- What this outbox is, whether this login may look after it, and until when it has partitions.
SELECT s.source, s.partition_count, has_function_privilege(
           session_user, 'metering.emit_canaries(uuid)', 'EXECUTE') AS operates,
       (SELECT max(to_date(right(c.relname, 8), 'YYYYMMDD')) - (now() AT TIME ZONE 'UTC')::date
        FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid
        WHERE i.inhparent = 'metering.usage_outbox'::regclass
          AND c.relname ~ '^usage_outbox_p\d{8}$') AS days_ahead
FROM metering.source AS s;

-- name: doctor_writers
-- Roles, owner and superusers apart, that could write into the outbox past its functions.
SELECT DISTINCT coalesce(quote_ident(r.rolname), 'PUBLIC') AS grantee,
       format('%%I.%%I', n.nspname, c.relname) AS "table"
FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace
CROSS JOIN LATERAL aclexplode(c.relacl) AS a
LEFT JOIN pg_roles AS r ON r.oid = a.grantee
WHERE n.nspname = 'metering' AND c.relkind IN ('r', 'p') AND a.grantee <> c.relowner
  AND a.privilege_type IN ('INSERT', 'UPDATE', 'DELETE', 'TRUNCATE') AND NOT coalesce(r.rolsuper, false)
ORDER BY 1, 2;

-- name: doctor_metrics
-- Meters that the service's database was told of.
SELECT name, scale, valid FROM metering.metric ORDER BY name;

-- name: doctor_ledger
-- What this login may do in the ledger.
SELECT session_user::text AS login, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint AS now_us,
       pg_has_role(session_user, 'ledger_service', 'USAGE')
           OR pg_has_role(session_user, 'ledger_finance', 'USAGE') AS serves,
       (SELECT rolsuper FROM pg_roles WHERE rolname = session_user) AS is_super,
       pg_has_role(session_user, 'ledger_owner', 'USAGE') AS owns,
       has_table_privilege(session_user, 'ledger.meter_log', 'UPDATE')
           OR has_table_privilege(session_user, 'ledger.meter_log', 'DELETE') AS rewrites;

-- name: doctor_rewriters
-- Roles, owner and superusers apart, that could change or remove entries.
SELECT DISTINCT coalesce(quote_ident(r.rolname), 'PUBLIC') AS grantee, a.privilege_type AS privilege
FROM pg_class AS c CROSS JOIN LATERAL aclexplode(c.relacl) AS a
LEFT JOIN pg_roles AS r ON r.oid = a.grantee
WHERE c.oid = 'ledger.meter_log'::regclass AND a.grantee <> c.relowner
  AND a.privilege_type IN ('UPDATE', 'DELETE', 'TRUNCATE') AND NOT coalesce(r.rolsuper, false)
ORDER BY 1, 2;

-- name: doctor_unmapped
-- Tenants whose usage waits because nobody said which customer pays for it.
SELECT tenant_id, count(*)::bigint AS entries FROM ledger.uncovered
WHERE lane_id IS NULL GROUP BY tenant_id ORDER BY count(*) DESC, tenant_id LIMIT 20;

-- name: windows
-- Windows of a selection with their state, the oldest first; what is worst in a window names it.
WITH chosen AS (
    SELECT b.*, ledger.us(b.window_start) AS window_start_us, ledger.us(b.window_end) AS window_end_us,
           CASE WHEN b.dead <> 0 THEN 'dead'
                WHEN b.ambiguous <> 0 THEN 'doubtful'
                WHEN b.held <> 0 THEN 'held'
                WHEN b.window_end > now() THEN 'open'
                WHEN EXISTS (SELECT FROM ledger.level AS l
                             WHERE l.tenant_id = b.tenant_id AND l.metric = b.metric
                               AND l.window_start = b.window_start AND l.due_at IS NOT NULL)
                    THEN 'closing'
                WHEN b.pending <> 0 THEN 'pending'
                ELSE 'settled' END AS state
    FROM ledger.balance AS b
    WHERE (%(tenant)s::text IS NULL OR b.tenant_id = %(tenant)s)
      AND (%(metric)s::text IS NULL OR b.metric = %(metric)s)
      AND (%(from_us)s::bigint IS NULL OR b.window_start >= ledger.at(%(from_us)s))
      AND (%(to_us)s::bigint IS NULL OR b.window_start < ledger.at(%(to_us)s))
)
SELECT tenant_id, metric, window_start_us, window_end_us, state, events, total::text AS total,
       decided::text AS decided, settled::text AS settled, pending::text AS pending,
       held::text AS held, dead::text AS dead, ambiguous::text AS doubtful,
       count(*) OVER ()::bigint AS windows
FROM chosen WHERE %(state)s::text IS NULL OR state = %(state)s
ORDER BY window_start, tenant_id, metric LIMIT %(limit)s;

-- name: window_levels
-- The readings of a window, all versions, shards and logs.
SELECT catalogue_version, shard, log_id::text AS log_id, partition, count, total::text AS total, held,
       ledger.us(due_at) AS due_us, ledger.us(updated_at) AS updated_us
FROM ledger.level
WHERE tenant_id = %(tenant)s AND metric = %(metric)s AND window_start = ledger.at(%(from_us)s)
ORDER BY catalogue_version, shard, log_id;

-- name: window_entries
-- The entries of a window, each with the state of its amount.
SELECT e.entry_id, e.kind, e.revision, e.delta, s.state, e.actor, e.reason, e.reference,
       ledger.us(e.created_at) AS created_us, ledger.us(u.due_at) AS due_us,
       ledger.us(u.deadline_at) AS deadline_us
FROM ledger.meter_log AS e JOIN ledger.entry_state AS s USING (entry_id)
LEFT JOIN ledger.uncovered AS u USING (entry_id)
WHERE e.tenant_id = %(tenant)s AND e.metric = %(metric)s
  AND e.window_start = ledger.at(%(from_us)s)
ORDER BY e.entry_id;

-- name: window_parked
-- Items of a window that wait for a person.
SELECT parked_id, kind, reason, units::text AS units, ledger.us(parked_at) AS parked_us
FROM ledger.parked
WHERE state = 'open' AND tenant_id = %(tenant)s AND metric = %(metric)s
  AND window_start = ledger.at(%(from_us)s)
ORDER BY parked_id;

-- name: ledger_log
-- What people did to this ledger, the latest first; detail says why.
SELECT audit_id, action, subject, actor, ledger.us(at) AS at_us,
       coalesce(detail ->> 'why', detail ->> 'reason') AS why, detail::text AS detail,
       count(*) OVER ()::bigint AS rows
FROM ledger.audit_log
WHERE (%(actor)s::text IS NULL OR actor = %(actor)s)
  AND (%(action)s::text IS NULL OR action = %(action)s)
  AND (%(from_us)s::bigint IS NULL OR at >= ledger.at(%(from_us)s))
  AND (%(action)s::text IS NOT NULL OR action <> 'read_summaries')
ORDER BY audit_id DESC LIMIT %(limit)s;

-- name: statement_windows
-- What the ledger holds of a tenant's windows, with the digest of what they counted.
WITH chosen AS (
    SELECT * FROM ledger.balance AS b
    WHERE b.tenant_id = %(tenant)s AND (%(metric)s::text IS NULL OR b.metric = %(metric)s)
      AND b.window_start >= ledger.at(%(from_us)s) AND b.window_start < ledger.at(%(to_us)s)
), counted AS (
    SELECT metric, window_start, window_end, sum(digest) AS digest
    FROM (SELECT tenant_id, metric, window_start, window_end, digest FROM ledger.level
          UNION ALL
          SELECT tenant_id, metric, window_start, window_end, content FROM ledger.meter_log
          WHERE kind = 'event') AS both_ways
    WHERE tenant_id = %(tenant)s AND window_start >= ledger.at(%(from_us)s)
      AND window_start < ledger.at(%(to_us)s)
    GROUP BY 1, 2, 3
), decided AS (
    SELECT metric, window_start, window_end,
           sum(delta) FILTER (WHERE kind = 'correction') AS corrected,
           sum(delta) FILTER (WHERE kind = 'approval') AS approved,
           sum(delta) FILTER (WHERE kind IN ('carry', 'adoption')) AS shifted
    FROM ledger.meter_log
    WHERE kind NOT IN ('usage', 'event') AND tenant_id = %(tenant)s
      AND window_start >= ledger.at(%(from_us)s) AND window_start < ledger.at(%(to_us)s)
    GROUP BY 1, 2, 3
)
SELECT metric, ledger.us(window_start) AS start_us, ledger.us(window_end) AS end_us,
       c.events, c.total::text AS total,
       (coalesce(n.digest, 0) %% 340282366920938463463374607431768211456)::text AS digest,
       coalesce(d.corrected, 0)::text AS corrected, coalesce(d.approved, 0)::text AS approved,
       coalesce(d.shifted, 0)::text AS shifted, c.settled::text AS settled,
       c.pending::text AS pending, c.held::text AS held, c.dead::text AS dead,
       c.ambiguous::text AS doubtful
FROM chosen AS c
LEFT JOIN counted AS n USING (metric, window_start, window_end)
LEFT JOIN decided AS d USING (metric, window_start, window_end);

-- name: statement_parked
-- Records of a tenant that were not counted by themselves; of a skipped one what it was named.
SELECT p.parked_id, p.kind, p.reason, p.state, coalesce(p.event_id, n.event_id)::text AS event_id,
       p.units::bigint AS units, coalesce(p.metric, '') AS metric,
       ledger.us(p.occurred_at) AS occurred_us
FROM ledger.parked AS p
LEFT JOIN ledger.skip_name AS n
    ON p.event_id IS NULL AND n.kind = 'usage' AND n.log_id = p.log_id
   AND n.partition = p.partition AND n.record_offset = p.record_offset
WHERE coalesce(p.tenant_id, n.tenant_id) = %(tenant)s AND p.log_id IS NOT NULL
  AND coalesce(p.event_id, n.event_id) IS NOT NULL
  AND (p.metric IS NULL OR %(metric)s::text IS NULL OR p.metric = %(metric)s)
  AND (p.occurred_at IS NULL OR (p.occurred_at >= ledger.at(%(from_us)s)
                                 AND p.occurred_at < ledger.at(%(to_us)s)))
ORDER BY p.parked_id;

-- name: statement_entries
-- The entries of a tenant's windows, each with the request that covers it now.
SELECT e.entry_id, e.kind, e.metric, ledger.us(e.window_start) AS start_us,
       ledger.us(e.window_end) AS end_us, e.delta, s.state, e.event_id::text AS event_id,
       e.target_event_id::text AS target_event_id, e.actor, e.reason, e.reference,
       ledger.us(e.created_at) AS created_us, m.customer, m.identifier, m.value,
       ledger.us(m.settled_at) AS settled_us
FROM ledger.meter_log AS e
JOIN ledger.entry_state AS s USING (entry_id)
LEFT JOIN ledger.meter_event AS m ON m.meter_event_id = s.meter_event_id
WHERE e.tenant_id = %(tenant)s AND (%(metric)s::text IS NULL OR e.metric = %(metric)s)
  AND e.window_start >= ledger.at(%(from_us)s) AND e.window_start < ledger.at(%(to_us)s)
ORDER BY e.entry_id;

-- name: statement_sources
-- Whose usage the ledger knows: every outbox of which a verdict was told.
WITH RECURSIVE known AS (
    SELECT min(source) AS source FROM ledger.cell
    UNION ALL
    SELECT (SELECT min(c.source) FROM ledger.cell AS c WHERE c.source > known.source)
    FROM known WHERE known.source IS NOT NULL
)
SELECT source FROM known WHERE source IS NOT NULL ORDER BY source;

-- name: statement_recorded
-- First recordings of a tenant's usage, by when it occurred.
SELECT event_id::text AS event_id, event_key, metric, quantity::text AS quantity,
       (extract(epoch FROM occurred_at) * 1000000)::bigint AS occurred_us,
       (extract(epoch FROM received_at) * 1000000)::bigint AS received_us, content
FROM metering.usage_key
WHERE kind = 'usage' AND tenant_id = %(tenant)s
  AND (%(metric)s::text IS NULL OR metric = %(metric)s)
  AND occurred_at >= %(from)s AND occurred_at < %(to)s
ORDER BY metric, occurred_at, event_id;

-- name: export_counted
-- Usage that the ledger counted, by day of its window: what a day's accepted events must be.
SELECT ledger.us(date_trunc('day', window_start, 'UTC')) AS day_us, sum(count)::bigint AS events,
       (sum(digest) %% 340282366920938463463374607431768211456)::text AS digest
FROM (SELECT window_start, count, digest FROM ledger.level
      UNION ALL
      SELECT window_start, 1, content FROM ledger.meter_log WHERE kind = 'event') AS both_ways
WHERE window_start >= ledger.at(%(from_us)s) AND window_start < ledger.at(%(to_us)s)
GROUP BY 1 ORDER BY 1;

-- name: export_levels
-- What every series came to.
SELECT tenant_id, metric, catalogue_version, ledger.us(window_start) AS window_start,
       ledger.us(window_end) AS window_end, shard, log_id::text AS log_id, partition, count,
       total::text AS total, digest::text AS digest, held
FROM ledger.level
WHERE window_start >= ledger.at(%(from_us)s) AND window_start < ledger.at(%(to_us)s)
ORDER BY ledger.level.window_start, tenant_id, metric, catalogue_version, shard, log_id;

-- name: export_entries
-- Signed amounts, each with the request that covers it now.
SELECT e.entry_id, e.kind, e.tenant_id, e.metric, e.catalogue_version,
       ledger.us(e.window_start) AS window_start, ledger.us(e.window_end) AS window_end, e.shard,
       e.revision, e.delta, s.state, s.meter_event_id, e.event_id::text AS event_id,
       e.target_event_id::text AS target_event_id, ledger.us(e.occurred_at) AS occurred_at,
       e.actor, e.reason, e.reference, ledger.us(e.created_at) AS created_at
FROM ledger.meter_log AS e JOIN ledger.entry_state AS s USING (entry_id)
WHERE e.window_start >= ledger.at(%(from_us)s) AND e.window_start < ledger.at(%(to_us)s)
ORDER BY e.window_start, e.entry_id;

-- name: export_meter_events
-- Frozen requests, superseded ones included.
SELECT meter_event_id, customer, event_name, ledger.us(window_start) AS window_start,
       ledger.us(window_end) AS window_end, units, value, timestamp_s, identifier, generation,
       state, dead_kind, attempts_used, possibly_executed, superseded_by,
       ledger.us(created_at) AS created_at
FROM ledger.meter_event
WHERE window_start >= ledger.at(%(from_us)s) AND window_start < ledger.at(%(to_us)s)
ORDER BY ledger.meter_event.window_start, meter_event_id;

-- name: export_settlements
-- Requests that are settled, with Stripe's last answer.
SELECT m.meter_event_id, m.identifier, m.customer, m.event_name,
       ledger.us(m.window_start) AS window_start, m.units, m.state,
       ledger.us(m.settled_at) AS settled_at, a.attempts, a.http_status, a.request_id, a.worker
FROM ledger.meter_event AS m
LEFT JOIN LATERAL (
    SELECT count(*) OVER () AS attempts, t.http_status, t.request_id, t.worker
    FROM ledger.attempt AS t WHERE t.meter_event_id = m.meter_event_id
    ORDER BY t.attempt_id DESC LIMIT 1) AS a ON true
WHERE m.settled_at IS NOT NULL
  AND m.window_start >= ledger.at(%(from_us)s) AND m.window_start < ledger.at(%(to_us)s)
ORDER BY m.window_start, m.meter_event_id;

-- name: replay_history
-- The meter catalogue with the time at which each line was written.
SELECT ledger.us(created_at) AS at_us, metric, version, event_name, window_us, publish, scale,
       skew_max_us, close_delay_us, carry, aggregation, rules,
       ledger.us(effective_from) AS effective_from_us
FROM ledger.meter_version ORDER BY created_at, metric, version;

-- name: replay_positions
-- How far the ledger has each partition of a log, and the rules that judged its last chunk.
SELECT partition, position, catalogue_hash FROM ledger.position
WHERE log_id = %(log_id)s ORDER BY partition;

-- name: replay_levels
-- What the ledger was told of a partition's series.
SELECT tenant_id, metric, catalogue_version, ledger.us(window_start) AS start_us,
       ledger.us(window_end) AS end_us, shard, count, total::text AS total,
       digest::text AS digest, birth_offset
FROM ledger.level
WHERE log_id = %(log_id)s AND partition = %(partition)s
  AND (%(tenants)s::text[] IS NULL OR tenant_id = ANY (%(tenants)s));

-- name: replay_cells
-- What the ledger was told of a partition's minutes; not what people said of records afterwards.
SELECT source, ledger.us(minute) AS minute_us, verdict_class, count, digest::text AS digest,
       birth_offset
FROM ledger.cell
WHERE log_id = %(log_id)s AND partition = %(partition)s
  AND verdict_class NOT IN ('skipped', 'skipped conflict');

-- name: replay_entries
-- Entries of these identities.
SELECT kind, event_id::text AS event_id, delta, ledger.us(window_start) AS window_start_us,
       catalogue_version
FROM ledger.meter_log WHERE kind IN ('event', 'correction') AND event_id = ANY (%(event_ids)s::uuid[]);

-- name: replay_parked
-- Parked items of these identities, and of these records of a partition that have none.
SELECT kind, reason, event_id::text AS event_id, content::text AS content,
       CASE WHEN event_id IS NULL THEN record_offset END AS record_offset
FROM ledger.parked
WHERE event_id = ANY (%(event_ids)s::uuid[])
   OR (event_id IS NULL AND log_id = %(log_id)s AND partition = %(partition)s
       AND record_offset = ANY (%(offsets)s::bigint[]));

-- name: replay_unread
-- Records of a partition that were set aside unread, because workers ended with them.
SELECT record_offset FROM ledger.parked
WHERE reason = 'unread' AND log_id = %(log_id)s AND partition = %(partition)s ORDER BY 1;

-- name: archive_state
-- Days that are over and hold accepted usage: what their cells say, and what is missing.
SELECT ledger.us(begins_at) AS day_us, events, corrections, digest::text AS digest, unsealed,
       archived
FROM ledger.archive_state WHERE events + corrections > 0 ORDER BY begins_at;

-- name: archived_days
-- What the file of each archived day must be.
SELECT day::text AS day, path, rows, events, bytes, sha256, actor,
       ledger.us(archived_at) AS archived_us
FROM ledger.archived_day ORDER BY day;

-- name: note_archived
-- Notes the file of a day; whether it is new.
SELECT ledger.note_archived_v1(%(day)s, %(path)s, %(rows)s, %(usage)s, %(digest)s, %(bytes)s,
                               %(sha256)s) AS fresh;
-- name: role_calls
-- Which of these functions are there, and which this login may call; reads catalogues alone.
SELECT wanted.signature, p.oid IS NOT NULL AS present,
       coalesce(has_schema_privilege(n.oid, 'USAGE') AND has_function_privilege(p.oid, 'EXECUTE'),
                false) AS may
FROM unnest(%(signatures)s::text[]) AS wanted (signature)
LEFT JOIN pg_namespace AS n ON n.nspname = 'metering'
LEFT JOIN pg_proc AS p ON p.pronamespace = n.oid
    AND p.proname || '(' || oidvectortypes(p.proargtypes) || ')' = wanted.signature
ORDER BY wanted.signature;

-- name: erasable
-- What an erasure would replace in the ledger for a tenant, and what it leaves.
SELECT * FROM ledger.erasable(%(tenant)s);

-- name: erasure_blockers
-- What has to be settled first.
SELECT what, count FROM ledger.erasure_blockers(%(tenant)s);

-- name: erasures
-- What was erased: of a tenant, or of all, the oldest first.
SELECT receipt, tenant_id, ledger.us(erased_at) AS erased_us, actor, reason, records, record_bytes,
       entries, source_rows
FROM ledger.erasure
WHERE %(tenant)s::text IS NULL OR tenant_id = %(tenant)s ORDER BY receipt;

-- name: archived_total
-- How many days are archived, in how many bytes.
SELECT count(*)::bigint AS days, coalesce(sum(bytes), 0)::bigint AS bytes FROM ledger.archived_day;

-- name: erase_tenant
-- Takes a tenant's words out of the ledger; the receipt, and whether it is new.
SELECT changed, receipt, erased_at, ledger.us(erased_at) AS erased_us
FROM ledger.erase_tenant_v1(%(tenant)s, %(reason)s, %(source_rows)s);

-- name: source_erasable
-- What an erasure would replace in the service's database for a tenant, and what it leaves.
SELECT * FROM metering.erasable(%(tenant)s);

-- name: erase_source
-- Takes a tenant's words out of the service's database; how many rows.
SELECT metering.erase_tenant(%(tenant)s, %(receipt)s, %(erased_at)s) AS rows;
