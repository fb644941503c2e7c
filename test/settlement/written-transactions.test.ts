// Goal: a transaction of ours that is in a block, replaced, given up or removed changes exactly the rows that it must, and its gas is charged once.
import t from "tap";
import { CHAIN, LANE, account, h, type ChangedRows, type Row } from "./changed-rows.ts";
import {
  agents,
  ended,
  gas,
  outcomeChecks,
  outcomesOf,
  receipt,
  settled,
  type Outcome,
} from "./written-outcomes.helper.ts";

const { check } = await outcomeChecks(t);

// One of our transactions.

interface Final {
  nonce?: number;
  status?: string;
  hash?: string;
  block?: number;
  outcomes?: Outcome[];
  faults?: string[];
  offenders?: string[];
  cost?: number;
}
const final =
  ({
    nonce = 5,
    status = "included",
    hash = "t5",
    block = 60,
    outcomes = [],
    faults = [],
    offenders = [],
    cost = 10,
  }: Final) =>
  async (rows: ChangedRows) => {
    const { rows: found } = await rows.query<{ result: unknown }>(
      "SELECT purser_transaction_final($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) AS result",
      [
        CHAIN,
        LANE,
        nonce,
        status,
        h(hash),
        block,
        h(`b${block}`),
        50_000,
        await outcomesOf(rows, outcomes),
        faults.map(h),
        offenders.map(account),
        cost,
      ],
    );
    return found[0]?.result;
  };
const sent = (row: Row = {}): Row => ({
  status: "submitted",
  tx_hash: h("t5"),
  lane_address: LANE,
  lane_epoch: 4,
  attempts: 1,
  ...row,
});
const three =
  (row: Row = {}, transaction: Row & { attempts?: Row[] } = {}) =>
  async (rows: ChangedRows) => {
    await rows.settlement("a", sent({ ...gas, ...row }));
    await rows.settlement("b", sent({ gas_accounts: ["strangers"], gas_hold: 5, ...row }));
    await rows.settlement("c", sent({ ...row }));
    await rows.transaction(5, ["a", "b", "c"], transaction);
  };
const included = {
  status: "included",
  mined_hash: h("t5"),
  block_number: 60,
  block_hash: h("b60"),
  gas_used: 50_000,
  gas_cost: 10,
};
const all = ["a", "b", "c"].map((id) => ({ id, ...settled }));

await check("all of its payments are in a block", three(), final({ outcomes: all }), [
  "finished: 3",
  "gas_accounts house: full_at now, held 0, used 3, used_on today",
  "gas_accounts payer:p: held 0, used 4",
  "gas_accounts strangers: held 0, used 7",
  "relayer_transactions tx 5: block_hash b60, block_number 60, gas_cost 10, gas_used 50000, mined_hash t5, status included",
  "settlements a: block_hash b60, block_number 60, proof (block 60, blockHash b60, kind receipt, tx t5), settled_at now, status settled, updated_at now",
  "settlements b: block_hash b60, block_number 60, proof (block 60, blockHash b60, kind receipt, tx t5), settled_at now, status settled, updated_at now",
  "settlements c: block_hash b60, block_number 60, proof (block 60, blockHash b60, kind receipt, tx t5), settled_at now, status settled, updated_at now",
  "told: at now, block 60, byOther false, id a, message null, reason null, status settled, txHash t5, value 100",
  "told: at now, block 60, byOther false, id b, message null, reason null, status settled, txHash t5, value 100",
  "told: at now, block 60, byOther false, id c, message null, reason null, status settled, txHash t5, value 100",
]);
await check(
  "one had an effect, one is at fault, one is not: both are sent again, the former alone",
  three({ faults: 1 }),
  final({ outcomes: all.slice(0, 1), faults: ["b"] }),
  [
    "finished: 1",
    "gas_accounts house: full_at now, held 0, used 3, used_on today",
    "gas_accounts payer:p: held 0, used 4",
    "gas_accounts strangers: held 0, used 7",
    "relayer_transactions tx 5: block_hash b60, block_number 60, gas_cost 10, gas_used 50000, mined_hash t5, status included",
    "settlements a: block_hash b60, block_number 60, proof (block 60, blockHash b60, kind receipt, tx t5), settled_at now, status settled, updated_at now",
    "settlements b: faults 2, lane_address null, lane_epoch null, solo true, status queued, tx_hash null, updated_at now",
    "settlements c: lane_address null, lane_epoch null, status queued, tx_hash null, updated_at now",
    "told: at now, block 60, byOther false, id a, message null, reason null, status settled, txHash t5, value 100",
  ],
);
await check(
  "the payer of one at fault is known from now on: what is queued of it goes alone",
  three({ faults: 1 }),
  final({ outcomes: all.slice(0, 1), faults: ["b"], offenders: ["payer"] }),
  [
    "finished: 1",
    "gas_accounts house: full_at now, held 0, used 3, used_on today",
    "gas_accounts payer:p: held 0, used 4",
    "gas_accounts strangers: held 0, used 7",
    "lane_offenders payer: count 1, until +86400 s",
    "relayer_transactions tx 5: block_hash b60, block_number 60, gas_cost 10, gas_used 50000, mined_hash t5, status included",
    "settlements a: block_hash b60, block_number 60, proof (block 60, blockHash b60, kind receipt, tx t5), settled_at now, status settled, updated_at now",
    "settlements b: faults 2, lane_address null, lane_epoch null, solo true, status queued, tx_hash null, updated_at now",
    "settlements c: lane_address null, lane_epoch null, solo true, status queued, tx_hash null, updated_at now",
    "told: at now, block 60, byOther false, id a, message null, reason null, status settled, txHash t5, value 100",
  ],
);
await check(
  "three of four had an effect: the fourth is sent again",
  async (rows) => {
    for (const id of ["a", "b", "c", "d"]) await rows.settlement(id, sent());
    await rows.transaction(5, ["a", "b", "c", "d"]);
  },
  final({ outcomes: all, cost: 0 }),
  [
    "finished: 3",
    "gas_accounts house: full_at now, held 0, used 0, used_on today",
    "relayer_transactions tx 5: block_hash b60, block_number 60, gas_cost 0, gas_used 50000, mined_hash t5, status included",
    ...["a", "b", "c"].map(
      (id) =>
        `settlements ${id}: block_hash b60, block_number 60, proof (block 60, blockHash b60, kind receipt, tx t5), settled_at now, status settled, updated_at now`,
    ),
    "settlements d: lane_address null, lane_epoch null, status queued, tx_hash null, updated_at now",
    ...["a", "b", "c"].map(
      (id) =>
        `told: at now, block 60, byOther false, id ${id}, message null, reason null, status settled, txHash t5, value 100`,
    ),
  ],
);
await check(
  "given up once before, and now in a block without effect: not alone",
  async (rows) => {
    await rows.settlement("a", sent({ given_up: 1 }));
    await rows.transaction(5, ["a"]);
  },
  final({ cost: 0 }),
  [
    "finished: 0",
    "gas_accounts house: full_at now, held 0, used 0, used_on today",
    "relayer_transactions tx 5: block_hash b60, block_number 60, gas_cost 0, gas_used 50000, mined_hash t5, status included",
    "settlements a: lane_address null, lane_epoch null, status queued, tx_hash null, updated_at now",
  ],
);
await check(
  "carried for the third time without effect: alone",
  three({ attempts: 3 }),
  final({ outcomes: [] }),
  [
    "finished: 0",
    "gas_accounts house: full_at now, held 0, used 3, used_on today",
    "gas_accounts payer:p: held 0, used 4",
    "gas_accounts strangers: held 0, used 7",
    "relayer_transactions tx 5: block_hash b60, block_number 60, gas_cost 10, gas_used 50000, mined_hash t5, status included",
    "settlements a: lane_address null, lane_epoch null, solo true, status queued, tx_hash null, updated_at now",
    "settlements b: lane_address null, lane_epoch null, solo true, status queued, tx_hash null, updated_at now",
    "settlements c: lane_address null, lane_epoch null, solo true, status queued, tx_hash null, updated_at now",
  ],
);
await check(
  "carried twice without effect",
  three({ attempts: 2, solo: false, next_attempt_at: "2026-01-01" }),
  final({ outcomes: [] }),
  [
    "finished: 0",
    "gas_accounts house: full_at now, held 0, used 3, used_on today",
    "gas_accounts payer:p: held 0, used 4",
    "gas_accounts strangers: held 0, used 7",
    "relayer_transactions tx 5: block_hash b60, block_number 60, gas_cost 10, gas_used 50000, mined_hash t5, status included",
    "settlements a: lane_address null, lane_epoch null, next_attempt_at -infinity, status queued, tx_hash null, updated_at now",
    "settlements b: lane_address null, lane_epoch null, next_attempt_at -infinity, status queued, tx_hash null, updated_at now",
    "settlements c: lane_address null, lane_epoch null, next_attempt_at -infinity, status queued, tx_hash null, updated_at now",
  ],
);
await check(
  "a cancellation is held until it is final",
  three(),
  final({ outcomes: [{ id: "a", ...settled, status: "held" }, ...all.slice(1, 2)] }),
  [
    "finished: 1",
    "gas_accounts house: full_at now, held 0, used 3, used_on today",
    "gas_accounts payer:p: held 0, used 4",
    "gas_accounts strangers: held 0, used 7",
    "relayer_transactions tx 5: block_hash b60, block_number 60, gas_cost 10, gas_used 50000, mined_hash t5, status included",
    "settlements b: block_hash b60, block_number 60, proof (block 60, blockHash b60, kind receipt, tx t5), settled_at now, status settled, updated_at now",
    "settlements c: lane_address null, lane_epoch null, status queued, tx_hash null, updated_at now",
    "told: at now, block 60, byOther false, id b, message null, reason null, status settled, txHash t5, value 100",
  ],
);
await check(
  "of payments that are alike, only the very one is held",
  async (rows) => {
    await rows.settlement("a", sent());
    await rows.settlement("other payer", sent({ nonce: h("a"), from_address: account("another") }));
    await rows.settlement("other token", sent({ nonce: h("a"), asset: account("another token") }));
    await rows.settlement("other nonce", sent());
    await rows.transaction(5, ["a", "other payer", "other token", "other nonce"]);
  },
  final({ outcomes: [{ id: "a", ...settled, status: "held" }], cost: 0 }),
  [
    "finished: 0",
    "gas_accounts house: full_at now, held 0, used 0, used_on today",
    "relayer_transactions tx 5: block_hash b60, block_number 60, gas_cost 0, gas_used 50000, mined_hash t5, status included",
    ...["nonce", "payer", "token"].map(
      (part) =>
        `settlements other ${part}: lane_address null, lane_epoch null, status queued, tx_hash null, updated_at now`,
    ),
  ],
);
await check(
  "rows that another transaction carries by now, or that ended",
  async (rows) => {
    await rows.settlement("a", sent({ tx_hash: h("t6") }));
    await rows.settlement("b", sent({ lane_address: account("other") }));
    await rows.settlement("c", sent(ended("settled")));
    await rows.settlement("d", sent({ status: "queued" }));
    await rows.transaction(5, ["a", "b", "c", "d"]);
    await rows.settlement("e", sent());
    await rows.settlement("f", sent({ tx_hash: h("t6") }));
    await rows.transaction(6, ["a", "f"]);
    await rows.transaction(5, ["e"], { lane: account("other"), attempts: [{ hash: h("o5") }] });
    await rows.transaction(5, [], { chain: 1, attempts: [{ hash: h("c5") }] });
    // As if claimed anew: the same lane, another authorization.
    const others: Row[] = [
      { from_address: account("another") },
      { asset: account("another token") },
      { chain_id: 1 },
    ];
    for (const [index, other] of others.entries())
      await rows.settlement(`other ${index}`, sent({ nonce: h("a"), ...other }));
    await rows.settlement("g", sent({ tx_hash: h("o5") }));
    await rows.settlement("h", sent({ tx_hash: h("c5") }));
    await rows.query(
      `INSERT INTO settlement_transactions (chain_id, lane_address, lane_nonce, position, action, from_address, asset, nonce)
       SELECT $1, $2, 5, CASE id WHEN 'g' THEN 8 ELSE 9 END, 'transfer', from_address, asset, nonce
         FROM settlements WHERE id IN ('g', 'h')`,
      [CHAIN, LANE],
    );
  },
  final({}),
  [
    "finished: 0",
    "gas_accounts house: full_at now, held 0, used 10, used_on today",
    "relayer_transactions tx 5: block_hash b60, block_number 60, gas_cost 10, gas_used 50000, mined_hash t5, status included",
  ],
);
await check(
  "by an earlier attempt",
  three({ tx_hash: h("t5'") }, { attempts: [{ hash: h("t5") }, { hash: h("t5'") }] }),
  final({ outcomes: all.slice(0, 1) }),
  [
    "finished: 1",
    "gas_accounts house: full_at now, held 0, used 3, used_on today",
    "gas_accounts payer:p: held 0, used 4",
    "gas_accounts strangers: held 0, used 7",
    "relayer_transactions tx 5: block_hash b60, block_number 60, gas_cost 10, gas_used 50000, mined_hash t5, status included",
    "settlements a: block_hash b60, block_number 60, proof (block 60, blockHash b60, kind receipt, tx t5), settled_at now, status settled, tx_hash t5, updated_at now",
    "settlements b: lane_address null, lane_epoch null, status queued, tx_hash null, updated_at now",
    "settlements c: lane_address null, lane_epoch null, status queued, tx_hash null, updated_at now",
    "told: at now, block 60, byOther false, id a, message null, reason null, status settled, txHash t5, value 100",
  ],
);
await check(
  "the block is final now",
  three(ended("settled"), included),
  final({ status: "mined", outcomes: all.map((one) => ({ ...one, isFinal: true })) }),
  [
    "finished: 0",
    "relayer_transactions tx 5: finalized_at now, status mined",
    "settlements a: final_at now",
    "settlements b: final_at now",
    "settlements c: final_at now",
  ],
);
await check(
  "final, with another cost than at first",
  three(ended("settled"), included),
  final({ status: "mined", cost: 99 }),
  ["finished: 0", "relayer_transactions tx 5: finalized_at now, status mined"],
);
await check(
  "final at once",
  three(),
  final({ status: "mined", outcomes: all.map((one) => ({ ...one, isFinal: true })) }),
  [
    "finished: 3",
    "gas_accounts house: full_at now, held 0, used 3, used_on today",
    "gas_accounts payer:p: held 0, used 4",
    "gas_accounts strangers: held 0, used 7",
    "relayer_transactions tx 5: block_hash b60, block_number 60, finalized_at now, gas_cost 10, gas_used 50000, mined_hash t5, status mined",
    "settlements a: block_hash b60, block_number 60, final_at now, proof (block 60, blockHash b60, kind receipt, tx t5), settled_at now, status settled, updated_at now",
    "settlements b: block_hash b60, block_number 60, final_at now, proof (block 60, blockHash b60, kind receipt, tx t5), settled_at now, status settled, updated_at now",
    "settlements c: block_hash b60, block_number 60, final_at now, proof (block 60, blockHash b60, kind receipt, tx t5), settled_at now, status settled, updated_at now",
    "told: at now, block 60, byOther false, id a, message null, reason null, status settled, txHash t5, value 100",
    "told: at now, block 60, byOther false, id b, message null, reason null, status settled, txHash t5, value 100",
    "told: at now, block 60, byOther false, id c, message null, reason null, status settled, txHash t5, value 100",
  ],
);
await check(
  "another block",
  three(ended("settled"), included),
  final({ status: "mined", block: 61 }),
  ["finished: 0", "included: blockHash b60, blockNumber 60, hash t5"],
);
await check("included in another block", three(ended("settled"), included), final({ block: 61 }), [
  "finished: 0",
  "included: blockHash b60, blockNumber 60, hash t5",
]);
await check("included twice", three(ended("settled"), included), final({ outcomes: [] }), [
  "finished: 0",
]);
await check(
  "included, and said to be replaced",
  three(ended("settled"), included),
  final({ status: "replaced" }),
  ["finished: 0"],
);
await check(
  "another transaction has its nonce",
  three(),
  final({ status: "replaced", hash: "x", cost: 0 }),
  [
    "finished: 0",
    "gas_accounts house: full_at now, held 0, used 0, used_on today",
    "gas_accounts payer:p: held 0",
    "gas_accounts strangers: held 0",
    "relayer_transactions tx 5: block_hash b60, block_number 60, finalized_at now, gas_cost 0, gas_used 50000, mined_hash x, status replaced",
    "settlements a: lane_address null, lane_epoch null, status queued, tx_hash null, updated_at now",
    "settlements b: lane_address null, lane_epoch null, status queued, tx_hash null, updated_at now",
    "settlements c: lane_address null, lane_epoch null, status queued, tx_hash null, updated_at now",
  ],
);
await check(
  "mined before",
  three({}, { ...included, status: "mined" }),
  final({ status: "given_up" }),
  ["finished: 0"],
);
await check("no such transaction", three(), final({ nonce: 9 }), ["finished: 0"]);
const isVoid: { attempts: Row[] } = {
  attempts: [{ hash: h("t5") }, { hash: h("v5"), purpose: "void" }],
};
const given = { status: "given_up", hash: "v5" };
await check("its nonce was given up", three({}, isVoid), final(given), [
  "finished: 0",
  "gas_accounts house: full_at now, held 0, used 3, used_on today",
  "gas_accounts payer:p: held 0, used 4",
  "gas_accounts strangers: held 0, used 7",
  "relayer_transactions tx 5: block_hash b60, block_number 60, finalized_at now, gas_cost 10, gas_used 50000, mined_hash v5, status given_up",
  "settlements a: given_up 1, lane_address null, lane_epoch null, next_attempt_at +1 s, status queued, turn +1 s, tx_hash null, updated_at now",
  "settlements b: given_up 1, lane_address null, lane_epoch null, next_attempt_at +1 s, status queued, turn +1 s, tx_hash null, updated_at now",
  "settlements c: given_up 1, lane_address null, lane_epoch null, next_attempt_at +1 s, status queued, turn +1 s, tx_hash null, updated_at now",
]);
await check("given up again", three({ given_up: 1 }, isVoid), final(given), [
  "finished: 0",
  "gas_accounts house: full_at now, held 0, used 3, used_on today",
  "gas_accounts payer:p: held 0, used 4",
  "gas_accounts strangers: held 0, used 7",
  "relayer_transactions tx 5: block_hash b60, block_number 60, finalized_at now, gas_cost 10, gas_used 50000, mined_hash v5, status given_up",
  "settlements a: given_up 2, lane_address null, lane_epoch null, next_attempt_at +2 s, solo true, status queued, turn +2 s, tx_hash null, updated_at now",
  "settlements b: given_up 2, lane_address null, lane_epoch null, next_attempt_at +2 s, solo true, status queued, turn +2 s, tx_hash null, updated_at now",
  "settlements c: given_up 2, lane_address null, lane_epoch null, next_attempt_at +2 s, solo true, status queued, turn +2 s, tx_hash null, updated_at now",
]);
await check("given up the tenth time", three({ given_up: 9 }, isVoid), final(given), [
  "finished: 0",
  "gas_accounts house: full_at now, held 0, used 3, used_on today",
  "gas_accounts payer:p: held 0, used 4",
  "gas_accounts strangers: held 0, used 7",
  "relayer_transactions tx 5: block_hash b60, block_number 60, finalized_at now, gas_cost 10, gas_used 50000, mined_hash v5, status given_up",
  "settlements a: given_up 10, lane_address null, lane_epoch null, next_attempt_at +300 s, solo true, status queued, turn +300 s, tx_hash null, updated_at now",
  "settlements b: given_up 10, lane_address null, lane_epoch null, next_attempt_at +300 s, solo true, status queued, turn +300 s, tx_hash null, updated_at now",
  "settlements c: given_up 10, lane_address null, lane_epoch null, next_attempt_at +300 s, solo true, status queued, turn +300 s, tx_hash null, updated_at now",
]);
await check(
  "given up, and its turn is later anyway",
  async (rows) => {
    await three({ given_up: 1 }, isVoid)(rows);
    await rows.query("UPDATE settlements SET turn = clock_timestamp() + interval '9 s'");
  },
  final(given),
  [
    "finished: 0",
    "gas_accounts house: full_at now, held 0, used 3, used_on today",
    "gas_accounts payer:p: held 0, used 4",
    "gas_accounts strangers: held 0, used 7",
    "relayer_transactions tx 5: block_hash b60, block_number 60, finalized_at now, gas_cost 10, gas_used 50000, mined_hash v5, status given_up",
    "settlements a: given_up 2, lane_address null, lane_epoch null, next_attempt_at +2 s, solo true, status queued, tx_hash null, updated_at now",
    "settlements b: given_up 2, lane_address null, lane_epoch null, next_attempt_at +2 s, solo true, status queued, tx_hash null, updated_at now",
    "settlements c: given_up 2, lane_address null, lane_epoch null, next_attempt_at +2 s, solo true, status queued, tx_hash null, updated_at now",
  ],
);
await check(
  "the given-up transaction's first attempt is in a block",
  three({}, isVoid),
  final({ status: "mined", outcomes: all.slice(0, 1) }),
  [
    "finished: 1",
    "gas_accounts house: full_at now, held 0, used 3, used_on today",
    "gas_accounts payer:p: held 0, used 4",
    "gas_accounts strangers: held 0, used 7",
    "relayer_transactions tx 5: block_hash b60, block_number 60, finalized_at now, gas_cost 10, gas_used 50000, mined_hash t5, status mined",
    "settlements a: block_hash b60, block_number 60, proof (block 60, blockHash b60, kind receipt, tx t5), settled_at now, status settled, updated_at now",
    "settlements b: lane_address null, lane_epoch null, status queued, tx_hash null, updated_at now",
    "settlements c: lane_address null, lane_epoch null, status queued, tx_hash null, updated_at now",
    "told: at now, block 60, byOther false, id a, message null, reason null, status settled, txHash t5, value 100",
  ],
);
await check(
  "one that is sent alone stays alone",
  async (rows) => {
    await rows.settlement("a", sent());
    await rows.query("UPDATE settlements SET solo = TRUE");
    await rows.transaction(5, ["a"]);
  },
  final({}),
  [
    "finished: 0",
    "gas_accounts house: full_at now, held 0, used 10, used_on today",
    "relayer_transactions tx 5: block_hash b60, block_number 60, gas_cost 10, gas_used 50000, mined_hash t5, status included",
    "settlements a: lane_address null, lane_epoch null, status queued, tx_hash null, updated_at now",
  ],
);
for (const [what, elsewhere] of Object.entries<{ lane?: string; chain?: number }>({
  "another lane's nonce": { lane: account("other") },
  "another chain's nonce": { chain: 1 },
}))
  await check(
    `${what} was given up with that hash`,
    async (rows) => {
      await rows.settlement("a", sent());
      await rows.transaction(5, ["a"]);
      await rows.transaction(5, [], {
        ...elsewhere,
        attempts: [{ hash: h("v5"), purpose: "void" }],
      });
    },
    final(given),
    [
      "finished: 0",
      "gas_accounts house: full_at now, held 0, used 10, used_on today",
      "relayer_transactions tx 5: block_hash b60, block_number 60, finalized_at now, gas_cost 10, gas_used 50000, mined_hash v5, status given_up",
      "settlements a: lane_address null, lane_epoch null, status queued, tx_hash null, updated_at now",
    ],
  );
await check(
  "another nonce was given up with that hash",
  async (rows) => {
    await three()(rows);
    await rows.transaction(6, [], { attempts: [{ hash: h("v5"), purpose: "void" }] });
  },
  final(given),
  [
    "finished: 0",
    "gas_accounts house: full_at now, held 0, used 3, used_on today",
    "gas_accounts payer:p: held 0, used 4",
    "gas_accounts strangers: held 0, used 7",
    "relayer_transactions tx 5: block_hash b60, block_number 60, finalized_at now, gas_cost 10, gas_used 50000, mined_hash v5, status given_up",
    "settlements a: lane_address null, lane_epoch null, status queued, tx_hash null, updated_at now",
    "settlements b: lane_address null, lane_epoch null, status queued, tx_hash null, updated_at now",
    "settlements c: lane_address null, lane_epoch null, status queued, tx_hash null, updated_at now",
  ],
);
await check(
  "a payer that made others fail: its payments go alone",
  async (rows) => {
    await three()(rows);
    await rows.insert("lane_offenders", {
      chain_id: CHAIN,
      payer: account("payer"),
      until: "2026-01-01",
    });
    await rows.settlement("w");
    await rows.settlement("other", { from_address: account("another") });
    await rows.settlement("watched", { relay: false });
    await rows.settlement("canceled", { relay: false, cancel_signature: Buffer.alloc(65) });
    await rows.settlement("claimed", { lane_address: LANE });
    await rows.settlement("elsewhere", { chain_id: 1 });
    await rows.settlement("ended", ended("settled"));
    await rows.agent({ wallet_address: account("payer") });
    await rows.payment("own");
    await rows.settlement("own", { ...agents, from_address: account("payer") });
  },
  final({ outcomes: all, offenders: ["payer", "fresh"] }),
  [
    "finished: 3",
    "gas_accounts house: full_at now, held 0, used 3, used_on today",
    "gas_accounts payer:p: held 0, used 4",
    "gas_accounts strangers: held 0, used 7",
    "lane_offenders fresh: count 1, until +86400 s",
    "lane_offenders payer: count 2, until +86400 s",
    "relayer_transactions tx 5: block_hash b60, block_number 60, gas_cost 10, gas_used 50000, mined_hash t5, status included",
    "settlements a: block_hash b60, block_number 60, proof (block 60, blockHash b60, kind receipt, tx t5), settled_at now, status settled, updated_at now",
    "settlements b: block_hash b60, block_number 60, proof (block 60, blockHash b60, kind receipt, tx t5), settled_at now, status settled, updated_at now",
    "settlements c: block_hash b60, block_number 60, proof (block 60, blockHash b60, kind receipt, tx t5), settled_at now, status settled, updated_at now",
    "settlements canceled: solo true",
    "settlements w: solo true",
    "told: at now, block 60, byOther false, id a, message null, reason null, status settled, txHash t5, value 100",
    "told: at now, block 60, byOther false, id b, message null, reason null, status settled, txHash t5, value 100",
    "told: at now, block 60, byOther false, id c, message null, reason null, status settled, txHash t5, value 100",
  ],
);
await check(
  "a transaction without payments",
  async (rows) => {
    await rows.settlement("a");
    await rows.transaction(5, []);
  },
  final({ cost: 10 }),
  [
    "finished: 0",
    "gas_accounts house: full_at now, held 0, used 10, used_on today",
    "relayer_transactions tx 5: block_hash b60, block_number 60, gas_cost 10, gas_used 50000, mined_hash t5, status included",
  ],
);
await check(
  "one of its payments is not there any more: the service pays its part",
  async (rows) => {
    await three()(rows);
    await rows.query("DELETE FROM settlements WHERE id = 'a'");
  },
  final({ outcomes: all.slice(1) }),
  [
    "finished: 2",
    "gas_accounts house: full_at now, held -7, used 7, used_on today",
    "gas_accounts strangers: held 7, used 3",
    "relayer_transactions tx 5: block_hash b60, block_number 60, gas_cost 10, gas_used 50000, mined_hash t5, status included",
    ...["b", "c"].flatMap((id) => [
      `settlements ${id}: block_hash b60, block_number 60, proof (block 60, blockHash b60, kind receipt, tx t5), settled_at now, status settled, updated_at now`,
    ]),
    ...["b", "c"].map(
      (id) =>
        `told: at now, block 60, byOther false, id ${id}, message null, reason null, status settled, txHash t5, value 100`,
    ),
  ],
);
await check("a cost that does not divide", three(), final({ outcomes: all, cost: 11 }), [
  "finished: 3",
  "gas_accounts house: full_at now, held 0, used 3, used_on today",
  "gas_accounts payer:p: held 0, used 5",
  "gas_accounts strangers: held 0, used 8",
  "relayer_transactions tx 5: block_hash b60, block_number 60, gas_cost 11, gas_used 50000, mined_hash t5, status included",
  "settlements a: block_hash b60, block_number 60, proof (block 60, blockHash b60, kind receipt, tx t5), settled_at now, status settled, updated_at now",
  "settlements b: block_hash b60, block_number 60, proof (block 60, blockHash b60, kind receipt, tx t5), settled_at now, status settled, updated_at now",
  "settlements c: block_hash b60, block_number 60, proof (block 60, blockHash b60, kind receipt, tx t5), settled_at now, status settled, updated_at now",
  "told: at now, block 60, byOther false, id a, message null, reason null, status settled, txHash t5, value 100",
  "told: at now, block 60, byOther false, id b, message null, reason null, status settled, txHash t5, value 100",
  "told: at now, block 60, byOther false, id c, message null, reason null, status settled, txHash t5, value 100",
]);

// A reorganisation.

const reopen =
  (block = 60) =>
  async (rows: ChangedRows) => {
    const { rows: found } = await rows.query<{ result: unknown }>(
      "SELECT purser_transaction_reopened($1, $2, 5, $3) AS result",
      [CHAIN, LANE, h(`b${block}`)],
    );
    return found[0]?.result;
  };
const reorganised =
  (transaction: Row = included) =>
  async (rows: ChangedRows) => {
    await rows.settlement("a", sent({ ...ended("settled"), ...gas }));
    await rows.settlement(
      "b",
      sent({ ...ended("settled"), proof: receipt("t6"), gas_accounts: [] }),
    );
    await rows.settlement("c", sent({ ...ended("settled"), proof: receipt("t5", 61) }));
    await rows.settlement("d", sent({ ...ended("settled") }));
    await rows.transaction(5, ["a", "b", "c"], transaction);
    await rows.transaction(6, ["d"], included);
    await rows.transaction(5, ["d"], {
      lane: account("other"),
      attempts: [{ hash: h("o5") }],
      ...included,
    });
  };
await check("its block was removed", reorganised(), reopen(), [
  "finished: 0",
  "gas_accounts house: full_at now, held 0, used -6, used_on today",
  "gas_accounts payer:p: held 14, used -4",
  "gas_accounts strangers: held 14, used -4",
  "relayer_transactions tx 5: block_hash null, block_number null, gas_cost null, gas_used null, mined_hash null, status pending",
  "settlement_corrections a settled_to_open: after (proof (block 60, blockHash b60, kind receipt, tx t5), status submitted), before (finalAt null, proof (block 60, blockHash b60, kind receipt, tx t5), reason null, status settled)",
  "settlements a: block_hash null, block_number null, corrected_at now, lane_epoch null, proof null, settled_at null, status submitted, updated_at now",
  "told: at null, block null, byOther false, id a, message null, reason null, status submitted, txHash t5, value 100",
  "corrected: a settled_to_open",
]);
await check(
  "its block was removed, and another chain has a payment and a transaction with the same keys",
  async (rows) => {
    // Its payment is in another block by now.
    await rows.settlement("a", sent({ ...ended("settled"), proof: receipt("t5", 61) }));
    await rows.settlement("b", sent(ended("settled")));
    await rows.transaction(5, ["a", "b"], { ...included, gas_cost: 0 });
    await rows.settlement("twin", sent({ ...ended("settled"), nonce: h("a"), chain_id: 1 }));
    await rows.transaction(5, ["twin"], {
      ...included,
      chain: 1,
      mined_hash: h("t7"),
      attempts: [{ hash: h("t7") }],
    });
  },
  reopen(),
  [
    "finished: 0",
    "gas_accounts house: full_at now, held 0, used 0, used_on today",
    "relayer_transactions tx 5: block_hash null, block_number null, gas_cost null, gas_used null, mined_hash null, status pending",
    "settlement_corrections b settled_to_open: after (proof (block 60, blockHash b60, kind receipt, tx t5), status submitted), before (finalAt null, proof (block 60, blockHash b60, kind receipt, tx t5), reason null, status settled)",
    "settlements b: block_hash null, block_number null, corrected_at now, lane_epoch null, proof null, settled_at null, status submitted, updated_at now",
    "told: at null, block null, byOther false, id b, message null, reason null, status submitted, txHash t5, value 100",
    "corrected: b settled_to_open",
  ],
);
await check("another block was removed", reorganised(), reopen(61), ["finished: 0"]);
await check("it is final", reorganised({ ...included, status: "mined" }), reopen(), [
  "finished: 0",
]);
await check(
  "removed, and its cost was not known",
  reorganised({ ...included, gas_cost: null }),
  reopen(),
  [
    "finished: 0",
    "relayer_transactions tx 5: block_hash null, block_number null, gas_used null, mined_hash null, status pending",
    "settlement_corrections a settled_to_open: after (proof (block 60, blockHash b60, kind receipt, tx t5), status submitted), before (finalAt null, proof (block 60, blockHash b60, kind receipt, tx t5), reason null, status settled)",
    "settlements a: block_hash null, block_number null, corrected_at now, lane_epoch null, proof null, settled_at null, status submitted, updated_at now",
    "told: at null, block null, byOther false, id a, message null, reason null, status submitted, txHash t5, value 100",
    "corrected: a settled_to_open",
  ],
);
