-- Growth: the topic got more partitions in place, by a whole multiple; canaries then go to each.
SET LOCAL ROLE metering_owner;

CREATE TABLE metering.growth (
    partitions integer PRIMARY KEY CHECK (partitions <= 1024),
    partitions_before integer NOT NULL UNIQUE,
    grown_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    grown_by text NOT NULL DEFAULT session_user,
    -- Else a new partition would take keys from several, and with them parts of several memories.
    CHECK (partitions > partitions_before AND partitions % partitions_before = 0)
);
COMMENT ON TABLE metering.growth IS 'Each time that the partitions became more: from how many, when, and by whom';
COMMENT ON COLUMN metering.source.partition_count IS 'of the topic; only metering.grow_partitions adds to it';

CREATE FUNCTION metering.only_grow() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM metering.growth AS g
            WHERE g.partitions_before = OLD.partition_count AND g.partitions = NEW.partition_count) THEN
        RAISE EXCEPTION '%.%.partition_count: only grows, by metering.grow_partitions', TG_TABLE_SCHEMA, TG_TABLE_NAME
            USING ERRCODE = '55000',
                  HINT = 'the canaries'' keys belong to the count: `tailrace source grow` changes both';
    END IF;
    RETURN NEW;
END
$$;

-- REPLACE, because DROP would wait for every transaction that records, and all others behind it.
CREATE OR REPLACE TRIGGER fixed BEFORE DELETE OR UPDATE OF singleton, source, slot_name, installed_at
    ON metering.source FOR EACH ROW EXECUTE FUNCTION metering.refuse_change();
CREATE TRIGGER grown BEFORE UPDATE OF partition_count
    ON metering.source FOR EACH ROW EXECUTE FUNCTION metering.only_grow();

CREATE FUNCTION metering.make_canary_keys() RETURNS void
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    v_count CONSTANT integer := (SELECT s.partition_count FROM metering.source AS s);
    v_lacking integer := v_count;
    v_key text;
BEGIN
    DELETE FROM metering.canary_key;
    FOR n IN 0 .. 200000 LOOP
        v_key := 'tailrace.canary.' || n;
        INSERT INTO metering.canary_key (partition, tenant_id)
        VALUES (metering.partition_of(v_key, v_count), v_key) ON CONFLICT DO NOTHING;
        IF FOUND THEN
            v_lacking := v_lacking - 1;
            EXIT WHEN v_lacking = 0;
        END IF;
    END LOOP;
    IF v_lacking > 0 THEN
        RAISE EXCEPTION 'partitions: no canary key found for one of %', v_count
            USING ERRCODE = '55000', HINT = 'use fewer partitions';
    END IF;
END
$$;

CREATE FUNCTION metering.grow_partitions(partitions integer)
RETURNS TABLE (action text, detail text)
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp SET lock_timeout = '10s'
AS $$
#variable_conflict use_variable
DECLARE
    v_count integer;
BEGIN
    IF partitions IS NULL OR partitions NOT BETWEEN 1 AND 1024 THEN
        PERFORM metering.refuse(ARRAY['partitions', 'must lie between 1 and 1024, is ' || coalesce(partitions::text, 'NULL'),
            'pass the count that the topics have now']);
    END IF;
    -- Whoever sends canaries has committed before, or waits and then reads the new keys.
    LOCK TABLE metering.canary_key IN ACCESS EXCLUSIVE MODE;
    SELECT s.partition_count INTO v_count FROM metering.source AS s;
    IF partitions = v_count THEN
        action := 'unchanged';
        detail := format('has %s partitions already', v_count);
    ELSIF partitions < v_count THEN
        PERFORM metering.refuse(ARRAY['partitions', format('must not be less than the %s there are, is %s', v_count, partitions),
            'partitions are never taken away: what they remember of identities lives with them']);
    ELSIF partitions % v_count <> 0 THEN
        PERFORM metering.refuse(ARRAY['partitions', format('must be a whole multiple of the %s there are, is %s', v_count, partitions),
            CASE WHEN v_count * 2 > 1024 THEN 'there is none up to 1024: these are all it can have'
                 ELSE format('pass %s, for example: each new partition then takes over keys of one alone', v_count * 2) END]);
    ELSE
        INSERT INTO metering.growth (partitions, partitions_before) VALUES (partitions, v_count);
        UPDATE metering.source SET partition_count = partitions;
        PERFORM metering.make_canary_keys();
        action := 'grown';
        detail := format('from %s to %s partitions, each with a canary key of its own', v_count, partitions);
    END IF;
    RETURN NEXT;
END
$$;
COMMENT ON FUNCTION metering.grow_partitions IS
'Tells the outbox that the topics have more partitions now, a whole multiple of those before: from then on canaries go to each. Nothing else of the outbox depends on the count. It cannot be taken back; the same count once more changes nothing and says so. Called by `tailrace source grow`, which looks at the topics first.';

GRANT SELECT ON metering.growth TO metering_ops;
GRANT EXECUTE ON FUNCTION metering.grow_partitions(integer) TO metering_ops;

RESET ROLE;
