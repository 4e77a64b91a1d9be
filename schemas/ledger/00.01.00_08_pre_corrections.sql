-- Finance corrects: a signed entry of its own, never below zero for the period.
SET LOCAL ROLE ledger_owner;

-- Length-prefixed text, so that no two lists of parts read the same.
CREATE FUNCTION ledger.lp(part text) RETURNS bytea
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$ SELECT int4send(octet_length(part)) || convert_to(part, 'UTF8') $$;

CREATE FUNCTION ledger.correct(
    tenant text, of_metric text, of_instant timestamptz, units bigint, correction_key text,
    why text, target uuid DEFAULT NULL
) RETURNS bigint
LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v ledger.meter_version;
    c ledger.customer;
    starts timestamptz;
    ends timestamptz;
    period_to timestamptz;
    period_from timestamptz;
    present numeric;
    identity uuid := encode(substring(sha256(ledger.lp('correction') || ledger.lp('ledger')
        || ledger.lp(tenant) || ledger.lp(correction_key)) FROM 1 FOR 16), 'hex')::uuid;
    made bigint;
BEGIN
    IF btrim(coalesce(why, '')) = '' OR btrim(coalesce(correction_key, '')) = '' THEN
        RAISE EXCEPTION 'why, correction_key: a correction needs a reason and a key of its own'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    SELECT * INTO v FROM ledger.meter_version x
    WHERE x.metric = of_metric AND x.effective_from <= of_instant
    ORDER BY x.effective_from DESC LIMIT 1;
    IF v.metric IS NULL OR v.aggregation <> 'sum' THEN
        RAISE EXCEPTION 'metric: % has no meter at % that takes signed amounts', of_metric,
            of_instant USING ERRCODE = 'invalid_parameter_value';
    END IF;
    starts := ledger.at(ledger.us(of_instant) / v.window_us * v.window_us);
    ends := starts + v.window_us * interval '1 microsecond';
    SELECT * INTO c FROM ledger.customer x
    WHERE x.tenant_id = tenant AND x.effective_from <= starts
    ORDER BY x.effective_from DESC LIMIT 1;
    period_to := ledger.period_end(coalesce(c.anchor, ledger.at(0)),
                                   coalesce(c.billing_interval, 'month'), starts);
    period_from := period_to - CASE coalesce(c.billing_interval, 'month')
        WHEN 'day' THEN interval '1 day' WHEN 'week' THEN interval '7 days'
        WHEN 'month' THEN interval '1 month' ELSE interval '1 year' END;

    -- One correction of a tenant at a time: two must not both fit into the same rest.
    PERFORM pg_advisory_xact_lock(hashtextextended('ledger.correct ' || tenant, 0));
    SELECT coalesce(sum(b.total + b.decided), 0) INTO present FROM ledger.balance b
    WHERE b.tenant_id = tenant AND b.metric = of_metric
      AND b.window_start >= period_from AND b.window_start < period_to;
    IF units < 0 AND present + units < 0 THEN
        RAISE EXCEPTION 'units: % would make the period from % negative', units, period_from
            USING ERRCODE = 'invalid_parameter_value',
                  HINT = format('At most -%s is possible.', greatest(present, 0));
    END IF;

    INSERT INTO ledger.meter_log (kind, tenant_id, metric, catalogue_version, window_start,
        window_end, delta, event_id, occurred_at, target_event_id, reference, actor, reason)
    VALUES ('correction', tenant, of_metric, v.version, starts, ends, units, identity, of_instant,
        target, correction_key, session_user, why)
    RETURNING entry_id INTO made;
    INSERT INTO ledger.decision (action, entry_id, reason, detail)
    VALUES ('correct', made, why, jsonb_build_object('key', correction_key, 'units', units));
    RETURN made;
END
$$;

RESET ROLE;
