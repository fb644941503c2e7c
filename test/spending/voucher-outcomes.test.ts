// Goal: what a seller reports of a payment channel changes exactly the payments and the channel that it is about: a running payment is not ended, and no charge exceeds what was signed.
import t from "tap";
import type { ChangedRows } from "../settlement/changed-rows.ts";
import {
  account,
  AGENT,
  ASSET,
  CHAIN,
  h,
  PAYEE,
  rowChanges,
  type Changes,
  type Row,
} from "../settlement/changed-rows.ts";

const inRows = await rowChanges(t);

const CHANNEL = h("c");
const OTHER_CHANNEL = h("d");
const OTHER_AGENT = "agt_2";
/** A voucher of 65 bytes; its name is the first of them. */
const voucher = (name: string): Buffer => Buffer.concat([Buffer.from(name), Buffer.alloc(64)]);
const shown = (name: string): string => `\\x${voucher(name).toString("hex")}`;
const seconds = (rows: ChangedRows, count: number): string =>
  new Date(rows.nowMs + count * 1_000).toISOString();

interface World {
  channel?: Row;
  /** The agent's payments through the channel, beside `p`. */
  payments?: Record<string, Row>;
  /** Of `p`, which the calls are about. */
  payment?: Row;
  hasKeys?: boolean;
}

const channelRow = (row: Row = {}): Row => ({
  agent_id: AGENT,
  id: CHANNEL,
  chain_id: CHAIN,
  asset: ASSET,
  receiver: PAYEE,
  receiver_authorizer: account("authorizer"),
  withdraw_delay: 900,
  signer: account("signer"),
  salt: h("salt"),
  ceiling: 300,
  voucher: voucher("v"),
  charged: 200,
  busy_payment: "p",
  ...row,
});

/** A payment through the channel. */
const through = (row: Row = {}): Row => ({
  kind: "x402",
  status: "submitted",
  nonce: null,
  channel_id: CHANNEL,
  ceiling: 300,
  voucher: voucher("v"),
  ...row,
});
const reserved: Row = { status: "reserved", voucher: null, ceiling: 400 };
const unknown = (row: Row = {}): Row => through({ status: "unknown", ...row });

/** The agent's channel and its payment `p`, beside another channel and another agent with rows that are alike. */
async function prepare(
  rows: ChangedRows,
  { channel = {}, payments = {}, payment = {} }: World,
): Promise<void> {
  await rows.agent();
  await rows.query(
    `INSERT INTO agents (id, owner_id, name, network, wallet_address, daily_limit, window_tail_at)
     SELECT $1, owner_id, name, network, $2, daily_limit, window_tail_at FROM agents`,
    [OTHER_AGENT, account("wallet 2")],
  );
  const busy_until = seconds(rows, 60);
  const alike = { ...channelRow({ busy_until, ...channel }) };
  const elsewhere = { id: OTHER_CHANNEL, receiver: account("another"), salt: h("s"), charged: 100 };
  const others: Row[] = [
    { ...alike, agent_id: OTHER_AGENT, charged: 100 },
    { ...alike, agent_id: OTHER_AGENT, ...elsewhere },
    { ...alike, ...elsewhere },
  ];
  for (const other of others) await rows.insert("channels", other);
  // The rows of others come first, where a statement that finds too much finds them first.
  for (const [id, row] of Object.entries({ p: payment, u: { status: "unknown" }, ...payments })) {
    const like = through(row);
    const channel_id = id === "p" ? OTHER_CHANNEL : like["channel_id"];
    await rows.payment(id, { ...like, agent_id: OTHER_AGENT, channel_id: channel_id ?? null });
    await rows.payment(`${id} elsewhere`, { ...like, channel_id: OTHER_CHANNEL });
  }
  await rows.payment("plain", { status: "unknown" });
  await rows.payment("on its way", {
    kind: "deposit",
    status: "submitted",
    channel_id: CHANNEL,
    amount: 500,
  });
  await rows.insert("channels", alike);
  await rows.payment("p", through(payment));
  for (const [id, row] of Object.entries(payments)) await rows.payment(id, through(row));
}

type Call = (rows: ChangedRows) => Promise<unknown>;
const call =
  (name: string, ...values: unknown[]): Call =>
  async (rows) =>
    (
      await rows.query<{ result: unknown }>(
        `SELECT purser_${name}(${values.map((_, index) => `$${index + 1}`).join(", ")}) AS result`,
        values,
      )
    ).rows[0]?.result;

async function check(what: string, world: World, work: Call, expected: Changes) {
  await t.test(what, async (t) => {
    await inRows(async (rows) => {
      await prepare(rows, world);
      if (world.hasKeys) await keys(rows);
      t.same(await rows.changesOf(() => work(rows)), expected);
    });
  });
}

const signed = (name = "w", id = "p") => call("voucher_signed", AGENT, id, voucher(name));
const ended = (charged: number | null, why: string | null = null, id = "p") =>
  call("voucher_ended", AGENT, id, charged, why);
const corrected = (
  total: number,
  {
    ceiling = 300,
    by = "v",
    wasShown = false,
  }: { ceiling?: number; by?: string; wasShown?: boolean } = {},
) =>
  call(
    "channel_corrected",
    AGENT,
    "p",
    total,
    ceiling,
    ceiling === 0 ? null : voucher(by),
    wasShown,
  );
const closed = (claimed: number, returned: number) =>
  call("channel_closed", AGENT, CHANNEL, claimed, returned);

const settledAs = (id: string, charged: number): string =>
  `payments ${id}: charged ${charged}, final_at now, outstanding false, settled_at now, status settled, updated_at now`;
/** One of several that may have been charged. */
const undecided = (id: string, charged: string, count: number): string =>
  `payments ${id}: delivered false, failure_code charge_not_known, failure_detail The seller charged ${charged} USDC for one or more of ${count} requests whose responses were lost. Nothing shows for which., final_at now, outstanding false, settled_at now, status settled, updated_at now`;
const uncharged = (id: string): string =>
  `payments ${id}: charged 0, failure_code not_charged, final_at now, outstanding false, settled_at now, status settled, updated_at now`;

// A voucher is stored before anybody gets it.

await check("a voucher above the ceiling becomes the channel's", { payment: reserved }, signed(), [
  `channels c: ceiling 400, voucher ${shown("w")}`,
  `payments p: status submitted, updated_at now, voucher ${shown("w")}`,
]);
await check(
  "a voucher for the ceiling that was signed already: the newer signature is kept",
  { payment: { ...reserved, ceiling: 300 } },
  signed(),
  [
    `channels c: voucher ${shown("w")}`,
    `payments p: status submitted, updated_at now, voucher ${shown("w")}`,
  ],
);
await check(
  "a voucher below the ceiling: the channel keeps the higher one, which the seller may claim",
  { payment: { ...reserved, ceiling: 250 } },
  signed(),
  [`payments p: status submitted, updated_at now, voucher ${shown("w")}`],
);
for (const [what, world, id] of [
  ["the reservation was released", { payment: { ...reserved, status: "voided" } }, "p"],
  ["the payment has a voucher already", {}, "p"],
  ["it is no payment through a channel", {}, "plain"],
  [
    "another payment has the channel by now",
    { payment: reserved, channel: { busy_payment: "x" } },
    "p",
  ],
  ["no payment has the channel", { payment: reserved, channel: { busy_payment: null } }, "p"],
  [
    "the channel is closing",
    { payment: reserved, channel: { status: "closing", reason: "owner" } },
    "p",
  ],
  ["the payment is another channel's", { payment: { ...reserved, channel_id: h("e") } }, "p"],
  ["there is no such payment", {}, "nothing"],
] as [string, World, string][])
  await t.test(`nobody gets a voucher: ${what}`, async (t) => {
    await inRows(async (rows) => {
      await prepare(rows, world);
      await t.rejects(signed("w", id)(rows), { code: "PU004", message: /is gone/ });
    });
  });

// What the seller reports of a payment.

await check(
  "a charge is added to the channel's, and payments before it were not charged",
  { payments: { u: unknown() } },
  ended(80),
  [
    "channels c: busy_payment null, busy_until -infinity, charged 280, used_at now",
    settledAs("p", 80),
    uncharged("u"),
  ],
);
await check("a charge of nothing is a charge", { payments: { u: unknown() } }, ended(0), [
  "channels c: busy_payment null, busy_until -infinity, used_at now",
  settledAs("p", 0),
  uncharged("u"),
]);
await check(
  "a late end of one payment does not end the payment that uses the channel now",
  { channel: { busy_payment: "running" }, payments: { u: unknown(), running: through() } },
  ended(80),
  ["channels c: charged 280", settledAs("p", 80), uncharged("u")],
);
await check(
  "two reports on one ceiling: together they charge at most what was signed",
  { channel: { charged: 250 } },
  ended(80),
  [
    "channels c: busy_payment null, busy_until -infinity, charged 300, used_at now",
    settledAs("p", 80),
  ],
);
await check(
  "not known what was charged: the payment stays open, and earlier ones as well",
  { payments: { u: unknown() } },
  ended(null),
  [
    "channels c: busy_payment null, busy_until -infinity, used_at now",
    "payments p: status unknown, updated_at now",
  ],
);
await check(
  "refused by the seller: that is noted, and the payment stays open",
  {},
  call("voucher_ended", AGENT, "p", null, null, 402, false, true),
  [
    "channels c: busy_payment null, busy_until -infinity, used_at now",
    "payments p: delivered false, failure_code seller_refused, status unknown, updated_at now, upstream_status 402",
  ],
);
await check(
  "an unknown payment whose outcome is reported after all",
  { payment: { status: "unknown" }, channel: { busy_payment: null } },
  ended(80),
  ["channels c: charged 280", settledAs("p", 80)],
);
const lateReport = call("voucher_ended", AGENT, "p", 80, null, 200, true);
await check(
  "it was one of several that may have been charged, and its own report comes late",
  {
    payment: {
      status: "settled",
      settled_at: "2026-01-01",
      failure_code: "charge_not_known",
      failure_detail: "why",
      delivered: false,
    },
    channel: { busy_payment: "running" },
  },
  lateReport,
  [
    "payments p: charged 80, delivered true, failure_code null, failure_detail null, updated_at now, upstream_status 200",
  ],
);
await check(
  "a late report of a payment that is known as not charged changes no charge",
  {
    payment: {
      status: "settled",
      charged: 0,
      settled_at: "2026-01-01",
      failure_code: "not_charged",
    },
    channel: { busy_payment: "running" },
  },
  lateReport,
  ["payments p: delivered true, updated_at now, upstream_status 200"],
);
await check(
  "a payment that ended before: nothing is charged again",
  {
    payment: { status: "settled", charged: 80, settled_at: "2026-01-01" },
    payments: { u: unknown() },
  },
  ended(80),
  ["channels c: busy_payment null, busy_until -infinity, used_at now"],
);
await check(
  "a reservation without a voucher was shown to nobody: it is not ended, only the channel is free again",
  { payment: reserved, payments: { u: unknown() } },
  ended(80),
  ["channels c: busy_payment null, busy_until -infinity, used_at now"],
);
await check(
  "a payment without a voucher that was sent is not one of a channel",
  {},
  ended(80, null, "plain"),
  [],
);
await check(
  "the seller broke the rules: the channel is used no more",
  {},
  ended(100, "seller_broke_rules"),
  [
    "channels c: busy_payment null, busy_until -infinity, charged 300, reason seller_broke_rules, status closing, used_at now",
    settledAs("p", 100),
  ],
);
await check(
  "the seller broke the rules of a payment that has the channel no more",
  { channel: { busy_payment: "running" } },
  ended(null, "seller_broke_rules"),
  [
    "channels c: busy_payment null, busy_until -infinity, reason seller_broke_rules, status closing, used_at now",
    "payments p: status unknown, updated_at now",
  ],
);
await check(
  "the owner closed it before: the reason stays",
  { channel: { status: "closing", reason: "owner" } },
  ended(100, "seller_broke_rules"),
  [
    "channels c: busy_payment null, busy_until -infinity, charged 300, used_at now",
    settledAs("p", 100),
  ],
);
await check(
  "a report on a closing channel",
  { channel: { status: "closing", reason: "owner" } },
  ended(100),
  [
    "channels c: busy_payment null, busy_until -infinity, charged 300, used_at now",
    settledAs("p", 100),
  ],
);

await check(
  "a report on a channel that is closed",
  {
    channel: {
      status: "closed",
      reason: "owner",
      closed_at: "2026-01-01",
      busy_until: "-infinity",
    },
  },
  ended(null, "seller_broke_rules"),
  ["channels c: busy_payment null, used_at now", "payments p: status unknown, updated_at now"],
);

// The same voucher once more.

async function again(what: string, world: World, expected: boolean) {
  await t.test(`the same voucher again: ${what}`, async (t) => {
    await inRows(async (rows) => {
      await prepare(rows, world);
      let taken: unknown;
      const changes = await rows.changesOf(async () => {
        taken = await call("voucher_again", AGENT, "p", 30)(rows);
      });
      t.equal(taken, expected);
      const before = world.channel?.["busy_payment"] === undefined ? "" : "busy_payment p, ";
      t.same(changes, expected ? [`channels c: ${before}busy_until +30 s`] : []);
    });
  });
}
const free = { busy_payment: null, busy_until: "-infinity" };
await again("the channel is free", { channel: free }, true);
await again("it has the channel itself", {}, true);
await again("another payment has the channel", { channel: { busy_payment: "x" } }, false);
await again(
  "the time of another payment is over",
  { channel: { busy_payment: "x", busy_until: "2026-01-01" } },
  true,
);
await again(
  "the outcome is known by now",
  { channel: free, payment: { status: "settled", charged: 0, settled_at: "2026-01-01" } },
  false,
);
await again(
  "the channel is closing",
  { channel: { ...free, status: "closing", reason: "owner" } },
  false,
);
await again("no voucher was signed", { channel: free, payment: reserved }, false);
await again("it is another channel's", { channel: free, payment: { channel_id: h("e") } }, false);

await t.test("the time of another payment is over at its last moment", async (t) => {
  await inRows(async (rows) => {
    await prepare(rows, { channel: { busy_payment: "x", busy_until: seconds(rows, 0) } });
    t.equal(await call("voucher_again", AGENT, "p", 30)(rows), true);
  });
});

// A seller's total that differs, with its proof.

const notCharged = (id: string): string =>
  uncharged(id).replace(" failure_code", " delivered false, failure_code");
const freed = "busy_payment null, busy_until -infinity";
const later = (minutes: number): Row => ({ created_at: `2026-01-01T00:${minutes + 10}:00Z` });

/** The key of `p`, and others that stay. */
async function keys(rows: ChangedRows): Promise<void> {
  const keyRow: Row = {
    route: "r",
    body_hash: Buffer.alloc(32),
    payment_id: "p",
    subject_id: AGENT,
  };
  await rows.insert("idempotency_keys", {
    ...keyRow,
    key: "another agent's",
    subject_id: OTHER_AGENT,
  });
  await rows.insert("idempotency_keys", { ...keyRow, key: "another payment's", payment_id: "u" });
  await rows.insert("idempotency_keys", {
    ...keyRow,
    key: "with a response",
    status_code: 200,
    response: "{}",
  });
  await rows.insert("idempotency_keys", { ...keyRow, key: "its" });
}
const withKeys = (world: World): World => ({ ...world, hasKeys: true });

await check(
  "the seller's total is the same: it charged neither the payment nor those before it",
  withKeys({ payments: { u: unknown() } }),
  corrected(200),
  [`channels c: ${freed}`, "idempotency_keys its: deleted", notCharged("p"), uncharged("u")],
);
const unknownOnes = {
  older: unknown(later(1)),
  newer: unknown(later(3)),
  between: unknown(later(2)),
  // Newer, and not open: what the seller charged cannot be theirs.
  settled: through({ ...later(4), status: "settled", charged: 0, settled_at: "2026-01-01" }),
  "not signed": through({ ...later(5), ...reserved }),
};
await check(
  "the seller's total is higher: the unknown payment was charged the difference",
  withKeys({ payments: { u: unknown() } }),
  corrected(260),
  [
    `channels c: ${freed}, charged 260`,
    "idempotency_keys its: deleted",
    notCharged("p"),
    settledAs("u", 60),
  ],
);
await check(
  "several may have been charged the difference: none of them ends as unpaid or paid",
  withKeys({ payments: unknownOnes }),
  corrected(260),
  [
    `channels c: ${freed}, charged 260`,
    "idempotency_keys its: deleted",
    undecided("between", "0.00006", 3),
    undecided("newer", "0.00006", 3),
    undecided("older", "0.00006", 3),
    notCharged("p"),
  ],
);
const refused = { failure_code: "seller_refused" };
const settledOnce = (id: string, charged: number): string =>
  settledAs(id, charged).replace(" final_at", " failure_code null, final_at");
await check(
  "a payment that the seller refused was not charged, where a lost one explains the total",
  { payments: { older: unknown({ ...later(1), ...refused }), u: unknown(later(0)) } },
  corrected(260),
  [`channels c: ${freed}, charged 260`, uncharged("older"), notCharged("p"), settledAs("u", 60)],
);
await check(
  "the seller's refusal is only its word: it charged the payment after all",
  { payments: { u: unknown(refused), v: unknown({ ...refused, ceiling: 200 }) } },
  corrected(260),
  [`channels c: ${freed}, charged 260`, notCharged("p"), settledOnce("u", 60), uncharged("v")],
);
await check(
  "the seller's total is the same: it charged none of several",
  { payments: { u: unknown(), v: through() } },
  corrected(200),
  [`channels c: ${freed}`, notCharged("p"), uncharged("u"), uncharged("v")],
);
await check(
  "a voucher for no more than the charges that are known cannot have been charged since",
  { payments: { u: unknown({ ceiling: 200 }), v: unknown({ ceiling: 201 }) } },
  corrected(201),
  [`channels c: ${freed}, charged 201`, notCharged("p"), uncharged("u"), settledAs("v", 1)],
);
await check(
  "the difference is more than that payment's voucher was for",
  { payments: { u: unknown({ ceiling: 230 }) } },
  corrected(260),
  [`channels c: ${freed}, charged 260`, notCharged("p"), settledAs("u", 30)],
);
await check(
  "another payment has the channel by now: it may be what the total counts, and it goes on",
  { channel: { busy_payment: "running" }, payments: { u: unknown(), running: through() } },
  corrected(260),
  ["channels c: charged 260", notCharged("p"), undecided("u", "0.00006", 2)],
);
await check(
  "another payment has the channel by now, and the total is the same",
  { channel: { busy_payment: "running" }, payments: { u: unknown(), running: through() } },
  corrected(200),
  [notCharged("p"), uncharged("u")],
);
await check(
  "another payment has the channel by now, and only it can be what the total counts",
  { channel: { busy_payment: "running" }, payments: { running: through() } },
  corrected(260),
  ["channels c: charged 260", notCharged("p")],
);
await check(
  "a request that was shown before may be what the higher total counts: its key is kept",
  withKeys({}),
  corrected(260, { wasShown: true }),
  [`channels c: ${freed}, charged 260`, settledAs("p", 60)],
);
await check(
  "two requests were shown before: the higher total counts one of them, and both keys are kept",
  withKeys({ payments: { u: unknown() } }),
  corrected(260, { wasShown: true }),
  [`channels c: ${freed}, charged 260`, undecided("p", "0.00006", 2), undecided("u", "0.00006", 2)],
);
await check(
  "a request that was shown before, and the total is the same: it was not charged",
  withKeys({}),
  corrected(200, { wasShown: true }),
  [`channels c: ${freed}`, "idempotency_keys its: deleted", notCharged("p")],
);
await check(
  "a payment that has ended is not changed",
  { payment: { status: "settled", charged: 10, settled_at: "2026-01-01" } },
  corrected(260),
  [`channels c: ${freed}, charged 260`],
);
await check(
  "a total with a voucher above our ceiling, as after a restored backup",
  {},
  corrected(350, { ceiling: 400, by: "x" }),
  [`channels c: ${freed}, ceiling 400, charged 350, voucher ${shown("x")}`, notCharged("p")],
);
await check(
  "a voucher for the same ceiling: ours stays",
  {},
  corrected(300, { ceiling: 300, by: "x" }),
  [`channels c: ${freed}, charged 300`, notCharged("p")],
);
await check(
  "a total that only the chain proves: our voucher and its ceiling stay",
  {},
  corrected(260, { ceiling: 0 }),
  [`channels c: ${freed}, charged 260`, notCharged("p")],
);

// The channel is empty on the chain.

const closing = (row: Row = {}): Row => ({
  status: "closing",
  reason: "owner",
  busy_payment: null,
  busy_until: "-infinity",
  ...row,
});
const over = { payment: { status: "settled", charged: 0, settled_at: "2026-01-01" } };
await check(
  "the seller claimed what we know: nobody else was charged",
  { ...over, channel: closing(), payments: { u: unknown() } },
  closed(200, 700),
  ["channels c: closed_at now, returned 700, status closed", uncharged("u")],
);
await check(
  "the seller claimed more: the unknown payment was charged it",
  { ...over, channel: closing(), payments: { u: unknown() } },
  closed(260, 640),
  ["channels c: charged 260, closed_at now, returned 640, status closed", settledAs("u", 60)],
);
await check(
  "the seller claimed more, and several may have been charged it",
  { ...over, channel: closing(), payments: unknownOnes },
  closed(260, 640),
  [
    "channels c: charged 260, closed_at now, returned 640, status closed",
    undecided("between", "0.00006", 3),
    undecided("newer", "0.00006", 3),
    undecided("older", "0.00006", 3),
  ],
);
await check(
  "the seller claimed more than that payment's voucher was for",
  { ...over, channel: closing(), payments: { u: unknown({ ceiling: 230 }) } },
  closed(260, 640),
  ["channels c: charged 260, closed_at now, returned 640, status closed", settledAs("u", 30)],
);

// Whatever the seller did, nobody is told otherwise.

await t.test("a payment ends as what it is in every history with the same total", async (t) => {
  const CEILINGS = [200, 250, 300];
  const known = 200;
  const cases = CEILINGS.flatMap((a) =>
    CEILINGS.flatMap((b) => CEILINGS.map((c) => [a, b, c] as const)),
  );
  for (const [index, ceilings] of cases.entries())
    for (const total of [200, 250, 300].filter((one) => one <= Math.max(...ceilings)))
      await inRows(async (rows) => {
        const payments = Object.fromEntries(
          ceilings.map((ceiling, n) => [`u${n}`, unknown({ ...later(n), ceiling })]),
        );
        const isClosed = index % 2 === 0;
        const channel = isClosed ? closing() : { busy_payment: null };
        await prepare(rows, { ...over, channel, payments });
        await (isClosed ? closed(total, 0) : corrected(total))(rows);
        const { rows: ends } = await rows.query<{ charged: number | null; code: string | null }>(
          `SELECT charged::int AS charged, failure_code AS code FROM payments
            WHERE agent_id = $1 AND id LIKE 'u_' ORDER BY id`,
          [AGENT],
        );
        const histories = chargesOf(ceilings, known, total);
        const expected = ceilings.map((_, n) => {
          const possible = new Set(histories.map((charges) => charges[n]));
          const [only] = possible;
          if (possible.size > 1) return { charged: null, code: "charge_not_known" };
          return { charged: only, code: only === 0 ? "not_charged" : null };
        });
        t.same(ends, expected, `${ceilings.join(", ")}: ${total}`);
      });
});

/** Everything that a seller can have charged in steps of 50, each payment within its ceiling. */
function chargesOf(ceilings: readonly number[], known: number, total: number): number[][] {
  const [ceiling, ...rest] = ceilings;
  if (ceiling === undefined) return total === known ? [[]] : [];
  return [0, 50, 100]
    .filter((charge) => charge <= ceiling - known && charge <= total - known)
    .flatMap((charge) =>
      chargesOf(rest, known, total - charge).map((others) => [charge, ...others]),
    );
}
await check(
  "the seller claimed less than it charged: what it charged stays",
  { ...over, channel: closing() },
  closed(150, 750),
  ["channels c: closed_at now, returned 750, status closed"],
);
await check(
  "a claim beyond the ceiling that we know: the charge is within it",
  { ...over, channel: closing() },
  closed(400, 500),
  ["channels c: charged 300, closed_at now, returned 500, status closed"],
);
await check(
  "a process died with the channel: its payment ends with the channel",
  { channel: closing({ busy_payment: "p" }) },
  closed(200, 700),
  ["channels c: busy_payment null, closed_at now, returned 700, status closed", uncharged("p")],
);
await check(
  "a channel that is in use again is not closed",
  { ...over, channel: { busy_payment: null } },
  closed(200, 700),
  [],
);
await check(
  "a channel that is closed stays as it is",
  { ...over, channel: { ...closing(), status: "closed", closed_at: "2026-01-01" } },
  closed(200, 700),
  [],
);

// What lies in a channel.

const deposit = (amount: number, row: Row = {}): Row => ({
  kind: "deposit",
  status: "settled",
  tx_hash: h("t"),
  settled_at: "2026-01-01",
  channel_id: CHANNEL,
  amount,
  ...row,
});

await t.test("deposits of a channel count until they failed, less what came back", async (t) => {
  await inRows(async (rows) => {
    await prepare(rows, { channel: { returned: 7 } });
    const balance = async (): Promise<unknown> => {
      const { rows: found } = await rows.query<{ balance: string }>(
        "SELECT purser_channel_balance(c)::text AS balance FROM channels c WHERE agent_id = $1 AND id = $2",
        [AGENT, CHANNEL],
      );
      return Number(found[0]?.balance);
    };
    t.equal(await balance(), 493, "the deposit on its way");
    const counted: Record<string, number> = { reserved: 1, submitted: 2, unknown: 4, settled: 8 };
    for (const [status, amount] of Object.entries(counted))
      await rows.payment(status, deposit(amount * 1_000, { status }));
    t.equal(await balance(), 15_493);
    for (const status of ["voided", "blocked"]) {
      const denial_code = status === "blocked" ? "agent_paused" : null;
      await rows.payment(status, deposit(1_000_000, { status, denial_code }));
    }
    await rows.payment("of another", deposit(1_000_000, { agent_id: OTHER_AGENT }));
    await rows.payment("to another", deposit(1_000_000, { channel_id: OTHER_CHANNEL }));
    t.equal(await balance(), 15_493);
    await rows.query("DELETE FROM payments WHERE kind = 'deposit'");
    t.equal(await balance(), -7, "none");
  });
});

await t.test("what a wallet has promised, as of a block", async (t) => {
  await inRows(async (rows) => {
    await prepare(rows, { payments: { u: unknown() } });
    const outstanding = async (): Promise<number> => {
      const { rows: found } = await rows.query<{ amount: number }>(
        "SELECT purser_outstanding($1, $2, 50)::int AS amount",
        [AGENT, CHAIN],
      );
      return Number(found[0]?.amount);
    };
    t.equal(
      await outstanding(),
      600,
      "a payment and a deposit; the money of vouchers is in their channel",
    );
    await rows.payment("elsewhere", { chain_id: 1, amount: 7_000 });
    t.equal(await outstanding(), 600, "on another chain");
    const settled = { status: "settled", tx_hash: h("t"), settled_at: "2026-01-01" };
    await rows.payment("newer", { ...settled, block_number: 51, amount: 11 });
    t.equal(await outstanding(), 611, "settled after the block that the balance is of");
    await rows.payment("read", { ...settled, block_number: 50, amount: 100_000 });
    await rows.payment("unnumbered", { ...settled, amount: 100_000 });
    await rows.payment("received", {
      ...settled,
      block_number: 51,
      amount: 100_000,
      kind: "incoming",
    });
    await rows.payment("another chain", {
      ...settled,
      block_number: 51,
      amount: 100_000,
      chain_id: 1,
    });
    await rows.payment("another agent", {
      ...settled,
      block_number: 51,
      amount: 100_000,
      agent_id: OTHER_AGENT,
    });
    // A payment that is not settled has no block: purser_payment_corrected takes it away.
    await rows.payment("void", { status: "voided", amount: 100_000 });
    t.equal(await outstanding(), 611, "in the balance already, or not the wallet's");
  });
});

// What the next payment would do.

interface Plan {
  id: string;
  ceiling: number;
  growth: number;
  needed: number;
  deposit: number;
  balance: number;
  held: number;
  payee_held: number;
  is_distrusted: boolean;
}
interface Wanted {
  price: number;
  free?: number;
  payeeLimit?: number | null;
  limit?: number;
  terms?: Row;
}
const TERMS: Row = {
  id: h("new"),
  chain_id: CHAIN,
  asset: ASSET,
  receiver: PAYEE,
  receiver_authorizer: account("authorizer"),
  withdraw_delay: 900,
  signer: account("signer"),
  salt: h("salt of new"),
};

async function planOf(rows: ChangedRows, wanted: Wanted): Promise<Plan> {
  const { price, free = 1_000_000, payeeLimit = null, limit = 1_000_000, terms = {} } = wanted;
  await rows.query("UPDATE agents SET channel_held = $1", [limit]);
  const { rows: found } = await rows.query<Plan>(
    `SELECT (x.channel).id, x.ceiling::int, x.growth::int, x.needed::int, x.deposit::int, x.balance::int, x.held::int,
            x.payee_held::int, x.is_distrusted
       FROM agents a, purser_channel(a, $2, $3, $4, $5) x WHERE a.id = $1`,
    [AGENT, JSON.stringify({ ...TERMS, ...terms }), price, free, payeeLimit],
  );
  return found[0] as Plan;
}

/** 500 in the agent's channel, of which 300 are signed; 1,000 in its channel with another, of which 300 are signed. */
async function inChannels(
  world: World,
  work: (plan: (wanted: Wanted) => Promise<Partial<Plan>>, rows: ChangedRows) => Promise<void>,
) {
  await inRows(async (rows) => {
    await prepare(rows, world);
    await rows.payment("d1", deposit(1_000, { channel_id: OTHER_CHANNEL }));
    await rows.payment("d2", deposit(5_000, { agent_id: OTHER_AGENT }));
    await work((wanted) => planOf(rows, wanted), rows);
  });
}

await t.test("a payment within the channel's balance makes no deposit", async (t) => {
  await inChannels({}, async (plan) => {
    const held = { held: 900, payee_held: 200, is_distrusted: false };
    const open = { id: CHANNEL, balance: 500, needed: 0, deposit: 0, ...held };
    t.same(await plan({ price: 50 }), { ...open, ceiling: 250, growth: 0 }, "signed already");
    t.same(await plan({ price: 101 }), { ...open, ceiling: 301, growth: 1 });
    t.same(await plan({ price: 300 }), { ...open, ceiling: 500, growth: 200 }, "all of it");
    t.match(await plan({ price: 50, terms: { min_deposit: 40 } }), { needed: 0, deposit: 0 });
  });
});

await t.test(
  "a deposit is for many payments, as far as the owner allows it and the wallet has it",
  async (t) => {
    await inChannels({}, async (plan) => {
      const price = 301;
      t.match(await plan({ price }), { ceiling: 501, growth: 201, needed: 1, deposit: 30_100 });
      t.match(await plan({ price, limit: 1_000 }), { needed: 1, deposit: 100 }, "held in all");
      t.match(
        await plan({ price, payeeLimit: 250 }),
        { needed: 1, deposit: 50 },
        "held for a payee",
      );
      t.match(await plan({ price, free: 30 }), { needed: 1, deposit: 30 }, "free in the wallet");
      t.match(await plan({ price, free: 30, terms: { min_deposit: 40 } }), {
        needed: 40,
        deposit: 40,
      });
      t.match(await plan({ price, limit: 800, terms: { min_deposit: 0 } }), {
        needed: 1,
        deposit: 1,
      });
    });
  },
);

await t.test("other terms need another channel", async (t) => {
  await inChannels({}, async (plan) => {
    const others: Row[] = [
      { chain_id: 1 },
      { asset: account("x") },
      { receiver: account("x") },
      { receiver_authorizer: account("x") },
      { withdraw_delay: 901 },
      { signer: account("x") },
    ];
    for (const terms of others)
      t.match(
        await plan({ price: 7, terms }),
        { id: h("new"), balance: 0, ceiling: 7, growth: 7, needed: 7, deposit: 700, held: 900 },
        JSON.stringify(terms),
      );
    t.match(await plan({ price: 7, terms: { receiver: account("x") } }), { payee_held: 0 });
    t.match(await plan({ price: 7, terms: { receiver: account("another") } }), { payee_held: 700 });
  });
});

await t.test("a channel that is closing is not used, and what is in it is held", async (t) => {
  await inChannels({ channel: closing() }, async (plan, rows) => {
    t.match(await plan({ price: 7 }), { id: h("new"), ceiling: 7, held: 900, payee_held: 200 });
    await rows.query("UPDATE channels SET status = 'closed' WHERE receiver = $1", [PAYEE]);
    t.match(await plan({ price: 7 }), { id: h("new"), held: 700, payee_held: 0 }, "closed");
    await rows.query("UPDATE channels SET ceiling = 1001 WHERE agent_id = $1 AND id = $2", [
      AGENT,
      OTHER_CHANNEL,
    ]);
    t.match(await plan({ price: 7 }), { held: 0 }, "signed for more than it has");
  });
  await inRows(async (rows) => {
    await rows.agent();
    t.match(
      await planOf(rows, { price: 7 }),
      { held: 0, payee_held: 0, is_distrusted: false, deposit: 700 },
      "none",
    );
  });
});

await t.test(
  "a seller that broke the rules is not trusted after its channel is closed",
  async (t) => {
    for (const status of ["closing", "closed"])
      await inChannels({}, async (plan, rows) => {
        const why = async (reason: string, agent: string, receiver: string) => {
          await rows.query("UPDATE channels SET status = 'open', reason = NULL");
          await rows.query(
            "UPDATE channels SET status = $1, reason = $2 WHERE agent_id = $3 AND receiver = $4",
            [status, reason, agent, receiver],
          );
          return (await plan({ price: 7 })).is_distrusted;
        };
        t.equal(await why("seller_broke_rules", AGENT, PAYEE), true, status);
        t.equal(await why("owner", AGENT, PAYEE), false);
        t.equal(await why("seller_broke_rules", AGENT, account("another")), false);
        t.equal(await why("seller_broke_rules", OTHER_AGENT, PAYEE), false);
      });
  },
);
