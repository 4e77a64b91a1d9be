-- Who may do what in the ledger. Roles belong to the cluster, so they may exist already.
--   ledger_owner    owns every object; nobody logs in as it
--   ledger_service  the workers: add facts, cut entries, freeze and settle; change no amount
--   ledger_finance  people: decide on parked items and correct, through functions only
--   ledger_reader   analysts and dashboards: read everything
--   ledger_eraser   who may take a tenant's text out of the ledger; nobody is a member from the start
DO $$
DECLARE
    wanted text;
BEGIN
    FOREACH wanted IN ARRAY ARRAY['ledger_owner', 'ledger_service', 'ledger_finance', 'ledger_reader',
                                  'ledger_eraser']
    LOOP
        IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = wanted) THEN
            EXECUTE format('CREATE ROLE %I NOLOGIN', wanted);
        END IF;
    END LOOP;
EXCEPTION
    -- Two databases of one cluster may be installed at the same time.
    WHEN duplicate_object OR unique_violation THEN NULL;
END
$$;

ALTER SCHEMA ledger OWNER TO ledger_owner;
ALTER TABLE ledger.migration OWNER TO ledger_owner;
GRANT USAGE ON SCHEMA ledger TO ledger_service, ledger_finance, ledger_reader, ledger_eraser;
GRANT ledger_reader TO ledger_service, ledger_finance, ledger_eraser;

SET LOCAL ROLE ledger_owner;

-- Instants cross the border to the workers as integer microseconds: no float, no time zone.
CREATE FUNCTION ledger.us(at timestamptz) RETURNS bigint
LANGUAGE sql STABLE PARALLEL SAFE
AS $$ SELECT (extract(epoch FROM at) * 1000000)::bigint $$;

-- In two steps, because an interval is multiplied in floating point: exact in every year.
CREATE FUNCTION ledger.at(us bigint) RETURNS timestamptz
LANGUAGE sql STABLE PARALLEL SAFE
AS $$
    SELECT timestamptz '1970-01-01 00:00:00+00' + us / 1000000 * interval '1 second'
           + us % 1000000 * interval '1 microsecond'
$$;

-- Evidence may hold what jsonb cannot (an escaped NUL, a number beyond numeric): it is kept as
-- text then, because a record nobody can store would stop its whole partition.
CREATE FUNCTION ledger.evidence(raw text) RETURNS jsonb
LANGUAGE plpgsql STABLE PARALLEL SAFE
AS $$
BEGIN
    RETURN raw::jsonb;
EXCEPTION
    WHEN data_exception OR program_limit_exceeded THEN
        RETURN jsonb_build_object('text', raw);
END
$$;

CREATE FUNCTION ledger.refuse_change() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    RAISE EXCEPTION '%.%: append-only, % refused', TG_TABLE_SCHEMA, TG_TABLE_NAME, TG_OP
        USING ERRCODE = 'restrict_violation',
              HINT = 'What was recorded is never changed; record a correction or a next version.';
END
$$;

RESET ROLE;
