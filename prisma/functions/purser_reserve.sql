-- Decides on a payment and reserves its budget, in one round trip and under the agent's row lock. A dry run decides without
-- lock and writes nothing.
--
-- The rolling window: agents.window_sum is the sum of the counted payments newer than agents.window_tail_at. A decision moves
-- the tail to exactly 24 hours ago and subtracts the payments it passes, so each payment is read once when it leaves, however
-- many the window holds; after a long pause whole sums are passed at once. Other windows (an hour, a week, a month, a payee's
-- day) are read where a limit needs them, in the same way (purser_window). When a refused amount will fit is computed
-- afterwards, without the lock (purser_release_times).
--
-- A refusal by a rule of the owner's is lifted by the owner's permit for this one call (purser_permit). The permit lifts
-- nothing else.
--
-- p_request has the members that are read first; nullable members may be missing.
-- outcome: reserved | blocked | allowed (dry run) | denied (dry run) | replay | running | key_reused | canceled | unauthorized
-- | moved (code has the cell and response its address) | clock_apart | held | busy (another payment has the channel)
-- | balance_needed (the channel needs a deposit, and the wallet's balance was not given) | not_found.
CREATE FUNCTION purser_reserve(p_request JSONB) RETURNS TABLE (
  outcome TEXT, code TEXT, payment_id TEXT, valid_before BIGINT, decided_at TIMESTAMPTZ, snapshot JSONB,
  status_code INTEGER, response TEXT
) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
  ask RECORD;
  v_agent agents%ROWTYPE;
  v_payee allowlist_entries%ROWTYPE;
  v_refusal TEXT;
  -- Null where the payee may be paid and the agent is not restricted to its sites.
  v_site JSONB;
  v_key idempotency_keys%ROWTYPE;
  v_now TIMESTAMPTZ;
  v_edge TIMESTAMPTZ;
  v_freed NUMERIC;
  v_sum NUMERIC;
  -- Null where no limit needs them.
  v_hour spending_windows%ROWTYPE;
  v_payee_day spending_windows%ROWTYPE;
  v_week spending_windows%ROWTYPE;
  v_month spending_windows%ROWTYPE;
  v_windows spending_windows[];
  v_open RECORD;
  v_allowed BOOLEAN;
  v_permit approvals%ROWTYPE;
  v_expired BOOLEAN;
  v_key_code TEXT;
  v_denial_key UUID;
  v_hour_start TIMESTAMPTZ;
  v_gas JSONB;
  -- A payment through a channel (purser_channel). Otherwise the growth is the amount.
  v_through RECORD;
  v_growth NUMERIC;
  v_channel JSONB := '{}';
  -- The rule that pauses the agent with this decision or did so before, and what it compared.
  v_paused_by TEXT;
  v_paused_facts JSONB;
  -- The rule that pauses it after a refusal for another reason.
  v_pauses TEXT;
  v_failures BIGINT;
  v_usual NUMERIC;
  -- Set where purser_price_before needs this payment.
  v_priced_site TEXT;
  v_price_before NUMERIC;
  v_closed BOOLEAN;
  -- The agent's budgets. Null: it has none, or is refused before they are read.
  v_budget_windows spending_windows[];
  v_budget_limit NUMERIC;
  v_budget_used NUMERIC;
  v_budget_facts JSONB;
  -- The task that the call names. Null: it names none.
  v_task tasks%ROWTYPE;
  v_task_state TEXT;
BEGIN
  SELECT * INTO ask FROM jsonb_to_record(p_request) AS j (
    agent_id TEXT, payment_id TEXT, api_key_id TEXT, kind TEXT, chain_id BIGINT, asset TEXT, payee TEXT, site TEXT,
    amount NUMERIC, max_amount NUMERIC, refusal TEXT, nonce TEXT, prescribed BOOLEAN, valid_seconds INTEGER,
    balance NUMERIC, balance_block BIGINT, request_id TEXT, memo TEXT, url TEXT, listing_id TEXT,
    requirement JSONB, route TEXT, key TEXT, body_hash BYTEA, joins BOOLEAN, heard TEXT, is_maximum BOOLEAN,
    call TEXT, dry_run BOOLEAN, head_time BIGINT, gas_hold NUMERIC,
    gas_floor NUMERIC, channel JSONB, deposit_id TEXT, busy_seconds INTEGER, task TEXT);
  IF ask.dry_run THEN
    SELECT * INTO v_agent FROM agents a WHERE a.id = ask.agent_id;
  ELSE
    SELECT * INTO v_agent FROM agents a WHERE a.id = ask.agent_id FOR UPDATE;
  END IF;
  IF NOT FOUND THEN
    outcome := 'not_found';
    RETURN NEXT;
    RETURN;
  END IF;
  -- A move to another cell marks the owner and then waits for the lock of each agent: this is before it, or sees the mark.
  SELECT o.moved_to, o.moved_url INTO code, response FROM owners o WHERE o.id = v_agent.owner_id AND o.moved_to IS NOT NULL;
  IF FOUND THEN
    outcome := 'moved';
    RETURN NEXT;
    RETURN;
  END IF;
  -- A cancellation takes the agent's lock too, so it is before or after this transaction, never in between.
  IF ask.call IS NOT NULL AND NOT ask.dry_run
     AND EXISTS (SELECT 1 FROM canceled_calls c WHERE c.agent_id = ask.agent_id AND c.call = ask.call) THEN
    outcome := 'canceled';
    RETURN NEXT;
    RETURN;
  END IF;
  -- The agent's lock also serializes its idempotency keys. An identical call without a key joins the earlier call, unless
  -- that one's response was sent before this call arrived: the caller decides that, by the arrival time at its process.
  IF ask.key IS NOT NULL AND NOT ask.dry_run THEN
    IF ask.joins THEN
      SELECT * INTO v_key FROM purser_joinable(ask.agent_id, ask.route, ask.body_hash) j
       WHERE j.key IS DISTINCT FROM ask.heard;
    ELSE
      SELECT * INTO v_key FROM idempotency_keys k
       WHERE k.subject_id = ask.agent_id AND k.route = ask.route AND k.key = ask.key;
    END IF;
    IF FOUND THEN
      outcome := CASE WHEN v_key.body_hash <> ask.body_hash THEN 'key_reused'
                      WHEN v_key.status_code IS NULL THEN 'running' ELSE 'replay' END;
      payment_id := v_key.payment_id;
      status_code := v_key.status_code;
      response := v_key.response;
      RETURN NEXT;
      RETURN;
    END IF;
  END IF;
  IF NOT ask.dry_run AND purser_clock_apart(ask.head_time, ask.valid_seconds) THEN
    outcome := 'clock_apart';
    RETURN NEXT;
    RETURN;
  END IF;
  -- Whichever process began the hold (server/plugins/reconciliation/hold.ts). A payment that is refused anyway is reported as refused.
  IF NOT ask.dry_run AND ask.refusal IS NULL AND EXISTS (
       SELECT 1 FROM ledger_cursors c
        WHERE c.chain_id = ask.chain_id AND c.asset = ask.asset AND c.hold_until_block IS NOT NULL) THEN
    outcome := 'held';
    RETURN NEXT;
    RETURN;
  END IF;
  -- Read after the lock, so that the wait for it is included. Never before the tail, even if the clock jumps, and
  -- no two payments have the same time.
  v_now := GREATEST(clock_timestamp(), v_agent.window_tail_at + interval '24 hours' + interval '1 microsecond');
  v_edge := v_now - interval '24 hours';
  decided_at := v_now;
  IF ask.api_key_id IS NOT NULL THEN
    SELECT CASE WHEN k.revoked_at <= v_now THEN 'api_key_revoked' WHEN k.expires_at <= v_now THEN 'api_key_expired' END
      INTO v_key_code FROM api_keys k WHERE k.id = ask.api_key_id AND k.agent_id = ask.agent_id;
    IF NOT FOUND OR v_key_code IS NOT NULL THEN
      outcome := 'unauthorized';
      code := COALESCE(v_key_code, 'invalid_api_key');
      RETURN NEXT;
      RETURN;
    END IF;
  END IF;

  v_freed := (SELECT c.amount FROM purser_counted_sum(ask.agent_id, '', v_agent.window_tail_at, v_edge) c);
  v_sum := v_agent.window_sum - v_freed;
  -- The payee's entry for this site, else its entry for every site.
  SELECT * INTO v_payee FROM allowlist_entries l
   WHERE l.agent_id = ask.agent_id AND l.address = ask.payee AND l.site IN ('', ask.site)
   ORDER BY l.site DESC LIMIT 1;
  v_allowed := FOUND;
  v_refusal := ask.refusal;
  -- A nonce that the payee chose: under the agent's lock no other payment takes it meanwhile.
  IF v_refusal IS NULL AND ask.prescribed AND (
       EXISTS (SELECT 1 FROM settlements s
                WHERE s.from_address = v_agent.wallet_address AND s.chain_id = ask.chain_id
                  AND s.asset = ask.asset AND s.nonce = ask.nonce)
    OR EXISTS (SELECT 1 FROM payments o
                WHERE o.agent_id = ask.agent_id AND o.outstanding AND o.chain_id = ask.chain_id
                  AND o.asset = ask.asset AND o.nonce = ask.nonce)) THEN
    v_refusal := 'challenge_already_used';
  END IF;
  IF NOT v_allowed OR (v_agent.fetch_scope = 'sites' AND ask.site IS NOT NULL) THEN
    v_site := purser_site_facts(ask.agent_id, ask.payee, ask.site, v_agent.fetch_scope, v_now);
    IF v_refusal IS NULL AND (v_site->>'confined')::boolean AND NOT (v_site->>'siteListed')::boolean THEN
      v_refusal := 'origin_not_allowed';
    END IF;
  END IF;
  IF v_agent.payments_per_hour IS NOT NULL THEN
    v_hour := purser_window(ask.agent_id, '', 1, v_now);
  END IF;
  IF v_payee.daily_limit IS NOT NULL THEN
    v_payee_day := purser_window(ask.agent_id, ask.payee, 24, v_now);
  END IF;
  IF v_agent.weekly_limit IS NOT NULL THEN
    v_week := purser_window(ask.agent_id, '', 168, v_now);
  END IF;
  IF v_agent.monthly_limit IS NOT NULL THEN
    v_month := purser_window(ask.agent_id, '', 720, v_now);
  END IF;
  -- One statement, so one snapshot: a payment that settles meanwhile is counted once.
  SELECT COALESCE(sum(o.amount) FILTER (WHERE o.counted AND o.created_at > v_edge), 0) AS day,
         count(*) FILTER (WHERE o.counted AND o.created_at > v_hour.after_at) AS hour,
         COALESCE(sum(o.amount) FILTER (WHERE o.counted AND o.created_at > v_payee_day.after_at
                                          AND o.counterparty = ask.payee), 0) AS payee_day,
         COALESCE(sum(o.amount) FILTER (WHERE o.counted AND o.created_at > v_week.after_at), 0) AS week,
         COALESCE(sum(o.amount) FILTER (WHERE o.counted AND o.created_at > v_month.after_at), 0) AS month,
         COALESCE(sum(o.amount) FILTER (WHERE o.counted AND o.task_id = ask.task), 0) AS task,
         purser_outstanding(ask.agent_id, ask.chain_id, ask.balance_block) AS wallet,
         -- Of the owner's denied payees. purser_deny_payee takes the agent's lock, so it is before or after this.
         (SELECT d.entry FROM purser_denied(v_agent.owner_id, ask.payee, ask.site) d) AS denied
    INTO v_open FROM payments o WHERE o.agent_id = ask.agent_id AND o.outstanding;
  v_growth := ask.amount;
  IF ask.channel IS NOT NULL THEN
    SELECT * INTO v_through FROM purser_channel(
      v_agent, ask.channel, ask.amount, ask.balance - v_open.wallet, v_payee.channel_held);
    IF NOT ask.dry_run AND (v_through.channel).busy_until > v_now THEN
      outcome := 'busy';
      payment_id := (v_through.channel).busy_payment;
      RETURN NEXT;
      RETURN;
    END IF;
    -- The process of the payment that had it has died. If that signed nothing, its deposit is released before this one counts
    -- on it: the caller asks again.
    IF NOT ask.dry_run AND purser_void_unsigned(ask.agent_id, (v_through.channel).busy_payment, 'not_signed',
         'The process stopped before it signed the payment.') THEN
      outcome := 'busy';
      RETURN NEXT;
      RETURN;
    END IF;
    IF NOT ask.dry_run AND v_through.needed > 0 AND ask.balance IS NULL THEN
      outcome := 'balance_needed';
      RETURN NEXT;
      RETURN;
    END IF;
    IF v_refusal IS NULL AND v_through.is_distrusted THEN
      v_refusal := 'channel_distrusted';
    END IF;
    v_growth := v_through.growth;
    v_channel := jsonb_strip_nulls(jsonb_build_object(
      'price', ask.amount::text, 'channelDeposit', v_through.needed::text, 'channelHeld', v_through.held::text,
      'channelLimit', v_agent.channel_held::text, 'channelDelay', ask.channel->>'withdraw_delay',
      'channelLongestDelay', v_agent.channel_delay::text,
      'payeeChannelHeld', CASE WHEN v_payee.channel_held IS NOT NULL THEN v_through.payee_held::text END,
      'payeeChannelLimit', v_payee.channel_held::text));
  END IF;
  v_expired := v_agent.expires_at IS NOT NULL AND v_agent.expires_at <= v_now;
  IF v_agent.pay_hours IS NOT NULL OR v_agent.pay_days IS NOT NULL THEN
    v_closed := NOT purser_pays_at(v_agent.pay_hours, v_agent.pay_days, v_now);
  END IF;
  v_paused_by := v_agent.paused_by;
  v_paused_facts := v_agent.paused_facts;
  IF v_agent.status = 'active' AND v_agent.pause_after_failures IS NOT NULL THEN
    v_failures := purser_failures(ask.agent_id, v_now, v_agent.resumed_at);
    IF v_failures >= v_agent.pause_after_failures THEN
      v_paused_by := 'pause_after_failures';
    END IF;
  END IF;
  IF v_agent.status = 'active' AND v_paused_by IS NULL AND v_agent.pause_at_rate IS NOT NULL THEN
    v_usual := purser_usual_day(ask.agent_id, v_edge);
    IF v_sum + v_growth > v_agent.pause_at_rate * v_usual THEN
      v_paused_by := 'pause_at_rate';
      v_paused_facts := jsonb_build_object('pauseAtRate', v_agent.pause_at_rate::text, 'usualDay', v_usual::text,
        'rateSum', (v_sum + v_growth)::text);
    END IF;
  END IF;
  IF v_agent.status = 'active' AND v_paused_by IS NULL AND v_agent.pause_on_price_jump IS NOT NULL AND ask.site IS NOT NULL THEN
    v_priced_site := ask.site;
    v_price_before := purser_price_before(ask.agent_id, ask.site, v_now, v_agent.resumed_at,
      ask.channel IS NOT NULL OR ask.is_maximum IS TRUE);
    IF ask.amount > v_agent.pause_on_price_jump * v_price_before THEN
      v_paused_by := 'pause_on_price_jump';
      v_paused_facts := jsonb_build_object('pauseOnPriceJump', v_agent.pause_on_price_jump::text, 'jumpSite', ask.site,
        'jumpPrice', ask.amount::text, 'priceBefore', v_price_before::text);
    END IF;
  END IF;
  IF cardinality(v_agent.budget_ids) > 0 AND v_agent.status = 'active' AND v_refusal IS NULL THEN
    SELECT b.windows, b.most, b.used, b.facts INTO v_budget_windows, v_budget_limit, v_budget_used, v_budget_facts
      FROM purser_budgets_take(v_agent.budget_ids, NOT ask.dry_run) b;
  END IF;
  IF ask.task IS NOT NULL THEN
    -- Locked, because a task is closed without the agent's lock.
    IF ask.dry_run THEN
      SELECT * INTO v_task FROM tasks k WHERE k.agent_id = ask.agent_id AND k.id = ask.task;
    ELSE
      SELECT * INTO v_task FROM tasks k WHERE k.agent_id = ask.agent_id AND k.id = ask.task FOR UPDATE;
    END IF;
    v_task_state := CASE WHEN NOT FOUND THEN 'missing' WHEN v_task.closed_at IS NOT NULL THEN 'closed'
                         WHEN v_task.ends_at <= v_now THEN 'ended' ELSE 'open' END;
  END IF;
  code := purser_first_refusal(
    p_status => v_agent.status, p_expired => v_expired, p_refusal => v_refusal, p_requested => v_growth,
    p_max_amount => ask.max_amount, p_allowed => v_allowed,
    p_expected_payee => v_site->>'expectedPayee', p_bound => v_site ? 'payeeSites', p_payee_expired => v_payee.expires_at <= v_now,
    p_per_payment => v_agent.per_payment_limit, p_payee_per_payment => v_payee.per_payment_limit,
    p_per_hour => v_agent.payments_per_hour, p_last_hour => v_hour.payments,
    p_payee_limit => v_payee.daily_limit, p_payee_sum => v_payee_day.amount,
    p_limit => v_agent.daily_limit, p_window_sum => v_sum,
    p_weekly => v_agent.weekly_limit, p_week_sum => v_week.amount,
    p_monthly => v_agent.monthly_limit, p_month_sum => v_month.amount,
    p_balance => ask.balance, p_outstanding => v_open.wallet,
    p_price => (v_channel->>'price')::numeric, p_channel_deposit => (v_channel->>'channelDeposit')::numeric,
    p_channel_held => (v_channel->>'channelHeld')::numeric, p_channel_limit => (v_channel->>'channelLimit')::numeric,
    p_channel_delay => (v_channel->>'channelDelay')::numeric,
    p_channel_longest_delay => (v_channel->>'channelLongestDelay')::numeric,
    p_payee_channel_held => (v_channel->>'payeeChannelHeld')::numeric,
    p_payee_channel_limit => (v_channel->>'payeeChannelLimit')::numeric,
    p_paused_by => v_paused_by, p_closed => v_closed, p_denied => v_open.denied IS NOT NULL,
    p_budget_limit => v_budget_limit, p_budget_used => v_budget_used,
    p_task_state => v_task_state, p_task_ceiling => v_task.ceiling, p_task_used => v_task.used);
  IF v_failures IS NOT NULL AND (v_paused_by = 'pause_after_failures' OR code IS NOT NULL) THEN
    -- This refusal counts as well; one that only the rule itself caused does not.
    v_failures := v_failures + (code <> 'paused_by_rule')::int;
    IF v_failures >= v_agent.pause_after_failures AND v_paused_by IS NULL THEN
      v_pauses := 'pause_after_failures';
    END IF;
    IF v_paused_by = 'pause_after_failures' OR v_pauses IS NOT NULL THEN
      v_paused_facts := jsonb_build_object('failures', v_failures::text);
    END IF;
  END IF;
  snapshot := v_channel || jsonb_build_object(
    'status', v_agent.status, 'expired', v_expired, 'refusal', v_refusal, 'requested', v_growth::text,
    'maxAmount', ask.max_amount::text, 'allowed', v_allowed, 'perPaymentLimit', v_agent.per_payment_limit::text,
    'limit', v_agent.daily_limit::text, 'spent', (v_sum - v_open.day)::text, 'reserved', v_open.day::text,
    'balance', ask.balance::text, 'outstanding', v_open.wallet::text) || COALESCE(v_site, '{}');
  IF v_paused_by IS NOT NULL THEN
    snapshot := snapshot || jsonb_build_object('pausedBy', v_paused_by) || COALESCE(v_paused_facts, '{}');
  END IF;
  IF v_closed IS NOT NULL THEN
    snapshot := snapshot || jsonb_strip_nulls(jsonb_build_object('payHours', v_agent.pay_hours, 'payDays', v_agent.pay_days,
      'closed', v_closed, 'opensAt', CASE WHEN v_closed THEN
        to_char(purser_opens_at(v_agent.pay_hours, v_agent.pay_days, v_now) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"') END));
  END IF;
  IF v_open.denied IS NOT NULL THEN
    snapshot := snapshot || jsonb_build_object('denied', v_open.denied);
  END IF;
  -- Limits that are not set are left out.
  v_windows := array_remove(ARRAY[v_hour, v_payee_day, v_week, v_month], NULL);
  IF cardinality(v_windows) > 0 OR v_payee.per_payment_limit IS NOT NULL OR v_payee.expires_at IS NOT NULL THEN
    snapshot := snapshot || jsonb_strip_nulls(jsonb_build_object(
        'payeeExpired', v_payee.expires_at <= v_now, 'payeePerPaymentLimit', v_payee.per_payment_limit::text))
      || purser_window_facts('hourly', v_agent.payments_per_hour, v_hour.payments, v_open.hour)
      || purser_window_facts('payee', v_payee.daily_limit, v_payee_day.amount, v_open.payee_day)
      || purser_window_facts('weekly', v_agent.weekly_limit, v_week.amount, v_open.week)
      || purser_window_facts('monthly', v_agent.monthly_limit, v_month.amount, v_open.month);
  END IF;
  IF v_budget_windows IS NOT NULL THEN
    snapshot := snapshot || v_budget_facts;
    IF code = 'budget_exceeded' THEN
      snapshot := snapshot || purser_budget_others(v_budget_facts, v_budget_windows, v_agent.wallet_address);
    END IF;
    v_windows := v_windows || v_budget_windows;
  END IF;
  IF v_task_state IS NOT NULL THEN
    snapshot := snapshot || jsonb_strip_nulls(jsonb_build_object('taskId', ask.task, 'taskState', v_task_state,
      'taskCeiling', v_task.ceiling::text, 'taskSpent', (v_task.used - v_open.task)::text,
      'taskReserved', CASE WHEN v_task.id IS NOT NULL THEN v_open.task::text END));
  END IF;

  -- A permit uses one nonce of the token itself: not of another contract, and not chosen by the payee.
  IF code IS NOT NULL AND ask.key IS NOT NULL AND ask.nonce ^@ '0x' AND ask.prescribed IS NOT TRUE THEN
    valid_before := purser_valid_before(ask.valid_seconds, ask.head_time);
    SELECT * INTO v_permit FROM purser_permit(ask.agent_id, ask.body_hash, ask.key, ask.chain_id, ask.asset, ask.payee,
      COALESCE(ask.site, ''), ask.amount, valid_before, NOT ask.dry_run);
    IF v_permit.id IS NOT NULL THEN
      snapshot := snapshot || jsonb_build_object('approval',
        jsonb_build_object('id', v_permit.id, 'nonce', v_permit.permit_nonce));
      -- The permit lifts the allowlist and every limit. It does not lift the agent's status and expiry, the owner's denied
      -- payees, its maxAmount, its task, or the balance.
      code := purser_first_refusal(
        p_status => v_agent.status, p_expired => v_expired, p_refusal => v_refusal, p_requested => ask.amount,
        p_max_amount => ask.max_amount, p_allowed => TRUE, p_expected_payee => NULL, p_bound => FALSE,
        p_payee_expired => FALSE,
        p_per_payment => NULL, p_payee_per_payment => NULL, p_per_hour => NULL, p_last_hour => NULL,
        p_payee_limit => NULL, p_payee_sum => NULL, p_limit => NULL, p_window_sum => v_sum,
        p_weekly => NULL, p_week_sum => NULL, p_monthly => NULL, p_month_sum => NULL,
        p_balance => ask.balance, p_outstanding => v_open.wallet, p_paused_by => v_paused_by, p_closed => v_closed,
        p_denied => v_open.denied IS NOT NULL,
        p_task_state => v_task_state, p_task_ceiling => v_task.ceiling, p_task_used => v_task.used);
    END IF;
  END IF;

  -- Last, and only for payments that are allowed otherwise: the gas is charged to the owner's share.
  IF code IS NULL THEN
    v_gas := purser_gas_reserve(ask.chain_id, 'agents', 'owner:' || v_agent.owner_id, coalesce(ask.gas_hold, 0),
      ask.amount, ask.gas_floor, coalesce(ask.dry_run, FALSE));
    code := v_gas->>'code';
    snapshot := snapshot || (v_gas - 'code');
  END IF;

  IF ask.channel IS NOT NULL AND code IS NULL THEN
    -- What is signed: the voucher, on the evidence of the one before it, and the deposit.
    snapshot := snapshot || jsonb_build_object('channel', jsonb_strip_nulls(jsonb_build_object(
      'id', (v_through.channel).id, 'salt', (v_through.channel).salt, 'ceiling', v_through.ceiling::text,
      'balance', v_through.balance::text,
      'charged', (v_through.channel).charged::text, 'before', (v_through.channel).ceiling::text,
      'voucher', '0x' || encode((v_through.channel).voucher, 'hex'),
      'deposit', NULLIF(v_through.deposit, 0)::text,
      'depositId', CASE WHEN v_through.deposit > 0 THEN ask.deposit_id END,
      -- On its way as far as we know. The seller may never have made it.
      'openDepositId', (SELECT d.id FROM payments d
                         WHERE d.agent_id = ask.agent_id AND d.channel_id = (v_through.channel).id AND d.kind = 'deposit'
                           AND d.status IN ('submitted', 'unknown')
                         ORDER BY d.created_at DESC LIMIT 1))));
  END IF;
  IF ask.dry_run THEN
    outcome := CASE WHEN code IS NULL THEN 'allowed' ELSE 'denied' END;
    RETURN NEXT;
    RETURN;
  END IF;

  IF code IS NOT NULL THEN
    outcome := 'blocked';
    valid_before := NULL;
    IF v_agent.status = 'active' AND (code = 'paused_by_rule' OR v_pauses IS NOT NULL) THEN
      PERFORM purser_pause_by_rule(ask.agent_id, COALESCE(v_pauses, v_paused_by), v_paused_facts);
    END IF;
    IF v_freed > 0 OR cardinality(v_windows) > 0 THEN
      UPDATE agents a SET window_sum = v_sum, window_tail_at = v_edge WHERE a.id = ask.agent_id;
    END IF;
    -- Two refusals within an hour are the same when all of this is equal.
    v_hour_start := date_trunc('hour', v_now);
    v_denial_key := md5(jsonb_build_array(v_hour_start, code, ask.kind, ask.chain_id, ask.asset,
      ask.payee, ask.amount, ask.max_amount, ask.url, ask.listing_id, ask.api_key_id, v_agent.resumed_at, ask.task)::text)::uuid;
    IF NOT EXISTS (SELECT 1 FROM payments p WHERE p.agent_id = ask.agent_id AND p.denial_key = v_denial_key) THEN
      IF v_agent.refusals_hour = v_hour_start AND v_agent.refusals >= purser_refusal_rows() THEN
        -- Too many for a row each: they are counted on one row per rule, without payee and amount.
        v_denial_key := md5(jsonb_build_array(v_hour_start, code, ask.kind, ask.chain_id, ask.asset, v_agent.resumed_at)::text)::uuid;
        ask.payee := NULL;
        ask.amount := 0;
        ask.is_maximum := FALSE;
        ask.memo := NULL;
        ask.url := NULL;
        ask.listing_id := NULL;
        ask.requirement := NULL;
        ask.api_key_id := NULL;
        ask.task := NULL;
      ELSE
        UPDATE agents a
           SET refusals = CASE WHEN a.refusals_hour = v_hour_start THEN a.refusals ELSE 0 END + 1,
               refusals_hour = v_hour_start
         WHERE a.id = ask.agent_id;
      END IF;
    END IF;
  ELSE
    outcome := 'reserved';
    ask.amount := v_growth;
    valid_before := COALESCE(valid_before, purser_valid_before(ask.valid_seconds, ask.head_time));
    UPDATE agents a SET window_sum = v_sum + ask.amount, window_tail_at = v_edge, unsummed = a.unsummed + 1
     WHERE a.id = ask.agent_id;
    IF ask.key IS NOT NULL THEN
      INSERT INTO idempotency_keys (subject_id, route, key, body_hash, payment_id, implicit, call)
      VALUES (ask.agent_id, ask.route, ask.key, ask.body_hash, ask.payment_id, coalesce(ask.joins, FALSE),
        ask.call);
    END IF;
    IF v_permit.id IS NOT NULL THEN
      PERFORM purser_use_permit(v_permit.id, ask.payment_id);
    END IF;
    IF ask.channel IS NOT NULL THEN
      INSERT INTO channels AS c (agent_id, id, chain_id, asset, receiver, receiver_authorizer, withdraw_delay, signer, salt,
        busy_payment, busy_until, url, created_at)
      VALUES (ask.agent_id, (v_through.channel).id, ask.chain_id, ask.asset, ask.payee,
        (v_through.channel).receiver_authorizer, (v_through.channel).withdraw_delay, (v_through.channel).signer,
        (v_through.channel).salt, ask.payment_id, v_now + ask.busy_seconds * interval '1 second', ask.url, v_now)
      ON CONFLICT (agent_id, id) DO UPDATE
         SET busy_payment = EXCLUDED.busy_payment, busy_until = EXCLUDED.busy_until, url = EXCLUDED.url;
      IF v_through.deposit > 0 THEN
        INSERT INTO payments (agent_id, id, kind, status, chain_id, asset, counterparty, amount, api_key_id, request_id,
          url, valid_before, channel_id, created_at, updated_at)
        VALUES (ask.agent_id, ask.deposit_id, 'deposit', 'reserved', ask.chain_id, ask.asset, ask.payee,
          v_through.deposit, ask.api_key_id, ask.request_id, ask.url, valid_before, (v_through.channel).id, v_now, v_now);
      END IF;
    END IF;
  END IF;
  IF cardinality(v_windows) > 0 THEN
    INSERT INTO spending_windows AS w (agent_id, payee, hours, after_at, to_at, amount, payments)
    SELECT n.agent_id, n.payee, n.hours, n.after_at, n.to_at,
           n.amount + CASE WHEN code IS NULL THEN ask.amount ELSE 0 END, n.payments + (code IS NULL)::int
      FROM unnest(v_windows) AS n
    ON CONFLICT (agent_id, payee, hours) DO UPDATE
       SET after_at = EXCLUDED.after_at, to_at = EXCLUDED.to_at, amount = EXCLUDED.amount,
           payments = EXCLUDED.payments;
  END IF;
  INSERT INTO payments AS p (agent_id, id, kind, status, chain_id, asset, counterparty, amount, memo, api_key_id,
    request_id, denial_code, denial_key, policy, url, listing_id, requirement, nonce, valid_before, gas_hold,
    maximum, channel_id, ceiling, task_id, site, created_at, updated_at)
  VALUES (ask.agent_id, ask.payment_id, ask.kind, outcome, ask.chain_id, ask.asset, ask.payee, ask.amount, ask.memo,
    ask.api_key_id, ask.request_id, code, v_denial_key, snapshot, ask.url, ask.listing_id, ask.requirement,
    CASE WHEN code IS NULL AND ask.channel IS NULL THEN COALESCE(v_permit.permit_nonce, ask.nonce) END, valid_before,
    CASE WHEN code IS NULL THEN coalesce(ask.gas_hold, 0) ELSE 0 END,
    CASE WHEN ask.is_maximum THEN ask.amount END, snapshot->'channel'->>'id', (snapshot->'channel'->>'ceiling')::numeric, ask.task,
    CASE WHEN code IS NULL OR v_paused_by = 'pause_on_price_jump' THEN v_priced_site END, v_now, v_now)
  ON CONFLICT (agent_id, denial_key) WHERE denial_key IS NOT NULL DO UPDATE
     SET repeats = p.repeats + 1, policy = EXCLUDED.policy, updated_at = EXCLUDED.updated_at
  RETURNING p.id INTO payment_id;
  IF outcome = 'reserved' AND v_agent.unsummed + 1 >= purser_sum_size() THEN
    PERFORM purser_write_sums(ask.agent_id);
  END IF;
  IF outcome = 'reserved' AND v_budget_windows IS NOT NULL THEN
    PERFORM purser_budgets_count(v_agent, payment_id, ask.amount, v_budget_windows);
  END IF;
  IF outcome = 'reserved' AND ask.task IS NOT NULL THEN
    UPDATE tasks k SET used = k.used + ask.amount, payments = k.payments + 1, used_at = v_now
     WHERE k.agent_id = ask.agent_id AND k.id = ask.task;
  END IF;
  -- The commit does not wait for the disk, and so keeps its locks for a shorter time. No signature leaves its process before a later
  -- commit, which waits, and with which this one is on disk too. If the database dies before, all of it is gone, and
  -- purser_submit_payment or purser_voucher_signed refuses what was signed for it.
  IF outcome = 'reserved' THEN
    PERFORM set_config('synchronous_commit', 'off', TRUE);
  END IF;
  RETURN NEXT;
END;
$$;
