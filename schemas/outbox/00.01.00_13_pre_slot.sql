-- transaction: none
-- The slot, before any writer is let in: so no row precedes it.
DO $$
DECLARE
    v_slot CONSTANT text := (SELECT s.slot_name FROM metering.source AS s);
    v_found record;
BEGIN
    SELECT s.plugin, s.database INTO v_found FROM pg_replication_slots AS s WHERE s.slot_name = v_slot;
    IF NOT FOUND THEN
        IF current_setting('server_version_num')::integer >= 170000 THEN
            -- A failover slot follows to a synchronised standby.
            EXECUTE format('SELECT pg_create_logical_replication_slot(%L, ''pgoutput'', false, false, true)', v_slot);
        ELSE
            EXECUTE format('SELECT pg_create_logical_replication_slot(%L, ''pgoutput'')', v_slot);
        END IF;
    ELSIF v_found.database IS DISTINCT FROM current_database() OR v_found.plugin <> 'pgoutput' THEN
        RAISE EXCEPTION 'slot: % belongs to database % and plugin %', v_slot, v_found.database, v_found.plugin
            USING ERRCODE = '55000',
                  HINT = 'slot names belong to the cluster: install with the parameter slot set to another name';
    END IF;
END
$$;
