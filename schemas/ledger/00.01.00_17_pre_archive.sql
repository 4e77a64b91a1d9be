-- Accepted usage that is kept outside Kafka, by the day on which it was received.
SET LOCAL ROLE ledger_owner;

-- What the file of a day must be, for ever. Written after the file was read back.
CREATE TABLE ledger.archived_day (
    day date PRIMARY KEY,
    -- Below the archive's folder.
    path text NOT NULL CHECK (path <> ''),
    rows bigint NOT NULL CHECK (rows > 0),
    -- Usage among the rows; the others are corrections.
    events bigint NOT NULL CHECK (events BETWEEN 0 AND rows),
    -- Sum of the usage's contents modulo 2^128: what the day's cells say.
    digest numeric NOT NULL,
    bytes bigint NOT NULL,
    sha256 text NOT NULL CHECK (sha256 ~ '^[0-9a-f]{64}$'),
    actor text NOT NULL DEFAULT session_user,
    archived_at timestamptz NOT NULL DEFAULT now()
);
CREATE TRIGGER append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON ledger.archived_day
    FOR EACH STATEMENT EXECUTE FUNCTION ledger.refuse_change();

-- Days that are over, with what their cells say, how many minutes no audit has sealed yet, and
-- whether they are archived.
CREATE VIEW ledger.archive_state AS
SELECT date_trunc('day', c.minute, 'UTC') AS begins_at,
       coalesce(sum(c.count) FILTER (WHERE c.verdict_class = 'accepted'), 0)::bigint AS events,
       coalesce(sum(c.count) FILTER (WHERE c.verdict_class = 'correction'), 0)::bigint
           AS corrections,
       coalesce(sum(c.digest) FILTER (WHERE c.verdict_class = 'accepted'), 0)
           % 340282366920938463463374607431768211456 AS digest,
       count(DISTINCT (c.source, c.minute)) FILTER (WHERE s.minute IS NULL)::bigint AS unsealed,
       bool_or(a.day IS NOT NULL) AS archived
FROM ledger.cell c
LEFT JOIN ledger.sealed_minute s ON s.source = c.source AND s.minute = c.minute
LEFT JOIN ledger.archived_day a
    ON a.day = (date_trunc('day', c.minute, 'UTC') AT TIME ZONE 'UTC')::date
WHERE c.verdict_class <> 'canary'
  AND date_trunc('day', c.minute, 'UTC') + interval '1 day' <= now()
GROUP BY 1;

-- Note the file of a day. Done twice it changes nothing; another file of the same day is refused.
CREATE FUNCTION ledger.note_archived_v1(
    of_day date, file text, row_count bigint, usage_count bigint, contents numeric, size bigint,
    hash text
) RETURNS boolean
LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    INSERT INTO ledger.archived_day (day, path, rows, events, digest, bytes, sha256)
    VALUES (of_day, file, row_count, usage_count, contents, size, hash)
    ON CONFLICT (day) DO NOTHING;
    IF FOUND THEN
        RETURN true;
    END IF;
    IF EXISTS (SELECT FROM ledger.archived_day d WHERE d.day = of_day AND d.sha256 <> hash) THEN
        RAISE EXCEPTION 'day: % is archived already, in another file', of_day
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = 'See `tailrace archive check`.';
    END IF;
    RETURN false;
END
$$;

REVOKE ALL ON FUNCTION
    ledger.note_archived_v1(date, text, bigint, bigint, numeric, bigint, text) FROM PUBLIC;
GRANT SELECT ON ledger.archived_day, ledger.archive_state TO ledger_reader;
GRANT EXECUTE ON FUNCTION
    ledger.note_archived_v1(date, text, bigint, bigint, numeric, bigint, text)
    TO ledger_service, ledger_finance;

RESET ROLE;
