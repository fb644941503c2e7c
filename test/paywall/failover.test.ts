// Goal: with two real facilitators, of which one is killed or loses answers, sellers with stock middleware and with our
// paywall deliver exactly what is paid, and charge once.
// Tier: full (kills of real processes; each fault alone is tried in test/unit/failover.test.ts).
import { once } from "node:events";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { text } from "node:stream/consumers";
import { decodePaymentResponseHeader } from "@x402/core/http";
import t, { type Test } from "tap";
import { FailoverFacilitatorClient } from "../../packages/paywall/src/paywall.ts";
import { fetchClient } from "../facilitator/stock-clients.ts";
import { expressApi, honoApi, PRICE_ATOMIC } from "../facilitator/stock-servers.ts";
import { testApp } from "../helpers/app.ts";
import { testDatabase } from "../helpers/postgres.ts";
import { startReplica } from "../spending/replica.helper.ts";
import { balanceOf, newAccount, openShop, proofOf, stockPayer } from "./shop.ts";

const STARTING = 1_000_000n;
const { chain, baseUrl } = await testApp(t, { listen: true });
const network = `eip155:${chain.chainId}` as const;
const second = `${baseUrl}/api/x402`;
const rpcUrls = { [network]: chain.rpcUrl };

/** A facilitator with its own database and its own relayer, in a process of its own. */
async function first(t: Test) {
  const [relayer] = chain.accounts;
  if (!relayer) throw new Error("the chain has no accounts");
  const database = await testDatabase(t);
  const env = { RELAYER_PRIVATE_KEYS: relayer.privateKey };
  const { url, child, ended } = await startReplica(t, { database, chain }, env);
  const kill = async () => {
    child.kill("SIGKILL");
    await ended;
  };
  return { url: `${url}/api/x402`, kill };
}

/** Undefined cuts the connection. */
type Lose = (
  request: IncomingMessage,
  forward: () => Promise<string>,
) => Promise<string | undefined>;

/** Passes requests on, except where `lose` cuts the connection or answers something else. */
async function losing(t: Test, target: string, lose: Lose) {
  const pass = async (request: IncomingMessage, response: ServerResponse) => {
    const body = request.method === "POST" ? await text(request) : undefined;
    const forward = async (): Promise<string> => {
      const headers = { ...request.headers } as Record<string, string>;
      for (const name of ["host", "connection", "content-length"]) delete headers[name];
      const method = request.method ?? "GET";
      const init = body === undefined ? { method, headers } : { method, headers, body };
      return (await fetch(`${target}${request.url}`, init)).text();
    };
    const answer = await lose(request, forward);
    if (answer === undefined) request.socket.destroy();
    else response.setHeader("content-type", "application/json").end(answer);
  };
  const server = createServer((request, response) => {
    pass(request, response).catch(() => request.socket.destroy());
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  t.teardown(() => {
    server.close();
    server.closeAllConnections();
  });
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

const settles = ({ url }: IncomingMessage): boolean => url === "/settle";

for (const [name, start] of Object.entries({
  "@x402/express": expressApi,
  "@x402/hono": honoApi,
}))
  t.test(`${name}: the first is killed between verification and settlement`, async (t) => {
    const doomed = await first(t);
    let isDoomed = true;
    const facilitator = new FailoverFacilitatorClient({ facilitators: [doomed.url, second] });
    const payTo = newAccount().address;
    const options = {
      facilitator,
      network,
      usdc: chain.usdc,
      payTo,
      flow: "authorization",
    } as const;
    const api = await start(t, {
      ...options,
      atWork: async () => {
        if (isDoomed) await doomed.kill();
        isDoomed = false;
      },
    });
    for (const turn of [1n, 2n]) {
      const account = newAccount();
      await chain.mint(account.address, STARTING);
      const paid = await fetchClient({ account, network, usdc: chain.usdc })(api.url);
      t.same([paid.status, paid.body], [200, { secret: 42 }]);
      t.match(decodePaymentResponseHeader(paid.receipt), { success: true });
      t.equal(await balanceOf(chain, account.address), STARTING - PRICE_ATOMIC);
      t.equal(await balanceOf(chain, payTo), PRICE_ATOMIC * turn);
      const replayed = await fetch(api.url, { headers: { "payment-signature": paid.proof } });
      t.equal(replayed.status, 402, "a proof is delivered once");
    }
    t.match(facilitator.health(), [{ state: "skipped" }, { state: "healthy" }]);
  });

t.test(
  "stock middleware: settled, killed before it answered, and proven by the chain",
  async (t) => {
    const doomed = await first(t);
    const url = await losing(t, doomed.url, async (request, forward) => {
      const answer = await forward();
      if (!settles(request)) return answer;
      await doomed.kill();
      return undefined;
    });
    const payTo = newAccount().address;
    const account = newAccount();
    await chain.mint(account.address, STARTING);
    const facilitator = new FailoverFacilitatorClient({ facilitators: [url, second], rpcUrls });
    const options = { network, usdc: chain.usdc, payTo, flow: "authorization" } as const;
    const api = await expressApi(t, { facilitator, ...options });
    const paid = await fetchClient({ account, network, usdc: chain.usdc })(api.url);
    t.match(decodePaymentResponseHeader(paid.receipt), { success: true });
    t.equal(paid.status, 200, "the second calls it used, and the chain shows the transaction");
    t.equal(await balanceOf(chain, payTo), PRICE_ATOMIC);
    const replayed = await fetch(api.url, { headers: { "payment-signature": paid.proof } });
    t.equal(replayed.status, 402);
  },
);

t.test("our paywall, and a first facilitator that does not answer", async (t) => {
  const running = await first(t);
  const CASES: { name: string; lose: Lose; outcome: string }[] = [
    { name: "cut before settling", outcome: "unknown", lose: async () => undefined },
    { name: "malformed before settling", outcome: "unknown", lose: async () => "{}" },
    {
      name: "settled, always malformed",
      outcome: "paid",
      lose: async (_request, forward) => (await forward(), "<html>"),
    },
    {
      name: "settled, always cut",
      outcome: "paid",
      lose: async (_request, forward) => (await forward(), undefined),
    },
  ];
  for (const { name, lose, outcome } of CASES)
    await t.test(name, async (t) => {
      const url = await losing(t, running.url, async (request, forward) =>
        settles(request) ? lose(request, forward) : forward(),
      );
      let served = 0;
      const shop = await openShop(
        t,
        chain,
        [url, second],
        (app) =>
          app.get("/joke", { config: { paywall: { price: "0.01" } } }, async () => {
            served += 1;
            return { joke: 1 };
          }),
        { rpcUrls, healthPath: "/facilitators" },
      );
      const account = newAccount();
      await chain.mint(account.address, STARTING);
      const headers = await proofOf(stockPayer(chain, account), `${shop.origin}/joke`);
      const answer = await fetch(`${shop.origin}/joke`, { headers });
      const receipt = decodePaymentResponseHeader(answer.headers.get("payment-response") ?? "");
      if (outcome === "paid") {
        t.match([answer.status, receipt.success], [200, true]);
      } else {
        t.match([answer.status, receipt.errorReason], [402, "settlement_pending"]);
        t.equal(await balanceOf(chain, shop.payTo), 0n);
        const repeat = await fetch(`${shop.origin}/joke`, { headers });
        t.equal(repeat.status, 200, "the payer repeats it, and the second settles");
      }
      const late = await fetch(`${shop.origin}/joke`, { headers });
      t.equal(late.status, 402);
      t.equal(served, 1);
      t.equal(await balanceOf(chain, shop.payTo), 10_000n);
      const health = await fetch(`${shop.origin}/facilitators`);
      t.match(await health.json(), { isWorking: true, facilitators: [{}, { state: "healthy" }] });
    });
});

t.test(
  "our paywall: a lost answer is asked for again with the same key, without a node",
  async (t) => {
    const running = await first(t);
    let lost = 0;
    const url = await losing(t, running.url, async (request, forward) => {
      const answer = await forward();
      if (!settles(request) || lost > 0) return answer;
      lost += 1;
      return undefined;
    });
    const shop = await openShop(t, chain, url, (app) =>
      app.get("/joke", { config: { paywall: { price: "0.01" } } }, async () => ({ joke: 1 })),
    );
    const account = newAccount();
    await chain.mint(account.address, STARTING);
    const headers = await proofOf(stockPayer(chain, account), `${shop.origin}/joke`);
    t.equal((await fetch(`${shop.origin}/joke`, { headers })).status, 200);
    t.equal(lost, 1);
    t.equal((await fetch(`${shop.origin}/joke`, { headers })).status, 402);
    t.equal(await balanceOf(chain, shop.payTo), 10_000n);
  },
);

t.test(
  "a seller that delivers what is unknown does it once, and only for a valid payment",
  async (t) => {
    const url = await losing(t, second, async (request, forward) =>
      settles(request) ? undefined : forward(),
    );
    const shop = await openShop(
      t,
      chain,
      url,
      (app) =>
        app.get("/joke", { config: { paywall: { price: "0.01" } } }, async () => ({ joke: 1 })),
      { whenUnknown: "deliver" },
    );
    const account = newAccount();
    const poor = await proofOf(stockPayer(chain, newAccount()), `${shop.origin}/joke`);
    t.equal((await fetch(`${shop.origin}/joke`, { headers: poor })).status, 402, "no money");
    await chain.mint(account.address, STARTING);
    const headers = await proofOf(stockPayer(chain, account), `${shop.origin}/joke`);
    const answer = await fetch(`${shop.origin}/joke`, { headers });
    t.equal(answer.status, 200);
    const receipt = decodePaymentResponseHeader(answer.headers.get("payment-response") ?? "");
    t.match(receipt, { success: false, errorReason: "settlement_pending" });
    t.equal((await fetch(`${shop.origin}/joke`, { headers })).status, 402);
  },
);

t.test("no facilitator can be reached: nothing is called unpaid or paid", async (t) => {
  const doomed = await first(t);
  const shop = await openShop(t, chain, [doomed.url], (app) =>
    app.get("/joke", { config: { paywall: { price: "0.01" } } }, async () => ({ joke: 1 })),
  );
  const account = newAccount();
  await chain.mint(account.address, STARTING);
  const headers = await proofOf(stockPayer(chain, account), `${shop.origin}/joke`);
  await doomed.kill();
  const answer = await fetch(`${shop.origin}/joke`, { headers });
  t.equal(answer.status, 503);
  t.match(await answer.text(), /nothing was settled/);
  t.equal(await balanceOf(chain, account.address), STARTING);
});
