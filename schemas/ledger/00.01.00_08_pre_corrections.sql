-- What corrections are named by, and the queue they stand in.
SET LOCAL ROLE ledger_owner;

-- Length-prefixed text, so that no two lists of parts read the same.
CREATE FUNCTION ledger.lp(part text) RETURNS bytea
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$ SELECT int4send(octet_length(part)) || convert_to(part, 'UTF8') $$;

-- Whatever takes from a tenant's period holds this lock: two must not both fit into the same rest.
CREATE FUNCTION ledger.correction_lock_key(tenant text) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$ SELECT hashtextextended('ledger.correct ' || tenant, 0) $$;

-- Waiting corrections that take back exactly what these dead requests of one window hold, tenant by
-- tenant: one that is the very opposite, else all of them together. NULL: there are none.
CREATE FUNCTION ledger.corrections_against(events bigint[]) RETURNS bigint[]
LANGUAGE sql STABLE
AS $$
    WITH held AS (
        SELECT m.lane_id, m.window_start, m.window_end, e.tenant_id, e.metric,
               sum(e.delta) AS units
        FROM ledger.meter_event m
        JOIN ledger.meter_event_entry x ON x.meter_event_id = m.meter_event_id AND x.live
        JOIN ledger.meter_log e USING (entry_id)
        WHERE m.meter_event_id = ANY (events) GROUP BY 1, 2, 3, 4, 5
    ), against AS (
        SELECT c.entries FROM held h
        CROSS JOIN LATERAL (
            SELECT coalesce(
                       (array_agg(u.entry_id ORDER BY u.entry_id)
                        FILTER (WHERE u.delta = -h.units))[1:1],
                       CASE WHEN sum(u.delta) = -h.units
                            THEN array_agg(u.entry_id ORDER BY u.entry_id) END) AS entries
            FROM ledger.uncovered u JOIN ledger.meter_log e USING (entry_id)
            WHERE u.corrects AND u.lane_id = h.lane_id
              AND u.window_start = h.window_start AND u.window_end = h.window_end
              AND e.tenant_id = h.tenant_id AND e.metric = h.metric) AS c
        WHERE h.units <> 0
    )
    SELECT CASE WHEN (SELECT bool_and(entries IS NOT NULL) FROM against)
           THEN (SELECT array_agg(n ORDER BY n) FROM against, unnest(entries) AS n) END
$$;

-- End dead requests together with the corrections that took them back: both are nothing to send.
CREATE FUNCTION ledger.end_by(events bigint[], corrections bigint[]) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    m ledger.meter_event;
    last ledger.meter_log;
    covered bigint[];
    made bigint;
    who text;
    words text;
BEGIN
    SELECT * INTO m FROM ledger.meter_event x WHERE x.meter_event_id = events[1];
    SELECT * INTO last FROM ledger.meter_log e
    WHERE e.entry_id = corrections[cardinality(corrections)];
    -- A service's own words stand in its entry and nowhere else, or they could not be erased.
    who := CASE WHEN last.log_id IS NULL THEN last.actor ELSE session_user END;
    words := CASE WHEN last.log_id IS NULL THEN last.reason
                  ELSE format('the service took it back: entry %s', last.entry_id) END;
    UPDATE ledger.meter_event SET state = 'superseded' WHERE meter_event_id = ANY (events);
    WITH ended AS (
        UPDATE ledger.meter_event_entry SET live = false
        WHERE meter_event_id = ANY (events) AND live RETURNING entry_id)
    SELECT array_agg(entry_id ORDER BY entry_id) INTO covered
    FROM (SELECT entry_id FROM ended UNION SELECT unnest(corrections)) AS n;
    DELETE FROM ledger.uncovered WHERE entry_id = ANY (corrections);
    made := ledger.insert_reconciled(m.lane_id, m.window_start, m.window_end, 0, covered[1], NULL,
                                     m.deadline_at, 'nothing');
    INSERT INTO ledger.meter_event_entry (meter_event_id, entry_id) SELECT made, unnest(covered);
    UPDATE ledger.meter_event SET superseded_by = made WHERE meter_event_id = ANY (events);
    WITH ended AS (
        UPDATE ledger.parked p SET state = 'corrected', decided_by = who,
            decided_at = now(), why = concat_ws(': ', 'correction ' || last.reference, words)
        WHERE p.meter_event_id = ANY (events) AND p.state = 'open' RETURNING p.parked_id)
    INSERT INTO ledger.decision (action, parked_id, entry_id, actor, reason, detail)
    SELECT 'end', parked_id, last.entry_id, who, words,
           jsonb_build_object('corrections', corrections, 'request', made)
    FROM ended;
END
$$;

-- Whether Stripe may hold a request that no attempt is known to have counted. One that was rejected
-- for good holds nothing, whatever was thought of it before.
CREATE FUNCTION ledger.in_doubt(m ledger.meter_event) RETURNS boolean
LANGUAGE sql IMMUTABLE
AS $$ SELECT m.possibly_executed AND (m.rejected_at IS NULL OR m.dead_kind <> 'refused') $$;

-- Whether the request's cell waits for Stripe's sums since the ledger went back: the lost one may
-- have sent the same amount in another request.
CREATE FUNCTION ledger.awaits_sums(m ledger.meter_event) RETURNS boolean
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    RETURN EXISTS (SELECT FROM ledger.doubt d
                   WHERE d.customer = m.customer AND d.event_name = m.event_name
                     AND d.window_start <= m.window_start AND d.window_end > m.window_start
                     AND d.settled_at IS NULL AND d.reason LIKE 'ledger_adopted%');
END
$$;

-- Dead requests that Stripe surely never executed end once corrections take back what they hold,
-- each by itself or all of a window: whichever came first, death or correction. The lanes are
-- locked. Where a restored ledger may have sent them, Stripe's sums tell first.
CREATE FUNCTION ledger.end_corrected(lanes bigint[]) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    w record;
    one bigint;
    left_over bigint[];
    found bigint[];
BEGIN
    FOR w IN
        SELECT array_agg(m.meter_event_id ORDER BY m.meter_event_id) AS events
        FROM (SELECT DISTINCT u.lane_id, u.window_start, u.window_end FROM ledger.uncovered u
              WHERE u.corrects AND u.lane_id = ANY (lanes)) AS c
        JOIN ledger.meter_event m USING (lane_id, window_start, window_end)
        WHERE m.state = 'dead'
          AND NOT ledger.in_doubt(m) AND NOT ledger.awaits_sums(m)
        GROUP BY m.lane_id, m.window_start, m.window_end
    LOOP
        left_over := '{}';
        FOREACH one IN ARRAY w.events LOOP
            found := ledger.corrections_against(ARRAY[one]);
            IF found IS NULL THEN
                left_over := left_over || one;
            ELSE
                PERFORM ledger.end_by(ARRAY[one], found);
            END IF;
        END LOOP;
        IF cardinality(left_over) > 1 THEN
            found := ledger.corrections_against(left_over);
            IF found IS NOT NULL THEN
                PERFORM ledger.end_by(left_over, found);
            END IF;
        END IF;
    END LOOP;
END
$$;

RESET ROLE;
