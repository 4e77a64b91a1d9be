-- Past the billing deadline: an amount goes into the open period or is closed, once, with its trace.
SET LOCAL ROLE ledger_owner;

CREATE INDEX uncovered_deadline ON ledger.uncovered (deadline_at) WHERE deadline_at IS NOT NULL;
CREATE INDEX meter_event_deadline ON ledger.meter_event (deadline_at)
    WHERE deadline_at IS NOT NULL AND state IN ('pending', 'ambiguous', 'dead');

-- What became of each entry that missed its invoice; one row an entry, for ever.
CREATE TABLE ledger.carry (
    entry_id bigint PRIMARY KEY REFERENCES ledger.meter_log,
    -- Takes the amount out of the closed period.
    out_entry_id bigint NOT NULL UNIQUE REFERENCES ledger.meter_log,
    -- Puts it into the open one; NULL: billed outside the meters, or by nobody.
    in_entry_id bigint UNIQUE REFERENCES ledger.meter_log,
    customer text NOT NULL,
    event_name text NOT NULL,
    deadline_at timestamptz NOT NULL,
    policy text NOT NULL,
    -- Where it is billed instead: an invoice item, a credit note, or a word why nowhere.
    reference text,
    actor text NOT NULL DEFAULT session_user,
    reason text NOT NULL CHECK (btrim(reason) <> ''),
    carried_at timestamptz NOT NULL DEFAULT now(),
    CHECK (in_entry_id IS NOT NULL OR btrim(coalesce(reference, '')) <> '')
);
CREATE INDEX carry_at ON ledger.carry (carried_at);
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON ledger.carry
    FOR EACH STATEMENT EXECUTE FUNCTION ledger.refuse_change();

-- Entries that missed their invoice and that nobody has decided on yet.
CREATE VIEW ledger.overdue AS
SELECT u.entry_id, u.tenant_id, e.metric, e.kind, u.lane_id, l.customer, l.event_name,
       u.window_start, u.window_end, u.delta, u.deadline_at, v.carry AS policy,
       p.parked_id,
       -- A ledger that went back may have sent it in time: Stripe's sums tell first.
       d.doubted,
       CASE WHEN d.doubted THEN 'may have been sent before the ledger went back'
            ELSE p.detail ->> 'rule' END AS rule
FROM ledger.uncovered u
JOIN ledger.meter_log e USING (entry_id)
JOIN ledger.meter_version v ON v.metric = e.metric AND v.version = e.catalogue_version
JOIN ledger.lane l ON l.lane_id = u.lane_id
LEFT JOIN ledger.parked p ON p.entry_id = u.entry_id
CROSS JOIN LATERAL (SELECT EXISTS (
    SELECT FROM ledger.doubt x
    WHERE x.customer = l.customer AND x.event_name = l.event_name
      AND x.window_start <= u.window_start AND x.window_end > u.window_start
      AND x.settled_at IS NULL AND x.reason LIKE 'ledger_adopted%') AS doubted) AS d
WHERE u.deadline_at <= now();

-- Requests of these lanes whose invoice is closing: what was surely not executed goes back to the
-- work list, what may have been is never asked about again, because the question could be the
-- first to be recorded, on no invoice. The caller has locked the lanes, and none is lent.
CREATE FUNCTION ledger.close_overdue_v1(lanes bigint[]) RETURNS integer
LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    freed bigint[];
    doubtful bigint[];
BEGIN
    SELECT array_agg(m.meter_event_id) INTO freed
    FROM ledger.meter_event m
    WHERE m.lane_id = ANY (lanes) AND m.state = 'pending' AND m.deadline_at <= now()
      AND NOT m.possibly_executed
      AND NOT EXISTS (SELECT FROM ledger.attempt a
                      WHERE a.meter_event_id = m.meter_event_id AND a.finished_at IS NULL);
    IF freed IS NOT NULL THEN
        PERFORM ledger.unfreeze(freed);
    END IF;
    SELECT array_agg(m.meter_event_id) INTO doubtful
    FROM ledger.meter_event m
    WHERE m.lane_id = ANY (lanes) AND m.state IN ('pending', 'ambiguous')
      AND m.deadline_at <= now();
    IF doubtful IS NOT NULL THEN
        PERFORM ledger.leave_in_doubt(doubtful);
    END IF;
    RETURN coalesce(cardinality(doubtful), 0);
END
$$;

-- Whether a ledger that was lost may have carried what was overdue then: its new date is not known
-- any more, so no cell says that it was sent.
CREATE FUNCTION ledger.may_be_carried(deadline timestamptz) RETURNS boolean
LANGUAGE sql STABLE
AS $$ SELECT EXISTS (SELECT FROM ledger.adoption a WHERE a.adopted_at >= deadline) $$;

-- Why an overdue amount cannot go into the open period by itself; NULL when it can.
CREATE FUNCTION ledger.carry_objection(o ledger.overdue, payer text)
RETURNS text
LANGUAGE plpgsql
AS $$
DECLARE
    c ledger.customer;
    period_to timestamptz;
    period_from timestamptz;
    present numeric;
BEGIN
    SELECT * INTO c FROM ledger.customer x
    WHERE x.tenant_id = o.tenant_id AND x.effective_from <= now()
    ORDER BY x.effective_from DESC LIMIT 1;
    IF coalesce(payer, o.customer) <> c.customer THEN
        RETURN format('the usage was %s''s, but the tenant is mapped to %s now', o.customer,
                      c.customer);
    END IF;
    IF o.delta >= 0 THEN
        RETURN NULL;
    END IF;
    period_from := ledger.period_start(coalesce(c.anchor, ledger.at(0)),
                                       coalesce(c.billing_interval, 'month'), now());
    period_to := ledger.period_end(coalesce(c.anchor, ledger.at(0)),
                                   coalesce(c.billing_interval, 'month'), now());
    PERFORM pg_advisory_xact_lock(ledger.correction_lock_key(o.tenant_id));
    SELECT coalesce(sum(b.total + b.decided), 0) INTO present FROM ledger.balance b
    WHERE b.tenant_id = o.tenant_id AND b.metric = o.metric
      AND b.window_start >= period_from AND b.window_start < period_to;
    IF present + o.delta < 0 THEN
        RETURN format('%s would make the open period from %s negative: it holds %s', o.delta,
                      period_from, present);
    END IF;
    RETURN NULL;
END
$$;

-- Settle entries of a lane's window that add up to zero: the first of them is an overdue one.
CREATE FUNCTION ledger.settle_nothing(o ledger.overdue, entries bigint[]) RETURNS void
LANGUAGE sql
AS $$
    SELECT ledger.freeze_v1(json_build_array(json_build_object(
        'lane_id', o.lane_id, 'customer', o.customer, 'event_name', o.event_name,
        'window_start_us', ledger.us(o.window_start), 'window_end_us', ledger.us(o.window_end),
        'per_entry', false, 'units', 0, 'attempts_used', 0, 'entry_ids', entries,
        'generation', (SELECT coalesce(max(m.generation), 0) + 1
                       FROM ledger.meter_event_entry x JOIN ledger.meter_event m
                       USING (meter_event_id) WHERE x.entry_id = o.entry_id))))
$$;

-- Out of the closed period, and into the open one unless it is billed elsewhere. The caller has
-- locked the lane and knows that nothing speaks against it.
CREATE FUNCTION ledger.carry_out(o ledger.overdue, why text, elsewhere text)
RETURNS ledger.carry
LANGUAGE plpgsql
AS $$
DECLARE
    e ledger.meter_log;
    taken bigint;
    put bigint;
    made ledger.carry;
    dated timestamptz := date_trunc('second', now());
    window_us bigint := ledger.us(o.window_end) - ledger.us(o.window_start);
    starts timestamptz := ledger.at(ledger.us(dated) / window_us * window_us);
BEGIN
    SELECT * INTO STRICT e FROM ledger.meter_log x WHERE x.entry_id = o.entry_id;
    INSERT INTO ledger.meter_log (kind, tenant_id, metric, catalogue_version, window_start,
        window_end, shard, delta, event_id, occurred_at, target_event_id, reference, reason)
    VALUES ('carry', e.tenant_id, e.metric, e.catalogue_version, e.window_start, e.window_end,
        e.shard, -e.delta, ledger.derived_identity('carry', 'out', e), e.occurred_at, e.event_id,
        'out of entry ' || e.entry_id, why)
    RETURNING entry_id INTO taken;
    -- Both together are nothing to send, so the closed period is settled.
    PERFORM ledger.settle_nothing(o, ARRAY[e.entry_id, taken]);
    IF elsewhere IS NULL THEN
        INSERT INTO ledger.meter_log (kind, tenant_id, metric, catalogue_version, window_start,
            window_end, shard, delta, event_id, occurred_at, target_event_id, reference, reason)
        VALUES ('carry', e.tenant_id, e.metric, e.catalogue_version, starts,
            starts + window_us * interval '1 microsecond', e.shard, e.delta,
            ledger.derived_identity('carry', 'in', e), dated, e.event_id,
            'in for entry ' || e.entry_id, why)
        RETURNING entry_id INTO put;
    END IF;
    INSERT INTO ledger.carry (entry_id, out_entry_id, in_entry_id, customer, event_name,
                              deadline_at, policy, reference, reason)
    VALUES (e.entry_id, taken, put, o.customer, o.event_name, o.deadline_at, o.policy, elsewhere,
            why)
    RETURNING * INTO made;
    RETURN made;
END
$$;

-- Wait for a person, in the queue that persons look at; an entry does so once.
CREATE FUNCTION ledger.park_overdue(o ledger.overdue, why text) RETURNS void
LANGUAGE sql
AS $$
    INSERT INTO ledger.parked (kind, reason, entry_id, tenant_id, metric, units, catalogue_version,
                               window_start, window_end, shard, occurred_at, detail)
    SELECT 'review', 'past_deadline', e.entry_id, e.tenant_id, e.metric, e.delta,
           e.catalogue_version, e.window_start, e.window_end, e.shard, e.occurred_at,
           jsonb_build_object('rule', why, 'customer', o.customer, 'deadline_at', o.deadline_at,
                              'policy', o.policy)
    FROM ledger.meter_log e WHERE e.entry_id = o.entry_id
    ON CONFLICT (entry_id) WHERE entry_id IS NOT NULL DO NOTHING
$$;

-- What the workers do about invoices that have closed: for up to `most` entries, each by its
-- meter's policy. A lane that is lent is left to the next pass.
CREATE FUNCTION ledger.carry_overdue_v1(most integer)
RETURNS TABLE (carried integer, parked integer, doubts integer)
LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    lanes bigint[];
    o ledger.overdue;
    objection text;
BEGIN
    carried := 0;
    parked := 0;
    doubts := 0;
    -- Before any lane: mapping a customer takes the same two in this order.
    PERFORM pg_advisory_xact_lock_shared(ledger.mapping_lock_key());
    SELECT array_agg(l.lane_id) INTO lanes FROM (
        SELECT l.lane_id FROM ledger.lane l
        WHERE (l.claimed_until IS NULL OR l.claimed_until <= now())
          AND (l.lane_id IN (SELECT m.lane_id FROM ledger.meter_event m
                             WHERE m.deadline_at <= now() AND m.state IN ('pending', 'ambiguous'))
               OR l.lane_id IN (SELECT x.lane_id FROM ledger.overdue x
                                WHERE NOT x.doubted AND (x.delta = 0
                                   OR (x.policy <> 'manual' AND x.parked_id IS NULL))))
        ORDER BY l.lane_id LIMIT most
        FOR NO KEY UPDATE SKIP LOCKED) AS l;
    IF lanes IS NULL OR EXISTS (SELECT FROM ledger.halt WHERE lifted_at IS NULL) THEN
        RETURN NEXT;
        RETURN;
    END IF;
    doubts := ledger.close_overdue_v1(lanes);
    FOR o IN
        SELECT x.* FROM ledger.overdue x
        WHERE x.lane_id = ANY (lanes) AND NOT x.doubted AND (x.delta = 0
              OR (x.policy <> 'manual' AND x.parked_id IS NULL))
        -- What is taken back goes last, so that it finds what it is taken from.
        ORDER BY x.delta < 0, x.entry_id LIMIT most
    LOOP
        IF o.delta = 0 THEN
            PERFORM ledger.settle_nothing(o, ARRAY[o.entry_id]);
            CONTINUE;
        END IF;
        objection := CASE o.policy WHEN 'review' THEN 'too late for its invoice'
                     ELSE ledger.carry_objection(o, NULL) END;
        IF ledger.may_be_carried(o.deadline_at) THEN
            objection := 'the ledger that was lost may have carried it already, under another '
                'date: compare the open period with Stripe''s sums (`tailrace reconcile`)';
        END IF;
        IF objection IS NULL THEN
            PERFORM ledger.carry_out(o, 'too late for its invoice; the meter carries by itself',
                                     NULL);
            carried := carried + 1;
        ELSE
            PERFORM ledger.park_overdue(o, objection);
            parked := parked + 1;
        END IF;
    END LOOP;
    RETURN NEXT;
END
$$;

-- A person's word on one overdue entry: into the open period, or `elsewhere` by a reference. Done
-- twice it gives the row that is there and changes nothing.
CREATE FUNCTION ledger.carry_entry(
    entry bigint, why text, elsewhere text DEFAULT NULL, payer text DEFAULT NULL
) RETURNS ledger.carry
LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    o ledger.overdue;
    made ledger.carry;
    objection text;
BEGIN
    IF btrim(coalesce(why, '')) = '' THEN
        RAISE EXCEPTION 'reason: say why' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    PERFORM pg_advisory_xact_lock_shared(ledger.mapping_lock_key());
    PERFORM FROM ledger.lane l
    WHERE l.lane_id = (SELECT u.lane_id FROM ledger.uncovered u WHERE u.entry_id = entry)
    FOR NO KEY UPDATE;
    SELECT * INTO made FROM ledger.carry x WHERE x.entry_id = entry;
    IF made.entry_id IS NOT NULL THEN
        RETURN made;
    END IF;
    SELECT * INTO o FROM ledger.overdue x WHERE x.entry_id = entry;
    IF o.entry_id IS NULL OR o.delta = 0 THEN
        RAISE EXCEPTION 'entry: % has not missed its invoice', entry
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = 'See `tailrace carry list`.';
    END IF;
    IF o.doubted THEN
        RAISE EXCEPTION 'entry: %: %', entry, o.rule
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = 'Settle it by Stripe''s sums first: `tailrace reconcile`.';
    END IF;
    IF elsewhere IS NULL THEN
        objection := ledger.carry_objection(o, payer);
        IF objection IS NOT NULL THEN
            RAISE EXCEPTION 'entry: %: %', entry, objection
                USING ERRCODE = 'object_not_in_prerequisite_state',
                      HINT = 'Name the customer who pays with --customer, wait for usage that it '
                          'can be taken from, or bill it elsewhere with --elsewhere.';
        END IF;
    END IF;
    made := ledger.carry_out(o, why, elsewhere);
    UPDATE ledger.parked p
    SET state = CASE WHEN elsewhere IS NULL THEN 'approved' ELSE 'rejected' END,
        decided_by = session_user, decided_at = now(), why = carry_entry.why
    WHERE p.entry_id = entry AND p.state = 'open';
    INSERT INTO ledger.decision (action, parked_id, entry_id, reason, detail)
    VALUES ('carry', o.parked_id, coalesce(made.in_entry_id, made.out_entry_id), why,
            jsonb_build_object('entry', entry, 'elsewhere', elsewhere, 'customer',
                               coalesce(payer, o.customer), 'deadline_at', o.deadline_at));
    RETURN made;
END
$$;

-- Amounts that are not settled, each with the deadline of its invoice and when it can move.
CREATE VIEW ledger.deadline AS
SELECT c.customer, v.event_name, CASE WHEN l.held THEN 'series held' ELSE 'level' END AS state,
       l.total - coalesce(last.level_total, 0) AS units,
       ledger.billing_deadline(c.anchor, c.billing_interval, c.grace,
                               l.window_end - interval '1 second') AS deadline_at,
       CASE WHEN NOT l.held THEN l.due_at END AS moves_at,
       ledger.is_paused(c.customer, v.event_name) AS paused
FROM ledger.level l
JOIN ledger.meter_version v ON v.metric = l.metric AND v.version = l.catalogue_version
JOIN LATERAL (
    SELECT m.* FROM ledger.customer m
    WHERE m.tenant_id = l.tenant_id AND m.effective_from <= l.window_start
    ORDER BY m.effective_from DESC LIMIT 1) AS c ON c.anchor IS NOT NULL
LEFT JOIN LATERAL (
    SELECT e.level_total FROM ledger.meter_log e
    WHERE e.kind = 'usage' AND e.tenant_id = l.tenant_id AND e.metric = l.metric
      AND e.window_start = l.window_start AND e.shard = l.shard AND e.log_id = l.log_id
      AND e.catalogue_version = l.catalogue_version
    ORDER BY e.revision DESC LIMIT 1) AS last ON true
WHERE (l.due_at IS NOT NULL OR l.held) AND l.total <> coalesce(last.level_total, 0)
UNION ALL
SELECT l.customer, l.event_name, 'entry', u.delta, u.deadline_at, u.due_at,
       l.paused OR ledger.is_paused(l.customer, l.event_name)
FROM ledger.uncovered u JOIN ledger.lane l USING (lane_id)
WHERE u.deadline_at IS NOT NULL
UNION ALL
SELECT m.customer, m.event_name, m.state, m.units, m.deadline_at, m.next_attempt_at,
       l.paused OR ledger.is_paused(l.customer, l.event_name)
FROM ledger.meter_event m JOIN ledger.lane l USING (lane_id)
WHERE m.deadline_at IS NOT NULL AND m.state IN ('pending', 'ambiguous', 'dead')
UNION ALL
SELECT c.customer, v.event_name, 'review', p.units,
       ledger.billing_deadline(c.anchor, c.billing_interval, c.grace,
                               CASE WHEN v.publish = 'event' THEN p.occurred_at
                                    ELSE p.window_end - interval '1 second' END),
       NULL, false
FROM ledger.parked p
JOIN ledger.meter_version v ON v.metric = p.metric AND v.version = p.catalogue_version
JOIN LATERAL (
    SELECT m.* FROM ledger.customer m
    WHERE m.tenant_id = p.tenant_id AND m.effective_from <= p.window_start
    ORDER BY m.effective_from DESC LIMIT 1) AS c ON c.anchor IS NOT NULL
WHERE p.state = 'open' AND p.kind = 'review' AND p.log_id IS NOT NULL AND p.units IS NOT NULL
  AND p.reason <> 'conflict';

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA ledger FROM PUBLIC;
GRANT SELECT ON ledger.carry, ledger.overdue, ledger.deadline TO ledger_reader;
GRANT EXECUTE ON FUNCTION ledger.close_overdue_v1(bigint[]), ledger.carry_overdue_v1(integer)
    TO ledger_service;
GRANT EXECUTE ON FUNCTION ledger.carry_entry(bigint, text, text, text) TO ledger_finance;

RESET ROLE;
