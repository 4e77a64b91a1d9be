-- What Stripe accepted and took back later: error reports, the requests they name, and the cells in
-- which they name too few.
SET LOCAL ROLE ledger_owner;

-- A report as Stripe tells it, once, however often and by whichever way it arrives.
CREATE TABLE ledger.error_report (
    event_id text PRIMARY KEY CHECK (length(event_id) BETWEEN 1 AND 255),
    event_type text NOT NULL,
    meter_id text,
    -- The meter's event name; NULL: Stripe names no meter.
    event_name text,
    -- When Stripe validated, not when usage happened. NULL: the report cannot be read.
    validation_start timestamptz,
    validation_end timestamptz,
    error_count bigint NOT NULL CHECK (error_count >= 0),
    -- Errors beyond the samples: counted, and nobody says whose they are.
    unnamed bigint NOT NULL CHECK (unnamed BETWEEN 0 AND error_count),
    body jsonb NOT NULL,
    noted_by text NOT NULL CHECK (noted_by IN ('webhook', 'sweep')),
    noted_at timestamptz NOT NULL DEFAULT now()
);
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON ledger.error_report
    FOR EACH STATEMENT EXECUTE FUNCTION ledger.refuse_change();

-- A request that a report names: the evidence without which no recorded meter event is taken back.
CREATE TABLE ledger.rejection (
    event_id text NOT NULL REFERENCES ledger.error_report,
    idempotency_key text NOT NULL,
    code text NOT NULL,
    identifier text NOT NULL,
    -- n of the Idempotency-Key; NULL: the report names the identifier alone, so all of them.
    key_generation integer,
    message text,
    -- NULL: no meter event of this ledger has the identifier, until one gets it.
    meter_event_id bigint REFERENCES ledger.meter_event,
    PRIMARY KEY (event_id, idempotency_key, code)
);
CREATE INDEX rejection_meter_event ON ledger.rejection (meter_event_id);
CREATE INDEX rejection_unknown ON ledger.rejection (identifier) WHERE meter_event_id IS NULL;
CREATE TRIGGER no_delete BEFORE DELETE OR TRUNCATE ON ledger.rejection
    FOR EACH STATEMENT EXECUTE FUNCTION ledger.refuse_change();

CREATE FUNCTION ledger.guard_rejection() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    IF OLD.meter_event_id IS NOT NULL
       OR (to_jsonb(NEW) - 'meter_event_id') <> (to_jsonb(OLD) - 'meter_event_id') THEN
        RAISE EXCEPTION 'ledger.rejection %: what a report says never changes', OLD.event_id
            USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END
$$;
CREATE TRIGGER joined_once BEFORE UPDATE ON ledger.rejection
    FOR EACH ROW EXECUTE FUNCTION ledger.guard_rejection();

-- Cells of which Stripe's sum and ours may differ for a known reason: reconciling reads them.
CREATE TABLE ledger.doubt (
    doubt_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    customer text NOT NULL,
    event_name text NOT NULL,
    window_start timestamptz NOT NULL,
    window_end timestamptz NOT NULL,
    reason text NOT NULL,
    noted_at timestamptz NOT NULL DEFAULT now(),
    settled_at timestamptz,
    CHECK (window_end > window_start),
    -- The same reason again is the same doubt, also once it has been settled.
    UNIQUE (customer, event_name, window_start, window_end, reason)
);
CREATE INDEX doubt_open ON ledger.doubt (noted_at) WHERE settled_at IS NULL;
CREATE TRIGGER no_delete BEFORE DELETE OR TRUNCATE ON ledger.doubt
    FOR EACH STATEMENT EXECUTE FUNCTION ledger.refuse_change();

-- Who reads Stripe's list of reports next, and up to where it has been read.
CREATE TABLE ledger.report_sweep (
    singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    claimed_at timestamptz NOT NULL,
    swept_until timestamptz
);

-- Attempts are written in the order of time, so a small index finds those of a few minutes.
CREATE INDEX attempt_started ON ledger.attempt USING brin (started_at);
CREATE INDEX meter_event_rejected ON ledger.meter_event (meter_event_id)
    WHERE rejected_at IS NOT NULL AND state = 'dead' AND dead_kind = 'ambiguous';

-- Note a report with the requests that it names; false: it was noted before, and nothing is done.
-- Marks the cells that the errors beyond its samples may be of: whatever was sent to the meter
-- while Stripe was validating, or up to `lookback` before, and is not named.
CREATE FUNCTION ledger.note_report_v1(report json, samples json, lookback interval)
RETURNS boolean
LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    r ledger.error_report;
    marked integer := 0;
BEGIN
    INSERT INTO ledger.error_report (event_id, event_type, meter_id, event_name, validation_start,
        validation_end, error_count, unnamed, body, noted_by)
    SELECT x.event_id, x.event_type, x.meter_id, x.event_name, ledger.at(x.start_us),
           ledger.at(x.end_us), x.error_count, x.unnamed, ledger.evidence(x.body), x.noted_by
    FROM json_to_record(report) AS x(event_id text, event_type text, meter_id text,
        event_name text, start_us bigint, end_us bigint, error_count bigint, unnamed bigint,
        body text, noted_by text)
    ON CONFLICT DO NOTHING RETURNING * INTO r;
    IF r.event_id IS NULL THEN
        RETURN false;
    END IF;

    INSERT INTO ledger.rejection (event_id, idempotency_key, code, identifier, key_generation,
                                  message, meter_event_id)
    SELECT r.event_id, x.idempotency_key, x.code, x.identifier, x.key_generation, x.message,
           m.meter_event_id
    FROM json_to_recordset(samples) AS x(idempotency_key text, code text, identifier text,
                                         key_generation integer, message text)
    LEFT JOIN ledger.meter_event m ON m.identifier = x.identifier;

    IF r.unnamed > 0 THEN
        INSERT INTO ledger.doubt (customer, event_name, window_start, window_end, reason)
        SELECT DISTINCT m.customer, m.event_name, m.window_start, m.window_end,
               format('error report %s counts %s requests more than it names', r.event_id,
                      r.unnamed)
        FROM ledger.attempt a JOIN ledger.meter_event m USING (meter_event_id)
        WHERE a.started_at >= r.validation_start - lookback
          AND a.started_at < r.validation_end + lookback
          AND (r.event_name IS NULL OR m.event_name = r.event_name)
          AND NOT EXISTS (SELECT FROM ledger.rejection x
                          WHERE x.event_id = r.event_id AND x.meter_event_id = m.meter_event_id)
        ON CONFLICT DO NOTHING;
        GET DIAGNOSTICS marked = ROW_COUNT;
    END IF;
    INSERT INTO ledger.finding (kind, subject, detail)
    SELECT why, r.event_id, jsonb_build_object('event_type', r.event_type, 'meter_id', r.meter_id,
                                               'error_count', r.error_count, 'unnamed', r.unnamed)
    FROM (SELECT CASE
        WHEN r.validation_start IS NULL THEN 'error_report_unreadable'
        -- Our identifiers all begin like this: a ledger that does not know one has lost it.
        WHEN EXISTS (SELECT FROM ledger.rejection x WHERE x.event_id = r.event_id
                     AND x.meter_event_id IS NULL AND x.identifier LIKE 'm1:%')
            THEN 'error_report_of_unknown_request'
        WHEN r.unnamed > 0 AND marked = 0 THEN 'error_report_without_cells'
        END) AS f(why)
    WHERE why IS NOT NULL
    ON CONFLICT DO NOTHING;
    RETURN true;
END
$$;

-- Lock what a report names, or with no report what was in doubt when it was named: lanes first.
CREATE FUNCTION ledger.lock_rejected_v1(report text) RETURNS SETOF bigint
LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    events bigint[];
BEGIN
    IF report IS NULL THEN
        SELECT array_agg(m.meter_event_id) INTO events FROM ledger.meter_event m
        WHERE m.rejected_at IS NOT NULL AND m.state = 'dead' AND m.dead_kind = 'ambiguous';
    ELSE
        SELECT array_agg(DISTINCT x.meter_event_id) INTO events FROM ledger.rejection x
        WHERE x.event_id = report AND x.meter_event_id IS NOT NULL;
    END IF;
    PERFORM FROM ledger.lane l
    WHERE l.lane_id IN (SELECT m.lane_id FROM ledger.meter_event m
                        WHERE m.meter_event_id = ANY (events))
    ORDER BY l.lane_id FOR NO KEY UPDATE;
    RETURN QUERY SELECT m.meter_event_id FROM ledger.meter_event m
                 WHERE m.meter_event_id = ANY (events)
                 ORDER BY m.meter_event_id FOR NO KEY UPDATE;
END
$$;

-- Take meter events back that reports name: dead, with the reports as evidence. `ambiguous` where
-- a later attempt may count all the same: its cell is to be reconciled then; NULL where nothing
-- changes but the evidence. Their lanes are locked.
CREATE FUNCTION ledger.take_back_v1(decisions json) RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    d record;
BEGIN
    FOR d IN SELECT * FROM json_to_recordset(decisions) AS x(meter_event_id bigint, dead_kind text)
             ORDER BY meter_event_id
    LOOP
        IF d.dead_kind IS NOT NULL THEN
            UPDATE ledger.meter_event m
            SET state = 'dead', dead_kind = d.dead_kind,
                rejected_at = coalesce(m.rejected_at, now()), next_attempt_at = NULL,
                settled_at = now(),
                possibly_executed = m.possibly_executed OR d.dead_kind = 'ambiguous'
            WHERE m.meter_event_id = d.meter_event_id;
            PERFORM ledger.park_dead(d.meter_event_id, d.dead_kind);
        END IF;
        UPDATE ledger.parked p
        SET detail = p.detail || jsonb_build_object('rejections', (
            SELECT jsonb_agg(jsonb_build_object('event_id', x.event_id, 'code', x.code,
                                 'message', x.message, 'idempotency_key', x.idempotency_key)
                             ORDER BY x.event_id, x.idempotency_key, x.code)
            FROM ledger.rejection x WHERE x.meter_event_id = p.meter_event_id))
        WHERE p.meter_event_id = d.meter_event_id;
        IF d.dead_kind = 'ambiguous' THEN
            INSERT INTO ledger.doubt (customer, event_name, window_start, window_end, reason)
            SELECT m.customer, m.event_name, m.window_start, m.window_end,
                   format('meter event %s was rejected, and may have been sent again',
                          m.meter_event_id)
            FROM ledger.meter_event m WHERE m.meter_event_id = d.meter_event_id
            ON CONFLICT DO NOTHING;
        END IF;
    END LOOP;
    PERFORM ledger.wake(ARRAY(
        SELECT DISTINCT m.lane_id FROM json_to_recordset(decisions) AS x(meter_event_id bigint)
        JOIN ledger.meter_event m USING (meter_event_id)));
END
$$;

-- Whether a request that was just frozen has an identifier that a report named before this ledger
-- knew it: a ledger that was restored had sent it, and forgot. Such an identifier is spent. The
-- request is not sent; it is in doubt, since attempts nobody remembers may count, and Stripe's sums
-- decide. Its lane is locked.
CREATE FUNCTION ledger.take_back_spent_v1(event bigint) RETURNS boolean
LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    UPDATE ledger.rejection x SET meter_event_id = m.meter_event_id
    FROM ledger.meter_event m
    WHERE m.meter_event_id = event AND x.identifier = m.identifier AND x.meter_event_id IS NULL;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM ledger.take_back_v1(json_build_array(
        json_build_object('meter_event_id', event, 'dead_kind', 'ambiguous')));
    RETURN true;
END
$$;

-- One reader of Stripe's list at a time, and not more often than told; NULL: not now. Gives the
-- instant from which to read, in microseconds: a day before what was read last, 30 days at first.
CREATE FUNCTION ledger.claim_sweep_v1(pause interval) RETURNS bigint
LANGUAGE sql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    INSERT INTO ledger.report_sweep AS s (claimed_at) VALUES (now())
    ON CONFLICT (singleton) DO UPDATE SET claimed_at = now()
        WHERE s.claimed_at <= now() - pause
    RETURNING ledger.us(coalesce(s.swept_until - interval '1 day', now() - interval '30 days'))
$$;

CREATE FUNCTION ledger.swept_v1(until_us bigint) RETURNS void
LANGUAGE sql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    UPDATE ledger.report_sweep SET swept_until = greatest(swept_until, ledger.at(until_us))
$$;

REVOKE ALL ON FUNCTION ledger.note_report_v1(json, json, interval), ledger.lock_rejected_v1(text),
    ledger.take_back_v1(json), ledger.take_back_spent_v1(bigint),
    ledger.claim_sweep_v1(interval), ledger.swept_v1(bigint), ledger.guard_rejection()
    FROM PUBLIC;
GRANT SELECT ON ledger.error_report, ledger.rejection, ledger.doubt, ledger.report_sweep
    TO ledger_reader;
GRANT EXECUTE ON FUNCTION ledger.note_report_v1(json, json, interval),
    ledger.lock_rejected_v1(text), ledger.take_back_v1(json), ledger.take_back_spent_v1(bigint),
    ledger.claim_sweep_v1(interval), ledger.swept_v1(bigint)
    TO ledger_service;

RESET ROLE;
