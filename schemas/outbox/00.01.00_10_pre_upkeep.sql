-- Operators' doors: send again, keep the outbox short, set meters and shards.
SET LOCAL ROLE metering_owner;

CREATE FUNCTION metering.reemit(
    from_received_at timestamptz, to_received_at timestamptz, reason text
) RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_source CONSTANT text := (SELECT s.source FROM metering.source AS s);
    v_horizon CONSTANT interval := (SELECT s.value::interval FROM metering.setting AS s WHERE s.name = 'reemit_horizon');
    v_rule CONSTANT text := metering.text_rule(reason, 1000);
    v_usage bigint;
    v_conflicts bigint;
    v_corrections bigint;
BEGIN
    IF v_rule IS NOT NULL THEN
        PERFORM metering.refuse(ARRAY['reason', v_rule, 'say what was lost and how you know']);
    ELSIF from_received_at IS NULL OR to_received_at IS NULL OR NOT from_received_at < to_received_at THEN
        PERFORM metering.refuse(ARRAY['from_received_at', 'must lie before to_received_at', 'pass the half-open range of received_at to send again']);
    ELSIF from_received_at < clock_timestamp() - v_horizon THEN
        PERFORM metering.refuse(ARRAY['from_received_at', 'must not be older than ' || v_horizon || ' (setting reemit_horizon)',
            'the workers no longer know such identities and would send each to review; widen metering.setting only if their horizon is wider']);
    END IF;
    INSERT INTO metering.usage_outbox
        (emitted_at, event_id, kafka_key, event_type, received_at, payload, traceparent)
    SELECT clock_timestamp(), k.event_id, k.kafka_key,
           CASE k.kind WHEN 'usage' THEN 'usage.recorded' ELSE 'usage.correction' END, k.received_at,
           metering.payload(k.kind, v_source, k)
               || jsonb_build_object('attributes', coalesce(o.payload -> 'attributes', '{}'))
               || CASE WHEN k.kind = 'usage' THEN '{}' ELSE (
                    SELECT jsonb_build_object('target_event_id', c.target_event_id, 'reason', c.reason,
                        'authorized_by', c.authorized_by, 'review', c.review)
                    FROM metering.usage_correction AS c WHERE c.event_id = k.event_id) END,
           o.traceparent
    FROM metering.usage_key AS k
    LEFT JOIN metering.usage_outbox AS o
        ON o.emitted_at = k.received_at AND o.event_id = k.event_id
        AND o.event_type <> 'usage.conflict'
        AND o.emitted_at >= from_received_at AND o.emitted_at < to_received_at
    WHERE k.received_at >= from_received_at AND k.received_at < to_received_at
    ORDER BY k.received_at;
    GET DIAGNOSTICS v_usage = ROW_COUNT;
    SELECT count(*) INTO v_corrections FROM metering.usage_key AS k
    WHERE k.kind = 'correction' AND k.received_at >= from_received_at AND k.received_at < to_received_at;
    v_usage := v_usage - v_corrections;
    INSERT INTO metering.usage_outbox
        (emitted_at, event_id, kafka_key, event_type, received_at, payload, traceparent)
    SELECT clock_timestamp(), c.event_id, c.kafka_key, 'usage.conflict', c.received_at,
           metering.payload('conflict', v_source, ROW(c.tenant_id, c.event_key, c.kind, c.event_id,
               c.content, c.content_version, c.metric, c.quantity, c.occurred_at, c.received_at,
               c.kafka_key, c.shard)::metering.usage_key)
               || jsonb_build_object('attributes', coalesce(o.payload -> 'attributes', '{}')) || c.details
               || metering.conflict_members(c.first_content, c.first_received_at),
           o.traceparent
    FROM metering.usage_conflict AS c
    LEFT JOIN metering.usage_outbox AS o
        ON o.emitted_at = c.received_at AND o.event_id = c.event_id
        AND o.event_type = 'usage.conflict' AND o.payload ->> 'content' = encode(c.content, 'hex')
        AND o.emitted_at >= from_received_at AND o.emitted_at < to_received_at
    WHERE c.received_at >= from_received_at AND c.received_at < to_received_at
    ORDER BY c.received_at;
    GET DIAGNOSTICS v_conflicts = ROW_COUNT;
    -- Last, for a canary says that everything before it has come through. One that was lost with the
    -- rows around it would else be missing from every audit to come.
    INSERT INTO metering.usage_outbox
        (emitted_at, event_id, kafka_key, event_type, received_at, payload)
    SELECT clock_timestamp(), c.event_id, c.tenant_id, 'metering.canary', c.received_at,
           metering.canary_payload(v_source, c)
    FROM metering.canary AS c
    WHERE c.received_at >= from_received_at AND c.received_at < to_received_at
    ORDER BY c.received_at;
    INSERT INTO metering.reemission
        (from_received_at, to_received_at, reason, usage_rows, conflict_rows, correction_rows)
    VALUES (from_received_at, to_received_at, reason, v_usage, v_conflicts, v_corrections);
    RETURN v_usage + v_conflicts + v_corrections;
END
$$;
COMMENT ON FUNCTION metering.reemit IS
'Sends recorded rows of a half-open range of received_at out again, with their first identity, content and received_at, and notes who asked; downstream they are duplicates unless they were lost. Canaries of the range go along, uncounted. Attributes come from the outbox, and are empty once retention has dropped the row.';

CREATE FUNCTION metering.ensure_partitions(ahead_days integer, today date)
RETURNS TABLE (action text, partition text, detail text)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET timezone = 'UTC'
AS $$
DECLARE
    v_day date;
    v_name text;
BEGIN
    FOR v_day IN SELECT today + n FROM generate_series(0, ahead_days) AS n LOOP
        v_name := 'usage_outbox_p' || to_char(v_day, 'YYYYMMDD');
        partition := v_name;
        CONTINUE WHEN to_regclass('metering.' || v_name) IS NOT NULL;
        BEGIN
            -- ATTACH, unlike CREATE ... PARTITION OF, lets writers go on.
            EXECUTE format('CREATE TABLE metering.%I (LIKE metering.usage_outbox INCLUDING ALL)', v_name);
            EXECUTE format('ALTER TABLE metering.usage_outbox ATTACH PARTITION metering.%I FOR VALUES FROM (%L) TO (%L)',
                v_name, v_day::timestamptz, (v_day + 1)::timestamptz);
            action := 'created';
            detail := 'takes rows of that UTC day';
        EXCEPTION
            WHEN lock_not_available THEN
                action := 'busy';
                detail := 'a transaction held the outbox for too long; the next run tries again';
            WHEN check_violation THEN
                action := 'kept';
                detail := 'rows of that day already stand in usage_outbox_default and stay there until retention';
        END;
        RETURN NEXT;
    END LOOP;
END
$$;

CREATE FUNCTION metering.drop_sealed(day date) RETURNS TABLE (action text, partition text, detail text)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp SET timezone = 'UTC'
AS $$
DECLARE
    v_unsealed timestamptz;
BEGIN
    partition := 'usage_outbox_p' || to_char(day, 'YYYYMMDD');
    -- Writers of that day have ended once this lock is ours, and no new one can come before the drop.
    EXECUTE format('LOCK TABLE metering.%I IN SHARE MODE', partition);
    EXECUTE format(
        'SELECT min(o.received_at) FROM metering.%I AS o WHERE NOT EXISTS (SELECT FROM metering.sealed_minute AS s'
        ' WHERE s.kind = ''usage'' AND s.minute = date_trunc(''minute'', o.received_at, ''UTC''))', partition)
        INTO v_unsealed;
    IF v_unsealed IS NOT NULL THEN
        action := 'kept';
        detail := 'holds rows of the unsealed minute ' || metering.wire_time(date_trunc('minute', v_unsealed, 'UTC')) || ': run the audit';
    ELSE
        EXECUTE format('DROP TABLE metering.%I', partition);
        action := 'dropped';
        detail := 'all its minutes are sealed';
    END IF;
    RETURN NEXT;
EXCEPTION
    WHEN lock_not_available OR deadlock_detected THEN
        action := 'busy';
        detail := 'a transaction held it for too long; the next run tries again';
        RETURN NEXT;
END
$$;

CREATE FUNCTION metering.sweep(before timestamptz) RETURNS TABLE (action text, partition text, detail text)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_rows bigint;
BEGIN
    DELETE FROM metering.usage_outbox_default AS o
    WHERE o.emitted_at < before AND EXISTS (SELECT FROM metering.sealed_minute AS s
        WHERE s.kind = 'usage' AND s.minute = date_trunc('minute', o.received_at, 'UTC'));
    SELECT count(*) INTO v_rows FROM metering.usage_outbox_default;
    IF v_rows > 0 THEN
        action := 'alarm';
        partition := 'usage_outbox_default';
        detail := v_rows || ' rows found no partition of their day: run maintain at least once a day';
        RETURN NEXT;
    END IF;
    -- First the mark, so that no audit in between takes missing canaries for a change.
    UPDATE metering.setting SET value = before::text WHERE name = 'canary_kept_from' AND value::timestamptz < before;
    DELETE FROM metering.canary AS c
    WHERE c.received_at < before AND EXISTS (SELECT FROM metering.sealed_minute AS s
        WHERE s.kind = 'canary' AND s.minute = date_trunc('minute', c.received_at, 'UTC'));
END
$$;

CREATE FUNCTION metering.maintain(days integer DEFAULT 14, ahead_days integer DEFAULT 7)
RETURNS TABLE (action text, partition text, detail text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
    SET timezone = 'UTC' SET lock_timeout = '500ms'
AS $$
DECLARE
    v_today CONSTANT date := clock_timestamp()::date;
    v_name text;
BEGIN
    IF days IS NULL OR days < 1 THEN
        PERFORM metering.refuse(ARRAY['days', 'must be at least 1', 'pass how many full days the outbox keeps']);
    ELSIF ahead_days IS NULL OR ahead_days NOT BETWEEN 1 AND 90 THEN
        PERFORM metering.refuse(ARRAY['ahead_days', 'must lie between 1 and 90', 'pass for how many days partitions are made ahead']);
    END IF;
    PERFORM pg_advisory_xact_lock(hashtextextended('tailrace.maintain', 0));
    RETURN QUERY SELECT * FROM metering.ensure_partitions(ahead_days, v_today);
    FOR v_name IN
        SELECT c.relname FROM pg_inherits AS i JOIN pg_class AS c ON c.oid = i.inhrelid
        WHERE i.inhparent = 'metering.usage_outbox'::regclass AND c.relname ~ '^usage_outbox_p\d{8}$'
          AND to_date(right(c.relname, 8), 'YYYYMMDD') < v_today - days
        ORDER BY c.relname
    LOOP
        RETURN QUERY SELECT * FROM metering.drop_sealed(to_date(right(v_name, 8), 'YYYYMMDD'));
    END LOOP;
    RETURN QUERY SELECT * FROM metering.sweep((v_today - days)::timestamptz);
END
$$;
COMMENT ON FUNCTION metering.maintain IS
'Run daily or oftener: makes partitions ahead, drops those older than days whose minutes are all sealed, and says for every other why it stays. An unsealed row is never dropped.';

CREATE FUNCTION metering.put_metric(
    name text, scale integer, correction_limit numeric DEFAULT NULL, valid boolean DEFAULT true
) RETURNS boolean
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
    v_rule CONSTANT text := metering.text_rule(name, 100);
    v_known metering.metric;
BEGIN
    SELECT m.* INTO v_known FROM metering.metric AS m WHERE m.name = name FOR UPDATE;
    IF v_rule IS NOT NULL OR starts_with(lower(name), 'tailrace.') THEN
        PERFORM metering.refuse(ARRAY['name', coalesce(v_rule, 'must not begin with ''tailrace.'''), 'pass the name of a meter']);
    ELSIF scale IS NULL OR scale NOT BETWEEN 0 AND 12 THEN
        PERFORM metering.refuse(ARRAY['scale', 'must lie between 0 and 12', 'pass the decimals of the meter']);
    ELSIF v_known.scale <> scale THEN
        PERFORM metering.refuse(ARRAY['scale', 'is ' || v_known.scale || ' for ' || name || ' and cannot change', 'a meter keeps its unit for ever; make a new meter']);
    ELSIF correction_limit < 0 OR correction_limit IN ('NaN', 'Infinity') THEN
        PERFORM metering.refuse(ARRAY['correction_limit', 'must be a finite amount from 0 on', 'pass the largest correction that needs no review']);
    END IF;
    INSERT INTO metering.metric AS m (name, scale, correction_limit, valid)
    VALUES (name, scale, correction_limit, coalesce(valid, true))
    ON CONFLICT ON CONSTRAINT metric_pkey DO UPDATE
        SET correction_limit = coalesce(excluded.correction_limit, m.correction_limit),
            valid = excluded.valid, pushed_at = clock_timestamp()
        WHERE (coalesce(excluded.correction_limit, m.correction_limit), excluded.valid)
            IS DISTINCT FROM (m.correction_limit, m.valid);
    RETURN FOUND;
END
$$;
COMMENT ON FUNCTION metering.put_metric IS
'Tells this database of a meter; true if that changed anything. From the first one on, unknown metrics are refused. correction_limit NULL keeps what stands; while none stands every correction is reviewed.';

CREATE FUNCTION metering.set_shards(tenant_id text, shards integer) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
    v_problem CONSTANT text[] := metering.tenant_problem(tenant_id);
BEGIN
    IF v_problem IS NOT NULL THEN
        PERFORM metering.refuse(v_problem);
    ELSIF shards IS NULL OR shards NOT BETWEEN 1 AND 64 THEN
        PERFORM metering.refuse(ARRAY['shards', 'must lie between 1 and 64', 'pass over how many Kafka keys to spread the tenant; 1 is not sharded']);
    ELSIF shards = 1 THEN
        DELETE FROM metering.tenant_shards AS t WHERE t.tenant_id = tenant_id;
    ELSE
        INSERT INTO metering.tenant_shards AS t (tenant_id, shards) VALUES (tenant_id, shards)
        ON CONFLICT ON CONSTRAINT tenant_shards_pkey DO UPDATE
            SET shards = excluded.shards, set_at = clock_timestamp(), set_by = session_user;
    END IF;
END
$$;
COMMENT ON FUNCTION metering.set_shards IS
'Spreads a busy tenant over several Kafka keys. Identities already recorded keep theirs, so their copies still meet.';

SELECT count(*) FROM metering.ensure_partitions(7, (clock_timestamp() AT TIME ZONE 'UTC')::date);

RESET ROLE;
