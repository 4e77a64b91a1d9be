-- Stripe's sums as evidence: what was read, what was settled by it, and ledgers that went back.
SET LOCAL ROLE ledger_owner;

INSERT INTO ledger.setting (name, value, meaning) VALUES
    ('reconcile_still', '24 hours',
     'how long Stripe''s sum of a cell must be the same before it proves anything'),
    ('reconcile_in_flight', '10 minutes',
     'how long an attempt of a ledger that was lost may still be on its way'),
    ('adoption_reach', '35 days',
     'how far back Stripe takes usage: so far back a forgotten request may be dated');

-- What Stripe said, each time it was asked.
CREATE TABLE ledger.summary_reading (
    reading_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    customer text NOT NULL,
    event_name text NOT NULL,
    cell_start timestamptz NOT NULL,
    cell_end timestamptz NOT NULL,
    value numeric NOT NULL,
    read_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
CREATE INDEX summary_reading_cell ON ledger.summary_reading
    (customer, event_name, cell_start, reading_id);
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON ledger.summary_reading
    FOR EACH STATEMENT EXECUTE FUNCTION ledger.refuse_change();

-- Partitions whose workers remember more than this ledger holds. `adoption_id`: a person has
-- decided that this very difference is known, and the worker tells again what is missing.
CREATE TABLE ledger.went_back (
    log_id uuid NOT NULL,
    partition integer NOT NULL,
    acknowledged bigint NOT NULL,
    stored bigint NOT NULL,
    noted_at timestamptz NOT NULL DEFAULT now(),
    adoption_id bigint,
    PRIMARY KEY (log_id, partition, acknowledged, stored)
);

-- A restored ledger that was taken on: nothing dated inside is sent before its cell was compared. What
-- begins later the ledger that was lost cannot have sent.
CREATE TABLE ledger.adoption (
    adoption_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    from_at timestamptz NOT NULL,
    until_at timestamptz NOT NULL,
    quiet_from timestamptz NOT NULL,
    actor text NOT NULL,
    reason text NOT NULL CHECK (btrim(reason) <> ''),
    detail jsonb NOT NULL,
    adopted_at timestamptz NOT NULL DEFAULT now()
);
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON ledger.adoption
    FOR EACH STATEMENT EXECUTE FUNCTION ledger.refuse_change();

ALTER TABLE ledger.went_back ADD FOREIGN KEY (adoption_id) REFERENCES ledger.adoption;

-- Length of a cell: an hour, or a day for a meter that ever counted by day, because a request is
-- dated anywhere in its window.
CREATE FUNCTION ledger.cell_us(meter text) RETURNS bigint
LANGUAGE sql STABLE PARALLEL SAFE
AS $$
    SELECT greatest(3600000000, coalesce(max(v.window_us), 0))
    FROM ledger.meter_version v WHERE v.event_name = meter
$$;

CREATE FUNCTION ledger.cell_start(meter text, at timestamptz) RETURNS timestamptz
LANGUAGE sql STABLE PARALLEL SAFE
AS $$ SELECT ledger.at(ledger.us(at) / ledger.cell_us(meter) * ledger.cell_us(meter)) $$;

-- Doubt cells because the ledger went back; once per adoption, settled or not.
CREATE FUNCTION ledger.doubt_adopted(lanes bigint[], instants timestamptz[]) RETURNS void
LANGUAGE sql
AS $$
    INSERT INTO ledger.doubt (customer, event_name, window_start, window_end, reason)
    SELECT DISTINCT l.customer, l.event_name, c.start,
           c.start + ledger.cell_us(l.event_name) * interval '1 microsecond',
           'ledger_adopted ' || last.adoption_id
    FROM unnest(lanes, instants) AS u(lane_id, at)
    JOIN ledger.lane l ON l.lane_id = u.lane_id
    CROSS JOIN LATERAL (SELECT ledger.cell_start(l.event_name, u.at) AS start) AS c
    JOIN LATERAL (SELECT a.adoption_id FROM ledger.adoption a
                  WHERE a.from_at <= u.at AND a.until_at > u.at
                  ORDER BY a.adoption_id DESC LIMIT 1) AS last ON true
    ON CONFLICT DO NOTHING
$$;

-- Whatever reaches the work list in the reach of an adoption waits for its cell to be compared:
-- the forgotten ledger may have sent it.
CREATE FUNCTION ledger.doubt_placed() RETURNS trigger
LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF EXISTS (SELECT FROM ledger.adoption) THEN
        PERFORM ledger.doubt_adopted(array_agg(lane_id), array_agg(window_start))
        FROM placed WHERE lane_id IS NOT NULL HAVING count(*) > 0;
    END IF;
    RETURN NULL;
END
$$;
CREATE TRIGGER doubt_inserted AFTER INSERT ON ledger.uncovered
    REFERENCING NEW TABLE AS placed
    FOR EACH STATEMENT EXECUTE FUNCTION ledger.doubt_placed();
CREATE TRIGGER doubt_updated AFTER UPDATE ON ledger.uncovered
    REFERENCING NEW TABLE AS placed
    FOR EACH STATEMENT EXECUTE FUNCTION ledger.doubt_placed();

-- The ledger's side of every cell of a range. `wanted_customer`, `wanted_meter`: NULL for all.
CREATE FUNCTION ledger.cells_v1(
    from_us bigint, to_us bigint, wanted_customer text, wanted_meter text
) RETURNS TABLE (
    customer text, event_name text, start_us bigint, end_us bigint, recorded bigint,
    doubtful json, reported json, in_flight bigint, waiting bigint, waiting_negative bigint,
    waiting_entries bigint[], reasons text[], ready boolean, quiet_from_us bigint,
    deadline_us bigint
)
LANGUAGE sql STABLE
AS $$
    WITH requests AS (
        SELECT m.customer, m.event_name,
               ledger.cell_start(m.event_name, to_timestamp(m.timestamp_s)) AS start,
               coalesce(sum(m.units) FILTER (WHERE m.state = 'recorded'), 0) AS recorded,
               json_agg(json_build_array(m.meter_event_id, m.units) ORDER BY m.meter_event_id)
                   FILTER (WHERE m.state = 'dead' AND (m.dead_kind = 'ambiguous' OR
                           (m.possibly_executed AND m.rejected_at IS NULL))) AS doubtful,
               count(*) FILTER (WHERE m.state IN ('pending', 'ambiguous')
                                  AND m.first_attempt_at IS NOT NULL) AS in_flight,
               max(t.lease_until) AS quiet_from,
               min(m.deadline_at) FILTER (WHERE m.state = 'dead' AND (m.dead_kind = 'ambiguous' OR
                   (m.possibly_executed AND m.rejected_at IS NULL))) AS deadline_at
        FROM ledger.meter_event m
        LEFT JOIN LATERAL (SELECT max(a.lease_until) AS lease_until FROM ledger.attempt a
                           WHERE a.meter_event_id = m.meter_event_id) AS t ON true
        WHERE m.identifier IS NOT NULL
          AND m.timestamp_s >= from_us / 1000000 AND m.timestamp_s < to_us / 1000000
          AND (wanted_customer IS NULL OR m.customer = wanted_customer)
          AND (wanted_meter IS NULL OR m.event_name = wanted_meter)
        GROUP BY 1, 2, 3
    ), doubts AS (
        SELECT d.customer, d.event_name, ledger.cell_start(d.event_name, d.window_start) AS start,
               array_agg(DISTINCT d.reason) AS reasons,
               max(d.noted_at) FILTER (WHERE d.reason LIKE 'ledger_adopted%') AS adopted_at,
               bool_or(d.report IS NOT NULL) AS reported
        FROM ledger.doubt d
        WHERE d.settled_at IS NULL
          AND d.window_start >= ledger.at(from_us) AND d.window_start < ledger.at(to_us)
          AND (wanted_customer IS NULL OR d.customer = wanted_customer)
          AND (wanted_meter IS NULL OR d.event_name = wanted_meter)
        GROUP BY 1, 2, 3
    )
    SELECT coalesce(r.customer, d.customer), coalesce(r.event_name, d.event_name),
           ledger.us(cell.start), ledger.us(cell.start) + ledger.cell_us(cell.event_name),
           coalesce(r.recorded, 0)::bigint, coalesce(r.doubtful, '[]'::json),
           CASE WHEN d.reported THEN coalesce((
               SELECT json_agg(json_build_array(m.meter_event_id, m.units) ORDER BY m.meter_event_id)
               FROM ledger.meter_event m
               WHERE m.customer = cell.customer AND m.event_name = cell.event_name
                 AND m.state = 'recorded'
                 AND ledger.cell_start(m.event_name, to_timestamp(m.timestamp_s)) = cell.start),
               '[]') ELSE '[]' END,
           coalesce(r.in_flight, 0), coalesce(w.units, 0)::bigint, coalesce(w.negative, 0)::bigint,
           coalesce(w.entries, '{}'),
           coalesce(d.reasons, '{}'),
           -- A cell of a restored ledger is complete once the workers have told all they knew and
           -- what they told was cut; and once it is over.
           d.adopted_at IS NULL OR (
               now() >= cell.start + ledger.cell_us(cell.event_name) * interval '1 microsecond'
               AND NOT EXISTS (
                   SELECT FROM ledger.went_back b
                   WHERE b.adoption_id IS NOT NULL AND b.acknowledged > coalesce((
                       SELECT p.position FROM ledger.position p
                       WHERE p.log_id = b.log_id AND p.partition = b.partition), -1))
               AND NOT EXISTS (
                   SELECT FROM ledger.level l JOIN ledger.meter_version v
                       ON v.metric = l.metric AND v.version = l.catalogue_version
                   WHERE v.event_name = cell.event_name AND l.due_at IS NOT NULL
                     AND l.window_start >= cell.start AND l.window_start < cell.start
                         + ledger.cell_us(cell.event_name) * interval '1 microsecond')),
           greatest(coalesce(ledger.us(r.quiet_from), 0),
                    coalesce((SELECT max(ledger.us(a.quiet_from)) FROM ledger.adoption a
                              WHERE d.adopted_at IS NOT NULL), 0)),
           ledger.us(least(r.deadline_at, w.deadline_at))
    FROM requests r
    FULL JOIN doubts d ON d.customer = r.customer AND d.event_name = r.event_name
                      AND d.start = r.start
    CROSS JOIN LATERAL (SELECT coalesce(r.customer, d.customer) AS customer,
                               coalesce(r.event_name, d.event_name) AS event_name,
                               coalesce(r.start, d.start) AS start) AS cell
    LEFT JOIN LATERAL (
        SELECT sum(u.delta) AS units, sum(u.delta) FILTER (WHERE u.delta < 0) AS negative,
               array_agg(u.entry_id ORDER BY u.entry_id) AS entries,
               min(u.deadline_at) AS deadline_at
        FROM ledger.lane l JOIN ledger.uncovered u ON u.lane_id = l.lane_id
        WHERE d.adopted_at IS NOT NULL AND l.customer = d.customer
          AND l.event_name = d.event_name AND u.window_start >= cell.start
          AND u.window_start < cell.start
              + ledger.cell_us(cell.event_name) * interval '1 microsecond') AS w ON true
    ORDER BY 3, 1, 2
$$;

-- Note what Stripe said of cells, and how many reads of its allowance that took.
CREATE FUNCTION ledger.note_readings_v1(readings json, reads bigint) RETURNS void
LANGUAGE sql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    INSERT INTO ledger.summary_reading (customer, event_name, cell_start, cell_end, value)
    SELECT r.customer, r.event_name, ledger.at(r.start_us), ledger.at(r.end_us), r.value
    FROM json_to_recordset(readings) AS r(customer text, event_name text, start_us bigint,
        end_us bigint, value numeric);
    INSERT INTO ledger.audit_log (action, subject, detail)
    VALUES ('read_summaries', 'stripe', jsonb_build_object('reads', reads))
$$;

-- One request that was not frozen from the work list; its entries are linked by the caller.
CREATE FUNCTION ledger.insert_reconciled(
    lane bigint, starts timestamptz, ends timestamptz, units bigint, first_entry bigint,
    request json, deadline timestamptz, reached text
) RETURNS bigint
LANGUAGE sql
AS $$
    INSERT INTO ledger.meter_event (lane_id, customer, event_name, window_start, window_end,
        per_entry, units, first_entry_id, generation, value, timestamp_s, identifier,
        payload_hash, deadline_at, state, next_attempt_at, settled_at)
    SELECT lane, l.customer, l.event_name, starts, ends, true, units, first_entry,
           coalesce((SELECT max(m.generation) FROM ledger.meter_event m
                     WHERE m.first_entry_id = first_entry), 0) + 1,
           request ->> 'value', (request ->> 'timestamp_s')::bigint, request ->> 'identifier',
           request ->> 'payload_hash', deadline, reached,
           CASE WHEN reached = 'pending' THEN now() END,
           CASE WHEN reached <> 'pending' THEN now() END
    FROM ledger.lane l WHERE l.lane_id = lane
    RETURNING meter_event_id
$$;

-- One that covers these entries from now on, wherever they waited.
CREATE FUNCTION ledger.cover_reconciled(
    lane bigint, starts timestamptz, ends timestamptz, units bigint, entries bigint[],
    request json, deadline timestamptz, reached text
) RETURNS bigint
LANGUAGE plpgsql
AS $$
DECLARE
    made bigint := ledger.insert_reconciled(lane, starts, ends, units, entries[1], request,
                                            deadline, reached);
BEGIN
    DELETE FROM ledger.uncovered WHERE entry_id = ANY (entries);
    INSERT INTO ledger.meter_event_entry (meter_event_id, entry_id) SELECT made, unnest(entries);
    RETURN made;
END
$$;

-- An entry's name that does not depend on its number: the same decision on the same entry has the
-- same identity.
CREATE FUNCTION ledger.derived_identity(made text, side text, e ledger.meter_log) RETURNS uuid
LANGUAGE sql STABLE
AS $$
    SELECT encode(substring(sha256(
        ledger.lp(made) || ledger.lp(side) || ledger.lp(e.kind)
        || ledger.lp(coalesce(e.event_id::text, concat_ws(' ', ledger.us(e.window_start),
            e.catalogue_version, e.shard, e.log_id, e.revision)))
        || ledger.lp(e.tenant_id) || ledger.lp(e.metric)) FROM 1 FOR 16), 'hex')::uuid
$$;

-- Tell entries of an adopted cell apart: those that Stripe has, `there` units in all, and those that
-- it lacks. Sums do not say which, and in their cell it makes no difference, so it lacks the latest.
-- An entry of which it has a part only is divided by two more that add up to nothing, in the same
-- window: one takes the missing part out of it, the other waits on its own. What is sent, carried
-- or taken back later is then never what Stripe has already.
CREATE FUNCTION ledger.tell_apart(
    entries bigint[], there bigint, net bigint, why text, who text,
    OUT present bigint[], OUT missing bigint[]
)
LANGUAGE plpgsql
AS $$
DECLARE
    e ledger.meter_log;
    rest bigint := net;
    adoption text := format('adoption %s', (SELECT max(a.adoption_id) FROM ledger.adoption a));
    made bigint[];
BEGIN
    present := entries;
    missing := '{}';
    FOR e IN SELECT * FROM ledger.meter_log x
             WHERE x.entry_id = ANY (entries) AND sign(x.delta) = sign(net)
             ORDER BY x.entry_id DESC
    LOOP
        EXIT WHEN rest = 0;
        IF abs(e.delta) <= abs(rest) THEN
            present := array_remove(present, e.entry_id);
            missing := missing || e.entry_id;
            rest := rest - e.delta;
        ELSE
            WITH parts AS (
                INSERT INTO ledger.meter_log (kind, tenant_id, metric, catalogue_version,
                    window_start, window_end, shard, delta, event_id, occurred_at,
                    target_event_id, reference, actor, reason)
                SELECT 'adoption', e.tenant_id, e.metric, e.catalogue_version, e.window_start,
                       e.window_end, e.shard, p.delta,
                       ledger.derived_identity(adoption, p.side, e), e.occurred_at, e.event_id,
                       format('%s entry %s', p.side, e.entry_id), coalesce(who, session_user), why
                FROM (VALUES ('out of', -rest), ('in for', rest)) AS p(side, delta)
                RETURNING entry_id, delta)
            SELECT array_agg(p.entry_id ORDER BY p.delta = rest) INTO made FROM parts p;
            present := present || made[1];
            missing := missing || made[2];
            rest := 0;
        END IF;
    END LOOP;
    IF rest <> 0 OR there <> (SELECT coalesce(sum(x.delta), 0) FROM ledger.meter_log x
                              WHERE x.entry_id = ANY (present)) THEN
        RAISE EXCEPTION 'adopted_units: % there and % missing is not what the cell''s entries hold',
            there, net USING ERRCODE = 'invalid_parameter_value';
    END IF;
END
$$;

-- Write down what Stripe's sums proved of one cell, in one transaction with the evidence: requests
-- that are there are recorded, absent ones superseded by one net request. Nothing is done when the
-- cell is not any more what was compared: 'moved'. 'carried': what is missing would be on no invoice
-- any more; what is there is settled all the same, and the rest waits as carry.
CREATE FUNCTION ledger.settle_cell_v1(s json, why text, who text) RETURNS text
LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    r record;
    lane bigint;
    c record;
    covered bigint[];
    missing bigint[];
    deadline timestamptz;
    overdue boolean;
    cover bigint;
    adopted bigint;
    starts timestamptz;
    ends timestamptz;
BEGIN
    IF btrim(coalesce(why, '')) = '' THEN
        RAISE EXCEPTION 'reason: say why this cell is settled now'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    SELECT * INTO r FROM json_to_record(s) AS x(
        customer text, event_name text, start_us bigint, end_us bigint, recorded bigint,
        doubtful bigint[], waiting_entries bigint[], present bigint[], absent bigint[],
        adopted_units bigint, net_units bigint, adopted_request json, net_request json,
        evidence json);
    starts := ledger.at(r.start_us);
    ends := ledger.at(r.end_us);
    PERFORM pg_advisory_xact_lock_shared(ledger.mapping_lock_key());
    SELECT l.lane_id INTO lane FROM ledger.lane l
    WHERE l.customer = r.customer AND l.event_name = r.event_name FOR NO KEY UPDATE;
    SELECT * INTO c FROM ledger.cells_v1(r.start_us, r.end_us, r.customer, r.event_name);
    IF lane IS NULL OR c.customer IS NULL OR c.in_flight > 0 OR NOT c.ready
       OR c.recorded <> r.recorded OR c.waiting_entries <> r.waiting_entries
       OR coalesce((SELECT array_agg((d ->> 0)::bigint) FROM json_array_elements(c.doubtful) AS d),
                   '{}') <> r.doubtful THEN
        RETURN 'moved';
    END IF;

    SELECT array_agg(e.entry_id ORDER BY e.entry_id) INTO covered
    FROM (SELECT x.entry_id FROM ledger.meter_event_entry x
          WHERE x.meter_event_id = ANY (r.absent) AND x.live
          UNION SELECT unnest(r.waiting_entries)) AS e;
    SELECT least((SELECT min(m.deadline_at) FROM ledger.meter_event m
                  WHERE m.meter_event_id = ANY (r.absent)),
                 (SELECT min(u.deadline_at) FROM ledger.uncovered u
                  WHERE u.entry_id = ANY (r.waiting_entries))) INTO deadline;
    overdue := coalesce(deadline <= now(), false) AND r.net_units <> 0;

    UPDATE ledger.meter_event SET state = 'recorded', settled_at = now()
    WHERE meter_event_id = ANY (r.present);
    UPDATE ledger.meter_event SET state = 'superseded' WHERE meter_event_id = ANY (r.absent);
    UPDATE ledger.meter_event_entry SET live = false
    WHERE meter_event_id = ANY (r.absent) AND live;
    missing := covered;
    IF r.adopted_units <> 0 THEN
        SELECT t.present, t.missing INTO covered, missing
        FROM ledger.tell_apart(covered, r.adopted_units, r.net_units, why, who) AS t;
        adopted := ledger.cover_reconciled(lane, starts, ends, r.adopted_units, covered,
                                           r.adopted_request, deadline, 'recorded');
    END IF;
    IF overdue THEN
        -- Proven absent, and too late for its invoice: the amounts wait as carry.
        PERFORM ledger.place_entries(missing);
    ELSIF cardinality(missing) > 0 THEN
        cover := ledger.cover_reconciled(lane, starts, ends, r.net_units, missing, r.net_request,
                                         deadline, CASE WHEN r.net_units = 0 THEN 'nothing'
                                                        ELSE 'pending' END);
    ELSE
        cover := adopted;
    END IF;
    UPDATE ledger.meter_event SET superseded_by = coalesce(cover, adopted)
    WHERE meter_event_id = ANY (r.absent) AND coalesce(cover, adopted) IS NOT NULL;
    UPDATE ledger.parked p SET state = 'withdrawn', decided_by = coalesce(who, session_user),
        decided_at = now(),
        why = CASE WHEN p.meter_event_id = ANY (r.present) THEN 'Stripe''s sums show it: '
                   ELSE 'Stripe''s sums lack it: ' END || settle_cell_v1.why
    WHERE p.meter_event_id = ANY (r.present || r.absent) AND p.state = 'open';
    UPDATE ledger.doubt d SET settled_at = now()
    WHERE d.customer = r.customer AND d.event_name = r.event_name AND d.settled_at IS NULL
      AND d.window_start >= starts AND d.window_start < ends;
    INSERT INTO ledger.audit_log (action, subject, actor, detail)
    VALUES ('reconcile', concat_ws(' ', r.customer, r.event_name, starts),
            coalesce(who, session_user),
            jsonb_build_object('reason', why, 'recorded', r.recorded, 'present', r.present,
                'absent', r.absent, 'adopted_units', r.adopted_units, 'net_units', r.net_units,
                'net_request', cover, 'carried', overdue, 'missing', missing,
                'evidence', r.evidence,
                'customer', r.customer, 'event_name', r.event_name, 'start_us', r.start_us));
    IF EXISTS (SELECT FROM ledger.rejection x JOIN ledger.meter_event m
               ON m.meter_event_id = cover AND m.identifier = x.identifier
               WHERE x.meter_event_id IS NULL) THEN
        PERFORM ledger.take_back_spent_v1(cover);
    END IF;
    PERFORM ledger.wake(ARRAY[lane]);
    RETURN CASE WHEN overdue THEN 'carried' ELSE 'settled' END;
END
$$;

-- Take back what Stripe confirmed, then rejected, and did not name: requests that add up to what its
-- sum lacks become dead letters. Nothing is done when the cell is not any more what was compared.
CREATE FUNCTION ledger.take_back_unnamed_v1(s json, why text, who text) RETURNS text
LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    r record;
    c record;
    lane bigint;
BEGIN
    IF btrim(coalesce(why, '')) = '' THEN
        RAISE EXCEPTION 'reason: say why this cell is settled now'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    SELECT * INTO r FROM json_to_record(s) AS x(
        customer text, event_name text, start_us bigint, end_us bigint, recorded bigint,
        requests bigint[], units bigint, evidence json);
    PERFORM pg_advisory_xact_lock_shared(ledger.mapping_lock_key());
    SELECT l.lane_id INTO lane FROM ledger.lane l
    WHERE l.customer = r.customer AND l.event_name = r.event_name FOR NO KEY UPDATE;
    SELECT * INTO c FROM ledger.cells_v1(r.start_us, r.end_us, r.customer, r.event_name);
    IF lane IS NULL OR c.customer IS NULL OR c.in_flight > 0 OR NOT c.ready
       OR c.recorded <> r.recorded OR json_array_length(c.doubtful) > 0
       OR coalesce((SELECT sum((d ->> 1)::bigint) FROM json_array_elements(c.reported) AS d
                    WHERE (d ->> 0)::bigint = ANY (r.requests)), 0) <> r.units
       OR NOT r.requests <@ ARRAY(SELECT (d ->> 0)::bigint
                                  FROM json_array_elements(c.reported) AS d)
       -- What a ledger forgot that went back is compared, not freed along with this.
       OR cardinality(c.waiting_entries) > 0
       OR EXISTS (SELECT FROM unnest(c.reasons) AS reason
                  WHERE reason LIKE 'ledger_adopted%') THEN
        RETURN 'moved';
    END IF;
    INSERT INTO ledger.rejection (event_id, idempotency_key, code, identifier, message,
                                  meter_event_id)
    SELECT (SELECT min(d.report) FROM ledger.doubt d
            WHERE d.customer = r.customer AND d.event_name = r.event_name AND d.settled_at IS NULL
              AND d.window_start >= ledger.at(r.start_us) AND d.window_start < ledger.at(r.end_us)),
           m.identifier, 'unnamed', m.identifier,
           format('Stripe''s sum lacks %s units of this cell', r.units), m.meter_event_id
    FROM ledger.meter_event m WHERE m.meter_event_id = ANY (r.requests)
    ON CONFLICT DO NOTHING;
    PERFORM ledger.take_back_v1((SELECT json_agg(json_build_object(
        'meter_event_id', x.request, 'dead_kind', 'refused')) FROM unnest(r.requests) AS x(request)));
    UPDATE ledger.doubt d SET settled_at = now()
    WHERE d.customer = r.customer AND d.event_name = r.event_name AND d.settled_at IS NULL
      AND d.window_start >= ledger.at(r.start_us) AND d.window_start < ledger.at(r.end_us);
    INSERT INTO ledger.audit_log (action, subject, actor, detail)
    VALUES ('take_back', concat_ws(' ', r.customer, r.event_name, ledger.at(r.start_us)),
            coalesce(who, session_user),
            jsonb_build_object('reason', why, 'recorded', r.recorded, 'requests', r.requests,
                'units', r.units, 'evidence', r.evidence));
    RETURN 'taken_back';
END
$$;

-- A worker remembers more of a partition than this ledger holds: note it and halt publishing, unless
-- a person has adopted this difference. Whether one has; repeating it adds nothing.
CREATE FUNCTION ledger.note_went_back_v1(
    log uuid, part integer, remembered bigint, held bigint, halt_detail json
) RETURNS boolean
LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    -- Adopting takes it alone: a worker that asked before and halted after would halt a ledger that
    -- was just taken on, and nobody would be left to say so.
    PERFORM pg_advisory_xact_lock_shared(ledger.mapping_lock_key());
    -- While it is told again what it forgot, it holds more than when it was adopted, step by step.
    IF EXISTS (SELECT FROM ledger.went_back b
               WHERE b.log_id = log AND b.partition = part AND b.acknowledged >= remembered
                 AND b.stored <= held AND b.adoption_id IS NOT NULL) THEN
        RETURN true;
    END IF;
    INSERT INTO ledger.went_back (log_id, partition, acknowledged, stored)
    VALUES (log, part, remembered, held) ON CONFLICT DO NOTHING;
    INSERT INTO ledger.halt (kind, detail) VALUES ('ledger_went_back', halt_detail::jsonb)
    ON CONFLICT (kind) WHERE lifted_at IS NULL DO NOTHING;
    RETURN false;
END
$$;

-- Whether this ledger has the attempt that a worker remembers, by number and begin; if not, it went
-- back, and publishing halts unless a person has adopted it since. And the last attempt it has.
CREATE FUNCTION ledger.attempt_stands_v1(remembered bigint, begun_us bigint)
RETURNS TABLE (stands boolean, attempt_id bigint, started_us bigint)
LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    stands := remembered IS NULL OR EXISTS (
        SELECT FROM ledger.attempt a
        WHERE a.attempt_id = remembered AND ledger.us(a.started_at) = begun_us);
    IF NOT stands THEN
        -- As for positions: not beside whoever adopts.
        PERFORM pg_advisory_xact_lock_shared(ledger.mapping_lock_key());
        stands := EXISTS (SELECT FROM ledger.adoption d WHERE d.adopted_at >= ledger.at(begun_us));
    END IF;
    IF NOT stands THEN
        INSERT INTO ledger.halt (kind, detail)
        VALUES ('ledger_went_back', jsonb_build_object('attempt_id', remembered,
                                                       'started_at', ledger.at(begun_us)))
        ON CONFLICT (kind) WHERE lifted_at IS NULL DO NOTHING;
    END IF;
    SELECT a.attempt_id, ledger.us(a.started_at) INTO attempt_id, started_us
    FROM ledger.attempt a ORDER BY a.attempt_id DESC LIMIT 1;
    RETURN NEXT;
END
$$;

-- Take a restored ledger on: its workers tell again what is missing, and whatever may have been sent
-- without its knowledge waits to be compared with Stripe's sums. NULL: there is nothing to adopt.
-- `declared`: a person says that it was restored, though no worker is left who remembers.
CREATE FUNCTION ledger.adopt_v1(why text, who text, declared boolean DEFAULT false) RETURNS bigint
LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    made bigint;
    unsettled bigint[];
BEGIN
    IF btrim(coalesce(why, '')) = '' THEN
        RAISE EXCEPTION 'reason: say what happened to this ledger'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    -- Claims take it shared: none is under way while the requests are taken out of their hands.
    PERFORM pg_advisory_xact_lock(ledger.mapping_lock_key());
    IF NOT EXISTS (SELECT FROM ledger.halt
                   WHERE kind = 'ledger_went_back' AND lifted_at IS NULL)
       -- Declared twice in the same words it is the same restore, until something is sent.
       AND (NOT declared OR EXISTS (
           SELECT FROM ledger.adoption a
           WHERE a.reason = why AND NOT EXISTS (SELECT FROM ledger.attempt t
                                                WHERE t.started_at > a.adopted_at))) THEN
        RETURN NULL;
    END IF;
    PERFORM FROM ledger.lane l
    WHERE l.lane_id IN (SELECT m.lane_id FROM ledger.meter_event m
                        WHERE m.state IN ('pending', 'ambiguous', 'dead'))
    ORDER BY l.lane_id FOR NO KEY UPDATE;
    SELECT coalesce(array_agg(m.meter_event_id ORDER BY m.meter_event_id), '{}') INTO unsettled
    FROM ledger.meter_event m WHERE m.state IN ('pending', 'ambiguous', 'dead');

    INSERT INTO ledger.adoption (from_at, until_at, quiet_from, actor, reason, detail)
    SELECT now() - ledger.interval_setting('adoption_reach'),
           now() + ledger.interval_setting('reconcile_in_flight'),
           now() + ledger.interval_setting('reconcile_in_flight'),
           coalesce(who, session_user), why,
           jsonb_build_object('unsettled', unsettled, 'partitions', (
               SELECT jsonb_agg(jsonb_build_object('log_id', b.log_id, 'partition', b.partition,
                          'stored', b.stored, 'acknowledged', b.acknowledged)
                          ORDER BY b.log_id, b.partition)
               FROM ledger.went_back b WHERE b.adoption_id IS NULL))
    RETURNING adoption_id INTO made;
    UPDATE ledger.went_back SET adoption_id = made WHERE adoption_id IS NULL;

    -- Each of them may have been sent by the ledger that was lost: never again under its identifier.
    PERFORM ledger.leave_in_doubt(unsettled);
    PERFORM ledger.doubt_adopted(array_agg(m.lane_id), array_agg(to_timestamp(m.timestamp_s)))
    FROM ledger.meter_event m WHERE m.meter_event_id = ANY (unsettled) HAVING count(*) > 0;
    PERFORM ledger.doubt_adopted(array_agg(u.lane_id), array_agg(u.window_start))
    FROM ledger.uncovered u WHERE u.lane_id IS NOT NULL HAVING count(*) > 0;

    UPDATE ledger.halt SET lifted_at = now(), lifted_by = coalesce(who, session_user),
        why = 'adopted: ' || adopt_v1.why
    WHERE kind = 'ledger_went_back' AND lifted_at IS NULL;
    INSERT INTO ledger.audit_log (action, subject, actor, detail)
    VALUES ('adopt', 'adoption ' || made, coalesce(who, session_user),
            jsonb_build_object('reason', why, 'requests_in_doubt', cardinality(unsettled)));
    PERFORM ledger.wake(ARRAY(SELECT DISTINCT m.lane_id FROM ledger.meter_event m
                              WHERE m.meter_event_id = ANY (unsettled)));
    RETURN made;
END
$$;

REVOKE ALL ON FUNCTION ledger.cell_us(text), ledger.cell_start(text, timestamptz),
    ledger.doubt_adopted(bigint[], timestamptz[]), ledger.doubt_placed(),
    ledger.cells_v1(bigint, bigint, text, text), ledger.note_readings_v1(json, bigint),
    ledger.insert_reconciled(bigint, timestamptz, timestamptz, bigint, bigint, json, timestamptz,
                             text),
    ledger.cover_reconciled(bigint, timestamptz, timestamptz, bigint, bigint[], json, timestamptz,
                            text),
    ledger.derived_identity(text, text, ledger.meter_log),
    ledger.tell_apart(bigint[], bigint, bigint, text, text),
    ledger.settle_cell_v1(json, text, text), ledger.take_back_unnamed_v1(json, text, text),
    ledger.adopt_v1(text, text, boolean),
    ledger.attempt_stands_v1(bigint, bigint),
    ledger.note_went_back_v1(uuid, integer, bigint, bigint, json)
    FROM PUBLIC;
GRANT SELECT ON ledger.doubt, ledger.summary_reading, ledger.went_back, ledger.adoption
    TO ledger_reader;
GRANT EXECUTE ON FUNCTION ledger.note_went_back_v1(uuid, integer, bigint, bigint, json),
    ledger.attempt_stands_v1(bigint, bigint)
    TO ledger_service;
GRANT EXECUTE ON FUNCTION ledger.note_readings_v1(json, bigint) TO ledger_service, ledger_finance;
GRANT EXECUTE ON FUNCTION ledger.cell_us(text), ledger.cell_start(text, timestamptz),
    ledger.cells_v1(bigint, bigint, text, text) TO ledger_reader;
GRANT EXECUTE ON FUNCTION ledger.settle_cell_v1(json, text, text),
    ledger.take_back_unnamed_v1(json, text, text),
    ledger.adopt_v1(text, text, boolean)
    TO ledger_finance;

RESET ROLE;
