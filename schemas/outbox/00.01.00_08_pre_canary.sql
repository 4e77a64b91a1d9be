-- Canaries: one row per partition that proves the whole path flows; never an amount.
SET LOCAL ROLE metering_owner;

DO $$
DECLARE
    v_count CONSTANT integer := (SELECT s.partition_count FROM metering.source AS s);
    v_key text;
BEGIN
    FOR n IN 0 .. 200000 LOOP
        v_key := 'tailrace.canary.' || n;
        INSERT INTO metering.canary_key (partition, tenant_id)
        VALUES (metering.partition_of(v_key, v_count), v_key) ON CONFLICT DO NOTHING;
        EXIT WHEN (SELECT count(*) FROM metering.canary_key) = v_count;
    END LOOP;
    IF (SELECT count(*) FROM metering.canary_key) <> v_count THEN
        RAISE EXCEPTION 'partitions: no canary key found for one of %', v_count
            USING ERRCODE = '55000', HINT = 'use fewer partitions';
    END IF;
END
$$;

CREATE FUNCTION metering.canary_payload(source text, entry metering.canary) RETURNS jsonb
LANGUAGE sql STABLE
AS $$
    SELECT jsonb_build_object(
        'v', 1,
        'type', 'canary',
        'source', source,
        'event_id', entry.event_id,
        'tenant_id', entry.tenant_id,
        'event_key', entry.event_id,
        'kafka_key', entry.tenant_id,
        'shard', 0,
        'metric', 'tailrace.canary',
        'quantity', '0',
        'occurred_at', metering.wire_time(entry.received_at),
        'received_at', metering.wire_time(entry.received_at),
        'content', encode(entry.content, 'hex'),
        'content_version', 1,
        'attributes', '{}'::jsonb,
        'partition', entry.partition,
        'token', entry.token)
$$;

CREATE FUNCTION metering.emit_canaries(token uuid DEFAULT gen_random_uuid())
RETURNS TABLE (partition integer, event_id uuid, received_at timestamptz, sent_token uuid)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    v_key metering.canary_key;
    v_one metering.canary;
BEGIN
    FOR v_key IN SELECT * FROM metering.canary_key ORDER BY partition LOOP
        v_one.event_id := gen_random_uuid();
        v_one.token := coalesce(emit_canaries.token, '00000000-0000-0000-0000-000000000000');
        v_one.partition := v_key.partition;
        v_one.tenant_id := v_key.tenant_id;
        v_one.content := metering.content_digest(v_one.event_id, 'tailrace.canary', 0, '');
        v_one.received_at := clock_timestamp();
        INSERT INTO metering.canary SELECT v_one.*;
        INSERT INTO metering.usage_outbox
            (emitted_at, event_id, kafka_key, event_type, received_at, payload)
        SELECT v_one.received_at, v_one.event_id, v_one.tenant_id, 'metering.canary',
               v_one.received_at, metering.canary_payload(s.source, v_one)
        FROM metering.source AS s;
        partition := v_one.partition;
        event_id := v_one.event_id;
        received_at := v_one.received_at;
        sent_token := v_one.token;
        RETURN NEXT;
    END LOOP;
END
$$;
COMMENT ON FUNCTION metering.emit_canaries IS
'Sends one canary to every partition under one token; their age at the far end tells whether each partition flows.';

RESET ROLE;
