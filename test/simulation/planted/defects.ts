/** The list of planted defects, by area. Each is a defect that this service has had, or that one of its tests is for. */

export interface PlantedDefect {
  name: string;
  /** What the defect did to whom. */
  story: string;
  area:
    | "settlement"
    | "spending"
    | "idempotency"
    | "withdrawals"
    | "facilitator"
    | "fetch"
    | "reconciliation"
    | "channels";
  file: string;
  /** `find` occurs exactly once in the file. A second check that prevents the same defect may be in another file. */
  changes: readonly { find: string; replace: string; file?: string }[];
  /** The kinds of the worlds that look for it, where it needs a moment that few other worlds have. */
  only?: readonly string[];
  /** The test that fails with it, besides the simulation. */
  caughtBy: string;
}

export const DEFECTS: readonly PlantedDefect[] = [
  // Settlement: from a signed payment to its outcome.
  {
    name: "broadcast-before-persist",
    story:
      "A transaction was sent before it was stored. A process that died in between left a mined transaction that the database did not know, and its payments were sent and charged again.",
    area: "settlement",
    file: "server/plugins/settlement/sender.ts",
    changes: [
      {
        find: `    await ctx.fault("signed");
`,
        replace: `    await ctx.rpc.broadcast(attempt.raw).catch(() => undefined);
    await ctx.fault("signed");
`,
      },
    ],
    caughtBy: "test/settlement/crash-recovery.test.ts",
  },
  {
    name: "claims-of-a-dead-process-stay",
    story:
      "Payments that a process had claimed before it died were never taken over by another one, and expired.",
    area: "settlement",
    file: "server/plugins/settlement/store.ts",
    changes: [
      {
        find: `(lane.lease_epoch <> s.lane_epoch OR lane.lease_until <= clock_timestamp())`,
        replace: `lane.lease_epoch < s.lane_epoch`,
      },
    ],
    caughtBy: "test/settlement/crash-recovery.test.ts",
  },
  {
    name: "stored-transaction-is-not-sent-again",
    story:
      "A process that died between storing and sending left a nonce that nobody ever sent. All later transactions of the relayer waited behind it.",
    area: "settlement",
    file: "server/plugins/settlement/lane.ts",
    changes: [
      {
        find: `      for (const slot of tracker.slots.values()) if (!slot.included) await tracker.send(slot);
`,
        replace: "",
      },
    ],
    caughtBy: "test/settlement/crash-recovery.test.ts",
  },
  {
    name: "receipt-of-an-unknown-block",
    story:
      "A receipt was believed although no endpoint had its block. One lying endpoint made a payment settled that never moved.",
    area: "settlement",
    file: "server/plugins/settlement/tracker.ts",
    changes: [
      {
        find: `if (BigInt(receipt.blockNumber) < newest.number || isOfHead(receipt, newest))`,
        replace: `if (receipt)`,
      },
      {
        find: `const receipt = shown && isOfHead(shown, head) ? shown : early;`,
        replace: `const receipt = shown ?? early;`,
      },
      {
        find: `!isOfHead(receipt, head) && !(await isInChain(this.#deps.ctx, receipt, head.number))`,
        replace: `false`,
      },
    ],
    caughtBy: "test/settlement/follows-the-block.test.ts",
  },
  {
    name: "receipt-of-a-removed-block-is-final",
    story:
      "A receipt that was first read when its block was deep counted as final without a look at the block. One endpoint still showed it after a reorganisation had removed the block, and a payment that never moved was settled for good.",
    area: "settlement",
    file: "server/plugins/settlement/tracker.ts",
    changes: [
      {
        find: `!isOfHead(receipt, head) && !(await isInChain(this.#deps.ctx, receipt, head.number))`,
        replace: `false`,
      },
      {
        find: `await this.#report(slot, receipt, confirmations === 1);`,
        replace: `await this.#report(slot, receipt, depth >= confirmations);`,
      },
    ],
    caughtBy: "test/simulation/faults/processes.ts",
  },
  {
    name: "late-receipt-means-replaced",
    story:
      "A transaction whose receipt was late counted as replaced by a foreign one. Its payments were sent again, and its gas was charged to nobody.",
    area: "settlement",
    file: "server/plugins/settlement/tracker.ts",
    changes: [
      {
        find: `    const taken = await takenByOther(ctx, lease.address, slot, head.number);
    if (!taken) return;
`,
        replace: `    const { number: blockNumber, hash: blockHash } = head;
    const taken = { txHash: slot.attempts[0]?.hash ?? "0x", blockNumber, blockHash };
`,
      },
      {
        find: `    if (taken === "nowhere") {
      // Another endpoint may have the receipt.
      slot.missingSinceMs = undefined;
      this.#unseen.missed(\`nonce \${slot.nonce}\`, { lane: lease.address });
      return ctx.rpc.suspectEndpoint();
    }
    if (await isOurTransaction(ctx.pool, taken.txHash)) return this.#deps.onLeaseLost();
    ctx.log.error(
      { lane: lease.address, nonce: slot.nonce, by: taken.txHash, block: taken.blockNumber },
      "a foreign transaction used one of our nonces",
    );
    const { txHash: hash, blockNumber, blockHash } = taken;
`,
        replace: `    const { txHash: hash } = taken;
`,
      },
    ],
    caughtBy: "test/settlement/lagging-reads.test.ts",
  },
  {
    name: "one-endpoint-proves-an-expiry",
    story:
      "One endpoint that lagged or lied proved that an authorization had expired unused. The payer was told that it did not pay, and the payee had the money.",
    area: "settlement",
    file: "server/plugins/settlement/prove.ts",
    changes: [
      {
        find: `      answers.filter((states) => states[index] === false).length >= needed &&
      answers.every((states) => states[index] !== true);
`,
        replace: `      needed > 0 && answers.some((states) => states[index] === false);
`,
      },
    ],
    caughtBy: "test/settlement/lagging-reads.test.ts",
  },
  {
    name: "removed-payment-stays-settled",
    story:
      "A reorganisation removed the block of a settled payment, and nobody sent it again. The ledger counted money that did not move.",
    area: "settlement",
    file: "server/plugins/settlement/tracker.ts",
    changes: [
      {
        find: `if (header.hash !== blockHash) await this.#reopen(slot, number, blockHash);
          else if (isFinal) {`,
        replace: `if (header.hash === blockHash && isFinal) {`,
      },
    ],
    caughtBy: "test/settlement/reorganisation.test.ts",
  },
  {
    name: "published-spend-is-released",
    story:
      "A spend that had no effect in our mined transaction failed for good, and its budget was free again. Its signature was public by then: a third party relayed it, and the agent paid above its limit.",
    area: "settlement",
    file: "server/plugins/settlement/prove.ts",
    changes: [
      {
        find: `const isPublic = record.agentId !== null && record.attempts > 0;`,
        replace: `const isPublic = false;`,
      },
    ],
    caughtBy: "test/settlement/public-signatures.test.ts",
  },
  {
    name: "relayed-by-another-means-failed",
    story:
      "Someone copied a payment from the mempool and relayed it first. The money moved as signed, and the payment was reported as failed.",
    area: "settlement",
    file: "server/plugins/settlement/prove.ts",
    changes: [
      {
        find: `  if (fate === "paid" && !isReplay)
    return`,
        replace: `  if (fate === "paid" && !isReplay && !byOther)
    return`,
      },
    ],
    caughtBy: "test/settlement/bad-items-in-a-batch.test.ts",
  },
  {
    name: "refused-payment-is-not-watched",
    story:
      "A third party's payment was refused, then someone relayed its public signature. The merchant had the money and still read that the payment failed.",
    area: "settlement",
    file: "server/plugins/settlement/external-relays.ts",
    changes: [
      {
        find: `    await this.#lookAtRefused(now);
`,
        replace: "",
      },
    ],
    caughtBy: "test/settlement/watched-authorizations.test.ts",
  },
  {
    name: "bad-payment-holds-its-batch",
    story:
      "One payment that would fail sent its whole batch back to the queue, and again each time. The payments beside it waited until it expired, or expired themselves.",
    area: "settlement",
    file: "server/plugins/settlement/sender.ts",
    changes: [
      {
        find: `    void this.#prove(refused, terms).catch(`,
        replace: `    if (refused.length > 0) {
      const kept = new Set(alone);
      await this.#release(
        items.filter((item) => !kept.has(item)),
        1_000,
      );
      return { good: [] };
    }
    void this.#prove(refused, terms).catch(`,
      },
    ],
    caughtBy: "test/settlement/bad-items-in-a-batch.test.ts",
  },
  {
    name: "gas-charged-at-each-depth",
    story:
      "The gas of a transaction was charged when it was in a block and again when it was final. Payers lost twice the gas from their budgets.",
    area: "settlement",
    file: "prisma/functions/purser_transaction_final.sql",
    changes: [
      {
        find: `  IF was.gas_cost IS NULL THEN
    PERFORM`,
        replace: `  IF p_status <> 'replaced' THEN
    PERFORM`,
      },
    ],
    caughtBy: "test/settlement/reorganisation.test.ts",
  },
  {
    name: "gas-of-a-removed-block-stays-charged",
    story:
      "A reorganisation removed a transaction, and its gas stayed charged. When it was mined again, the payers were charged once more.",
    area: "settlement",
    file: "prisma/functions/purser_transaction_reopened.sql",
    changes: [
      {
        find: `  IF was.gas_cost IS NOT NULL THEN
    PERFORM purser_gas_true_up(p_chain_id, p_address, p_nonce, was.gas_cost, -1);
  END IF;
`,
        replace: "",
      },
    ],
    caughtBy: "test/settlement/reorganisation.test.ts",
  },
  {
    name: "reserved-gas-is-not-returned",
    story:
      "A payment that ended without a transaction of ours kept the gas that was reserved for it. The payer's gas budget shrank with each of them.",
    area: "settlement",
    file: "prisma/functions/purser_settlements_finalize.sql",
    changes: [
      {
        find: `    IF done.attempts = 0 AND done.gas_hold > 0 THEN`,
        replace: `    IF done.attempts < 0 AND done.gas_hold > 0 THEN`,
      },
    ],
    caughtBy: "test/settlement/bad-items-in-a-batch.test.ts",
  },

  // Spending and guardrails.
  {
    name: "agent-is-not-locked",
    story:
      "Two processes decided on payments of one agent at the same moment, each without the other's. Together they passed the agent's limit.",
    area: "spending",
    file: "prisma/functions/purser_reserve.sql",
    changes: [
      {
        find: `WHERE a.id = ask.agent_id FOR UPDATE;`,
        replace: `WHERE a.id = ask.agent_id;`,
      },
    ],
    caughtBy: "test/spending/concurrent-spends.test.ts",
  },
  {
    name: "one-payment-more-in-an-hour",
    story: "A limit on payments in an hour let one more payment through.",
    area: "spending",
    file: "prisma/functions/purser_first_refusal.sql",
    changes: [
      {
        find: `WHEN p_last_hour + 1 > p_per_hour`,
        replace: `WHEN p_last_hour > p_per_hour`,
      },
    ],
    caughtBy: "test/spending/window-boundaries.test.ts",
  },
  {
    name: "day-of-23-hours",
    story:
      "A payment left the daily window an hour early, so an agent paid above its daily limit within 24 hours.",
    area: "spending",
    file: "prisma/functions/purser_reserve.sql",
    changes: [
      {
        find: `v_agent.window_tail_at + interval '24 hours'`,
        replace: `v_agent.window_tail_at + interval '23 hours'`,
      },
      {
        find: `  v_edge := v_now - interval '24 hours';`,
        replace: `  v_edge := v_now - interval '23 hours';`,
      },
    ],
    caughtBy: "test/spending/window-boundaries.test.ts",
  },
  {
    name: "paid-after-its-release",
    story:
      "A process slept between reserving and signing, and the reservation was released meanwhile. When it woke up, it paid money that no limit counted.",
    area: "spending",
    file: "prisma/functions/purser_submit_payment.sql",
    changes: [
      {
        find: `status IN ('voided', 'blocked')`,
        replace: `status = 'blocked'`,
      },
    ],
    caughtBy: "test/spending/crashes.test.ts",
  },
  {
    name: "submitted-payment-is-released",
    story:
      "The database's answer was lost when a signed payment was accepted. The payment was released although the engine had it: the agent was told that nothing was paid, and the money moved.",
    area: "spending",
    file: "prisma/functions/purser_void_unsigned.sql",
    changes: [
      {
        find: `AND id = p_payment_id AND status = 'reserved' FOR UPDATE;`,
        replace: `AND id = p_payment_id AND outstanding FOR UPDATE;`,
      },
    ],
    caughtBy: "test/spending/accepted-in-groups.test.ts",
  },
  {
    name: "timeout-means-failed",
    story:
      "A spend whose outcome was not known in time was answered as failed. It was mined a moment later, and the agent paid again.",
    area: "spending",
    file: "server/plugins/payments/steps.ts",
    changes: [
      {
        find: `        kind: "unknown",
        error: new ApiError("payment_status_unknown", { extra: { paymentId, txHash } }),`,
        replace: `        kind: "failed",
        error: new ApiError("settlement_failed", { extra: { paymentId, txHash } }),`,
      },
    ],
    caughtBy: "test/spending/idempotency.test.ts",
  },

  // Idempotency and retries.
  {
    name: "running-key-is-not-seen",
    story:
      "Two requests with one Idempotency-Key came at the same moment. Neither saw the other's, and both paid.",
    area: "idempotency",
    file: "prisma/functions/purser_reserve.sql",
    changes: [
      {
        find: `k.route = ask.route AND k.key = ask.key;`,
        replace: `k.route = ask.route AND k.key = ask.key AND k.status_code IS NOT NULL;`,
      },
      {
        find: `coalesce(ask.joins, FALSE),
        ask.call);`,
        replace: `coalesce(ask.joins, FALSE),
        ask.call) ON CONFLICT DO NOTHING;`,
      },
    ],
    caughtBy: "test/spending/idempotency.test.ts",
  },
  {
    name: "open-call-is-not-joined",
    story:
      "An agent without a key lost the answer and repeated its call while the chain had not decided on the first one. It paid twice.",
    area: "idempotency",
    file: "prisma/functions/purser_joinable.sql",
    changes: [
      {
        find: `WHERE p.outstanding OR (p.status = 'settled'`,
        replace: `WHERE p.status <> 'blocked' AND (p.status = 'settled'`,
      },
    ],
    caughtBy: "test/spending/lost-responses.test.ts",
  },
  {
    name: "unknown-is-kept-as-the-answer",
    story:
      "An outcome that was unknown at first was stored as the final answer of the key. The agent never learned that its payment had settled.",
    area: "idempotency",
    file: "server/plugins/payments/idempotency.ts",
    changes: [
      {
        find: `ref && result.kind === "failed" ? {`,
        replace: `ref ? {`,
      },
    ],
    caughtBy: "test/spending/idempotency.test.ts",
  },

  // Withdrawals.
  {
    name: "withdrawal-ignores-open-payments",
    story:
      "An owner withdrew money that the wallet had already promised in open payments. Those payments were accepted and then failed.",
    area: "withdrawals",
    file: "prisma/functions/purser_reserve_withdrawal.sql",
    changes: [
      {
        find: `  available := ask.balance - purser_outstanding(ask.agent_id, ask.chain_id, ask.balance_block);`,
        replace: `  available := ask.balance;`,
      },
    ],
    caughtBy: "test/spending/withdrawals.test.ts",
  },
  {
    name: "withdrawal-outlives-its-order",
    story:
      "A withdrawal could still move money after the deadline that its owner had signed. The owner had ordered another one by then.",
    area: "withdrawals",
    file: "prisma/functions/purser_reserve_withdrawal.sql",
    changes: [
      {
        find: `LEAST(purser_valid_before(ask.valid_seconds, ask.head_time), ask.deadline)`,
        replace: `purser_valid_before(ask.valid_seconds, ask.head_time)`,
      },
    ],
    caughtBy: "test/spending/withdrawals.test.ts",
  },

  // Facilitator.
  {
    name: "lost-acceptance-means-failed",
    story:
      "The database's answer was lost when a third party's payment was accepted. The seller was told that the settlement failed, and it was mined.",
    area: "facilitator",
    file: "server/plugins/settlement/accept.ts",
    changes: [
      {
        find: `    if (wasRolledBack(error) && only) return`,
        replace: `    if (only) return`,
      },
    ],
    caughtBy: "test/spending/accepted-in-groups.test.ts",
  },
  {
    name: "success-for-an-equal-body",
    story:
      "A request with the same body counted as the first caller, whatever its key was. One payment unlocked two resources.",
    area: "facilitator",
    file: "server/plugins/facilitator/settle.ts",
    changes: [
      {
        find: `  row.callerKeyHash === null || caller.keyHash === null
    ? row.callerKeyHash === caller.keyHash
    : isEqual(row.callerKeyHash, caller.keyHash) && isEqual(row.bodyHash, caller.bodyHash);`,
        replace: `  isEqual(row.bodyHash, caller.bodyHash);`,
      },
    ],
    caughtBy: "test/facilitator/one-success.test.ts",
  },
  {
    name: "used-before-it-was-presented",
    story:
      "A payer used its authorization itself and then presented it to a seller, while the endpoint lagged. The seller was told that it was paid by it.",
    area: "facilitator",
    file: "server/plugins/settlement/prove.ts",
    changes: [
      {
        find: `  agentId === null && kind !== "refund";`,
        replace: `  agentId === null && kind === undefined;`,
      },
    ],
    caughtBy: "test/unit/proof-of-outcome.test.ts",
  },

  // Fetch: payments that a seller collects.
  {
    name: "proof-shown-before-it-is-stored",
    story:
      "A seller got the signed payment before the database had it. The process died, the reservation was released as unsigned, and the seller collected.",
    area: "fetch",
    file: "server/plugins/x402-client/fetch.ts",
    changes: [
      {
        find: `    await deps.steps.accept(reserved, { kind: "x402", relay: false, authorization });
    await deps.fault("submitted");
    return this.#deliver(job, { ...signedNow(job, call, found, reserved), authorization });`,
        replace: `    const payment = { ...signedNow(job, call, found, reserved), authorization };
    const shown = await deliver(job, payment);
    await deps.steps.accept(reserved, { kind: "x402", relay: false, authorization });
    await deps.fault("submitted");
    await deps.fault("answered");
    return this.#finish(job, payment, shown, noteResponse(job, payment, shown));`,
      },
    ],
    caughtBy: "test/x402-client/killed-midway.test.ts",
  },
  {
    name: "post-is-sent-again",
    story:
      "A paid POST whose answer was lost was sent to the seller again. The seller did twice what was paid once.",
    area: "fetch",
    file: "server/plugins/x402-client/deliver.ts",
    changes: [
      {
        find: `if (!isWorthIt || !(isSafe(target) || first.neverSent === true)) return first;`,
        replace: `if (!isWorthIt) return first;`,
      },
    ],
    caughtBy: "test/x402-client/paid-means-delivered.test.ts",
  },
  {
    name: "uncollected-means-free",
    story:
      "A seller delivered and collected late. The agent was told that the content was free, and the money left its wallet afterwards.",
    area: "fetch",
    file: "server/plugins/x402-client/confirm.ts",
    changes: [
      {
        find: `    return undecided(job, payment, seen, "The target delivered but has not collected its payment");`,
        replace: `    return handedOver(job, payment, seen, null);`,
      },
    ],
    caughtBy: "test/x402-client/idempotent-fetch.test.ts",
  },
  {
    name: "sellers-receipt-is-believed",
    story:
      "A seller's own report of a transaction counted as the payment. The agent was told that it paid, with a hash that the chain does not have.",
    area: "fetch",
    file: "server/plugins/x402-client/confirm.ts",
    changes: [
      {
        find: `  const isForNothing = receipt.charged === 0n`,
        replace: `  if (receipt.txHash)
    return handedOver(job, payment, seen, {
      txHash: receipt.txHash,
      amountAtomic: payment.authorization.value,
    });
  const isForNothing = receipt.charged === 0n`,
      },
    ],
    caughtBy: "test/x402-client/hostile-seller.test.ts",
  },
  {
    name: "pending-cancel-means-canceled",
    story:
      "A cancellation that the chain had not decided yet was reported as done. The agent was told that nothing was paid, and the seller collected.",
    area: "fetch",
    file: "server/plugins/settlement/engine.ts",
    changes: [
      {
        find: `  return outcome.status === "pending" ? { status: "pending" } : { status: "expired" };`,
        replace: `  return { status: "expired" };`,
      },
    ],
    caughtBy: "test/settlement/watched-authorizations.test.ts",
  },
  {
    name: "canceled-before-it-is-final",
    story:
      "A cancellation released the budget as soon as it was in a block. A reorganisation removed the block, and the seller collected in the new one.",
    area: "fetch",
    file: "server/plugins/settlement/receipts.ts",
    changes: [
      {
        find: `    else if (fate === "canceled" && !isFinal) outcomes.push({ status: "held", ...proven });
`,
        replace: "",
      },
    ],
    caughtBy: "test/unit/proof-of-outcome.test.ts",
  },

  // Reconciliation.
  {
    name: "deposit-of-a-removed-block",
    story:
      "Incoming money was recorded from the newest block. A reorganisation removed the block, and the ledger kept money that the wallet never got.",
    area: "reconciliation",
    file: "server/plugins/reconciliation/reader.ts",
    changes: [
      {
        find: `    const safe = head - BigInt(this.#deps.confirmations - 1);`,
        replace: `    const safe = head;`,
      },
      {
        find: `if (!block || block.hash === lastHash) return`,
        replace: `if (!block || block.hash) return`,
      },
    ],
    caughtBy: "test/reconciliation/downtime.test.ts",
  },
  {
    name: "one-endpoint-takes-a-payment-back",
    story:
      "An endpoint without logs and receipts made reconciliation open a settled payment again, although another endpoint showed it.",
    area: "reconciliation",
    file: "server/plugins/reconciliation/repair.ts",
    changes: [
      {
        find: `if (answers.some(isShown)) return "wait";`,
        replace: `if (answers.every(isShown)) return "wait";`,
      },
    ],
    caughtBy: "test/unit/proof-of-outcome.test.ts",
  },

  // Payment channels of agents' wallets.
  {
    name: "deposit-counts-as-spending",
    story:
      "A deposit counted as spent, and its vouchers a second time. An agent was refused long before its limit.",
    area: "channels",
    file: "prisma/functions/purser_reserve.sql",
    changes: [
      {
        find: `      IF v_through.deposit > 0 THEN
        INSERT`,
        replace: `      IF v_through.deposit > 0 THEN
        UPDATE agents a SET window_sum = a.window_sum + v_through.deposit WHERE a.id = ask.agent_id;
        INSERT`,
      },
    ],
    caughtBy: "test/x402-client/channels-owner.test.ts",
  },
  {
    name: "voucher-is-shown-before-it-is-stored",
    story:
      "A voucher was sent to the seller while it was being stored. A process that died in between left a ceiling that the seller could claim and nothing counted.",
    area: "channels",
    file: "server/plugins/x402-client/channel.ts",
    changes: [
      {
        find: `  await deps.steps.storeOrRelease(key, () =>
    deps.channels.accept(key, { order, signed, depositId }),
  );`,
        replace: `  void deps.steps
    .storeOrRelease(key, () => deps.channels.accept(key, { order, signed, depositId }))
    .catch(() => undefined);`,
      },
    ],
    caughtBy: "test/x402-client/channels-killed.test.ts",
  },
  {
    name: "voucher-of-a-released-reservation",
    story:
      "A process that was suspended after it had reserved went on when its reservation was released. Its voucher was shown, and the ceiling did not count as spent.",
    area: "channels",
    file: "prisma/functions/purser_voucher_signed.sql",
    changes: [
      {
        find: `  IF NOT FOUND THEN
    PERFORM`,
        replace: `  IF FALSE THEN
    PERFORM`,
      },
    ],
    only: ["channeler", "suspendedWithReservation"],
    caughtBy: "test/x402-client/channels-killed.test.ts",
  },
  {
    name: "two-requests-have-one-channel",
    story:
      "Two processes reserved the same ceiling of a channel. Both requests showed the same voucher, and the ceiling counted as spent twice.",
    area: "channels",
    file: "prisma/functions/purser_reserve.sql",
    changes: [
      {
        find: `IF NOT ask.dry_run AND (v_through.channel).busy_until > v_now THEN`,
        replace: `IF FALSE THEN`,
      },
      {
        find: `    IF NOT ask.dry_run AND purser_void_unsigned(`,
        replace: `    IF FALSE AND purser_void_unsigned(`,
      },
      {
        file: "prisma/functions/purser_voucher_signed.sql",
        find: ` AND c.busy_payment = p_payment_id`,
        replace: ``,
      },
    ],
    only: ["channeler", "suspendedWithReservation"],
    caughtBy: "test/x402-client/channels-killed.test.ts",
  },
  {
    name: "total-without-a-signature",
    story:
      "A seller's total was adopted on its word. The next voucher allowed claims of money that the agent had never spent.",
    area: "channels",
    file: "server/plugins/channels/wallet.ts",
    changes: [
      {
        find: `if (total > ceiling && !(known && (await this.#isOnChain(order, total)))) return false;`,
        replace: `void known;`,
      },
    ],
    caughtBy: "test/x402-client/channel-sellers-lie.test.ts",
  },
  {
    name: "reported-charge-frees-the-ceiling",
    story:
      "What a seller reported as not charged was spent again. The seller claimed all that was signed, and the agent had spent more than its limit.",
    area: "channels",
    file: "prisma/functions/purser_voucher_ended.sql",
    changes: [
      {
        find: `UPDATE channels c SET charged = LEAST(c.charged + p_charged, c.ceiling)`,
        replace: `UPDATE channels c SET charged = LEAST(c.charged + p_charged, c.ceiling), ceiling = LEAST(c.charged + p_charged, c.ceiling)`,
      },
    ],
    caughtBy: "test/x402-client/channel-limits.test.ts",
  },
  {
    name: "lost-response-pays-again",
    story:
      "A seller had charged a request whose response was lost. Its total was adopted as if it were of an older request, and the request was paid a second time with the same key.",
    area: "channels",
    file: "server/plugins/x402-client/channel.ts",
    changes: [
      {
        find: `{ order, correction, wasShown })`,
        replace: `{ order, correction, wasShown: wasShown && false })`,
      },
    ],
    caughtBy: "test/x402-client/channels-killed.test.ts",
  },
  {
    name: "lost-response-is-not-asked-for",
    story:
      "A seller broke off its response to a request that it had charged. The key of the request was answered as unknown for ever, although the seller could say what it had charged.",
    area: "channels",
    file: "server/plugins/x402-client/fetch.ts",
    changes: [
      {
        find: `payment.through ? undefined : noteResponse(job, payment, response)`,
        replace: `noteResponse(job, payment, response)`,
      },
    ],
    caughtBy: "test/simulation/worlds.test.ts",
  },
  {
    name: "unknown-request-was-not-charged",
    story:
      "A request through a channel without a response counted as not charged. The agent was told that it had paid nothing, and the seller had charged it.",
    area: "channels",
    file: "server/plugins/x402-client/channel.ts",
    changes: [
      {
        find: `const voucher = { chargedAtomic: null, isRefused,`,
        replace: `const voucher = { chargedAtomic: 0n, isRefused,`,
      },
    ],
    caughtBy: "test/x402-client/channels-killed.test.ts",
  },
  {
    name: "newest-lost-request-was-charged",
    story:
      "The responses to two requests through a channel were lost. The seller's total showed one charge, which was given to the newer request. The key of the older one was answered as never paid, and the seller had charged that one.",
    area: "channels",
    file: "prisma/functions/purser_vouchers_decided.sql",
    changes: [
      {
        find: `SELECT o.id, count(*) OVER () AS number FROM open o`,
        replace: `SELECT o.id, 1 AS number FROM open o JOIN payments m ON m.agent_id = p_channel.agent_id AND m.id = o.id`,
      },
      {
        find: `AND NOT x.is_refused))`,
        replace: `AND NOT x.is_refused))
     ORDER BY m.created_at DESC LIMIT 1`,
      },
    ],
    caughtBy: "test/spending/voucher-outcomes.test.ts",
  },
  {
    name: "closing-forgets-money-back",
    story:
      "A channel was closed without what had come back from it. Its owner was shown that all of the deposit was paid to the seller.",
    area: "channels",
    file: "server/plugins/channels/closing.ts",
    changes: [
      {
        find: `{ claimed: step.claimed, returned }`,
        replace: `{ claimed: step.claimed, returned: 0n }`,
      },
    ],
    caughtBy: "test/x402-client/channels-closed.test.ts",
  },
  {
    name: "closing-leaves-a-deposit-behind",
    story:
      "A channel was closed while a deposit was on its way. The deposit arrived later, and nobody withdrew it.",
    area: "channels",
    file: "server/plugins/channels/closing.ts",
    changes: [
      {
        find: `  if (channel.openDeposits > 0) return { kind: "wait", forMs: NEXT_LOOK_MS };
`,
        replace: ``,
      },
    ],
    only: ["channeler", "depositsKept"],
    caughtBy: "test/x402-client/channels-closed.test.ts",
  },
  {
    name: "closing-is-behind-a-deposit",
    story:
      "A channel that was closing was read as of a block before its deposit. All of it was recorded as returned, so the agent could put more into channels, or the channel was closed and the money left in it.",
    area: "channels",
    file: "server/plugins/channels/closing.ts",
    changes: [
      {
        find: `    if (states.finalBlock < channel.depositBlock) return again(NEXT_LOOK_MS);
`,
        replace: ``,
      },
    ],
    only: ["channeler", "endpointsLate"],
    caughtBy: "test/unit/wallet-channels.test.ts",
  },
  {
    name: "held-counts-one-channel",
    story:
      "What lay in an agent's other channels was not counted. It held more than its owner had allowed.",
    area: "channels",
    file: "prisma/functions/purser_channel.sql",
    changes: [
      {
        find: `SELECT COALESCE(sum(h.amount), 0), COALESCE`,
        replace: `SELECT COALESCE(sum(h.amount) FILTER (WHERE h.receiver = ask.receiver), 0), COALESCE`,
      },
    ],
    caughtBy: "test/x402-client/channel-limits.test.ts",
  },
  // What an owner stops.
  {
    name: "stop-skips-busy-agents",
    story:
      "A stop left out the agents that had a payment on its way. Its owner was answered that everything was stopped, and they paid on.",
    area: "spending",
    file: "prisma/functions/purser_stop.sql",
    changes: [
      {
        find: ` WHERE a.owner_id = p_owner_id AND a.status = 'active';`,
        replace: ` WHERE a.owner_id = p_owner_id AND a.status = 'active'
     AND NOT EXISTS (SELECT 1 FROM payments p WHERE p.agent_id = a.id AND p.outstanding);`,
      },
    ],
    caughtBy: "test/owners/stop.test.ts",
  },
  {
    name: "resume-activates-what-a-rule-paused",
    story:
      "The end of a stop activated all agents that were not paused by hand, also those that a rule had paused before. They paid again, and their owner had not decided that.",
    area: "spending",
    file: "prisma/functions/purser_resume.sql",
    changes: [
      {
        find: `a.paused_by = 'stop' ORDER BY`,
        replace: `a.paused_by IS NOT NULL ORDER BY`,
      },
      {
        find: `AND a.paused_by = 'stop';`,
        replace: `AND a.paused_by IS NOT NULL;`,
      },
    ],
    caughtBy: "test/spending/pausing-rules.test.ts",
  },
  {
    name: "pause-during-a-stop-is-forgotten",
    story:
      "An owner paused one agent by hand while everything was stopped. The agent was paused already, so nothing was written, and the end of the stop activated it.",
    area: "spending",
    file: "server/plugins/agents/rules.ts",
    changes: [
      {
        find: `(wanted.status !== agent.status || agent.pausedBy !== null) && {`,
        replace: `wanted.status !== agent.status && {`,
      },
    ],
    caughtBy: "test/owners/stop.test.ts",
  },
];
