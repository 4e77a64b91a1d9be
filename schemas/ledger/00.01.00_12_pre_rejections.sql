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
    -- Names of events that another meter took all the while: none of the errors is theirs.
    not_of text[] NOT NULL DEFAULT '{}',
    body jsonb NOT NULL,
    noted_by text NOT NULL CHECK (noted_by IN ('webhook', 'sweep')),
    noted_at timestamptz NOT NULL DEFAULT now()
);
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON ledger.error_report
    FOR EACH STATEMENT EXECUTE FUNCTION ledger.refuse_change();

-- A request that a report names: the evidence without which no recorded meter event is taken back.
CREATE TABLE ledger.rejection (
    event_id text NOT NULL REFERENCES ledger.error_report,
    -- As told: the key, an identifier alone, or only the id of Stripe's answer.
    idempotency_key text NOT NULL,
    code text NOT NULL,
    -- NULL: it is named by the id of the answer alone.
    identifier text,
    request_id text,
    -- n of the Idempotency-Key; NULL: the report names the identifier alone, so all of them.
    key_generation integer,
    message text,
    -- NULL: no meter event of this ledger has the identifier, until one gets it, or no attempt has
    -- the id of the answer.
    meter_event_id bigint REFERENCES ledger.meter_event,
    PRIMARY KEY (event_id, idempotency_key, code),
    CHECK (identifier IS NOT NULL OR request_id IS NOT NULL)
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
       OR (to_jsonb(NEW) - '{meter_event_id,key_generation}'::text[])
          <> (to_jsonb(OLD) - '{meter_event_id,key_generation}'::text[])
       OR NEW.key_generation IS DISTINCT FROM OLD.key_generation AND OLD.identifier IS NOT NULL THEN
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
    -- The report that counts more errors than it names; NULL for other reasons.
    report text REFERENCES ledger.error_report,
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
    swept_until timestamptz,
    -- Whether Stripe answered: known by this even while nothing can be sent.
    answered_at timestamptz,
    silent_since timestamptz,
    silent_times integer NOT NULL DEFAULT 0,
    -- Whether it refused the key, and what came in the place of an answer.
    refused boolean NOT NULL DEFAULT false,
    cause text
);

-- Attempts are written in the order of time, so a small index finds those of a few minutes.
CREATE INDEX attempt_started ON ledger.attempt USING brin (started_at);
CREATE INDEX meter_event_rejected ON ledger.meter_event (meter_event_id)
    WHERE rejected_at IS NOT NULL AND state = 'dead' AND dead_kind = 'ambiguous';

-- Note a report with the requests that it names; false: it was noted before, and nothing is done.
CREATE FUNCTION ledger.note_report_v1(report json, samples json, reach json)
RETURNS boolean
LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    r ledger.error_report;
BEGIN
    INSERT INTO ledger.error_report (event_id, event_type, meter_id, event_name, validation_start,
        validation_end, error_count, unnamed, not_of, body, noted_by)
    SELECT x.event_id, x.event_type, x.meter_id, x.event_name, ledger.at(x.start_us),
           ledger.at(x.end_us), x.error_count, x.unnamed, x.not_of, ledger.evidence(x.body),
           x.noted_by
    FROM json_to_record(report) AS x(event_id text, event_type text, meter_id text,
        event_name text, start_us bigint, end_us bigint, error_count bigint, unnamed bigint,
        not_of text[], body text, noted_by text)
    ON CONFLICT DO NOTHING RETURNING * INTO r;
    IF r.event_id IS NULL THEN
        RETURN false;
    END IF;

    INSERT INTO ledger.rejection (event_id, idempotency_key, code, identifier, request_id,
                                  key_generation, message, meter_event_id)
    SELECT r.event_id, x.idempotency_key, x.code, x.identifier, x.request_id, x.key_generation,
           x.message, m.meter_event_id
    FROM json_to_recordset(samples) AS x(idempotency_key text, code text, identifier text,
                                         request_id text, key_generation integer, message text)
    LEFT JOIN ledger.meter_event m ON m.identifier = x.identifier;
    PERFORM ledger.join_answers(r.event_id, reach);
    INSERT INTO ledger.finding (kind, subject, detail)
    SELECT why, r.event_id, jsonb_build_object('event_type', r.event_type, 'meter_id', r.meter_id,
                                               'error_count', r.error_count, 'unnamed', r.unnamed)
    FROM (SELECT CASE
        WHEN r.validation_start IS NULL THEN 'error_report_unreadable'
        -- Our identifiers all begin like this: a ledger that does not know one has lost it.
        WHEN EXISTS (SELECT FROM ledger.rejection x WHERE x.event_id = r.event_id
                     AND x.meter_event_id IS NULL AND x.identifier LIKE 'm1:%')
            THEN 'error_report_of_unknown_request'
        END) AS f(why)
    WHERE why IS NOT NULL
    ON CONFLICT DO NOTHING;
    RETURN true;
END
$$;

-- Attempts that a report may be of, by the time. `reach`: how many microseconds `before` its
-- validation a request may have been sent, and `after` it, for clocks that differ; which outcomes
-- of an attempt say that Stripe never accepted it.
CREATE FUNCTION ledger.attempts_about(r ledger.error_report, reach json)
RETURNS SETOF ledger.attempt
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    first_at timestamptz :=
        r.validation_start - (reach ->> 'before_us')::bigint * interval '1 microsecond';
    last_at timestamptz :=
        r.validation_end + (reach ->> 'after_us')::bigint * interval '1 microsecond';
BEGIN
    RETURN QUERY SELECT a.* FROM ledger.attempt a
                 WHERE a.started_at >= first_at AND a.started_at < last_at;
END
$$;

-- Join what a report names by the id of Stripe's answer alone to the attempt that got it.
CREATE FUNCTION ledger.join_answers(report text, reach json) RETURNS void
LANGUAGE plpgsql
AS $$
DECLARE
    r ledger.error_report;
BEGIN
    IF EXISTS (SELECT FROM ledger.rejection x WHERE x.event_id = report
               AND x.identifier IS NULL AND x.meter_event_id IS NULL) THEN
        SELECT * INTO r FROM ledger.error_report e WHERE e.event_id = report;
        UPDATE ledger.rejection x
        SET meter_event_id = a.meter_event_id, key_generation = a.key_generation
        FROM ledger.attempts_about(r, reach) AS a
        WHERE x.event_id = report AND x.identifier IS NULL AND x.meter_event_id IS NULL
          AND a.request_id = x.request_id;
    END IF;
END
$$;

-- Errors of a report of which nobody can say whose they are.
CREATE FUNCTION ledger.errors_unnamed(report text) RETURNS bigint
LANGUAGE sql STABLE
AS $$
    SELECT r.unnamed + (SELECT count(*) FROM ledger.rejection x WHERE x.event_id = r.event_id
                        AND x.identifier IS NULL AND x.meter_event_id IS NULL)
    FROM ledger.error_report r WHERE r.event_id = report
$$;

-- Windows that those errors may be of: where something was sent to the meter that Stripe may have
-- accepted, and is not known to count nothing.
CREATE FUNCTION ledger.windows_about(report text, reach json)
RETURNS TABLE (customer text, event_name text, window_start timestamptz, window_end timestamptz)
LANGUAGE sql STABLE
AS $$
    SELECT DISTINCT m.customer, m.event_name, m.window_start, m.window_end
    FROM ledger.error_report r
    CROSS JOIN LATERAL ledger.attempts_about(r, reach) AS a
    JOIN ledger.meter_event m ON m.meter_event_id = a.meter_event_id
    WHERE r.event_id = report AND ledger.errors_unnamed(report) > 0
      AND (r.event_name IS NULL OR m.event_name = r.event_name)
      AND m.event_name <> ALL (r.not_of)
      -- Where all others are told by the id of an answer, it is one whose answer was lost.
      AND (r.unnamed > 0 OR a.request_id IS NULL)
      AND (a.outcome IS NULL OR a.outcome <> ALL (
            ARRAY(SELECT json_array_elements_text(reach -> 'never_accepted'))))
      AND a.http_status IS DISTINCT FROM 400
      AND NOT (m.rejected_at IS NOT NULL AND m.dead_kind = 'refused')
$$;

-- A report that counts more errors than can be told apart, and nothing that they may be of.
CREATE FUNCTION ledger.report_without_cells(report text) RETURNS void
LANGUAGE sql
AS $$
    INSERT INTO ledger.finding (kind, subject, detail)
    SELECT 'error_report_without_cells', r.event_id, jsonb_build_object('event_type', r.event_type,
        'meter_id', r.meter_id, 'error_count', r.error_count, 'unnamed', r.unnamed)
    FROM ledger.error_report r WHERE r.event_id = report
    ON CONFLICT DO NOTHING
$$;

-- Mark the cells that the errors beyond the samples of a report may be of, after what it names was
-- taken back.
CREATE FUNCTION ledger.doubt_unnamed_v1(report text, reach json) RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF ledger.errors_unnamed(report) > 0 THEN
        INSERT INTO ledger.doubt (customer, event_name, window_start, window_end, reason, report)
        SELECT w.*, format('error report %s counts more requests than it names', report), report
        FROM ledger.windows_about(report, reach) AS w
        ON CONFLICT DO NOTHING;
        IF NOT FOUND THEN
            PERFORM ledger.report_without_cells(report);
        END IF;
    END IF;
END
$$;

-- What became known of meter events narrows what other reports may be of.
CREATE FUNCTION ledger.narrow_doubt_v1(events bigint[], reach json) RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    one text;
BEGIN
    FOR one IN
        SELECT DISTINCT d.report FROM ledger.doubt d
        JOIN ledger.meter_event m USING (customer, event_name, window_start, window_end)
        WHERE d.settled_at IS NULL AND d.report IS NOT NULL AND m.meter_event_id = ANY (events)
        UNION
        SELECT d.report FROM ledger.doubt d JOIN ledger.rejection x ON x.event_id = d.report
        WHERE d.settled_at IS NULL AND x.meter_event_id = ANY (events)
    LOOP
        UPDATE ledger.doubt d SET settled_at = now()
        WHERE d.report = one AND d.settled_at IS NULL
          AND NOT EXISTS (SELECT FROM ledger.windows_about(one, reach) AS w
                          WHERE (w.customer, w.event_name, w.window_start, w.window_end)
                              = (d.customer, d.event_name, d.window_start, d.window_end));
        IF ledger.errors_unnamed(one) > 0
           AND NOT EXISTS (SELECT FROM ledger.windows_about(one, reach)) THEN
            PERFORM ledger.report_without_cells(one);
        END IF;
    END LOOP;
END
$$;

-- Lock what a report names, or with no report what was in doubt when it was named, and what is
-- named by the id of an answer that came later: lanes first.
CREATE FUNCTION ledger.lock_rejected_v1(report text, reach json) RETURNS SETOF bigint
LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    events bigint[];
BEGIN
    IF report IS NULL THEN
        -- An answer comes within its lease, and is told to the ledger within the fence.
        PERFORM ledger.join_answers(e.event_id, reach) FROM ledger.error_report e
        WHERE e.noted_at > now() - interval '2 days'
          AND EXISTS (SELECT FROM ledger.rejection x WHERE x.event_id = e.event_id
                      AND x.identifier IS NULL AND x.meter_event_id IS NULL);
        SELECT array_agg(m.meter_event_id) INTO events FROM ledger.meter_event m
        WHERE m.rejected_at IS NOT NULL AND m.state = 'dead' AND m.dead_kind = 'ambiguous'
           OR m.state <> 'superseded' AND m.rejected_at IS NULL AND m.meter_event_id IN (
                SELECT x.meter_event_id FROM ledger.rejection x WHERE x.identifier IS NULL);
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
    lanes bigint[];
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
    -- A correction may wait already for what has turned out to be owed.
    lanes := ARRAY(
        SELECT DISTINCT m.lane_id FROM json_to_recordset(decisions) AS x(meter_event_id bigint)
        JOIN ledger.meter_event m USING (meter_event_id));
    PERFORM ledger.end_corrected(lanes);
    PERFORM ledger.wake(lanes);
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
    UPDATE ledger.report_sweep SET swept_until = greatest(swept_until, ledger.at(until_us)),
        answered_at = now(), silent_since = NULL, silent_times = 0, refused = false, cause = NULL
$$;

-- Note that Stripe gave no answer to a sweep, or refused its key.
CREATE FUNCTION ledger.unanswered_v1(key_refused boolean, why text) RETURNS void
LANGUAGE sql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    UPDATE ledger.report_sweep SET silent_since = coalesce(silent_since, now()),
        silent_times = silent_times + 1, refused = key_refused, cause = why
$$;

REVOKE ALL ON FUNCTION ledger.note_report_v1(json, json, json),
    ledger.lock_rejected_v1(text, json), ledger.attempts_about(ledger.error_report, json),
    ledger.join_answers(text, json), ledger.errors_unnamed(text), ledger.windows_about(text, json),
    ledger.report_without_cells(text), ledger.doubt_unnamed_v1(text, json),
    ledger.narrow_doubt_v1(bigint[], json), ledger.take_back_v1(json),
    ledger.take_back_spent_v1(bigint), ledger.claim_sweep_v1(interval),
    ledger.swept_v1(bigint), ledger.unanswered_v1(boolean, text), ledger.guard_rejection()
    FROM PUBLIC;
GRANT SELECT ON ledger.error_report, ledger.rejection, ledger.doubt, ledger.report_sweep
    TO ledger_reader;
GRANT EXECUTE ON FUNCTION ledger.note_report_v1(json, json, json),
    ledger.lock_rejected_v1(text, json), ledger.doubt_unnamed_v1(text, json),
    ledger.narrow_doubt_v1(bigint[], json), ledger.take_back_v1(json),
    ledger.take_back_spent_v1(bigint), ledger.claim_sweep_v1(interval), ledger.swept_v1(bigint),
    ledger.unanswered_v1(boolean, text)
    TO ledger_service;

RESET ROLE;
