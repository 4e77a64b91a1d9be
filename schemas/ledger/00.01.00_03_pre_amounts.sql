-- What the workers report, and the amounts that follow from it.
SET LOCAL ROLE ledger_owner;

-- For a meter version that the ledger does not have: a statement that needs it ends here.
CREATE FUNCTION ledger.unknown_meter(metric text, version integer) RETURNS bigint
LANGUAGE plpgsql
AS $$
BEGIN
    RAISE EXCEPTION 'catalogue_version: version % of meter % is not in this ledger', version, metric
        USING ERRCODE = 'foreign_key_violation',
              HINT = 'The worker judges by another catalogue: was the ledger restored or exchanged?';
END
$$;

-- A series' reading: the one with the greatest count in its log.
CREATE TABLE ledger.level (
    tenant_id text NOT NULL,
    metric text NOT NULL,
    catalogue_version integer NOT NULL,
    window_start timestamptz NOT NULL,
    window_end timestamptz NOT NULL,
    shard integer NOT NULL,
    log_id uuid NOT NULL,
    partition integer NOT NULL,
    birth_offset bigint NOT NULL,
    count bigint NOT NULL CHECK (count > 0),
    total numeric NOT NULL,
    digest numeric NOT NULL,
    -- Readings contradicted each other: nothing more is cut until a person has looked.
    held boolean NOT NULL DEFAULT false,
    -- When the next entry is to be cut; NULL: the entries say what the level says.
    due_at timestamptz,
    updated_at timestamptz NOT NULL,
    -- No foreign keys: they double the cost of a row. The statement that writes levels checks the
    -- meter version, and the position row of the same transaction the log.
    PRIMARY KEY (tenant_id, metric, window_start, catalogue_version, shard, log_id),
    CHECK (window_end > window_start)
) WITH (fillfactor = 70); -- open windows are rewritten every second: leave room on the page
CREATE INDEX level_due ON ledger.level (due_at) WHERE due_at IS NOT NULL AND NOT held;

-- Identities of a source and minute by verdict class: what the audit compares with the registry.
CREATE TABLE ledger.cell (
    source text NOT NULL,
    minute timestamptz NOT NULL,
    verdict_class text NOT NULL,
    log_id uuid NOT NULL,
    partition integer NOT NULL,
    birth_offset bigint NOT NULL,
    count bigint NOT NULL CHECK (count > 0),
    digest numeric NOT NULL,
    updated_at timestamptz NOT NULL,
    PRIMARY KEY (source, minute, verdict_class, log_id, partition)
) WITH (fillfactor = 70);

-- The youngest canary of each partition: its age says whether the whole path is alive.
CREATE TABLE ledger.canary (
    source text NOT NULL,
    partition integer NOT NULL,
    received_at timestamptz NOT NULL,
    token text NOT NULL,
    log_id uuid NOT NULL,
    record_offset bigint NOT NULL,
    arrived_at timestamptz NOT NULL,
    PRIMARY KEY (source, partition)
) WITH (fillfactor = 50);

-- Single canaries, so that an audit can wait for its own.
CREATE TABLE ledger.canary_token (
    source text NOT NULL,
    token text NOT NULL,
    partition integer NOT NULL,
    received_at timestamptz NOT NULL,
    arrived_at timestamptz NOT NULL,
    PRIMARY KEY (source, token, partition)
);
CREATE INDEX canary_token_arrived ON ledger.canary_token (arrived_at);

-- Facts that contradict what is recorded; each is a person's matter.
CREATE TABLE ledger.finding (
    finding_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind text NOT NULL,
    subject text NOT NULL,
    detail jsonb NOT NULL,
    found_at timestamptz NOT NULL DEFAULT now(),
    cleared_at timestamptz,
    cleared_by text,
    why text,
    UNIQUE (kind, subject)
);

-- Entries: signed amounts in the meter's units. Never changed, never removed.
CREATE TABLE ledger.meter_log (
    entry_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    kind text NOT NULL
        CHECK (kind IN ('usage', 'event', 'approval', 'correction', 'carry', 'adoption')),
    tenant_id text NOT NULL,
    metric text NOT NULL,
    catalogue_version integer NOT NULL,
    window_start timestamptz NOT NULL,
    window_end timestamptz NOT NULL,
    shard integer NOT NULL DEFAULT 0,
    log_id uuid,
    partition integer,
    record_offset bigint,
    revision integer,
    delta bigint NOT NULL CHECK (abs(delta) < 1000000000000000),
    event_id uuid,
    content numeric,
    occurred_at timestamptz,
    level_count bigint,
    -- Sum of this series' deltas up to and including this one.
    level_total numeric,
    target_event_id uuid,
    reference text,
    actor text NOT NULL DEFAULT session_user,
    reason text,
    created_at timestamptz NOT NULL DEFAULT now(),
    FOREIGN KEY (metric, catalogue_version) REFERENCES ledger.meter_version,
    CHECK ((kind = 'usage') = (event_id IS NULL)),
    CHECK (kind <> 'usage' OR (revision IS NOT NULL AND level_count IS NOT NULL
                               AND level_total IS NOT NULL AND log_id IS NOT NULL)),
    CHECK (kind IN ('usage', 'event') OR reason IS NOT NULL)
);
CREATE UNIQUE INDEX meter_log_revision ON ledger.meter_log
    (tenant_id, metric, window_start, catalogue_version, shard, log_id, revision)
    WHERE kind = 'usage';
CREATE UNIQUE INDEX meter_log_event ON ledger.meter_log (kind, event_id) WHERE kind <> 'usage';
CREATE INDEX meter_log_identity ON ledger.meter_log (event_id) WHERE event_id IS NOT NULL;
CREATE INDEX meter_log_window ON ledger.meter_log (tenant_id, metric, window_start);
-- Updates have a guard of their own, which lets an erasure through and nothing else.
CREATE TRIGGER append_only BEFORE DELETE OR TRUNCATE ON ledger.meter_log
    FOR EACH STATEMENT EXECUTE FUNCTION ledger.refuse_change();

-- Cut the next entries of up to `most` series that are due. Two at a time share the work.
-- Locking and reading are two statements on purpose: the second sees what whoever held the row
-- before us has cut, and UNIQUE (series, revision) is the last guard.
CREATE FUNCTION ledger.cut_entries_v1(most integer) RETURNS integer
LANGUAGE plpgsql
AS $$
DECLARE
    rows tid[];
    made integer;
BEGIN
    SELECT array_agg(due.ctid) INTO rows
    FROM (SELECT l.ctid FROM ledger.level l
          WHERE l.due_at <= now() AND NOT l.held
          ORDER BY l.due_at LIMIT most
          FOR NO KEY UPDATE SKIP LOCKED) AS due;
    IF rows IS NULL THEN
        RETURN 0;
    END IF;

    WITH next AS (
        SELECT l.*, coalesce(last.revision, 0) + 1 AS revision,
               coalesce(last.level_total, 0) AS base,
               -- One request carries at most 15 digits; the rest follows with the next revision.
               greatest(least(l.total - coalesce(last.level_total, 0), 999999999999999),
                        -999999999999999) AS delta
        FROM ledger.level l
        LEFT JOIN LATERAL (
            SELECT e.revision, e.level_total FROM ledger.meter_log e
            WHERE e.kind = 'usage' AND e.tenant_id = l.tenant_id AND e.metric = l.metric
              AND e.window_start = l.window_start AND e.shard = l.shard AND e.log_id = l.log_id
              AND e.catalogue_version = l.catalogue_version
            ORDER BY e.revision DESC LIMIT 1) AS last ON true
        WHERE l.ctid = ANY (rows)
    )
    INSERT INTO ledger.meter_log (kind, tenant_id, metric, catalogue_version, window_start,
        window_end, shard, log_id, partition, revision, delta, level_count, level_total)
    SELECT 'usage', tenant_id, metric, catalogue_version, window_start, window_end, shard, log_id,
           partition, revision, delta, count, base + delta
    FROM next WHERE delta <> 0;
    GET DIAGNOSTICS made = ROW_COUNT;

    UPDATE ledger.level l SET due_at = NULL
    WHERE l.ctid = ANY (rows)
      AND l.total = coalesce((
            SELECT e.level_total FROM ledger.meter_log e
            WHERE e.kind = 'usage' AND e.tenant_id = l.tenant_id AND e.metric = l.metric
              AND e.window_start = l.window_start AND e.shard = l.shard AND e.log_id = l.log_id
              AND e.catalogue_version = l.catalogue_version
            ORDER BY e.revision DESC LIMIT 1), 0);
    RETURN made;
END
$$;

RESET ROLE;
