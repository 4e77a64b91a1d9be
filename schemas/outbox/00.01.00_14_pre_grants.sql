-- Who may call what. Nobody but the owner touches a table; functions are closed unless named here.
SET LOCAL ROLE metering_owner;

ALTER DEFAULT PRIVILEGES FOR ROLE metering_owner REVOKE EXECUTE ON FUNCTIONS FROM PUBLIC;
REVOKE ALL ON ALL FUNCTIONS IN SCHEMA metering FROM PUBLIC;
REVOKE ALL ON ALL TABLES IN SCHEMA metering FROM PUBLIC;

GRANT USAGE ON SCHEMA metering TO metering_writer, metering_corrector, metering_ops, metering_eraser;

GRANT EXECUTE ON FUNCTION
    metering.record_usage(text, text, numeric, text, timestamptz, jsonb, text),
    metering.record_usage_batch(jsonb),
    metering.usage_batch_problems(jsonb),
    metering.find_key(text, text),
    metering.find_conflicts(text, text)
    TO metering_writer;

GRANT EXECUTE ON FUNCTION
    metering.record_correction(text, text, numeric, text, text, text),
    metering.find_key(text, text),
    metering.find_conflicts(text, text)
    TO metering_corrector;

GRANT SELECT ON ALL TABLES IN SCHEMA metering TO metering_ops;
GRANT EXECUTE ON FUNCTION
    metering.find_key(text, text),
    metering.find_conflicts(text, text),
    metering.emit_canaries(uuid),
    metering.audit_minutes(timestamptz, timestamptz),
    metering.identities(timestamptz, timestamptz),
    metering.open_transactions(),
    metering.seal(timestamptz[]),
    metering.sealed_changes(timestamptz, timestamptz),
    metering.reemit(timestamptz, timestamptz, text),
    metering.maintain(integer, integer),
    metering.put_metric(text, integer, numeric, boolean),
    metering.set_shards(text, integer),
    metering.erasable(text),
    metering.wire_time(timestamptz),
    metering.partition_of(text, integer),
    metering.murmur2(bytea)
    TO metering_ops;

GRANT EXECUTE ON FUNCTION
    metering.erasable(text),
    metering.erase_tenant(text, bigint, timestamptz)
    TO metering_eraser;

RESET ROLE;
