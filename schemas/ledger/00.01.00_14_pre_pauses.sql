-- What operators order: publishing pauses, and single records that are skipped. And settling by
-- the batch, which a backlog needs.
SET LOCAL ROLE ledger_owner;

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

RESET ROLE;
