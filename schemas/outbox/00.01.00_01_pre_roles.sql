-- Roles of the metering schema. Roles belong to the cluster, so a second database finds them made.
DO $$
DECLARE
    wanted record;
BEGIN
    IF current_setting('server_encoding') <> 'UTF8' THEN
        RAISE EXCEPTION 'server_encoding: must be UTF8, is %', current_setting('server_encoding')
            USING ERRCODE = '55000',
                  HINT = 'identities are hashes of UTF-8 bytes: create the database with ENCODING ''UTF8''';
    END IF;
    IF current_setting('server_version_num')::integer < 150000 THEN
        RAISE EXCEPTION 'server_version: must be 15 or newer, is %', current_setting('server_version')
            USING ERRCODE = '55000', HINT = 'upgrade PostgreSQL before installing';
    END IF;
    FOR wanted IN
        SELECT * FROM (VALUES
            ('metering_owner', 'NOLOGIN'),
            ('metering_writer', 'NOLOGIN'),
            ('metering_corrector', 'NOLOGIN'),
            ('metering_ops', 'NOLOGIN'),
            ('metering_eraser', 'NOLOGIN'),
            ('metering_cdc', 'LOGIN REPLICATION')) AS r (name, attributes)
    LOOP
        BEGIN
            EXECUTE format('CREATE ROLE %I %s', wanted.name, wanted.attributes);
        EXCEPTION
            WHEN duplicate_object OR unique_violation THEN NULL; -- made by another database's installation
        END;
    END LOOP;
    EXECUTE format('GRANT CONNECT ON DATABASE %I TO metering_cdc', current_database());
END
$$;

-- Names the transaction that holds a minute open, whoever runs it.
GRANT pg_read_all_stats TO metering_ops;

ALTER SCHEMA metering OWNER TO metering_owner;
ALTER TABLE metering.migration OWNER TO metering_owner;
COMMENT ON SCHEMA metering IS 'Usage recorded in the service''s own transactions; the only door is metering.record_usage and its companions';
COMMENT ON TABLE metering.migration IS 'Which schema migrations this database has, with their checksums';
