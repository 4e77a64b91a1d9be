-- Meters at Stripe that count wrongly or are not there: findings, kept by whichever worker looks.
SET LOCAL ROLE ledger_owner;

-- One look at Stripe's meters at a time, whichever worker looks.
CREATE TABLE ledger.meter_look (
    singleton boolean PRIMARY KEY DEFAULT true CHECK (singleton),
    claimed_at timestamptz NOT NULL
);

-- Not more often than told; NULL: not now. Gives the look its name.
CREATE FUNCTION ledger.claim_meters_v1(pause interval) RETURNS bigint
LANGUAGE sql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    INSERT INTO ledger.meter_look AS l (claimed_at) VALUES (clock_timestamp())
    ON CONFLICT (singleton) DO UPDATE SET claimed_at = clock_timestamp()
        WHERE l.claimed_at <= clock_timestamp() - pause
    RETURNING ledger.us(claimed_at)
$$;

-- Note what a look found, and clear what it did not find again; each change leaves its trace. False:
-- another look has begun since, and nothing is changed, for that one knows better.
CREATE FUNCTION ledger.note_meters_v1(look bigint, seen json) RETURNS boolean
LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM FROM ledger.meter_look l WHERE ledger.us(l.claimed_at) = look FOR UPDATE;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    WITH told AS (
        SELECT DISTINCT ON (kind, event_name) 'meter_' || kind AS kind, event_name AS subject, rule
        FROM json_to_recordset(seen) AS x(kind text, event_name text, rule text)
        ORDER BY kind, event_name, rule
    ), opened AS (
        INSERT INTO ledger.finding AS f (kind, subject, detail)
        SELECT t.kind, t.subject, jsonb_build_object('rule', t.rule) FROM told t
        ON CONFLICT (kind, subject) DO UPDATE
        SET detail = excluded.detail, cleared_at = NULL, cleared_by = NULL, why = NULL,
            found_at = CASE WHEN f.cleared_at IS NULL THEN f.found_at ELSE now() END
        WHERE f.cleared_at IS NOT NULL OR f.detail <> excluded.detail
        RETURNING f.kind, f.subject, f.detail
    ), closed AS (
        UPDATE ledger.finding f
        SET cleared_at = now(), cleared_by = session_user, why = 'not so any more'
        WHERE f.cleared_at IS NULL AND starts_with(f.kind, 'meter_')
          AND NOT EXISTS (SELECT FROM told t WHERE (t.kind, t.subject) = (f.kind, f.subject))
        RETURNING f.finding_id, f.kind, f.subject, f.why
    )
    INSERT INTO ledger.audit_log (action, subject, detail)
    SELECT kind, subject, detail FROM opened
    UNION ALL
    SELECT 'clear_finding', finding_id::text,
           jsonb_build_object('why', why, 'kind', kind, 'about', subject)
    FROM closed;
    RETURN true;
END
$$;

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA ledger FROM PUBLIC;
GRANT SELECT ON ledger.meter_look TO ledger_reader;
GRANT EXECUTE ON FUNCTION ledger.claim_meters_v1(interval), ledger.note_meters_v1(bigint, json)
    TO ledger_service;

RESET ROLE;
