// Goal: a caller cannot choose the rate-limit bucket of its requests, and limits on payments hold across all
// replicas.
import t, { type Test } from "tap";
import { deleteOldRows } from "../../server/infra/retention.ts";
import { createApiKey } from "../../server/plugins/auth/api-keys.ts";
import { createSessionToken } from "../../server/plugins/auth/sessions.ts";
import { testApp, type TestApp } from "../helpers/app.ts";
import { createAgent, signIn } from "../helpers/owner.ts";

type Headers = Record<string, string | string[]>;
interface TestRequest {
  method?: "GET" | "POST";
  url: string;
  headers?: Headers;
  from?: string;
  payload?: object;
}

const send = async (
  { app }: Pick<TestApp, "app">,
  { from = "192.0.2.1", ...request }: TestRequest,
) => app.inject({ method: "GET", ...request, remoteAddress: from });

/** A full bucket, and its refill since then: a loaded machine may be slow. */
const mostOf = (limit: number, sinceMs: number): number =>
  limit + 1 + Math.ceil((limit * (performance.now() - sinceMs)) / 60_000);

/** The number of responses per status. */
const statuses = (answers: { statusCode: number }[]): Record<string, number> => {
  const counts: Record<string, number> = {};
  for (const { statusCode } of answers) counts[statusCode] = (counts[statusCode] ?? 0) + 1;
  return counts;
};

/** The number of API key queries while `work` runs. */
async function queriesOf({ app }: TestApp, work: () => Promise<unknown>): Promise<number> {
  const { pool } = app;
  const original = pool.query.bind(pool) as (...args: unknown[]) => unknown;
  let count = 0;
  pool.query = ((...args: unknown[]) => {
    if (JSON.stringify(args[0]).includes("api-key-holders")) count += 1;
    return original(...args);
  }) as never;
  await work();
  pool.query = original as never;
  return count;
}

t.test("a cache keeps public metadata, and no refusal in its place", async (t) => {
  const world = await testApp(t, { env: { RATE_LIMITS: "address=2,unproven=2" } });
  for (const name of ["oauth-protected-resource", "oauth-authorization-server/mcp", "webauthn"]) {
    const from = `203.0.113.${name.length}`;
    const kept = new Map<number, unknown>();
    for (let count = 0; count < 8; count += 1) {
      const answer = await send(world, { url: `/.well-known/${name}`, from });
      kept.set(answer.statusCode, answer.headers["cache-control"]);
    }
    t.same(Object.fromEntries(kept), { 200: "public, max-age=300", 429: "no-store" }, name);
  }
});

t.test("before authentication the bucket is the IP address, whatever the headers", async (t) => {
  const world = await testApp(t, { env: { RATE_LIMITS: "address=40,unproven=30" } });
  const spellings = (index: number): Headers[] => [
    { authorization: `Bearer x${index}` },
    { authorization: `bearer   x${index}` },
    { Authorization: `BEARER\tx${index}` },
    { cookie: `a=${index}; purser_session=${index}` },
    { cookie: [`a=${index}`, `b=${index}`] },
    { "x-forwarded-for": `198.51.100.${index}`, "x-real-ip": `198.51.100.${index}` },
    { forwarded: `for=198.51.100.${index}`, "user-agent": `agent ${index}` },
  ];
  const sinceMs = performance.now();
  const answers = [];
  for (let index = 0; index < 30; index += 1)
    for (const headers of spellings(index))
      answers.push(await send(world, { url: "/api/health", headers }));
  t.ok(
    (statuses(answers)["200"] ?? 0) <= mostOf(40, sinceMs),
    `${statuses(answers)["200"]} of 210 passed a limit of 40`,
  );
  const last = answers.at(-1);
  t.equal(last?.json<{ code: string }>().code, "rate_limited");
  t.match(last?.headers["retry-after"], /^[1-9][0-9]*$/);
  t.match(last?.headers, { "ratelimit-limit": "40", "ratelimit-remaining": "0" });
  t.equal((await send(world, { url: "/api/health", from: "192.0.2.2" })).statusCode, 200);

  await t.test("refused requests without a credential count too", async (t) => {
    const sinceMs = performance.now();
    const refused = [];
    for (let index = 0; index < 60; index += 1)
      refused.push(
        await send(world, {
          url: index % 2 ? "/api/agents/me" : "/api/auth/session",
          from: "192.0.2.3",
        }),
      );
    t.ok((statuses(refused)["401"] ?? 0) <= mostOf(40, sinceMs), JSON.stringify(statuses(refused)));
  });

  await t.test("an IPv6 /64 is one address; mapped IPv4 counts as IPv4", async (t) => {
    const sinceMs = performance.now();
    const many = [];
    for (let index = 0; index < 60; index += 1)
      many.push(
        await send(world, { url: "/api/health", from: `2001:db8:0:7::${index.toString(16)}` }),
      );
    t.ok((statuses(many)["200"] ?? 0) <= mostOf(40, sinceMs), JSON.stringify(statuses(many)));
    t.equal((await send(world, { url: "/api/health", from: "2001:db8:0:8::1" })).statusCode, 200);
    const dressed = [];
    for (let index = 0; index < 100; index += 1)
      dressed.push(
        await send(world, {
          url: "/api/health",
          from: index % 2 ? "192.0.2.6" : "::ffff:192.0.2.6",
        }),
      );
    t.ok((statuses(dressed)["200"] ?? 0) <= mostOf(40, sinceMs), JSON.stringify(statuses(dressed)));
  });

  await t.test("unknown credentials are counted before the database is queried", async (t) => {
    const sinceMs = performance.now();
    const guess = (from: string) =>
      send(world, {
        url: "/api/agents/me",
        headers: { authorization: `Bearer ${createApiKey().apiKey}` },
        from,
      });
    const queries = await queriesOf(world, async () => {
      const guesses = await Promise.all(Array.from({ length: 400 }, () => guess("192.0.2.4")));
      t.ok(
        (statuses(guesses)["401"] ?? 0) <= mostOf(30, sinceMs),
        JSON.stringify(statuses(guesses)),
      );
    });
    t.ok(queries <= mostOf(30, sinceMs), `${queries} statements for 400 guesses`);
    const sessions = await Promise.all(
      Array.from({ length: 60 }, () =>
        send(world, {
          url: "/api/auth/session",
          headers: { cookie: `purser_session=${createSessionToken()}` },
          from: "192.0.2.5",
        }),
      ),
    );
    t.ok(
      (statuses(sessions)["401"] ?? 0) <= mostOf(30, sinceMs),
      JSON.stringify(statuses(sessions)),
    );
  });
});

t.test("after authentication the bucket is the agent, at any address and key", async (t) => {
  const world = await testApp(t, { env: { RATE_LIMITS: "agent=30,unproven=20" } });
  const owner = await signIn(world);
  const agent = await createAgent(world, owner);
  const other = await createAgent(world, owner);
  const me = (apiKey: string, index: number) =>
    send(world, {
      url: "/api/agents/me",
      headers: {
        authorization: `${index % 2 ? "Bearer" : "bearer"} ${" ".repeat(index % 5)}${apiKey}`,
      },
      from: `198.51.100.${index}`,
    });
  const sinceMs = performance.now();
  const answers = [];
  for (let index = 0; index < 100; index += 1) answers.push(await me(agent.apiKey, index));
  t.ok((statuses(answers)["200"] ?? 0) <= mostOf(30, sinceMs), JSON.stringify(statuses(answers)));
  t.equal((await me(other.apiKey, 1)).statusCode, 200, "another agent has a separate bucket");
});

t.test("the bucket of a facilitator request is the merchant's key", async (t) => {
  const world = await testApp(t, {
    env: { RATE_LIMITS: "verify=30", FACILITATOR_API_KEYS: "merchant-one,merchant-two" },
  });
  const verify = (key: string, index: number) =>
    send(world, {
      method: "POST",
      url: "/api/x402/verify",
      headers: { authorization: `Bearer ${key}`, cookie: `a=${index}` },
      from: `198.51.100.${index}`,
      payload: {},
    });
  const sinceMs = performance.now();
  const answers = [];
  for (let index = 0; index < 60; index += 1) answers.push(await verify("merchant-one", index));
  t.ok((statuses(answers)["200"] ?? 0) <= mostOf(30, sinceMs), JSON.stringify(statuses(answers)));
  t.equal((await verify("merchant-two", 1)).statusCode, 200);
});

t.test("two replicas share the limits on payments", async (t) => {
  const LIMIT = 120;
  const env = { RATE_LIMITS: `spend=${LIMIT},verify=${LIMIT},sign-in=${LIMIT}` };
  const first = await testApp(t, { env });
  const second = await testApp(t, { env, database: first.database, chain: first.chain });
  const replicas = [first, second] as const;
  const owner = await signIn(first);
  const agent = await createAgent(first, owner);
  const startedMs = performance.now();

  const rush = async (t: Test, name: string, request: TestRequest) => {
    const beganMs = performance.now();
    const answers = await Promise.all(
      Array.from({ length: 400 }, (_, index) => send(index % 2 ? first : second, request)),
    );
    const seconds = Math.ceil((performance.now() - beganMs) / 1000);
    const refused = statuses(answers)["429"] ?? 0;
    const passed = answers.length - refused;
    // The refill meanwhile, and the rest of a lease that one process still held.
    t.ok(passed <= LIMIT + 2 * (seconds + 1), `${name}: ${passed} of 400 passed in ${seconds} s`);
    t.ok(passed >= LIMIT - 2 * 8, `${name}: ${passed} passed`);
    for (const { statusCode, headers } of answers) {
      if (headers["ratelimit-limit"] === undefined)
        t.fail(`${statusCode} without RateLimit headers`);
      if (statusCode === 429 && !/^[1-9][0-9]*$/.test(String(headers["retry-after"])))
        t.fail("429 without Retry-After");
    }
  };
  await rush(t, "spend", {
    method: "POST",
    url: "/api/agents/spend",
    headers: agent.headers,
    payload: { recipient: "0x70997970C51812dc3A010C7d01b50e0d17dc79C8", amount: "x" },
  });
  await rush(t, "verify", { method: "POST", url: "/api/x402/verify", payload: {} });
  await rush(t, "sign-in", { url: "/api/auth/nonce", from: "203.0.113.9" });
  t.comment(`${replicas.length} replicas, ${Math.round(performance.now() - startedMs)} ms`);
});

t.test("a busy caller's verify works while the database is down", async (t) => {
  const world = await testApp(t);
  const { app } = world;
  const pool = app.pool;
  const original = pool.query.bind(pool) as (...args: unknown[]) => unknown;
  let leases = 0;
  pool.query = ((...args: unknown[]) => {
    if (JSON.stringify(args[0]).includes("rate-lease")) leases += 1;
    return original(...args);
  }) as never;
  const verify = () => send(world, { method: "POST", url: "/api/x402/verify", payload: {} });
  for (let index = 0; index < 2_000; index += 1) t.equal((await verify()).statusCode === 200, true);
  t.ok(leases <= 25, `${leases} leases for 2,000 requests`);
  pool.query = () => Promise.reject(new Error("the database is away"));
  const answers = await Promise.all(
    Array.from({ length: 20 }, (_, index) =>
      send(world, {
        method: "POST",
        url: "/api/x402/verify",
        payload: {},
        from: `198.51.100.${index}`,
      }),
    ),
  );
  t.same(statuses(answers), { 200: 20 });
  pool.query = original as never;
});

t.test("full buckets are deleted", async (t) => {
  const { app, database } = await testApp(t);
  await send({ app }, { url: "/api/auth/nonce" });
  const count = async () =>
    (await database.pool.query<{ count: string }>("SELECT count(*) FROM rate_buckets")).rows[0]
      ?.count;
  t.equal(await count(), "1");
  const deleted = async () =>
    (await deleteOldRows(database.pool, app.config.retention))["rateBuckets"];
  t.equal(await deleted(), undefined);
  await database.pool.query("UPDATE rate_buckets SET kept_until = now() - interval '1 second'");
  t.equal(await deleted(), 1);
});
