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
