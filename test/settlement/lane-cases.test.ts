// Goal: a lane belongs to one process at a time, a transaction is stored whole or not at all, and a reservation is released or signed, never both.
import t from "tap";
import {
  account,
  AGENT,
  ASSET,
  CHAIN,
  h,
  LANE,
  OWNER,
  rowChanges,
  type ChangedRows,
  type Row,
} from "./changed-rows.ts";

const inRows = await rowChanges(t);
type Work = (rows: ChangedRows) => Promise<unknown>;

/** The result of the call, or the code of its error, and the rows that it changed. */
async function check(what: string, prepare: Work, call: Work, expected: string[]) {
  await t.test(what, async (t) => {
    await inRows(async (rows) => {
      await prepare(rows);
      await rows.neighbours();
      let result: unknown;
      const lines = await rows.changesOf(async () => {
        await rows.query("SAVEPOINT before");
        result = await call(rows).catch(async (error: { code?: string; message: string }) => {
          await rows.query("ROLLBACK TO before");
          return { refused: error.code ?? error.message };
        });
      });
      t.same([rows.shown(result), ...lines], expected);
    });
  });
}

const result = async (rows: ChangedRows, text: string, values: unknown[]) => {
  const { rows: found } = await rows.query(text, values);
  return { result: found[0] ?? "none" };
};
const inSeconds = (rows: ChangedRows, seconds: number): string =>
  new Date(rows.nowMs + seconds * 1_000).toISOString();

// The lease of a lane.

const lane =
  (row: Row & { untilSeconds?: number } = {}): Work =>
  async (rows) => {
    const { untilSeconds = 10, ...more } = row;
    await rows.insert("relayer_lanes", {
      chain_id: CHAIN,
      address: LANE,
      lease_owner: "me",
      lease_epoch: 4,
      lease_until: inSeconds(rows, untilSeconds),
      next_nonce: 5,
      ...more,
    });
  };
const acquire =
  (owner: string): Work =>
  (rows) =>
    result(rows, "SELECT * FROM purser_lane_acquire($1, $2, $3, 2500)", [CHAIN, LANE, owner]);
await check("a new lane", async () => undefined, acquire("me"), [
  "result (epoch 1, nonce 0)",
  "relayer_lanes lane: address lane, lease_epoch 1, lease_owner me, lease_until +2.5 s, looked_nonce 0, next_nonce 0",
]);
await check("a lane whose lease has just ended", lane({ untilSeconds: 0 }), acquire("other"), [
  "result (epoch 5, nonce 5)",
  "relayer_lanes lane: lease_epoch 5, lease_owner other, lease_until +2.5 s",
]);
await check("a lane of another process", lane({ untilSeconds: 0.001 }), acquire("other"), [
  "result none",
]);
await check("another chain's lane", lane({ chain_id: 1 }), acquire("me"), [
  "result (epoch 1, nonce 0)",
  "relayer_lanes lane: address lane, lease_epoch 1, lease_owner me, lease_until +2.5 s, looked_nonce 0, next_nonce 0",
]);

// A signed transaction is stored.

const claimed = (row: Row = {}): Row => ({ lane_address: LANE, lane_epoch: 4, ...row });
const gas = { gas_accounts: ["strangers", "payer:p"], gas_hold: 7 };
interface Persist {
  owner?: string;
  epoch?: number;
  nonce?: number;
  items?: string[];
}
const persist =
  ({ owner = "me", epoch = 4, nonce = 5, items = ["a", "b"] }: Persist = {}): Work =>
  async (rows) => {
    await rows.query(
      "SELECT purser_lane_persist($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11,$12,$13,$14,$15,$16,$17)",
      [
        CHAIN,
        LANE,
        owner,
        epoch,
        nonce,
        ASSET,
        Buffer.from("01", "hex"),
        90_000,
        h("t5"),
        Buffer.from("02", "hex"),
        20,
        3,
        items.map((_, index) => (index === 0 ? "transfer" : "cancel")),
        items.map(() => account("payer")),
        items.map(() => ASSET),
        items.map(h),
        77,
      ],
    );
    return { result: "stored" };
  };
const two =
  (row: Row = {}, lanes: Work = lane()): Work =>
  async (rows) => {
    await lanes(rows);
    await rows.settlement("a", claimed({ ...gas, ...row }));
    await rows.settlement("b", claimed(row));
  };
const stored = (nonce = 5): string[] => [
  "result stored",
  "relayer_attempts t5: attempt 1, hash t5, max_fee_wei 20, priority_fee_wei 3, purpose work, raw \\x02",
  `relayer_lanes lane: next_nonce ${nonce + 1}`,
  `relayer_transactions tx ${nonce}: calldata \\x01, gas_limit 90000, sent_block 77, status pending, to_address token`,
];
const sent = (id: string, attempts = 1) =>
  `settlements ${id}: attempts ${attempts}, status submitted, tx_hash t5, updated_at now`;
const carried = (position: number, gasHold: number, nonce = 5) =>
  `settlement_transactions ${nonce} ${position}: gas_hold ${gasHold}, lane_nonce ${nonce}, position ${position}`;
await check("two payments", two(), persist(), [
  ...stored(),
  carried(0, 7),
  carried(1, 0),
  sent("a"),
  sent("b"),
]);
const reservedAgain = ["gas_accounts payer:p: held 14", "gas_accounts strangers: held 14"];
await check(
  "payments that were sent before reserve their gas again",
  two({ attempts: 1 }),
  persist(),
  [
    "result stored",
    ...reservedAgain,
    ...stored().slice(1),
    carried(0, 7),
    carried(1, 0),
    sent("a", 2),
    sent("b", 2),
  ],
);
await check(
  "sent before: without reserved gas, none is reserved again, and one unit is",
  async (rows) => {
    await two({ attempts: 1, gas_accounts: ["strangers"], gas_hold: 0 })(rows);
    await rows.settlement("c", claimed({ attempts: 1, gas_accounts: ["payer:p"], gas_hold: 1 }));
  },
  persist({ items: ["a", "c"] }),
  [
    "result stored",
    "gas_accounts payer:p: held 2",
    ...stored().slice(1),
    carried(0, 0),
    carried(1, 1),
    sent("a", 2),
    sent("c", 2),
  ],
);
await check("sent twice before", two({ attempts: 2 }), persist({ items: ["a"] }), [
  "result stored",
  ...reservedAgain,
  ...stored().slice(1),
  carried(0, 7),
  sent("a", 3),
]);
await check("in the other order", two(), persist({ items: ["b", "a"] }), [
  ...stored(),
  carried(0, 0),
  carried(1, 7),
  sent("a"),
  sent("b"),
]);
await check("a later nonce", two(), persist({ nonce: 9, items: ["a"] }), [
  ...stored(9),
  carried(0, 7, 9),
  sent("a"),
]);
await check("an earlier nonce", two(), persist({ nonce: 4 }), ["refused PU001"]);
await check("another process has the lane", two(), persist({ owner: "other" }), ["refused PU001"]);
await check("another lease", two(), persist({ epoch: 5 }), ["refused PU001"]);
await check("the lease has just ended", two({}, lane({ untilSeconds: 0 })), persist(), [
  "refused PU001",
]);
await check("no such lane", two({}, lane({ address: account("another") })), persist(), [
  "refused PU001",
]);
await check("another chain's lane has it", two({}, lane({ chain_id: 1 })), persist(), [
  "refused PU001",
]);
const changedHands: [string, Row][] = [
  ["is claimed by another lane", { lane_address: account("another") }],
  ["is claimed under another lease", { lane_epoch: 3 }],
  ["is not claimed", { lane_address: null, lane_epoch: null }],
  ["is sent", { status: "submitted" }],
  ["is another chain's", { chain_id: 1 }],
  ["is another token's", { asset: account("another token") }],
  ["is another payer's", { from_address: account("another") }],
];
for (const [what, row] of changedHands)
  await check(
    `one of its payments ${what}`,
    async (rows) => {
      await lane()(rows);
      await rows.settlement("a", claimed());
      await rows.settlement("b", claimed(row));
    },
    persist(),
    ["refused PU002"],
  );

// An agent's reservation: released, or signed.

const PERMIT = `apr_${"0".repeat(26)}`;
const otherAgent: Work = (rows) =>
  rows.query(
    `INSERT INTO agents (id, owner_id, name, network, wallet_address, daily_limit, window_tail_at)
     SELECT 'agt_9', owner_id, name, network, $1, daily_limit, window_tail_at FROM agents`,
    [account("wallet 9")],
  );

const reserved =
  (row: Row = {}): Work =>
  async (rows) => {
    await rows.agent();
    await rows.payment("p", { status: "reserved", nonce: h("p"), gas_hold: 7, ...row });
    await rows.payment("q", { status: "reserved", nonce: h("q") });
    const key = { route: "r", body_hash: Buffer.alloc(32), response: null, status_code: null };
    const keys: Row[] = [
      { key: "agent's", subject_id: AGENT, payment_id: "p" },
      { key: "owner's", subject_id: OWNER, payment_id: "p" },
      { key: "answered", subject_id: AGENT, payment_id: "p", status_code: 402 },
      { key: "another payment's", subject_id: AGENT, payment_id: "q" },
      { key: "another subject's", subject_id: "agt_2", payment_id: "p" },
    ];
    for (const one of keys) await rows.insert("idempotency_keys", { ...key, ...one });
    const order = {
      agent_id: AGENT,
      to_address: ASSET,
      amount: 1,
      deadline: 1,
      signature: Buffer.alloc(65),
    };
    await rows.insert("withdrawal_orders", { ...order, nonce: h("n1"), payment_id: "p" });
    await rows.insert("withdrawal_orders", { ...order, nonce: h("n2"), payment_id: "q" });
    // Another agent's order for a payment of that name.
    await otherAgent(rows);
    const others = { ...order, agent_id: "agt_9", nonce: h("n3"), payment_id: "p" };
    await rows.insert("withdrawal_orders", others);
    await rows.insert("approvals", {
      id: PERMIT,
      owner_id: OWNER,
      agent_id: AGENT,
      state: "used",
      call: Buffer.alloc(32),
      key: "k",
      kind: "spend",
      chain_id: CHAIN,
      asset: ASSET,
      payee: ASSET,
      amount: 100,
      site: "",
      denial_code: "recipient_not_allowed",
      denial: "{}",
      permit_nonce: h("permit"),
      permit_until: 1,
      expires_at: inSeconds(rows, 60),
      decided_at: inSeconds(rows, 0),
      payment_id: "p",
    });
  };
const voidUnsigned: Work = (rows) =>
  result(rows, "SELECT purser_void_unsigned($1, 'p', 'why', 'Why.') AS voided", [AGENT]);
const released = [
  "idempotency_keys agent's: deleted",
  "idempotency_keys owner's: deleted",
  "payments p: counted false, failure_code why, failure_detail Why., outstanding false, status voided, updated_at now",
  "withdrawal_orders n1: deleted",
];
await check("a reservation is released", reserved(), voidUnsigned, [
  "result (voided true)",
  "agents agt_1: window_sum 400",
  `approvals ${PERMIT}: payment_id null, state granted`,
  "gas_accounts owner:own_1: full_at now, held -7, used 0, used_on today",
  ...released,
]);
await check("one unit of gas", reserved({ gas_hold: 1 }), voidUnsigned, [
  "result (voided true)",
  "agents agt_1: window_sum 400",
  `approvals ${PERMIT}: payment_id null, state granted`,
  "gas_accounts owner:own_1: full_at now, held -1, used 0, used_on today",
  ...released,
]);
await check("a withdrawal's", reserved({ kind: "withdrawal" }), voidUnsigned, [
  "result (voided true)",
  `approvals ${PERMIT}: payment_id null, state granted`,
  "audit_notes withdrawal.voided: after (amountAtomic 100, network eip155:5042002, nonce p, paymentId p, to payee, txHash null)",
  "gas_accounts withdrawer:own_1: full_at now, held -7, used 0, used_on today",
  ...released.map((line) => line.replace("counted false, ", "")),
]);
await check("without gas", reserved({ gas_hold: 0 }), voidUnsigned, [
  "result (voided true)",
  "agents agt_1: window_sum 400",
  `approvals ${PERMIT}: payment_id null, state granted`,
  ...released,
]);
for (const [what, row] of Object.entries<Row>({
  submitted: { status: "submitted", nonce: h("p") },
  voided: { status: "voided" },
  settled: { status: "settled", tx_hash: h("t5"), settled_at: "2026-01-01", nonce: h("p") },
}))
  await check(`a ${what} payment is not released`, reserved(row), voidUnsigned, [
    "result (voided false)",
  ]);
const voidPayment: Work = async (rows) => {
  await rows.query("SELECT purser_payment_voided($1, 'p', 'why', 'Why.')", [AGENT]);
  return { result: "called" };
};
for (const [what, row] of Object.entries<Row>({
  voided: { status: "voided", failure_code: "before" },
  settled: { status: "settled", tx_hash: h("t5"), settled_at: "2026-01-01", nonce: h("p") },
}))
  await check(`a ${what} payment is not voided`, reserved(row), voidPayment, ["result called"]);
const signAs =
  (row: Row): Work =>
  async (rows) => {
    await rows.accept("p", { agent_id: AGENT, ...row });
    await rows.query("DELETE FROM settlements");
    return { result: "signed" };
  };
const sign = signAs({});
await check("a reservation is signed", reserved(), sign, [
  "result signed",
  "gas_accounts agents: full_at now, held 7, used 0, used_on today",
  "payments p: status submitted",
]);
await check("signed before", reserved({ status: "submitted", nonce: h("p") }), sign, [
  "result signed",
  "gas_accounts agents: full_at now, held 7, used 0, used_on today",
]);
await check(
  "another agent's payment of that name was released",
  async (rows) => {
    await rows.agent();
    await otherAgent(rows);
    await rows.payment("p", { agent_id: "agt_9", status: "voided" });
  },
  sign,
  ["refused PU004"],
);
await check("released before", reserved({ status: "voided" }), sign, ["refused PU004"]);
await check("refused before", reserved({ status: "blocked", denial_code: "x" }), sign, [
  "refused PU004",
]);
await check(
  "without a payment: it was lost with the database's memory",
  (rows) => rows.agent(),
  sign,
  ["refused PU004"],
);
await check(
  "the end of a channel, which has no payment",
  (rows) => rows.agent(),
  signAs({ kind: "withdrawal" }),
  ["result signed"],
);
await check(
  "another payment of the agent was released",
  async (rows) => {
    await rows.agent();
    await rows.payment("q", { status: "voided" });
  },
  sign,
  ["refused PU004"],
);

// How much a signed maximum counts.

const amount =
  (id: string, value: number): Work =>
  async (rows) => {
    await rows.query("SELECT purser_payment_amount($1, $2, $3)", [AGENT, id, value]);
    return { result: "set" };
  };
const maximum =
  (row: Row = {}): Work =>
  async (rows) => {
    await rows.agent();
    await rows.insert("spending_windows", {
      agent_id: AGENT,
      payee: "",
      hours: 168,
      after_at: "2000-01-01",
      to_at: "2100-01-01",
      amount: 900,
      payments: 9,
    });
    await rows.payment("p", { maximum: 100, nonce: `permit2:${h("p")}`, ...row });
    await rows.payment("q", { maximum: 100, nonce: `permit2:${h("q")}` });
  };
await check("less is charged", maximum(), amount("p", 40), [
  "result set",
  "agents agt_1: window_sum 440",
  "payments p: amount 40",
  "spending_windows agt_1  168: amount 840",
]);
await check("more than before is charged", maximum({ amount: 40 }), amount("p", 100), [
  "result set",
  "agents agt_1: window_sum 560",
  "payments p: amount 100",
  "spending_windows agt_1  168: amount 960",
]);
await check("a payment that does not count", maximum({ status: "voided" }), amount("p", 40), [
  "result set",
  "payments p: amount 40",
]);
await check("without a maximum", maximum({ maximum: null, nonce: h("p") }), amount("p", 40), [
  "result set",
]);
await check("no such payment", maximum(), amount("x", 40), ["result set"]);

// Whether success was reported before a reorganisation.

t.test("whether the last reported outcome was a success", async (t) => {
  const was = (kinds: string[], row: Row = { corrected_at: "2026-01-01" }) =>
    inRows(async (rows) => {
      await rows.settlement("a", row);
      const key = { chain_id: CHAIN, asset: ASSET, settlement_id: "a", before: {}, after: {} };
      const own = { ...key, from_address: account("payer"), nonce: h("a") };
      for (const kind of kinds) await rows.insert("settlement_corrections", { ...own, kind });
      const others = [
        { nonce: h("b") },
        { chain_id: 1 },
        { asset: account("x") },
        { from_address: account("x") },
      ];
      for (const other of others)
        await rows.insert("settlement_corrections", { ...own, ...other, kind: "failed_to_open" });
      const { rows: found } = await rows.query<{ was: boolean }>(
        "SELECT purser_was_settled(s) AS was FROM settlements s WHERE id = 'a'",
      );
      return found[0]?.was;
    });
  t.equal(await was(["settled_to_open"]), true);
  t.equal(await was(["failed_to_open"]), false);
  t.equal(
    await was(["settled_to_open", "failed_to_settled", "failed_to_open"]),
    false,
    "the last one",
  );
  t.equal(await was(["failed_to_settled", "settled_to_open"]), true);
  t.equal(await was([]), false, "corrected by an older release");
  t.equal(await was(["settled_to_open"], {}), false, "never corrected");
});
