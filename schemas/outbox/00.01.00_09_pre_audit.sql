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
