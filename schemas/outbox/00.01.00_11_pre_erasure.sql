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
