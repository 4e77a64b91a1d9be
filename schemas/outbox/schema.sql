-- The metering schema as it stands: what all migrations together build. A test holds the two equal.
-- Installing goes through the migrations; this file is for reading, and for a look at one place.
-- The replication slot is missing on purpose: it cannot be made inside a transaction.
CREATE SCHEMA metering;
CREATE TABLE metering.migration (
    name text PRIMARY KEY,
    sha256 text NOT NULL,
    applied_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    applied_by text NOT NULL DEFAULT session_user
);

-- Roles of the metering schema. Roles belong to the cluster, so a second database finds them made.
DO $$
DECLARE
    wanted record;
BEGIN
    IF current_setting('server_encoding') <> 'UTF8' THEN
        RAISE EXCEPTION 'server_encoding: must be UTF8, is %', current_setting('server_encoding')
            USING ERRCODE = '55000',
                  HINT = 'identities are hashes of UTF-8 bytes: create the database with ENCODING ''UTF8''';
    END IF;
    IF current_setting('server_version_num')::integer < 150000 THEN
        RAISE EXCEPTION 'server_version: must be 15 or newer, is %', current_setting('server_version')
            USING ERRCODE = '55000', HINT = 'upgrade PostgreSQL before installing';
    END IF;
    FOR wanted IN
        SELECT * FROM (VALUES
            ('metering_owner', 'NOLOGIN'),
            ('metering_writer', 'NOLOGIN'),
            ('metering_corrector', 'NOLOGIN'),
            ('metering_ops', 'NOLOGIN'),
            ('metering_eraser', 'NOLOGIN'),
            ('metering_cdc', 'LOGIN REPLICATION')) AS r (name, attributes)
    LOOP
        BEGIN
            EXECUTE format('CREATE ROLE %I %s', wanted.name, wanted.attributes);
        EXCEPTION
            WHEN duplicate_object OR unique_violation THEN NULL; -- made by another database's installation
        END;
    END LOOP;
    EXECUTE format('GRANT CONNECT ON DATABASE %I TO metering_cdc', current_database());
END
$$;

-- Names the transaction that holds a minute open, whoever runs it.
GRANT pg_read_all_stats TO metering_ops;

ALTER SCHEMA metering OWNER TO metering_owner;
ALTER TABLE metering.migration OWNER TO metering_owner;
COMMENT ON SCHEMA metering IS 'Usage recorded in the service''s own transactions; the only door is metering.record_usage and its companions';
COMMENT ON TABLE metering.migration IS 'Which schema migrations this database has, with their checksums';

-- Tables: who this database is, what was recorded, what goes out.
SET LOCAL ROLE metering_owner;

CREATE FUNCTION metering.refuse_change() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RAISE EXCEPTION '%.%: is fixed at installation', TG_TABLE_SCHEMA, TG_TABLE_NAME
        USING ERRCODE = '55000',
              HINT = 'every identity already recorded depends on it: install a new database under the other name';
END
$$;

CREATE TABLE metering.source (
    singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    source text NOT NULL CHECK (source ~ '^[a-z][a-z0-9_-]{0,62}$'),
    partition_count integer NOT NULL CHECK (partition_count BETWEEN 1 AND 1024),
    slot_name text NOT NULL,
    installed_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON TABLE metering.source IS 'The one name under which this database''s identities are known; never changed';
COMMENT ON COLUMN metering.source.partition_count IS 'of the topic; only metering.grow_partitions adds to it';
CREATE TRIGGER fixed BEFORE DELETE OR UPDATE OF singleton, source, slot_name, installed_at
    ON metering.source FOR EACH ROW EXECUTE FUNCTION metering.refuse_change();
CREATE TRIGGER kept BEFORE TRUNCATE ON metering.source
    FOR EACH STATEMENT EXECUTE FUNCTION metering.refuse_change();

CREATE TABLE metering.growth (
    partitions integer PRIMARY KEY CHECK (partitions <= 1024),
    partitions_before integer NOT NULL UNIQUE,
    grown_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    grown_by text NOT NULL DEFAULT session_user,
    -- Else a new partition would take keys from several, and with them parts of several memories.
    CHECK (partitions > partitions_before AND partitions % partitions_before = 0)
);
COMMENT ON TABLE metering.growth IS 'Each time that the partitions became more: from how many, when, and by whom';

CREATE FUNCTION metering.only_grow() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM metering.growth AS g
            WHERE g.partitions_before = OLD.partition_count AND g.partitions = NEW.partition_count) THEN
        RAISE EXCEPTION '%.%.partition_count: only grows, by metering.grow_partitions', TG_TABLE_SCHEMA, TG_TABLE_NAME
            USING ERRCODE = '55000',
                  HINT = 'the canaries'' keys belong to the count: `tailrace source grow` changes both';
    END IF;
    RETURN NEW;
END
$$;

CREATE TRIGGER grown BEFORE UPDATE OF partition_count
    ON metering.source FOR EACH ROW EXECUTE FUNCTION metering.only_grow();

CREATE TABLE metering.setting (
    name text PRIMARY KEY,
    value text NOT NULL,
    note text NOT NULL
);
COMMENT ON TABLE metering.setting IS 'What the owner may change while the service runs';
INSERT INTO metering.setting (name, value, note) VALUES
    ('reemit_horizon', '7 days', 'reemit refuses older rows: past the workers'' horizon each of them would go to review'),
    ('canary_kept_from', '-infinity', 'canary rows before it were removed by maintain');

CREATE TABLE metering.metric (
    name text COLLATE "C" PRIMARY KEY CHECK (octet_length(name) BETWEEN 1 AND 100),
    scale integer NOT NULL CHECK (scale BETWEEN 0 AND 12),
    correction_limit numeric CHECK (correction_limit >= 0),
    valid boolean NOT NULL DEFAULT true,
    pushed_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
COMMENT ON TABLE metering.metric IS 'Meters pushed from the ledger side; while empty, any metric name is taken';
COMMENT ON COLUMN metering.metric.scale IS 'decimals a quantity may have';
COMMENT ON COLUMN metering.metric.correction_limit IS 'largest |delta| that needs no review; NULL: every correction is reviewed';

CREATE TABLE metering.tenant_shards (
    tenant_id text COLLATE "C" PRIMARY KEY,
    shards integer NOT NULL CHECK (shards BETWEEN 2 AND 64),
    set_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    set_by text NOT NULL DEFAULT session_user
);
COMMENT ON TABLE metering.tenant_shards IS 'Tenants too busy for one partition; holds for identities recorded from then on';

CREATE TABLE metering.usage_key (
    tenant_id text COLLATE "C" NOT NULL,
    event_key text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL CHECK (kind IN ('usage', 'correction')),
    event_id uuid NOT NULL,
    content bytea NOT NULL CHECK (octet_length(content) = 16),
    content_version integer NOT NULL,
    metric text COLLATE "C" NOT NULL,
    quantity numeric NOT NULL,
    occurred_at timestamptz NOT NULL,
    received_at timestamptz NOT NULL,
    kafka_key text NOT NULL,
    shard integer NOT NULL,
    PRIMARY KEY (tenant_id, event_key, kind)
);
COMMENT ON TABLE metering.usage_key IS 'One row per identity, written once at its first recording; owns event_id, content and received_at';
COMMENT ON COLUMN metering.usage_key.quantity IS 'without trailing zeros; of a correction the signed delta';
COMMENT ON COLUMN metering.usage_key.shard IS '0: not sharded; else 1 + event_id mod shards, as it stands in kafka_key';
CREATE INDEX usage_key_received_at ON metering.usage_key
    USING brin (received_at) WITH (pages_per_range = 32, autosummarize = on);

CREATE TABLE metering.usage_conflict (
    event_id uuid NOT NULL,
    content bytea NOT NULL CHECK (octet_length(content) = 16),
    content_version integer NOT NULL,
    tenant_id text COLLATE "C" NOT NULL,
    event_key text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL CHECK (kind IN ('usage', 'correction')),
    metric text COLLATE "C" NOT NULL,
    quantity numeric NOT NULL,
    occurred_at timestamptz NOT NULL,
    received_at timestamptz NOT NULL,
    kafka_key text NOT NULL,
    shard integer NOT NULL,
    first_content bytea NOT NULL,
    first_received_at timestamptz NOT NULL,
    details jsonb NOT NULL,
    PRIMARY KEY (event_id, content)
);
COMMENT ON TABLE metering.usage_conflict IS 'Other contents offered under an identity already recorded, each once';
COMMENT ON COLUMN metering.usage_conflict.details IS 'of a correction its target, reason and authorisation; of usage empty';
CREATE INDEX usage_conflict_received_at ON metering.usage_conflict
    USING brin (received_at) WITH (pages_per_range = 32, autosummarize = on);

CREATE TABLE metering.usage_correction (
    event_id uuid PRIMARY KEY,
    tenant_id text COLLATE "C" NOT NULL,
    event_key text COLLATE "C" NOT NULL,
    delta numeric NOT NULL CHECK (delta <> 0),
    target_event_key text COLLATE "C" NOT NULL,
    target_event_id uuid NOT NULL,
    reason text NOT NULL,
    authorized_by text NOT NULL,
    review boolean NOT NULL,
    recorded_by text NOT NULL DEFAULT session_user
);
COMMENT ON TABLE metering.usage_correction IS 'What a correction in the registry changes, why, and who stands for it';
COMMENT ON COLUMN metering.usage_correction.event_key IS 'the correction''s own key';
COMMENT ON COLUMN metering.usage_correction.recorded_by IS 'the login, whatever authorized_by claims';
CREATE INDEX usage_correction_target ON metering.usage_correction (target_event_id);

CREATE TABLE metering.canary_key (
    partition integer PRIMARY KEY,
    tenant_id text NOT NULL UNIQUE
);
COMMENT ON TABLE metering.canary_key IS 'For each partition of the topic a reserved tenant whose key falls on it';

CREATE TABLE metering.canary (
    event_id uuid PRIMARY KEY,
    token uuid NOT NULL,
    partition integer NOT NULL,
    tenant_id text NOT NULL,
    content bytea NOT NULL,
    received_at timestamptz NOT NULL
);
COMMENT ON TABLE metering.canary IS 'Canary rows sent; they prove that every partition flows and are never an amount';
CREATE INDEX canary_received_at ON metering.canary
    USING brin (received_at) WITH (pages_per_range = 32, autosummarize = on);

CREATE TABLE metering.sealed_minute (
    minute timestamptz NOT NULL CHECK (minute = date_trunc('minute', minute, 'UTC')),
    kind text NOT NULL CHECK (kind IN ('usage', 'conflict', 'correction', 'canary')),
    count bigint NOT NULL,
    digest numeric NOT NULL,
    sealed_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    sealed_by text NOT NULL DEFAULT session_user,
    PRIMARY KEY (minute, kind)
);
COMMENT ON TABLE metering.sealed_minute IS 'Minutes an audit found complete, with what they held; only these may leave the outbox';

CREATE TABLE metering.reemission (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    from_received_at timestamptz NOT NULL,
    to_received_at timestamptz NOT NULL,
    reason text NOT NULL,
    usage_rows bigint NOT NULL,
    conflict_rows bigint NOT NULL,
    correction_rows bigint NOT NULL,
    requested_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    requested_by text NOT NULL DEFAULT session_user
);
COMMENT ON TABLE metering.reemission IS 'Who sent which recorded rows out again, and why';

CREATE TABLE metering.usage_outbox (
    emitted_at timestamptz NOT NULL,
    event_id uuid NOT NULL,
    kafka_key text NOT NULL,
    event_type text NOT NULL
        CHECK (event_type IN ('usage.recorded', 'usage.conflict', 'usage.correction', 'metering.canary')),
    schema_version integer NOT NULL DEFAULT 1,
    received_at timestamptz NOT NULL,
    payload jsonb NOT NULL,
    traceparent text
) PARTITION BY RANGE (emitted_at);
COMMENT ON TABLE metering.usage_outbox IS 'What the connector reads from the WAL; inserts only, one partition per UTC day';
COMMENT ON COLUMN metering.usage_outbox.emitted_at IS 'partition key and nothing else: a row sent again has a new one';

-- A missed maintenance run must never fail a business transaction.
CREATE TABLE metering.usage_outbox_default PARTITION OF metering.usage_outbox DEFAULT;

INSERT INTO metering.source (source, partition_count, slot_name)
SELECT current_setting('tailrace.source', true),
       coalesce(nullif(current_setting('tailrace.partitions', true), ''), '12')::integer,
       coalesce(nullif(current_setting('tailrace.slot', true), ''), 'metering_outbox');

RESET ROLE;

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

-- What is refused: each check answers {field, rule, what to do}, or NULL.
-- Only the public functions pin search_path: what they call inherits it, and nobody else may call it.
SET LOCAL ROLE metering_owner;

CREATE FUNCTION metering.refuse(problem text[]) RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    RAISE EXCEPTION '%: %', problem[1], problem[2]
        USING ERRCODE = '22023', COLUMN = problem[1],
              DETAIL = 'Nothing was recorded.', HINT = problem[3];
END
$$;

CREATE FUNCTION metering.text_rule(value text, bytes_max integer) RETURNS text
LANGUAGE sql STABLE PARALLEL SAFE
AS $$
    SELECT CASE
        WHEN octet_length(value) <= bytes_max AND value ~ '^[!-~]+$' THEN NULL -- nearly every name
        WHEN value IS NULL THEN 'must not be NULL'
        WHEN value = '' THEN 'must not be empty'
        WHEN octet_length(value) > bytes_max
            THEN 'must be at most ' || bytes_max || ' bytes long, is ' || octet_length(value)
        -- Those of text direction too: two keys that look alike would be two events.
        WHEN value ~ '[\u0001-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]'
            THEN 'must not hold control characters, holds U+' || lpad(upper(to_hex(ascii(
                substring(value FROM '[\u0001-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069]')))), 4, '0')
        WHEN value ~ '^[ \u00a0\u1680\u2000-\u200b\u2028\u2029\u202f\u205f\u3000\ufeff]|[ \u00a0\u1680\u2000-\u200b\u2028\u2029\u202f\u205f\u3000\ufeff]$'
            THEN 'must not begin or end with white space'
    END
$$;

CREATE FUNCTION metering.tenant_problem(tenant_id text) RETURNS text[]
LANGUAGE plpgsql STABLE PARALLEL SAFE
AS $$
DECLARE
    rule text := metering.text_rule(tenant_id, 200);
BEGIN
    IF rule IS NOT NULL THEN
        RETURN ARRAY['tenant_id', rule, 'pass the stable name of the paying tenant, 1 to 200 bytes of text'];
    ELSIF strpos(tenant_id, '#') > 0 THEN
        RETURN ARRAY['tenant_id', 'must not hold ''#''', 'it separates the shard in the Kafka key; use another sign'];
    ELSIF starts_with(lower(tenant_id), 'tailrace.canary') THEN
        RETURN ARRAY['tenant_id', 'must not begin with ''tailrace.canary''', 'the name is reserved for canaries, which are never billed'];
    END IF;
    RETURN NULL;
END
$$;

CREATE FUNCTION metering.quantity_problem(field text, quantity numeric, metric text, decimals_max integer)
RETURNS text[]
LANGUAGE plpgsql STABLE PARALLEL SAFE
AS $$
DECLARE
    decimals integer;
BEGIN
    IF quantity IS NULL THEN
        RETURN ARRAY[field, 'must not be NULL', 'pass an exact number'];
    ELSIF quantity = 'NaN' THEN
        RETURN ARRAY[field, 'must be a number, is NaN', 'pass an exact number'];
    ELSIF quantity IN ('Infinity', '-Infinity') THEN
        RETURN ARRAY[field, 'must be finite', 'pass an exact number'];
    ELSIF abs(quantity) >= 1000000000000000 THEN
        RETURN ARRAY[field, 'must be below 10^15', 'record it in a larger unit, or in several events'];
    END IF;
    decimals := scale(trim_scale(quantity));
    IF decimals > coalesce(decimals_max, 12) THEN
        RETURN ARRAY[field,
            'has ' || decimals || ' decimals, ' || coalesce('metric ' || metric, 'a meter')
                || ' takes at most ' || coalesce(decimals_max, 12),
            'round it in the service, where the rounding can be explained'];
    ELSIF abs(quantity) * 10::numeric ^ coalesce(decimals_max, decimals) >= 1000000000000000 THEN
        RETURN ARRAY[field,
            'must be below 10^15 units of 10^-' || coalesce(decimals_max, decimals),
            'record it in several events, or with fewer decimals'];
    END IF;
    RETURN NULL;
END
$$;

CREATE FUNCTION metering.usage_problem(
    tenant_id text, metric text, quantity numeric, event_key text,
    occurred_at timestamptz, attributes jsonb, on_conflict text
) RETURNS text[]
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    problem text[] := metering.tenant_problem(tenant_id);
    rule text;
    known metering.metric;
BEGIN
    IF problem IS NOT NULL THEN
        RETURN problem;
    END IF;
    rule := metering.text_rule(metric, 100);
    IF rule IS NOT NULL THEN
        RETURN ARRAY['metric', rule, 'pass the name of a meter, 1 to 100 bytes of text'];
    ELSIF starts_with(lower(metric), 'tailrace.') THEN
        RETURN ARRAY['metric', 'must not begin with ''tailrace.''', 'the prefix is reserved; use the name of a meter'];
    END IF;
    rule := metering.text_rule(event_key, 200);
    IF rule IS NOT NULL THEN
        RETURN ARRAY['event_key', rule, 'pass what makes this event the same one in a retry, 1 to 200 bytes of text'];
    END IF;
    SELECT * INTO known FROM metering.metric AS m WHERE m.name = metric;
    IF known.name IS NULL AND EXISTS (SELECT FROM metering.metric) THEN
        RETURN ARRAY['metric', 'is not in the catalogue: ' || metric, 'correct the name, or apply the meter and push the catalogue first'];
    ELSIF NOT known.valid THEN
        RETURN ARRAY['metric', 'is no longer valid: ' || metric, 'record under the meter that took its place'];
    END IF;
    problem := metering.quantity_problem('quantity', quantity, known.name, known.scale);
    IF problem IS NOT NULL THEN
        RETURN problem;
    ELSIF quantity < 0 THEN
        RETURN ARRAY['quantity', 'must not be negative', 'usage only adds; take it back with metering.record_correction'];
    END IF;
    IF occurred_at < '2000-01-01 00:00:00+00' OR occurred_at > clock_timestamp() + interval '366 days' THEN
        RETURN ARRAY['occurred_at', 'must lie between 2000-01-01 and a year from now', 'pass the instant of the usage with its time zone, or leave it out for the time of recording'];
    ELSIF attributes <> '{}' AND jsonb_typeof(attributes) <> 'object' THEN
        RETURN ARRAY['attributes', 'must be a JSON object, is ' || jsonb_typeof(attributes), 'pass an object, or leave it out'];
    ELSIF attributes <> '{}' AND octet_length(attributes::text) > 32768 THEN
        RETURN ARRAY['attributes', 'must be at most 32 KiB of JSON, is ' || octet_length(attributes::text) || ' bytes', 'attributes are for analysis only; keep the rest in the service'];
    ELSIF on_conflict NOT IN ('park', 'raise') THEN
        RETURN ARRAY['on_conflict', 'must be ''park'' or ''raise''', 'park sends the second content to review, raise fails with SQLSTATE 23505'];
    END IF;
    RETURN NULL;
END
$$;

RESET ROLE;

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

-- Many events in one call. Keys are taken in one order everywhere, so two batches cannot deadlock.
SET LOCAL ROLE metering_owner;

CREATE TYPE metering.usage_input AS (
    index integer, tenant_id text, metric text, quantity numeric, event_key text,
    occurred_at timestamptz, attributes jsonb, on_conflict text
);

CREATE TYPE metering.usage_result AS (
    index integer, event_key text, event_id uuid, status text, received_at timestamptz
);

CREATE FUNCTION metering.item_shape(item jsonb) RETURNS text[]
LANGUAGE plpgsql STABLE PARALLEL SAFE
AS $$
DECLARE
    field text;
    known CONSTANT text[] := ARRAY['tenant_id', 'metric', 'quantity', 'event_key', 'occurred_at',
        'attributes', 'on_conflict'];
BEGIN
    IF jsonb_typeof(item) <> 'object' THEN
        RETURN ARRAY['', 'must be an object, is ' || jsonb_typeof(item), 'pass one object per event'];
    END IF;
    SELECT k INTO field FROM jsonb_object_keys(item) AS k WHERE k <> ALL (known) ORDER BY k LIMIT 1;
    IF field IS NOT NULL THEN
        RETURN ARRAY[left(field, 100), 'is not a field of an event',
            'known fields are ' || array_to_string(known, ', ')];
    END IF;
    SELECT k INTO field FROM unnest(ARRAY['tenant_id', 'metric', 'event_key', 'occurred_at', 'on_conflict']) AS k
    WHERE jsonb_typeof(item -> k) NOT IN ('string', 'null') LIMIT 1;
    IF field IS NOT NULL THEN
        RETURN ARRAY[field, 'must be a string, is ' || jsonb_typeof(item -> field), 'put it in quotes'];
    ELSIF jsonb_typeof(item -> 'quantity') NOT IN ('string', 'number', 'null') OR (
            jsonb_typeof(item -> 'quantity') = 'string'
            AND item ->> 'quantity' !~ '^-?[0-9]{1,40}(\.[0-9]{1,40})?$') THEN
        RETURN ARRAY['quantity', 'must be a decimal number', 'pass plain digits, as in "1.25"'];
    ELSIF item ->> 'occurred_at' !~ '^\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|[+-]\d\d(:?\d\d)?)$' THEN
        RETURN ARRAY['occurred_at', 'must be an instant with a time zone', 'write it as 2026-11-29T15:01:09.817658Z'];
    END IF;
    RETURN NULL;
END
$$;

CREATE FUNCTION metering.instant_of(wire text) RETURNS timestamptz
LANGUAGE plpgsql STABLE STRICT SET search_path = pg_catalog, pg_temp SET datestyle = 'ISO, YMD'
AS $$
BEGIN
    RETURN wire::timestamptz;
EXCEPTION
    WHEN datetime_field_overflow OR invalid_datetime_format OR invalid_time_zone_displacement_value THEN
        RETURN 'infinity'; -- a day like 30 February: no instant, refused like any other absurd one
END
$$;

CREATE FUNCTION metering.item_input(
    item jsonb, index integer, OUT input metering.usage_input, OUT problem text[]
)
LANGUAGE plpgsql STABLE
AS $$
BEGIN
    problem := metering.item_shape(item);
    IF problem IS NULL THEN
        input.index := index;
        input.tenant_id := item ->> 'tenant_id';
        input.metric := item ->> 'metric';
        input.quantity := (item ->> 'quantity')::numeric;
        input.event_key := item ->> 'event_key';
        input.occurred_at := metering.instant_of(item ->> 'occurred_at');
        input.attributes := coalesce(nullif(item -> 'attributes', 'null'), '{}');
        input.on_conflict := coalesce(item ->> 'on_conflict', 'park');
        problem := metering.usage_problem(input.tenant_id, input.metric, input.quantity,
            input.event_key, input.occurred_at, input.attributes, input.on_conflict);
    END IF;
    IF problem IS NOT NULL THEN
        problem[1] := 'items[' || index || ']' || coalesce('.' || nullif(problem[1], ''), '');
    END IF;
END
$$;

CREATE FUNCTION metering.refuse_items(problems text[]) RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    total CONSTANT integer := array_length(problems, 1);
BEGIN
    RAISE EXCEPTION '%', (
            SELECT string_agg(problems[i][1] || ': ' || problems[i][2], '; ' ORDER BY i)
            FROM generate_series(1, least(total, 20)) AS i)
            || CASE WHEN total > 20 THEN format('; and %s more', total - 20) ELSE '' END
        USING ERRCODE = '22023', DETAIL = 'Nothing of the batch was recorded.',
              HINT = problems[1][1] || ': ' || problems[1][3];
END
$$;

CREATE FUNCTION metering.record_usage_batch(items jsonb)
RETURNS TABLE (index integer, event_key text, event_id uuid, status text, received_at timestamptz)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    v_inputs metering.usage_input[];
    v_problems text[];
    v_results metering.usage_result[] := '{}';
    v_input metering.usage_input;
    v_source CONSTANT text := (SELECT s.source FROM metering.source AS s);
    v_one record;
    v_wait text;
BEGIN
    IF items IS NULL OR jsonb_typeof(items) <> 'array' THEN
        PERFORM metering.refuse(ARRAY['items', 'must be a JSON array, is ' || coalesce(jsonb_typeof(items), 'NULL'), 'pass an array with one object per event']);
    ELSIF jsonb_array_length(items) > 10000 THEN
        PERFORM metering.refuse(ARRAY['items', 'must be at most 10000, are ' || jsonb_array_length(items), 'split the batch; all its parts may stand in one transaction']);
    END IF;
    SELECT array_agg(p.input ORDER BY (p.input).tenant_id COLLATE "C", (p.input).event_key COLLATE "C", i.position),
           array_agg(p.problem ORDER BY i.position) FILTER (WHERE p.problem IS NOT NULL)
    INTO v_inputs, v_problems
    FROM jsonb_array_elements(items) WITH ORDINALITY AS i (item, position),
         metering.item_input(i.item, (i.position - 1)::integer) AS p;
    IF v_problems IS NOT NULL THEN
        PERFORM metering.refuse_items(v_problems);
    END IF;
    v_wait := metering.bound_wait();
    FOREACH v_input IN ARRAY coalesce(v_inputs, '{}') LOOP
        SELECT * INTO v_one FROM metering.record_one(
            v_source, v_input.tenant_id, v_input.metric, v_input.quantity, v_input.event_key,
            v_input.occurred_at, v_input.attributes, v_input.on_conflict);
        v_results := v_results || ROW(v_input.index, v_input.event_key, v_one.event_id,
            v_one.status, v_one.received_at)::metering.usage_result;
    END LOOP;
    PERFORM set_config('lock_timeout', v_wait, true);
    RETURN QUERY SELECT r.* FROM unnest(v_results) AS r ORDER BY r.index;
END
$$;
COMMENT ON FUNCTION metering.record_usage_batch IS
'Records an array of objects with the parameters of record_usage as members; quantity as a string or a number, occurred_at with its time zone. Results come in input order, index counts from 0.
All problems of a batch are named at once with their index (22023), and nothing of it is recorded then.';

CREATE FUNCTION metering.usage_batch_problems(items jsonb)
RETURNS TABLE (index integer, field text, rule text, hint text)
LANGUAGE plpgsql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
BEGIN
    IF items IS NULL OR jsonb_typeof(items) <> 'array' THEN
        PERFORM metering.refuse(ARRAY['items', 'must be a JSON array, is ' || coalesce(jsonb_typeof(items), 'NULL'), 'pass an array with one object per event']);
    END IF;
    RETURN QUERY
    SELECT (i.position - 1)::integer, regexp_replace(p.problem[1], '^items\[\d+\]\.?', ''),
           p.problem[2], p.problem[3]
    FROM jsonb_array_elements(items) WITH ORDINALITY AS i (item, position),
         metering.item_input(i.item, (i.position - 1)::integer) AS p
    WHERE p.problem IS NOT NULL
    ORDER BY i.position;
END
$$;
COMMENT ON FUNCTION metering.usage_batch_problems IS
'What record_usage_batch would refuse of these items and why, and records nothing: whoever takes events of many producers leaves those out and records the others.';

RESET ROLE;

-- Corrections by the service: own role, own key, a limit per meter.
SET LOCAL ROLE metering_owner;

CREATE FUNCTION metering.correction_problem(
    tenant_id text, target_event_key text, delta numeric, correction_key text, reason text,
    authorized_by text
) RETURNS text[]
LANGUAGE plpgsql STABLE SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    problem text[] := metering.tenant_problem(tenant_id);
    given record;
BEGIN
    IF problem IS NOT NULL THEN
        RETURN problem;
    END IF;
    FOR given IN
        SELECT * FROM (VALUES
            ('target_event_key', metering.text_rule(target_event_key, 200), 'pass the event_key of the usage to correct'),
            ('correction_key', metering.text_rule(correction_key, 200), 'pass what makes this correction the same one in a retry'),
            ('reason', metering.text_rule(reason, 1000), 'say in a sentence why the amount was wrong'),
            ('authorized_by', metering.text_rule(authorized_by, 200), 'name who stands for the correction')
        ) AS v (field, rule, hint)
    LOOP
        IF given.rule IS NOT NULL THEN
            RETURN ARRAY[given.field, given.rule, given.hint];
        END IF;
    END LOOP;
    problem := metering.quantity_problem('delta', delta, NULL, NULL);
    IF problem IS NULL AND delta = 0 THEN
        RETURN ARRAY['delta', 'must not be 0', 'pass what to add to the usage, negative to take back'];
    END IF;
    RETURN problem;
END
$$;

CREATE FUNCTION metering.needs_review(target metering.usage_key, delta numeric, correction_key text)
RETURNS boolean
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
    -- The sum counts too: many small corrections of one event are one large one.
    SELECT coalesce(greatest(
            abs(needs_review.delta), abs(needs_review.delta + coalesce(sum(c.delta), 0)))
        > (SELECT m.correction_limit FROM metering.metric AS m WHERE m.name = target.metric), true)
    FROM metering.usage_correction AS c
    WHERE c.target_event_id = target.event_id AND c.event_key <> needs_review.correction_key
$$;

CREATE FUNCTION metering.record_correction(
    tenant_id text, target_event_key text, delta numeric, correction_key text, reason text,
    authorized_by text,
    OUT event_id uuid, OUT status text, OUT received_at timestamptz, OUT review boolean
)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
    v_problem text[] := metering.correction_problem(
        tenant_id, target_event_key, delta, correction_key, reason, authorized_by);
    v_source CONSTANT text := (SELECT s.source FROM metering.source AS s);
    v_target metering.usage_key;
    v_entry metering.usage_key;
    v_wait text;
BEGIN
    IF v_problem IS NOT NULL THEN
        PERFORM metering.refuse(v_problem);
    END IF;
    v_wait := metering.bound_wait();
    -- Corrections of one event queue here, so their sum cannot slip past the limit.
    SELECT k.* INTO v_target FROM metering.usage_key AS k
    WHERE k.tenant_id = tenant_id AND k.event_key = target_event_key AND k.kind = 'usage'
    FOR NO KEY UPDATE;
    IF NOT FOUND THEN
        PERFORM metering.refuse(ARRAY['target_event_key', 'names no usage event of this tenant recorded here',
            'correct usage where it was recorded, under the key of its event']);
    END IF;
    v_problem := metering.quantity_problem('delta', delta, v_target.metric,
        (SELECT m.scale FROM metering.metric AS m WHERE m.name = v_target.metric));
    IF v_problem IS NOT NULL THEN
        PERFORM metering.refuse(v_problem);
    END IF;
    event_id := metering.correction_identity(v_source, tenant_id, correction_key);
    review := metering.needs_review(v_target, delta, correction_key);
    v_entry := v_target;
    v_entry.event_key := correction_key;
    v_entry.kind := 'correction';
    v_entry.event_id := event_id;
    v_entry.quantity := trim_scale(delta);
    v_entry.content := metering.content_digest(
        event_id, v_target.metric, v_entry.quantity, v_target.event_id::text);
    SELECT r.status, r.received_at INTO status, received_at
    FROM metering.record_identity(v_source, v_entry, jsonb_build_object(
        'target_event_id', v_target.event_id, 'reason', reason, 'authorized_by', authorized_by,
        'review', review), 'park') AS r;
    IF status = 'recorded' THEN
        INSERT INTO metering.usage_correction (event_id, tenant_id, event_key, delta,
            target_event_key, target_event_id, reason, authorized_by, review)
        VALUES (event_id, tenant_id, correction_key, v_entry.quantity, target_event_key,
            v_target.event_id, reason, authorized_by, review);
    ELSE
        SELECT c.review OR status = 'conflict' INTO review FROM metering.usage_correction AS c
        WHERE c.event_id = event_id;
    END IF;
    PERFORM set_config('lock_timeout', v_wait, true);
END
$$;
COMMENT ON FUNCTION metering.record_correction IS
'Adds a signed delta to usage recorded here. The correction''s key names it for ever: a retry is a duplicate, other content under it a conflict that a person reviews.
review is true above the meter''s correction_limit, for one correction or for the sum over its event, and where no limit is known.
SQLSTATEs as for record_usage.';

RESET ROLE;

-- Canaries: one row per partition that proves the whole path flows; never an amount.
SET LOCAL ROLE metering_owner;

CREATE FUNCTION metering.make_canary_keys() RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_count CONSTANT integer := (SELECT s.partition_count FROM metering.source AS s);
    v_lacking integer := v_count;
    v_key text;
BEGIN
    DELETE FROM metering.canary_key;
    FOR n IN 0 .. 200000 LOOP
        v_key := 'tailrace.canary.' || n;
        INSERT INTO metering.canary_key (partition, tenant_id)
        VALUES (metering.partition_of(v_key, v_count), v_key) ON CONFLICT DO NOTHING;
        IF FOUND THEN
            v_lacking := v_lacking - 1;
            EXIT WHEN v_lacking = 0;
        END IF;
    END LOOP;
    IF v_lacking > 0 THEN
        RAISE EXCEPTION 'partitions: no canary key found for one of %', v_count
            USING ERRCODE = '55000', HINT = 'use fewer partitions';
    END IF;
END
$$;

SELECT metering.make_canary_keys();

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

-- Growth: the topic got more partitions in place, by a whole multiple; canaries then go to each.
SET LOCAL ROLE metering_owner;

CREATE FUNCTION metering.grow_partitions(partitions integer)
RETURNS TABLE (action text, detail text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '10s'
AS $$
#variable_conflict use_variable
DECLARE
    v_count integer;
BEGIN
    IF partitions IS NULL OR partitions NOT BETWEEN 1 AND 1024 THEN
        PERFORM metering.refuse(ARRAY['partitions', 'must lie between 1 and 1024, is ' || coalesce(partitions::text, 'NULL'),
            'pass the count that the topics have now']);
    END IF;
    -- Whoever sends canaries has committed before, or waits and then reads the new keys.
    LOCK TABLE metering.canary_key IN ACCESS EXCLUSIVE MODE;
    SELECT s.partition_count INTO v_count FROM metering.source AS s;
    IF partitions = v_count THEN
        action := 'unchanged';
        detail := format('has %s partitions already', v_count);
    ELSIF partitions < v_count THEN
        PERFORM metering.refuse(ARRAY['partitions', format('must not be less than the %s there are, is %s', v_count, partitions),
            'partitions are never taken away: what they remember of identities lives with them']);
    ELSIF partitions % v_count <> 0 THEN
        PERFORM metering.refuse(ARRAY['partitions', format('must be a whole multiple of the %s there are, is %s', v_count, partitions),
            CASE WHEN v_count * 2 > 1024 THEN 'there is none up to 1024: these are all it can have'
                 ELSE format('pass %s, for example: each new partition then takes over keys of one alone', v_count * 2) END]);
    ELSE
        INSERT INTO metering.growth (partitions, partitions_before) VALUES (partitions, v_count);
        UPDATE metering.source SET partition_count = partitions;
        PERFORM metering.make_canary_keys();
        action := 'grown';
        detail := format('from %s to %s partitions, each with a canary key of its own', v_count, partitions);
    END IF;
    RETURN NEXT;
END
$$;
COMMENT ON FUNCTION metering.grow_partitions IS
'Tells the outbox that the topics have more partitions now, a whole multiple of those before: from then on canaries go to each. Nothing else of the outbox depends on the count. It cannot be taken back; the same count once more changes nothing and says so. Called by `tailrace source grow`, which looks at the topics first.';

RESET ROLE;

-- What the ledger side compares itself with: the registry, minute by minute of received_at.
SET LOCAL ROLE metering_owner;

CREATE VIEW metering.recorded AS
    SELECT kind, received_at, event_id, content, tenant_id, event_key, metric, quantity, kafka_key
    FROM metering.usage_key
UNION ALL
    SELECT 'conflict', received_at, event_id, content, tenant_id, event_key, metric, quantity, kafka_key
    FROM metering.usage_conflict
UNION ALL
    SELECT 'canary', received_at, event_id, content, tenant_id, event_id::text, 'tailrace.canary', 0, tenant_id
    FROM metering.canary;
COMMENT ON VIEW metering.recorded IS 'Everything that was ever to go out, each once, by kind: usage, correction, conflict, canary';

CREATE FUNCTION metering.audit_minutes(from_received_at timestamptz, to_received_at timestamptz)
RETURNS TABLE (minute timestamptz, kind text, count bigint, digest numeric)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT date_trunc('minute', r.received_at, 'UTC'), r.kind, count(*),
        mod(sum(('x' || encode(substring(r.content FROM 1 FOR 4), 'hex'))::bit(32)::bigint)
                * 79228162514264337593543950336
            + sum(('x' || encode(substring(r.content FROM 5 FOR 4), 'hex'))::bit(32)::bigint)
                * 18446744073709551616
            + sum(('x' || encode(substring(r.content FROM 9 FOR 4), 'hex'))::bit(32)::bigint)
                * 4294967296
            + sum(('x' || encode(substring(r.content FROM 13 FOR 4), 'hex'))::bit(32)::bigint),
            340282366920938463463374607431768211456)
    FROM metering.recorded AS r
    WHERE r.received_at >= from_received_at AND r.received_at < to_received_at
    GROUP BY 1, 2
    ORDER BY 1, 2
$$;
COMMENT ON FUNCTION metering.audit_minutes IS
'Count and digest (sum of contents modulo 2^128) per minute of received_at and kind, over the half-open range; one statement, one snapshot.';

CREATE FUNCTION metering.identities(from_received_at timestamptz, to_received_at timestamptz)
RETURNS TABLE (
    event_id uuid, kind text, tenant_id text, event_key text, content numeric, metric text,
    quantity numeric, kafka_key text, received_at timestamptz
)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT r.event_id, r.kind, r.tenant_id, r.event_key, metering.uint128(r.content), r.metric, r.quantity,
           r.kafka_key, r.received_at
    FROM metering.recorded AS r
    WHERE r.received_at >= from_received_at AND r.received_at < to_received_at
    ORDER BY r.received_at, r.event_id, r.content
$$;
COMMENT ON FUNCTION metering.identities IS 'Every identity behind audit_minutes; content is the summand of its digest';

CREATE FUNCTION metering.find_key(tenant_id text, event_key text)
RETURNS TABLE (
    event_id uuid, kind text, metric text, quantity numeric, occurred_at timestamptz,
    received_at timestamptz, content bytea, kafka_key text, shard integer, conflicts bigint
)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT k.event_id, k.kind, k.metric, k.quantity, k.occurred_at, k.received_at, k.content,
           k.kafka_key, k.shard,
           (SELECT count(*) FROM metering.usage_conflict AS c WHERE c.event_id = k.event_id)
    FROM metering.usage_key AS k
    WHERE k.tenant_id = find_key.tenant_id AND k.event_key = find_key.event_key
    ORDER BY k.kind DESC
$$;
COMMENT ON FUNCTION metering.find_key IS 'What is recorded under a key: the usage event, and a correction of the same key if there is one';

CREATE FUNCTION metering.find_conflicts(tenant_id text, event_key text)
RETURNS TABLE (
    event_id uuid, kind text, metric text, quantity numeric, occurred_at timestamptz,
    received_at timestamptz, content bytea, first_content bytea, first_received_at timestamptz
)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT c.event_id, c.kind, c.metric, c.quantity, c.occurred_at, c.received_at, c.content,
           c.first_content, c.first_received_at
    FROM metering.usage_key AS k JOIN metering.usage_conflict AS c USING (event_id)
    WHERE k.tenant_id = find_conflicts.tenant_id AND k.event_key = find_conflicts.event_key
    ORDER BY c.received_at
$$;
COMMENT ON FUNCTION metering.find_conflicts IS 'Other contents that were offered under a key and went to review; event_id and content together name each of them, everywhere';

-- Runs with the caller's rights: metering_ops sees all sessions through pg_read_all_stats.
CREATE FUNCTION metering.open_transactions()
RETURNS TABLE (
    pid integer, gid text, user_name text, application_name text, client_address inet, state text,
    started_at timestamptz, writes_usage boolean, query text
)
LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
AS $$
    WITH writing AS (
        SELECT DISTINCT l.pid, l.virtualtransaction
        FROM pg_locks AS l
        WHERE l.locktype = 'relation' AND l.mode = 'RowExclusiveLock'
          AND l.database = (SELECT d.oid FROM pg_database AS d WHERE d.datname = current_database())
          AND l.relation IN ('metering.usage_key'::regclass, 'metering.canary'::regclass)
    )
    SELECT a.pid, NULL, a.usename::text, a.application_name, a.client_addr, a.state, a.xact_start,
           a.pid IN (SELECT w.pid FROM writing AS w WHERE w.pid IS NOT NULL), left(a.query, 500)
    FROM pg_stat_activity AS a
    WHERE a.datname = current_database() AND a.xact_start IS NOT NULL
      AND a.pid <> pg_backend_pid() AND a.backend_type = 'client backend'
    UNION ALL
    SELECT NULL, p.gid, p.owner::text, NULL, NULL, 'prepared', p.prepared,
           EXISTS (
               SELECT FROM writing AS w JOIN pg_locks AS x USING (virtualtransaction)
               WHERE w.pid IS NULL AND x.pid IS NULL AND x.transactionid = p.transaction),
           NULL
    FROM pg_prepared_xacts AS p
    WHERE p.database = current_database()
    ORDER BY 7
$$;
COMMENT ON FUNCTION metering.open_transactions IS
'Transactions that may still commit rows into minutes already past, oldest first; writes_usage marks those that hold usage. gid names a prepared transaction: COMMIT PREPARED or ROLLBACK PREPARED it.';

CREATE FUNCTION metering.seal(minutes timestamptz[]) RETURNS integer
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_minute timestamptz;
    v_sealed integer := 0;
BEGIN
    FOR v_minute IN SELECT DISTINCT date_trunc('minute', m, 'UTC') FROM unnest(minutes) AS m ORDER BY 1 LOOP
        IF v_minute IS NULL OR NOT isfinite(v_minute) OR v_minute + interval '1 minute' > clock_timestamp() THEN
            PERFORM metering.refuse(ARRAY['minutes', 'must be over, is ' || coalesce(v_minute::text, 'NULL'),
                'seal what an audit has judged; a running minute cannot be']);
        END IF;
        INSERT INTO metering.sealed_minute (minute, kind, count, digest)
        SELECT v_minute, k.kind, coalesce(a.count, 0), coalesce(a.digest, 0)
        FROM unnest(ARRAY['usage', 'conflict', 'correction', 'canary']) AS k (kind)
        LEFT JOIN metering.audit_minutes(v_minute, v_minute + interval '1 minute') AS a USING (kind)
        ON CONFLICT DO NOTHING;
        IF FOUND THEN
            v_sealed := v_sealed + 1;
        END IF;
    END LOOP;
    RETURN v_sealed;
END
$$;
COMMENT ON FUNCTION metering.seal IS
'Marks minutes that an audit found equal everywhere; returns how many were new. Only outbox rows of sealed minutes may ever be dropped.';

CREATE FUNCTION metering.sealed_changes(from_minute timestamptz, to_minute timestamptz)
RETURNS TABLE (
    minute timestamptz, kind text, sealed_count bigint, count bigint, sealed_digest numeric,
    digest numeric
)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT s.minute, s.kind, s.count, coalesce(a.count, 0), s.digest, coalesce(a.digest, 0)
    FROM metering.sealed_minute AS s
    LEFT JOIN metering.audit_minutes(from_minute, to_minute) AS a USING (minute, kind)
    WHERE s.minute >= from_minute AND s.minute < to_minute
      AND (s.count <> coalesce(a.count, 0) OR s.digest <> coalesce(a.digest, 0))
      AND (s.kind <> 'canary' OR s.minute >= (
            SELECT t.value::timestamptz FROM metering.setting AS t WHERE t.name = 'canary_kept_from'))
    ORDER BY 1, 2
$$;
COMMENT ON FUNCTION metering.sealed_changes IS
'Sealed minutes that hold something else now: a transaction was open longer than the audit believed, or somebody changed the registry. Each is a finding.';

RESET ROLE;

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

-- Erasure: what a service wrote of a tenant in words goes; keys, contents and amounts stay.
SET LOCAL ROLE metering_owner;

CREATE TABLE metering.erasure (
    tenant_id text COLLATE "C" NOT NULL,
    receipt bigint NOT NULL,
    erased_at timestamptz NOT NULL,
    outbox_rows bigint NOT NULL,
    correction_rows bigint NOT NULL,
    conflict_rows bigint NOT NULL,
    erased_by text NOT NULL DEFAULT session_user,
    PRIMARY KEY (tenant_id, receipt)
);
COMMENT ON TABLE metering.erasure IS 'What was taken out of this database, for which tenant, under which receipt of the ledger';

-- Whether the mark of an erasure stands where words were.
CREATE FUNCTION metering.is_erased(words text) RETURNS boolean
LANGUAGE sql IMMUTABLE
AS $$
    SELECT words ~ '^erased on \S+ \(receipt \d+\)$'
$$;

-- Words are: attributes, the trace that a record belongs to, why a correction was made and who stands for it.
CREATE FUNCTION metering.has_words(payload jsonb, traceparent text) RETURNS boolean
LANGUAGE sql IMMUTABLE
AS $$
    SELECT payload -> 'attributes' <> '{}' OR traceparent IS NOT NULL
        OR coalesce(NOT metering.is_erased(payload ->> 'reason'), false)
$$;

CREATE FUNCTION metering.without_words(payload jsonb, mark text) RETURNS jsonb
LANGUAGE sql IMMUTABLE
AS $$
    SELECT payload
        || CASE WHEN payload ? 'attributes' THEN jsonb_build_object('attributes', '{}'::jsonb) ELSE '{}' END
        || CASE WHEN payload ? 'reason' THEN jsonb_build_object('reason', mark, 'authorized_by', 'erased')
                ELSE '{}' END
$$;

CREATE FUNCTION metering.erasable(
    tenant_id text, OUT source text, OUT recorded bigint, OUT unproven bigint, OUT addresses bigint,
    OUT outbox_rows bigint, OUT outbox_bytes bigint, OUT correction_rows bigint,
    OUT conflict_rows bigint
)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    WITH own AS (
        SELECT k.received_at, k.event_key, k.kind FROM metering.usage_key AS k
        WHERE k.tenant_id = erasable.tenant_id
        UNION ALL
        SELECT c.received_at, c.event_key, 'conflict' FROM metering.usage_conflict AS c
        WHERE c.tenant_id = erasable.tenant_id
    ), waiting AS (
        SELECT o.payload, o.traceparent FROM metering.usage_outbox AS o
        WHERE o.payload ->> 'tenant_id' = erasable.tenant_id
          AND metering.has_words(o.payload, o.traceparent)
    )
    SELECT (SELECT s.source FROM metering.source AS s),
           (SELECT count(*) FROM own),
           (SELECT count(*) FROM own WHERE NOT EXISTS (
                SELECT FROM metering.sealed_minute AS s
                WHERE s.minute = date_trunc('minute', own.received_at, 'UTC') AND s.kind = own.kind)),
           (SELECT count(*) FROM own WHERE own.event_key LIKE '%@%'),
           (SELECT count(*) FROM waiting),
           (SELECT coalesce(sum(octet_length(w.payload::text) + coalesce(octet_length(w.traceparent), 0)), 0)
            FROM waiting AS w),
           (SELECT count(*) FROM metering.usage_correction AS c
            WHERE c.tenant_id = erasable.tenant_id AND NOT metering.is_erased(c.reason)),
           (SELECT count(*) FROM metering.usage_conflict AS c
            WHERE c.tenant_id = erasable.tenant_id AND metering.has_words(c.details, NULL))
$$;
COMMENT ON FUNCTION metering.erasable IS
'What an erasure would replace for a tenant, what it leaves, and how many of its identities lie in minutes that no audit has sealed.';

CREATE FUNCTION metering.erase_tenant(tenant_id text, receipt bigint, erased_at timestamptz)
RETURNS bigint
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
    v_problem CONSTANT text[] := metering.tenant_problem(tenant_id);
    v_mark CONSTANT text := format('erased on %s (receipt %s)', metering.wire_time(erased_at), receipt);
    v_unproven bigint;
    v_outbox bigint;
    v_corrections bigint;
    v_conflicts bigint;
BEGIN
    IF v_problem IS NOT NULL THEN
        PERFORM metering.refuse(v_problem);
    ELSIF receipt IS NULL OR erased_at IS NULL THEN
        PERFORM metering.refuse(ARRAY['receipt', 'must be that of the ledger', 'erase with `tailrace erase`']);
    END IF;
    SELECT e.unproven INTO v_unproven FROM metering.erasable(tenant_id) AS e;
    IF v_unproven > 0 THEN
        RAISE EXCEPTION 'tenant_id: % recorded identities are not proven yet', v_unproven
            USING ERRCODE = '55000', HINT = 'run `tailrace audit`, which seals their minutes';
    END IF;
    UPDATE metering.usage_outbox AS o
    SET payload = metering.without_words(o.payload, v_mark), traceparent = NULL
    WHERE o.payload ->> 'tenant_id' = tenant_id AND metering.has_words(o.payload, o.traceparent);
    GET DIAGNOSTICS v_outbox = ROW_COUNT;
    UPDATE metering.usage_correction AS c SET reason = v_mark, authorized_by = 'erased'
    WHERE c.tenant_id = tenant_id AND NOT metering.is_erased(c.reason);
    GET DIAGNOSTICS v_corrections = ROW_COUNT;
    UPDATE metering.usage_conflict AS c SET details = metering.without_words(c.details, v_mark)
    WHERE c.tenant_id = tenant_id AND metering.has_words(c.details, NULL);
    GET DIAGNOSTICS v_conflicts = ROW_COUNT;
    INSERT INTO metering.erasure (tenant_id, receipt, erased_at, outbox_rows, correction_rows, conflict_rows)
    VALUES (tenant_id, receipt, erased_at, v_outbox, v_corrections, v_conflicts)
    ON CONFLICT DO NOTHING;
    RETURN v_outbox + v_corrections + v_conflicts;
END
$$;
COMMENT ON FUNCTION metering.erase_tenant IS
'Takes what was written in words out of a tenant''s rows: attributes, traces, reasons of corrections and who stood for them. Keys, contents, amounts and times stay, so a copy is still known and nothing is billed twice. Refuses while a row is not proven. Called by `tailrace erase`, which has the receipt.';

RESET ROLE;

-- Inserts of the outbox only: retention, deletes and every other table stay in Postgres.
CREATE PUBLICATION metering_outbox FOR TABLE metering.usage_outbox
    WITH (publish = 'insert', publish_via_partition_root = true);

-- Who may call what. Nobody but the owner touches a table; functions are closed unless named here.
SET LOCAL ROLE metering_owner;

ALTER DEFAULT PRIVILEGES FOR ROLE metering_owner REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA metering FROM PUBLIC;
REVOKE ALL ON ALL TABLES IN SCHEMA metering FROM PUBLIC;

GRANT USAGE ON SCHEMA metering TO metering_writer, metering_corrector, metering_ops, metering_eraser;

GRANT EXECUTE ON FUNCTION
    metering.record_usage(text, text, numeric, text, timestamptz, jsonb, text),
    metering.record_usage_batch(jsonb),
    metering.usage_batch_problems(jsonb),
    metering.find_key(text, text),
    metering.find_conflicts(text, text)
    TO metering_writer;

GRANT EXECUTE ON FUNCTION
    metering.record_correction(text, text, numeric, text, text, text),
    metering.find_key(text, text),
    metering.find_conflicts(text, text)
    TO metering_corrector;

GRANT SELECT ON ALL TABLES IN SCHEMA metering TO metering_ops;
GRANT EXECUTE ON FUNCTION
    metering.find_key(text, text),
    metering.find_conflicts(text, text),
    metering.emit_canaries(uuid),
    metering.audit_minutes(timestamptz, timestamptz),
    metering.identities(timestamptz, timestamptz),
    metering.open_transactions(),
    metering.seal(timestamptz[]),
    metering.sealed_changes(timestamptz, timestamptz),
    metering.reemit(timestamptz, timestamptz, text),
    metering.maintain(integer, integer),
    metering.put_metric(text, integer, numeric, boolean),
    metering.set_shards(text, integer),
    metering.grow_partitions(integer),
    metering.erasable(text),
    metering.wire_time(timestamptz),
    metering.partition_of(text, integer),
    metering.murmur2(bytea)
    TO metering_ops;

GRANT EXECUTE ON FUNCTION
    metering.erasable(text),
    metering.erase_tenant(text, bigint, timestamptz)
    TO metering_eraser;

RESET ROLE;
