-- What corrections are named by, and the queue they stand in.
SET LOCAL ROLE ledger_owner;

-- Length-prefixed text, so that no two lists of parts read the same.
CREATE FUNCTION ledger.lp(part text) RETURNS bytea
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$ SELECT int4send(octet_length(part)) || convert_to(part, 'UTF8') $$;

-- Whatever takes from a tenant's period holds this lock: two must not both fit into the same rest.
CREATE FUNCTION ledger.correction_lock_key(tenant text) RETURNS bigint
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$ SELECT hashtextextended('ledger.correct ' || tenant, 0) $$;

RESET ROLE;
