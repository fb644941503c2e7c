// Goal: any value in any place of a body for payment channels gets a refusal of the protocol with status 200, nothing is
// sent for it, and a body as long as may be costs no more than a few reads.
import t from "tap";
import { REASONS } from "../../server/schemes/scheme.ts";
import { testApp } from "../helpers/app.ts";
import { isFullTier } from "../helpers/tier.ts";
import { change, type Bent } from "./bent-payments.ts";
import {
  account,
  channelOf,
  claimBody,
  depositBody,
  permit2Body,
  refundBody,
  settleBody,
  voucherBody,
} from "./channel-bodies.ts";
import { post } from "./payments.ts";

const nested = (depth: number): unknown => (depth === 0 ? "x" : [nested(depth - 1)]);
const HOSTILE: readonly unknown[] = [
  null,
  true,
  0,
  -1,
  1.5,
  1e308,
  "",
  "\0",
  "\ud800",
  "__proto__",
  "toString",
  "9".repeat(5_000),
  "0x",
  `0x${"f".repeat(66)}`,
  `0x${"ab".repeat(30_000)}`,
  "x".repeat(60_000),
  [],
  [[], null, {}],
  {},
  { toString: 1, valueOf: 1, toJSON: 1, length: 1e9 },
  { constructor: 1, hasOwnProperty: 1 },
  nested(20),
  Array.from({ length: 10_000 }, () => ({})),
];

/** Every place of a body, its lists' first elements too. */
const pathsOf = (value: unknown, at = ""): string[] =>
  typeof value !== "object" || value === null
    ? [at]
    : [
        ...(at === "" ? [] : [at]),
        ...Object.entries(value).flatMap(([name, member]) =>
          pathsOf(member, at === "" ? name : `${at}.${name}`),
        ),
      ];

const EVERY = isFullTier ? 3 : 61;

t.test("garbage for channels", async (t) => {
  const { app, chain, logs } = await testApp(t, { env: { MIN_PAYMENT: "0" } });
  const key = account();
  const before = logs.length;
  // Nobody has any money, so that nothing can succeed whatever is left out.
  const channel = channelOf(chain, { voucherKey: key });
  const row = { channel, ceiling: 3_000n, total: 2_500n };
  const bodies: [string, Bent["body"]][] = [
    ["deposit", await depositBody(channel)],
    ["deposit over Permit2", await permit2Body(channel)],
    ["voucher", await voucherBody(channel, 1_000n)],
    ["refund request", await voucherBody(channel, 1_000n, { type: "refund" })],
    ["claim", await claimBody([row, row])],
    ["settle", settleBody(channel)],
    ["refund", await refundBody(channel, { amount: 5n, rows: [row] })],
  ];
  const bent = bodies.flatMap(([name, body]) =>
    pathsOf(body)
      .filter((path) => path.includes("."))
      .flatMap((path) =>
        [...HOSTILE.keys()].map((index) => ({
          name: `${name}, ${path} = ${index}`,
          body,
          path,
          index,
        })),
      ),
  );
  t.ok(bent.length > 3_000, `${bent.length} bodies`);
  for (const { name, body, path, index } of bent.filter((_, at) => at % EVERY === 0)) {
    const sent = change(body, path, HOSTILE[index]);
    const verified = await post(app, "verify", sent);
    const settled = await post(app, "settle", sent);
    t.equal(verified["isValid"], false, name);
    t.equal(settled["success"], false, name);
    t.equal(settled["transaction"], "", name);
    for (const reason of [verified["invalidReason"], settled["errorReason"]].map(String))
      t.ok(reason in REASONS && !reason.startsWith("unexpected"), `${name}: ${reason}`);
  }
  const faults = logs.slice(before).filter((line) => /"level":[456]0/.test(line));
  t.same(faults, [], "no fault of ours");

  // As many rows as fit into a body.
  const claimed = await claimBody([row]);
  const { claims } = claimed.paymentPayload["payload"] as { claims: unknown[] };
  const rows = Array.from({ length: 300 }, () => claims[0]);
  t.match(await post(app, "settle", change(claimed, "paymentPayload.payload.claims", rows)), {
    success: false,
    errorReason: "invalid_payload",
    errorMessage: /at most 100/,
  });
});
