-- Identity, content, wire text and partition: pure functions of their arguments.
SET LOCAL ROLE metering_owner;

CREATE FUNCTION metering.lp(value text) RETURNS bytea
LANGUAGE sql STABLE PARALLEL SAFE
AS $$ SELECT int4send(octet_length(value)) || convert_to(value, 'UTF8') $$;
COMMENT ON FUNCTION metering.lp(text) IS 'Length-prefixed UTF-8: no two lists of texts share their bytes';

CREATE FUNCTION metering.usage_identity(source text, tenant_id text, event_key text) RETURNS uuid
LANGUAGE sql STABLE PARALLEL SAFE
AS $$
    SELECT encode(substring(
        sha256(metering.lp(source) || metering.lp(tenant_id) || metering.lp(event_key))
        FROM 1 FOR 16), 'hex')::uuid
$$;

CREATE FUNCTION metering.correction_identity(source text, tenant_id text, correction_key text)
RETURNS uuid
LANGUAGE sql STABLE PARALLEL SAFE
AS $$
    SELECT encode(substring(
        sha256(metering.lp('correction') || metering.lp(source) || metering.lp(tenant_id)
            || metering.lp(correction_key))
        FROM 1 FOR 16), 'hex')::uuid
$$;

CREATE FUNCTION metering.content_digest(event_id uuid, metric text, quantity numeric, rest text)
RETURNS bytea
LANGUAGE sql STABLE PARALLEL SAFE
AS $$
    SELECT substring(
        sha256(uuid_send(event_id) || metering.lp(metric)
            || metering.lp(trim_scale(quantity)::text) || metering.lp(rest))
        FROM 1 FOR 16)
$$;
COMMENT ON FUNCTION metering.content_digest(uuid, text, numeric, text) IS
    'Version 1; rest is the wire text of occurred_at if the caller gave one, else empty; for a correction the id of its target';

CREATE FUNCTION metering.wire_time(instant timestamptz) RETURNS text
LANGUAGE sql STABLE PARALLEL SAFE
AS $$ SELECT to_char(instant AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"') $$;

CREATE FUNCTION metering.uint128(value bytea) RETURNS numeric
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT (('x' || encode(substring(value FROM 1 FOR 4), 'hex'))::bit(32)::bigint * 4294967296::numeric
          + ('x' || encode(substring(value FROM 5 FOR 4), 'hex'))::bit(32)::bigint) * 18446744073709551616
          + ('x' || encode(substring(value FROM 9 FOR 4), 'hex'))::bit(32)::bigint * 4294967296::numeric
          + ('x' || encode(substring(value FROM 13 FOR 4), 'hex'))::bit(32)::bigint
$$;
COMMENT ON FUNCTION metering.uint128(bytea) IS 'Sixteen bytes as an unsigned big-endian integer';

CREATE FUNCTION metering.murmur2(data bytea) RETURNS bigint
LANGUAGE plpgsql IMMUTABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    m_low CONSTANT bigint := 59797; -- 0x5bd1e995 in halves: a 64-bit product would overflow
    m_high CONSTANT bigint := 23505;
    mask CONSTANT bigint := 4294967295;
    size CONSTANT integer := octet_length(data);
    h bigint := 2538058380 # size; -- 0x9747b28c
    k bigint;
    at integer := 0;
BEGIN
    WHILE at + 4 <= size LOOP
        k := get_byte(data, at)::bigint | (get_byte(data, at + 1)::bigint << 8)
           | (get_byte(data, at + 2)::bigint << 16) | (get_byte(data, at + 3)::bigint << 24);
        k := (k * m_low + (((k * m_high) & 65535) << 16)) & mask;
        k := k # (k >> 24);
        k := (k * m_low + (((k * m_high) & 65535) << 16)) & mask;
        h := ((h * m_low + (((h * m_high) & 65535) << 16)) & mask) # k;
        at := at + 4;
    END LOOP;
    IF size - at > 0 THEN
        FOR i IN REVERSE size - at - 1 .. 0 LOOP
            h := h # (get_byte(data, at + i)::bigint << (8 * i));
        END LOOP;
        h := (h * m_low + (((h * m_high) & 65535) << 16)) & mask;
    END IF;
    h := h # (h >> 13);
    h := (h * m_low + (((h * m_high) & 65535) << 16)) & mask;
    RETURN h # (h >> 15);
END
$$;
COMMENT ON FUNCTION metering.murmur2(bytea) IS 'The hash of Kafka''s default partitioner, unsigned';

CREATE FUNCTION metering.partition_of(kafka_key text, partition_count integer) RETURNS integer
LANGUAGE sql STABLE STRICT PARALLEL SAFE
AS $$
    SELECT ((metering.murmur2(convert_to(kafka_key, 'UTF8')) & 2147483647) % partition_count)::integer
$$;

RESET ROLE;
