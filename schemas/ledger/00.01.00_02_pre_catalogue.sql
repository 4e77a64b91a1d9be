-- What the ledger knows beforehand: itself, its logs and sources, meters and customers.
SET LOCAL ROLE ledger_owner;

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

RESET ROLE;
