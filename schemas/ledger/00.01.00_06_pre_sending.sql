-- The steps of claiming and settling. Lanes are always locked before their meter events.
SET LOCAL ROLE ledger_owner;

-- End meter events without another word: their entries go back to the work list.
CREATE FUNCTION ledger.release(events bigint[]) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    freed bigint[];
BEGIN
    UPDATE ledger.meter_event SET state = 'superseded', next_attempt_at = NULL
    WHERE meter_event_id = ANY (events);
    WITH ended AS (
        UPDATE ledger.meter_event_entry SET live = false
        WHERE meter_event_id = ANY (events) AND live RETURNING entry_id)
    SELECT array_agg(entry_id) INTO freed FROM ended;
    IF freed IS NOT NULL THEN
        PERFORM ledger.place_entries(freed);
    END IF;
END
$$;

-- End meter events that surely were never executed.
CREATE FUNCTION ledger.unfreeze(events bigint[]) RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF EXISTS (SELECT FROM ledger.meter_event m WHERE m.meter_event_id = ANY (events)
               AND (m.possibly_executed OR m.state NOT IN ('pending', 'dead')
                    OR EXISTS (SELECT FROM ledger.attempt a
                               WHERE a.meter_event_id = m.meter_event_id
                                 AND a.finished_at IS NULL))) THEN
        RAISE EXCEPTION 'meter_event: superseding one that Stripe may have executed'
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = 'Reconcile it against Stripe''s summaries first.';
    END IF;
    PERFORM ledger.release(events);
END
$$;

-- Lanes that are lent next; they stay locked until the transaction ends. None while halted, none
-- that a pause concerns.
CREATE FUNCTION ledger.lock_lanes_v1(most integer) RETURNS SETOF bigint
LANGUAGE plpgsql
AS $$
DECLARE
    pausing boolean;
BEGIN
    -- Before any lane: mapping a customer takes the same two in this order.
    PERFORM pg_advisory_xact_lock_shared(ledger.mapping_lock_key());
    IF EXISTS (SELECT FROM ledger.halt WHERE lifted_at IS NULL) THEN
        RETURN;
    END IF;
    SELECT EXISTS (SELECT FROM ledger.pause WHERE resumed_at IS NULL) INTO pausing;
    RETURN QUERY
        SELECT l.lane_id FROM ledger.lane l
        WHERE l.next_due_at <= now() AND NOT l.paused
          AND NOT (pausing AND ledger.is_paused(l.customer, l.event_name))
          AND (l.claimed_until IS NULL OR l.claimed_until <= now())
        ORDER BY l.next_due_at LIMIT most
        FOR NO KEY UPDATE SKIP LOCKED;
END
$$;

-- A request that is due again and was surely not executed takes in what came for its window
-- since: it is superseded, and the next freeze covers all of it. +10 and -10 become nothing.
CREATE FUNCTION ledger.merge_pending_v1(lanes bigint[]) RETURNS integer
LANGUAGE plpgsql
AS $$
DECLARE
    merged bigint[];
BEGIN
    PERFORM ledger.close_overdue_v1(lanes);
    SELECT array_agg(m.meter_event_id) INTO merged
    FROM ledger.meter_event m
    WHERE m.lane_id = ANY (lanes) AND m.state = 'pending' AND m.next_attempt_at <= now()
      AND NOT m.possibly_executed
      AND NOT EXISTS (SELECT FROM ledger.attempt a
                      WHERE a.meter_event_id = m.meter_event_id AND a.finished_at IS NULL)
      AND NOT m.per_entry
      AND EXISTS (SELECT FROM ledger.uncovered u
                  WHERE u.lane_id = m.lane_id AND u.window_start = m.window_start
                    AND u.window_end = m.window_end AND u.occurred_at IS NULL
                    AND u.due_at <= now() AND (u.deadline_at IS NULL OR u.deadline_at > now()));
    IF merged IS NOT NULL THEN
        PERFORM ledger.unfreeze(merged);
    END IF;
    RETURN coalesce(cardinality(merged), 0);
END
$$;

-- Insert frozen requests and take their entries off the work list. Not sendable: a row without
-- identifier, because its entries add up to zero, and one whose identifier is spent.
CREATE FUNCTION ledger.freeze_v1(requests json)
RETURNS TABLE (meter_event_id bigint, sendable boolean)
LANGUAGE plpgsql
AS $$
#variable_conflict use_column
DECLARE
    r record;
    made bigint;
    taken integer;
BEGIN
    FOR r IN
        SELECT * FROM json_to_recordset(requests) AS x(
            lane_id bigint, customer text, event_name text, window_start_us bigint,
            window_end_us bigint, per_entry boolean, units bigint, generation integer,
            attempts_used integer, entry_ids bigint[], value text, timestamp_s bigint,
            identifier text, payload_hash text)
    LOOP
        INSERT INTO ledger.meter_event (lane_id, customer, event_name, window_start, window_end,
            per_entry, units, first_entry_id, generation, value, timestamp_s, identifier,
            payload_hash, deadline_at, state, attempts_used, next_attempt_at, settled_at)
        VALUES (r.lane_id, r.customer, r.event_name, ledger.at(r.window_start_us),
            ledger.at(r.window_end_us), r.per_entry, r.units, r.entry_ids[1], r.generation, r.value,
            r.timestamp_s, r.identifier, r.payload_hash,
            (SELECT min(u.deadline_at) FROM ledger.uncovered u
             WHERE u.entry_id = ANY (r.entry_ids)),
            CASE WHEN r.identifier IS NULL THEN 'nothing' ELSE 'pending' END, r.attempts_used,
            CASE WHEN r.identifier IS NULL THEN NULL ELSE now() END,
            CASE WHEN r.identifier IS NULL THEN now() END)
        RETURNING meter_event_id INTO made;
        INSERT INTO ledger.meter_event_entry (meter_event_id, entry_id)
        SELECT made, unnest(r.entry_ids);
        DELETE FROM ledger.uncovered u
        WHERE u.entry_id = ANY (r.entry_ids) AND u.lane_id = r.lane_id;
        GET DIAGNOSTICS taken = ROW_COUNT;
        IF taken <> cardinality(r.entry_ids) THEN
            RAISE EXCEPTION 'uncovered: entries of lane % were taken meanwhile', r.lane_id
                USING ERRCODE = 'serialization_failure';
        END IF;
        UPDATE ledger.meter_event m SET superseded_by = made
        WHERE m.state = 'superseded' AND m.superseded_by IS NULL
          AND m.meter_event_id IN (SELECT x.meter_event_id FROM ledger.meter_event_entry x
                                   WHERE x.entry_id = ANY (r.entry_ids) AND NOT x.live);
        meter_event_id := made;
        sendable := r.identifier IS NOT NULL;
        IF EXISTS (SELECT FROM ledger.rejection x
                   WHERE x.identifier = r.identifier AND x.meter_event_id IS NULL) THEN
            sendable := NOT ledger.take_back_spent_v1(made);
        END IF;
        RETURN NEXT;
    END LOOP;
END
$$;

-- Write the attempts and lend the lanes. An earlier attempt without an outcome belongs to a
-- publisher that died or sleeps: it may have reached Stripe.
CREATE FUNCTION ledger.lend_v1(events bigint[], worker text, lease_ms bigint)
RETURNS SETOF ledger.attempt
LANGUAGE plpgsql
AS $$
DECLARE
    until timestamptz := now() + lease_ms * interval '1 millisecond';
BEGIN
    UPDATE ledger.meter_event m
    -- The fence counts from the earliest attempt that Stripe can have met: what was provably never
    -- sent, however often, leaves the whole time.
    SET first_attempt_at = CASE
            WHEN m.possibly_executed OR EXISTS (
                SELECT FROM ledger.attempt a
                WHERE a.meter_event_id = m.meter_event_id AND a.finished_at IS NULL)
            THEN coalesce(m.first_attempt_at, now())
            ELSE now() END,
        next_attempt_at = until,
        possibly_executed = m.possibly_executed OR EXISTS (
            SELECT FROM ledger.attempt a
            WHERE a.meter_event_id = m.meter_event_id AND a.finished_at IS NULL)
    WHERE m.meter_event_id = ANY (events);
    RETURN QUERY
        WITH written AS (
            INSERT INTO ledger.attempt (meter_event_id, key_generation, worker, lease_until)
            SELECT m.meter_event_id, m.key_generation, lend_v1.worker, until
            FROM ledger.meter_event m WHERE m.meter_event_id = ANY (events)
            RETURNING *
        ), lent AS (
            UPDATE ledger.lane l
            SET claimed_by = lend_v1.worker, claimed_until = until, attempt_id = w.attempt_id,
                next_due_at = until
            FROM written w JOIN ledger.meter_event m USING (meter_event_id)
            WHERE l.lane_id = m.lane_id
        )
        SELECT * FROM written;
END
$$;

-- Lanes where nothing can be done now sleep until the next instant that is known; whatever
-- changes before wakes them.
CREATE FUNCTION ledger.rest_lanes_v1(lanes bigint[]) RETURNS void
LANGUAGE sql
AS $$
    UPDATE ledger.lane l SET next_due_at = least(
        (SELECT min(m.next_attempt_at) FROM ledger.meter_event m
         WHERE m.lane_id = l.lane_id AND m.next_attempt_at > now()),
        (SELECT min(u.due_at) FROM ledger.uncovered u
         WHERE u.lane_id = l.lane_id AND u.due_at > now()))
    WHERE l.lane_id = ANY (lanes)
$$;

-- A meter event that will not be sent any more becomes a parked item with its evidence: where its
-- amounts came from and what was seen. Both are bounded, because a long outage leaves thousands of
-- attempts and a dead letter must fit into a record; the tables keep all.
CREATE FUNCTION ledger.park_dead(event bigint, kind_of_death text) RETURNS void
LANGUAGE sql
AS $$
    INSERT INTO ledger.parked (kind, reason, meter_event_id, tenant_id, metric, units,
                               window_start, window_end, detail)
    SELECT 'dead', kind_of_death, m.meter_event_id, e.tenant_id, e.metric, m.units, m.window_start,
           m.window_end,
           jsonb_build_object('customer', m.customer, 'event_name', m.event_name, 'value', m.value,
               'timestamp_s', m.timestamp_s, 'identifier', m.identifier,
               'generation', m.generation, 'possibly_executed', m.possibly_executed,
               'first_attempt_at', m.first_attempt_at, 'deadline_at', m.deadline_at,
               'entries_total', e.entries_total, 'entries', e.entries,
               'attempts_total', t.attempts_total, 'attempts', t.attempts)
    FROM ledger.meter_event m
    CROSS JOIN LATERAL (
        SELECT count(*) AS entries_total,
               coalesce(jsonb_agg(jsonb_build_object('entry_id', n.entry_id, 'kind', n.kind,
                   'delta', n.delta, 'log_id', n.log_id, 'partition', n.partition,
                   'offset', n.record_offset, 'event_id', n.event_id, 'revision', n.revision)
                   ORDER BY n.entry_id) FILTER (WHERE n.place <= 50), '[]') AS entries,
               CASE WHEN min(n.tenant_id) = max(n.tenant_id) THEN min(n.tenant_id) END AS tenant_id,
               CASE WHEN min(n.metric) = max(n.metric) THEN min(n.metric) END AS metric
        FROM (SELECT l.*, row_number() OVER (ORDER BY l.entry_id) AS place
              FROM ledger.meter_event_entry x JOIN ledger.meter_log l USING (entry_id)
              WHERE x.meter_event_id = m.meter_event_id AND x.live) AS n) AS e
    CROSS JOIN LATERAL (
        SELECT count(*) AS attempts_total,
               coalesce(jsonb_agg(jsonb_build_object('attempt_id', n.attempt_id,
                   'key_generation', n.key_generation, 'started_at', n.started_at,
                   'finished_at', n.finished_at, 'outcome', n.outcome,
                   'http_status', n.http_status, 'code', n.code, 'message', n.message,
                   'request_id', n.request_id, 'cause', n.cause)
                   ORDER BY n.attempt_id) FILTER (WHERE n.place <= 5 OR n.back <= 45), '[]')
                   AS attempts
        FROM (SELECT a.*, row_number() OVER (ORDER BY a.attempt_id) AS place,
                     row_number() OVER (ORDER BY a.attempt_id DESC) AS back
              FROM ledger.attempt a WHERE a.meter_event_id = m.meter_event_id) AS n) AS t
    WHERE m.meter_event_id = event
    ON CONFLICT (meter_event_id) WHERE meter_event_id IS NOT NULL
        DO UPDATE SET state = 'open', reason = excluded.reason, detail = excluded.detail,
                      published_at = NULL
$$;

-- End requests that may have been executed and are never asked about again: only Stripe's sums can
-- tell what became of them. Their lanes are locked.
CREATE FUNCTION ledger.leave_in_doubt(events bigint[]) RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    UPDATE ledger.meter_event SET state = 'dead', dead_kind = 'ambiguous',
        possibly_executed = true, next_attempt_at = NULL, settled_at = now()
    WHERE meter_event_id = ANY (events);
    PERFORM ledger.park_dead(e, 'ambiguous') FROM unnest(events) AS e;
END
$$;

-- Write what one attempt came to. `settled`: it decided; `late`: a newer attempt or a final state
-- decides, only the outcome was noted; `repeated`: it was written before.
CREATE FUNCTION ledger.settle_v1(s json) RETURNS text
LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    r record;
    m ledger.meter_event;
    executed boolean;
    verdict text := 'settled';
BEGIN
    SELECT * INTO r FROM json_to_record(s) AS x(
        attempt_id bigint, meter_event_id bigint, lane_id bigint, state text, dead_kind text,
        key_generation integer, possibly_executed boolean, attempt_used boolean,
        retry_delay_ms bigint, outcome text, http_status integer, code text, message text,
        request_id text, cause text);
    IF r.state NOT IN ('pending', 'recorded', 'ambiguous', 'dead') THEN
        RAISE EXCEPTION 'state: % is no outcome of an attempt', r.state
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    PERFORM FROM ledger.lane l WHERE l.lane_id = r.lane_id FOR NO KEY UPDATE;
    SELECT * INTO STRICT m FROM ledger.meter_event e
    WHERE e.meter_event_id = r.meter_event_id FOR NO KEY UPDATE;

    UPDATE ledger.attempt a
    SET finished_at = now(), outcome = r.outcome, http_status = r.http_status, code = r.code,
        message = r.message, request_id = r.request_id, cause = r.cause
    WHERE a.attempt_id = r.attempt_id AND a.meter_event_id = r.meter_event_id
      AND a.finished_at IS NULL;
    IF NOT FOUND THEN
        RETURN 'repeated';
    END IF;

    executed := m.possibly_executed OR r.possibly_executed;
    -- A rejected one stays rejected: the answer that comes late was given before it was rejected.
    IF r.state = 'recorded' AND m.state IN ('pending', 'ambiguous', 'dead')
       AND m.rejected_at IS NULL THEN
        UPDATE ledger.meter_event SET state = 'recorded', settled_at = now(),
            next_attempt_at = NULL, possibly_executed = executed,
            key_generation = greatest(key_generation, r.key_generation)
        WHERE meter_event_id = m.meter_event_id;
        UPDATE ledger.parked p SET state = 'withdrawn', decided_at = now(),
            decided_by = 'ledger', why = 'a late answer says it was recorded'
        WHERE p.meter_event_id = m.meter_event_id AND p.state = 'open';
    ELSIF r.state = 'recorded' AND m.state = 'superseded' AND m.rejected_at IS NULL THEN
        -- Both it and its successor may count now; a person compares with Stripe.
        INSERT INTO ledger.finding (kind, subject, detail)
        VALUES ('superseded_recorded', 'meter_event ' || m.meter_event_id,
                jsonb_build_object('attempt_id', r.attempt_id, 'identifier', m.identifier))
        ON CONFLICT DO NOTHING;
        verdict := 'late';
    ELSIF m.state IN ('pending', 'ambiguous')
          AND NOT EXISTS (SELECT FROM ledger.attempt a WHERE a.meter_event_id = m.meter_event_id
                          AND a.attempt_id > r.attempt_id) THEN
        PERFORM ledger.settle_failure(m.meter_event_id, executed, r.state, r.dead_kind,
                                      r.key_generation, r.attempt_used, r.retry_delay_ms);
    ELSE
        UPDATE ledger.meter_event SET possibly_executed = executed,
            key_generation = greatest(key_generation, r.key_generation)
        WHERE meter_event_id = m.meter_event_id AND state IN ('pending', 'ambiguous', 'dead');
        verdict := 'late';
    END IF;

    UPDATE ledger.lane l SET claimed_by = NULL, claimed_until = NULL, attempt_id = NULL
    WHERE l.lane_id = r.lane_id AND l.attempt_id = r.attempt_id;
    PERFORM ledger.wake(ARRAY[r.lane_id]);
    RETURN verdict;
END
$$;

-- Once possibly executed, a failure proves nothing: it waits as ambiguous or dies as ambiguous.
CREATE FUNCTION ledger.settle_failure(
    event bigint, executed boolean, wanted text, kind_of_death text, next_key integer,
    used boolean, delay_ms bigint
) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    reached text := CASE WHEN wanted = 'pending' AND executed THEN 'ambiguous' ELSE wanted END;
    death text := CASE WHEN wanted <> 'dead' THEN NULL
                       WHEN executed THEN 'ambiguous'
                       ELSE coalesce(kind_of_death, 'refused') END;
BEGIN
    UPDATE ledger.meter_event m
    SET state = reached, dead_kind = death, possibly_executed = executed,
        key_generation = greatest(m.key_generation, next_key),
        attempts_used = m.attempts_used + used::integer,
        next_attempt_at = CASE WHEN wanted = 'dead' THEN NULL
                               WHEN wanted = 'pending' OR delay_ms IS NOT NULL
                               THEN now() + coalesce(delay_ms, 0) * interval '1 millisecond' END,
        settled_at = CASE WHEN wanted = 'dead' THEN now() END
    WHERE m.meter_event_id = event;
    IF wanted = 'dead' THEN
        PERFORM ledger.park_dead(event, death);
        PERFORM ledger.end_corrected(ARRAY[m.lane_id])
        FROM ledger.meter_event m WHERE m.meter_event_id = event;
    END IF;
END
$$;

RESET ROLE;
