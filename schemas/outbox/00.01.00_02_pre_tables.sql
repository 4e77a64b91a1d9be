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
CREATE TRIGGER fixed BEFORE UPDATE OR DELETE ON metering.source
    FOR EACH ROW EXECUTE FUNCTION metering.refuse_change();
CREATE TRIGGER kept BEFORE TRUNCATE ON metering.source
    FOR EACH STATEMENT EXECUTE FUNCTION metering.refuse_change();

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
