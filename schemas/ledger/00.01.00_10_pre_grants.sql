-- Grants: the workers add, and change only what is no amount. Functions are for those who need them.
SET LOCAL ROLE ledger_owner;

REVOKE ALL ON ALL FUNCTIONS IN SCHEMA ledger FROM PUBLIC;
GRANT SELECT ON ALL TABLES IN SCHEMA ledger TO ledger_reader;

GRANT INSERT ON ledger.log, ledger.position, ledger.source, ledger.meter_version,
    ledger.level, ledger.cell, ledger.canary, ledger.canary_token, ledger.finding,
    ledger.meter_log, ledger.meter_event, ledger.meter_event_entry, ledger.attempt, ledger.parked,
    ledger.audit_log, ledger.sealed_minute
    TO ledger_service;
GRANT UPDATE (position, catalogue_hash, updated_at) ON ledger.position TO ledger_service;
GRANT UPDATE (count, total, digest, held, due_at, updated_at) ON ledger.level TO ledger_service;
GRANT UPDATE (count, digest, updated_at) ON ledger.cell TO ledger_service;
GRANT UPDATE (received_at, token, log_id, record_offset, arrived_at) ON ledger.canary
    TO ledger_service;
GRANT UPDATE (claimed_by, claimed_until, attempt_id, paused, pause_reason, next_due_at)
    ON ledger.lane TO ledger_service;
GRANT DELETE ON ledger.uncovered, ledger.canary_token TO ledger_service;
GRANT UPDATE (state, dead_kind, key_generation, attempts_used, first_attempt_at,
              possibly_executed, next_attempt_at, settled_at, superseded_by)
    ON ledger.meter_event TO ledger_service;
GRANT UPDATE (finished_at, outcome, http_status, code, message, request_id, cause)
    ON ledger.attempt TO ledger_service;
GRANT UPDATE (published_at) ON ledger.parked TO ledger_service;
GRANT UPDATE (system_identifier, timeline, registered_at, registered_by) ON ledger.source
    TO ledger_service;

GRANT EXECUTE ON FUNCTION ledger.us(timestamptz), ledger.at(bigint),
    ledger.interval_setting(text), ledger.period_edges(timestamptz, text, timestamptz),
    ledger.period_end(timestamptz, text, timestamptz),
    ledger.period_start(timestamptz, text, timestamptz),
    ledger.billing_deadline(timestamptz, text, interval, timestamptz)
    TO ledger_reader;
GRANT EXECUTE ON FUNCTION ledger.evidence(text), ledger.unknown_meter(text, integer),
    ledger.mapping_lock_key(),
    ledger.cut_entries_v1(integer), ledger.lock_lanes_v1(integer),
    ledger.merge_pending_v1(bigint[]), ledger.unfreeze(bigint[]), ledger.freeze_v1(json),
    ledger.lend_v1(bigint[], text, bigint), ledger.rest_lanes_v1(bigint[]),
    ledger.settle_v1(json),
    ledger.map_customer_v1(text, text, timestamptz, timestamptz, text, interval, text, text)
    TO ledger_service;
GRANT EXECUTE ON FUNCTION ledger.approve(bigint, text, text, text), ledger.reject(bigint, text),
    ledger.redrive(bigint, text, text), ledger.lift_halt(text, text),
    ledger.clear_finding(bigint, text), ledger.resume_lane(bigint, text), ledger.open_log(text, uuid, text),
    ledger.map_customer_v1(text, text, timestamptz, timestamptz, text, interval, text, text)
    TO ledger_finance;

RESET ROLE;
