// Goal: where traces are configured, one trace leads from a request to the block that holds its payment, whichever process
// settles it; it tells nothing it should not; and a collector that is down or hangs costs payments nothing.
// Tier: full (starts whole deployments).
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

interface Told {
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
      spans: (Omit<Told, "attributes" | "pid" | "links"> & {
        attributes: { key: string; value: Value }[];
        links?: Told["links"];
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

/** A receiver of OTLP over HTTP, as collectors are. */
async function collector(t: Pick<Test, "teardown">, options: { hangs?: boolean } = {}) {
  const app = Fastify({ bodyLimit: 16 * 1024 * 1024, forceCloseConnections: true });
  const spans: Told[] = [];
  let text = "";
  let asked = 0;
  app.post<{ Body: Sent }>("/v1/traces", async (request, reply) => {
    asked += 1;
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
    asked: () => asked,
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
/** Packages are CommonJS: what was loaded of them is in this cache. The bare interface comes with the metrics' library. */
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

/** Every span hangs on another of its trace, up to what the caller showed. */
function isConnected(t: Test, spans: readonly Told[], root: string): void {
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

const named = (spans: readonly Told[], name: string) => spans.find((span) => span.name === name);

t.test("where nothing is configured, nothing of it is loaded", async (t) => {
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
    t.equal(named(spans, name)?.pid, process.pid, `${name}, where it was asked`);
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
    "settlement.told",
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
    "nothing ends before it begins",
  );
  t.notOk(collected.text().includes(memo), "no text of the caller's");
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
    // That two of six met is likely, not sure.
    if (together.length < 2) return false;
    for (const span of together) {
      const [link] = span.links;
      const batch = collected.spans.find(({ spanId }) => spanId === link?.spanId);
      t.match(batch, { name: "settlement.transaction", pid: replica.child.pid });
      t.not(batch?.traceId, span.traceId, "the batch has a trace of its own");
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

t.test(
  "an x402-fetch is one trace with its block, and the seller hears nothing of it",
  async (t) => {
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
    t.equal(spans.filter(({ name }) => name === "x402.ask").length, 2, "asked, and paid");
    t.match(named(spans, "settlement.proven")?.attributes, {
      "purser.outcome": "settled",
      "purser.transaction": answer.body["txHash"],
    });
    t.notOk(collected.text().includes(secret), "no URL");
    t.notOk(collected.text().includes(made.seller.origin), "no address of a seller");
    const headers = made.seller.asks.flatMap(({ headers: sent }) => Object.keys(sent));
    t.ok(made.seller.asks.length > 0);
    t.same(
      headers.filter((name) => /^(traceparent|tracestate|baggage|b3|x-b3-.*)$/.test(name)),
      [],
      "nothing of the trace leaves us",
    );
  },
);

t.test(
  "a fetch whose seller settles here ends in the fetch's trace; the seller's own is linked",
  async (t) => {
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
          name === "POST /api/x402/settle" &&
          links.some(({ traceId }) => traceId === trace.traceId),
      );
    const ended = () => named(collected.of(trace.traceId), "settlement.transaction");
    await until(() => settling() !== undefined && ended() !== undefined, 20_000);
    t.not(settling()?.traceId, trace.traceId, "the seller was told nothing of ours");
    t.match(ended()?.attributes, {
      "purser.outcome": "settled",
      "purser.transaction": answer.body["txHash"],
    });
  },
);

t.test("what is refused ends its trace with the refusal's code", async (t) => {
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

t.test("no key and no signature was told", async (t) => {
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

t.test("a process that was killed leaves its payments' traces to the next", async (t) => {
  // Stored, sent, and then its process is gone before anybody hears of it.
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
  t.test(`a collector that is ${how} costs payments nothing`, async (t) => {
    // A process has one exporter: until now the other one.
    await made.app.close();
    const hanging = await collector(t, { hangs: true });
    const endpoint = how === "hanging" ? hanging.url : `http://127.0.0.1:${await freePort()}`;
    const inTime = (work: Promise<unknown>): Promise<boolean> =>
      Promise.race([work.then(() => true), sleep(HANGS_MS, false, { ref: false })]);
    // The SDK's own: it sends while the payments are made, and would wait for an answer for longer than this test does.
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
        t.ok(await inTime(paying), "no payment waits for the collector");
      }
      t.ok(await inTime(world.app.close()), "the service stops all the same");
    };
    await spendsAndStops({ OTEL_EXPORTER_OTLP_ENDPOINT: endpoint });
    if (how === "hanging") t.ok(hanging.asked() > 0, "it was asked");
  });
