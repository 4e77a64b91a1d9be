-- Erasure: what a tenant's service wrote in words goes; amounts, identities and digests stay. It is
-- the one exception from append-only, and it has a name, a receipt and a role of its own.
SET LOCAL ROLE ledger_owner;

CREATE TABLE ledger.erasure (
    -- Its row in audit_log.
    receipt bigint PRIMARY KEY REFERENCES ledger.audit_log,
    tenant_id text NOT NULL CHECK (tenant_id <> ''),
    reason text NOT NULL CHECK (btrim(reason) <> ''),
    actor text NOT NULL DEFAULT session_user,
    erased_at timestamptz NOT NULL DEFAULT now(),
    -- Parked records that were reduced to what names them, and how long they were.
    records bigint NOT NULL,
    record_bytes bigint NOT NULL,
    -- Corrections whose reason the service wrote.
    entries bigint NOT NULL,
    -- Rows of the service's database that the same act replaces.
    source_rows bigint NOT NULL
);
CREATE INDEX erasure_tenant ON ledger.erasure (tenant_id, receipt);
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON ledger.erasure
    FOR EACH STATEMENT EXECUTE FUNCTION ledger.refuse_change();

ALTER TABLE ledger.parked ADD COLUMN erased_receipt bigint REFERENCES ledger.erasure;
COMMENT ON COLUMN ledger.parked.erased_receipt IS 'of the erasure that reduced its record to what names it';

-- What stands where words were.
CREATE FUNCTION ledger.erased_text(receipt bigint, erased_at timestamptz) RETURNS text
LANGUAGE sql STABLE PARALLEL SAFE
AS $$
    SELECT format('erased on %s (receipt %s)',
                  to_char(erased_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'), receipt)
$$;

-- Whether that stands there already.
CREATE FUNCTION ledger.is_erased(words text) RETURNS boolean
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$
    SELECT words ~ '^erased on \S+ \(receipt \d+\)$'
$$;

-- A record as the object it is; NULL where it is none, or cannot be read.
CREATE FUNCTION ledger.record_object(record bytea) RETURNS jsonb
LANGUAGE plpgsql STABLE PARALLEL SAFE
AS $$
DECLARE
    told jsonb;
BEGIN
    told := convert_from(record, 'UTF8')::jsonb;
    RETURN CASE WHEN jsonb_typeof(told) = 'object' THEN told END;
EXCEPTION
    WHEN data_exception OR program_limit_exceeded THEN
        RETURN NULL;
END
$$;

-- A record without what its service wrote in words. Of one that was understood everything that names
-- and counts it is left, of any other the names alone: its other members may hold anything.
CREATE FUNCTION ledger.erased_record(record bytea, understood boolean, mark text) RETURNS bytea
LANGUAGE sql STABLE PARALLEL SAFE
AS $$
    SELECT convert_to(
        (jsonb_build_object('erased', mark) || coalesce(jsonb_object_agg(m.key, m.value), '{}'))::text,
        'UTF8')
    FROM jsonb_each(coalesce(ledger.record_object(record), '{}')) AS m
    WHERE jsonb_typeof(m.value) IN ('string', 'number', 'boolean')
      AND octet_length(m.value::text) <= 1000
      AND (m.key IN ('source', 'tenant_id', 'event_id', 'event_key')
           OR understood AND m.key IN (
               'v', 'type', 'kafka_key', 'shard', 'metric', 'quantity', 'delta', 'occurred_at',
               'received_at', 'content', 'content_version', 'first_content', 'first_received_at',
               'target_event_id', 'review'))
$$;

-- Parked items whose record a tenant's service wrote: it says so itself, or a person has said it.
CREATE FUNCTION ledger.records_of(tenant text) RETURNS SETOF ledger.parked
LANGUAGE sql STABLE
AS $$
    SELECT p.* FROM ledger.parked p
    WHERE p.record IS NOT NULL
      AND (p.tenant_id = tenant
           OR p.tenant_id IS NULL AND ledger.record_object(p.record) ->> 'tenant_id' = tenant
           OR EXISTS (SELECT FROM ledger.skip_name n
                      WHERE n.tenant_id = tenant AND (n.log_id, n.partition, n.record_offset)
                          = (p.log_id, p.partition, p.record_offset)))
$$;

-- Corrections that a tenant's service recorded by itself: their reason and who stands for it are its
-- words. What a person approved has that person's.
CREATE FUNCTION ledger.told_corrections(tenant text) RETURNS SETOF ledger.meter_log
LANGUAGE sql STABLE
AS $$
    SELECT e.* FROM ledger.meter_log e
    WHERE e.tenant_id = tenant AND e.kind = 'correction' AND e.log_id IS NOT NULL
      AND NOT EXISTS (SELECT FROM ledger.decision d
                      WHERE d.entry_id = e.entry_id AND d.action = 'approve')
$$;

-- What an erasure would replace, and what it leaves.
CREATE FUNCTION ledger.erasable(
    tenant text, OUT records bigint, OUT record_bytes bigint, OUT entries bigint,
    OUT named bigint, OUT levels bigint, OUT amounts bigint, OUT decisions bigint
)
LANGUAGE sql STABLE
AS $$
    SELECT (SELECT count(*) FROM ledger.records_of(tenant) AS p WHERE p.erased_receipt IS NULL),
           (SELECT coalesce(sum(octet_length(p.record)), 0) FROM ledger.records_of(tenant) AS p
            WHERE p.erased_receipt IS NULL),
           (SELECT count(*) FROM ledger.told_corrections(tenant) AS e
            WHERE NOT ledger.is_erased(e.reason)),
           -- Nobody's records that have the tenant's name in them somewhere.
           (SELECT count(*) FROM ledger.parked p
            WHERE p.tenant_id IS NULL AND p.erased_receipt IS NULL
              AND position(convert_to(to_jsonb(tenant)::text, 'UTF8') IN p.record) > 0
              AND NOT EXISTS (SELECT FROM ledger.records_of(tenant) AS r
                              WHERE r.parked_id = p.parked_id)),
           (SELECT count(*) FROM ledger.level l WHERE l.tenant_id = tenant),
           (SELECT count(*) FROM ledger.meter_log e WHERE e.tenant_id = tenant),
           (SELECT count(*) FROM ledger.decision d
            LEFT JOIN ledger.parked p USING (parked_id)
            LEFT JOIN ledger.meter_log e ON e.entry_id = d.entry_id
            WHERE tenant IN (p.tenant_id, e.tenant_id))
$$;

-- What has to be settled before a tenant's words may go: a person, or Stripe, still needs them.
CREATE FUNCTION ledger.erasure_blockers(tenant text) RETURNS TABLE (what text, count bigint)
LANGUAGE sql STABLE
AS $$
    WITH own AS (
        SELECT DISTINCT x.meter_event_id FROM ledger.meter_log e
        JOIN ledger.meter_event_entry x ON x.entry_id = e.entry_id AND x.live
        WHERE e.tenant_id = tenant
    ), found (what, count) AS (
        SELECT 'parked_items', count(*) FROM ledger.parked p
        WHERE p.state = 'open'
          AND (p.tenant_id = tenant OR p.meter_event_id IN (SELECT o.meter_event_id FROM own o)
               OR p.parked_id IN (SELECT r.parked_id FROM ledger.records_of(tenant) AS r))
        UNION ALL SELECT 'open_windows', count(*) FROM ledger.level l
        WHERE l.tenant_id = tenant AND (l.due_at IS NOT NULL OR l.held)
        UNION ALL SELECT 'unsent_entries', count(*) FROM ledger.uncovered u
        WHERE u.tenant_id = tenant
        UNION ALL SELECT 'unsettled_requests', count(*) FROM own o
        JOIN ledger.meter_event m USING (meter_event_id)
        WHERE m.state IN ('pending', 'ambiguous')
        UNION ALL SELECT 'open_proposals', count(*) FROM ledger.proposal p
        WHERE p.tenant_id = tenant AND p.state = 'open')
    SELECT f.what, f.count FROM found f WHERE f.count > 0
$$;

-- An entry changes in one way only: an erasure of this very transaction takes its service's words.
CREATE FUNCTION ledger.guard_entry() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    IF OLD.kind = 'correction' AND OLD.log_id IS NOT NULL AND NEW.actor = 'erased'
       AND to_jsonb(NEW) - 'reason' - 'actor' = to_jsonb(OLD) - 'reason' - 'actor'
       AND EXISTS (SELECT FROM ledger.erasure e
                   WHERE e.tenant_id = OLD.tenant_id AND e.erased_at = now()
                     AND NEW.reason = ledger.erased_text(e.receipt, e.erased_at)) THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'ledger.meter_log: append-only, UPDATE refused'
        USING ERRCODE = 'restrict_violation',
              HINT = 'What was recorded is never changed; record a correction.';
END
$$;
CREATE TRIGGER erased_only BEFORE UPDATE ON ledger.meter_log
    FOR EACH ROW EXECUTE FUNCTION ledger.guard_entry();

-- Take a tenant's words out of the ledger. `source_rows`: what the service's database has of them,
-- replaced by the same act. Done twice it gives the first receipt and changes nothing.
CREATE FUNCTION ledger.erase_tenant_v1(tenant text, why text, source_rows bigint)
RETURNS TABLE (changed boolean, receipt bigint, erased_at timestamptz)
LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    blocked text;
    worded record;
    written bigint;
    mark text;
    done bigint;
BEGIN
    IF btrim(coalesce(why, '')) = '' THEN
        RAISE EXCEPTION 'reason: say who asked for it; the receipt keeps it'
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    PERFORM pg_advisory_xact_lock(ledger.correction_lock_key(tenant));
    SELECT string_agg(format('%s %s', b.count, replace(b.what, '_', ' ')), ', ') INTO blocked
    FROM ledger.erasure_blockers(tenant) AS b;
    IF blocked IS NOT NULL THEN
        RAISE EXCEPTION 'tenant: % is not settled yet: %', tenant, blocked
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = 'What to do first says `tailrace erase` without --yes.';
    END IF;
    SELECT * INTO worded FROM ledger.erasable(tenant);
    IF worded.records + worded.entries + source_rows = 0 THEN
        RETURN QUERY SELECT false, e.receipt, e.erased_at FROM ledger.erasure e
                     WHERE e.tenant_id = tenant ORDER BY e.receipt DESC LIMIT 1;
        IF FOUND THEN
            RETURN;
        END IF;
    END IF;
    INSERT INTO ledger.audit_log (action, subject, detail)
    VALUES ('erase_tenant', tenant,
            jsonb_build_object('why', why, 'records', worded.records,
                               'record_bytes', worded.record_bytes, 'entries', worded.entries,
                               'source_rows', source_rows))
    RETURNING audit_id INTO written;
    INSERT INTO ledger.erasure (receipt, tenant_id, reason, records, record_bytes, entries,
                                source_rows)
    VALUES (written, tenant, why, worded.records, worded.record_bytes, worded.entries, source_rows);
    mark := ledger.erased_text(written, now());
    UPDATE ledger.parked p
    SET record = ledger.erased_record(p.record, p.event_id IS NOT NULL, mark),
        erased_receipt = written
    WHERE p.erased_receipt IS NULL
      AND p.parked_id IN (SELECT r.parked_id FROM ledger.records_of(tenant) AS r);
    GET DIAGNOSTICS done = ROW_COUNT;
    IF done <> worded.records THEN
        RAISE EXCEPTION 'tenant: items of % came in meanwhile', tenant
            USING ERRCODE = 'serialization_failure';
    END IF;
    UPDATE ledger.meter_log e SET reason = mark, actor = 'erased'
    WHERE NOT ledger.is_erased(e.reason)
      AND e.entry_id IN (SELECT c.entry_id FROM ledger.told_corrections(tenant) AS c);
    GET DIAGNOSTICS done = ROW_COUNT;
    IF done <> worded.entries THEN
        RAISE EXCEPTION 'tenant: corrections of % came in meanwhile', tenant
            USING ERRCODE = 'serialization_failure';
    END IF;
    RETURN QUERY SELECT true, written, now();
END
$$;

REVOKE ALL ON FUNCTION ledger.erased_text(bigint, timestamptz), ledger.is_erased(text),
    ledger.record_object(bytea), ledger.erased_record(bytea, boolean, text), ledger.records_of(text),
    ledger.told_corrections(text), ledger.erasable(text), ledger.erasure_blockers(text),
    ledger.erase_tenant_v1(text, text, bigint) FROM PUBLIC;
GRANT SELECT ON ledger.erasure TO ledger_reader;
GRANT EXECUTE ON FUNCTION ledger.erased_text(bigint, timestamptz), ledger.is_erased(text),
    ledger.record_object(bytea), ledger.records_of(text), ledger.told_corrections(text), ledger.erasable(text),
    ledger.erasure_blockers(text)
    TO ledger_reader;
GRANT EXECUTE ON FUNCTION ledger.erase_tenant_v1(text, text, bigint) TO ledger_eraser;

RESET ROLE;
