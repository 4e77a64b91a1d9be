-- What corrections are named by.
SET LOCAL ROLE ledger_owner;

-- Length-prefixed text, so that no two lists of parts read the same.
CREATE FUNCTION ledger.lp(part text) RETURNS bytea
LANGUAGE sql IMMUTABLE PARALLEL SAFE
AS $$ SELECT int4send(octet_length(part)) || convert_to(part, 'UTF8') $$;

RESET ROLE;
