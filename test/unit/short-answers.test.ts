// Goal: the short answer of a paid fetch keeps everything that an agent must know, and only that.
import t from "tap";
import { ExactJson } from "../../server/core/exact-json.ts";
import { withDetail } from "../../server/plugins/x402-client/detail.ts";

const FULL = {
  success: true,
  paid: true,
  amountPaid: "0.01",
  txHash: "0xaa",
  paymentId: "p1",
  status: 200,
  data: { a: 1 },
  delivered: true,
  remaining: "9",
  contentType: "application/json",
  headers: { "content-type": "application/json", location: "/b", "retry-after": "3", etag: "x" },
  omittedHeaders: [],
  truncated: false,
  receipt: null,
};
const SHORT = {
  success: true,
  paid: true,
  amountPaid: "0.01",
  txHash: "0xaa",
  paymentId: "p1",
  status: 200,
  data: { a: 1 },
  delivered: true,
  remaining: "9",
  evidence: null,
};
const answerOf = (body: Record<string, unknown>, statusCode = 200) => ({
  statusCode,
  replayed: false,
  body,
});
const shortOf = (more: Record<string, unknown>) => withDetail(answerOf({ ...FULL, ...more })).body;

const RULE = {
  rule: "daily_limit",
  passed: false,
  limit: "1",
  availableAt: "2030-01-01T00:00:00Z",
};
const DENIED = {
  allowed: false,
  code: "daily_limit_exceeded",
  detail: "Too much today",
  policy: "daily",
  availableAt: "2030-01-01T00:00:00Z",
  choice: { considered: 3 },
  rules: [{ rule: "allowlist", passed: true, detail: "is listed" }, RULE],
};

const CASES: [what: string, given: Record<string, unknown>, also: Record<string, unknown>][] = [
  ["an ordinary answer", {}, {}],
  [
    "a redirect has its target",
    { status: 302 },
    { headers: { location: "/b", "retry-after": "3" } },
  ],
  [
    "a refusal says when to try again",
    { status: 503, headers: { "retry-after": "3", etag: "x" } },
    { headers: { "retry-after": "3" } },
  ],
  ["304 is no redirect", { status: 304 }, {}],
  ["a refusal without such headers", { status: 404, headers: { etag: "x" } }, {}],
  ["headers that were left out", { omittedHeaders: ["cookie"] }, { omittedHeaders: ["cookie"] }],
  ["content that is cut off", { truncated: true }, { truncated: true }],
  ["a note", { note: "late" }, { note: "late" }],
  [
    "a budget that returns later",
    { budgetReturnsAt: "2030-01-01T00:00:00Z" },
    { budgetReturnsAt: "2030-01-01T00:00:00Z" },
  ],
  ["what was paid for before", { cached: true }, { cached: true }],
  ["a sign-in instead of a payment", { signedIn: true }, { signedIn: true }],
  [
    "bytes have their type",
    { dataBase64: "AA==", contentType: "image/png" },
    { dataBase64: "AA==", contentType: "image/png" },
  ],
  [
    "evidence that was checked",
    { receipt: { evidence: { verified: true } } },
    { evidence: "verified" },
  ],
  [
    "evidence that is wrong",
    { receipt: { evidence: { verified: false } } },
    { evidence: "not verified" },
  ],
  [
    "members of a stored answer are text",
    { status: new ExactJson("503"), headers: new ExactJson('{"retry-after":"3"}') },
    { status: new ExactJson("503"), headers: { "retry-after": "3" } },
  ],
  [
    "a denied verdict has its policy, its time, and the reason",
    { verdict: DENIED },
    {
      verdict: {
        allowed: false,
        code: "daily_limit_exceeded",
        detail: "Too much today",
        policy: "daily",
        availableAt: "2030-01-01T00:00:00Z",
        rules: [{ rule: "allowlist", passed: true }, RULE],
      },
    },
  ],
];

for (const [what, given, also] of CASES)
  t.test(what, async (t) => {
    const changed = Object.fromEntries(Object.entries(given).filter(([name]) => name in SHORT));
    t.same(shortOf(given), { ...SHORT, ...changed, ...also });
  });

t.test("a quote has a price and no content", async (t) => {
  const price = { dryRun: true, price: "0.01", requirement: { scheme: "exact" } };
  const { data: _data, ...rest } = SHORT;
  const short = shortOf({ ...price, data: null });
  t.same(short, { ...rest, ...price });
  t.notOk("data" in short);
});

t.test("a full answer, and one that is not of a fetch, keep every member", async (t) => {
  t.same(withDetail(answerOf(FULL), "full").body, { ...FULL, evidence: null });
  const { paid: _paid, ...other } = FULL;
  t.same(withDetail(answerOf(other)).body, other);
  t.same(withDetail(answerOf(FULL, 502)).body, FULL);
});
