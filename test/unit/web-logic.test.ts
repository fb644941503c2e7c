// Goal: the browser's results for money, rules, addresses and sign-in agree with the server to the last digit.
import { array, assert, bigInt, integer, property, record } from "fast-check";
import t from "tap";
import { getAddress } from "viem";
import { parseSiweMessage } from "viem/siwe";
import { formatAtomic, parseDecimal } from "../../server/core/money.ts";
import { api, ApiError } from "../../web/src/lib/api.ts";
import { availableNow } from "../../web/src/lib/available.ts";
import { checkAddress } from "../../web/src/lib/address.ts";
import { correctionMs, narrow, type ClockOffset } from "../../web/src/lib/clock.ts";
import {
  atomic,
  canonical,
  formatUsdc,
  parseUsdc,
  perMille,
  toDecimal,
} from "../../web/src/lib/money.ts";
import { niceTicks } from "../../web/src/lib/ticks.ts";
import { formatAgo, formatDateTime, formatUntil } from "../../web/src/lib/time.ts";
import type { Agent, AgentChannel, Approval, Limits, Payment } from "../../web/src/lib/wire.ts";
import { siweMessage } from "../../web/src/lib/wallet/siwe.ts";
import { describeLimit, meaningOf } from "../../web/src/features/approvals/words.ts";
import { describeField } from "../../web/src/features/audit/words.ts";
import { sellerOf, statusIn, whatClosingDoes } from "../../web/src/features/channels/words.ts";
import { explainDenial, statusOf, titleOf } from "../../web/src/features/payments/status.ts";
import {
  allowChannel,
  channelFault,
  channelNeeds,
} from "../../web/src/features/rules/channels-behind.ts";
import { parseAllowlist } from "../../web/src/features/rules/parse-allowlist.ts";
import {
  checkRules,
  diffRules,
  EMPTY_RULES,
  requestFor,
  describeRules,
} from "../../web/src/features/rules/rules.ts";
import { testAccount } from "../helpers/chain.ts";

// A part of the app is loaded only in a browser.
Object.defineProperty(globalThis, "navigator", { value: { onLine: true }, configurable: true });
Object.assign(globalThis, { sessionStorage: { removeItem() {} } });

const amounts = bigInt({ min: 0n, max: 10n ** 45n });

t.test(
  "a request without an answer may have been carried out, unless it was not sent",
  async (t) => {
    const { fetch } = globalThis;
    t.teardown(() => Object.assign(globalThis, { fetch }));
    const isLost = async (answer: () => Response, ask = () => api.post("/api/owner/stop")) => {
      Object.assign(globalThis, { fetch: async () => answer() });
      const error: unknown = await ask().catch((caught: unknown) => caught);
      return error instanceof ApiError && error.mayBeDone;
    };
    const broken = (): Response => {
      throw new TypeError("Failed to fetch");
    };
    t.equal(await isLost(broken), true);
    t.equal(await isLost(broken, () => api.get("/api/agents")), false, "reading changes nothing");
    t.equal(await isLost(() => new Response("", { status: 504 })), true, "of a gateway");
    t.equal(await isLost(() => new Response("", { status: 503 })), false, "no server had it");
    const headers = { "content-type": "application/problem+json" };
    const own = new Response('{"code":"upstream_timeout"}', { status: 504, headers });
    t.equal(await isLost(() => own), false, "the server's own answer");
    Object.assign(navigator, { onLine: false });
    t.equal(await isLost(broken), false, "the device is offline");
    Object.assign(navigator, { onLine: true });
  },
);

t.test("money goes to the server and back without a change", async (t) => {
  assert(
    property(amounts, (value) => {
      const text = toDecimal(value);
      const there = parseDecimal(text);
      return (
        there.ok && there.atomic === value && formatAtomic(value) === text && atomic(text) === value
      );
    }),
  );
  assert(property(amounts, (value) => parseUsdc(formatUsdc(value).replaceAll(",", "")) === value));
  t.equal(formatUsdc(1_234_567_890_100n), "1,234,567.8901");
  t.equal(formatUsdc(0n), "0.00");
  t.equal(perMille(999_999n, 1_000_000n), 999, "never rounded up to full");
  for (const [typed, sent] of [
    ["5.", "5"],
    [".5", "0.5"],
    ["007.10", "7.1"],
    [" 3 ", "3"],
  ] as const)
    t.equal(canonical(typed), sent);
  for (const wrong of ["", ".", "-1", "1e3", "1,5", "0x1", "1.2345678", "٣"])
    t.equal(parseUsdc(wrong), undefined, wrong);
});

t.test("the amount an agent can pay is shown with its reason, never guessed", async (t) => {
  const text = (available: string | null, boundBy: Limits["boundBy"], status = "active") =>
    availableNow({ status, limits: { available, boundBy } } as Agent);
  t.equal(text("0.039", "weekly_limit"), "Can pay 0.039 USDC now, capped by the weekly limit");
  t.equal(text("1234.5", "balance"), "Can pay 1,234.50 USDC now, capped by the balance");
  t.equal(text("0", "balance"), "Cannot pay now: capped by the balance");
  t.equal(text("0", "status", "paused"), "Cannot pay now: paused");
  t.equal(text(null, null), "The amount it can pay is not known right now");
});

t.test("addresses: any correct case passes, a wrong checksum does not", async (t) => {
  const { address } = testAccount(1);
  const lower = await checkAddress(address.toLowerCase());
  t.same(lower, { ok: true, address });
  t.same(await checkAddress(` ${address} `), { ok: true, address });
  t.match(await checkAddress(address.replace(/[a-f]/, (letter) => letter.toUpperCase())), {
    ok: false,
  });
  t.match(await checkAddress("0x0000000000000000000000000000000000000000"), { ok: false });
  t.match(await checkAddress(address.slice(0, -1)), { ok: false });
});

t.test("a pasted list is read in every usual format, and each bad line is named", async (t) => {
  const [first, second, third] = [testAccount(1), testAccount(2), testAccount(3)];
  const text = [
    first.address,
    `${second.address.toLowerCase()}, News; daily`,
    `"Weather API"\t${third.address}`,
    `# ${testAccount(4).address} left out`,
    "",
    first.address.toLowerCase(),
    "0x1234",
    "nonsense",
  ].join("\r\n");
  const read = await parseAllowlist(text, []);
  t.same(read.entries, [
    { address: first.address, label: "" },
    { address: getAddress(second.address), label: "News; daily" },
    { address: third.address, label: "Weather API" },
  ]);
  t.equal(read.repeated, 1);
  t.same(
    read.problems.map(({ line }) => line),
    [7, 8],
  );
  const again = await parseAllowlist(first.address, [{ address: first.address, label: "" }]);
  t.match(again, { entries: [], repeated: 1 });
});

t.test("rules are described as they are, and only changes are sent", async (t) => {
  const payee = { address: testAccount(1).address, label: "Weather API" };
  const before = { ...EMPTY_RULES, name: "a", dailyLimit: "5", allowlist: [payee] };
  t.match(describeRules(before).join(" "), "at most 5.00 USDC in any 24 hours, only to 1 address");
  t.match(describeRules({ ...before, allowlist: [] }).join(" "), "cannot pay until you add");
  t.match(describeRules({ ...before, dailyLimit: "0" }).join(" "), "pays nothing by itself");
  t.match(checkRules({ ...before, name: " ", dailyLimit: "x" }, 0), {
    name: /name/,
    dailyLimit: /amount/,
  });
  t.match(checkRules({ ...before, perPaymentLimit: "6" }, 0), {
    perPaymentLimit: /more than the daily limit/,
  });
  t.same(requestFor(before, { ...before, dailyLimit: "5.00" }), {});
  const after = { ...before, dailyLimit: "7.50", perPaymentLimit: "1", allowlist: [] };
  t.same(requestFor(before, after), { dailyLimit: "7.5", perPaymentLimit: "1", allowlist: [] });
  t.same(
    diffRules(before, after).map(({ what }) => what),
    ["Daily limit", "Limit per payment", "Payee removed"],
    "settings have the names of the form",
  );
  t.same(requestFor(after, before), {
    dailyLimit: "5",
    perPaymentLimit: null,
    allowlist: [{ address: payee.address, label: "Weather API" }],
  });
});

t.test("a refused payment channel: its reason, and one request that allows it", async (t) => {
  const [payee, other] = [testAccount(1).address, testAccount(2).address];
  const entry = { address: payee, label: "Shop", site: "https://shop.example" };
  const agent = {
    name: "a",
    dailyLimit: "5",
    channelHeld: "0",
    channelDelay: 86_400,
    fetch: "any",
    allowlist: [
      { ...entry, channelHeld: "0" },
      { address: other, label: "", site: "", channelHeld: null },
    ],
  } as unknown as Agent;
  const refused = (code: string, needs: object, numbers: object = {}) =>
    ({
      amount: "0.001",
      recipient: payee,
      x402: { url: "https://shop.example/data" },
      denial: { code, needs, suggestion: "?", policy: { requested: "0.02", ...numbers } },
    }) as unknown as Payment;
  const all = { channelHeld: "0.5", channelDelay: 604_800, payeeChannelHeld: "0.25" };
  const payment = refused("channel_not_allowed", all);
  t.same(
    channelNeeds(agent, payment).map(({ name, least }) => [name, least]),
    Object.entries(all).map(([name, least]) => [name, String(least)]),
  );
  t.same(allowChannel(agent, payment, { channelHeld: "1" }), {
    channelHeld: "1",
    channelDelay: 604_800,
    allowlist: [
      { ...entry, channelHeld: "0.25" },
      { address: other, label: "" },
    ],
  });
  const enough = { ...agent, channelHeld: "0.5", channelDelay: 700_000 };
  t.same(allowChannel(enough, payment, {}), {
    allowlist: [
      { ...entry, channelHeld: "0.25" },
      { address: other, label: "" },
    ],
  });
  const unlimited = { ...enough, allowlist: [{ ...agent.allowlist[1], address: payee }] } as Agent;
  t.same(channelNeeds(unlimited, payment), [], "meanwhile the settings allow it");
  const [need] = channelNeeds(agent, payment);
  if (!need) throw new Error("none");
  t.equal(channelFault(need, "0.5"), undefined);
  t.equal(channelFault(need, "0.499999"), "This payment needs at least 0.50 USDC.");
  t.equal(channelFault(need, ""), "This payment needs at least 0.50 USDC.");
  t.match(channelFault(need, "x"), /Enter an amount/);

  t.match(explainDenial(payment), /not allowed this agent to pay through payment channels/);
  const { payeeChannelHeld, channelDelay } = all;
  for (const [needs, text] of [
    [{ payeeChannelHeld, channelDelay }, "You allow no payment channel to this payee."],
    [{ channelDelay }, "The payment channel can keep unspent money for longer than you allow."],
  ] as const)
    t.equal(explainDenial(refused("channel_not_allowed", needs)), text);
  const numbers = { spent: "0.09", limit: "0.1" };
  t.equal(
    explainDenial(refused("payee_channel_limit_exceeded", {}, numbers)),
    "The payment needed a deposit of 0.02 USDC, with 0.09 USDC of 0.10 USDC held in payment channels to this payee.",
  );
  // The price of a payment through a channel may be above what it adds to the ceiling.
  const above = refused("per_payment_limit_exceeded", {}, { limit: "0.01" });
  t.equal(
    explainDenial(above),
    "The payment of 0.02 USDC exceeded the limit of 0.01 USDC per payment.",
  );
});

t.test("the sign-in message is a valid EIP-4361 message", async (t) => {
  const { address } = testAccount(1);
  const nowMs = Date.UTC(2026, 0, 2, 3, 4, 5);
  const message = siweMessage({
    host: "purser.example:8443",
    origin: "https://purser.example:8443",
    address,
    chainId: 5042002,
    nonce: "a1b2c3d4e5f6a7b8",
    nowMs,
  });
  t.match(parseSiweMessage(message), {
    domain: "purser.example:8443",
    uri: "https://purser.example:8443",
    address,
    version: "1",
    chainId: 5042002,
    nonce: "a1b2c3d4e5f6a7b8",
    issuedAt: new Date(nowMs),
    expirationTime: new Date(nowMs + 600_000),
  });
});

t.test("a past time is never shown as ahead, and a future time never as past", async (t) => {
  const nowMs = Date.UTC(2026, 0, 2, 3, 4, 5);
  const at = (seconds: number): string => new Date(nowMs + seconds * 1000).toISOString();
  for (const [seconds, ago, until] of [
    [-7200, "2 hr. ago", "now"],
    [-59, "59 sec. ago", "now"],
    [-6, "6 sec. ago", "now"],
    [-1, "just now", "now"],
    [0, "just now", "now"],
    [6, "just now", "in 6 sec."],
    [90, "just now", "in 1 min."],
    [86_400 * 400, "just now", "next yr."],
  ] as const) {
    t.equal(formatAgo(at(seconds), nowMs), ago, `${seconds} s`);
    t.equal(formatUntil(at(seconds), nowMs), until, `${seconds} s`);
  }
});

const seconds = (ms: number): string => new Date(ms).toUTCString();

t.test("the server's clock is derived from its responses, to the second and better", async (t) => {
  const waits = record({
    pauseMs: integer({ min: 0, max: 20_000 }),
    goingMs: integer({ min: 0, max: 3_000 }),
    comingMs: integer({ min: 0, max: 3_000 }),
  });
  const learn = (
    aheadMs: number,
    all: { pauseMs: number; goingMs: number; comingMs: number }[],
  ) => {
    let localMs = Date.UTC(2026, 0, 2, 3, 4, 5, 678);
    let known: ClockOffset | undefined;
    for (const { pauseMs, goingMs, comingMs } of all) {
      const sentAtMs = localMs + pauseMs;
      localMs = sentAtMs + goingMs + comingMs;
      const date = seconds(sentAtMs + goingMs + aheadMs);
      known = narrow(known, { date, sentAtMs, receivedAtMs: localMs });
    }
    return known;
  };
  assert(
    property(
      integer({ min: -10_000_000, max: 10_000_000 }),
      array(waits, { minLength: 1, maxLength: 12 }),
      (aheadMs, all) => {
        const known = learn(aheadMs, all);
        const roundTrips = all.map(({ goingMs, comingMs }) => goingMs + comingMs);
        return (
          known !== undefined &&
          known.leastMs <= aheadMs &&
          aheadMs <= known.mostMs &&
          known.mostMs - known.leastMs <= 999 + Math.min(...roundTrips)
        );
      },
    ),
  );
  const quick = { pauseMs: 300, goingMs: 20, comingMs: 20 };
  const corrected = (aheadMs: number): number => {
    const known = learn(aheadMs, [quick, quick, quick]);
    return known ? correctionMs(known) : Number.NaN;
  };
  t.equal(corrected(0), 0, "a correct clock is left alone");
  const late = corrected(60_000);
  t.ok(Math.abs(late - 60_000) <= 1_040, `a clock a minute late is corrected by ${late} ms`);
});

t.test("a clock that was set is measured anew; no date changes nothing", async (t) => {
  const known = { leastMs: -20, mostMs: 400 };
  const answer = { sentAtMs: 1_000_000, receivedAtMs: 1_000_050 };
  t.same(narrow(known, { ...answer, date: null }), known);
  t.same(narrow(known, { ...answer, date: "soon" }), known);
  t.same(narrow(known, { ...answer, receivedAtMs: 900_000, date: seconds(1_000_000) }), known);
  t.same(narrow(known, { ...answer, date: seconds(1_060_000) }), {
    leastMs: 59_950,
    mostMs: 60_999,
  });
});

t.test("the ticks of an axis are few, round, whole, and reach the highest value", async (t) => {
  const usdc = (...marks: string[]) => marks.map(atomic);
  for (const [highest, marks] of [
    ["0.000001", ["0", "0.000001"]],
    ["0.000003", ["0", "0.000001", "0.000002", "0.000003"]],
    ["0.000012", ["0", "0.000005", "0.00001", "0.000015"]],
    ["0.001", ["0", "0.0002", "0.0004", "0.0006", "0.0008", "0.001"]],
    ["1.2", ["0", "0.25", "0.5", "0.75", "1", "1.25"]],
    ["2.8", ["0", "1", "2", "3"]],
    ["9.1", ["0", "2", "4", "6", "8", "10"]],
    ["1234567.89", ["0", "250000", "500000", "750000", "1000000", "1250000"]],
  ] as const)
    t.same(niceTicks(atomic(highest)), usdc(...marks), highest);
  t.same(niceTicks(0n), [0n, 1n], "an empty axis still has a length");
  t.same(niceTicks(1n), [0n, 1n]);
  t.same(niceTicks(7n), [0n, 2n, 4n, 6n, 8n]);
  t.same(niceTicks(11n), [0n, 5n, 10n, 15n], "no fractions of atomic units");
  assert(
    property(amounts, (highest) => {
      const ticks = niceTicks(highest);
      const [first, step = 0n] = ticks;
      const last = ticks.at(-1) ?? 0n;
      return (
        first === 0n &&
        ticks.length <= 6 &&
        ticks.every((tick, index) => tick === BigInt(index) * step) &&
        /^(1|2|25|5)0*$/.test(String(step)) &&
        last >= highest &&
        (last - step < highest || highest === 0n)
      );
    }),
  );
});

t.test("payment channels say how they end, and a deposit is no spending", async (t) => {
  const nowMs = Date.parse("2026-05-01T12:00:00Z");
  const channel = (changes: Partial<AgentChannel>): AgentChannel => ({
    ...({ status: "open", reason: null, returnsAt: null, url: null } as AgentChannel),
    payTo: "0x3C44CdDdB6a900fa2b585dd299e03d12FA4293BC",
    ...changes,
  });
  t.equal(statusIn(channel({}), nowMs), "Open");
  t.equal(statusIn(channel({ status: "closed", reason: "owner" }), nowMs), "Closed");
  const closing = channel({ status: "closing", reason: "owner" });
  t.equal(statusIn(closing, nowMs), "Closing: the seller was asked");
  t.match(
    statusIn({ ...closing, returnsAt: "2026-05-01T12:20:00Z" }, nowMs),
    /^Closing: withdrawal until \d\d:20 [A-Z]\S+$/,
  );
  t.match(
    statusIn({ ...closing, returnsAt: "2026-05-09T12:20:00Z" }, nowMs),
    /^Closing: withdrawal until \d+ May 2026, \d\d:20 [A-Z]\S+$/,
    "a day that is not today is named",
  );
  t.equal(
    statusIn({ ...closing, reason: "seller_broke_rules" }, nowMs),
    "Closing: the seller broke the rules",
  );
  t.equal(sellerOf(channel({ url: "https://weather.example/today" })), "weather.example");
  t.equal(sellerOf(channel({ url: "nonsense" })), "0x3C44…93BC");
  t.match(whatClosingDoes(5_400), "at most 90 minutes");

  const through = { id: "0x1", ceiling: "0.002", charged: "0.001" };
  const payment = (changes: Partial<Payment>): Payment =>
    ({ status: "settled", channel: through, failure: null, x402: null, ...changes }) as Payment;
  t.match(statusOf(payment({ kind: "deposit" })).meaning, "does not count");
  t.match(statusOf(payment({ kind: "x402" })).meaning, "Paid from the payment channel");
  t.match(statusOf(payment({ kind: "x402", channel: null })).meaning, "On chain");
  const uncharged = { code: "not_charged", detail: null };
  t.equal(statusOf(payment({ kind: "x402", failure: uncharged })).label, "Not charged");
  for (const [code, label] of [
    ["charge_not_known", "Charge not known"],
    ["seller_refused", "Refused by the seller"],
  ] as const)
    t.equal(statusOf(payment({ kind: "x402", failure: { code, detail: null } })).label, label);
  const back = payment({
    kind: "incoming",
    sender: "0x4020074e9dF2ce1deE5A9C1b5c3f541D02a10003",
  });
  t.equal(
    titleOf(back, () => undefined),
    "Back from a payment channel",
  );
});

t.test("what counts as an outage, and what as an answer", (t) => {
  const cases: [status: number, code: string, isUnreachable: boolean, isOutage: boolean][] = [
    [0, "unreachable", true, true],
    [502, "http_502", true, true],
    [503, "http_503", true, true],
    [504, "http_504", true, true],
    [503, "chain_unavailable", false, true],
    [502, "settlement_failed", false, false],
    [504, "payment_status_unknown", false, false],
    [500, "http_500", false, false],
    [409, "order_used", false, false],
  ];
  for (const [status, code, isUnreachable, isOutage] of cases)
    t.match(new ApiError({ status, code, detail: "" }), { isUnreachable, isOutage }, code);
  t.end();
});

t.test("what is read has its unit and its zone", async (t) => {
  for (const [field, value, shown] of [
    ["dailyLimit", "2", "2.00 USDC"],
    ["weeklyLimit", null, "no limit"],
    ["channelDelay", 86_400, "1 day"],
    ["fetch", "any", "any site"],
    ["expiresAt", null, "never"],
    ["status", "paused", "paused"],
    ["label", "", "none"],
  ] as const)
    t.equal(describeField(field, value), shown, field);
  t.match(formatDateTime("2026-11-27T19:37:44Z"), /^2[78] Nov 2026, \d\d:\d\d:44 [A-Z]{2,4}/);
});

t.test(
  "an approval's limit has a unit, and an allowed request that expired was not ignored",
  async (t) => {
    t.equal(
      describeLimit({ window: "payment", limit: "1", spent: "0" }),
      "1.00 USDC per payment",
      "a limit per payment has nothing used",
    );
    t.equal(
      describeLimit({ window: "24h", limit: "3", spent: "2.5" }),
      "3.00 USDC in 24 hours, 2.50 USDC used",
    );
    t.equal(
      describeLimit({ window: "1h", limit: "30", spent: "30" }),
      "30 payments in an hour, 30 made",
    );
    const expired = { status: "expired", decidedAt: null } as Approval;
    t.match(meaningOf(expired), /not decided in time/);
    const allowed = meaningOf({ ...expired, decidedAt: "2026-01-01T00:00:00.000Z" });
    t.match(allowed, /was allowed, but the agent did not pay/);
    t.notMatch(allowed, /not decided/);
  },
);
