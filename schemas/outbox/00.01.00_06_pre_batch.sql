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
