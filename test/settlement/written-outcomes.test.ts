// Goal: each outcome that the chain proves changes exactly the rows that it must: settlement, payment, budget, gas, and what later proof corrects.
import t from "tap";
import { AGENT, account, CHAIN, h, PAYEE, type ChangedRows, type Row } from "./changed-rows.ts";
import {
  agents,
  ended,
  failed,
  finalize,
  gas,
  outcomeChecks,
  receipt,
  settled,
  state,
  upto,
} from "./written-outcomes.helper.ts";

const { inRows, check } = await outcomeChecks(t);

// Outcomes of settlements that are open.

await check(
  "a third party's payment that we sent is settled",
  (rows) => rows.settlement("a", { status: "submitted", tx_hash: h("t5"), attempts: 1, ...gas }),
  finalize([{ id: "a", ...settled }]),
  [
    "finished: 1",
    "settlements a: block_hash b60, block_number 60, proof (block 60, blockHash b60, kind receipt, tx t5), settled_at now, status settled, updated_at now",
    "told: at now, block 60, byOther false, id a, message null, reason null, status settled, txHash t5, value 100",
  ],
);
await check(
  "a payment settled by another party's transaction, final at once: its gas is released",
  async (rows) => {
    await rows.settlement("a", gas);
    await rows.settlement("b");
    await rows.settlement("c", { ...gas, nonce: h("other") });
  },
  finalize([{ id: "a", ...settled, isFinal: true, byOther: true }]),
  [
    "finished: 1",
    "gas_accounts payer:p: held 7",
    "gas_accounts strangers: held 7",
    "settlements a: block_hash b60, block_number 60, by_other true, final_at now, proof (block 60, blockHash b60, kind receipt, tx t5), settled_at now, status settled, tx_hash t5, updated_at now",
    "told: at now, block 60, byOther true, id a, message null, reason null, status settled, txHash t5, value 100",
  ],
);
await check(
  "payments that end without a transaction, in any order",
  async (rows) => {
    await rows.settlement("a", gas);
    await rows.settlement("b", { gas_accounts: ["strangers"], gas_hold: 5 });
    await rows.settlement("c", { gas_accounts: ["strangers"], gas_hold: 0 });
    await rows.settlement("d", {
      gas_accounts: ["strangers"],
      gas_hold: 3,
      attempts: 1,
      tx_hash: h("t5"),
    });
  },
  finalize([
    { id: "c", ...failed },
    { id: "b", ...failed, status: "expired", isFinal: false },
    { id: "a", ...failed, proof: { kind: "refusal", block: "70", blockHash: h("b70") } },
    { id: "d", ...failed },
  ]),
  [
    "finished: 4",
    "gas_accounts payer:p: held 0",
    "gas_accounts strangers: held 3",
    "settlements a: error_message Late., error_reason late, final_at now, proof (block 70, blockHash b70, kind refusal), status failed, updated_at now",
    "settlements b: error_message Late., error_reason late, proof (block 70, blockHash b70, kind state, timestamp 1), status expired, updated_at now",
    "settlements c: error_message Late., error_reason late, final_at now, proof (block 70, blockHash b70, kind state, timestamp 1), status failed, updated_at now",
    "settlements d: error_message Late., error_reason late, final_at now, proof (block 70, blockHash b70, kind state, timestamp 1), status failed, updated_at now",
    "told: at null, block null, byOther false, id a, message Late., reason late, status failed, txHash null, value 100",
    "told: at null, block null, byOther false, id b, message Late., reason late, status expired, txHash null, value 100",
    "told: at null, block null, byOther false, id c, message Late., reason late, status failed, txHash null, value 100",
    "told: at null, block null, byOther false, id d, message Late., reason late, status failed, txHash t5, value 100",
  ],
);
await check(
  "an agent's payment is settled by our transaction, which its gas pays",
  async (rows) => {
    await rows.agent();
    await rows.payment("p", { gas_hold: 7 });
    await rows.settlement("p", { ...agents, status: "submitted", attempts: 1, tx_hash: h("t5") });
  },
  finalize([{ id: "p", ...settled, isFinal: true }]),
  [
    "finished: 1",
    "payments p: block_number 60, final_at now, outstanding false, settled_at now, status settled, tx_hash t5, updated_at now",
    "settlements p: block_hash b60, block_number 60, final_at now, proof (block 60, blockHash b60, kind receipt, tx t5), settled_at now, status settled, updated_at now",
    "told: at now, block 60, byOther false, id p, message null, reason null, status settled, txHash t5, value 100",
  ],
);
await check(
  "a settlement whose payment has ended already: the payment stays as it is",
  async (rows) => {
    await rows.agent();
    await rows.settlement("p", { ...agents, status: "submitted", attempts: 1, tx_hash: h("t5") });
    await rows.payment("p", { status: "voided", failure_code: "before" });
  },
  finalize([{ id: "p", ...settled }]),
  [
    "finished: 1",
    "settlements p: block_hash b60, block_number 60, proof (block 60, blockHash b60, kind receipt, tx t5), settled_at now, status settled, updated_at now",
    "told: at now, block 60, byOther false, id p, message null, reason null, status settled, txHash t5, value 100",
  ],
);
await check(
  "an agent's payment expires: its budget returns",
  async (rows) => {
    await rows.agent();
    await rows.payment("p", { gas_hold: 7 });
    await rows.settlement("p", agents);
    await rows.payment("q", { status: "voided" });
    await rows.settlement("r", { ...agents, nonce: h("none") });
  },
  finalize([{ id: "p", ...failed, status: "expired" }]),
  [
    "finished: 1",
    "agents agt_1: window_sum 400",
    "gas_accounts agents: held 0",
    "gas_accounts owner:own_1: full_at now, held -7, used 0, used_on today",
    "payments p: counted false, failure_code late, failure_detail Late., outstanding false, status voided, updated_at now",
    "settlements p: error_message Late., error_reason late, final_at now, proof (block 70, blockHash b70, kind state, timestamp 1), status expired, updated_at now",
    "told: at null, block null, byOther false, id p, message Late., reason late, status expired, txHash null, value 100",
  ],
);
await check(
  "less than a signed maximum is charged: the rest of the budget returns",
  async (rows) => {
    await rows.agent();
    await rows.payment("p", { maximum: 100, nonce: `permit2:${h("p")}` });
    await rows.settlement("p", { ...agents, ...upto(100), status: "submitted", attempts: 1 });
    await rows.settlement("s", { ...upto(90), status: "submitted", attempts: 1 });
  },
  finalize([
    { id: "p", ...settled, amount: "30" },
    { id: "s", ...settled, amount: "20" },
  ]),
  [
    "finished: 2",
    "agents agt_1: window_sum 430",
    "payments p: amount 30, block_number 60, outstanding false, settled_at now, status settled, tx_hash t5, updated_at now",
    "settlements p: block_hash b60, block_number 60, proof (block 60, blockHash b60, kind receipt, tx t5), settled_at now, status settled, tx_hash t5, updated_at now, value 30",
    "settlements s: block_hash b60, block_number 60, proof (block 60, blockHash b60, kind receipt, tx t5), settled_at now, status settled, tx_hash t5, updated_at now, value 20",
    "told: at now, block 60, byOther false, id p, message null, reason null, status settled, txHash t5, value 30",
    "told: at now, block 60, byOther false, id s, message null, reason null, status settled, txHash t5, value 20",
  ],
);
await check(
  "a maximum is not charged at all",
  async (rows) => {
    await rows.agent();
    await rows.payment("p", { maximum: 100, nonce: `permit2:${h("p")}` });
    await rows.settlement("p", { ...agents, ...upto(100), relay: false });
  },
  finalize([{ id: "p", ...failed, status: "expired" }]),
  [
    "finished: 1",
    "agents agt_1: window_sum 400",
    "payments p: counted false, failure_code late, failure_detail Late., outstanding false, status voided, updated_at now",
    "settlements p: error_message Late., error_reason late, final_at now, proof (block 70, blockHash b70, kind state, timestamp 1), status expired, updated_at now",
    "told: at null, block null, byOther false, id p, message Late., reason late, status expired, txHash null, value 100",
  ],
);
await check(
  "an outcome that is held, one that is open, and one of a settlement that is not there",
  async (rows) => {
    await rows.settlement("a", { status: "submitted", tx_hash: h("t5"), attempts: 1 });
    await rows.settlement("b", { status: "submitted", tx_hash: h("t5"), attempts: 1 });
  },
  finalize([
    { id: "a", ...settled, status: "held" },
    { id: "b", ...settled, status: "open" },
    { id: "z", ...settled },
  ]),
  ["finished: 0"],
);
await check(
  "without reserved gas, none is released",
  (rows) => rows.settlement("a", { gas_accounts: ["strangers"], gas_hold: 0 }),
  finalize([{ id: "a", ...settled, byOther: true }]),
  [
    "finished: 1",
    "settlements a: block_hash b60, block_number 60, by_other true, proof (block 60, blockHash b60, kind receipt, tx t5), settled_at now, status settled, tx_hash t5, updated_at now",
    "told: at now, block 60, byOther true, id a, message null, reason null, status settled, txHash t5, value 100",
  ],
);
await check(
  "one unit of gas of one account is released",
  (rows) => rows.settlement("a", { gas_accounts: ["strangers"], gas_hold: 1 }),
  finalize([{ id: "a", ...failed }]),
  [
    "finished: 1",
    "gas_accounts strangers: held 0",
    "settlements a: error_message Late., error_reason late, final_at now, proof (block 70, blockHash b70, kind state, timestamp 1), status failed, updated_at now",
    "told: at null, block null, byOther false, id a, message Late., reason late, status failed, txHash null, value 100",
  ],
);
await check("no outcome", (rows) => rows.settlement("a"), finalize([]), ["finished: 0"]);
await check(
  "another chain's settlement with the same key",
  (rows) => rows.settlement("a", { chain_id: 1 }),
  finalize([{ id: "a", ...settled }]),
  ["finished: 0"],
);
await t.test("of many settlements, a message holds sixteen at most", async (t) => {
  await inRows(async (rows) => {
    const ids = Array.from({ length: 33 }, (_, id) => `s${id}`);
    for (const id of ids) await rows.settlement(id);
    // The message of a failure may be long: each has its own.
    const failures = ["f1", "f2", "f3"];
    for (const id of failures) await rows.settlement(id);
    const outcomes = [
      ...ids.map((id) => ({ id, ...settled })),
      ...failures.map((id) => ({ id, ...failed })),
    ];
    t.match(await finalize(outcomes)(rows), { finished: 36 });
    const { rows: sizes } = await rows.query<{ size: number }>(
      "SELECT jsonb_array_length(message) AS size FROM notified ORDER BY 1",
    );
    t.same(
      sizes.map(({ size }) => size),
      [1, 1, 1, 2, 15, 16],
    );
  });
});

// Settlements that have an outcome already.

const withTransaction =
  (row: Row, { transaction = {}, ...payment }: Row & { transaction?: object } = {}) =>
  async (rows: ChangedRows) => {
    await rows.agent();
    await rows.settlement("p", { ...agents, ...row });
    await rows.payment("p", { tx_hash: h("t5"), settled_at: "2026-01-01", ...payment });
    const mined = {
      status: "mined",
      mined_hash: h("t5"),
      block_number: 60,
      block_hash: h("b60"),
    };
    await rows.transaction(5, ["p"], { ...mined, ...transaction });
  };
const finalSettled = { ...settled, isFinal: true };

await check(
  "the same outcome, now final",
  withTransaction(ended("settled", { attempts: 1 }), { status: "settled" }),
  finalize([{ id: "p", ...finalSettled }]),
  ["finished: 0", "payments p: final_at now", "settlements p: final_at now"],
);
await check(
  "the same outcome, final before",
  withTransaction(ended("settled", { final_at: "2026-01-01" }), { status: "settled" }),
  finalize([{ id: "p", ...finalSettled }]),
  ["finished: 0"],
);
await check(
  "the same outcome, not final",
  withTransaction(ended("settled"), { status: "settled" }),
  finalize([{ id: "p", ...settled }]),
  ["finished: 0"],
);
await check(
  "the same payment in another block",
  withTransaction(ended("settled", { attempts: 1 }), { status: "settled" }),
  finalize([{ id: "p", ...settled, proof: receipt("t5", 61) }]),
  [
    "finished: 0",
    "audit_notes payment.corrected: after (kind settled_elsewhere, paymentId p, status settled, txHash t5), before (paymentId p, status settled, txHash t5)",
    "payments p: block_number 61, updated_at now",
    "settlement_corrections p settled_elsewhere: after (proof (block 61, blockHash b61, kind receipt, tx t5), status settled), before (finalAt null, proof (block 60, blockHash b60, kind receipt, tx t5), reason null, status settled)",
    "settlements p: block_hash b61, block_number 61, corrected_at now, proof (block 61, blockHash b61, kind receipt, tx t5), updated_at now",
    "told: at another day, block 61, byOther false, id p, message null, reason null, status settled, txHash t5, value 100",
    "corrected: p settled_elsewhere",
  ],
);
await check(
  "the same payment in another block, now final",
  withTransaction(ended("settled", { attempts: 1 }), { status: "settled" }),
  finalize([{ id: "p", ...finalSettled, proof: receipt("t5", 61) }]),
  [
    "finished: 0",
    "audit_notes payment.corrected: after (kind settled_elsewhere, paymentId p, status settled, txHash t5), before (paymentId p, status settled, txHash t5)",
    "payments p: block_number 61, final_at now, updated_at now",
    "settlement_corrections p settled_elsewhere: after (proof (block 61, blockHash b61, kind receipt, tx t5), status settled), before (finalAt null, proof (block 60, blockHash b60, kind receipt, tx t5), reason null, status settled)",
    "settlements p: block_hash b61, block_number 61, corrected_at now, final_at now, proof (block 61, blockHash b61, kind receipt, tx t5), updated_at now",
    "told: at another day, block 61, byOther false, id p, message null, reason null, status settled, txHash t5, value 100",
    "corrected: p settled_elsewhere",
  ],
);
await check(
  "of two payments of one transaction, one is final now",
  async (rows) => {
    await withTransaction(ended("settled", { attempts: 1 }), { status: "settled" })(rows);
    await rows.settlement("a", ended("settled"));
  },
  finalize([{ id: "a", ...finalSettled }]),
  ["finished: 0", "settlements a: final_at now"],
);
await check(
  "final, and its payment is not settled",
  withTransaction(ended("settled", { attempts: 1 }), { status: "voided" }),
  finalize([{ id: "p", ...finalSettled }]),
  ["finished: 0", "settlements p: final_at now"],
);
await check(
  "final by a state, and its payment is not settled",
  withTransaction(ended("settled", { attempts: 1 }), { status: "voided" }),
  finalize([{ id: "p", ...finalSettled, proof: state }]),
  ["finished: 0", "settlements p: final_at now"],
);
await check(
  "final before, and a final state says so",
  withTransaction(ended("settled", { final_at: "2026-01-01" }), { status: "settled" }),
  finalize([{ id: "p", ...finalSettled, proof: state }]),
  ["finished: 0"],
);
await check(
  "settled, and its transaction is said to show a failure",
  withTransaction(ended("settled"), { status: "settled" }),
  finalize([{ id: "p", ...failed, proof: receipt("t5") }]),
  ["finished: 0"],
);
await check(
  "failed by a receipt, and the same transaction shows the payment after all",
  withTransaction(ended("failed", { tx_hash: h("t5"), block_number: 60, block_hash: h("b60") }), {
    status: "voided",
    tx_hash: null,
    settled_at: null,
  }),
  finalize([{ id: "p", ...finalSettled }]),
  [
    "finished: 0",
    "agents agt_1: window_sum 600",
    "audit_notes payment.corrected: after (kind failed_to_settled, paymentId p, status settled, txHash t5), before (paymentId p, status voided, txHash null)",
    "payments p: block_number 60, counted true, final_at now, settled_at now, status settled, tx_hash t5, updated_at now",
    "settlement_corrections p failed_to_settled: after (proof (block 60, blockHash b60, kind receipt, tx t5), status settled), before (finalAt null, proof (block 60, blockHash b60, kind receipt, tx t5), reason why, status failed)",
    "settlements p: corrected_at now, error_message null, error_reason null, final_at now, settled_at now, status settled, updated_at now",
    "told: at now, block 60, byOther false, id p, message null, reason null, status settled, txHash t5, value 100",
    "corrected: p failed_to_settled",
  ],
);
await check(
  "a withdrawal failed, and a receipt shows it: no limit counts it",
  async (rows) => {
    await rows.agent();
    await rows.settlement("p", {
      ...agents,
      ...ended("failed", { proof: state }),
      kind: "withdrawal",
    });
    await rows.payment("p", { status: "voided", kind: "withdrawal" });
  },
  finalize([{ id: "p", ...settled }]),
  [
    "finished: 0",
    "audit_notes payment.corrected: after (kind failed_to_settled, paymentId p, status settled, txHash t5), before (paymentId p, status voided, txHash null)",
    "audit_notes withdrawal.settled: after (amountAtomic 100, network eip155:5042002, nonce p, paymentId p, to payee, txHash t5)",
    "payments p: block_number 60, settled_at now, status settled, tx_hash t5, updated_at now",
    "settlement_corrections p failed_to_settled: after (proof (block 60, blockHash b60, kind receipt, tx t5), status settled), before (finalAt null, proof (block 70, blockHash b70, kind state, timestamp 1), reason why, status failed)",
    "settlements p: block_hash b60, block_number 60, corrected_at now, error_message null, error_reason null, proof (block 60, blockHash b60, kind receipt, tx t5), settled_at now, status settled, tx_hash t5, updated_at now",
    "told: at now, block 60, byOther false, id p, message null, reason null, status settled, txHash t5, value 100",
    "corrected: p failed_to_settled",
  ],
);
await check(
  "by another transaction in the same block, and by another party",
  withTransaction(ended("settled", { attempts: 1 }), { status: "settled" }),
  finalize([{ id: "p", ...finalSettled, byOther: true, proof: receipt("t6") }]),
  [
    "finished: 0",
    "audit_notes payment.corrected: after (kind settled_elsewhere, paymentId p, status settled, txHash t6), before (paymentId p, status settled, txHash t5)",
    "payments p: block_number 60, final_at now, tx_hash t6, updated_at now",
    "settlement_corrections p settled_elsewhere: after (proof (block 60, blockHash b60, kind receipt, tx t6), status settled), before (finalAt null, proof (block 60, blockHash b60, kind receipt, tx t5), reason null, status settled)",
    "settlements p: by_other true, corrected_at now, final_at now, proof (block 60, blockHash b60, kind receipt, tx t6), tx_hash t6, updated_at now",
    "told: at another day, block 60, byOther true, id p, message null, reason null, status settled, txHash t6, value 100",
    "corrected: p settled_elsewhere",
  ],
);
await check(
  "settled, and a state says so: no receipt, no correction",
  withTransaction(ended("settled", { attempts: 1 }), { status: "settled" }),
  finalize([{ id: "p", ...settled, proof: state }]),
  ["finished: 0"],
);
await check(
  "settled, and a final state says so",
  withTransaction(ended("settled", { attempts: 1 }), { status: "settled" }),
  finalize([{ id: "p", ...finalSettled, proof: state }]),
  ["finished: 0", "payments p: final_at now", "settlements p: final_at now"],
);
await check(
  "failed, and a receipt shows the payment: the budget counts it again",
  withTransaction(ended("failed", { proof: state }), {
    status: "voided",
    failure_code: "late",
    failure_detail: "Late.",
    tx_hash: null,
    settled_at: null,
  }),
  finalize([{ id: "p", ...finalSettled, byOther: true }]),
  [
    "finished: 0",
    "agents agt_1: window_sum 600",
    "audit_notes payment.corrected: after (kind failed_to_settled, paymentId p, status settled, txHash t5), before (paymentId p, status voided, txHash null)",
    "payments p: block_number 60, counted true, failure_code null, failure_detail null, final_at now, settled_at now, status settled, tx_hash t5, updated_at now",
    "settlement_corrections p failed_to_settled: after (proof (block 60, blockHash b60, kind receipt, tx t5), status settled), before (finalAt null, proof (block 70, blockHash b70, kind state, timestamp 1), reason why, status failed)",
    "settlements p: block_hash b60, block_number 60, by_other true, corrected_at now, error_message null, error_reason null, final_at now, proof (block 60, blockHash b60, kind receipt, tx t5), settled_at now, status settled, tx_hash t5, updated_at now",
    "told: at now, block 60, byOther true, id p, message null, reason null, status settled, txHash t5, value 100",
    "corrected: p failed_to_settled",
  ],
);
await check(
  "failed, and a state shows a use",
  withTransaction(ended("failed", { proof: state }), { status: "voided" }),
  finalize([{ id: "p", ...finalSettled, proof: state }]),
  ["finished: 0"],
);
await check(
  "failed, now final",
  withTransaction(ended("failed"), { status: "voided" }),
  finalize([{ id: "p", ...failed, status: "failed" }]),
  ["finished: 0", "settlements p: final_at now"],
);
await check(
  "expired, and a receipt shows the payment: the budget counts it again",
  withTransaction(ended("expired", { proof: state }), {
    status: "voided",
    failure_code: "late",
    failure_detail: "Late.",
    tx_hash: null,
    settled_at: null,
  }),
  finalize([{ id: "p", ...finalSettled, byOther: true }]),
  [
    "finished: 0",
    "agents agt_1: window_sum 600",
    "audit_notes payment.corrected: after (kind expired_to_settled, paymentId p, status settled, txHash t5), before (paymentId p, status voided, txHash null)",
    "payments p: block_number 60, counted true, failure_code null, failure_detail null, final_at now, settled_at now, status settled, tx_hash t5, updated_at now",
    "settlement_corrections p expired_to_settled: after (proof (block 60, blockHash b60, kind receipt, tx t5), status settled), before (finalAt null, proof (block 70, blockHash b70, kind state, timestamp 1), reason why, status expired)",
    "settlements p: block_hash b60, block_number 60, by_other true, corrected_at now, error_message null, error_reason null, final_at now, proof (block 60, blockHash b60, kind receipt, tx t5), settled_at now, status settled, tx_hash t5, updated_at now",
    "told: at now, block 60, byOther true, id p, message null, reason null, status settled, txHash t5, value 100",
    "corrected: p expired_to_settled",
  ],
);
await check(
  "expired, and a state shows a use",
  withTransaction(ended("expired", { proof: state }), { status: "voided" }),
  finalize([{ id: "p", ...finalSettled, proof: state }]),
  ["finished: 0"],
);
await check(
  "expired, now final",
  withTransaction(ended("expired"), { status: "voided" }),
  finalize([{ id: "p", ...failed, status: "expired" }]),
  ["finished: 0", "settlements p: final_at now"],
);
await check(
  "settled, and it is said to have failed: only the transaction's removal takes it back",
  withTransaction(ended("settled"), { status: "settled" }),
  finalize([{ id: "p", ...failed }]),
  ["finished: 0"],
);
await check(
  "a maximum that another transaction charged differently",
  withTransaction(ended("settled", { attempts: 1, ...upto(100), value: 30 }), {
    status: "settled",
    maximum: 100,
    amount: 30,
    nonce: `permit2:${h("p")}`,
  }),
  finalize([{ id: "p", ...settled, amount: "40", proof: receipt("t6") }]),
  [
    "finished: 0",
    "agents agt_1: window_sum 510",
    "audit_notes payment.corrected: after (kind settled_elsewhere, paymentId p, status settled, txHash t6), before (paymentId p, status settled, txHash t5)",
    "payments p: amount 40, block_number 60, tx_hash t6, updated_at now",
    "settlement_corrections p settled_elsewhere: after (proof (block 60, blockHash b60, kind receipt, tx t6), status settled), before (finalAt null, proof (block 60, blockHash b60, kind receipt, tx t5), reason null, status settled)",
    "settlements p: corrected_at now, proof (block 60, blockHash b60, kind receipt, tx t6), tx_hash t6, updated_at now, value 40",
    "told: at another day, block 60, byOther false, id p, message null, reason null, status settled, txHash t6, value 40",
    "corrected: p settled_elsewhere",
  ],
);

// The transaction of an outcome left the chain.

const open = (tx = "t5") => finalize([{ id: "p", status: "open", proof: receipt(tx) }]);
await check(
  "removed, and none of our transactions may bring it back: it is queued, and its gas is reserved",
  withTransaction(
    ended("settled", {
      by_other: true,
      final_at: "2026-01-01",
      gas_accounts: ["owner:own_1", "agents"],
      gas_hold: 7,
      searched_up: 3,
      searched_down: 2,
      look_at: "2026-01-01",
      next_attempt_at: "2026-01-01",
    }),
    { status: "settled", final_at: "2026-01-01", block_number: 60 },
  ),
  open(),
  [
    "finished: 0",
    "audit_notes payment.corrected: after (kind settled_to_open, paymentId p, status submitted, txHash null), before (paymentId p, status settled, txHash t5)",
    "gas_accounts agents: full_at now, held 7, used 0, used_on today",
    "gas_accounts owner:own_1: full_at now, held 7, used 0, used_on today",
    "payments p: block_number null, final_at null, outstanding true, settled_at null, status submitted, tx_hash null, updated_at now",
    "settlement_corrections p settled_to_open: after (proof (block 60, blockHash b60, kind receipt, tx t5), status queued), before (finalAt another day, proof (block 60, blockHash b60, kind receipt, tx t5), reason null, status settled)",
    "settlements p: block_hash null, block_number null, by_other false, corrected_at now, final_at null, look_at -infinity, next_attempt_at -infinity, proof null, searched_down null, searched_up null, settled_at null, status queued, tx_hash null, updated_at now",
    "told: at null, block null, byOther false, id p, message null, reason null, status queued, txHash null, value 100",
    "corrected: p settled_to_open",
  ],
);
await check(
  "removed, and our transaction is pending again",
  async (rows) => {
    await withTransaction(
      ended("settled", { attempts: 1, gas_accounts: ["agents"], gas_hold: 7, lane_epoch: 4 }),
      { status: "settled", transaction: { status: "pending" } },
    )(rows);
    await rows.transaction(6, ["p"], { status: "pending" });
    await rows.transaction(7, [], { status: "pending" });
  },
  open(),
  [
    "finished: 0",
    "audit_notes payment.corrected: after (kind settled_to_open, paymentId p, status submitted, txHash t5), before (paymentId p, status settled, txHash t5)",
    "payments p: outstanding true, settled_at null, status submitted, updated_at now",
    "settlement_corrections p settled_to_open: after (proof (block 60, blockHash b60, kind receipt, tx t5), status submitted), before (finalAt null, proof (block 60, blockHash b60, kind receipt, tx t5), reason null, status settled)",
    "settlements p: block_hash null, block_number null, corrected_at now, lane_address lane, lane_epoch null, proof null, settled_at null, status submitted, updated_at now",
    "told: at null, block null, byOther false, id p, message null, reason null, status submitted, txHash t5, value 100",
    "corrected: p settled_to_open",
  ],
);
await check(
  "removed, and another of our transactions may settle it: the newest",
  async (rows) => {
    await withTransaction(ended("settled", { attempts: 1 }), { status: "settled" })(rows);
    await rows.transaction(6, ["p"], { status: "pending" });
    await rows.transaction(7, ["p"], { status: "pending" });
    await rows.transaction(8, ["p"], {
      status: "mined",
      mined_hash: h("t8"),
      block_number: 1,
      block_hash: h("b1"),
    });
  },
  open(),
  [
    "finished: 0",
    "audit_notes payment.corrected: after (kind settled_to_open, paymentId p, status submitted, txHash t7), before (paymentId p, status settled, txHash t5)",
    "payments p: outstanding true, settled_at null, status submitted, tx_hash t7, updated_at now",
    "settlement_corrections p settled_to_open: after (proof (block 60, blockHash b60, kind receipt, tx t5), status submitted), before (finalAt null, proof (block 60, blockHash b60, kind receipt, tx t5), reason null, status settled)",
    "settlements p: block_hash null, block_number null, corrected_at now, lane_address lane, proof null, settled_at null, status submitted, tx_hash t7, updated_at now",
    "told: at null, block null, byOther false, id p, message null, reason null, status submitted, txHash t7, value 100",
    "corrected: p settled_to_open",
  ],
);
await check(
  "removed, and it had no reserved gas",
  (rows) => rows.settlement("a", ended("settled", { gas_accounts: ["strangers"], gas_hold: 0 })),
  finalize([{ id: "a", status: "open", proof: receipt("t5") }]),
  [
    "finished: 0",
    "settlement_corrections a settled_to_open: after (proof (block 60, blockHash b60, kind receipt, tx t5), status queued), before (finalAt null, proof (block 60, blockHash b60, kind receipt, tx t5), reason null, status settled)",
    "settlements a: block_hash null, block_number null, corrected_at now, proof null, settled_at null, status queued, tx_hash null, updated_at now",
    "told: at null, block null, byOther false, id a, message null, reason null, status queued, txHash null, value 100",
    "corrected: a settled_to_open",
  ],
);
await check(
  "removed, and one unit of gas of one account is reserved again",
  (rows) => rows.settlement("a", ended("settled", { gas_accounts: ["strangers"], gas_hold: 1 })),
  finalize([{ id: "a", status: "open", proof: receipt("t5") }]),
  [
    "finished: 0",
    "gas_accounts strangers: held 2",
    "settlement_corrections a settled_to_open: after (proof (block 60, blockHash b60, kind receipt, tx t5), status queued), before (finalAt null, proof (block 60, blockHash b60, kind receipt, tx t5), reason null, status settled)",
    "settlements a: block_hash null, block_number null, corrected_at now, proof null, settled_at null, status queued, tx_hash null, updated_at now",
    "told: at null, block null, byOther false, id a, message null, reason null, status queued, txHash null, value 100",
    "corrected: a settled_to_open",
  ],
);
await check(
  "removed from another lane's transaction, and ours may settle it",
  async (rows) => {
    await rows.settlement("a", ended("settled", { attempts: 1, lane_epoch: 4 }));
    // The transaction that settled it had the same nonce in another lane, and on another chain.
    await rows.transaction(6, [], { lane: account("other"), attempts: [{ hash: h("t5") }] });
    await rows.transaction(6, [], { chain: 1, attempts: [{ hash: h("c6") }] });
    await rows.transaction(6, ["a"], {});
  },
  finalize([{ id: "a", status: "open", proof: receipt("t5") }]),
  [
    "finished: 0",
    "settlement_corrections a settled_to_open: after (proof (block 60, blockHash b60, kind receipt, tx t5), status submitted), before (finalAt null, proof (block 60, blockHash b60, kind receipt, tx t5), reason null, status settled)",
    "settlements a: block_hash null, block_number null, corrected_at now, lane_address lane, lane_epoch null, proof null, settled_at null, status submitted, tx_hash t6, updated_at now",
    "told: at null, block null, byOther false, id a, message null, reason null, status submitted, txHash t6, value 100",
    "corrected: a settled_to_open",
  ],
);
await check(
  "another transaction was removed",
  withTransaction(ended("settled"), { status: "settled" }),
  open("t6"),
  ["finished: 0"],
);
await check(
  "the outcome was proven by a state",
  withTransaction(ended("failed", { proof: { ...state, tx: h("t5") } }), { status: "voided" }),
  open(),
  ["finished: 0"],
);
await check(
  "a cancellation was removed: the budget counts it again",
  withTransaction(ended("failed", { attempts: 1 }), { status: "voided" }),
  open(),
  [
    "finished: 0",
    "agents agt_1: window_sum 600",
    "audit_notes payment.corrected: after (kind failed_to_open, paymentId p, status submitted, txHash null), before (paymentId p, status voided, txHash t5)",
    "payments p: counted true, outstanding true, settled_at null, status submitted, tx_hash null, updated_at now",
    "settlement_corrections p failed_to_open: after (proof (block 60, blockHash b60, kind receipt, tx t5), status queued), before (finalAt null, proof (block 60, blockHash b60, kind receipt, tx t5), reason why, status failed)",
    "settlements p: corrected_at now, error_message null, error_reason null, proof null, status queued, updated_at now",
    "told: at null, block null, byOther false, id p, message null, reason null, status queued, txHash null, value 100",
    "corrected: p failed_to_open",
  ],
);
await check(
  "the charge of a maximum was removed, which we charge",
  withTransaction(ended("settled", { attempts: 1, ...upto(100), value: 30, relay: true }), {
    status: "settled",
    maximum: 100,
    amount: 30,
    nonce: `permit2:${h("p")}`,
  }),
  open(),
  [
    "finished: 0",
    "agents agt_1: window_sum 570",
    "audit_notes payment.corrected: after (kind settled_to_open, paymentId p, status submitted, txHash null), before (paymentId p, status settled, txHash t5)",
    "payments p: amount 100, outstanding true, settled_at null, status submitted, tx_hash null, updated_at now",
    "settlement_corrections p settled_to_open: after (proof (block 60, blockHash b60, kind receipt, tx t5), status queued), before (finalAt null, proof (block 60, blockHash b60, kind receipt, tx t5), reason null, status settled)",
    "settlements p: block_hash null, block_number null, corrected_at now, proof null, settled_at null, status queued, tx_hash null, updated_at now",
    "told: at null, block null, byOther false, id p, message null, reason null, status queued, txHash null, value 30",
    "corrected: p settled_to_open",
  ],
);
await check(
  "the charge of a maximum was removed, which another party charges",
  withTransaction(ended("settled", { attempts: 1, ...upto(100), value: 30, relay: false }), {
    status: "settled",
    maximum: 100,
    amount: 30,
    nonce: `permit2:${h("p")}`,
  }),
  open(),
  [
    "finished: 0",
    "agents agt_1: window_sum 570",
    "audit_notes payment.corrected: after (kind settled_to_open, paymentId p, status submitted, txHash null), before (paymentId p, status settled, txHash t5)",
    "payments p: amount 100, outstanding true, settled_at null, status submitted, tx_hash null, updated_at now",
    "settlement_corrections p settled_to_open: after (proof (block 60, blockHash b60, kind receipt, tx t5), status queued), before (finalAt null, proof (block 60, blockHash b60, kind receipt, tx t5), reason null, status settled)",
    "settlements p: block_hash null, block_number null, corrected_at now, proof null, settled_at null, status queued, tx_hash null, updated_at now, value 100",
    "told: at null, block null, byOther false, id p, message null, reason null, status queued, txHash null, value 100",
    "corrected: p settled_to_open",
  ],
);
await check(
  "a watched payment without a maximum was removed",
  withTransaction(ended("settled", { attempts: 1, relay: false }), { status: "settled" }),
  open(),
  [
    "finished: 0",
    "audit_notes payment.corrected: after (kind settled_to_open, paymentId p, status submitted, txHash null), before (paymentId p, status settled, txHash t5)",
    "payments p: outstanding true, settled_at null, status submitted, tx_hash null, updated_at now",
    "settlement_corrections p settled_to_open: after (proof (block 60, blockHash b60, kind receipt, tx t5), status queued), before (finalAt null, proof (block 60, blockHash b60, kind receipt, tx t5), reason null, status settled)",
    "settlements p: block_hash null, block_number null, corrected_at now, proof null, settled_at null, status queued, tx_hash null, updated_at now",
    "told: at null, block null, byOther false, id p, message null, reason null, status queued, txHash null, value 100",
    "corrected: p settled_to_open",
  ],
);
await check(
  "two of third parties: one is corrected, one was removed",
  async (rows) => {
    await rows.settlement("a", ended("failed", { proof: state, ...gas, settled_at: "2026-01-02" }));
    await rows.settlement("b", ended("settled", { ...gas }));
    await rows.settlement("c", ended("settled", { gas_accounts: ["strangers"], gas_hold: 0 }));
    await rows.settlement("d", ended("settled", { gas_accounts: ["strangers"], gas_hold: 2 }));
  },
  finalize([
    { id: "d", status: "open", proof: receipt("t5") },
    { id: "c", status: "open", proof: receipt("t5") },
    { id: "b", status: "open", proof: receipt("t5") },
    { id: "a", ...settled },
  ]),
  [
    "finished: 0",
    "gas_accounts payer:p: held 21",
    "gas_accounts strangers: held 25",
    "settlement_corrections a failed_to_settled: after (proof (block 60, blockHash b60, kind receipt, tx t5), status settled), before (finalAt null, proof (block 70, blockHash b70, kind state, timestamp 1), reason why, status failed)",
    "settlement_corrections b settled_to_open: after (proof (block 60, blockHash b60, kind receipt, tx t5), status queued), before (finalAt null, proof (block 60, blockHash b60, kind receipt, tx t5), reason null, status settled)",
    "settlement_corrections c settled_to_open: after (proof (block 60, blockHash b60, kind receipt, tx t5), status queued), before (finalAt null, proof (block 60, blockHash b60, kind receipt, tx t5), reason null, status settled)",
    "settlement_corrections d settled_to_open: after (proof (block 60, blockHash b60, kind receipt, tx t5), status queued), before (finalAt null, proof (block 60, blockHash b60, kind receipt, tx t5), reason null, status settled)",
    "settlements a: block_hash b60, block_number 60, corrected_at now, error_message null, error_reason null, proof (block 60, blockHash b60, kind receipt, tx t5), status settled, tx_hash t5, updated_at now",
    "settlements b: block_hash null, block_number null, corrected_at now, proof null, settled_at null, status queued, tx_hash null, updated_at now",
    "settlements c: block_hash null, block_number null, corrected_at now, proof null, settled_at null, status queued, tx_hash null, updated_at now",
    "settlements d: block_hash null, block_number null, corrected_at now, proof null, settled_at null, status queued, tx_hash null, updated_at now",
    "told: at another day, block 60, byOther false, id a, message null, reason null, status settled, txHash t5, value 100",
    "told: at null, block null, byOther false, id b, message null, reason null, status queued, txHash null, value 100",
    "told: at null, block null, byOther false, id c, message null, reason null, status queued, txHash null, value 100",
    "told: at null, block null, byOther false, id d, message null, reason null, status queued, txHash null, value 100",
    "corrected: a failed_to_settled",
    "corrected: b settled_to_open",
    "corrected: c settled_to_open",
    "corrected: d settled_to_open",
  ],
);
await check(
  "an answer that reported the failure is taken back",
  async (rows) => {
    await withTransaction(ended("failed", { proof: state }), { status: "voided" })(rows);
    const key = { route: "r", body_hash: Buffer.alloc(32), response: "{}" };
    const keys: Row[] = [
      { key: "agent's", subject_id: AGENT, payment_id: "p", status_code: 402 },
      { key: "owner's", subject_id: "own_1", payment_id: "p", status_code: 400 },
      { key: "a success", subject_id: AGENT, payment_id: "p", status_code: 399 },
      { key: "another payment's", subject_id: AGENT, payment_id: "q", status_code: 402 },
      { key: "another subject's", subject_id: "agt_2", payment_id: "p", status_code: 402 },
    ];
    for (const row of keys) await rows.insert("idempotency_keys", { ...key, ...row });
  },
  finalize([{ id: "p", ...settled }]),
  [
    "finished: 0",
    "agents agt_1: window_sum 600",
    "audit_notes payment.corrected: after (kind failed_to_settled, paymentId p, status settled, txHash t5), before (paymentId p, status voided, txHash t5)",
    "idempotency_keys agent's: response null, status_code null, updated_at now",
    "idempotency_keys owner's: response null, status_code null, updated_at now",
    "payments p: block_number 60, counted true, settled_at now, status settled, updated_at now",
    "settlement_corrections p failed_to_settled: after (proof (block 60, blockHash b60, kind receipt, tx t5), status settled), before (finalAt null, proof (block 70, blockHash b70, kind state, timestamp 1), reason why, status failed)",
    "settlements p: block_hash b60, block_number 60, corrected_at now, error_message null, error_reason null, proof (block 60, blockHash b60, kind receipt, tx t5), settled_at now, status settled, tx_hash t5, updated_at now",
    "told: at now, block 60, byOther false, id p, message null, reason null, status settled, txHash t5, value 100",
    "corrected: p failed_to_settled",
  ],
);
await check(
  "a settlement whose payment is not there",
  async (rows) => {
    await rows.agent();
    await rows.settlement("p", { ...agents, ...ended("failed", { proof: state }) });
  },
  finalize([{ id: "p", ...settled }]),
  [
    "finished: 0",
    "settlement_corrections p failed_to_settled: after (proof (block 60, blockHash b60, kind receipt, tx t5), status settled), before (finalAt null, proof (block 70, blockHash b70, kind state, timestamp 1), reason why, status failed)",
    "settlements p: block_hash b60, block_number 60, corrected_at now, error_message null, error_reason null, proof (block 60, blockHash b60, kind receipt, tx t5), settled_at now, status settled, tx_hash t5, updated_at now",
    "told: at now, block 60, byOther false, id p, message null, reason null, status settled, txHash t5, value 100",
    "corrected: p failed_to_settled",
  ],
);

// Fees: only their lines are compared. The second call must change nothing at all.

const checkFees = (
  what: string,
  prepare: (rows: ChangedRows) => Promise<unknown>,
  call: (rows: ChangedRows) => Promise<unknown>,
  expected: string[],
) =>
  t.test(what, async (t) => {
    await inRows(async (rows) => {
      await prepare(rows);
      await rows.neighbours();
      const changes = await rows.changesOf(() => call(rows));
      t.same(
        changes.filter((line) => line.startsWith("fee_")),
        expected,
      );
      t.same(await rows.changesOf(() => call(rows)), [], "a second time");
    });
  });

const fee = { fee: { account: PAYEE, amount: "7" } };
const paysFees = { fee: { account: account("debtor") }, to_address: account("fees") };
const booked =
  (kind: "fee" | "payment", of: string, amount: number) => async (rows: ChangedRows) => {
    await rows.query(
      `INSERT INTO fee_entries (from_address, chain_id, asset, nonce, id, kind, account, amount, value)
     SELECT from_address, chain_id, asset, nonce, id, $1, $2, $3, value FROM settlements WHERE id = 'a'`,
      [kind, of, amount],
    );
    await rows.insert("fee_accounts", {
      chain_id: CHAIN,
      account: of,
      charged: kind === "fee" ? 50 : 0,
      paid: kind === "fee" ? 20 : 100,
    });
  };

await checkFees(
  "fees of several payees, one of them twice, and a payment of fees",
  async (rows) => {
    for (const id of ["a", "b"])
      await rows.settlement(id, { status: "submitted", tx_hash: h("t5"), attempts: 1, ...fee });
    await rows.settlement("c", {
      status: "submitted",
      tx_hash: h("t5"),
      attempts: 1,
      ...paysFees,
    });
    await rows.settlement("d", { status: "submitted", tx_hash: h("t5"), attempts: 1 });
    await rows.insert("fee_accounts", { chain_id: CHAIN, account: PAYEE, charged: 50, paid: 20 });
  },
  finalize(["a", "b", "c", "d"].map((id) => ({ id, ...settled }))),
  [
    "fee_accounts debtor: charged 0, paid 100",
    "fee_accounts payee: charged 64",
    "fee_entries fee a: amount 7, value 100",
    "fee_entries fee b: amount 7, value 100",
    "fee_entries payment c: amount 100, value 100",
  ],
);
await checkFees(
  "no fee for what another party's transaction paid, but its payment of fees counts",
  async (rows) => {
    await rows.settlement("a", fee);
    await rows.settlement("c", paysFees);
  },
  finalize(["a", "c"].map((id) => ({ id, ...settled, byOther: true }))),
  ["fee_accounts debtor: charged 0, paid 100", "fee_entries payment c: amount 100, value 100"],
);
await checkFees(
  "no fee for a payment that failed",
  (rows) => rows.settlement("a", fee),
  finalize([{ id: "a", ...failed }]),
  [],
);
await checkFees(
  "a block that is taken back takes the fee along",
  async (rows) => {
    await rows.settlement("a", { ...ended("settled"), ...fee });
    await booked("fee", PAYEE, 7)(rows);
  },
  finalize([{ id: "a", status: "open", proof: receipt("t5") }]),
  ["fee_accounts payee: charged 43", "fee_entries fee a: deleted"],
);
await checkFees(
  "a block that is taken back takes the credit along",
  async (rows) => {
    await rows.settlement("a", { ...ended("settled"), ...paysFees });
    await booked("payment", account("debtor"), 100)(rows);
  },
  finalize([{ id: "a", status: "open", proof: receipt("t5") }]),
  ["fee_accounts debtor: paid 0", "fee_entries payment a: deleted"],
);
await checkFees(
  "a failure that was a payment is charged, and one in another block is not charged again",
  async (rows) => {
    await rows.settlement("a", { ...ended("settled"), ...fee });
    await booked("fee", PAYEE, 7)(rows);
    await rows.settlement("b", { ...ended("failed"), ...fee });
  },
  finalize(["a", "b"].map((id) => ({ id, ...settled, proof: receipt("t6", 61) }))),
  ["fee_accounts payee: charged 57", "fee_entries fee b: amount 7, value 100"],
);
