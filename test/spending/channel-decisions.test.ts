// Goal: a payment through a channel counts as the growth of what is signed, one request uses a channel at a time, and a process that died leaves neither a channel that nobody can use nor a deposit that counts twice.
import t from "tap";
import type { Hex } from "viem";
import { newId } from "../../server/core/ids.ts";
import { createPool } from "../../server/infra/db/pool.ts";
import { reserve, type ReservationRow } from "../../server/plugins/guardrails/store.ts";
import type { ChannelWanted, ReserveRequest } from "../../server/plugins/guardrails/types.ts";
import { withOwnClock } from "../helpers/database-clock.ts";
import { testDatabase } from "../helpers/postgres.ts";
import {
  ASSET,
  CHAIN_ID,
  PAYEE,
  randomAddress,
  reserveRequest,
  seedAgent,
  type SeededAgent,
  type SeededRules,
} from "./guardrails-sql.helper.ts";

const database = await testDatabase(t);
const clock = await withOwnClock(database);
const pool = createPool(database.url, { maxConnections: 2 });
t.teardown(() => pool.end());

const PRICE = 10n;
const BUSY_SECONDS = 30;
const word = (digit: string): Hex => `0x${digit.repeat(64)}`;
const WANTED: Omit<ChannelWanted, "depositId"> = {
  id: word("a"),
  salt: word("b"),
  signer: randomAddress(),
  receiverAuthorizer: randomAddress(),
  withdrawDelay: 900,
  minDepositAtomic: 0n,
  busySeconds: BUSY_SECONDS,
};

interface Rules extends Partial<SeededRules> {
  held?: number;
  delay?: number;
  payeeHeld?: number;
  payeePerPayment?: number;
}

async function agentWith({ held = 2_000, delay = 3_600, ...more }: Rules = {}) {
  const { payeeHeld, payeePerPayment, ...rules } = more;
  const agent = await seedAgent(pool, { dailyLimit: 1_000n, ...rules });
  await pool.query("UPDATE agents SET channel_held = $2, channel_delay = $3 WHERE id = $1", [
    agent.agentId,
    held,
    delay,
  ]);
  await pool.query(
    "UPDATE allowlist_entries SET channel_held = $2, per_payment_limit = $3 WHERE agent_id = $1",
    [agent.agentId, payeeHeld ?? null, payeePerPayment ?? null],
  );
  return agent;
}

interface Call {
  id?: string;
  price?: bigint;
  dryRun?: boolean;
  channel?: Partial<ChannelWanted>;
  more?: Partial<ReserveRequest>;
}

/** A payment `p1` has the deposit `p1 deposit`. */
function pay(agent: SeededAgent, call: Call = {}): Promise<ReservationRow> {
  const { id = newId("pay"), price = PRICE, dryRun = false, channel, more } = call;
  return reserve(pool, {
    ...reserveRequest(agent, price, {
      kind: "x402",
      nonce: `channel:${word("0")}`,
      url: `https://a.example/${id}`,
      requestId: `req_${id}`,
      channel: { ...WANTED, depositId: `${id} deposit`, ...channel },
      ...more,
    }),
    paymentId: id,
    dryRun,
  });
}

const outcomeOf = async (...args: Parameters<typeof pay>): Promise<string> => {
  const { outcome, code, paymentId } = await pay(...args);
  return [outcome, code ?? (outcome === "busy" && paymentId)].filter(Boolean).join(" ");
};

type Row = Record<string, unknown>;
const rowsOf = async (agent: SeededAgent, query: string): Promise<Row[]> =>
  (await pool.query<Row>(query, [agent.agentId])).rows;
const paymentsOf = (agent: SeededAgent) =>
  rowsOf(
    agent,
    `SELECT id, kind, status, amount::int, ceiling::int, channel_id, nonce, url, request_id, policy, api_key_id,
            valid_before::int, created_at, updated_at
       FROM payments WHERE agent_id = $1 ORDER BY created_at, id`,
  );
const channelsOf = (agent: SeededAgent) =>
  rowsOf(agent, "SELECT * FROM channels WHERE agent_id = $1");
const policyOf = async (agent: SeededAgent, id: string) =>
  (await paymentsOf(agent)).find((one) => one["id"] === id)?.["policy"] as Record<string, unknown>;

/** What the service does when it has signed; then the seller's answer is lost. */
async function sign({ agentId }: SeededAgent, id: string, { isLost = true } = {}): Promise<void> {
  await pool.query("SELECT purser_voucher_signed($1, $2, $3)", [agentId, id, Buffer.alloc(65, 1)]);
  await pool.query(
    `UPDATE payments SET status = 'submitted' WHERE agent_id = $1 AND id = $2 AND status = 'reserved'`,
    [agentId, `${id} deposit`],
  );
  if (isLost) await pool.query("SELECT purser_voucher_ended($1, $2, NULL, NULL)", [agentId, id]);
}
const atMicros = (micros: bigint) => new Date(Number(micros / 1_000n));

t.test("the first payment opens a channel and makes a deposit", async (t) => {
  const agent = await agentWith();
  const { outcome, decidedAtMicros } = await pay(agent, { id: "p1" });
  t.equal(outcome, "reserved");
  const decidedAt = atMicros(decidedAtMicros);
  const validBefore = Math.floor(decidedAt.getTime() / 1_000) + 120;
  t.match(await channelsOf(agent), [
    {
      id: WANTED.id,
      chain_id: String(CHAIN_ID),
      asset: ASSET,
      receiver: PAYEE,
      receiver_authorizer: WANTED.receiverAuthorizer,
      withdraw_delay: 900,
      signer: WANTED.signer,
      salt: WANTED.salt,
      status: "open",
      ceiling: "0",
      charged: "0",
      busy_payment: "p1",
      busy_until: new Date(decidedAt.getTime() + BUSY_SECONDS * 1_000),
      url: "https://a.example/p1",
      created_at: decidedAt,
    },
  ]);
  const shared = {
    status: "reserved",
    channel_id: WANTED.id,
    nonce: null,
    url: "https://a.example/p1",
    request_id: "req_p1",
    valid_before: validBefore,
    created_at: decidedAt,
    updated_at: decidedAt,
  };
  const [payment, deposit] = await paymentsOf(agent);
  t.match(payment, { ...shared, id: "p1", kind: "x402", amount: 10, ceiling: 10 });
  t.match(deposit, { ...shared, id: "p1 deposit", kind: "deposit", amount: 1_000, ceiling: null });
  const policy = await policyOf(agent, "p1");
  t.same(policy["channel"], {
    id: WANTED.id,
    salt: WANTED.salt,
    ceiling: "10",
    balance: "0",
    charged: "0",
    before: "0",
    deposit: "1000",
    depositId: "p1 deposit",
  });
  t.match(policy, {
    price: "10",
    requested: "10",
    channelDeposit: "10",
    channelHeld: "0",
    channelLimit: "2000",
    channelDelay: "900",
    channelLongestDelay: "3600",
  });
  t.notOk("payeeChannelHeld" in policy || "payeeChannelLimit" in policy, "the payee has no limit");
});

t.test("another request waits while a channel is in use", async (t) => {
  const agent = await agentWith();
  await pay(agent, { id: "p1" });
  const before = [await channelsOf(agent), await paymentsOf(agent)];
  t.equal(await outcomeOf(agent), "busy p1");
  t.equal(await outcomeOf(agent, { dryRun: true }), "allowed", "a quote does not wait");
  await clock.pass(BigInt(BUSY_SECONDS) * 1_000_000n - 1n);
  t.equal(await outcomeOf(agent), "busy p1", "until the last moment");
  t.same([await channelsOf(agent), await paymentsOf(agent)], before, "nothing is written");
  const other = { receiverAuthorizer: randomAddress(), id: word("c"), salt: word("d") };
  t.equal(
    await outcomeOf(agent, { channel: other }),
    "reserved",
    "other terms have another channel",
  );
});

t.test("a process that died before it signed: its deposit counts no more", async (t) => {
  const agent = await agentWith();
  await pay(agent, { id: "p1" });
  await clock.pass(BigInt(BUSY_SECONDS) * 1_000_000n);
  t.equal(await outcomeOf(agent, { dryRun: true }), "allowed");
  t.match(
    await paymentsOf(agent),
    [{ status: "reserved" }, { status: "reserved" }],
    "a quote releases nothing",
  );
  t.equal(await outcomeOf(agent, { id: "p2" }), "busy", "released; the caller asks again");
  t.match(await paymentsOf(agent), [
    { id: "p1", status: "voided" },
    { id: "p1 deposit", status: "voided" },
  ]);
  t.equal(await outcomeOf(agent, { id: "p3" }), "reserved");
  t.match((await policyOf(agent, "p3"))["channel"], {
    balance: "0",
    ceiling: "10",
    deposit: "1000",
  });
  t.match(await channelsOf(agent), [
    {
      busy_payment: "p3",
      busy_until: atMicros(clock.now() + BigInt(BUSY_SECONDS) * 1_000_000n),
      url: "https://a.example/p3",
    },
  ]);
});

t.test("a process that died after it signed: the next payment uses the same ceiling", async (t) => {
  const agent = await agentWith({ dailyLimit: PRICE });
  await pay(agent, { id: "p1" });
  await sign(agent, "p1", { isLost: false });
  await clock.pass(BigInt(BUSY_SECONDS) * 1_000_000n);
  const { outcome } = await pay(agent, { id: "p2" });
  t.equal(outcome, "reserved", "the limit was reached, and nothing more can be claimed");
  t.match(await paymentsOf(agent), [
    { id: "p1", status: "submitted" },
    { id: "p1 deposit", status: "submitted" },
    { id: "p2", status: "reserved", amount: 0, ceiling: 10 },
  ]);
  t.same((await policyOf(agent, "p2"))["channel"], {
    id: WANTED.id,
    salt: WANTED.salt,
    ceiling: "10",
    balance: "1000",
    charged: "0",
    before: "10",
    voucher: `0x${"01".repeat(65)}`,
    openDepositId: "p1 deposit",
  });
  t.match(await policyOf(agent, "p2"), {
    requested: "0",
    price: "10",
    channelDeposit: "0",
    channelHeld: "990",
  });
});

t.test("the newest deposit on its way is named", async (t) => {
  const agent = await agentWith();
  await pay(agent, { id: "p1" });
  await sign(agent, "p1");
  const open = async (id: string) => {
    await pay(agent, { id });
    await sign(agent, id);
    const channel = (await policyOf(agent, id))["channel"] as Record<string, unknown>;
    return channel["openDepositId"];
  };
  const deposit = (id: string, more: Row) =>
    pool.query(
      `INSERT INTO payments (agent_id, id, kind, status, chain_id, asset, counterparty, amount, channel_id, created_at,
         tx_hash, settled_at)
       VALUES ($1, $2, $3, $4, $5, $6, $7, 5, $8, clock_timestamp() + $9 * interval '1 minute', $10, $11)`,
      [
        more["agent"] ?? agent.agentId,
        id,
        more["kind"] ?? "deposit",
        more["status"] ?? "submitted",
        CHAIN_ID,
        ASSET,
        PAYEE,
        more["channel"] ?? WANTED.id,
        more["minutes"],
        more["status"] === "settled" ? word("7") : null,
        more["status"] === "settled" ? new Date() : null,
      ],
    );
  t.equal(await open("p2"), "p1 deposit");
  await deposit("unknown", { status: "unknown", minutes: 1 });
  await deposit("older", { minutes: -60 });
  await deposit("settled", { status: "settled", minutes: 2 });
  await deposit("voided", { status: "voided", minutes: 2 });
  await deposit("of another channel", { channel: word("e"), minutes: 2 });
  await deposit("of another agent", { agent: (await agentWith()).agentId, minutes: 2 });
  t.equal(await open("p3"), "unknown");
  await pool.query(
    "UPDATE payments SET status = 'voided' WHERE agent_id = $1 AND kind = 'deposit'",
    [agent.agentId],
  );
  t.equal(await open("p4"), undefined);
});

t.test(
  "what is free in the wallet is deposited, and a voucher takes nothing from it",
  async (t) => {
    const balance = (atomic: bigint) => ({ more: { balance: { atomic, blockNumber: 1n } } });
    const agent = await agentWith();
    const deposited = async (id: string, atomic: bigint) => {
      t.equal(await outcomeOf(agent, { id, ...balance(atomic) }), "reserved", id);
      return ((await policyOf(agent, id))["channel"] as Record<string, unknown>)["deposit"];
    };
    t.equal(await outcomeOf(agent, balance(9n)), "blocked insufficient_funds");
    const [blocked] = await paymentsOf(agent);
    t.match(blocked, { status: "blocked", amount: 10, ceiling: null, channel_id: null });
    t.same(await channelsOf(agent), [], "a refused payment opens no channel");
    await pay(agent, {
      id: "spend",
      price: 40n,
      more: { channel: undefined, kind: "spend", nonce: word("1") } as never,
    });
    t.equal(await deposited("p1", 100n), "60", "100, of which 40 are promised");
    await sign(agent, "p1");
    // The voucher is in the channel's money; 100 are promised.
    t.equal(await deposited("p2", 100n), undefined);
    await sign(agent, "p2");
    const others = { id: word("c"), salt: word("d"), receiverAuthorizer: randomAddress() };
    t.equal(
      await outcomeOf(agent, { ...balance(109n), channel: others }),
      "blocked insufficient_funds",
    );
    t.equal(await outcomeOf(agent, { ...balance(110n), channel: others }), "reserved");
  },
);

t.test("each rule compares what it is about", async (t) => {
  const cases: { what: string; rules?: Rules; call?: Call; expected: string; policy?: Row }[] = [
    { what: "no channels", rules: { held: 0 }, expected: "blocked channel_not_allowed" },
    {
      what: "none with this payee",
      rules: { payeeHeld: 0 },
      expected: "blocked channel_not_allowed",
      policy: { payeeChannelHeld: "0", payeeChannelLimit: "0" },
    },
    {
      what: "too long a delay",
      call: { channel: { withdrawDelay: 3_601 } },
      expected: "blocked channel_not_allowed",
      policy: { channelDelay: "3601", channelLongestDelay: "3600" },
    },
    {
      what: "the longest delay",
      call: { channel: { withdrawDelay: 3_600 } },
      expected: "reserved",
    },
    { what: "too much held", rules: { held: 9 }, expected: "blocked channel_limit_exceeded" },
    { what: "as much as may be held", rules: { held: 10 }, expected: "reserved" },
    {
      what: "too much held with the payee",
      rules: { payeeHeld: 9 },
      expected: "blocked payee_channel_limit_exceeded",
      policy: { payeeChannelHeld: "0", payeeChannelLimit: "9" },
    },
    {
      what: "the seller's least deposit is too much",
      rules: { held: 99 },
      call: { channel: { minDepositAtomic: 100n } },
      expected: "blocked channel_limit_exceeded",
      policy: { channelDeposit: "100" },
    },
    {
      what: "the agent's maximum",
      call: { more: { maxAmountAtomic: 9n } },
      expected: "blocked price_exceeds_max",
    },
    {
      what: "the limit of a payment",
      rules: { perPaymentLimit: 9n },
      expected: "blocked per_payment_limit_exceeded",
    },
    { what: "the day", rules: { dailyLimit: 9n }, expected: "blocked daily_limit_exceeded" },
    { what: "the week", rules: { weeklyLimit: 9n }, expected: "blocked weekly_limit_exceeded" },
    { what: "all of the week", rules: { weeklyLimit: 10n }, expected: "reserved" },
    { what: "the month", rules: { monthlyLimit: 9n }, expected: "blocked monthly_limit_exceeded" },
    { what: "all of the month", rules: { monthlyLimit: 10n }, expected: "reserved" },
    {
      what: "a payment to the payee",
      rules: { payeePerPayment: 9 },
      expected: "blocked payee_per_payment_limit_exceeded",
    },
    {
      what: "the most of a payment to the payee",
      rules: { payeePerPayment: 10 },
      expected: "reserved",
    },
    {
      what: "the payee is gone",
      rules: { allowlist: [] },
      expected: "blocked recipient_not_allowed",
    },
    {
      what: "no payments in an hour",
      rules: { paymentsPerHour: 0 },
      expected: "blocked payment_rate_exceeded",
    },
    {
      what: "a problem with the target comes first",
      rules: { held: 0 },
      call: { more: { refusal: { code: "url_blocked" } } },
      expected: "blocked url_blocked",
    },
  ];
  for (const { what, rules, call, expected, policy } of cases) {
    const agent = await agentWith(rules);
    t.equal(
      await outcomeOf(agent, { ...call, dryRun: true }),
      expected.replace("blocked", "denied").replace("reserved", "allowed"),
      what,
    );
    t.same(await paymentsOf(agent), [], `${what}: a quote writes nothing`);
    t.equal(await outcomeOf(agent, { id: what, ...call }), expected, what);
    if (policy) t.match(await policyOf(agent, what), policy, what);
    if (expected !== "reserved") t.notOk("channel" in (await policyOf(agent, what)), what);
  }
});

t.test("signed already: the price is still compared with the limits of one payment", async (t) => {
  const agent = await agentWith();
  await pay(agent, { id: "p1" });
  await sign(agent, "p1");
  t.equal(await outcomeOf(agent, { more: { maxAmountAtomic: 9n } }), "blocked price_exceeds_max");
  await pool.query("UPDATE agents SET per_payment_limit = 9 WHERE id = $1", [agent.agentId]);
  t.equal(await outcomeOf(agent), "blocked per_payment_limit_exceeded");
});

t.test("the smallest deposit", async (t) => {
  const agent = await agentWith({ held: 1 });
  t.equal(await outcomeOf(agent, { id: "p1", price: 1n }), "reserved");
  t.match((await policyOf(agent, "p1"))["channel"], { deposit: "1", depositId: "p1 deposit" });
  t.match((await paymentsOf(agent)).at(-1), { id: "p1 deposit", amount: 1 });
});

t.test("a seller that broke the rules gets no other channel", async (t) => {
  const agent = await agentWith();
  await pay(agent, { id: "p1" });
  await sign(agent, "p1", { isLost: false });
  await pool.query("SELECT purser_voucher_ended($1, 'p1', 10, 'seller_broke_rules')", [
    agent.agentId,
  ]);
  const again = { channel: { id: word("c"), salt: word("d") } };
  t.equal(await outcomeOf(agent, again), "blocked channel_distrusted");
  t.equal(
    await outcomeOf(agent, { ...again, more: { refusal: { code: "url_blocked" } } }),
    "blocked url_blocked",
    "another problem that was found before is the one that is named",
  );
  await pool.query("SELECT purser_channel_closed($1, $2, 10, 990)", [agent.agentId, WANTED.id]);
  t.equal(await outcomeOf(agent, again), "blocked channel_distrusted", "also when it is closed");
});
