-- Is this database the one the parameters describe, and is it whole?
DO $$
DECLARE
    v_source metering.source;
    v_asked integer := nullif(current_setting('tailrace.partitions', true), '');
    v_cdc record;
    v_wrong text;
BEGIN
    SELECT * INTO v_source FROM metering.source;
    IF v_source.source <> coalesce(nullif(current_setting('tailrace.source', true), ''), v_source.source) THEN
        RAISE EXCEPTION 'source: this database is % for ever, not %', v_source.source, current_setting('tailrace.source')
            USING ERRCODE = '22023', HINT = 'its identities are hashed with that name: install the other source into its own database';
    ELSIF v_asked <> v_source.partition_count THEN
        -- Files of a service's own migration tool go on naming the count they were written with.
        IF NOT EXISTS (SELECT FROM metering.growth AS g WHERE g.partitions_before = v_asked) THEN
            RAISE EXCEPTION 'partitions: this database has %, not %', v_source.partition_count, v_asked
                USING ERRCODE = '22023', HINT = format('give the count it has, TAILRACE_PARTITIONS=%s', v_source.partition_count)
                    || CASE WHEN v_asked > v_source.partition_count AND v_asked % v_source.partition_count = 0
                        THEN format('; where the topics have grown to %s, `tailrace source grow --partitions %1$s` tells it so', v_asked)
                        ELSE '' END;
        END IF;
    END IF;
    SELECT rolcanlogin AND rolreplication AS able, rolsuper OR rolcreaterole OR rolcreatedb OR rolbypassrls
        OR EXISTS (SELECT FROM pg_auth_members AS m WHERE m.member = r.oid) AS more
    INTO v_cdc FROM pg_roles AS r WHERE rolname = 'metering_cdc';
    IF NOT coalesce(v_cdc.able, false) THEN
        RAISE EXCEPTION 'metering_cdc: cannot log in and replicate'
            USING ERRCODE = '55000', HINT = 'run ALTER ROLE metering_cdc LOGIN REPLICATION';
    ELSIF v_cdc.more THEN
        RAISE EXCEPTION 'metering_cdc: may do more than read the WAL'
            USING ERRCODE = '55000', HINT = 'take its other attributes and memberships away';
    END IF;
    SELECT string_agg(t.tablename || '.' || t.schemaname, ', ') INTO v_wrong
    FROM pg_publication_tables AS t
    WHERE t.pubname = 'metering_outbox' AND (t.schemaname, t.tablename) <> ('metering', 'usage_outbox');
    IF v_wrong IS NOT NULL OR NOT EXISTS (
        SELECT FROM pg_publication AS p JOIN pg_publication_rel AS r ON r.prpubid = p.oid
        WHERE p.pubname = 'metering_outbox' AND r.prrelid = 'metering.usage_outbox'::regclass
          AND p.pubinsert AND p.pubviaroot AND NOT p.puballtables
          AND NOT (p.pubupdate OR p.pubdelete OR p.pubtruncate)) THEN
        RAISE EXCEPTION 'publication metering_outbox: must send inserts of metering.usage_outbox via its root, and nothing else'
            USING ERRCODE = '55000', HINT = 'drop it and run: CREATE PUBLICATION metering_outbox FOR TABLE metering.usage_outbox WITH (publish = ''insert'', publish_via_partition_root = true)';
    END IF;
END
$$;
