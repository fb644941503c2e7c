// Goal: an agent pays for few tokens: answers, tools and the command line are short, and everything else can be read.
import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { getEncoding } from "js-tiktoken";
import t from "tap";
import { callApi } from "../helpers/call.ts";
import { toolResult, toolText } from "../helpers/tool-result.ts";
import { agentWorld } from "./world.ts";

const encoding = getEncoding("cl100k_base");
const tokens = (value: unknown): number =>
  encoding.encode(typeof value === "string" ? value : JSON.stringify(value)).length;
const most = (name: string, count: number, limit: number): void => {
  t.comment(`${name}: ${count} tokens, at most ${limit}`);
  t.ok(count <= limit, `${name}: ${count} tokens, at most ${limit}`);
};

const world = await agentWorld(t, { dailyLimit: "3", signs: true });
const { app, agent, friend, demoUrl, baseUrl } = world;

const read = async (url: string) => {
  const answer = await callApi(app, agent, "GET", url);
  t.equal(answer.statusCode, 200, url);
  return answer;
};
const post = (path: string, body: unknown, key?: string) =>
  app.inject({
    method: "POST",
    url: `/api/agents/${path}`,
    headers: { ...agent.headers, ...(key === undefined ? {} : { "idempotency-key": key }) },
    payload: JSON.stringify(body),
  });
type Members = Record<string, unknown>;
const paid = async (): Promise<number> => {
  const { rows } = await world.database.pool.query<{ count: number }>(
    "SELECT count(*)::int AS count FROM payments WHERE agent_id = $1 AND status = 'settled'",
    [agent.id],
  );
  return rows[0]?.count ?? 0;
};
const demo = { url: demoUrl, maxAmount: "0.01" };
/** The tokens of an answer besides its content. */
const about = (answer: Members): number => tokens({ ...answer, data: undefined });

t.test("x402-fetch: what an agent needs by default, everything on request", async (t) => {
  const first = await post("x402-fetch", demo, "one");
  const short = first.json<Members>();
  t.same(Object.keys(short), [
    "success",
    "paid",
    "amountPaid",
    "txHash",
    "paymentId",
    "status",
    "data",
    "delivered",
    "remaining",
    "evidence",
  ]);
  t.match(short, { paid: true, amountPaid: "0.001", status: 200, evidence: "verified" });
  most("a paid answer", tokens(short), tokens(short["data"]) + 130);

  const full = await post("x402-fetch", { ...demo, detail: "full" }, "one");
  t.equal(full.headers["idempotent-replayed"], "true", "another detail is the same call");
  t.equal(await paid(), 1, "and pays nothing more");
  const whole = full.json<Members>();
  t.same(whole, { ...whole, ...short }, "the full answer contains the short one");
  t.match(whole, {
    source: demoUrl,
    network: "eip155:5042002",
    payTo: /^0x/,
    contentType: /json/,
    headers: { "content-type": /json/ },
    omittedHeaders: [],
    receipt: { evidence: { verified: true } },
    thirdParty: { untrusted: true, paymentResponse: {} },
  });
  const again = await post("x402-fetch", demo, "one");
  t.equal(again.body, first.body, "a replay has the same bytes");

  const { paymentId } = short as { paymentId: string };
  const payment = (await read(`/api/agents/me/payments/${paymentId}`)).json<Members>();
  t.match(payment, {
    recipient: whole["payTo"],
    network: whole["network"],
    x402: { url: demoUrl, upstreamStatus: 200, delivered: true, evidence: { verified: true } },
  });
  const stored = await read(`/api/agents/me/payments/${paymentId}/answer`);
  t.equal(stored.body, full.body, "the whole answer by the payment's id");
  const foreign = await callApi(app, agent, "GET", "/api/agents/me/payments/pay_x/answer");
  t.match([foreign.statusCode, foreign.json()], [404, { code: "not_found" }]);
  const wrong = await post("x402-fetch", { ...demo, detail: "most" });
  t.match([wrong.statusCode, wrong.json()], [422, { errors: [{ path: "body.detail" }] }]);
});

t.test("quotes, balances, lists and refusals are short too", async (t) => {
  const quote = async (detail?: string) =>
    (await post("x402-fetch", { ...demo, dryRun: true, detail })).json<Members>();
  const short = await quote();
  t.match(short, {
    price: "0.001",
    requirement: { scheme: "exact", payTo: /^0x/, amount: "1000" },
    verdict: { allowed: true, rules: [{ rule: String, passed: true }] },
  });
  most("a quote", tokens(short), 300);
  const whole = await quote("full");
  t.match(whole, { verdict: { choice: Array, rules: [{ detail: String }] }, offers: [{}] });
  t.ok(tokens(whole) > tokens(short));

  const me = (await read("/api/agents/me")).json<Members>();
  const all = (await read("/api/agents/me?detail=full")).json<Members>();
  most("me", tokens(me), 340);
  t.match(all, { ...me, walletAddress: agent.walletAddress, balances: [{}], key: { id: String } });

  await post("spend", { recipient: friend, amount: "1", memo: "rent" });
  const refused = await post("spend", { recipient: friend, amount: "5" });
  t.match(refused.json(), { code: "daily_limit_exceeded", policy: {}, availableAt: null });
  const list = (await read("/api/agents/me/payments")).json<{ items: Members[] }>();
  t.equal(list.items.length, 3);
  t.match(list.items, [
    { status: "blocked", denial: { code: "daily_limit_exceeded", policy: {}, suggestion: String } },
    { status: "settled", memo: "rent", txHash: /^0x/ },
    { status: "settled", x402: { url: demoUrl, delivered: true } },
  ]);
  most("three payments", tokens(list), 900);
  const long = (await read("/api/agents/me/payments?detail=full")).json<{ items: Members[] }>();
  t.match(long.items[2], { trace: Array, apiKey: {}, x402: { evidence: { verified: true } } });

  const found = (await read("/api/listings?detail=short")).json<{ items: Members[] }>();
  t.same(Object.keys(found.items[0] ?? {}), [
    "id",
    "url",
    "method",
    "network",
    "price",
    "thirdParty",
    "uses",
    "payers",
  ]);
  t.match((await read("/api/listings")).json(), { items: [{ payTo: /^0x/, host: String }] });
});

t.test("over MCP: tools, answers and refusals", async (t) => {
  const client = new Client({ name: "test", version: "1" });
  await client.connect(
    new StreamableHTTPClientTransport(new URL(`${baseUrl}/mcp`), {
      requestInit: { headers: { authorization: `Bearer ${agent.apiKey}` } },
    }),
  );
  t.teardown(() => client.close());
  const { tools } = await client.listTools();
  most("tools/list", tokens(tools), 3_000);
  const definitions = (await app.inject("/api/tools/openai")).body;
  most("OpenAI's definitions", tokens(definitions), 3_000);

  const call = async (name: string, args: Members) => {
    const result = await client.callTool({ name, arguments: args });
    t.notOk("structuredContent" in result, "the answer is there once");
    const { own, thirdParty = "" } = toolText(result);
    return { tokens: tokens(own), their: thirdParty, value: toolResult(result) };
  };
  const fetched = await call("x402_fetch", demo);
  t.match(fetched.value, { paid: true, evidence: "verified", data: { height: Number } });
  most("x402_fetch", fetched.tokens + tokens(fetched.their), tokens(fetched.their) + 170);
  t.same(Object.keys(JSON.parse(fetched.their) as object), ["data"], "the content alone");
  const before = await paid();
  const { idempotencyKey } = fetched.value;
  const whole = await call("x402_fetch", { ...demo, idempotencyKey, detail: "full" });
  t.match(whole.value, { receipt: { evidence: {} }, thirdParty: { paymentResponse: {} } });
  t.equal(await paid(), before, "paid once");

  const refused = await call("send_usdc", { recipient: friend, amount: "5" });
  t.match(refused.value, {
    code: "daily_limit_exceeded",
    detail: String,
    suggestion: String,
    policy: { rule: "daily_limit" },
    availableAt: null,
    paymentId: String,
  });
  for (const name of ["type", "title", "error", "success"]) t.notOk(name in refused.value, name);
  most("a refusal", refused.tokens, 240);
  for (const [name, args, limit] of [
    ["wallet_status", {}, 340],
    ["x402_quote", demo, 300],
    ["list_payments", { limit: 3 }, 900],
    ["search_services", {}, 200],
  ] as const) {
    const answer = await call(name, args);
    most(name, answer.tokens + tokens(answer.their), limit);
  }
});

t.test("on the command line", async (t) => {
  const CLI = fileURLToPath(new URL("../../packages/purser/bin/purser.mjs", import.meta.url));
  const purser = (...args: string[]) =>
    promisify(execFile)(process.execPath, [CLI, ...args], {
      env: {
        PATH: process.env["PATH"],
        PURSER_URL: baseUrl,
        AGENT_API_KEY: agent.apiKey,
        XDG_CONFIG_HOME: t.testdir({}),
      },
    });
  const short = await purser("fetch", demoUrl, "--max", "0.01");
  t.equal(short.stdout.trim().split("\n").length, 1, "one line for a program");
  most("purser fetch", about(JSON.parse(short.stdout) as Members), 130);
  const full = await purser("fetch", demoUrl, "--max", "0.01", "--detail", "full");
  t.match(JSON.parse(full.stdout), { receipt: { evidence: { verified: true } } });
  const raw = await purser("fetch", demoUrl, "--max", "0.01", "--raw");
  t.match(JSON.parse(raw.stdout), { height: Number });
  t.notMatch(raw.stdout, /txHash/);
  t.match(raw.stderr, /^Paid 0\.001 USDC: payment pay_\w+, transaction 0x/);
});
