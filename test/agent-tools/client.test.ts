// Goal: the typed client pays once despite lost responses, retries only what is safe, and throws typed errors for
// refusals.
import { createServer, type IncomingMessage } from "node:http";
import { once } from "node:events";
import t from "tap";
import { Purser, PurserError } from "../../packages/purser/src/index.ts";
import { parseDecimal } from "../../server/core/money.ts";
import { agentWorld } from "./world.ts";

const atomic = (text: string): bigint => {
  const parsed = parseDecimal(text);
  if (!parsed.ok) throw new Error(parsed.reason);
  return parsed.atomic;
};
const { agent, friend, demoUrl, baseUrl, database } = await agentWorld(t, { dailyLimit: "5" });
const purser = new Purser({ apiKey: agent.apiKey, baseUrl });

t.test("me, spend, fetch, quote, payments, listings", async (t) => {
  t.match(await purser.me(), { wallet: agent.walletAddress, limits: { limit: "5" } });
  const spent = await purser.spend({ recipient: friend, amount: "0.5" });
  t.match(spent, { success: true, amount: "0.5", remaining: "4.5" });
  t.match(await purser.quote({ url: demoUrl }), { paid: false, price: "0.001" });
  t.match(await purser.fetch({ url: demoUrl, maxAmount: "0.01" }), {
    paid: true,
    amountPaid: "0.001",
  });
  t.match(await purser.payment(spent.paymentId), { status: "settled" });
  t.equal((await purser.payments({ limit: 1 })).items.length, 1);
  t.match((await purser.listings({ search: "statistics" })).items[0], { url: demoUrl });
});

t.test("a task counts fetches and payments, and ends", async (t) => {
  const task = "client-1";
  t.match(await purser.openTask({ id: task, limit: "0.101" }), { state: "open", left: "0.101" });
  const fetched = await purser.fetch({ url: demoUrl, maxAmount: "0.01", task });
  t.match(fetched, { paid: true, task });
  await purser.spend({ recipient: friend, amount: "0.1", task });
  t.match(await purser.task(task), { spent: "0.101", left: "0", payments: 2 });
  t.equal((await purser.payments({ task })).items.length, 2);
  const quote = await purser.quote({ url: demoUrl, task });
  t.match(quote, { verdict: { allowed: false, code: "task_ceiling_exceeded" } });
  t.match((await purser.tasks({ state: "open" })).items, [{ id: task }]);
  t.match(await purser.closeTask(task), { state: "closed" });
  await t.rejects(purser.fetch({ url: demoUrl, task }), { code: "task_ended" });
});

t.test("a refusal is a typed error and is not retried", async (t) => {
  const error = await purser
    .spend({ recipient: friend, amount: "100" })
    .catch((caught: unknown) => caught);
  t.ok(error instanceof PurserError);
  t.match(error, {
    code: "daily_limit_exceeded",
    status: 403,
    problem: { availableAt: null, policy: { requested: "100" } },
  });
  const blocked = await database.pool.query(
    "SELECT 1 FROM payments WHERE status = 'blocked' AND amount = 100000000",
  );
  t.equal(blocked.rowCount, 1, "one request");
});

/**
 * A proxy in front of the service that loses the first responses: the payment happens, but the caller gets no
 * response.
 */
async function lossyProxy(losses: number, status?: number) {
  const keys: string[] = [];
  const server = createServer((request, response) => {
    void (async () => {
      const body = await read(request);
      keys.push(String(request.headers["idempotency-key"]));
      const headers = {
        authorization: String(request.headers.authorization),
        "content-type": "application/json",
        "idempotency-key": String(request.headers["idempotency-key"]),
      };
      if (status !== undefined && keys.length <= losses) {
        response.writeHead(status, {
          "content-type": "application/problem+json",
          "retry-after": "0",
        });
        return response.end(
          JSON.stringify({
            code: status === 429 ? "rate_limited" : "service_unavailable",
            status,
            detail: "busy",
            suggestion: "",
            retryable: true,
            requestId: "r",
          }),
        );
      }
      const answer = await fetch(`${baseUrl}${request.url}`, {
        method: request.method ?? "POST",
        headers,
        body,
      });
      if (status === undefined && keys.length <= losses) return request.socket.destroy();
      response.writeHead(answer.status, { "content-type": "application/json" });
      return response.end(await answer.text());
    })();
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  t.teardown(() => server.close());
  return { keys, url: `http://127.0.0.1:${(server.address() as { port: number }).port}` };
}

async function read(request: IncomingMessage): Promise<string> {
  let text = "";
  for await (const chunk of request) text += String(chunk);
  return text;
}

t.test("a lost response is retried with the same Idempotency-Key: one payment", async (t) => {
  const proxy = await lossyProxy(2);
  const lossy = new Purser({ apiKey: agent.apiKey, baseUrl: proxy.url });
  const before = (await purser.me()).limits.spent;
  const paid = await lossy.spend({ recipient: friend, amount: "1" });
  t.equal(paid.amount, "1");
  t.equal(proxy.keys.length, 3);
  t.equal(new Set(proxy.keys).size, 1, "the same key in all attempts");
  const after = (await purser.me()).limits.spent;
  t.equal(atomic(after) - atomic(before), 1_000_000n, "paid once");
});

t.test("429 and 503 are retried until the timeout", async (t) => {
  for (const status of [429, 503]) {
    const proxy = await lossyProxy(1, status);
    t.match(
      await new Purser({ apiKey: agent.apiKey, baseUrl: proxy.url }).spend({
        recipient: friend,
        amount: "0.1",
      }),
      { success: true },
    );
    t.equal(proxy.keys.length, 2, String(status));
  }
  const proxy = await lossyProxy(1_000, 503);
  const impatient = new Purser({ apiKey: agent.apiKey, baseUrl: proxy.url, timeoutMs: 1_000 });
  const error = await impatient
    .spend({ recipient: friend, amount: "0.1" }, { idempotencyKey: "mine" })
    .catch((caught: unknown) => caught);
  t.match(error, { code: "service_unavailable", idempotencyKey: "mine" });
});

t.test("a redirect is an error: the API key is never sent to another host", async (t) => {
  let followed = false;
  const target = createServer((_request, response) => {
    followed = true;
    response.end("{}");
  }).listen(0, "127.0.0.1");
  await once(target, "listening");
  const location = `http://127.0.0.1:${(target.address() as { port: number }).port}/`;
  const redirecting = createServer(
    (_request, response) => void response.writeHead(307, { location }).end(),
  ).listen(0, "127.0.0.1");
  await once(redirecting, "listening");
  t.teardown(() => void (target.close(), redirecting.close()));
  const client = new Purser({
    apiKey: agent.apiKey,
    baseUrl: `http://127.0.0.1:${(redirecting.address() as { port: number }).port}`,
    timeoutMs: 500,
  });
  await t.rejects(client.me(), { code: "not_purser", message: /a redirect to http/ });
  t.equal(followed, false);
});
