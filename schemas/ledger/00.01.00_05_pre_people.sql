-- What waits for a person, and what persons decided.
SET LOCAL ROLE ledger_owner;

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

RESET ROLE;
