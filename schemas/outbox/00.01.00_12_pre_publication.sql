-- Inserts of the outbox only: retention, deletes and every other table stay in Postgres.
CREATE PUBLICATION metering_outbox FOR TABLE metering.usage_outbox
    WITH (publish = 'insert', publish_via_partition_root = true);
