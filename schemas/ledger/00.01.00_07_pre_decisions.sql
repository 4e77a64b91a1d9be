-- What people may do, each in one transaction with its trace: map customers, decide, correct.
SET LOCAL ROLE ledger_owner;

-- Map a tenant to its Stripe customer from an instant on; NULL: from the beginning for a first
-- mapping, else from the next boundary that all windows share. Held entries are placed at once.
CREATE FUNCTION ledger.map_customer_v1(
    tenant text, new_customer text, from_at timestamptz, new_anchor timestamptz,
    new_interval text, new_grace interval, who text, why text DEFAULT NULL
) RETURNS timestamptz
LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    longest_us bigint;
    starts timestamptz := from_at;
    waiting bigint[];
BEGIN
    PERFORM pg_advisory_xact_lock(ledger.mapping_lock_key());
    SELECT coalesce(max(window_us), 3600000000) INTO longest_us FROM ledger.meter_version;
    IF starts IS NULL THEN
        IF EXISTS (SELECT FROM ledger.customer c WHERE c.tenant_id = tenant) THEN
            starts := ledger.at((ledger.us(now()) / longest_us + 1) * longest_us);
        ELSE
            starts := ledger.at(0);
        END IF;
    END IF;
    IF ledger.us(starts) % longest_us <> 0 THEN
        RAISE EXCEPTION 'effective_from: not on a boundary of all windows in the catalogue'
            USING ERRCODE = 'invalid_parameter_value',
                  HINT = format('Windows are up to %s s long: use a full day, hour or minute in UTC.',
                                longest_us / 1000000);
    END IF;
    IF starts <= now() AND EXISTS (SELECT FROM ledger.customer c WHERE c.tenant_id = tenant
                                   AND c.effective_from <= starts) THEN
        RAISE EXCEPTION 'effective_from: usage from % on may be billed to the present customer',
            starts USING ERRCODE = 'invalid_parameter_value',
            HINT = 'Map from a future boundary; move past usage by a pair of corrections.';
    END IF;
    INSERT INTO ledger.customer (tenant_id, effective_from, customer, anchor, billing_interval,
                                 grace, actor)
    VALUES (tenant, starts, new_customer, new_anchor, new_interval, new_grace,
            coalesce(who, session_user));
    INSERT INTO ledger.audit_log (action, subject, actor, detail)
    VALUES ('map_customer', tenant, coalesce(who, session_user),
            jsonb_strip_nulls(jsonb_build_object('customer', new_customer, 'effective_from', starts,
                                                 'why', why)));
    SELECT array_agg(u.entry_id) INTO waiting FROM ledger.uncovered u WHERE u.tenant_id = tenant;
    IF waiting IS NOT NULL THEN
        PERFORM ledger.place_entries(waiting);
    END IF;
    RETURN starts;
END
$$;

-- Accept another log beside the first: a new topic whose `seen` was carried over.
CREATE FUNCTION ledger.open_log(topic text, topic_id uuid, why text) RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF btrim(coalesce(why, '')) = '' THEN
        RAISE EXCEPTION 'why: say why a second log does not count everything again'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    INSERT INTO ledger.log (log_id, log_topic, opened_by, reason)
    VALUES (topic_id, topic, session_user, why) ON CONFLICT DO NOTHING;
    INSERT INTO ledger.audit_log (action, subject, detail)
    VALUES ('open_log', topic_id::text, jsonb_build_object('topic', topic, 'why', why));
END
$$;

-- Publish again after a halt. The person who calls it has settled why the ledger halted.
CREATE FUNCTION ledger.lift_halt(halted_kind text, reason text) RETURNS boolean
LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    UPDATE ledger.halt SET lifted_at = now(), lifted_by = session_user, why = reason
    WHERE kind = halted_kind AND lifted_at IS NULL;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    INSERT INTO ledger.audit_log (action, subject, detail)
    VALUES ('lift_halt', halted_kind, jsonb_build_object('why', reason));
    RETURN true;
END
$$;

-- Clear a finding that has been settled; the series it held is cut again once no other holds it.
-- False: it is not open.
CREATE FUNCTION ledger.clear_finding(wanted bigint, reason text) RETURNS boolean
LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    f ledger.finding;
BEGIN
    IF btrim(coalesce(reason, '')) = '' THEN
        RAISE EXCEPTION 'reason: say how the contradiction was settled'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    UPDATE ledger.finding SET cleared_at = now(), cleared_by = session_user, why = reason
    WHERE finding_id = wanted AND cleared_at IS NULL RETURNING * INTO f;
    IF f.finding_id IS NULL THEN
        RETURN false;
    END IF;
    UPDATE ledger.level l SET held = false, due_at = coalesce(l.due_at, greatest(l.window_end, now()))
    WHERE f.kind LIKE 'level%' AND l.held
      AND l.tenant_id = f.detail ->> 'tenant_id' AND l.metric = f.detail ->> 'metric'
      AND l.window_start = (f.detail ->> 'window_start')::timestamptz
      AND l.catalogue_version = (f.detail ->> 'version')::integer
      AND l.shard = (f.detail ->> 'shard')::integer AND l.log_id = (f.detail ->> 'log_id')::uuid
      AND NOT EXISTS (SELECT FROM ledger.finding o
                      WHERE o.cleared_at IS NULL AND o.kind LIKE 'level%'
                        AND o.detail - 'told' - 'recorded' = f.detail - 'told' - 'recorded');
    INSERT INTO ledger.audit_log (action, subject, detail)
    VALUES ('clear_finding', wanted::text,
            jsonb_build_object('why', reason, 'kind', f.kind, 'about', f.subject));
    RETURN true;
END
$$;

-- Let a paused lane go on; what it waits for is looked at afresh.
CREATE FUNCTION ledger.resume_lane(wanted bigint, reason text) RETURNS boolean
LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    UPDATE ledger.lane SET paused = false, pause_reason = NULL WHERE lane_id = wanted AND paused;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM ledger.wake(ARRAY[wanted]);
    INSERT INTO ledger.audit_log (action, subject, detail)
    VALUES ('resume_lane', wanted::text, jsonb_build_object('why', reason));
    RETURN true;
END
$$;

CREATE FUNCTION ledger.lock_open_item(item bigint) RETURNS ledger.parked
LANGUAGE plpgsql
AS $$
DECLARE
    p ledger.parked;
BEGIN
    SELECT * INTO p FROM ledger.parked q WHERE q.parked_id = item FOR UPDATE;
    IF p.parked_id IS NULL THEN
        RAISE EXCEPTION 'parked_id: % does not exist', item
            USING ERRCODE = 'invalid_parameter_value';
    ELSIF p.state <> 'open' THEN
        RAISE EXCEPTION 'parked_id: % is % already', item, p.state
            USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    RETURN p;
END
$$;

-- A service's correction keeps the rules of every other: never below zero for the period, and more
-- than one person decides alone needs two. Gives who agreed before, and whether another login must
-- still approve; the first approval of such an amount is noted as agreement.
CREATE FUNCTION ledger.check_reviewed_correction(
    p ledger.parked, in_window timestamptz, why text, OUT agreed_by text, OUT waits boolean
)
LANGUAGE plpgsql
AS $$
DECLARE
    standing record;
BEGIN
    PERFORM pg_advisory_xact_lock(ledger.correction_lock_key(p.tenant_id));
    SELECT * INTO standing FROM ledger.period_standing(p.tenant_id, p.metric, in_window);
    IF p.units < 0 AND standing.units + p.units < 0 THEN
        RAISE EXCEPTION 'delta: % would make the period from % negative', p.units,
            standing.period_from USING ERRCODE = 'invalid_parameter_value',
            HINT = format('At most -%s is possible: reject it, and correct by that.',
                          greatest(standing.units, 0));
    END IF;
    waits := false;
    IF NOT ledger.needs_four_eyes(p.metric, p.units, standing.alone_units) THEN
        RETURN;
    END IF;
    SELECT d.actor INTO agreed_by FROM ledger.decision d
    WHERE d.parked_id = p.parked_id AND d.action = 'agree'
    ORDER BY d.actor = session_user, d.decision_id LIMIT 1;
    IF agreed_by IS NULL THEN
        INSERT INTO ledger.decision (action, parked_id, reason, detail)
        VALUES ('agree', p.parked_id, why, jsonb_build_object(
            'units', p.units, 'limit_units', ledger.correction_limit(p.metric)));
    END IF;
    waits := coalesce(agreed_by = session_user, true);
END
$$;

-- Bill a reviewed item: one entry with the item's own identity, once for ever. `choice` is asked
-- when the item's own invoice is closed. NULL: another login has to approve as well.
CREATE FUNCTION ledger.approve(
    item bigint, why text, proof text DEFAULT NULL, choice text DEFAULT NULL
) RETURNS bigint
LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    p ledger.parked := ledger.lock_open_item(item);
    place record;
    -- A service's own correction keeps its key and target, by which it is found and reversed.
    asked jsonb := CASE WHEN p.reason = 'correction_limit' AND octet_length(p.record) < 65536
                   THEN ledger.evidence(convert_from(p.record, 'UTF8')) END;
    agreed_by text;
    waits boolean;
    made bigint;
BEGIN
    IF p.entry_id IS NOT NULL THEN
        -- An amount that missed its invoice is in the ledger already: it moves, it is not added.
        IF choice = 'own' THEN
            RAISE EXCEPTION 'into: % has missed the invoice of its own window', item
                USING ERRCODE = 'invalid_parameter_value',
                      HINT = 'Carry it into the open period, or reject it.';
        END IF;
        RETURN (ledger.carry_entry(p.entry_id, why)).in_entry_id;
    END IF;
    IF p.kind <> 'review' OR p.event_id IS NULL OR p.units IS NULL OR p.window_start IS NULL THEN
        RAISE EXCEPTION 'parked_id: % has no amount and window that could be billed', item
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = 'Reject it, and record a correction if something is to be billed.';
    ELSIF p.reason = 'conflict' THEN
        RAISE EXCEPTION 'parked_id: % conflicts with usage that is billed already', item
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = 'Record a correction for the difference, then reject this item.';
    ELSIF p.reason NOT IN ('late', 'early', 'beyond_horizon', 'correction_limit') THEN
        -- An amount that is an entry already would be one twice.
        RAISE EXCEPTION 'parked_id: % waits for another decision: %', item, p.reason
            USING ERRCODE = 'object_not_in_prerequisite_state';
    ELSIF p.reason = 'beyond_horizon' AND btrim(coalesce(proof, '')) = '' THEN
        RAISE EXCEPTION 'proof: % may have been counted before the horizon', item
            USING ERRCODE = 'invalid_parameter_value',
                  HINT = 'Give as proof where the archive shows that it was not.';
    ELSIF EXISTS (SELECT FROM ledger.meter_log e WHERE e.event_id = p.event_id) THEN
        RAISE EXCEPTION 'parked_id: the identity of % is an entry already', item
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = 'Reject this item: the amount counts once.';
    END IF;
    SELECT * INTO place FROM ledger.place_amount(p.tenant_id, p.metric, p.catalogue_version,
        p.window_start, p.window_end, p.occurred_at, choice);
    IF place.problem IS NOT NULL THEN
        RAISE EXCEPTION '%', place.problem
            USING ERRCODE = 'invalid_parameter_value', HINT = coalesce(place.hint, '');
    END IF;
    IF p.reason = 'correction_limit' THEN
        SELECT c.agreed_by, c.waits INTO agreed_by, waits
        FROM ledger.check_reviewed_correction(p, place.window_start, why) AS c;
        IF waits THEN
            RETURN NULL;
        END IF;
    END IF;
    INSERT INTO ledger.meter_log (kind, tenant_id, metric, catalogue_version, window_start,
        window_end, shard, log_id, partition, record_offset, delta, event_id, content, occurred_at,
        actor, reason, reference, target_event_id)
    VALUES (CASE p.reason WHEN 'correction_limit' THEN 'correction' ELSE 'approval' END,
        p.tenant_id, p.metric, place.version, place.window_start, place.window_end, p.shard,
        p.log_id, p.partition, p.record_offset, p.units::bigint, p.event_id, p.content,
        place.occurred_at, session_user, why, coalesce(proof, asked ->> 'event_key'),
        (asked ->> 'target_event_id')::uuid)
    RETURNING entry_id INTO made;
    UPDATE ledger.parked SET state = 'approved', decided_by = session_user, decided_at = now(),
        why = approve.why WHERE parked_id = item;
    INSERT INTO ledger.decision (action, parked_id, entry_id, reason, detail)
    VALUES ('approve', item, made, why, jsonb_build_object('proof', proof, 'into', choice)
        || CASE WHEN agreed_by IS NULL THEN '{}' ELSE jsonb_build_object('agreed_by', agreed_by) END);
    RETURN made;
END
$$;

-- Decide that an item is not billed.
CREATE FUNCTION ledger.reject(item bigint, why text) RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    p ledger.parked := ledger.lock_open_item(item);
BEGIN
    IF p.entry_id IS NOT NULL THEN
        PERFORM ledger.carry_entry(p.entry_id, why, 'nowhere');
        RETURN;
    END IF;
    IF p.meter_event_id IS NOT NULL THEN
        RAISE EXCEPTION 'parked_id: % is an amount the ledger still owes to Stripe', item
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = 'Redrive it, or correct its window by its opposite, which ends it.';
    END IF;
    UPDATE ledger.parked SET state = 'rejected', decided_by = session_user, decided_at = now(),
        why = reject.why WHERE parked_id = p.parked_id;
    INSERT INTO ledger.decision (action, parked_id, reason) VALUES ('reject', item, why);
END
$$;

-- Send a dead meter event again. The same request keeps its identifier under the next idempotency
-- key; one that would be another request now is superseded, and its entries are frozen afresh.
CREATE FUNCTION ledger.redrive(item bigint, why text, proof text DEFAULT NULL) RETURNS bigint
LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    p ledger.parked;
    m ledger.meter_event;
    course text;
BEGIN
    -- Before the lane: mapping a customer takes the same two in this order.
    PERFORM pg_advisory_xact_lock_shared(ledger.mapping_lock_key());
    PERFORM FROM ledger.lane l
    WHERE l.lane_id = (SELECT e.lane_id FROM ledger.parked q JOIN ledger.meter_event e
                       USING (meter_event_id) WHERE q.parked_id = item)
    FOR NO KEY UPDATE;
    p := ledger.lock_open_item(item);
    SELECT * INTO m FROM ledger.meter_event e WHERE e.meter_event_id = p.meter_event_id FOR UPDATE;
    course := ledger.redrive_course(m, proof);
    IF m.meter_event_id IS NULL OR m.state <> 'dead' THEN
        RAISE EXCEPTION 'parked_id: % is no dead meter event', item
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = 'Approve or reject it instead.';
    ELSIF course = 'doubtful' THEN
        RAISE EXCEPTION 'parked_id: % may be in Stripe''s books already', item
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = 'Reconcile it against Stripe''s summaries, or give as proof where they show'
                         ' that it is absent.';
    ELSIF course = 'too_old' THEN
        RAISE EXCEPTION 'parked_id: % is dated more than 34 days ago, too old for Stripe', item
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = 'Correct it instead: its own window by its opposite, the open period by it.';
    END IF;
    UPDATE ledger.parked SET state = 'redriven', decided_by = session_user, decided_at = now(),
        why = redrive.why WHERE parked_id = item;
    INSERT INTO ledger.decision (action, parked_id, reason, detail)
    VALUES ('redrive', item, why, jsonb_strip_nulls(jsonb_build_object(
        'identifier', m.identifier, 'course', course, 'proof', proof)));
    IF course = 'supersede' THEN
        -- The next generation starts with the count of its predecessor: none used up.
        UPDATE ledger.meter_event SET attempts_used = 0 WHERE meter_event_id = m.meter_event_id;
        PERFORM ledger.release(ARRAY[m.meter_event_id]);
    ELSE
        UPDATE ledger.meter_event SET state = 'pending', dead_kind = NULL, attempts_used = 0,
            key_generation = key_generation + 1, next_attempt_at = now(), settled_at = NULL
        WHERE meter_event_id = m.meter_event_id;
        PERFORM ledger.wake(ARRAY[m.lane_id]);
    END IF;
    RETURN m.meter_event_id;
END
$$;

RESET ROLE;
