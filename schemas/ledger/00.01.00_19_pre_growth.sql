-- Growth: a topic that got more partitions in place. Each new partition is of a log of its own, which
-- remembers what one partition before it held; a person makes it known, as with any second log.
SET LOCAL ROLE ledger_owner;

-- Which partitions of which life of a topic a log is. Workers note the first count they serve, so
-- that a topic whose count was changed by hand is not taken for one that was always so large.
CREATE TABLE ledger.log_span (
    log_id uuid PRIMARY KEY REFERENCES ledger.log,
    -- The log that the topic's life began with.
    root_id uuid NOT NULL REFERENCES ledger.log,
    first_partition integer NOT NULL CHECK (first_partition >= 0),
    -- Of the topic, since this log.
    partitions integer NOT NULL CHECK (partitions > first_partition),
    -- By earlier partition: the offset from which on keys are at home by the new count.
    boundaries bigint[] NOT NULL DEFAULT '{}',
    noted_at timestamptz NOT NULL DEFAULT now(),
    noted_by text NOT NULL DEFAULT session_user,
    UNIQUE (root_id, first_partition),
    CHECK ((root_id = log_id) = (first_partition = 0)),
    CHECK (cardinality(boundaries) = first_partition AND 0 <= ALL (boundaries))
);
CREATE TRIGGER append_only BEFORE DELETE OR TRUNCATE ON ledger.log_span
    FOR EACH STATEMENT EXECUTE FUNCTION ledger.refuse_change();

-- Every log with the life it belongs to; a life of which no count was noted yet is a log alone.
CREATE VIEW ledger.log_life AS
    SELECT l.log_id, l.log_topic, l.first, l.opened_at, coalesce(s.root_id, l.log_id) AS root_id,
           coalesce(s.first_partition, 0) AS first_partition, s.partitions,
           coalesce(s.boundaries, '{}') AS boundaries
    FROM ledger.log AS l LEFT JOIN ledger.log_span AS s USING (log_id);

-- The logs that are followed now: of each topic all of the life that was opened last.
CREATE VIEW ledger.log_followed AS
    SELECT l.log_id, l.log_topic FROM ledger.log_life AS l
    JOIN (SELECT DISTINCT ON (log_topic) log_id FROM ledger.log_life WHERE root_id = log_id
          ORDER BY log_topic, opened_at DESC) AS latest ON latest.log_id = l.root_id;

-- Note how many partitions a topic has before it grows, where nobody did: whoever is interrupted then
-- leaves a ledger that does not take the new count for the first one.
CREATE FUNCTION ledger.note_partitions_v1(root uuid, present integer) RETURNS void
LANGUAGE sql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    INSERT INTO ledger.log_span (log_id, root_id, first_partition, partitions)
    VALUES (root, root, 0, present) ON CONFLICT DO NOTHING
$$;

-- Make a growth known. Done twice it says so; a ledger that was restored from before it is told of it
-- again in the same way.
CREATE FUNCTION ledger.grow_log_v1(
    root uuid, grown uuid, present integer, wanted integer, bounds bigint[], why text, who text
) RETURNS boolean
LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    topic text;
    noted integer;
BEGIN
    IF btrim(coalesce(why, '')) = '' THEN
        RAISE EXCEPTION 'reason: say why the topic grows' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    -- Of two at once one waits, and then finds it done.
    SELECT l.log_topic INTO topic FROM ledger.log AS l WHERE l.log_id = root FOR NO KEY UPDATE;
    IF topic IS NULL THEN
        RAISE EXCEPTION 'root: % is no log that this ledger follows', root
            USING ERRCODE = 'invalid_parameter_value', HINT = 'See `tailrace topics adopt`.';
    END IF;
    IF EXISTS (SELECT FROM ledger.log_span AS s WHERE s.log_id = grown) THEN
        RETURN false;
    END IF;
    SELECT max(s.partitions) INTO noted FROM ledger.log_span AS s WHERE s.root_id = root;
    IF noted = wanted AND NOT EXISTS (
        SELECT FROM ledger.log_span AS s WHERE s.root_id = root AND s.log_id <> root
        UNION ALL
        SELECT FROM ledger.position AS p WHERE p.log_id = root AND p.partition >= present
    ) THEN
        -- A ledger that had lost all of it was told by workers that the topic began so large.
        UPDATE ledger.log_span SET partitions = present WHERE log_id = root;
        noted := present;
    END IF;
    IF noted IS NULL THEN
        INSERT INTO ledger.log_span (log_id, root_id, first_partition, partitions)
        VALUES (root, root, 0, present);
    ELSIF noted <> present THEN
        RAISE EXCEPTION 'present: % partitions are noted of this topic, not %', noted, present
            USING ERRCODE = 'invalid_parameter_value';
    END IF;
    IF wanted <= present OR wanted % present <> 0 THEN
        RAISE EXCEPTION 'partitions: % is no whole multiple of %', wanted, present
            USING ERRCODE = 'invalid_parameter_value',
                  HINT = 'Each new partition takes over keys of one partition alone.';
    END IF;
    INSERT INTO ledger.log (log_id, log_topic, opened_by, reason) VALUES (grown, topic, session_user, why);
    INSERT INTO ledger.log_span (log_id, root_id, first_partition, partitions, boundaries)
    VALUES (grown, root, present, wanted, bounds);
    INSERT INTO ledger.audit_log (action, subject, actor, detail)
    VALUES ('grow_log', root::text, coalesce(who, session_user),
            jsonb_build_object('topic', topic, 'why', why, 'from', present, 'to', wanted,
                               'log_id', grown, 'boundaries', bounds));
    RETURN true;
END
$$;

GRANT SELECT ON ledger.log_span, ledger.log_life, ledger.log_followed TO ledger_reader;
GRANT INSERT ON ledger.log_span TO ledger_service;
REVOKE ALL ON FUNCTION
    ledger.note_partitions_v1(uuid, integer),
    ledger.grow_log_v1(uuid, uuid, integer, integer, bigint[], text, text) FROM PUBLIC;
GRANT EXECUTE ON FUNCTION
    ledger.note_partitions_v1(uuid, integer),
    ledger.grow_log_v1(uuid, uuid, integer, integer, bigint[], text, text)
    TO ledger_finance;

RESET ROLE;
