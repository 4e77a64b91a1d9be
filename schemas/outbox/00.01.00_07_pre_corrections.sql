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
