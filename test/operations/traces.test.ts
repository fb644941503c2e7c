// Goal: with tracing configured, one trace leads from a request to the block with its payment, whichever
// process settles it; it contains no confidential data; and a collector that is down or hangs does not affect
// payments.
// Tier: full (starts whole deployments).
// Own process (looks at the modules that it loaded).
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { createRequire } from "node:module";
import { setTimeout as sleep } from "node:timers/promises";
import Fastify from "fastify";
import t, { type Test } from "tap";
import { freePort } from "../../server/local/free-port.ts";
import { testApp } from "../helpers/app.ts";
import { testChain } from "../helpers/chain.ts";
import { createAgent, signIn } from "../helpers/owner.ts";
import { testDatabase } from "../helpers/postgres.ts";
import { until } from "../helpers/until.ts";
import { post, startReplica } from "../spending/replica.helper.ts";
import { market, PAYEE } from "../x402-client/market.ts";

/** A stop may take this long. */
const HANGS_MS = 30_000;

interface ExportedSpan {
  traceId: string;
  spanId: string;
  parentSpanId?: string;
  name: string;
  pid: number;
  startTimeUnixNano: string;
  endTimeUnixNano: string;
  attributes: Record<string, string | number>;
  links: { traceId: string; spanId: string }[];
}

type Value = { stringValue?: string; intValue?: number | string; doubleValue?: number };
interface Sent {
  resourceSpans: {
    resource: { attributes: { key: string; value: Value }[] };
    scopeSpans: {
      spans: (Omit<ExportedSpan, "attributes" | "pid" | "links"> & {
        attributes: { key: string; value: Value }[];
        links?: ExportedSpan["links"];
      })[];
    }[];
  }[];
}

const plain = (attributes: { key: string; value: Value }[]) =>
  Object.fromEntries(
    attributes.map(({ key, value }) => [
      key,
      value.stringValue ?? Number(value.intValue ?? value.doubleValue),
    ]),
  ) as Record<string, string | number>;

/** A receiver of OTLP over HTTP, like a collector. */
async function collector(t: Pick<Test, "teardown">, options: { hangs?: boolean } = {}) {
  const app = Fastify({ bodyLimit: 16 * 1024 * 1024, forceCloseConnections: true });
  const spans: ExportedSpan[] = [];
  let text = "";
  let requests = 0;
  app.post<{ Body: Sent }>("/v1/traces", async (request, reply) => {
    requests += 1;
    if (options.hangs) return reply.hijack();
    text += JSON.stringify(request.body);
    for (const { resource, scopeSpans } of request.body.resourceSpans)
      for (const { spans: sent } of scopeSpans)
        for (const { attributes, links = [], ...span } of sent)
          spans.push({
            ...span,
            links,
            attributes: plain(attributes),
            pid: Number(plain(resource.attributes)["process.pid"]),
          });
    return { partialSuccess: {} };
  });
  await app.listen({ host: "127.0.0.1", port: 0 });
  t.teardown(() => app.close());
  const { port } = app.server.address() as { port: number };
  return {
    url: `http://127.0.0.1:${port}`,
    spans,
    text: () => text,
    requests: () => requests,
    of: (traceId: string) => spans.filter((span) => span.traceId === traceId),
  };
}

const usdc = 1_000_000n;
const newTrace = () => {
  const traceId = randomBytes(16).toString("hex");
  const parent = randomBytes(8).toString("hex");
  return { traceId, parent, header: `00-${traceId}-${parent}-01` };
};

// Read by the SDK itself.
process.env["OTEL_BSP_SCHEDULE_DELAY"] = "100";
process.env["OTEL_EXPORTER_OTLP_TIMEOUT"] = "1000";
const collected = await collector(t);
const OTEL = {
  OTEL_EXPORTER_OTLP_ENDPOINT: collected.url,
  OTEL_BSP_SCHEDULE_DELAY: "100",
};
const database = await testDatabase(t);
const chain = await testChain(t, { blockTimeSeconds: 1 });
const replica = await startReplica(t, { database, chain }, OTEL);
const lane = async (): Promise<string> => {
  const { rows } = await database.pool.query<{ pid: string }>(
    `SELECT split_part(lease_owner, ':', 2) AS pid FROM relayer_lanes
      WHERE lease_until > clock_timestamp() AND address <> '0x0000000000000000000000000000000000000000'`,
  );
  return rows[0]?.pid ?? "";
};
await until(async () => (await lane()) === String(replica.child.pid), 30_000);
/**
 * Packages are CommonJS, so those that were loaded are in this cache. The bare API package comes with the
 * metrics library.
 */
const loadedOfIt = (): string[] =>
  Object.keys(createRequire(import.meta.url).cache).filter((path) =>
    /@opentelemetry\/(?!api\/)/.test(path),
  );
const untraced = await testApp(t, { database, chain });
const loadedWithout = loadedOfIt();
await untraced.app.close();
const made = await market(t, {
  database,
  chain,
  env: { ...OTEL, SETTLE_WAIT_MS: "20000" },
  listen: true,
});
const { agent } = made;

/** Every span is a child of another span of its trace, up to the caller's span. */
function isConnected(t: Test, spans: readonly ExportedSpan[], root: string): void {
  const ids = new Set([root, ...spans.map(({ spanId }) => spanId)]);
  t.same(
    spans.filter(({ parentSpanId = "none" }) => !ids.has(parentSpanId)).map(({ name }) => name),
    [],
    "one connected trace",
  );
}

const spend = (trace: ReturnType<typeof newTrace>, memo: string) =>
  post(
    `${made.baseUrl}/api/agents/spend`,
    { ...agent.headers, traceparent: trace.header, tracestate: "vendor=theirs" },
    { recipient: PAYEE, amount: "0.01", memo },
  );

const named = (spans: readonly ExportedSpan[], name: string) =>
  spans.find((span) => span.name === name);

t.test("without configuration, no tracing package is loaded", async (t) => {
  t.same(loadedWithout, []);
  t.ok(loadedOfIt().length > 20, `${loadedOfIt().length} modules, where it is`);
});

t.test("a spend is one trace with its block, settled by another process", async (t) => {
  const trace = newTrace();
  const memo = `memo-${randomBytes(6).toString("hex")}`;
  const answer = await spend(trace, memo);
  t.equal(answer.status, 200, JSON.stringify(answer.body));
  await until(
    () =>
      Promise.resolve(
        named(collected.of(trace.traceId), "settlement.transaction") !== undefined &&
          named(collected.of(trace.traceId), "POST /api/agents/spend") !== undefined,
      ),
    20_000,
  );
  const spans = collected.of(trace.traceId);
  isConnected(t, spans, trace.parent);
  const request = named(spans, "POST /api/agents/spend");
  t.match(request, {
    parentSpanId: trace.parent,
    pid: process.pid,
    attributes: { "http.response.status_code": 200, "http.route": "/api/agents/spend" },
  });
  for (const name of [
    "authenticate",
    "guardrails.reserve",
    "custody.sign",
    "settlement.persist",
    "settlement.wait",
  ])
    t.equal(named(spans, name)?.pid, process.pid, `${name}, where it was requested`);
  t.match(named(spans, "guardrails.reserve")?.attributes, {
    "purser.decision": "reserved",
    "purser.payment_id": answer.body["paymentId"],
  });
  for (const name of [
    "settlement.queue",
    "settlement.simulate",
    "settlement.sign",
    "settlement.store",
    "settlement.broadcast",
    "settlement.block",
    "settlement.outcome",
  ])
    t.equal(named(spans, name)?.pid, replica.child.pid, `${name}, where the lane is held`);
  const receipt = await chain.publicClient.getTransactionReceipt({
    hash: answer.body["txHash"] as `0x${string}`,
  });
  t.match(named(spans, "settlement.transaction"), {
    pid: replica.child.pid,
    attributes: {
      "purser.transaction": answer.body["txHash"],
      "purser.block": Number(receipt.blockNumber),
      "purser.outcome": "settled",
      "purser.payments": 1,
    },
  });
  t.same(
    spans.filter(({ startTimeUnixNano: from, endTimeUnixNano: to }) => BigInt(from) > BigInt(to)),
    [],
    "no span ends before it starts",
  );
  t.notOk(collected.text().includes(memo), "no text from the caller");
  t.notOk(collected.text().includes("vendor=theirs"));
});

t.test("payments of one batch are linked with it, each in its own trace", async (t) => {
  await until(async () => {
    const traces = Array.from({ length: 6 }, newTrace);
    await Promise.all(
      traces.map((trace, index) => spend(trace, `batch ${index} ${trace.traceId}`)),
    );
    const all = () =>
      traces.flatMap(({ traceId }) => named(collected.of(traceId), "settlement.transaction") ?? []);
    await until(() => Promise.resolve(all().length === traces.length), 10_000);
    const together = all().filter(({ attributes }) => Number(attributes["purser.payments"]) > 1);
    // Two of six payments in one batch are likely, but not certain.
    if (together.length < 2) return false;
    for (const span of together) {
      const [link] = span.links;
      const batch = collected.spans.find(({ spanId }) => spanId === link?.spanId);
      t.match(batch, { name: "settlement.transaction", pid: replica.child.pid });
      t.not(batch?.traceId, span.traceId, "the batch has its own trace");
      t.ok(
        batch?.links.some(({ traceId }) => traceId === span.traceId),
        "and links back",
      );
      t.equal(batch?.attributes["purser.transaction"], span.attributes["purser.transaction"]);
      t.match(span.attributes, { "purser.outcome": "settled" });
    }
    return true;
  }, 60_000);
});

t.test("an x402-fetch is one trace with its block; the seller gets none of it", async (t) => {
  const trace = newTrace();
  const secret = `q-${randomBytes(6).toString("hex")}`;
  const answer = await post(
    `${made.baseUrl}/api/agents/x402-fetch`,
    { ...agent.headers, traceparent: trace.header },
    { url: `${made.seller.url}&secret=${secret}` },
  );
  t.equal(answer.status, 200, JSON.stringify(answer.body));
  const done = () => {
    const spans = collected.of(trace.traceId);
    return (
      named(spans, "settlement.proven") !== undefined &&
      named(spans, "POST /api/agents/x402-fetch") !== undefined
    );
  };
  await until(() => Promise.resolve(done()), 20_000);
  const spans = collected.of(trace.traceId);
  isConnected(t, spans, trace.parent);
  for (const name of [
    "authenticate",
    "x402.ask",
    "guardrails.reserve",
    "custody.sign",
    "settlement.persist",
    "settlement.wait",
  ])
    t.ok(named(spans, name), name);
  t.equal(
    spans.filter(({ name }) => name === "x402.ask").length,
    2,
    "one request without and one with payment",
  );
  t.match(named(spans, "settlement.proven")?.attributes, {
    "purser.outcome": "settled",
    "purser.transaction": answer.body["txHash"],
  });
  t.notOk(collected.text().includes(secret), "no URL");
  t.notOk(collected.text().includes(made.seller.origin), "no seller's URL");
  const headers = made.seller.unpaidRequests.flatMap(({ headers: sent }) => Object.keys(sent));
  t.ok(made.seller.unpaidRequests.length > 0);
  t.same(
    headers.filter((name) => /^(traceparent|tracestate|baggage|b3|x-b3-.*)$/.test(name)),
    [],
    "no trace header leaves the service",
  );
});

t.test("a seller that settles here: one trace, linked with the seller's own", async (t) => {
  made.seller.script = {
    onProof: async ({ response, proof }) => {
      const { status, body } = await post(
        `${made.baseUrl}/api/x402/settle`,
        { "content-type": "application/json" },
        { x402Version: 2, paymentPayload: proof, paymentRequirements: proof.accepted },
      );
      t.equal(status, 200, JSON.stringify(body));
      const transaction = String(body["transaction"]);
      response.writeHead(200, made.seller.receipt({ transaction })).end('"sold"');
    },
  };
  t.teardown(() => void (made.seller.script = {}));
  const trace = newTrace();
  const answer = await post(
    `${made.baseUrl}/api/agents/x402-fetch`,
    { ...agent.headers, traceparent: trace.header },
    { url: `${made.seller.url}&settled=here` },
  );
  t.equal(answer.status, 200, JSON.stringify(answer.body));
  const settling = () =>
    collected.spans.find(
      ({ name, links }) =>
        name === "POST /api/x402/settle" && links.some(({ traceId }) => traceId === trace.traceId),
    );
  const ended = () => named(collected.of(trace.traceId), "settlement.transaction");
  await until(() => settling() !== undefined && ended() !== undefined, 20_000);
  t.not(settling()?.traceId, trace.traceId, "the seller received no trace header from us");
  t.match(ended()?.attributes, {
    "purser.outcome": "settled",
    "purser.transaction": answer.body["txHash"],
  });
});

t.test("a refusal ends its trace with the refusal's code", async (t) => {
  const trace = newTrace();
  const answer = await post(
    `${made.baseUrl}/api/agents/spend`,
    { ...agent.headers, traceparent: trace.header },
    { recipient: "0x000000000000000000000000000000000000dEaD", amount: "0.01" },
  );
  t.equal(answer.status, 403);
  await until(
    () =>
      Promise.resolve(named(collected.of(trace.traceId), "POST /api/agents/spend") !== undefined),
    10_000,
  );
  t.match(named(collected.of(trace.traceId), "guardrails.reserve")?.attributes, {
    "purser.decision": "denied",
    "purser.refusal": answer.body["code"],
  });
});

t.test("no key and no signature was exported", async (t) => {
  const { rows } = await database.pool.query<{ signature: Buffer }>(
    "SELECT signature FROM settlements",
  );
  t.ok(rows.length > 0);
  const text = collected.text().toLowerCase();
  t.same(
    rows.filter(({ signature }) => text.includes(signature.toString("hex"))),
    [],
  );
  t.notOk(collected.text().includes(agent.apiKey));
});

t.test("the next process continues the traces of a process that was killed", async (t) => {
  // Stored and sent, and then the process ends before the inclusion is seen.
  await chain.testClient.setIntervalMining({ interval: 0 });
  const trace = newTrace();
  const answer = spend(trace, "killed");
  await until(async () => {
    const { rows } = await database.pool.query(
      "SELECT 1 FROM relayer_transactions WHERE status = 'pending'",
    );
    return rows.length > 0;
  }, 15_000);
  replica.child.kill("SIGKILL");
  await once(replica.child, "exit");
  await chain.testClient.setIntervalMining({ interval: 1 });
  t.match(await answer, { status: 200 });
  await until(
    () =>
      Promise.resolve(named(collected.of(trace.traceId), "settlement.transaction") !== undefined),
    20_000,
  );
  t.match(named(collected.of(trace.traceId), "settlement.transaction"), {
    pid: process.pid,
    attributes: { "purser.outcome": "settled" },
  });
  t.ok(named(collected.of(trace.traceId), "settlement.block"));
});

for (const how of ["down", "hanging"] as const)
  t.test(`a collector that is ${how} does not affect payments`, async (t) => {
    // A process has one exporter, so the previous app is closed first.
    await made.app.close();
    const hanging = await collector(t, { hangs: true });
    const endpoint = how === "hanging" ? hanging.url : `http://127.0.0.1:${await freePort()}`;
    const inTime = (work: Promise<unknown>): Promise<boolean> =>
      Promise.race([work.then(() => true), sleep(HANGS_MS, false, { ref: false })]);
    // Settings of the SDK: it exports while the payments are made, and would wait for a response longer than
    // this test.
    const sdk = { OTEL_BSP_SCHEDULE_DELAY: "10", OTEL_EXPORTER_OTLP_TIMEOUT: "600000" };
    Object.assign(process.env, sdk);
    t.teardown(() => {
      for (const name of Object.keys(sdk)) delete process.env[name];
    });
    const spendsAndStops = async (env: Record<string, string>): Promise<void> => {
      const world = await testApp(t, { env });
      const owner = await signIn(world);
      const payer = await createAgent(world, owner, { allowlist: [PAYEE] });
      await world.chain.mint(payer.walletAddress, usdc);
      for (let nth = 0; nth < 3; nth += 1) {
        const paying = world.app
          .inject({
            method: "POST",
            url: "/api/agents/spend",
            headers: payer.headers,
            payload: JSON.stringify({ recipient: PAYEE, amount: "0.01", memo: `${nth}` }),
          })
          .then((answer) => void t.equal(answer.statusCode, 200, answer.body));
        t.ok(await inTime(paying), "payments do not wait for the collector");
      }
      t.ok(await inTime(world.app.close()), "the service stops without it");
    };
    await spendsAndStops({ OTEL_EXPORTER_OTLP_ENDPOINT: endpoint });
    if (how === "hanging") t.ok(hanging.requests() > 0, "the collector received requests");
  });
