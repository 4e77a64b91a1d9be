-- The ledger's schema as it is now, in one piece: for reading, and to prove that the migrations add
-- up to it. Installations run the migrations.
CREATE SCHEMA ledger;
CREATE TABLE ledger.migration (
    name text PRIMARY KEY,
    sha256 text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    applied_by text NOT NULL DEFAULT session_user
);

-- Who may do what in the ledger. Roles belong to the cluster, so they may exist already.
--   ledger_owner    owns every object; nobody logs in as it
--   ledger_service  the workers: add facts, cut entries, freeze and settle; change no amount
--   ledger_finance  people: decide on parked items and correct, through functions only
--   ledger_reader   analysts and dashboards: read everything
--   ledger_eraser   who may take a tenant's text out of the ledger; nobody is a member from the start
DO $$
DECLARE
    wanted text;
BEGIN
    FOREACH wanted IN ARRAY ARRAY['ledger_owner', 'ledger_service', 'ledger_finance', 'ledger_reader',
                                  'ledger_eraser']
    LOOP
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = wanted) THEN
            EXECUTE format('CREATE ROLE %I NOLOGIN', wanted);
        END IF;
    END LOOP;
EXCEPTION
    -- Two databases of one cluster may be installed at the same time.
    WHEN duplicate_object OR unique_violation THEN NULL;
END
$$;

ALTER SCHEMA ledger OWNER TO ledger_owner;
ALTER TABLE ledger.migration OWNER TO ledger_owner;
GRANT USAGE ON SCHEMA ledger TO ledger_service, ledger_finance, ledger_reader, ledger_eraser;
GRANT ledger_reader TO ledger_service, ledger_finance, ledger_eraser;

SET LOCAL ROLE ledger_owner;

-- Instants cross the border to the workers as integer microseconds: no float, no time zone.
CREATE FUNCTION ledger.us(at timestamptz) RETURNS bigint
LANGUAGE sql STABLE PARALLEL SAFE
AS $$ SELECT (extract(epoch FROM at) * 1000000)::bigint $$;

-- In two steps, because an interval is multiplied in floating point: exact in every year.
CREATE FUNCTION ledger.at(us bigint) RETURNS timestamptz
LANGUAGE sql STABLE PARALLEL SAFE
AS $$
    SELECT timestamptz '1970-01-01 00:00:00+00' + us / 1000000 * interval '1 second'
           + us % 1000000 * interval '1 microsecond'
$$;

-- Evidence may hold what jsonb cannot (an escaped NUL, a number beyond numeric): it is kept as
-- text then, because a record nobody can store would stop its whole partition.
CREATE FUNCTION ledger.evidence(raw text) RETURNS jsonb
LANGUAGE plpgsql STABLE PARALLEL SAFE
AS $$
BEGIN
    RETURN raw::jsonb;
EXCEPTION
    WHEN data_exception OR program_limit_exceeded THEN
        RETURN jsonb_build_object('text', raw);
END
$$;

CREATE FUNCTION ledger.refuse_change() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    RAISE EXCEPTION '%.%: append-only, % refused', TG_TABLE_SCHEMA, TG_TABLE_NAME, TG_OP
        USING ERRCODE = 'restrict_violation',
              HINT = 'What was recorded is never changed; record a correction or a next version.';
END
$$;

-- What the ledger knows beforehand: itself, its logs and sources, meters and customers.

-- The ledger's own name: part of every identifier sent to Stripe, so two ledgers never collide.
CREATE TABLE ledger.identity (
    only_row boolean PRIMARY KEY DEFAULT true CHECK (only_row),
    ledger_id uuid NOT NULL DEFAULT gen_random_uuid(),
    created_at timestamptz NOT NULL DEFAULT now()
);
INSERT INTO ledger.identity DEFAULT VALUES;
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON ledger.identity
    FOR EACH STATEMENT EXECUTE FUNCTION ledger.refuse_change();

CREATE TABLE ledger.setting (
    name text PRIMARY KEY,
    value text NOT NULL,
    meaning text NOT NULL,
    changed_at timestamptz NOT NULL DEFAULT now(),
    changed_by text NOT NULL DEFAULT session_user
);
INSERT INTO ledger.setting (name, value, meaning) VALUES
    ('meter_notice', '1 hour',
     'how far ahead a changed meter must start; workers judge nothing beyond it unrefreshed'),
    ('finalisation_margin', '15 minutes',
     'how long before Stripe closes an invoice nothing is sent for it any more'),
    ('finalisation_grace', '1 hour',
     'Stripe''s grace after a period for customers whose mapping names none'),
    ('canary_retention', '14 days', 'how long single canary tokens are kept');

CREATE FUNCTION ledger.interval_setting(wanted text) RETURNS interval
LANGUAGE sql STABLE PARALLEL SAFE
AS $$ SELECT value::interval FROM ledger.setting WHERE name = wanted $$;

-- Kafka logs by topic id. The first one registers itself; any other could count everything a
-- second time, so a person opens it.
CREATE TABLE ledger.log (
    log_id uuid PRIMARY KEY,
    log_topic text NOT NULL,
    first boolean NOT NULL DEFAULT false,
    opened_at timestamptz NOT NULL DEFAULT now(),
    opened_by text NOT NULL DEFAULT session_user,
    reason text NOT NULL
);
CREATE UNIQUE INDEX log_first ON ledger.log (first) WHERE first;
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON ledger.log
    FOR EACH STATEMENT EXECUTE FUNCTION ledger.refuse_change();

-- Up to where each partition's facts are contained in the ledger.
CREATE TABLE ledger.position (
    log_id uuid NOT NULL REFERENCES ledger.log,
    partition integer NOT NULL CHECK (partition >= 0),
    log_topic text NOT NULL,
    position bigint NOT NULL,
    catalogue_hash text NOT NULL,
    updated_at timestamptz NOT NULL,
    PRIMARY KEY (log_id, partition)
) WITH (fillfactor = 50);

CREATE TABLE ledger.source (
    source text PRIMARY KEY,
    system_identifier text NOT NULL,
    timeline integer NOT NULL,
    registered_at timestamptz NOT NULL DEFAULT now(),
    registered_by text NOT NULL DEFAULT session_user
);

-- While a row is not lifted, nothing is claimed: publishing stands still for all.
CREATE TABLE ledger.halt (
    halt_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind text NOT NULL,
    detail jsonb NOT NULL,
    since timestamptz NOT NULL DEFAULT now(),
    lifted_at timestamptz,
    lifted_by text,
    why text
);
CREATE UNIQUE INDEX halt_active ON ledger.halt (kind) WHERE lifted_at IS NULL;

-- The meter catalogue: append-only and effective-dated.
CREATE TABLE ledger.meter_version (
    metric text NOT NULL CHECK (metric <> '' AND octet_length(metric) <= 100),
    version integer NOT NULL CHECK (version >= 1),
    event_name text NOT NULL CHECK (event_name <> '' AND length(event_name) <= 100),
    window_us bigint NOT NULL CHECK (window_us IN (60000000, 3600000000, 86400000000)),
    publish text NOT NULL CHECK (publish IN ('window', 'event')),
    scale integer NOT NULL CHECK (scale BETWEEN 0 AND 12),
    skew_max_us bigint NOT NULL CHECK (skew_max_us >= 0),
    early_max_us bigint NOT NULL CHECK (early_max_us >= 0),
    close_delay_us bigint NOT NULL CHECK (close_delay_us >= 0),
    carry text NOT NULL CHECK (carry IN ('review', 'next-period', 'manual')),
    aggregation text NOT NULL CHECK (aggregation IN ('sum', 'count')),
    rules integer NOT NULL CHECK (rules >= 1),
    effective_from timestamptz NOT NULL,
    created_at timestamptz NOT NULL DEFAULT now(),
    actor text NOT NULL,
    -- Why. NULL: nobody was asked, as for a metric that is new.
    reason text,
    PRIMARY KEY (metric, version),
    UNIQUE (metric, effective_from),
    -- A count has no signed amounts, so it cannot be a difference of levels.
    CHECK (aggregation = 'sum' OR publish = 'event'),
    -- Stripe takes dates up to 35 days back; a day is left for outages.
    CONSTRAINT meter_version_way_check CHECK (skew_max_us + close_delay_us <= 2937600000000)
);
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON ledger.meter_version
    FOR EACH STATEMENT EXECUTE FUNCTION ledger.refuse_change();

-- Which Stripe customer pays for a tenant's windows that start at or after effective_from.
CREATE TABLE ledger.customer (
    tenant_id text NOT NULL CHECK (tenant_id <> ''),
    effective_from timestamptz NOT NULL,
    customer text NOT NULL CHECK (length(customer) BETWEEN 1 AND 255),
    -- Stripe's billing cycle; without an anchor no billing deadline is known or kept.
    anchor timestamptz,
    -- As in 'month' or '3 months'.
    billing_interval text CHECK (billing_interval ~
        '^(day|week|month|year|([2-9]|[1-9][0-9]{1,3}) (day|week|month|year)s)$'),
    grace interval,
    created_at timestamptz NOT NULL DEFAULT now(),
    actor text NOT NULL,
    PRIMARY KEY (tenant_id, effective_from),
    CHECK ((anchor IS NULL) = (billing_interval IS NULL)),
    CHECK (grace IS NULL OR anchor IS NOT NULL)
);
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON ledger.customer
    FOR EACH STATEMENT EXECUTE FUNCTION ledger.refuse_change();

-- Edges of billing periods around an instant: anchor + k intervals, some before it and some after.
-- Months are counted from the anchor itself, so the 31st stays the 31st where there is one.
CREATE FUNCTION ledger.period_edges(anchor timestamptz, billing_interval text, at timestamptz)
RETURNS SETOF timestamptz
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT edge AT TIME ZONE 'UTC'
    FROM (SELECT anchor AT TIME ZONE 'UTC' AS a, at AT TIME ZONE 'UTC' AS t) AS utc,
         LATERAL (SELECT CASE WHEN billing_interval ~ '^[0-9]'
                             THEN split_part(billing_interval, ' ', 1)::integer ELSE 1 END AS count,
                         substring(billing_interval FROM '(day|week|month|year)s?$') AS unit)
             AS parsed,
         LATERAL (SELECT CASE unit WHEN 'day' THEN interval '1 day'
                             WHEN 'week' THEN interval '7 days'
                             WHEN 'month' THEN interval '1 month'
                             ELSE interval '12 months' END * count AS step) AS cycle,
         LATERAL (SELECT CASE WHEN unit IN ('day', 'week')
                             THEN floor(extract(epoch FROM t - a) / extract(epoch FROM step))
                             ELSE floor(((extract(year FROM t) - extract(year FROM a)) * 12
                                         + extract(month FROM t) - extract(month FROM a))
                                        / (count * CASE unit WHEN 'month' THEN 1 ELSE 12 END))
                             END AS near) AS guess,
         LATERAL (SELECT a + step * k::double precision AS edge
                  FROM generate_series(near - 1, near + 2) AS k) AS edges
$$;

-- End of the billing period that contains an instant: the first edge after it.
CREATE FUNCTION ledger.period_end(anchor timestamptz, billing_interval text, at timestamptz)
RETURNS timestamptz
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT min(edge) FROM ledger.period_edges(anchor, billing_interval, at) AS edge WHERE edge > at
$$;

-- Its start: the last edge that is not after the instant. Not the end minus an interval: the month
-- before 28 February may begin on the 31st.
CREATE FUNCTION ledger.period_start(anchor timestamptz, billing_interval text, at timestamptz)
RETURNS timestamptz
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT max(edge) FROM ledger.period_edges(anchor, billing_interval, at) AS edge WHERE edge <= at
$$;

-- Last instant at which usage of `at` still reaches its invoice; NULL: not known for this customer.
CREATE FUNCTION ledger.billing_deadline(
    anchor timestamptz, billing_interval text, grace interval, at timestamptz
) RETURNS timestamptz
LANGUAGE sql STABLE PARALLEL SAFE
AS $$
    SELECT CASE WHEN anchor IS NULL THEN NULL
           ELSE ledger.period_end(anchor, billing_interval, at)
                + coalesce(grace, ledger.interval_setting('finalisation_grace'))
                - ledger.interval_setting('finalisation_margin') END
$$;

-- What the workers report, and the amounts that follow from it.

-- For a meter version that the ledger does not have: a statement that needs it ends here.
CREATE FUNCTION ledger.unknown_meter(metric text, version integer) RETURNS bigint
LANGUAGE plpgsql
AS $$
BEGIN
    RAISE EXCEPTION 'catalogue_version: version % of meter % is not in this ledger', version, metric
        USING ERRCODE = 'foreign_key_violation',
              HINT = 'The worker judges by another catalogue: was the ledger restored or exchanged?';
END
$$;

-- A series' reading: the one with the greatest count in its log.
CREATE TABLE ledger.level (
    tenant_id text NOT NULL,
    metric text NOT NULL,
    catalogue_version integer NOT NULL,
    window_start timestamptz NOT NULL,
    window_end timestamptz NOT NULL,
    shard integer NOT NULL,
    log_id uuid NOT NULL,
    partition integer NOT NULL,
    birth_offset bigint NOT NULL,
    count bigint NOT NULL CHECK (count > 0),
    total numeric NOT NULL,
    digest numeric NOT NULL,
    -- Readings contradicted each other: nothing more is cut until a person has looked.
    held boolean NOT NULL DEFAULT false,
    -- When the next entry is to be cut; NULL: the entries say what the level says.
    due_at timestamptz,
    updated_at timestamptz NOT NULL,
    -- No foreign keys: they double the cost of a row. The statement that writes levels checks the
    -- meter version, and the position row of the same transaction the log.
    PRIMARY KEY (tenant_id, metric, window_start, catalogue_version, shard, log_id),
    CHECK (window_end > window_start)
) WITH (fillfactor = 70); -- open windows are rewritten every second: leave room on the page
CREATE INDEX level_due ON ledger.level (due_at) WHERE due_at IS NOT NULL AND NOT held;

-- Identities of a source and minute by verdict class: what the audit compares with the registry.
CREATE TABLE ledger.cell (
    source text NOT NULL,
    minute timestamptz NOT NULL,
    verdict_class text NOT NULL,
    log_id uuid NOT NULL,
    partition integer NOT NULL,
    birth_offset bigint NOT NULL,
    count bigint NOT NULL CHECK (count > 0),
    digest numeric NOT NULL,
    updated_at timestamptz NOT NULL,
    PRIMARY KEY (source, minute, verdict_class, log_id, partition)
) WITH (fillfactor = 70);

-- The youngest canary of each partition: its age says whether the whole path is alive.
CREATE TABLE ledger.canary (
    source text NOT NULL,
    partition integer NOT NULL,
    received_at timestamptz NOT NULL,
    token text NOT NULL,
    log_id uuid NOT NULL,
    record_offset bigint NOT NULL,
    arrived_at timestamptz NOT NULL,
    PRIMARY KEY (source, partition)
) WITH (fillfactor = 50);

-- Single canaries, so that an audit can wait for its own.
CREATE TABLE ledger.canary_token (
    source text NOT NULL,
    token text NOT NULL,
    partition integer NOT NULL,
    received_at timestamptz NOT NULL,
    arrived_at timestamptz NOT NULL,
    PRIMARY KEY (source, token, partition)
);
CREATE INDEX canary_token_arrived ON ledger.canary_token (arrived_at);

-- Facts that contradict what is recorded; each is a person's matter.
CREATE TABLE ledger.finding (
    finding_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind text NOT NULL,
    subject text NOT NULL,
    detail jsonb NOT NULL,
    found_at timestamptz NOT NULL DEFAULT now(),
    cleared_at timestamptz,
    cleared_by text,
    why text,
    UNIQUE (kind, subject)
);

-- Entries: signed amounts in the meter's units. Never changed, never removed.
CREATE TABLE ledger.meter_log (
    entry_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind text NOT NULL
        CHECK (kind IN ('usage', 'event', 'approval', 'correction', 'carry', 'adoption')),
    tenant_id text NOT NULL,
    metric text NOT NULL,
    catalogue_version integer NOT NULL,
    window_start timestamptz NOT NULL,
    window_end timestamptz NOT NULL,
    shard integer NOT NULL DEFAULT 0,
    log_id uuid,
    partition integer,
    record_offset bigint,
    revision integer,
    delta bigint NOT NULL CHECK (abs(delta) < 1000000000000000),
    event_id uuid,
    content numeric,
    occurred_at timestamptz,
    level_count bigint,
    -- Sum of this series' deltas up to and including this one.
    level_total numeric,
    target_event_id uuid,
    reference text,
    actor text NOT NULL DEFAULT session_user,
    reason text,
    created_at timestamptz NOT NULL DEFAULT now(),
    FOREIGN KEY (metric, catalogue_version) REFERENCES ledger.meter_version,
    CHECK ((kind = 'usage') = (event_id IS NULL)),
    CHECK (kind <> 'usage' OR (revision IS NOT NULL AND level_count IS NOT NULL
                               AND level_total IS NOT NULL AND log_id IS NOT NULL)),
    CHECK (kind IN ('usage', 'event') OR reason IS NOT NULL)
);
CREATE UNIQUE INDEX meter_log_revision ON ledger.meter_log
    (tenant_id, metric, window_start, catalogue_version, shard, log_id, revision)
    WHERE kind = 'usage';
CREATE UNIQUE INDEX meter_log_event ON ledger.meter_log (kind, event_id) WHERE kind <> 'usage';
CREATE INDEX meter_log_identity ON ledger.meter_log (event_id) WHERE event_id IS NOT NULL;
CREATE INDEX meter_log_window ON ledger.meter_log (tenant_id, metric, window_start);
-- Updates have a guard of their own, which lets an erasure through and nothing else.
CREATE TRIGGER append_only BEFORE DELETE OR TRUNCATE ON ledger.meter_log
    FOR EACH STATEMENT EXECUTE FUNCTION ledger.refuse_change();

-- Cut the next entries of up to `most` series that are due. Two at a time share the work.
-- Locking and reading are two statements on purpose: the second sees what whoever held the row
-- before us has cut, and UNIQUE (series, revision) is the last guard.
CREATE FUNCTION ledger.cut_entries_v1(most integer) RETURNS integer
LANGUAGE plpgsql
AS $$
DECLARE
    rows tid[];
    made integer;
BEGIN
    SELECT array_agg(due.ctid) INTO rows
    FROM (SELECT l.ctid FROM ledger.level l
          WHERE l.due_at <= now() AND NOT l.held
          ORDER BY l.due_at LIMIT most
          FOR NO KEY UPDATE SKIP LOCKED) AS due;
    IF rows IS NULL THEN
        RETURN 0;
    END IF;

    WITH next AS (
        SELECT l.*, coalesce(last.revision, 0) + 1 AS revision,
               coalesce(last.level_total, 0) AS base,
               -- One request carries at most 15 digits; the rest follows with the next revision.
               greatest(least(l.total - coalesce(last.level_total, 0), 999999999999999),
                        -999999999999999) AS delta
        FROM ledger.level l
        LEFT JOIN LATERAL (
            SELECT e.revision, e.level_total FROM ledger.meter_log e
            WHERE e.kind = 'usage' AND e.tenant_id = l.tenant_id AND e.metric = l.metric
              AND e.window_start = l.window_start AND e.shard = l.shard AND e.log_id = l.log_id
              AND e.catalogue_version = l.catalogue_version
            ORDER BY e.revision DESC LIMIT 1) AS last ON true
        WHERE l.ctid = ANY (rows)
    )
    INSERT INTO ledger.meter_log (kind, tenant_id, metric, catalogue_version, window_start,
        window_end, shard, log_id, partition, revision, delta, level_count, level_total)
    SELECT 'usage', tenant_id, metric, catalogue_version, window_start, window_end, shard, log_id,
           partition, revision, delta, count, base + delta
    FROM next WHERE delta <> 0;
    GET DIAGNOSTICS made = ROW_COUNT;

    UPDATE ledger.level l SET due_at = NULL
    WHERE l.ctid = ANY (rows)
      AND l.total = coalesce((
            SELECT e.level_total FROM ledger.meter_log e
            WHERE e.kind = 'usage' AND e.tenant_id = l.tenant_id AND e.metric = l.metric
              AND e.window_start = l.window_start AND e.shard = l.shard AND e.log_id = l.log_id
              AND e.catalogue_version = l.catalogue_version
            ORDER BY e.revision DESC LIMIT 1), 0);
    RETURN made;
END
$$;

-- From entries to Stripe: lanes, frozen requests, attempts.

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

-- What waits for a person, and what persons decided.

CREATE TABLE ledger.parked (
    parked_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind text NOT NULL CHECK (kind IN ('review', 'dead')),
    reason text NOT NULL,
    -- Where it came from: a record of a log, or a meter event or an entry of this ledger.
    log_id uuid,
    partition integer,
    record_offset bigint,
    meter_event_id bigint REFERENCES ledger.meter_event,
    entry_id bigint REFERENCES ledger.meter_log,
    event_id uuid,
    content numeric,
    source text,
    tenant_id text,
    metric text,
    units numeric,
    catalogue_version integer,
    window_start timestamptz,
    window_end timestamptz,
    shard integer,
    occurred_at timestamptz,
    received_at timestamptz,
    detail jsonb NOT NULL,
    record bytea CHECK (octet_length(record) <= 65536),
    parked_at timestamptz NOT NULL DEFAULT now(),
    state text NOT NULL DEFAULT 'open'
        CHECK (state IN ('open', 'approved', 'rejected', 'redriven', 'corrected', 'withdrawn')),
    decided_by text,
    decided_at timestamptz,
    why text,
    -- When a dead meter event was also written to the dead-letter topic.
    published_at timestamptz,
    CHECK (num_nonnulls(log_id, meter_event_id, entry_id) = 1)
);
-- Copies of a record find the item that is there already.
CREATE UNIQUE INDEX parked_identity ON ledger.parked (kind, reason, event_id, content)
    WHERE event_id IS NOT NULL;
CREATE UNIQUE INDEX parked_record ON ledger.parked (log_id, partition, record_offset)
    WHERE event_id IS NULL AND log_id IS NOT NULL;
CREATE UNIQUE INDEX parked_meter_event ON ledger.parked (meter_event_id)
    WHERE meter_event_id IS NOT NULL;
CREATE UNIQUE INDEX parked_entry ON ledger.parked (entry_id) WHERE entry_id IS NOT NULL;
CREATE INDEX parked_open ON ledger.parked (kind, parked_at) WHERE state = 'open';
CREATE INDEX parked_corrected ON ledger.parked (kind, tenant_id) WHERE state = 'corrected';
CREATE INDEX parked_event ON ledger.parked (event_id) WHERE event_id IS NOT NULL;
CREATE INDEX parked_metric ON ledger.parked (metric, occurred_at) WHERE kind = 'dead';
CREATE INDEX parked_unpublished ON ledger.parked (parked_id)
    WHERE meter_event_id IS NOT NULL AND published_at IS NULL;
CREATE TRIGGER no_delete BEFORE DELETE OR TRUNCATE ON ledger.parked
    FOR EACH STATEMENT EXECUTE FUNCTION ledger.refuse_change();

CREATE TABLE ledger.decision (
    decision_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    -- `agree`: the first of two that a large amount needs; it changes nothing by itself. `end`: what
    -- `correct` did took the item's amount back, so nothing is owed any more.
    action text NOT NULL CHECK (action IN ('approve', 'agree', 'reject', 'correct', 'redrive',
                                           'carry', 'end')),
    parked_id bigint REFERENCES ledger.parked,
    entry_id bigint REFERENCES ledger.meter_log,
    actor text NOT NULL DEFAULT session_user,
    reason text NOT NULL CHECK (btrim(reason) <> ''),
    detail jsonb NOT NULL DEFAULT '{}',
    decided_at timestamptz NOT NULL DEFAULT now(),
    -- Four eyes, whatever the code says.
    CHECK (detail ->> 'agreed_by' IS DISTINCT FROM actor)
);
CREATE INDEX decision_parked ON ledger.decision (parked_id);
CREATE INDEX decision_entry ON ledger.decision (entry_id);
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON ledger.decision
    FOR EACH STATEMENT EXECUTE FUNCTION ledger.refuse_change();

-- Everything that people did to the ledger, with who and why; decisions on amounts included.
CREATE TABLE ledger.audit_log (
    audit_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    action text NOT NULL,
    subject text NOT NULL,
    actor text NOT NULL DEFAULT session_user,
    detail jsonb NOT NULL DEFAULT '{}',
    at timestamptz NOT NULL DEFAULT now()
);
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON ledger.audit_log
    FOR EACH STATEMENT EXECUTE FUNCTION ledger.refuse_change();

-- Whatever a person decides is in the log of everything that was done, by whatever way it came.
CREATE FUNCTION ledger.log_decision() RETURNS trigger
LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    INSERT INTO ledger.audit_log (action, subject, actor, detail)
    VALUES (NEW.action,
            coalesce('item ' || NEW.parked_id, 'entry ' || NEW.entry_id, 'decision ' || NEW.decision_id),
            NEW.actor,
            jsonb_strip_nulls(jsonb_build_object('why', NEW.reason, 'decision', NEW.decision_id,
                                                 'entry', NEW.entry_id)));
    RETURN NULL;
END
$$;
CREATE TRIGGER log AFTER INSERT ON ledger.decision
    FOR EACH ROW EXECUTE FUNCTION ledger.log_decision();

CREATE FUNCTION ledger.log_meter_version() RETURNS trigger
LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    INSERT INTO ledger.audit_log (action, subject, actor, detail)
    VALUES ('add_meter', NEW.metric || ' v' || NEW.version, NEW.actor,
            jsonb_strip_nulls(jsonb_build_object('event_name', NEW.event_name, 'effective_from',
                                                 NEW.effective_from, 'why', NEW.reason)));
    RETURN NULL;
END
$$;
CREATE TRIGGER log AFTER INSERT ON ledger.meter_version
    FOR EACH ROW EXECUTE FUNCTION ledger.log_meter_version();

-- Minutes that an audit judged equal: registry = cells.
CREATE TABLE ledger.sealed_minute (
    source text NOT NULL,
    minute timestamptz NOT NULL,
    count bigint NOT NULL,
    digest numeric NOT NULL,
    sealed_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (source, minute)
);
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON ledger.sealed_minute
    FOR EACH STATEMENT EXECUTE FUNCTION ledger.refuse_change();

-- The next meter version must not judge differently what has been judged already.
CREATE FUNCTION ledger.guard_meter_version() RETURNS trigger
LANGUAGE plpgsql
AS $$
DECLARE
    last ledger.meter_version;
    other ledger.meter_version;
    judged timestamptz;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('ledger.meter_version', 0));
    SELECT * INTO last FROM ledger.meter_version v WHERE v.metric = NEW.metric
    ORDER BY v.version DESC LIMIT 1;
    SELECT * INTO other FROM ledger.meter_version v
    WHERE v.event_name = NEW.event_name
      AND (v.scale <> NEW.scale OR v.aggregation <> NEW.aggregation) LIMIT 1;

    IF other.aggregation <> NEW.aggregation THEN
        RAISE EXCEPTION 'aggregation: event name % is a % already', NEW.event_name,
            other.aggregation USING ERRCODE = 'invalid_parameter_value',
            HINT = 'Use another event_name.';
    ELSIF other.metric IS NOT NULL THEN
        RAISE EXCEPTION 'scale: event name % already counts units of scale %', NEW.event_name,
            other.scale USING ERRCODE = 'invalid_parameter_value',
            HINT = 'Use another event_name for the new scale.';
    END IF;
    IF last.metric IS NULL THEN
        SELECT max(p.occurred_at) INTO judged FROM ledger.parked p
        WHERE p.kind = 'dead' AND p.metric = NEW.metric AND p.occurred_at >= NEW.effective_from
          AND p.meter_event_id IS NULL;
        IF judged IS NOT NULL THEN
            RAISE EXCEPTION 'effective_from: usage of % up to % was dead-lettered as unknown',
                NEW.metric, judged USING ERRCODE = 'invalid_parameter_value',
                HINT = 'Choose a later effective_from; older usage is billed by corrections.';
        END IF;
    ELSIF NEW.effective_from <= last.effective_from THEN
        RAISE EXCEPTION 'effective_from: version % of % starts at %, a next one must start later',
            last.version, NEW.metric, last.effective_from
            USING ERRCODE = 'invalid_parameter_value',
                  HINT = 'A rule that has judged usage is never changed backwards.';
    ELSIF NEW.effective_from < clock_timestamp() + ledger.interval_setting('meter_notice') THEN
        RAISE EXCEPTION 'effective_from: a changed meter needs % of notice',
            ledger.interval_setting('meter_notice') USING ERRCODE = 'invalid_parameter_value',
            HINT = 'Choose a later effective_from.';
    ELSIF ledger.us(NEW.effective_from) % greatest(NEW.window_us, last.window_us) <> 0 THEN
        RAISE EXCEPTION 'effective_from: not on a boundary of the old and the new window of %',
            NEW.metric USING ERRCODE = 'invalid_parameter_value',
            HINT = 'Use a full day, hour or minute in UTC.';
    END IF;
    IF NEW.version IS DISTINCT FROM coalesce(last.version, 0) + 1 THEN
        RAISE EXCEPTION 'version: the next version of % is %', NEW.metric,
            coalesce(last.version, 0) + 1 USING ERRCODE = 'invalid_parameter_value',
            HINT = 'Someone else has changed the meter; read the catalogue again.';
    END IF;
    RETURN NEW;
END
$$;
CREATE TRIGGER guard BEFORE INSERT ON ledger.meter_version
    FOR EACH ROW EXECUTE FUNCTION ledger.guard_meter_version();

-- The steps of claiming and settling. Lanes are always locked before their meter events.

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

-- What people may do, each in one transaction with its trace: map customers, decide, correct.

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

-- What corrections are named by, and the queue they stand in.

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

-- What every tenant, metric and window came to. One row per window; always
-- total + decided = settled + pending + held + dead + ambiguous.

-- Each entry with the state of its amount.
CREATE VIEW ledger.entry_state AS
SELECT e.entry_id, e.kind, e.tenant_id, e.metric, e.window_start, e.window_end, e.delta,
       m.meter_event_id,
       CASE WHEN m.state IN ('recorded', 'nothing') THEN 'settled'
            WHEN m.state = 'ambiguous' OR m.dead_kind = 'ambiguous' THEN 'ambiguous'
            WHEN m.state = 'dead' THEN 'dead'
            WHEN m.state = 'pending' THEN 'pending'
            WHEN u.entry_id IS NOT NULL AND u.lane_id IS NULL THEN 'unmapped'
            WHEN u.deadline_at <= now() THEN 'carry'
            ELSE 'pending' END AS state
FROM ledger.meter_log e
LEFT JOIN ledger.meter_event_entry x ON x.entry_id = e.entry_id AND x.live
LEFT JOIN ledger.meter_event m ON m.meter_event_id = x.meter_event_id
LEFT JOIN ledger.uncovered u ON u.entry_id = e.entry_id;

-- Each level with what its entries do not say yet.
CREATE VIEW ledger.level_rest AS
SELECT l.tenant_id, l.metric, l.window_start, l.window_end, l.count, l.total,
       l.total - coalesce(last.level_total, 0) AS rest,
       CASE WHEN l.held THEN 'series_held'
            WHEN c.customer IS NULL THEN 'unmapped'
            WHEN ledger.billing_deadline(c.anchor, c.billing_interval, c.grace,
                                         l.window_end - interval '1 second') <= now() THEN 'carry'
            ELSE 'pending' END AS state
FROM ledger.level l
LEFT JOIN LATERAL (
    SELECT e.level_total FROM ledger.meter_log e
    WHERE e.kind = 'usage' AND e.tenant_id = l.tenant_id AND e.metric = l.metric
      AND e.window_start = l.window_start AND e.shard = l.shard AND e.log_id = l.log_id
      AND e.catalogue_version = l.catalogue_version
    ORDER BY e.revision DESC LIMIT 1) AS last ON true
LEFT JOIN LATERAL (
    SELECT m.* FROM ledger.customer m
    WHERE m.tenant_id = l.tenant_id AND m.effective_from <= l.window_start
    ORDER BY m.effective_from DESC LIMIT 1) AS c ON true;

CREATE VIEW ledger.balance AS
SELECT tenant_id, metric, window_start, window_end,
       sum(events)::bigint AS events,
       sum(total) AS total,
       sum(decided) AS decided,
       coalesce(sum(amount) FILTER (WHERE state = 'settled'), 0) AS settled,
       coalesce(sum(amount) FILTER (WHERE state = 'pending'), 0) AS pending,
       coalesce(sum(amount) FILTER (WHERE state IN ('unmapped', 'carry', 'series_held')), 0) AS held,
       coalesce(sum(amount) FILTER (WHERE state = 'dead'), 0) AS dead,
       coalesce(sum(amount) FILTER (WHERE state = 'ambiguous'), 0) AS ambiguous
FROM (
    SELECT tenant_id, metric, window_start, window_end, count AS events, total, 0 AS decided,
           rest AS amount, state
    FROM ledger.level_rest
    UNION ALL
    SELECT tenant_id, metric, window_start, window_end, (kind = 'event')::integer,
           CASE WHEN kind = 'event' THEN delta ELSE 0 END,
           CASE WHEN kind IN ('usage', 'event') THEN 0 ELSE delta END, delta, state
    FROM ledger.entry_state
) AS part
GROUP BY tenant_id, metric, window_start, window_end;

-- Grants: the workers add, and change only what is no amount. Functions are for those who need them.

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA ledger FROM PUBLIC;
GRANT SELECT ON ALL TABLES IN SCHEMA ledger TO ledger_reader;

GRANT INSERT ON ledger.log, ledger.position, ledger.source, ledger.meter_version,
    ledger.level, ledger.cell, ledger.canary, ledger.canary_token, ledger.finding,
    ledger.meter_log, ledger.meter_event, ledger.meter_event_entry, ledger.attempt, ledger.parked,
    ledger.audit_log, ledger.sealed_minute
    TO ledger_service;
GRANT UPDATE (position, catalogue_hash, updated_at) ON ledger.position TO ledger_service;
GRANT UPDATE (count, total, digest, held, due_at, updated_at) ON ledger.level TO ledger_service;
GRANT UPDATE (count, digest, updated_at) ON ledger.cell TO ledger_service;
GRANT UPDATE (received_at, token, log_id, record_offset, arrived_at) ON ledger.canary
    TO ledger_service;
GRANT UPDATE (claimed_by, claimed_until, attempt_id, paused, pause_reason, next_due_at)
    ON ledger.lane TO ledger_service;
GRANT DELETE ON ledger.uncovered, ledger.canary_token TO ledger_service;
GRANT UPDATE (state, dead_kind, key_generation, attempts_used, first_attempt_at,
              possibly_executed, next_attempt_at, settled_at, superseded_by)
    ON ledger.meter_event TO ledger_service;
GRANT UPDATE (finished_at, outcome, http_status, code, message, request_id, cause)
    ON ledger.attempt TO ledger_service;
GRANT UPDATE (published_at) ON ledger.parked TO ledger_service;
GRANT UPDATE (system_identifier, timeline, registered_at, registered_by) ON ledger.source
    TO ledger_service;

GRANT EXECUTE ON FUNCTION ledger.us(timestamptz), ledger.at(bigint),
    ledger.interval_setting(text), ledger.period_edges(timestamptz, text, timestamptz),
    ledger.period_end(timestamptz, text, timestamptz),
    ledger.period_start(timestamptz, text, timestamptz),
    ledger.billing_deadline(timestamptz, text, interval, timestamptz)
    TO ledger_reader;
GRANT EXECUTE ON FUNCTION ledger.evidence(text), ledger.unknown_meter(text, integer),
    ledger.mapping_lock_key(),
    ledger.cut_entries_v1(integer), ledger.lock_lanes_v1(integer),
    ledger.merge_pending_v1(bigint[]), ledger.unfreeze(bigint[]), ledger.freeze_v1(json),
    ledger.lend_v1(bigint[], text, bigint), ledger.rest_lanes_v1(bigint[]),
    ledger.settle_v1(json),
    ledger.map_customer_v1(text, text, timestamptz, timestamptz, text, interval, text, text)
    TO ledger_service;
GRANT EXECUTE ON FUNCTION ledger.approve(bigint, text, text, text), ledger.reject(bigint, text),
    ledger.redrive(bigint, text, text), ledger.lift_halt(text, text),
    ledger.clear_finding(bigint, text), ledger.resume_lane(bigint, text), ledger.open_log(text, uuid, text),
    ledger.map_customer_v1(text, text, timestamptz, timestamptz, text, interval, text, text)
    TO ledger_finance;

-- Where a decided amount goes, what a correction would do, and who must agree to it.

INSERT INTO ledger.setting (name, value, meaning) VALUES
    ('correction_limit', '1000',
     'units that one person may correct alone, per tenant, metric and billing period'),
    ('doubt_resend', '22 hours 45 minutes',
     'how long a request in doubt may be redriven under its identifier: short of the workers'' fence');

-- What one person may not do alone: proposed by one login, decided by another.
CREATE TABLE ledger.proposal (
    proposal_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant_id text NOT NULL,
    metric text NOT NULL,
    -- An instant of the window that is corrected.
    instant timestamptz NOT NULL,
    units bigint NOT NULL CHECK (units <> 0 AND abs(units) < 1000000000000000),
    correction_key text NOT NULL,
    target_event_id uuid,
    choice text CHECK (choice IN ('own', 'carry')),
    reason text NOT NULL CHECK (btrim(reason) <> ''),
    proposed_by text NOT NULL DEFAULT session_user,
    proposed_at timestamptz NOT NULL DEFAULT now(),
    state text NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'approved', 'rejected')),
    decided_by text,
    decided_at timestamptz,
    why text,
    entry_id bigint REFERENCES ledger.meter_log,
    UNIQUE (tenant_id, correction_key),
    CHECK ((state = 'open') = (decided_by IS NULL)),
    CHECK ((state = 'approved') = (entry_id IS NOT NULL)),
    -- Four eyes, whatever the code says.
    CHECK (state <> 'approved' OR decided_by <> proposed_by)
);
CREATE INDEX proposal_entry ON ledger.proposal (entry_id) WHERE entry_id IS NOT NULL;
CREATE INDEX proposal_open ON ledger.proposal (proposal_id) WHERE state = 'open';

CREATE FUNCTION ledger.guard_proposal() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    IF OLD.state <> 'open'
       OR (NEW.proposal_id, NEW.tenant_id, NEW.metric, NEW.instant, NEW.units, NEW.correction_key,
           NEW.target_event_id, NEW.choice, NEW.reason, NEW.proposed_by, NEW.proposed_at)
          IS DISTINCT FROM
          (OLD.proposal_id, OLD.tenant_id, OLD.metric, OLD.instant, OLD.units, OLD.correction_key,
           OLD.target_event_id, OLD.choice, OLD.reason, OLD.proposed_by, OLD.proposed_at) THEN
        RAISE EXCEPTION 'ledger.proposal %: a proposal is decided once and never changed',
            OLD.proposal_id USING ERRCODE = 'restrict_violation',
            HINT = 'Propose another correction under a key of its own.';
    END IF;
    RETURN NEW;
END
$$;
CREATE TRIGGER once BEFORE UPDATE ON ledger.proposal
    FOR EACH ROW EXECUTE FUNCTION ledger.guard_proposal();
CREATE TRIGGER no_delete BEFORE DELETE OR TRUNCATE ON ledger.proposal
    FOR EACH STATEMENT EXECUTE FUNCTION ledger.refuse_change();

-- Where a person's amount for a window goes: into that window, or into the open period when the
-- window's own invoice is closed. Which of the two is never guessed: `problem` asks.
CREATE FUNCTION ledger.place_amount(
    tenant text, of_metric text, of_version integer, starts timestamptz, ends timestamptz,
    happened timestamptz, choice text,
    OUT problem text, OUT hint text, OUT version integer, OUT window_start timestamptz,
    OUT window_end timestamptz, OUT occurred_at timestamptz, OUT customer text,
    OUT deadline_at timestamptz, OUT own_deadline_at timestamptz, OUT closed boolean
)
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    own ledger.meter_version;
    present ledger.meter_version;
    payer ledger.customer;
    dated timestamptz;
BEGIN
    SELECT * INTO own FROM ledger.meter_version v
    WHERE v.metric = of_metric AND v.version = of_version;
    SELECT * INTO payer FROM ledger.customer c
    WHERE c.tenant_id = tenant AND c.effective_from <= starts
    ORDER BY c.effective_from DESC LIMIT 1;
    dated := CASE WHEN own.publish = 'event' THEN coalesce(happened, starts)
                  ELSE ends - interval '1 second' END;
    version := of_version;
    window_start := starts;
    window_end := ends;
    occurred_at := happened;
    customer := payer.customer;
    own_deadline_at := ledger.billing_deadline(payer.anchor, payer.billing_interval, payer.grace,
                                               dated);
    deadline_at := own_deadline_at;
    -- A day inside the 35 that Stripe allows, as every other amount keeps.
    closed := coalesce(own_deadline_at <= now(), false) OR dated < now() - interval '34 days';
    IF choice IS NOT NULL AND choice NOT IN ('own', 'carry') THEN
        problem := format('into: %s is neither own nor carry', choice);
    ELSIF closed AND choice IS NULL THEN
        problem := format('into: the window from %s reaches its own invoice no more%s', starts,
                          ' (the deadline was ' || own_deadline_at || ')');
        hint := 'Say which: own (its window, where the meter''s carry decides) or carry (the open period).';
    ELSIF choice = 'carry' AND NOT closed THEN
        problem := format('into: the invoice of the window from %s is still open', starts);
        hint := 'Leave the choice out: the amount belongs into its own window.';
    ELSIF choice = 'carry' THEN
        SELECT * INTO present FROM ledger.meter_version v
        WHERE v.metric = of_metric AND v.effective_from <= now()
        ORDER BY v.effective_from DESC LIMIT 1;
        window_start := ledger.at(ledger.us(now()) / present.window_us * present.window_us);
        window_end := window_start + present.window_us * interval '1 microsecond';
        version := present.version;
        SELECT * INTO payer FROM ledger.customer c
        WHERE c.tenant_id = tenant AND c.effective_from <= window_start
        ORDER BY c.effective_from DESC LIMIT 1;
        IF present.publish = 'event' THEN
            occurred_at := now();
        END IF;
        deadline_at := ledger.billing_deadline(
            payer.anchor, payer.billing_interval, payer.grace,
            coalesce(occurred_at, window_end - interval '1 second'));
        IF (present.scale, present.aggregation) IS DISTINCT FROM (own.scale, own.aggregation) THEN
            problem := format('into: %s counts in another unit now than in the window from %s',
                              of_metric, starts);
            hint := 'Use own, and correct the open period by hand.';
        ELSIF payer.customer IS DISTINCT FROM customer THEN
            problem := format('into: %s was billed to %s then and is to %s now', tenant,
                              coalesce(customer, 'nobody'), coalesce(payer.customer, 'nobody'));
            hint := 'Use own, and settle it with the former customer outside the open invoice.';
        END IF;
    END IF;
END
$$;

-- What one person may correct alone, in units: the metric's own setting, else the ledger's.
CREATE FUNCTION ledger.correction_limit(of_metric text) RETURNS bigint
LANGUAGE sql STABLE
AS $$
    SELECT value::bigint FROM ledger.setting
    WHERE name IN ('correction_limit', 'correction_limit.' || of_metric)
    ORDER BY length(name) DESC LIMIT 1
$$;

-- A billing period in which a person's amount falls: what it comes to, and what single persons
-- added to it by corrections. Many small ones are one large one.
CREATE FUNCTION ledger.period_standing(
    tenant text, of_metric text, in_window timestamptz,
    OUT period_from timestamptz, OUT period_to timestamptz, OUT units numeric,
    OUT alone_units numeric
)
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    c ledger.customer;
BEGIN
    SELECT * INTO c FROM ledger.customer x
    WHERE x.tenant_id = tenant AND x.effective_from <= in_window
    ORDER BY x.effective_from DESC LIMIT 1;
    period_from := ledger.period_start(coalesce(c.anchor, ledger.at(0)),
                                       coalesce(c.billing_interval, 'month'), in_window);
    period_to := ledger.period_end(coalesce(c.anchor, ledger.at(0)),
                                   coalesce(c.billing_interval, 'month'), in_window);
    SELECT coalesce(sum(b.total + b.decided), 0) INTO units FROM ledger.balance b
    WHERE b.tenant_id = tenant AND b.metric = of_metric
      AND b.window_start >= period_standing.period_from
      AND b.window_start < period_standing.period_to;
    SELECT coalesce(sum(e.delta), 0) INTO alone_units FROM ledger.meter_log e
    WHERE e.kind = 'correction' AND e.tenant_id = tenant AND e.metric = of_metric
      AND e.window_start >= period_standing.period_from
      AND e.window_start < period_standing.period_to
      AND CASE WHEN e.log_id IS NULL
          THEN NOT EXISTS (SELECT FROM ledger.proposal p WHERE p.entry_id = e.entry_id)
          -- A service's own, let through by one person.
          ELSE EXISTS (SELECT FROM ledger.decision d
                       WHERE d.entry_id = e.entry_id AND d.action = 'approve'
                         AND NOT d.detail ? 'agreed_by') END;
END
$$;

-- Whether an amount is more than one person decides alone, beside what single persons did before.
CREATE FUNCTION ledger.needs_four_eyes(of_metric text, units numeric, alone_units numeric)
RETURNS boolean
LANGUAGE sql STABLE
AS $$
    SELECT greatest(abs(units), abs(units + alone_units)) > ledger.correction_limit(of_metric)
$$;

-- For the ledger's owner alone: whoever corrects does not choose from where on others must agree.
CREATE FUNCTION ledger.set_correction_limit(units bigint, of_metric text, reason text)
RETURNS boolean
LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    wanted text := 'correction_limit' || coalesce('.' || of_metric, '');
BEGIN
    IF units IS NULL OR units < 0 OR btrim(coalesce(reason, '')) = '' THEN
        RAISE EXCEPTION 'units, reason: a limit is 0 or more and needs a reason'
            USING ERRCODE = 'invalid_parameter_value';
    ELSIF of_metric IS NOT NULL AND NOT EXISTS (
            SELECT FROM ledger.meter_version v WHERE v.metric = of_metric) THEN
        RAISE EXCEPTION 'metric: % is in no version of the catalogue', of_metric
            USING ERRCODE = 'invalid_parameter_value';
    ELSIF EXISTS (SELECT FROM ledger.setting s WHERE s.name = wanted AND s.value = units::text) THEN
        RETURN false;
    END IF;
    INSERT INTO ledger.setting AS s (name, value, meaning)
    VALUES (wanted, units::text, format('units of %s that one person may correct alone, per tenant'
                                        ' and billing period', coalesce(of_metric, 'any metric')))
    ON CONFLICT (name) DO UPDATE
        SET value = excluded.value, changed_at = now(), changed_by = session_user;
    INSERT INTO ledger.audit_log (action, subject, detail)
    VALUES ('set_correction_limit', wanted, jsonb_build_object('units', units, 'why', reason));
    RETURN true;
END
$$;

-- What a correction would do; the very function that the act itself asks. Amounts in units.
-- `entry_id` and `proposal_id` are there when the key stands for this correction already, and
-- `problem` then is what a second one would meet.
CREATE FUNCTION ledger.plan_correction(
    tenant text, of_metric text, of_instant timestamptz, units bigint, correction_key text,
    choice text,
    OUT problem text, OUT hint text, OUT version integer, OUT scale integer, OUT event_name text,
    OUT customer text, OUT meant_start timestamptz, OUT window_start timestamptz,
    OUT window_end timestamptz, OUT occurred_at timestamptz, OUT deadline_at timestamptz,
    OUT own_deadline_at timestamptz, OUT closed boolean, OUT window_before numeric,
    OUT period_from timestamptz, OUT period_to timestamptz, OUT period_before numeric,
    OUT waiting_before numeric, OUT limit_units bigint, OUT alone_before numeric,
    OUT four_eyes boolean, OUT event_id uuid, OUT entry_id bigint, OUT proposal_id bigint
)
LANGUAGE plpgsql STABLE
AS $$
#variable_conflict use_column
DECLARE
    v ledger.meter_version;
    place record;
    standing record;
    known record;
BEGIN
    SELECT * INTO v FROM ledger.meter_version x
    WHERE x.metric = of_metric AND x.effective_from <= of_instant
    ORDER BY x.effective_from DESC LIMIT 1;
    IF v.metric IS NULL OR v.aggregation <> 'sum' THEN
        problem := format('metric: %s has no meter at %s that takes signed amounts', of_metric,
                          of_instant);
        RETURN;
    ELSIF units IS NULL OR units = 0 OR abs(units) >= 1000000000000000 THEN
        problem := 'delta: must have 1 to 15 digits and not be 0';
        RETURN;
    ELSIF of_instant > now() THEN
        problem := format('instant: %s lies in the future', of_instant);
        RETURN;
    ELSIF starts_with(correction_key, 'reversal of ') AND NOT EXISTS (
            SELECT FROM ledger.meter_log e
            WHERE e.kind = 'correction' AND e.tenant_id = tenant AND e.metric = of_metric
              AND e.reference = substr(correction_key, 13) AND e.delta = -units) THEN
        -- Else somebody's own key could make another correction irreversible.
        problem := 'key: one that begins with "reversal of" belongs to `tailrace correct reverse`';
        hint := 'Give this correction a key of its own.';
        RETURN;
    END IF;
    version := v.version;
    scale := v.scale;
    event_name := v.event_name;
    meant_start := ledger.at(ledger.us(of_instant) / v.window_us * v.window_us);
    event_id := encode(substring(sha256(ledger.lp('correction') || ledger.lp('ledger')
        || ledger.lp(tenant) || ledger.lp(correction_key)) FROM 1 FOR 16), 'hex')::uuid;

    SELECT e.entry_id, NULL::bigint AS proposal_id, e.metric, e.delta AS units,
           (d.detail ->> 'window_start_us')::bigint AS meant_us INTO known
    FROM ledger.meter_log e JOIN ledger.decision d USING (entry_id)
    WHERE e.kind = 'correction' AND e.event_id = plan_correction.event_id
      AND d.action = 'correct';
    IF known.entry_id IS NULL THEN
        SELECT NULL::bigint AS entry_id, p.proposal_id, p.metric, p.units,
               ledger.us(p.instant) / v.window_us * v.window_us AS meant_us INTO known
        FROM ledger.proposal p
        WHERE p.tenant_id = tenant AND p.correction_key = plan_correction.correction_key;
    END IF;
    IF known.metric IS NOT NULL
       AND (known.metric, known.units, known.meant_us)
           IS DISTINCT FROM (of_metric, units, ledger.us(meant_start)) THEN
        problem := format('key: %s stands for another correction already: %s of %s in the window'
                          ' from %s', correction_key, known.units, known.metric,
                          ledger.at(known.meant_us));
        hint := 'Give this correction a key of its own.';
        RETURN;
    END IF;
    entry_id := known.entry_id;
    proposal_id := known.proposal_id;

    SELECT * INTO place FROM ledger.place_amount(
        tenant, of_metric, v.version, meant_start,
        meant_start + v.window_us * interval '1 microsecond', of_instant, choice);
    version := place.version;
    customer := place.customer;
    window_start := place.window_start;
    window_end := place.window_end;
    occurred_at := place.occurred_at;
    deadline_at := place.deadline_at;
    own_deadline_at := place.own_deadline_at;
    closed := place.closed;
    SELECT * INTO standing FROM ledger.period_standing(tenant, of_metric, place.window_start);
    period_from := standing.period_from;
    period_to := standing.period_to;
    period_before := standing.units;
    alone_before := standing.alone_units;
    limit_units := ledger.correction_limit(of_metric);
    SELECT coalesce(sum(b.total + b.decided), 0), coalesce(sum(b.pending + b.held), 0)
    INTO window_before, waiting_before
    FROM ledger.balance b
    WHERE b.tenant_id = tenant AND b.metric = of_metric AND b.window_start = place.window_start;
    four_eyes := ledger.needs_four_eyes(of_metric, units, alone_before);
    IF place.problem IS NOT NULL THEN
        problem := place.problem;
        hint := place.hint;
    ELSIF units < 0 AND period_before + units < 0 THEN
        problem := format('delta: %s would make the period from %s negative', units, period_from);
        hint := format('At most -%s is possible.', greatest(period_before, 0));
    END IF;
END
$$;

-- The entry of a correction and its decision, in one transaction; a repetition gives the first one.
CREATE FUNCTION ledger.book_correction(
    tenant text, of_metric text, of_instant timestamptz, units bigint, correction_key text,
    why text, target uuid, choice text, proposed ledger.proposal
) RETURNS bigint
LANGUAGE plpgsql
AS $$
DECLARE
    plan record;
    made bigint;
BEGIN
    PERFORM ledger.check_correction(tenant, correction_key, why);
    SELECT * INTO plan
    FROM ledger.plan_correction(tenant, of_metric, of_instant, units, correction_key, choice);
    IF plan.entry_id IS NOT NULL THEN
        RETURN plan.entry_id;
    ELSIF plan.problem IS NOT NULL THEN
        RAISE EXCEPTION '%', plan.problem
            USING ERRCODE = 'invalid_parameter_value', HINT = coalesce(plan.hint, '');
    ELSIF plan.proposal_id IS DISTINCT FROM proposed.proposal_id THEN
        RAISE EXCEPTION 'key: % stands for proposal %', correction_key, plan.proposal_id
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = 'See `tailrace correct list --all`.';
    ELSIF plan.four_eyes AND proposed.proposal_id IS NULL THEN
        RAISE EXCEPTION 'delta: % is more than the % units that one person corrects alone', units,
            plan.limit_units USING ERRCODE = 'object_not_in_prerequisite_state',
            HINT = 'Propose it; another login approves.';
    END IF;
    INSERT INTO ledger.meter_log (kind, tenant_id, metric, catalogue_version, window_start,
        window_end, delta, event_id, occurred_at, target_event_id, reference, actor, reason)
    VALUES ('correction', tenant, of_metric, plan.version, plan.window_start, plan.window_end,
        units, plan.event_id, plan.occurred_at, target, correction_key, session_user, why)
    RETURNING entry_id INTO made;
    INSERT INTO ledger.decision (action, entry_id, reason, detail)
    VALUES ('correct', made, why, jsonb_strip_nulls(jsonb_build_object(
        'key', correction_key, 'units', units, 'window_start_us', ledger.us(plan.meant_start),
        'into', choice, 'proposal', proposed.proposal_id,
        'proposed_by', proposed.proposed_by)));
    RETURN made;
END
$$;

-- What every correction needs, and its place in the queue of its tenant.
CREATE FUNCTION ledger.check_correction(tenant text, correction_key text, why text) RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    IF btrim(coalesce(why, '')) = '' OR btrim(coalesce(correction_key, '')) = ''
       OR octet_length(correction_key) > 200 OR correction_key ~ '[[:cntrl:]]' THEN
        RAISE EXCEPTION 'reason, key: a correction needs a reason and a key of its own'
            USING ERRCODE = 'invalid_parameter_value',
                  HINT = 'A key has at most 200 bytes and no control characters.';
    END IF;
    PERFORM pg_advisory_xact_lock(ledger.correction_lock_key(tenant));
END
$$;

-- Finance corrects: a signed entry of its own, never below zero for the period.
CREATE FUNCTION ledger.correct(
    tenant text, of_metric text, of_instant timestamptz, units bigint, correction_key text,
    why text, target uuid DEFAULT NULL, choice text DEFAULT NULL
) RETURNS bigint
LANGUAGE sql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT ledger.book_correction(tenant, of_metric, of_instant, units, correction_key, why, target,
                                  choice, NULL)
$$;

-- Ask another login for a correction; a repetition gives the first proposal.
CREATE FUNCTION ledger.propose_correction(
    tenant text, of_metric text, of_instant timestamptz, units bigint, correction_key text,
    why text, target uuid DEFAULT NULL, choice text DEFAULT NULL
) RETURNS bigint
LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    plan record;
    made bigint;
BEGIN
    PERFORM ledger.check_correction(tenant, correction_key, why);
    SELECT * INTO plan
    FROM ledger.plan_correction(tenant, of_metric, of_instant, units, correction_key, choice);
    IF plan.proposal_id IS NOT NULL THEN
        RETURN plan.proposal_id;
    ELSIF plan.entry_id IS NOT NULL THEN
        RAISE EXCEPTION 'key: % stands for entry % already', correction_key, plan.entry_id
            USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'It needs no proposal.';
    ELSIF plan.problem IS NOT NULL THEN
        RAISE EXCEPTION '%', plan.problem
            USING ERRCODE = 'invalid_parameter_value', HINT = coalesce(plan.hint, '');
    END IF;
    INSERT INTO ledger.proposal (tenant_id, metric, instant, units, correction_key,
                                 target_event_id, choice, reason)
    VALUES (tenant, of_metric, of_instant, units, correction_key, target, choice, why)
    RETURNING proposal_id INTO made;
    INSERT INTO ledger.audit_log (action, subject, detail)
    VALUES ('propose_correction', made::text,
            jsonb_build_object('key', correction_key, 'units', units, 'why', why));
    RETURN made;
END
$$;

CREATE FUNCTION ledger.lock_open_proposal(wanted bigint, why text) RETURNS ledger.proposal
LANGUAGE plpgsql
AS $$
DECLARE
    p ledger.proposal;
BEGIN
    IF btrim(coalesce(why, '')) = '' THEN
        RAISE EXCEPTION 'reason: say why' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    SELECT * INTO p FROM ledger.proposal q WHERE q.proposal_id = wanted FOR UPDATE;
    IF p.proposal_id IS NULL THEN
        RAISE EXCEPTION 'proposal: % does not exist', wanted
            USING ERRCODE = 'invalid_parameter_value', HINT = 'See `tailrace correct list`.';
    ELSIF p.state <> 'open' THEN
        RAISE EXCEPTION 'proposal: % is % already, by %', wanted, p.state, p.decided_by
            USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    RETURN p;
END
$$;

-- The second pair of eyes. What has changed since the proposal is looked at afresh; `choice` is asked
-- where the window's invoice has closed since.
CREATE FUNCTION ledger.approve_proposal(wanted bigint, why text, choice text DEFAULT NULL)
RETURNS bigint
LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    p ledger.proposal := ledger.lock_open_proposal(wanted, why);
    made bigint;
BEGIN
    IF p.proposed_by = session_user THEN
        RAISE EXCEPTION 'proposal: % is your own, %', wanted, session_user
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = 'Another login of finance approves it; yours can only reject it.';
    ELSIF choice <> p.choice THEN
        RAISE EXCEPTION 'into: % was proposed, by %', p.choice, p.proposed_by
            USING ERRCODE = 'invalid_parameter_value',
                  HINT = 'Leave --into out, or reject the proposal and propose another one.';
    END IF;
    made := ledger.book_correction(p.tenant_id, p.metric, p.instant, p.units, p.correction_key,
                                   p.reason, p.target_event_id, coalesce(p.choice, choice), p);
    UPDATE ledger.proposal q SET state = 'approved', decided_by = session_user, decided_at = now(),
        why = approve_proposal.why, entry_id = made WHERE q.proposal_id = wanted;
    RETURN made;
END
$$;

CREATE FUNCTION ledger.reject_proposal(wanted bigint, why text) RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    p ledger.proposal := ledger.lock_open_proposal(wanted, why);
BEGIN
    UPDATE ledger.proposal q SET state = 'rejected', decided_by = session_user, decided_at = now(),
        why = reject_proposal.why WHERE q.proposal_id = p.proposal_id;
    INSERT INTO ledger.audit_log (action, subject, detail)
    VALUES ('reject_proposal', wanted::text, jsonb_build_object('why', why));
END
$$;

-- Whether a dead meter event would be another request now: another payer, or another meter's name.
CREATE FUNCTION ledger.request_changed(m ledger.meter_event) RETURNS boolean
LANGUAGE sql STABLE
AS $$
    SELECT EXISTS (
        SELECT FROM ledger.meter_event_entry x JOIN ledger.meter_log e USING (entry_id)
        JOIN ledger.meter_version v ON v.metric = e.metric AND v.version = e.catalogue_version
        LEFT JOIN LATERAL (SELECT c.customer FROM ledger.customer c
                           WHERE c.tenant_id = e.tenant_id
                             AND c.effective_from <= e.window_start
                           ORDER BY c.effective_from DESC LIMIT 1) AS payer ON true
        WHERE x.meter_event_id = m.meter_event_id AND x.live
          AND (payer.customer, v.event_name) IS DISTINCT FROM (m.customer, m.event_name))
$$;

-- How a dead meter event would be sent again: `resend` the same request, also in doubt while Stripe
-- still knows its identifier; `supersede` it, because its entries would be another request now,
-- Stripe took it back, or the doubt about it was proven away; `doubtful` needs that proof; `too_old`
-- for Stripe under any identifier.
CREATE FUNCTION ledger.redrive_course(m ledger.meter_event, proof text) RETURNS text
LANGUAGE sql STABLE
AS $$
    SELECT CASE
        WHEN ledger.in_doubt(m) THEN CASE
            -- Whatever a person believes of it: the same identifier cannot count twice. One that
            -- Stripe took back is spent; of a ledger that went back another identifier may have
            -- counted the amount; and where Stripe answered of something else, the next duplicate
            -- would look like our own.
            WHEN m.rejected_at IS NULL AND NOT ledger.awaits_sums(m)
                 AND NOT EXISTS (SELECT FROM ledger.attempt a
                                 WHERE a.meter_event_id = m.meter_event_id
                                   AND a.outcome = 'Collision')
                 AND now() < m.first_attempt_at + ledger.interval_setting('doubt_resend')
                 AND NOT coalesce(m.deadline_at <= now(), false)
                 AND NOT ledger.request_changed(m) THEN 'resend'
            WHEN btrim(coalesce(proof, '')) = '' THEN 'doubtful'
            WHEN m.deadline_at <= now() THEN 'supersede'
            WHEN m.timestamp_s < extract(epoch FROM now() - interval '34 days') THEN 'too_old'
            ELSE 'supersede' END
        WHEN m.deadline_at <= now() THEN 'supersede'
        WHEN m.timestamp_s < extract(epoch FROM now() - interval '34 days') THEN 'too_old'
        WHEN m.rejected_at IS NOT NULL OR ledger.request_changed(m) THEN 'supersede'
        ELSE 'resend' END
$$;

GRANT SELECT ON ledger.proposal TO ledger_reader;
REVOKE ALL ON FUNCTION ledger.guard_proposal(),
    ledger.place_amount(text, text, integer, timestamptz, timestamptz, timestamptz, text),
    ledger.correction_limit(text), ledger.set_correction_limit(bigint, text, text),
    ledger.period_standing(text, text, timestamptz), ledger.needs_four_eyes(text, numeric, numeric),
    ledger.plan_correction(text, text, timestamptz, bigint, text, text),
    ledger.book_correction(text, text, timestamptz, bigint, text, text, uuid, text, ledger.proposal),
    ledger.check_correction(text, text, text),
    ledger.correct(text, text, timestamptz, bigint, text, text, uuid, text),
    ledger.propose_correction(text, text, timestamptz, bigint, text, text, uuid, text),
    ledger.lock_open_proposal(bigint, text), ledger.approve_proposal(bigint, text, text),
    ledger.reject_proposal(bigint, text), ledger.request_changed(ledger.meter_event),
    ledger.redrive_course(ledger.meter_event, text), ledger.in_doubt(ledger.meter_event),
    ledger.awaits_sums(ledger.meter_event)
    FROM PUBLIC;
GRANT EXECUTE ON FUNCTION
    ledger.place_amount(text, text, integer, timestamptz, timestamptz, timestamptz, text),
    ledger.correction_limit(text), ledger.lp(text),
    ledger.period_standing(text, text, timestamptz), ledger.needs_four_eyes(text, numeric, numeric),
    ledger.plan_correction(text, text, timestamptz, bigint, text, text),
    ledger.request_changed(ledger.meter_event), ledger.redrive_course(ledger.meter_event, text),
    ledger.in_doubt(ledger.meter_event), ledger.awaits_sums(ledger.meter_event)
    TO ledger_reader;
GRANT EXECUTE ON FUNCTION
    ledger.correct(text, text, timestamptz, bigint, text, text, uuid, text),
    ledger.propose_correction(text, text, timestamptz, bigint, text, text, uuid, text),
    ledger.approve_proposal(bigint, text, text), ledger.reject_proposal(bigint, text)
    TO ledger_finance;

-- What Stripe accepted and took back later: error reports, the requests they name, and the cells in
-- which they name too few.

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

-- Stripe's sums as evidence: what was read, what was settled by it, and ledgers that went back.

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

-- What operators order: publishing pauses, and single records that are skipped. And settling by
-- the batch, which a backlog needs.

-- While a row is not resumed, no lane it concerns is lent. Amounts wait and stay visible.
CREATE TABLE ledger.pause (
    pause_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    scope text NOT NULL CHECK (scope IN ('all', 'meter', 'tenant')),
    -- The meter's or the tenant's name; empty for all.
    subject text NOT NULL CHECK ((scope = 'all') = (subject = '')),
    reason text NOT NULL CHECK (btrim(reason) <> ''),
    paused_by text NOT NULL,
    paused_at timestamptz NOT NULL DEFAULT now(),
    -- Its row in audit_log: the receipt.
    paused_receipt bigint NOT NULL REFERENCES ledger.audit_log,
    resumed_by text,
    resumed_at timestamptz,
    resumed_why text,
    resumed_receipt bigint REFERENCES ledger.audit_log,
    CHECK ((resumed_at IS NULL) = (resumed_by IS NULL)
           AND (resumed_at IS NULL) = (resumed_receipt IS NULL))
);
CREATE UNIQUE INDEX pause_active ON ledger.pause (scope, subject) WHERE resumed_at IS NULL;
CREATE TRIGGER no_delete BEFORE DELETE OR TRUNCATE ON ledger.pause
    FOR EACH STATEMENT EXECUTE FUNCTION ledger.refuse_change();

-- Whether a pause concerns a lane. A tenant is paused through the customers it was ever mapped to,
-- a meter through the event names it ever had: what shares a lane with them waits too.
CREATE FUNCTION ledger.pause_concerns(scope text, subject text, customer text, event_name text)
RETURNS boolean
LANGUAGE sql STABLE
AS $$
    SELECT CASE scope
        WHEN 'all' THEN true
        WHEN 'meter' THEN EXISTS (SELECT FROM ledger.meter_version v
                                  WHERE v.metric = subject
                                    AND v.event_name = pause_concerns.event_name)
        ELSE EXISTS (SELECT FROM ledger.customer c
                     WHERE c.tenant_id = subject AND c.customer = pause_concerns.customer) END
$$;

-- The same of an amount that has no lane yet, because its tenant has no customer.
CREATE FUNCTION ledger.pause_awaits(scope text, subject text, tenant_id text, metric text)
RETURNS boolean
LANGUAGE sql STABLE
AS $$
    SELECT CASE scope
        WHEN 'all' THEN true
        WHEN 'meter' THEN EXISTS (SELECT FROM ledger.meter_version v JOIN ledger.meter_version w
                                      ON w.event_name = v.event_name
                                  WHERE v.metric = pause_awaits.metric AND w.metric = subject)
        ELSE tenant_id = subject END
$$;

CREATE FUNCTION ledger.is_paused(customer text, event_name text) RETURNS boolean
LANGUAGE sql STABLE
AS $$
    SELECT EXISTS (SELECT FROM ledger.pause p
                   WHERE p.resumed_at IS NULL
                     AND ledger.pause_concerns(p.scope, p.subject, is_paused.customer,
                                               is_paused.event_name))
$$;

-- Pause publishing. Claims hold the same lock shared, so none is lent after this has committed;
-- what was lent before finishes. Done twice it says so and changes nothing.
CREATE FUNCTION ledger.pause_v1(wanted_scope text, wanted_subject text, why text, who text)
RETURNS TABLE (changed boolean, receipt bigint, by_whom text, since timestamptz, because text)
LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    actor text := coalesce(who, session_user);
BEGIN
    IF btrim(coalesce(why, '')) = '' THEN
        RAISE EXCEPTION 'reason: say why publishing is paused'
            USING ERRCODE = 'invalid_parameter_value';
    ELSIF wanted_scope = 'meter' AND NOT EXISTS (SELECT FROM ledger.meter_version v
                                                 WHERE v.metric = wanted_subject) THEN
        RAISE EXCEPTION 'meter: there is no meter %', wanted_subject
            USING ERRCODE = 'invalid_parameter_value',
                  HINT = 'Give the name it has in meters.toml.';
    END IF;
    PERFORM pg_advisory_xact_lock(ledger.mapping_lock_key());
    changed := NOT EXISTS (SELECT FROM ledger.pause p WHERE p.scope = wanted_scope
                           AND p.subject = wanted_subject AND p.resumed_at IS NULL);
    IF changed THEN
        INSERT INTO ledger.audit_log (action, subject, actor, detail)
        VALUES ('pause', rtrim(wanted_scope || ' ' || wanted_subject), actor,
                jsonb_build_object('why', why))
        RETURNING audit_id INTO receipt;
        INSERT INTO ledger.pause (scope, subject, reason, paused_by, paused_receipt)
        VALUES (wanted_scope, wanted_subject, why, actor, receipt);
    END IF;
    RETURN QUERY
        SELECT pause_v1.changed, p.paused_receipt, p.paused_by, p.paused_at, p.reason
        FROM ledger.pause p WHERE p.scope = wanted_scope AND p.subject = wanted_subject
          AND p.resumed_at IS NULL;
END
$$;

-- Publish again. Without a pause it says who ended the last one; no row: there never was one.
CREATE FUNCTION ledger.resume_v1(wanted_scope text, wanted_subject text, why text, who text)
RETURNS TABLE (changed boolean, receipt bigint, by_whom text, since timestamptz, because text)
LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    actor text := coalesce(who, session_user);
BEGIN
    IF btrim(coalesce(why, '')) = '' THEN
        RAISE EXCEPTION 'reason: say why publishing goes on'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    PERFORM pg_advisory_xact_lock(ledger.mapping_lock_key());
    changed := EXISTS (SELECT FROM ledger.pause p WHERE p.scope = wanted_scope
                       AND p.subject = wanted_subject AND p.resumed_at IS NULL);
    IF changed THEN
        INSERT INTO ledger.audit_log (action, subject, actor, detail)
        VALUES ('resume', rtrim(wanted_scope || ' ' || wanted_subject), actor,
                jsonb_build_object('why', why))
        RETURNING audit_id INTO receipt;
        UPDATE ledger.pause p SET resumed_at = now(), resumed_by = actor, resumed_why = why,
            resumed_receipt = resume_v1.receipt
        WHERE p.scope = wanted_scope AND p.subject = wanted_subject AND p.resumed_at IS NULL;
    END IF;
    RETURN QUERY
        SELECT resume_v1.changed, p.resumed_receipt, p.resumed_by, p.resumed_at, p.resumed_why
        FROM ledger.pause p WHERE p.scope = wanted_scope AND p.subject = wanted_subject
        ORDER BY p.pause_id DESC LIMIT 1;
END
$$;

-- Write what many attempts came to, in one transaction and with lanes locked in the one order. The
-- common case is written as a set: recorded, the first word on its attempt, and still waiting for
-- it. Everything else goes the one way of `settle_v1`.
CREATE FUNCTION ledger.settle_many_v1(settlements json) RETURNS integer
LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    s json;
    lanes bigint[];
    written bigint[];
BEGIN
    SELECT array_agg(t.lane_id) INTO lanes
    FROM json_to_recordset(settlements) AS t(lane_id bigint);
    PERFORM FROM ledger.lane l WHERE l.lane_id = ANY (lanes) ORDER BY l.lane_id FOR NO KEY UPDATE;

    WITH recorded AS (
        SELECT t.* FROM json_to_recordset(settlements) AS t(attempt_id bigint,
            meter_event_id bigint, lane_id bigint, state text, key_generation integer,
            possibly_executed boolean, outcome text, http_status integer, code text, message text,
            request_id text, cause text)
        JOIN ledger.meter_event m USING (meter_event_id)
        WHERE t.state = 'recorded' AND m.state IN ('pending', 'ambiguous')
          AND m.rejected_at IS NULL
    ), finished AS (
        UPDATE ledger.attempt a
        SET finished_at = now(), outcome = r.outcome, http_status = r.http_status, code = r.code,
            message = r.message, request_id = r.request_id, cause = r.cause
        FROM recorded r
        WHERE a.attempt_id = r.attempt_id AND a.meter_event_id = r.meter_event_id
          AND a.finished_at IS NULL
        RETURNING a.attempt_id
    ), settled AS (
        UPDATE ledger.meter_event m
        SET state = 'recorded', settled_at = now(), next_attempt_at = NULL,
            possibly_executed = m.possibly_executed OR r.possibly_executed,
            key_generation = greatest(m.key_generation, r.key_generation)
        FROM recorded r JOIN finished f USING (attempt_id)
        WHERE m.meter_event_id = r.meter_event_id
    )
    SELECT array_agg(attempt_id) INTO written FROM finished;

    FOR s IN
        SELECT t.one FROM json_array_elements(settlements) WITH ORDINALITY AS t(one, place)
        WHERE NOT coalesce((t.one ->> 'attempt_id')::bigint = ANY (written), false)
        ORDER BY (t.one ->> 'lane_id')::bigint, t.place
    LOOP
        PERFORM ledger.settle_v1(s);
    END LOOP;

    -- One write a lane: given back, and when it has something to do again. Found by the lane, for
    -- which there is an index, and not among all lanes that there are.
    UPDATE ledger.lane l
    SET claimed_by = NULL, claimed_until = NULL, attempt_id = NULL,
        next_due_at = ledger.lane_due(l.lane_id)
    WHERE l.lane_id = ANY (lanes) AND l.attempt_id = ANY (written);
    RETURN json_array_length(settlements);
END
$$;

-- Records that hold their partition, as the workers report them again and again while they do.
CREATE TABLE ledger.held_record (
    log_id uuid NOT NULL,
    partition integer NOT NULL,
    record_offset bigint NOT NULL,
    -- SHA-256 over key and value: what a decision on this record is bound to.
    fingerprint text NOT NULL CHECK (fingerprint ~ '^[0-9a-f]{64}$'),
    reason text NOT NULL,
    record_bytes bigint NOT NULL,
    worker text NOT NULL,
    held_at timestamptz NOT NULL DEFAULT now(),
    seen_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (log_id, partition, record_offset)
);

-- Decisions to dead-letter exactly one record instead of waiting for code that can read it. They
-- stand for ever: whatever reads the log again, with newer code too, decides the same.
CREATE TABLE ledger.skip (
    log_id uuid NOT NULL,
    partition integer NOT NULL,
    record_offset bigint NOT NULL,
    fingerprint text NOT NULL,
    reason text NOT NULL CHECK (btrim(reason) <> ''),
    actor text NOT NULL,
    decided_at timestamptz NOT NULL DEFAULT now(),
    receipt bigint NOT NULL REFERENCES ledger.audit_log,
    PRIMARY KEY (log_id, partition, record_offset)
);
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON ledger.skip
    FOR EACH STATEMENT EXECUTE FUNCTION ledger.refuse_change();

-- Skip the record that a partition is held at. Only what a worker reports as held can be skipped,
-- so a typing error in the offset never takes a healthy record. Done twice it says so.
CREATE FUNCTION ledger.skip_record_v1(held_partition integer, held_offset bigint, why text, who text)
RETURNS TABLE (changed boolean, receipt bigint, by_whom text, since timestamptz, because text)
LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    h ledger.held_record;
    passed bigint;
    written bigint;
BEGIN
    IF btrim(coalesce(why, '')) = '' THEN
        RAISE EXCEPTION 'reason: say why this record is not waited for'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    -- Of several logs the one that a worker reported last.
    SELECT * INTO h FROM ledger.held_record r
    WHERE r.partition = held_partition AND r.record_offset = held_offset
    ORDER BY r.seen_at DESC LIMIT 1;
    IF h.log_id IS NULL THEN
        RAISE EXCEPTION 'offset: no worker is held at offset % of partition %', held_offset,
            held_partition USING ERRCODE = 'invalid_parameter_value',
            HINT = coalesce(
                (SELECT format('It is held at offset %s: `tailrace held skip %s %s`.',
                               r.record_offset, r.partition, r.record_offset)
                 FROM ledger.held_record r
                 LEFT JOIN ledger.position p
                     ON p.log_id = r.log_id AND p.partition = r.partition
                 WHERE r.partition = held_partition
                   AND (p.position IS NULL OR p.position < r.record_offset)
                   AND NOT EXISTS (SELECT FROM ledger.skip s WHERE s.log_id = r.log_id
                                   AND s.partition = r.partition
                                   AND s.record_offset = r.record_offset)
                 ORDER BY r.seen_at DESC LIMIT 1),
                'See what is held with `tailrace held list`.');
    END IF;
    -- Whoever tells facts of this partition takes the same row first.
    SELECT p.position INTO passed FROM ledger.position p
    WHERE p.log_id = h.log_id AND p.partition = h.partition FOR UPDATE;
    changed := NOT EXISTS (SELECT FROM ledger.skip s WHERE s.log_id = h.log_id
                           AND s.partition = h.partition AND s.record_offset = h.record_offset);
    IF changed AND passed >= h.record_offset THEN
        RAISE EXCEPTION 'offset: partition % has gone on beyond %', held_partition, held_offset
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = 'The record was read after all: look at it with `tailrace trace`.';
    END IF;
    IF changed THEN
        INSERT INTO ledger.audit_log (action, subject, actor, detail)
        VALUES ('skip_record', format('%s[%s]@%s', h.log_id, h.partition, h.record_offset),
                coalesce(who, session_user),
                jsonb_build_object('why', why, 'held_because', h.reason,
                                   'fingerprint', h.fingerprint))
        RETURNING audit_id INTO written;
        INSERT INTO ledger.skip (log_id, partition, record_offset, fingerprint, reason, actor,
                                 receipt)
        VALUES (h.log_id, h.partition, h.record_offset, h.fingerprint, why,
                coalesce(who, session_user), written);
    END IF;
    RETURN QUERY
        SELECT skip_record_v1.changed, s.receipt, s.actor, s.decided_at, s.reason
        FROM ledger.skip s WHERE s.log_id = h.log_id AND s.partition = h.partition
          AND s.record_offset = h.record_offset;
END
$$;

-- A skip comes again with the dead letter that it made: a ledger that was restored from before the
-- decision is told both, so that audits, replays and names of skipped records find it as it was.
CREATE FUNCTION ledger.keep_told_skip() RETURNS trigger
LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    told jsonb := NEW.detail -> 'skip';
    written bigint;
BEGIN
    IF EXISTS (SELECT FROM ledger.skip s WHERE s.log_id = NEW.log_id
               AND s.partition = NEW.partition AND s.record_offset = NEW.record_offset) THEN
        RETURN NEW;
    END IF;
    INSERT INTO ledger.held_record (log_id, partition, record_offset, fingerprint, reason,
                                    record_bytes, worker)
    VALUES (NEW.log_id, NEW.partition, NEW.record_offset, told ->> 'fingerprint',
            'it was held before this ledger was restored', (told ->> 'record_bytes')::bigint,
            session_user)
    ON CONFLICT DO NOTHING;
    INSERT INTO ledger.audit_log (action, subject, actor, detail)
    VALUES ('skip_told_again', format('%s[%s]@%s', NEW.log_id, NEW.partition, NEW.record_offset),
            session_user, told)
    RETURNING audit_id INTO written;
    INSERT INTO ledger.skip (log_id, partition, record_offset, fingerprint, reason, actor, receipt)
    VALUES (NEW.log_id, NEW.partition, NEW.record_offset, told ->> 'fingerprint',
            told ->> 'reason', told ->> 'actor', written);
    RETURN NEW;
END
$$;
-- Before, because a copy of an item that is there already makes no row.
CREATE TRIGGER keep_told_skip BEFORE INSERT ON ledger.parked
    FOR EACH ROW WHEN (NEW.detail ? 'skip') EXECUTE FUNCTION ledger.keep_told_skip();

-- Which recorded usage a skipped record was, where the record itself does not say it so that it got
-- a verdict: a person's word, after an audit found nothing else of that identity. Not billed, and
-- not lost any more; it stands for ever.
CREATE TABLE ledger.skip_name (
    log_id uuid NOT NULL,
    partition integer NOT NULL,
    record_offset bigint NOT NULL,
    source text NOT NULL,
    -- Minute of received_at and kind, as the source's registry has them.
    minute timestamptz NOT NULL,
    kind text NOT NULL CHECK (kind IN ('usage', 'correction', 'conflict')),
    event_id uuid NOT NULL,
    tenant_id text NOT NULL,
    event_key text NOT NULL,
    content numeric NOT NULL,
    reason text NOT NULL CHECK (btrim(reason) <> ''),
    actor text NOT NULL,
    named_at timestamptz NOT NULL DEFAULT now(),
    receipt bigint NOT NULL REFERENCES ledger.audit_log,
    PRIMARY KEY (log_id, partition, record_offset),
    FOREIGN KEY (log_id, partition, record_offset) REFERENCES ledger.skip,
    -- One record was one identity.
    UNIQUE (source, event_id, kind, content)
);
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON ledger.skip_name
    FOR EACH STATEMENT EXECUTE FUNCTION ledger.refuse_change();

-- Note which identity a skipped record was. Done twice it says so; another one is refused.
CREATE FUNCTION ledger.name_skipped_v1(named json, why text, who text)
RETURNS TABLE (changed boolean, receipt bigint, by_whom text, since timestamptz, because text)
LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    n record;
    s ledger.skip;
    known ledger.skip_name;
    written bigint;
BEGIN
    IF btrim(coalesce(why, '')) = '' THEN
        RAISE EXCEPTION 'reason: say how you know which usage this record was'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    SELECT * INTO n FROM json_to_record(named) AS x(receipt bigint, source text, minute_us bigint,
        kind text, event_id uuid, tenant_id text, event_key text, content numeric);
    SELECT * INTO s FROM ledger.skip x WHERE x.receipt = n.receipt FOR UPDATE;
    SELECT * INTO known FROM ledger.skip_name x WHERE (x.log_id, x.partition, x.record_offset)
        = (s.log_id, s.partition, s.record_offset);
    IF known.receipt IS NULL THEN
        IF NOT EXISTS (SELECT FROM ledger.parked p
                       WHERE p.kind = 'dead' AND p.log_id = s.log_id AND p.partition = s.partition
                         AND p.record_offset = s.record_offset AND p.event_id IS NULL) THEN
            RAISE EXCEPTION 'offset: % of partition % is no record that was skipped without'
                ' a verdict', s.record_offset, s.partition
                USING ERRCODE = 'object_not_in_prerequisite_state',
                      HINT = 'See what was skipped with `tailrace held list`.';
        END IF;
        INSERT INTO ledger.audit_log (action, subject, actor, detail)
        VALUES ('name_skipped', format('%s[%s]@%s', s.log_id, s.partition, s.record_offset),
                coalesce(who, session_user),
                jsonb_build_object('why', why, 'skip', n.receipt, 'event_id', n.event_id,
                                   'tenant_id', n.tenant_id, 'event_key', n.event_key))
        RETURNING audit_id INTO written;
        INSERT INTO ledger.skip_name (log_id, partition, record_offset, source, minute, kind,
                                      event_id, tenant_id, event_key, content, reason, actor,
                                      receipt)
        VALUES (s.log_id, s.partition, s.record_offset, n.source, ledger.at(n.minute_us), n.kind,
                n.event_id, n.tenant_id, n.event_key, n.content, why,
                coalesce(who, session_user), written)
        RETURNING * INTO known;
    ELSIF known.event_id <> n.event_id THEN
        RAISE EXCEPTION 'offset: % of partition % is %/% already, by %', s.record_offset,
            s.partition, known.tenant_id, known.event_key, known.actor
            USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    RETURN QUERY SELECT written IS NOT NULL, known.receipt, known.actor, known.named_at,
                        known.reason;
END
$$;

REVOKE ALL ON FUNCTION ledger.name_skipped_v1(json, text, text),
    ledger.settle_many_v1(json), ledger.pause_concerns(text, text, text, text),
    ledger.pause_awaits(text, text, text, text), ledger.is_paused(text, text),
    ledger.pause_v1(text, text, text, text), ledger.resume_v1(text, text, text, text),
    ledger.skip_record_v1(integer, bigint, text, text)
    FROM PUBLIC;
GRANT SELECT ON ledger.pause, ledger.held_record, ledger.skip, ledger.skip_name
    TO ledger_reader;
GRANT INSERT ON ledger.held_record TO ledger_service;
GRANT UPDATE (reason, worker, seen_at) ON ledger.held_record TO ledger_service;
GRANT EXECUTE ON FUNCTION ledger.pause_concerns(text, text, text, text),
    ledger.pause_awaits(text, text, text, text), ledger.is_paused(text, text)
    TO ledger_reader;
GRANT EXECUTE ON FUNCTION ledger.settle_many_v1(json) TO ledger_service;
GRANT EXECUTE ON FUNCTION ledger.pause_v1(text, text, text, text),
    ledger.resume_v1(text, text, text, text), ledger.skip_record_v1(integer, bigint, text, text),
    ledger.name_skipped_v1(json, text, text)
    TO ledger_service, ledger_finance;

-- Past the billing deadline: an amount goes into the open period or is closed, once, with its trace.

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

-- Meters at Stripe that count wrongly or are not there: findings, kept by whichever worker looks.

-- One look at Stripe's meters at a time, whichever worker looks.
CREATE TABLE ledger.meter_look (
    singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    claimed_at timestamptz NOT NULL
);

-- Not more often than told; NULL: not now. Gives the look its name.
CREATE FUNCTION ledger.claim_meters_v1(pause interval) RETURNS bigint
LANGUAGE sql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    INSERT INTO ledger.meter_look AS l (claimed_at) VALUES (clock_timestamp())
    ON CONFLICT (singleton) DO UPDATE SET claimed_at = clock_timestamp()
        WHERE l.claimed_at <= clock_timestamp() - pause
    RETURNING ledger.us(claimed_at)
$$;

-- Note what a look found, and clear what it did not find again; each change leaves its trace. False:
-- another look has begun since, and nothing is changed, for that one knows better.
CREATE FUNCTION ledger.note_meters_v1(look bigint, seen json) RETURNS boolean
LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM FROM ledger.meter_look l WHERE ledger.us(l.claimed_at) = look FOR UPDATE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    WITH told AS (
        SELECT DISTINCT ON (kind, event_name) 'meter_' || kind AS kind, event_name AS subject, rule
        FROM json_to_recordset(seen) AS x(kind text, event_name text, rule text)
        ORDER BY kind, event_name, rule
    ), opened AS (
        INSERT INTO ledger.finding AS f (kind, subject, detail)
        SELECT t.kind, t.subject, jsonb_build_object('rule', t.rule) FROM told t
        ON CONFLICT (kind, subject) DO UPDATE
        SET detail = excluded.detail, cleared_at = NULL, cleared_by = NULL, why = NULL,
            found_at = CASE WHEN f.cleared_at IS NULL THEN f.found_at ELSE now() END
        WHERE f.cleared_at IS NOT NULL OR f.detail <> excluded.detail
        RETURNING f.kind, f.subject, f.detail
    ), closed AS (
        UPDATE ledger.finding f
        SET cleared_at = now(), cleared_by = session_user, why = 'not so any more'
        WHERE f.cleared_at IS NULL AND starts_with(f.kind, 'meter_')
          AND NOT EXISTS (SELECT FROM told t WHERE (t.kind, t.subject) = (f.kind, f.subject))
        RETURNING f.finding_id, f.kind, f.subject, f.why
    )
    INSERT INTO ledger.audit_log (action, subject, detail)
    SELECT kind, subject, detail FROM opened
    UNION ALL
    SELECT 'clear_finding', finding_id::text,
           jsonb_build_object('why', why, 'kind', kind, 'about', subject)
    FROM closed;
    RETURN true;
END
$$;

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA ledger FROM PUBLIC;
GRANT SELECT ON ledger.meter_look TO ledger_reader;
GRANT EXECUTE ON FUNCTION ledger.claim_meters_v1(interval), ledger.note_meters_v1(bigint, json)
    TO ledger_service;

RESET ROLE;
-- Accepted usage that is kept outside Kafka, by the day on which it was received.
SET LOCAL ROLE ledger_owner;

-- What the file of a day must be, for ever. Written after the file was read back.
CREATE TABLE ledger.archived_day (
    day date PRIMARY KEY,
    -- Below the archive's folder.
    path text NOT NULL CHECK (path <> ''),
    rows bigint NOT NULL CHECK (rows > 0),
    -- Usage among the rows; the others are corrections.
    events bigint NOT NULL CHECK (events BETWEEN 0 AND rows),
    -- Sum of the usage's contents modulo 2^128: what the day's cells say.
    digest numeric NOT NULL,
    bytes bigint NOT NULL,
    sha256 text NOT NULL CHECK (sha256 ~ '^[0-9a-f]{64}$'),
    actor text NOT NULL DEFAULT session_user,
    archived_at timestamptz NOT NULL DEFAULT now()
);
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON ledger.archived_day
    FOR EACH STATEMENT EXECUTE FUNCTION ledger.refuse_change();

-- Days that are over, with what their cells say, how many minutes no audit has sealed yet, and
-- whether they are archived.
CREATE VIEW ledger.archive_state AS
SELECT date_trunc('day', c.minute, 'UTC') AS begins_at,
       coalesce(sum(c.count) FILTER (WHERE c.verdict_class = 'accepted'), 0)::bigint AS events,
       coalesce(sum(c.count) FILTER (WHERE c.verdict_class = 'correction'), 0)::bigint
           AS corrections,
       coalesce(sum(c.digest) FILTER (WHERE c.verdict_class = 'accepted'), 0)
           % 340282366920938463463374607431768211456 AS digest,
       count(DISTINCT (c.source, c.minute)) FILTER (WHERE s.minute IS NULL)::bigint AS unsealed,
       bool_or(a.day IS NOT NULL) AS archived
FROM ledger.cell c
LEFT JOIN ledger.sealed_minute s ON s.source = c.source AND s.minute = c.minute
LEFT JOIN ledger.archived_day a
    ON a.day = (date_trunc('day', c.minute, 'UTC') AT TIME ZONE 'UTC')::date
WHERE c.verdict_class <> 'canary'
  AND date_trunc('day', c.minute, 'UTC') + interval '1 day' <= now()
GROUP BY 1;

-- Note the file of a day. Done twice it changes nothing; another file of the same day is refused.
CREATE FUNCTION ledger.note_archived_v1(
    of_day date, file text, row_count bigint, usage_count bigint, contents numeric, size bigint,
    hash text
) RETURNS boolean
LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    INSERT INTO ledger.archived_day (day, path, rows, events, digest, bytes, sha256)
    VALUES (of_day, file, row_count, usage_count, contents, size, hash)
    ON CONFLICT (day) DO NOTHING;
    IF FOUND THEN
        RETURN true;
    END IF;
    IF EXISTS (SELECT FROM ledger.archived_day d WHERE d.day = of_day AND d.sha256 <> hash) THEN
        RAISE EXCEPTION 'day: % is archived already, in another file', of_day
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = 'See `tailrace archive check`.';
    END IF;
    RETURN false;
END
$$;

REVOKE ALL ON FUNCTION
    ledger.note_archived_v1(date, text, bigint, bigint, numeric, bigint, text) FROM PUBLIC;
GRANT SELECT ON ledger.archived_day, ledger.archive_state TO ledger_reader;
GRANT EXECUTE ON FUNCTION
    ledger.note_archived_v1(date, text, bigint, bigint, numeric, bigint, text)
    TO ledger_service, ledger_finance;

RESET ROLE;

-- Erasure: what a tenant's service wrote in words goes; amounts, identities and digests stay. It is
-- the one exception from append-only, and it has a name, a receipt and a role of its own.
SET LOCAL ROLE ledger_owner;

CREATE TABLE ledger.erasure (
    -- Its row in audit_log.
    receipt bigint PRIMARY KEY REFERENCES ledger.audit_log,
    tenant_id text NOT NULL CHECK (tenant_id <> ''),
    reason text NOT NULL CHECK (btrim(reason) <> ''),
    actor text NOT NULL DEFAULT session_user,
    erased_at timestamptz NOT NULL DEFAULT now(),
    -- Parked records that were reduced to what names them, and how long they were.
    records bigint NOT NULL,
    record_bytes bigint NOT NULL,
    -- Corrections whose reason the service wrote.
    entries bigint NOT NULL,
    -- Rows of the service's database that the same act replaces.
    source_rows bigint NOT NULL
);
CREATE INDEX erasure_tenant ON ledger.erasure (tenant_id, receipt);
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON ledger.erasure
    FOR EACH STATEMENT EXECUTE FUNCTION ledger.refuse_change();

ALTER TABLE ledger.parked ADD COLUMN erased_receipt bigint REFERENCES ledger.erasure;
COMMENT ON COLUMN ledger.parked.erased_receipt IS 'of the erasure that reduced its record to what names it';

-- What stands where words were.
CREATE FUNCTION ledger.erased_text(receipt bigint, erased_at timestamptz) RETURNS text
LANGUAGE sql STABLE PARALLEL SAFE
AS $$
    SELECT format('erased on %s (receipt %s)',
                  to_char(erased_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), receipt)
$$;

-- Whether that stands there already.
CREATE FUNCTION ledger.is_erased(words text) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT words ~ '^erased on \S+ \(receipt \d+\)$'
$$;

-- A record as the object it is; NULL where it is none, or cannot be read.
CREATE FUNCTION ledger.record_object(record bytea) RETURNS jsonb
LANGUAGE plpgsql STABLE PARALLEL SAFE
AS $$
DECLARE
    told jsonb;
BEGIN
    told := convert_from(record, 'UTF8')::jsonb;
    RETURN CASE WHEN jsonb_typeof(told) = 'object' THEN told END;
EXCEPTION
    WHEN data_exception OR program_limit_exceeded THEN
        RETURN NULL;
END
$$;

-- A record without what its service wrote in words. Of one that was understood everything that names
-- and counts it is left, of any other the names alone: its other members may hold anything.
CREATE FUNCTION ledger.erased_record(record bytea, understood boolean, mark text) RETURNS bytea
LANGUAGE sql STABLE PARALLEL SAFE
AS $$
    SELECT convert_to(
        (jsonb_build_object('erased', mark) || coalesce(jsonb_object_agg(m.key, m.value), '{}'))::text,
        'UTF8')
    FROM jsonb_each(coalesce(ledger.record_object(record), '{}')) AS m
    WHERE jsonb_typeof(m.value) IN ('string', 'number', 'boolean')
      AND octet_length(m.value::text) <= 1000
      AND (m.key IN ('source', 'tenant_id', 'event_id', 'event_key')
           OR understood AND m.key IN (
               'v', 'type', 'kafka_key', 'shard', 'metric', 'quantity', 'delta', 'occurred_at',
               'received_at', 'content', 'content_version', 'first_content', 'first_received_at',
               'target_event_id', 'review'))
$$;

-- Parked items whose record a tenant's service wrote: it says so itself, or a person has said it.
CREATE FUNCTION ledger.records_of(tenant text) RETURNS SETOF ledger.parked
LANGUAGE sql STABLE
AS $$
    SELECT p.* FROM ledger.parked p
    WHERE p.record IS NOT NULL
      AND (p.tenant_id = tenant
           OR p.tenant_id IS NULL AND ledger.record_object(p.record) ->> 'tenant_id' = tenant
           OR EXISTS (SELECT FROM ledger.skip_name n
                      WHERE n.tenant_id = tenant AND (n.log_id, n.partition, n.record_offset)
                          = (p.log_id, p.partition, p.record_offset)))
$$;

-- Corrections that a tenant's service recorded by itself: their reason and who stands for it are its
-- words. What a person approved has that person's.
CREATE FUNCTION ledger.told_corrections(tenant text) RETURNS SETOF ledger.meter_log
LANGUAGE sql STABLE
AS $$
    SELECT e.* FROM ledger.meter_log e
    WHERE e.tenant_id = tenant AND e.kind = 'correction' AND e.log_id IS NOT NULL
      AND NOT EXISTS (SELECT FROM ledger.decision d
                      WHERE d.entry_id = e.entry_id AND d.action = 'approve')
$$;

-- What an erasure would replace, and what it leaves.
CREATE FUNCTION ledger.erasable(
    tenant text, OUT records bigint, OUT record_bytes bigint, OUT entries bigint,
    OUT named bigint, OUT levels bigint, OUT amounts bigint, OUT decisions bigint
)
LANGUAGE sql STABLE
AS $$
    SELECT (SELECT count(*) FROM ledger.records_of(tenant) AS p WHERE p.erased_receipt IS NULL),
           (SELECT coalesce(sum(octet_length(p.record)), 0) FROM ledger.records_of(tenant) AS p
            WHERE p.erased_receipt IS NULL),
           (SELECT count(*) FROM ledger.told_corrections(tenant) AS e
            WHERE NOT ledger.is_erased(e.reason)),
           -- Nobody's records that have the tenant's name in them somewhere.
           (SELECT count(*) FROM ledger.parked p
            WHERE p.tenant_id IS NULL AND p.erased_receipt IS NULL
              AND position(convert_to(to_jsonb(tenant)::text, 'UTF8') IN p.record) > 0
              AND NOT EXISTS (SELECT FROM ledger.records_of(tenant) AS r
                              WHERE r.parked_id = p.parked_id)),
           (SELECT count(*) FROM ledger.level l WHERE l.tenant_id = tenant),
           (SELECT count(*) FROM ledger.meter_log e WHERE e.tenant_id = tenant),
           (SELECT count(*) FROM ledger.decision d
            LEFT JOIN ledger.parked p USING (parked_id)
            LEFT JOIN ledger.meter_log e ON e.entry_id = d.entry_id
            WHERE tenant IN (p.tenant_id, e.tenant_id))
$$;

-- What has to be settled before a tenant's words may go: a person, or Stripe, still needs them.
CREATE FUNCTION ledger.erasure_blockers(tenant text) RETURNS TABLE (what text, count bigint)
LANGUAGE sql STABLE
AS $$
    WITH own AS (
        SELECT DISTINCT x.meter_event_id FROM ledger.meter_log e
        JOIN ledger.meter_event_entry x ON x.entry_id = e.entry_id AND x.live
        WHERE e.tenant_id = tenant
    ), found (what, count) AS (
        SELECT 'parked_items', count(*) FROM ledger.parked p
        WHERE p.state = 'open'
          AND (p.tenant_id = tenant OR p.meter_event_id IN (SELECT o.meter_event_id FROM own o)
               OR p.parked_id IN (SELECT r.parked_id FROM ledger.records_of(tenant) AS r))
        UNION ALL SELECT 'open_windows', count(*) FROM ledger.level l
        WHERE l.tenant_id = tenant AND (l.due_at IS NOT NULL OR l.held)
        UNION ALL SELECT 'unsent_entries', count(*) FROM ledger.uncovered u
        WHERE u.tenant_id = tenant
        UNION ALL SELECT 'unsettled_requests', count(*) FROM own o
        JOIN ledger.meter_event m USING (meter_event_id)
        WHERE m.state IN ('pending', 'ambiguous')
        UNION ALL SELECT 'open_proposals', count(*) FROM ledger.proposal p
        WHERE p.tenant_id = tenant AND p.state = 'open')
    SELECT f.what, f.count FROM found f WHERE f.count > 0
$$;

-- An entry changes in one way only: an erasure of this very transaction takes its service's words.
CREATE FUNCTION ledger.guard_entry() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    IF OLD.kind = 'correction' AND OLD.log_id IS NOT NULL AND NEW.actor = 'erased'
       AND to_jsonb(NEW) - 'reason' - 'actor' = to_jsonb(OLD) - 'reason' - 'actor'
       AND EXISTS (SELECT FROM ledger.erasure e
                   WHERE e.tenant_id = OLD.tenant_id AND e.erased_at = now()
                     AND NEW.reason = ledger.erased_text(e.receipt, e.erased_at)) THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'ledger.meter_log: append-only, UPDATE refused'
        USING ERRCODE = 'restrict_violation',
              HINT = 'What was recorded is never changed; record a correction.';
END
$$;
CREATE TRIGGER erased_only BEFORE UPDATE ON ledger.meter_log
    FOR EACH ROW EXECUTE FUNCTION ledger.guard_entry();

-- Take a tenant's words out of the ledger. `source_rows`: what the service's database has of them,
-- replaced by the same act. Done twice it gives the first receipt and changes nothing.
CREATE FUNCTION ledger.erase_tenant_v1(tenant text, why text, source_rows bigint)
RETURNS TABLE (changed boolean, receipt bigint, erased_at timestamptz)
LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    blocked text;
    worded record;
    written bigint;
    mark text;
    done bigint;
BEGIN
    IF btrim(coalesce(why, '')) = '' THEN
        RAISE EXCEPTION 'reason: say who asked for it; the receipt keeps it'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    PERFORM pg_advisory_xact_lock(ledger.correction_lock_key(tenant));
    SELECT string_agg(format('%s %s', b.count, replace(b.what, '_', ' ')), ', ') INTO blocked
    FROM ledger.erasure_blockers(tenant) AS b;
    IF blocked IS NOT NULL THEN
        RAISE EXCEPTION 'tenant: % is not settled yet: %', tenant, blocked
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = 'What to do first says `tailrace erase` without --yes.';
    END IF;
    SELECT * INTO worded FROM ledger.erasable(tenant);
    IF worded.records + worded.entries + source_rows = 0 THEN
        RETURN QUERY SELECT false, e.receipt, e.erased_at FROM ledger.erasure e
                     WHERE e.tenant_id = tenant ORDER BY e.receipt DESC LIMIT 1;
        IF FOUND THEN
            RETURN;
        END IF;
    END IF;
    INSERT INTO ledger.audit_log (action, subject, detail)
    VALUES ('erase_tenant', tenant,
            jsonb_build_object('why', why, 'records', worded.records,
                               'record_bytes', worded.record_bytes, 'entries', worded.entries,
                               'source_rows', source_rows))
    RETURNING audit_id INTO written;
    INSERT INTO ledger.erasure (receipt, tenant_id, reason, records, record_bytes, entries,
                                source_rows)
    VALUES (written, tenant, why, worded.records, worded.record_bytes, worded.entries, source_rows);
    mark := ledger.erased_text(written, now());
    UPDATE ledger.parked p
    SET record = ledger.erased_record(p.record, p.event_id IS NOT NULL, mark),
        erased_receipt = written
    WHERE p.erased_receipt IS NULL
      AND p.parked_id IN (SELECT r.parked_id FROM ledger.records_of(tenant) AS r);
    GET DIAGNOSTICS done = ROW_COUNT;
    IF done <> worded.records THEN
        RAISE EXCEPTION 'tenant: items of % came in meanwhile', tenant
            USING ERRCODE = 'serialization_failure';
    END IF;
    UPDATE ledger.meter_log e SET reason = mark, actor = 'erased'
    WHERE NOT ledger.is_erased(e.reason)
      AND e.entry_id IN (SELECT c.entry_id FROM ledger.told_corrections(tenant) AS c);
    GET DIAGNOSTICS done = ROW_COUNT;
    IF done <> worded.entries THEN
        RAISE EXCEPTION 'tenant: corrections of % came in meanwhile', tenant
            USING ERRCODE = 'serialization_failure';
    END IF;
    RETURN QUERY SELECT true, written, now();
END
$$;

REVOKE ALL ON FUNCTION ledger.erased_text(bigint, timestamptz), ledger.is_erased(text),
    ledger.record_object(bytea), ledger.erased_record(bytea, boolean, text), ledger.records_of(text),
    ledger.told_corrections(text), ledger.erasable(text), ledger.erasure_blockers(text),
    ledger.erase_tenant_v1(text, text, bigint) FROM PUBLIC;
GRANT SELECT ON ledger.erasure TO ledger_reader;
GRANT EXECUTE ON FUNCTION ledger.erased_text(bigint, timestamptz), ledger.is_erased(text),
    ledger.record_object(bytea), ledger.records_of(text), ledger.told_corrections(text), ledger.erasable(text),
    ledger.erasure_blockers(text)
    TO ledger_reader;
GRANT EXECUTE ON FUNCTION ledger.erase_tenant_v1(text, text, bigint) TO ledger_eraser;

RESET ROLE;

-- Growth: a topic that got more partitions in place. Each new partition is of a log of its own, which
-- remembers what one partition before it held; a person makes it known, as with any second log.
SET LOCAL ROLE ledger_owner;

-- Which partitions of which life of a topic a log is. Workers note the first count they serve, so
-- that a topic whose count was changed by hand is not taken for one that was always so large.
CREATE TABLE ledger.log_span (
    log_id uuid PRIMARY KEY REFERENCES ledger.log,
    -- The log that the topic's life began with.
    root_id uuid NOT NULL REFERENCES ledger.log,
    first_partition integer NOT NULL CHECK (first_partition >= 0),
    -- Of the topic, since this log.
    partitions integer NOT NULL CHECK (partitions > first_partition),
    -- By earlier partition: the offset from which on keys are at home by the new count.
    boundaries bigint[] NOT NULL DEFAULT '{}',
    noted_at timestamptz NOT NULL DEFAULT now(),
    noted_by text NOT NULL DEFAULT session_user,
    UNIQUE (root_id, first_partition),
    CHECK ((root_id = log_id) = (first_partition = 0)),
    CHECK (cardinality(boundaries) = first_partition AND 0 <= ALL (boundaries))
);
CREATE TRIGGER append_only BEFORE DELETE OR TRUNCATE ON ledger.log_span
    FOR EACH STATEMENT EXECUTE FUNCTION ledger.refuse_change();

-- Every log with the life it belongs to; a life of which no count was noted yet is a log alone.
CREATE VIEW ledger.log_life AS
    SELECT l.log_id, l.log_topic, l.first, l.opened_at, coalesce(s.root_id, l.log_id) AS root_id,
           coalesce(s.first_partition, 0) AS first_partition, s.partitions,
           coalesce(s.boundaries, '{}') AS boundaries
    FROM ledger.log AS l LEFT JOIN ledger.log_span AS s USING (log_id);

-- The logs that are followed now: of each topic all of the life that was opened last.
CREATE VIEW ledger.log_followed AS
    SELECT l.log_id, l.log_topic FROM ledger.log_life AS l
    JOIN (SELECT DISTINCT ON (log_topic) log_id FROM ledger.log_life WHERE root_id = log_id
          ORDER BY log_topic, opened_at DESC) AS latest ON latest.log_id = l.root_id;

-- Note how many partitions a topic has before it grows, where nobody did: whoever is interrupted then
-- leaves a ledger that does not take the new count for the first one.
CREATE FUNCTION ledger.note_partitions_v1(root uuid, present integer) RETURNS void
LANGUAGE sql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    INSERT INTO ledger.log_span (log_id, root_id, first_partition, partitions)
    VALUES (root, root, 0, present) ON CONFLICT DO NOTHING
$$;

-- Make a growth known. Done twice it says so; a ledger that was restored from before it is told of it
-- again in the same way.
CREATE FUNCTION ledger.grow_log_v1(
    root uuid, grown uuid, present integer, wanted integer, bounds bigint[], why text, who text
) RETURNS boolean
LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    topic text;
    noted integer;
BEGIN
    IF btrim(coalesce(why, '')) = '' THEN
        RAISE EXCEPTION 'reason: say why the topic grows' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    -- Of two at once one waits, and then finds it done.
    SELECT l.log_topic INTO topic FROM ledger.log AS l WHERE l.log_id = root FOR NO KEY UPDATE;
    IF topic IS NULL THEN
        RAISE EXCEPTION 'root: % is no log that this ledger follows', root
            USING ERRCODE = 'invalid_parameter_value', HINT = 'See `tailrace topics adopt`.';
    END IF;
    IF EXISTS (SELECT FROM ledger.log_span AS s WHERE s.log_id = grown) THEN
        RETURN false;
    END IF;
    SELECT max(s.partitions) INTO noted FROM ledger.log_span AS s WHERE s.root_id = root;
    IF noted = wanted AND NOT EXISTS (
        SELECT FROM ledger.log_span AS s WHERE s.root_id = root AND s.log_id <> root
        UNION ALL
        SELECT FROM ledger.position AS p WHERE p.log_id = root AND p.partition >= present
    ) THEN
        -- A ledger that had lost all of it was told by workers that the topic began so large.
        UPDATE ledger.log_span SET partitions = present WHERE log_id = root;
        noted := present;
    END IF;
    IF noted IS NULL THEN
        INSERT INTO ledger.log_span (log_id, root_id, first_partition, partitions)
        VALUES (root, root, 0, present);
    ELSIF noted <> present THEN
        RAISE EXCEPTION 'present: % partitions are noted of this topic, not %', noted, present
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF wanted <= present OR wanted % present <> 0 THEN
        RAISE EXCEPTION 'partitions: % is no whole multiple of %', wanted, present
            USING ERRCODE = 'invalid_parameter_value',
                  HINT = 'Each new partition takes over keys of one partition alone.';
    END IF;
    INSERT INTO ledger.log (log_id, log_topic, opened_by, reason) VALUES (grown, topic, session_user, why);
    INSERT INTO ledger.log_span (log_id, root_id, first_partition, partitions, boundaries)
    VALUES (grown, root, present, wanted, bounds);
    INSERT INTO ledger.audit_log (action, subject, actor, detail)
    VALUES ('grow_log', root::text, coalesce(who, session_user),
            jsonb_build_object('topic', topic, 'why', why, 'from', present, 'to', wanted,
                               'log_id', grown, 'boundaries', bounds));
    RETURN true;
END
$$;

GRANT SELECT ON ledger.log_span, ledger.log_life, ledger.log_followed TO ledger_reader;
GRANT INSERT ON ledger.log_span TO ledger_service;
REVOKE ALL ON FUNCTION
    ledger.note_partitions_v1(uuid, integer),
    ledger.grow_log_v1(uuid, uuid, integer, integer, bigint[], text, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION
    ledger.note_partitions_v1(uuid, integer),
    ledger.grow_log_v1(uuid, uuid, integer, integer, bigint[], text, text)
    TO ledger_finance;

RESET ROLE;
