-- Recording: the registry decides what is new, and only what is new goes out.
SET LOCAL ROLE metering_owner;

CREATE FUNCTION metering.bound_wait() RETURNS text
LANGUAGE plpgsql
AS $$
DECLARE
    before CONSTANT text := current_setting('lock_timeout');
    ours text;
BEGIN
    PERFORM set_config('lock_timeout', coalesce(nullif(current_setting('metering.lock_timeout', true), ''), '5s'), true);
    ours := current_setting('lock_timeout');
    IF before <> '0' AND (ours = '0' OR before::interval < ours::interval) THEN
        PERFORM set_config('lock_timeout', before, true);
    END IF;
    RETURN before;
END
$$;
COMMENT ON FUNCTION metering.bound_wait() IS
    'Bounds the wait for a concurrent recording of the same key by metering.lock_timeout (default 5s) or a shorter lock_timeout; returns what to set back';

CREATE FUNCTION metering.traceparent() RETURNS text
LANGUAGE sql STABLE
AS $$
    SELECT substring(current_setting('metering.traceparent', true)
        FROM '^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$')
$$;
COMMENT ON FUNCTION metering.traceparent() IS
    'The W3C trace context of SET LOCAL metering.traceparent; a malformed one is no reason to fail';

CREATE FUNCTION metering.payload(type text, source text, entry metering.usage_key) RETURNS jsonb
LANGUAGE sql STABLE
AS $$
    SELECT jsonb_build_object(
        'v', 1,
        'type', type,
        'source', source,
        'event_id', entry.event_id,
        'tenant_id', entry.tenant_id,
        'event_key', entry.event_key,
        'kafka_key', entry.kafka_key,
        'shard', entry.shard,
        'metric', entry.metric,
        CASE entry.kind WHEN 'usage' THEN 'quantity' ELSE 'delta' END, entry.quantity::text,
        'occurred_at', metering.wire_time(entry.occurred_at),
        'received_at', metering.wire_time(entry.received_at),
        'content', encode(entry.content, 'hex'),
        'content_version', entry.content_version,
        'attributes', '{}'::jsonb)
$$;

CREATE FUNCTION metering.conflict_members(first_content bytea, first_received_at timestamptz)
RETURNS jsonb
LANGUAGE sql STABLE
AS $$
    SELECT jsonb_build_object(
        'first_content', encode(first_content, 'hex'),
        'first_received_at', metering.wire_time(first_received_at))
$$;

-- p_entry comes filled but for received_at, and for occurred_at where the caller gave none.
CREATE FUNCTION metering.record_identity(
    p_source text, p_entry metering.usage_key, p_details jsonb, p_on_conflict text,
    OUT status text, OUT received_at timestamptz
)
LANGUAGE plpgsql
AS $$
#variable_conflict use_variable
DECLARE
    v_first metering.usage_key;
    v_now CONSTANT timestamptz := clock_timestamp();
BEGIN
    p_entry.received_at := v_now;
    p_entry.occurred_at := coalesce(p_entry.occurred_at, v_now);
    INSERT INTO metering.usage_key SELECT p_entry.*
        ON CONFLICT ON CONSTRAINT usage_key_pkey DO NOTHING;
    IF FOUND THEN
        INSERT INTO metering.usage_outbox
            (emitted_at, event_id, kafka_key, event_type, received_at, payload, traceparent)
        VALUES (
            v_now, p_entry.event_id, p_entry.kafka_key,
            CASE p_entry.kind WHEN 'usage' THEN 'usage.recorded' ELSE 'usage.correction' END,
            v_now, metering.payload(p_entry.kind, p_source, p_entry) || p_details,
            metering.traceparent());
        status := 'recorded';
        received_at := v_now;
        RETURN;
    END IF;
    SELECT k.* INTO v_first FROM metering.usage_key AS k
    WHERE k.tenant_id = p_entry.tenant_id AND k.event_key = p_entry.event_key
      AND k.kind = p_entry.kind;
    IF NOT FOUND THEN
        RAISE EXCEPTION 'event_key: its first recording vanished while this one waited'
            USING ERRCODE = '40001', HINT = 'run the transaction again';
    ELSIF v_first.content = p_entry.content THEN
        status := 'duplicate';
        received_at := v_first.received_at;
        RETURN;
    ELSIF p_on_conflict = 'raise' THEN
        RAISE EXCEPTION 'event_key: already recorded with other content' USING
            ERRCODE = '23505', SCHEMA = 'metering', TABLE = 'usage_key',
            CONSTRAINT = 'usage_key_pkey', COLUMN = 'event_key',
            DETAIL = format('First recorded at %s: %s of %s, occurred at %s.',
                metering.wire_time(v_first.received_at), v_first.quantity, v_first.metric,
                metering.wire_time(v_first.occurred_at)),
            HINT = 'a key names one event for ever: pass the same content in a retry, or another key for another event';
    END IF;
    p_entry.kafka_key := v_first.kafka_key; -- copies meet where the first one went
    p_entry.shard := v_first.shard;
    -- Conflicts of one key queue behind its row, so two of them in one batch cannot deadlock.
    PERFORM FROM metering.usage_key AS k
    WHERE k.tenant_id = p_entry.tenant_id AND k.event_key = p_entry.event_key
      AND k.kind = p_entry.kind FOR NO KEY UPDATE;
    status := 'conflict';
    INSERT INTO metering.usage_conflict (
        event_id, content, content_version, tenant_id, event_key, kind, metric, quantity,
        occurred_at, received_at, kafka_key, shard, first_content, first_received_at, details)
    VALUES (
        p_entry.event_id, p_entry.content, p_entry.content_version, p_entry.tenant_id,
        p_entry.event_key, p_entry.kind, p_entry.metric, p_entry.quantity,
        p_entry.occurred_at, v_now, p_entry.kafka_key, p_entry.shard, v_first.content,
        v_first.received_at, p_details - 'attributes')
    ON CONFLICT ON CONSTRAINT usage_conflict_pkey DO NOTHING;
    IF FOUND THEN
        INSERT INTO metering.usage_outbox
            (emitted_at, event_id, kafka_key, event_type, received_at, payload, traceparent)
        VALUES (
            v_now, p_entry.event_id, p_entry.kafka_key, 'usage.conflict', v_now,
            metering.payload('conflict', p_source, p_entry) || p_details
                || metering.conflict_members(v_first.content, v_first.received_at),
            metering.traceparent());
        received_at := v_now;
    ELSE
        SELECT c.received_at INTO received_at FROM metering.usage_conflict AS c
        WHERE c.event_id = p_entry.event_id AND c.content = p_entry.content;
    END IF;
END
$$;

CREATE FUNCTION metering.record_one(
    p_source text, p_tenant_id text, p_metric text, p_quantity numeric, p_event_key text,
    p_occurred_at timestamptz, p_attributes jsonb, p_on_conflict text,
    OUT event_id uuid, OUT status text, OUT received_at timestamptz
)
LANGUAGE plpgsql
AS $$
#variable_conflict use_variable
DECLARE
    v_quantity CONSTANT numeric := trim_scale(p_quantity);
    v_entry metering.usage_key;
    v_shards integer;
    v_result record;
BEGIN
    event_id := metering.usage_identity(p_source, p_tenant_id, p_event_key);
    v_entry.tenant_id := p_tenant_id;
    v_entry.event_key := p_event_key;
    v_entry.kind := 'usage';
    v_entry.event_id := event_id;
    v_entry.content := metering.content_digest(
        event_id, p_metric, v_quantity, coalesce(metering.wire_time(p_occurred_at), ''));
    v_entry.content_version := 1;
    v_entry.metric := p_metric;
    v_entry.quantity := v_quantity;
    v_entry.occurred_at := p_occurred_at;
    SELECT t.shards INTO v_shards FROM metering.tenant_shards AS t WHERE t.tenant_id = p_tenant_id;
    IF v_shards IS NULL THEN
        v_entry.kafka_key := p_tenant_id;
        v_entry.shard := 0;
    ELSE
        v_entry.shard := 1 + metering.uint128(uuid_send(event_id)) % v_shards;
        v_entry.kafka_key := p_tenant_id || '#' || v_entry.shard;
    END IF;
    v_result := metering.record_identity(
        p_source, v_entry, jsonb_build_object('attributes', p_attributes), p_on_conflict);
    status := v_result.status;
    received_at := v_result.received_at;
END
$$;

CREATE FUNCTION metering.record_usage(
    tenant_id text, metric text, quantity numeric, event_key text,
    occurred_at timestamptz DEFAULT NULL, attributes jsonb DEFAULT '{}',
    on_conflict text DEFAULT 'park',
    OUT event_id uuid, OUT status text, OUT received_at timestamptz
)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_problem text[];
    v_wait text;
    v_source text;
    v_result record;
BEGIN
    attributes := coalesce(attributes, '{}');
    on_conflict := coalesce(on_conflict, 'park');
    v_problem := metering.usage_problem(
        tenant_id, metric, quantity, event_key, occurred_at, attributes, on_conflict);
    IF v_problem IS NOT NULL THEN
        PERFORM metering.refuse(v_problem);
    END IF;
    v_wait := metering.bound_wait();
    v_source := (SELECT s.source FROM metering.source AS s);
    v_result := metering.record_one(
        v_source, tenant_id, metric, quantity, event_key, occurred_at, attributes, on_conflict);
    event_id := v_result.event_id;
    status := v_result.status;
    received_at := v_result.received_at;
    PERFORM set_config('lock_timeout', v_wait, true);
END
$$;
COMMENT ON FUNCTION metering.record_usage IS
'Records usage in the caller''s transaction, best as its last statement. The key names the event for ever: a retry with the same content is a duplicate and returns the first result.
Status: recorded; duplicate; conflict (other content under a known key: it goes to review and the transaction goes on, or with on_conflict => ''raise'' fails with 23505).
occurred_at left out means the time of the first recording. SQLSTATEs: 22023 bad input (field and rule in the message); 55P03 another transaction held the same key for longer than metering.lock_timeout (default 5s); 40001 under REPEATABLE READ or SERIALIZABLE, run the transaction again.';

RESET ROLE;
