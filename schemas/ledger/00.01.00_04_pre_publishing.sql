-- From entries to Stripe: lanes, frozen requests, attempts.
SET LOCAL ROLE ledger_owner;

-- One (customer, event name): in order, one request in flight, lent to one publisher at a time.
CREATE TABLE ledger.lane (
    lane_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    customer text NOT NULL,
    event_name text NOT NULL,
    claimed_by text,
    claimed_until timestamptz,
    -- The attempt the lane is lent for: only its settlement gives the lane back early.
    attempt_id bigint,
    paused boolean NOT NULL DEFAULT false,
    pause_reason text,
    -- No later than the first instant at which the lane has something to do; NULL: nothing.
    next_due_at timestamptz,
    UNIQUE (customer, event_name)
) WITH (fillfactor = 70);
CREATE INDEX lane_due ON ledger.lane (next_due_at) WHERE next_due_at IS NOT NULL AND NOT paused;

-- Entries that no live meter event covers: the work list that `meter_log` itself never shows. It
-- follows from the other tables, and audits check that it does, so foreign keys are left out.
CREATE TABLE ledger.uncovered (
    entry_id bigint PRIMARY KEY,
    tenant_id text NOT NULL,
    window_start timestamptz NOT NULL,
    window_end timestamptz NOT NULL,
    -- One meter event per entry (its instant), or all of a window together (NULL).
    occurred_at timestamptz,
    delta bigint NOT NULL,
    -- NULL: the tenant has no customer for this window yet.
    lane_id bigint,
    -- Whether it is a correction, which may take back what is dead in its window.
    corrects boolean NOT NULL,
    -- Not sent before, because Stripe takes no timestamp from the future.
    due_at timestamptz NOT NULL,
    -- Not sent after, because it would be on no invoice; NULL: no deadline known.
    deadline_at timestamptz
);
CREATE INDEX uncovered_lane ON ledger.uncovered (lane_id, window_start, entry_id);
CREATE INDEX uncovered_lane_due ON ledger.uncovered (lane_id, due_at);
CREATE INDEX uncovered_tenant ON ledger.uncovered (tenant_id);
CREATE INDEX uncovered_corrects ON ledger.uncovered (lane_id, window_start) WHERE corrects;

-- Frozen requests. What was frozen never changes; only the settlement state moves.
CREATE TABLE ledger.meter_event (
    meter_event_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    lane_id bigint NOT NULL REFERENCES ledger.lane,
    customer text NOT NULL,
    event_name text NOT NULL,
    window_start timestamptz NOT NULL,
    window_end timestamptz NOT NULL,
    per_entry boolean NOT NULL,
    units bigint NOT NULL CHECK (abs(units) < 1000000000000000),
    first_entry_id bigint NOT NULL REFERENCES ledger.meter_log,
    generation integer NOT NULL CHECK (generation >= 1),
    value text,
    timestamp_s bigint,
    identifier text UNIQUE,
    payload_hash text,
    -- Not sent for the first time after this; the least of its entries' deadlines.
    deadline_at timestamptz,
    created_at timestamptz NOT NULL DEFAULT now(),
    state text NOT NULL CHECK (state IN
        ('pending', 'recorded', 'ambiguous', 'dead', 'superseded', 'nothing')),
    dead_kind text CHECK (dead_kind IN ('refused', 'exhausted', 'ambiguous')),
    key_generation integer NOT NULL DEFAULT 1,
    attempts_used integer NOT NULL DEFAULT 0,
    first_attempt_at timestamptz,
    possibly_executed boolean NOT NULL DEFAULT false,
    next_attempt_at timestamptz,
    settled_at timestamptz,
    -- When a report said that Stripe accepted it and took it back; its identifier is spent then.
    rejected_at timestamptz,
    superseded_by bigint REFERENCES ledger.meter_event,
    UNIQUE (first_entry_id, generation),
    CHECK ((state = 'nothing') = (identifier IS NULL)),
    CHECK ((identifier IS NULL) = (value IS NULL) AND (identifier IS NULL) = (timestamp_s IS NULL)
           AND (identifier IS NULL) = (payload_hash IS NULL)),
    CHECK (state <> 'nothing' OR units = 0),
    CHECK (next_attempt_at IS NULL OR state IN ('pending', 'ambiguous')),
    CHECK ((dead_kind IS NULL) OR state IN ('dead', 'recorded', 'superseded'))
) WITH (fillfactor = 80);
CREATE INDEX meter_event_due ON ledger.meter_event (lane_id, next_attempt_at)
    WHERE next_attempt_at IS NOT NULL;
CREATE INDEX meter_event_unsettled ON ledger.meter_event (lane_id)
    WHERE state IN ('pending', 'ambiguous', 'dead');
CREATE INDEX meter_event_window ON ledger.meter_event (customer, event_name, window_start);
CREATE INDEX meter_event_settled ON ledger.meter_event (timestamp_s) WHERE state = 'recorded';

CREATE TABLE ledger.meter_event_entry (
    meter_event_id bigint NOT NULL REFERENCES ledger.meter_event,
    entry_id bigint NOT NULL REFERENCES ledger.meter_log,
    live boolean NOT NULL DEFAULT true,
    PRIMARY KEY (meter_event_id, entry_id)
);
-- An amount is in one request that counts, never in two.
CREATE UNIQUE INDEX meter_event_entry_live ON ledger.meter_event_entry (entry_id) WHERE live;
CREATE INDEX meter_event_entry_entry ON ledger.meter_event_entry (entry_id);

-- Written before the first byte leaves; the outcome is added once.
CREATE TABLE ledger.attempt (
    attempt_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    meter_event_id bigint NOT NULL REFERENCES ledger.meter_event,
    key_generation integer NOT NULL,
    worker text NOT NULL,
    started_at timestamptz NOT NULL DEFAULT now(),
    lease_until timestamptz NOT NULL,
    finished_at timestamptz,
    outcome text,
    http_status integer,
    code text,
    message text,
    request_id text,
    cause text
);
CREATE INDEX attempt_meter_event ON ledger.attempt (meter_event_id);
CREATE INDEX attempt_open ON ledger.attempt (meter_event_id) WHERE finished_at IS NULL;

CREATE FUNCTION ledger.guard_meter_event() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    IF (NEW.meter_event_id, NEW.lane_id, NEW.customer, NEW.event_name, NEW.window_start,
        NEW.window_end, NEW.per_entry, NEW.units, NEW.first_entry_id, NEW.generation, NEW.value,
        NEW.timestamp_s, NEW.identifier, NEW.payload_hash, NEW.deadline_at, NEW.created_at)
       IS DISTINCT FROM
       (OLD.meter_event_id, OLD.lane_id, OLD.customer, OLD.event_name, OLD.window_start,
        OLD.window_end, OLD.per_entry, OLD.units, OLD.first_entry_id, OLD.generation, OLD.value,
        OLD.timestamp_s, OLD.identifier, OLD.payload_hash, OLD.deadline_at, OLD.created_at) THEN
        RAISE EXCEPTION 'ledger.meter_event %: a frozen request never changes', OLD.meter_event_id
            USING ERRCODE = 'restrict_violation',
                  HINT = 'Supersede it with a next generation.';
    END IF;
    IF NEW.rejected_at IS DISTINCT FROM OLD.rejected_at THEN
        IF OLD.rejected_at IS NOT NULL OR NEW.state <> 'dead'
           OR NOT EXISTS (SELECT FROM ledger.rejection r
                          WHERE r.meter_event_id = OLD.meter_event_id) THEN
            RAISE EXCEPTION 'ledger.meter_event %: only a report of Stripe''s takes it back',
                OLD.meter_event_id USING ERRCODE = 'restrict_violation';
        END IF;
    END IF;
    IF OLD.rejected_at IS NOT NULL AND NEW.state IN ('pending', 'ambiguous') THEN
        RAISE EXCEPTION 'ledger.meter_event %: rejected, so its identifier is spent',
            OLD.meter_event_id USING ERRCODE = 'restrict_violation',
                  HINT = 'Supersede it with a next generation.';
    END IF;
    IF OLD.state IN ('recorded', 'superseded', 'nothing') AND NEW.state <> OLD.state
       AND NOT (OLD.state = 'recorded' AND OLD.rejected_at IS NULL
                AND NEW.rejected_at IS NOT NULL) THEN
        RAISE EXCEPTION 'ledger.meter_event %: state % is final', OLD.meter_event_id, OLD.state
            USING ERRCODE = 'restrict_violation', HINT = 'Record a correction instead.';
    END IF;
    IF OLD.possibly_executed AND NOT NEW.possibly_executed THEN
        RAISE EXCEPTION 'ledger.meter_event %: possibly_executed is never taken back',
            OLD.meter_event_id USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END
$$;
CREATE TRIGGER frozen BEFORE UPDATE ON ledger.meter_event
    FOR EACH ROW EXECUTE FUNCTION ledger.guard_meter_event();
CREATE TRIGGER no_delete BEFORE DELETE OR TRUNCATE ON ledger.meter_event
    FOR EACH STATEMENT EXECUTE FUNCTION ledger.refuse_change();

CREATE FUNCTION ledger.guard_link() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    IF (NEW.meter_event_id, NEW.entry_id) IS DISTINCT FROM (OLD.meter_event_id, OLD.entry_id)
       OR NEW.live THEN
        RAISE EXCEPTION 'ledger.meter_event_entry (%, %): a link only ever ends',
            OLD.meter_event_id, OLD.entry_id USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END
$$;
CREATE TRIGGER ends_only BEFORE UPDATE ON ledger.meter_event_entry
    FOR EACH ROW EXECUTE FUNCTION ledger.guard_link();
CREATE TRIGGER no_delete BEFORE DELETE OR TRUNCATE ON ledger.meter_event_entry
    FOR EACH STATEMENT EXECUTE FUNCTION ledger.refuse_change();

CREATE FUNCTION ledger.guard_attempt() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    IF OLD.finished_at IS NOT NULL
       OR (NEW.attempt_id, NEW.meter_event_id, NEW.key_generation, NEW.worker, NEW.started_at,
           NEW.lease_until)
          IS DISTINCT FROM
          (OLD.attempt_id, OLD.meter_event_id, OLD.key_generation, OLD.worker, OLD.started_at,
           OLD.lease_until) THEN
        RAISE EXCEPTION 'ledger.attempt %: an attempt gets its outcome once', OLD.attempt_id
            USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END
$$;
CREATE TRIGGER once BEFORE UPDATE ON ledger.attempt
    FOR EACH ROW EXECUTE FUNCTION ledger.guard_attempt();
CREATE TRIGGER no_delete BEFORE DELETE OR TRUNCATE ON ledger.attempt
    FOR EACH STATEMENT EXECUTE FUNCTION ledger.refuse_change();

-- Whoever places entries reads the customer mapping; whoever maps a customer places entries again.
-- Both take this lock (shared, exclusive), or an entry could miss the mapping committed beside it.
CREATE FUNCTION ledger.mapping_lock_key() RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$ SELECT 7234017283807667301 $$;

-- First instant at which a lane has something to do.
CREATE FUNCTION ledger.lane_due(lane bigint) RETURNS timestamptz
LANGUAGE sql STABLE
AS $$
    SELECT least((SELECT min(m.next_attempt_at) FROM ledger.meter_event m
                  WHERE m.lane_id = lane AND m.next_attempt_at IS NOT NULL),
                 (SELECT min(u.due_at) FROM ledger.uncovered u WHERE u.lane_id = lane))
$$;

-- Tell lanes that something changed. Lanes are locked in one order by everybody.
CREATE FUNCTION ledger.wake(lanes bigint[]) RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    PERFORM FROM ledger.lane l WHERE l.lane_id = ANY (lanes) ORDER BY l.lane_id FOR NO KEY UPDATE;
    UPDATE ledger.lane l SET next_due_at = ledger.lane_due(l.lane_id)
    WHERE l.lane_id = ANY (lanes) AND l.next_due_at IS DISTINCT FROM ledger.lane_due(l.lane_id);
END
$$;

-- Put entries on the work list, under the lane of the customer mapped for their window's start.
CREATE FUNCTION ledger.place_entries(entries bigint[]) RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    lanes bigint[];
BEGIN
    PERFORM pg_advisory_xact_lock_shared(ledger.mapping_lock_key());

    INSERT INTO ledger.lane (customer, event_name)
    SELECT DISTINCT c.customer, v.event_name
    FROM ledger.meter_log e
    JOIN ledger.meter_version v ON v.metric = e.metric AND v.version = e.catalogue_version
    JOIN LATERAL (SELECT m.customer FROM ledger.customer m
                  WHERE m.tenant_id = e.tenant_id AND m.effective_from <= e.window_start
                  ORDER BY m.effective_from DESC LIMIT 1) AS c ON true
    WHERE e.entry_id = ANY (entries)
      AND NOT EXISTS (SELECT FROM ledger.lane l
                      WHERE l.customer = c.customer AND l.event_name = v.event_name)
    ORDER BY 1, 2
    ON CONFLICT DO NOTHING;

    WITH placed AS (
        INSERT INTO ledger.uncovered (entry_id, tenant_id, window_start, window_end, occurred_at,
                                      delta, lane_id, corrects, due_at, deadline_at)
        SELECT e.entry_id, e.tenant_id, e.window_start, e.window_end, t.single, e.delta, l.lane_id,
               e.kind = 'correction',
               -- Half-open edges are where Stripe's own texts disagree: a second inside instead.
               -- A window that two billing periods share is dated in the later one, always: not
               -- before that has begun, whenever it is sent.
               CASE WHEN t.single IS NOT NULL THEN t.single
                    WHEN c.anchor IS NULL THEN e.window_start + interval '1 second'
                    WHEN ledger.period_end(c.anchor, c.billing_interval,
                                           e.window_start + interval '1 second')
                         <> ledger.period_end(c.anchor, c.billing_interval,
                                              e.window_end - interval '1 second')
                    THEN e.window_end - interval '1 second'
                    ELSE e.window_start + interval '1 second' END,
               ledger.billing_deadline(c.anchor, c.billing_interval, c.grace,
                                       coalesce(t.single, e.window_end - interval '1 second'))
        FROM ledger.meter_log e
        JOIN ledger.meter_version v ON v.metric = e.metric AND v.version = e.catalogue_version
        CROSS JOIN LATERAL (SELECT CASE WHEN v.publish = 'event'
                                   THEN coalesce(e.occurred_at, e.window_start) END AS single) AS t
        LEFT JOIN LATERAL (SELECT m.* FROM ledger.customer m
                           WHERE m.tenant_id = e.tenant_id AND m.effective_from <= e.window_start
                           ORDER BY m.effective_from DESC LIMIT 1) AS c ON true
        LEFT JOIN ledger.lane l ON l.customer = c.customer AND l.event_name = v.event_name
        WHERE e.entry_id = ANY (entries)
        ON CONFLICT (entry_id) DO UPDATE
            SET lane_id = excluded.lane_id, due_at = excluded.due_at, deadline_at = excluded.deadline_at
        RETURNING lane_id
    )
    SELECT array_agg(DISTINCT lane_id) INTO lanes FROM placed WHERE lane_id IS NOT NULL;

    IF lanes IS NOT NULL THEN
        PERFORM ledger.wake(lanes);
    END IF;
END
$$;

CREATE FUNCTION ledger.place_new_entries() RETURNS trigger
LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM ledger.place_entries(array_agg(entry_id)) FROM fresh HAVING count(*) > 0;
    PERFORM ledger.end_corrected(array_agg(u.lane_id))
    FROM fresh f JOIN ledger.uncovered u USING (entry_id)
    WHERE u.corrects HAVING count(*) > 0;
    RETURN NULL;
END
$$;
CREATE TRIGGER place AFTER INSERT ON ledger.meter_log
    REFERENCING NEW TABLE AS fresh
    FOR EACH STATEMENT EXECUTE FUNCTION ledger.place_new_entries();

RESET ROLE;
