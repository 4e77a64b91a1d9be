-- Where a decided amount goes, what a correction would do, and who must agree to it.
SET LOCAL ROLE ledger_owner;

INSERT INTO ledger.setting (name, value, meaning) VALUES
    ('correction_limit', '1000',
     'units that one person may correct alone, per tenant, metric and billing period'),
    ('doubt_resend', '22 hours 45 minutes',
     'how long a request in doubt may be redriven under its identifier: short of the workers'' fence');

-- What one person may not do alone: proposed by one login, decided by another.
CREATE TABLE ledger.proposal (
    proposal_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    tenant_id text NOT NULL,
    metric text NOT NULL,
    -- An instant of the window that is corrected.
    instant timestamptz NOT NULL,
    units bigint NOT NULL CHECK (units <> 0 AND abs(units) < 1000000000000000),
    correction_key text NOT NULL,
    target_event_id uuid,
    choice text CHECK (choice IN ('own', 'carry')),
    reason text NOT NULL CHECK (btrim(reason) <> ''),
    proposed_by text NOT NULL DEFAULT session_user,
    proposed_at timestamptz NOT NULL DEFAULT now(),
    state text NOT NULL DEFAULT 'open' CHECK (state IN ('open', 'approved', 'rejected')),
    decided_by text,
    decided_at timestamptz,
    why text,
    entry_id bigint REFERENCES ledger.meter_log,
    UNIQUE (tenant_id, correction_key),
    CHECK ((state = 'open') = (decided_by IS NULL)),
    CHECK ((state = 'approved') = (entry_id IS NOT NULL)),
    -- Four eyes, whatever the code says.
    CHECK (state <> 'approved' OR decided_by <> proposed_by)
);
CREATE INDEX proposal_entry ON ledger.proposal (entry_id) WHERE entry_id IS NOT NULL;
CREATE INDEX proposal_open ON ledger.proposal (proposal_id) WHERE state = 'open';

CREATE FUNCTION ledger.guard_proposal() RETURNS trigger
LANGUAGE plpgsql
AS $$
BEGIN
    IF OLD.state <> 'open'
       OR (NEW.proposal_id, NEW.tenant_id, NEW.metric, NEW.instant, NEW.units, NEW.correction_key,
           NEW.target_event_id, NEW.choice, NEW.reason, NEW.proposed_by, NEW.proposed_at)
          IS DISTINCT FROM
          (OLD.proposal_id, OLD.tenant_id, OLD.metric, OLD.instant, OLD.units, OLD.correction_key,
           OLD.target_event_id, OLD.choice, OLD.reason, OLD.proposed_by, OLD.proposed_at) THEN
        RAISE EXCEPTION 'ledger.proposal %: a proposal is decided once and never changed',
            OLD.proposal_id USING ERRCODE = 'restrict_violation',
            HINT = 'Propose another correction under a key of its own.';
    END IF;
    RETURN NEW;
END
$$;
CREATE TRIGGER once BEFORE UPDATE ON ledger.proposal
    FOR EACH ROW EXECUTE FUNCTION ledger.guard_proposal();
CREATE TRIGGER no_delete BEFORE DELETE OR TRUNCATE ON ledger.proposal
    FOR EACH STATEMENT EXECUTE FUNCTION ledger.refuse_change();

-- Where a person's amount for a window goes: into that window, or into the open period when the
-- window's own invoice is closed. Which of the two is never guessed: `problem` asks.
CREATE FUNCTION ledger.place_amount(
    tenant text, of_metric text, of_version integer, starts timestamptz, ends timestamptz,
    happened timestamptz, choice text,
    OUT problem text, OUT hint text, OUT version integer, OUT window_start timestamptz,
    OUT window_end timestamptz, OUT occurred_at timestamptz, OUT customer text,
    OUT deadline_at timestamptz, OUT own_deadline_at timestamptz, OUT closed boolean
)
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    own ledger.meter_version;
    present ledger.meter_version;
    payer ledger.customer;
    dated timestamptz;
BEGIN
    SELECT * INTO own FROM ledger.meter_version v
    WHERE v.metric = of_metric AND v.version = of_version;
    SELECT * INTO payer FROM ledger.customer c
    WHERE c.tenant_id = tenant AND c.effective_from <= starts
    ORDER BY c.effective_from DESC LIMIT 1;
    dated := CASE WHEN own.publish = 'event' THEN coalesce(happened, starts)
                  ELSE ends - interval '1 second' END;
    version := of_version;
    window_start := starts;
    window_end := ends;
    occurred_at := happened;
    customer := payer.customer;
    own_deadline_at := ledger.billing_deadline(payer.anchor, payer.billing_interval, payer.grace,
                                               dated);
    deadline_at := own_deadline_at;
    -- A day inside the 35 that Stripe allows, as every other amount keeps.
    closed := coalesce(own_deadline_at <= now(), false) OR dated < now() - interval '34 days';
    IF choice IS NOT NULL AND choice NOT IN ('own', 'carry') THEN
        problem := format('into: %s is neither own nor carry', choice);
    ELSIF closed AND choice IS NULL THEN
        problem := format('into: the window from %s reaches its own invoice no more%s', starts,
                          ' (the deadline was ' || own_deadline_at || ')');
        hint := 'Say which: own (its window, where the meter''s carry decides) or carry (the open period).';
    ELSIF choice = 'carry' AND NOT closed THEN
        problem := format('into: the invoice of the window from %s is still open', starts);
        hint := 'Leave the choice out: the amount belongs into its own window.';
    ELSIF choice = 'carry' THEN
        SELECT * INTO present FROM ledger.meter_version v
        WHERE v.metric = of_metric AND v.effective_from <= now()
        ORDER BY v.effective_from DESC LIMIT 1;
        window_start := ledger.at(ledger.us(now()) / present.window_us * present.window_us);
        window_end := window_start + present.window_us * interval '1 microsecond';
        version := present.version;
        SELECT * INTO payer FROM ledger.customer c
        WHERE c.tenant_id = tenant AND c.effective_from <= window_start
        ORDER BY c.effective_from DESC LIMIT 1;
        IF present.publish = 'event' THEN
            occurred_at := now();
        END IF;
        deadline_at := ledger.billing_deadline(
            payer.anchor, payer.billing_interval, payer.grace,
            coalesce(occurred_at, window_end - interval '1 second'));
        IF (present.scale, present.aggregation) IS DISTINCT FROM (own.scale, own.aggregation) THEN
            problem := format('into: %s counts in another unit now than in the window from %s',
                              of_metric, starts);
            hint := 'Use own, and correct the open period by hand.';
        ELSIF payer.customer IS DISTINCT FROM customer THEN
            problem := format('into: %s was billed to %s then and is to %s now', tenant,
                              coalesce(customer, 'nobody'), coalesce(payer.customer, 'nobody'));
            hint := 'Use own, and settle it with the former customer outside the open invoice.';
        END IF;
    END IF;
END
$$;

-- What one person may correct alone, in units: the metric's own setting, else the ledger's.
CREATE FUNCTION ledger.correction_limit(of_metric text) RETURNS bigint
LANGUAGE sql STABLE
AS $$
    SELECT value::bigint FROM ledger.setting
    WHERE name IN ('correction_limit', 'correction_limit.' || of_metric)
    ORDER BY length(name) DESC LIMIT 1
$$;

-- A billing period in which a person's amount falls: what it comes to, and what single persons
-- added to it by corrections. Many small ones are one large one.
CREATE FUNCTION ledger.period_standing(
    tenant text, of_metric text, in_window timestamptz,
    OUT period_from timestamptz, OUT period_to timestamptz, OUT units numeric,
    OUT alone_units numeric
)
LANGUAGE plpgsql STABLE
AS $$
DECLARE
    c ledger.customer;
BEGIN
    SELECT * INTO c FROM ledger.customer x
    WHERE x.tenant_id = tenant AND x.effective_from <= in_window
    ORDER BY x.effective_from DESC LIMIT 1;
    period_from := ledger.period_start(coalesce(c.anchor, ledger.at(0)),
                                       coalesce(c.billing_interval, 'month'), in_window);
    period_to := ledger.period_end(coalesce(c.anchor, ledger.at(0)),
                                   coalesce(c.billing_interval, 'month'), in_window);
    SELECT coalesce(sum(b.total + b.decided), 0) INTO units FROM ledger.balance b
    WHERE b.tenant_id = tenant AND b.metric = of_metric
      AND b.window_start >= period_standing.period_from
      AND b.window_start < period_standing.period_to;
    SELECT coalesce(sum(e.delta), 0) INTO alone_units FROM ledger.meter_log e
    WHERE e.kind = 'correction' AND e.tenant_id = tenant AND e.metric = of_metric
      AND e.window_start >= period_standing.period_from
      AND e.window_start < period_standing.period_to
      AND CASE WHEN e.log_id IS NULL
          THEN NOT EXISTS (SELECT FROM ledger.proposal p WHERE p.entry_id = e.entry_id)
          -- A service's own, let through by one person.
          ELSE EXISTS (SELECT FROM ledger.decision d
                       WHERE d.entry_id = e.entry_id AND d.action = 'approve'
                         AND NOT d.detail ? 'agreed_by') END;
END
$$;

-- Whether an amount is more than one person decides alone, beside what single persons did before.
CREATE FUNCTION ledger.needs_four_eyes(of_metric text, units numeric, alone_units numeric)
RETURNS boolean
LANGUAGE sql STABLE
AS $$
    SELECT greatest(abs(units), abs(units + alone_units)) > ledger.correction_limit(of_metric)
$$;

-- For the ledger's owner alone: whoever corrects does not choose from where on others must agree.
CREATE FUNCTION ledger.set_correction_limit(units bigint, of_metric text, reason text)
RETURNS boolean
LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    wanted text := 'correction_limit' || coalesce('.' || of_metric, '');
BEGIN
    IF units IS NULL OR units < 0 OR btrim(coalesce(reason, '')) = '' THEN
        RAISE EXCEPTION 'units, reason: a limit is 0 or more and needs a reason'
            USING ERRCODE = 'invalid_parameter_value';
    ELSIF of_metric IS NOT NULL AND NOT EXISTS (
            SELECT FROM ledger.meter_version v WHERE v.metric = of_metric) THEN
        RAISE EXCEPTION 'metric: % is in no version of the catalogue', of_metric
            USING ERRCODE = 'invalid_parameter_value';
    ELSIF EXISTS (SELECT FROM ledger.setting s WHERE s.name = wanted AND s.value = units::text) THEN
        RETURN false;
    END IF;
    INSERT INTO ledger.setting AS s (name, value, meaning)
    VALUES (wanted, units::text, format('units of %s that one person may correct alone, per tenant'
                                        ' and billing period', coalesce(of_metric, 'any metric')))
    ON CONFLICT (name) DO UPDATE
        SET value = excluded.value, changed_at = now(), changed_by = session_user;
    INSERT INTO ledger.audit_log (action, subject, detail)
    VALUES ('set_correction_limit', wanted, jsonb_build_object('units', units, 'why', reason));
    RETURN true;
END
$$;

-- What a correction would do; the very function that the act itself asks. Amounts in units.
-- `entry_id` and `proposal_id` are there when the key stands for this correction already, and
-- `problem` then is what a second one would meet.
CREATE FUNCTION ledger.plan_correction(
    tenant text, of_metric text, of_instant timestamptz, units bigint, correction_key text,
    choice text,
    OUT problem text, OUT hint text, OUT version integer, OUT scale integer, OUT event_name text,
    OUT customer text, OUT meant_start timestamptz, OUT window_start timestamptz,
    OUT window_end timestamptz, OUT occurred_at timestamptz, OUT deadline_at timestamptz,
    OUT own_deadline_at timestamptz, OUT closed boolean, OUT window_before numeric,
    OUT period_from timestamptz, OUT period_to timestamptz, OUT period_before numeric,
    OUT waiting_before numeric, OUT limit_units bigint, OUT alone_before numeric,
    OUT four_eyes boolean, OUT event_id uuid, OUT entry_id bigint, OUT proposal_id bigint
)
LANGUAGE plpgsql STABLE
AS $$
#variable_conflict use_column
DECLARE
    v ledger.meter_version;
    place record;
    standing record;
    known record;
BEGIN
    SELECT * INTO v FROM ledger.meter_version x
    WHERE x.metric = of_metric AND x.effective_from <= of_instant
    ORDER BY x.effective_from DESC LIMIT 1;
    IF v.metric IS NULL OR v.aggregation <> 'sum' THEN
        problem := format('metric: %s has no meter at %s that takes signed amounts', of_metric,
                          of_instant);
        RETURN;
    ELSIF units IS NULL OR units = 0 OR abs(units) >= 1000000000000000 THEN
        problem := 'delta: must have 1 to 15 digits and not be 0';
        RETURN;
    ELSIF of_instant > now() THEN
        problem := format('instant: %s lies in the future', of_instant);
        RETURN;
    ELSIF starts_with(correction_key, 'reversal of ') AND NOT EXISTS (
            SELECT FROM ledger.meter_log e
            WHERE e.kind = 'correction' AND e.tenant_id = tenant AND e.metric = of_metric
              AND e.reference = substr(correction_key, 13) AND e.delta = -units) THEN
        -- Else somebody's own key could make another correction irreversible.
        problem := 'key: one that begins with "reversal of" belongs to `tailrace correct reverse`';
        hint := 'Give this correction a key of its own.';
        RETURN;
    END IF;
    version := v.version;
    scale := v.scale;
    event_name := v.event_name;
    meant_start := ledger.at(ledger.us(of_instant) / v.window_us * v.window_us);
    event_id := encode(substring(sha256(ledger.lp('correction') || ledger.lp('ledger')
        || ledger.lp(tenant) || ledger.lp(correction_key)) FROM 1 FOR 16), 'hex')::uuid;

    SELECT e.entry_id, NULL::bigint AS proposal_id, e.metric, e.delta AS units,
           (d.detail ->> 'window_start_us')::bigint AS meant_us INTO known
    FROM ledger.meter_log e JOIN ledger.decision d USING (entry_id)
    WHERE e.kind = 'correction' AND e.event_id = plan_correction.event_id
      AND d.action = 'correct';
    IF known.entry_id IS NULL THEN
        SELECT NULL::bigint AS entry_id, p.proposal_id, p.metric, p.units,
               ledger.us(p.instant) / v.window_us * v.window_us AS meant_us INTO known
        FROM ledger.proposal p
        WHERE p.tenant_id = tenant AND p.correction_key = plan_correction.correction_key;
    END IF;
    IF known.metric IS NOT NULL
       AND (known.metric, known.units, known.meant_us)
           IS DISTINCT FROM (of_metric, units, ledger.us(meant_start)) THEN
        problem := format('key: %s stands for another correction already: %s of %s in the window'
                          ' from %s', correction_key, known.units, known.metric,
                          ledger.at(known.meant_us));
        hint := 'Give this correction a key of its own.';
        RETURN;
    END IF;
    entry_id := known.entry_id;
    proposal_id := known.proposal_id;

    SELECT * INTO place FROM ledger.place_amount(
        tenant, of_metric, v.version, meant_start,
        meant_start + v.window_us * interval '1 microsecond', of_instant, choice);
    version := place.version;
    customer := place.customer;
    window_start := place.window_start;
    window_end := place.window_end;
    occurred_at := place.occurred_at;
    deadline_at := place.deadline_at;
    own_deadline_at := place.own_deadline_at;
    closed := place.closed;
    SELECT * INTO standing FROM ledger.period_standing(tenant, of_metric, place.window_start);
    period_from := standing.period_from;
    period_to := standing.period_to;
    period_before := standing.units;
    alone_before := standing.alone_units;
    limit_units := ledger.correction_limit(of_metric);
    SELECT coalesce(sum(b.total + b.decided), 0), coalesce(sum(b.pending + b.held), 0)
    INTO window_before, waiting_before
    FROM ledger.balance b
    WHERE b.tenant_id = tenant AND b.metric = of_metric AND b.window_start = place.window_start;
    four_eyes := ledger.needs_four_eyes(of_metric, units, alone_before);
    IF place.problem IS NOT NULL THEN
        problem := place.problem;
        hint := place.hint;
    ELSIF units < 0 AND period_before + units < 0 THEN
        problem := format('delta: %s would make the period from %s negative', units, period_from);
        hint := format('At most -%s is possible.', greatest(period_before, 0));
    END IF;
END
$$;

-- The entry of a correction and its decision, in one transaction; a repetition gives the first one.
CREATE FUNCTION ledger.book_correction(
    tenant text, of_metric text, of_instant timestamptz, units bigint, correction_key text,
    why text, target uuid, choice text, proposed ledger.proposal
) RETURNS bigint
LANGUAGE plpgsql
AS $$
DECLARE
    plan record;
    made bigint;
BEGIN
    PERFORM ledger.check_correction(tenant, correction_key, why);
    SELECT * INTO plan
    FROM ledger.plan_correction(tenant, of_metric, of_instant, units, correction_key, choice);
    IF plan.entry_id IS NOT NULL THEN
        RETURN plan.entry_id;
    ELSIF plan.problem IS NOT NULL THEN
        RAISE EXCEPTION '%', plan.problem
            USING ERRCODE = 'invalid_parameter_value', HINT = coalesce(plan.hint, '');
    ELSIF plan.proposal_id IS DISTINCT FROM proposed.proposal_id THEN
        RAISE EXCEPTION 'key: % stands for proposal %', correction_key, plan.proposal_id
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = 'See `tailrace correct list --all`.';
    ELSIF plan.four_eyes AND proposed.proposal_id IS NULL THEN
        RAISE EXCEPTION 'delta: % is more than the % units that one person corrects alone', units,
            plan.limit_units USING ERRCODE = 'object_not_in_prerequisite_state',
            HINT = 'Propose it; another login approves.';
    END IF;
    INSERT INTO ledger.meter_log (kind, tenant_id, metric, catalogue_version, window_start,
        window_end, delta, event_id, occurred_at, target_event_id, reference, actor, reason)
    VALUES ('correction', tenant, of_metric, plan.version, plan.window_start, plan.window_end,
        units, plan.event_id, plan.occurred_at, target, correction_key, session_user, why)
    RETURNING entry_id INTO made;
    INSERT INTO ledger.decision (action, entry_id, reason, detail)
    VALUES ('correct', made, why, jsonb_strip_nulls(jsonb_build_object(
        'key', correction_key, 'units', units, 'window_start_us', ledger.us(plan.meant_start),
        'into', choice, 'proposal', proposed.proposal_id,
        'proposed_by', proposed.proposed_by)));
    RETURN made;
END
$$;

-- What every correction needs, and its place in the queue of its tenant.
CREATE FUNCTION ledger.check_correction(tenant text, correction_key text, why text) RETURNS void
LANGUAGE plpgsql
AS $$
BEGIN
    IF btrim(coalesce(why, '')) = '' OR btrim(coalesce(correction_key, '')) = ''
       OR octet_length(correction_key) > 200 OR correction_key ~ '[[:cntrl:]]' THEN
        RAISE EXCEPTION 'reason, key: a correction needs a reason and a key of its own'
            USING ERRCODE = 'invalid_parameter_value',
                  HINT = 'A key has at most 200 bytes and no control characters.';
    END IF;
    PERFORM pg_advisory_xact_lock(ledger.correction_lock_key(tenant));
END
$$;

-- Finance corrects: a signed entry of its own, never below zero for the period.
CREATE FUNCTION ledger.correct(
    tenant text, of_metric text, of_instant timestamptz, units bigint, correction_key text,
    why text, target uuid DEFAULT NULL, choice text DEFAULT NULL
) RETURNS bigint
LANGUAGE sql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
    SELECT ledger.book_correction(tenant, of_metric, of_instant, units, correction_key, why, target,
                                  choice, NULL)
$$;

-- Ask another login for a correction; a repetition gives the first proposal.
CREATE FUNCTION ledger.propose_correction(
    tenant text, of_metric text, of_instant timestamptz, units bigint, correction_key text,
    why text, target uuid DEFAULT NULL, choice text DEFAULT NULL
) RETURNS bigint
LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    plan record;
    made bigint;
BEGIN
    PERFORM ledger.check_correction(tenant, correction_key, why);
    SELECT * INTO plan
    FROM ledger.plan_correction(tenant, of_metric, of_instant, units, correction_key, choice);
    IF plan.proposal_id IS NOT NULL THEN
        RETURN plan.proposal_id;
    ELSIF plan.entry_id IS NOT NULL THEN
        RAISE EXCEPTION 'key: % stands for entry % already', correction_key, plan.entry_id
            USING ERRCODE = 'object_not_in_prerequisite_state', HINT = 'It needs no proposal.';
    ELSIF plan.problem IS NOT NULL THEN
        RAISE EXCEPTION '%', plan.problem
            USING ERRCODE = 'invalid_parameter_value', HINT = coalesce(plan.hint, '');
    END IF;
    INSERT INTO ledger.proposal (tenant_id, metric, instant, units, correction_key,
                                 target_event_id, choice, reason)
    VALUES (tenant, of_metric, of_instant, units, correction_key, target, choice, why)
    RETURNING proposal_id INTO made;
    INSERT INTO ledger.audit_log (action, subject, detail)
    VALUES ('propose_correction', made::text,
            jsonb_build_object('key', correction_key, 'units', units, 'why', why));
    RETURN made;
END
$$;

CREATE FUNCTION ledger.lock_open_proposal(wanted bigint, why text) RETURNS ledger.proposal
LANGUAGE plpgsql
AS $$
DECLARE
    p ledger.proposal;
BEGIN
    IF btrim(coalesce(why, '')) = '' THEN
        RAISE EXCEPTION 'reason: say why' USING ERRCODE = 'invalid_parameter_value';
    END IF;
    SELECT * INTO p FROM ledger.proposal q WHERE q.proposal_id = wanted FOR UPDATE;
    IF p.proposal_id IS NULL THEN
        RAISE EXCEPTION 'proposal: % does not exist', wanted
            USING ERRCODE = 'invalid_parameter_value', HINT = 'See `tailrace correct list`.';
    ELSIF p.state <> 'open' THEN
        RAISE EXCEPTION 'proposal: % is % already, by %', wanted, p.state, p.decided_by
            USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
    RETURN p;
END
$$;

-- The second pair of eyes. What has changed since the proposal is looked at afresh; `choice` is asked
-- where the window's invoice has closed since.
CREATE FUNCTION ledger.approve_proposal(wanted bigint, why text, choice text DEFAULT NULL)
RETURNS bigint
LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    p ledger.proposal := ledger.lock_open_proposal(wanted, why);
    made bigint;
BEGIN
    IF p.proposed_by = session_user THEN
        RAISE EXCEPTION 'proposal: % is your own, %', wanted, session_user
            USING ERRCODE = 'object_not_in_prerequisite_state',
                  HINT = 'Another login of finance approves it; yours can only reject it.';
    ELSIF choice <> p.choice THEN
        RAISE EXCEPTION 'into: % was proposed, by %', p.choice, p.proposed_by
            USING ERRCODE = 'invalid_parameter_value',
                  HINT = 'Leave --into out, or reject the proposal and propose another one.';
    END IF;
    made := ledger.book_correction(p.tenant_id, p.metric, p.instant, p.units, p.correction_key,
                                   p.reason, p.target_event_id, coalesce(p.choice, choice), p);
    UPDATE ledger.proposal q SET state = 'approved', decided_by = session_user, decided_at = now(),
        why = approve_proposal.why, entry_id = made WHERE q.proposal_id = wanted;
    RETURN made;
END
$$;

CREATE FUNCTION ledger.reject_proposal(wanted bigint, why text) RETURNS void
LANGUAGE plpgsql
SECURITY DEFINER SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    p ledger.proposal := ledger.lock_open_proposal(wanted, why);
BEGIN
    UPDATE ledger.proposal q SET state = 'rejected', decided_by = session_user, decided_at = now(),
        why = reject_proposal.why WHERE q.proposal_id = p.proposal_id;
    INSERT INTO ledger.audit_log (action, subject, detail)
    VALUES ('reject_proposal', wanted::text, jsonb_build_object('why', why));
END
$$;

-- Whether a dead meter event would be another request now: another payer, or another meter's name.
CREATE FUNCTION ledger.request_changed(m ledger.meter_event) RETURNS boolean
LANGUAGE sql STABLE
AS $$
    SELECT EXISTS (
        SELECT FROM ledger.meter_event_entry x JOIN ledger.meter_log e USING (entry_id)
        JOIN ledger.meter_version v ON v.metric = e.metric AND v.version = e.catalogue_version
        LEFT JOIN LATERAL (SELECT c.customer FROM ledger.customer c
                           WHERE c.tenant_id = e.tenant_id
                             AND c.effective_from <= e.window_start
                           ORDER BY c.effective_from DESC LIMIT 1) AS payer ON true
        WHERE x.meter_event_id = m.meter_event_id AND x.live
          AND (payer.customer, v.event_name) IS DISTINCT FROM (m.customer, m.event_name))
$$;

-- How a dead meter event would be sent again: `resend` the same request, also in doubt while Stripe
-- still knows its identifier; `supersede` it, because its entries would be another request now,
-- Stripe took it back, or the doubt about it was proven away; `doubtful` needs that proof; `too_old`
-- for Stripe under any identifier.
CREATE FUNCTION ledger.redrive_course(m ledger.meter_event, proof text) RETURNS text
LANGUAGE sql STABLE
AS $$
    SELECT CASE
        WHEN ledger.in_doubt(m) THEN CASE
            -- Whatever a person believes of it: the same identifier cannot count twice. One that
            -- Stripe took back is spent; of a ledger that went back another identifier may have
            -- counted the amount; and where Stripe answered of something else, the next duplicate
            -- would look like our own.
            WHEN m.rejected_at IS NULL AND NOT ledger.awaits_sums(m)
                 AND NOT EXISTS (SELECT FROM ledger.attempt a
                                 WHERE a.meter_event_id = m.meter_event_id
                                   AND a.outcome = 'Collision')
                 AND now() < m.first_attempt_at + ledger.interval_setting('doubt_resend')
                 AND NOT coalesce(m.deadline_at <= now(), false)
                 AND NOT ledger.request_changed(m) THEN 'resend'
            WHEN btrim(coalesce(proof, '')) = '' THEN 'doubtful'
            WHEN m.deadline_at <= now() THEN 'supersede'
            WHEN m.timestamp_s < extract(epoch FROM now() - interval '34 days') THEN 'too_old'
            ELSE 'supersede' END
        WHEN m.deadline_at <= now() THEN 'supersede'
        WHEN m.timestamp_s < extract(epoch FROM now() - interval '34 days') THEN 'too_old'
        WHEN m.rejected_at IS NOT NULL OR ledger.request_changed(m) THEN 'supersede'
        ELSE 'resend' END
$$;

GRANT SELECT ON ledger.proposal TO ledger_reader;
REVOKE ALL ON FUNCTION ledger.guard_proposal(),
    ledger.place_amount(text, text, integer, timestamptz, timestamptz, timestamptz, text),
    ledger.correction_limit(text), ledger.set_correction_limit(bigint, text, text),
    ledger.period_standing(text, text, timestamptz), ledger.needs_four_eyes(text, numeric, numeric),
    ledger.plan_correction(text, text, timestamptz, bigint, text, text),
    ledger.book_correction(text, text, timestamptz, bigint, text, text, uuid, text, ledger.proposal),
    ledger.check_correction(text, text, text),
    ledger.correct(text, text, timestamptz, bigint, text, text, uuid, text),
    ledger.propose_correction(text, text, timestamptz, bigint, text, text, uuid, text),
    ledger.lock_open_proposal(bigint, text), ledger.approve_proposal(bigint, text, text),
    ledger.reject_proposal(bigint, text), ledger.request_changed(ledger.meter_event),
    ledger.redrive_course(ledger.meter_event, text), ledger.in_doubt(ledger.meter_event),
    ledger.awaits_sums(ledger.meter_event)
    FROM PUBLIC;
GRANT EXECUTE ON FUNCTION
    ledger.place_amount(text, text, integer, timestamptz, timestamptz, timestamptz, text),
    ledger.correction_limit(text), ledger.lp(text),
    ledger.period_standing(text, text, timestamptz), ledger.needs_four_eyes(text, numeric, numeric),
    ledger.plan_correction(text, text, timestamptz, bigint, text, text),
    ledger.request_changed(ledger.meter_event), ledger.redrive_course(ledger.meter_event, text),
    ledger.in_doubt(ledger.meter_event), ledger.awaits_sums(ledger.meter_event)
    TO ledger_reader;
GRANT EXECUTE ON FUNCTION
    ledger.correct(text, text, timestamptz, bigint, text, text, uuid, text),
    ledger.propose_correction(text, text, timestamptz, bigint, text, text, uuid, text),
    ledger.approve_proposal(bigint, text, text), ledger.reject_proposal(bigint, text)
    TO ledger_finance;

RESET ROLE;
