// Goal: an MCP client that times out, cancels or gets no response pays once; a call canceled before signing is not
// paid, whichever replica receives the cancellation.
// Tier: full (waits in real time for callers that never got an answer).
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import t from "tap";
import { toolResult } from "../helpers/tool-result.ts";
import { forgetDelivered } from "../../server/plugins/payments/lost-responses.ts";
import { until } from "../helpers/until.ts";
import { testApp } from "../helpers/app.ts";
import { assertLedgerIsChain, market } from "../x402-client/market.ts";

const made = await market(t, { listen: true, chainOptions: { blockTimeSeconds: 1 } });
const { agent, app, baseUrl, database, seller } = made;
const replica = await testApp(t, {
  listen: true,
  database,
  chain: made.chain,
  env: { SETTLE_WAIT_MS: "2500" },
  configure: (config) => void config.fetchPrivateOrigins.push(seller.origin),
});
t.teardown(() => {
  app.server.closeAllConnections();
  replica.app.server.closeAllConnections();
});

/** `elsewhere`: its cancellations go to the other replica, as behind a load balancer. */
async function connect({ elsewhere = false } = {}): Promise<Client> {
  const client = new Client({ name: "test", version: "1" });
  const transport = new StreamableHTTPClientTransport(new URL(`${baseUrl}/mcp`), {
    requestInit: { headers: { authorization: `Bearer ${agent.apiKey}` } },
    fetch: (url, init) => {
      const { body } = init ?? {};
      const isNotice =
        elsewhere && typeof body === "string" && body.includes("notifications/cancelled");
      return fetch(isNotice ? `${replica.baseUrl}/mcp` : url, init);
    },
  });
  await client.connect(transport);
  t.teardown(() => client.close());
  return client;
}

type Body = Record<string, unknown>;
const call = async (
  client: Client,
  name: string,
  args: Body,
  options: Parameters<Client["callTool"]>[2] = {},
): Promise<Body> => {
  const result = await client.callTool({ name, arguments: args }, undefined, options);
  return toolResult(result);
};
const paid = async (): Promise<number> => {
  const { rows } = await database.pool.query<{ count: number }>(
    "SELECT count(*)::int AS count FROM payments WHERE agent_id = $1 AND status IN ('reserved', 'submitted', 'settled', 'unknown')",
    [agent.id],
  );
  return rows[0]?.count ?? 0;
};
let number = 0;
const fetching = () => ({ url: `${seller.url}&n=${(number += 1)}`, maxAmount: "0.01" });
/** Makes the seller wait this long before each paid response. */
const slowSeller = (ms: number) => {
  seller.script = {
    onProof: async ({ response, proof }) => {
      const transaction = await seller.settle(proof);
      await new Promise((resolve) => setTimeout(resolve, ms));
      response
        .writeHead(200, { "content-type": "application/json", ...seller.receipt({ transaction }) })
        .end('{"answer":42}');
    },
  };
};
const TIMED_OUT = { message: /timed out/ };

for (const elsewhere of [false, true])
  t.test(
    `a client timeout of 1 s, a seller that takes 3 s${elsewhere ? ", two replicas" : ""}`,
    async (t) => {
      seller.script = {};
      const client = await connect({ elsewhere });
      // A first call, so that compiling the schemas does not take part of the second one's timeout.
      await call(client, "x402_fetch", fetching());
      slowSeller(3_000);
      const args = fetching();
      const before = await paid();
      await t.rejects(call(client, "x402_fetch", args, { timeout: 1_000 }), TIMED_OUT);
      const again = await call(client, "x402_fetch", args, { timeout: 20_000 });
      t.match(again, {
        paid: true,
        replayed: true,
        next: /new Idempotency-Key/,
        data: { answer: 42 },
      });
      t.equal(await paid(), before + 1, "0.001 is spent, not 0.002");
      t.equal((await call(client, "x402_fetch", args))["replayed"], undefined);
      t.equal(
        await paid(),
        before + 2,
        "its response was delivered: the next call is a new purchase",
      );
    },
  );

t.test("the client timed out, and repeats the call once the result is ready", async (t) => {
  slowSeller(1_500);
  const client = await connect({ elsewhere: true });
  const args = fetching();
  const before = await paid();
  await t.rejects(call(client, "x402_fetch", args, { timeout: 1_000 }), TIMED_OUT);
  // By then the response was sent to a client that no longer reads it.
  await until(async () => {
    const { rowCount } = await database.pool.query(
      "SELECT 1 FROM idempotency_keys k JOIN canceled_calls c ON c.call = k.call WHERE k.status_code = 200 AND k.told_at IS NULL AND k.subject_id = $1 AND k.payment_id = (SELECT id FROM payments WHERE agent_id = $1 ORDER BY created_at DESC LIMIT 1)",
      [agent.id],
    );
    return rowCount === 1;
  });
  // In real time: the client repeats the call a little later.
  await new Promise((resolve) => setTimeout(resolve, 500));
  t.match(await call(client, "x402_fetch", args), { replayed: true });
  t.equal(await paid(), before + 1);
});

t.test("a spend, and a cancellation that arrives after the response was sent", async (t) => {
  seller.script = {};
  const client = await connect({ elsewhere: true });
  const args = { recipient: made.seller.entry()["payTo"], amount: "0.001", memo: "late" };
  const before = await paid();
  const first = await call(client, "send_usdc", args);
  t.match(first, { success: true, idempotencyKey: /^auto-/ });
  const delivered = () =>
    database.pool.query<{ told_call: string }>(
      "SELECT told_call FROM idempotency_keys WHERE key = $1 AND told_at IS NOT NULL",
      [first["idempotencyKey"]],
    );
  await until(async () => (await delivered()).rowCount === 1);
  await replica.app.cancelCall(agent.id, (await delivered()).rows[0]?.told_call ?? "");
  t.match(await call(client, "send_usdc", args), { replayed: true, txHash: first["txHash"] });
  t.equal(await paid(), before + 1);
  t.match(await call(client, "send_usdc", { ...args, idempotencyKey: "mine" }), { success: true });
  t.equal(await paid(), before + 2, "with its own key it is a second purchase");
});

t.test("canceled before signing: nothing is paid", async (t) => {
  for (const elsewhere of [false, true]) {
    const client = await connect({ elsewhere });
    const before = await paid();
    // While the price is requested from the seller.
    const proofs = seller.proofs.length;
    let markReached: () => void = () => undefined;
    const reached = new Promise<void>((resolve) => (markReached = resolve));
    seller.script = {
      onUnpaid: async ({ response }) => {
        markReached();
        await new Promise((resolve) => setTimeout(resolve, 800));
        seller.refuse(response, seller.entry());
      },
    };
    const stop = new AbortController();
    const canceled = call(client, "x402_fetch", fetching(), { signal: stop.signal });
    const ended = t.rejects(canceled);
    await reached;
    stop.abort("changed my mind");
    await ended;
    // Time for the price to arrive without being paid. On a busy machine the check is weaker, but cannot fail
    // wrongly.
    await new Promise((resolve) => setTimeout(resolve, 1_500));
    t.equal(await paid(), before, "not reserved");
    t.equal(seller.proofs.length, proofs);

    // Reserved, and not yet signed.
    seller.script = {};
    const args = fetching();
    const again = new AbortController();
    let isReserved: () => void = () => undefined;
    const reserved = new Promise<void>((resolve) => (isReserved = resolve));
    app.paymentFaults.at = async (point) => {
      if (point !== "signed") return;
      app.paymentFaults.at = undefined;
      isReserved();
      await until(async () => (await paid()) === before);
    };
    const late = t.rejects(call(client, "x402_fetch", args, { signal: again.signal }));
    await reserved;
    again.abort("changed my mind again");
    await late;
    await until(async () => (await paid()) === before);
    const { rows } = await database.pool.query(
      "SELECT status, failure_code FROM payments WHERE agent_id = $1 ORDER BY created_at DESC LIMIT 1",
      [agent.id],
    );
    t.same(rows, [{ status: "voided", failure_code: "call_canceled" }]);
    t.equal(seller.proofs.length, proofs, "the signature was not sent");
    t.equal(
      (await call(client, "x402_fetch", args))["replayed"],
      undefined,
      "paid when called again",
    );
    t.equal(await paid(), before + 1);
  }
});

t.test("the response to a call without a key is kept as long as its link states", async (t) => {
  const text = "long ".repeat(20_000);
  let reached: () => void = () => undefined;
  const atSeller = new Promise<void>((resolve) => (reached = resolve));
  seller.script = {
    onProof: async ({ response, proof }) => {
      reached();
      const transaction = await seller.settle(proof);
      response
        .writeHead(200, { "content-type": "text/plain", ...seller.receipt({ transaction }) })
        .end(text);
    },
  };
  const args = fetching();
  const hungUp = new AbortController();
  const request = fetch(`${baseUrl}/api/agents/x402-fetch`, {
    method: "POST",
    headers: agent.headers,
    body: JSON.stringify(args),
    signal: hungUp.signal,
  });
  const gone = t.rejects(request, { name: "AbortError" });
  await atSeller;
  hungUp.abort();
  await gone;
  const client = await connect();
  const { resource } = (await call(client, "x402_fetch", args)) as {
    resource: { uri: string; keptHours: number };
  };
  t.equal(resource.keptHours, 48);
  const delivered = () =>
    database.pool.query(
      "SELECT 1 FROM idempotency_keys WHERE told_call IS NOT NULL AND call IS NULL",
    );
  await until(async () => (await delivered()).rowCount === 1);
  await database.pool.query(
    "UPDATE idempotency_keys SET updated_at = updated_at - interval '1 hour'",
  );
  await database.pool.query("UPDATE payments SET settled_at = settled_at - interval '1 hour'");
  await forgetDelivered(database.pool);
  const { contents } = await client.readResource({ uri: resource.uri });
  t.match(contents.at(-1), { text });
  seller.script = {};
});

t.test("a batch can cancel a limited number of calls", async (t) => {
  const cancel = async (count: number): Promise<{ status: number; made: number }> => {
    const session = `flood of ${count}`;
    const before = await database.pool.query("SELECT 1 FROM canceled_calls");
    const answer = await fetch(`${baseUrl}/mcp`, {
      method: "POST",
      headers: {
        ...agent.headers,
        accept: "application/json, text/event-stream",
        "mcp-session-id": session,
      },
      body: JSON.stringify(
        Array.from({ length: count }, (_, index) => ({
          jsonrpc: "2.0",
          method: "notifications/cancelled",
          params: { requestId: index % 25 },
        })),
      ),
    });
    const after = await database.pool.query("SELECT 1 FROM canceled_calls");
    return { status: answer.status, made: (after.rowCount ?? 0) - (before.rowCount ?? 0) };
  };
  t.same(await cancel(51), { status: 400, made: 0 });
  t.match(await cancel(50), { made: 25 });
});

t.test("a client that resets its timeout on progress waits to the end", async (t) => {
  slowSeller(3_000);
  const client = await connect();
  const seen: number[] = [];
  const answer = await call(client, "x402_fetch", fetching(), {
    timeout: 1_500,
    resetTimeoutOnProgress: true,
    onprogress: ({ progress }) => void seen.push(progress),
  });
  t.match(answer, { paid: true });
  t.equal(answer["replayed"], undefined);
  t.ok(seen.length >= 2, `${seen.length} notifications`);
  seller.script = {};
});

t.test("another client of the same agent cannot cancel this one's calls", async (t) => {
  const first = await connect();
  const second = await connect();
  slowSeller(1_000);
  const before = await paid();
  // Both clients use the same request ids.
  const one = call(first, "x402_fetch", fetching());
  const other = call(second, "x402_fetch", fetching(), { timeout: 600 });
  await t.rejects(other, TIMED_OUT);
  t.match(await one, { paid: true });
  t.equal(await paid(), before + 2);
  seller.script = {};
});

t.test("the ledger equals the chain", async (t) => {
  await until(async () => {
    const { rowCount } = await database.pool.query("SELECT 1 FROM payments WHERE outstanding");
    return rowCount === 0;
  });
  await assertLedgerIsChain(t, made);
});
