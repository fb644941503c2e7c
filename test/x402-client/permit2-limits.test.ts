// Goal: fifty parallel upto payments from two processes: reserved and paid amounts never exceed the limit, and the uncharged rest is released.
import t from "tap";
import { testApp } from "../helpers/app.ts";
import { market, PAYEE } from "./market.ts";
import { assertLedgerIsWallet, permit2Seller } from "./permit2-sellers.ts";
import { ourFacilitator } from "./stock-sellers.ts";

const LIMIT = 1_000_000n;
const ENV = { SETTLE_WAIT_MS: "25000" };

t.test("fifty at once at a limit", async (t) => {
  const one = await market(t, {
    listen: true,
    env: ENV,
    agent: { dailyLimit: "1", perPaymentLimit: "0.05" },
  });
  const { chain, database, agent } = one;
  const two = await testApp(t, { database, chain, env: ENV });
  const origin = await permit2Seller(t, {
    chain,
    payTo: PAYEE,
    facilitator: ourFacilitator(one.baseUrl),
  });
  for (const { config } of [one, two]) config.fetchPrivateOrigins.push(origin);

  const watch = { isOver: false };
  let most = 0n;
  const watching = (async () => {
    while (!watch.isOver) {
      const { rows } = await database.pool.query<{ sum: string }>(
        "SELECT coalesce(sum(amount), 0)::text AS sum FROM payments WHERE agent_id = $1 AND counted",
        [agent.id],
      );
      const sum = BigInt(rows[0]?.sum ?? "0");
      if (sum > most) most = sum;
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
  })();
  const before = await one.balanceOf(PAYEE);
  const answers = await Promise.all(
    Array.from({ length: 50 }, async (_, index) => {
      const send = () =>
        (index % 2 === 0 ? one : two).app.inject({
          method: "POST",
          url: "/api/agents/x402-fetch",
          headers: { ...agent.headers, "idempotency-key": `n${index}` },
          payload: JSON.stringify({ url: `${origin}/upto/${1_000 + index}` }),
        });
      const retryableCodes = ["agent_busy", "fetch_capacity"];
      let answer = await send();
      // A process runs only a limited number of fetches of one agent.
      while (retryableCodes.includes(answer.json<{ code?: string }>().code ?? "")) {
        await new Promise((resolve) => setTimeout(resolve, 100));
        answer = await send();
      }
      return { index, status: answer.statusCode, body: answer.json<Record<string, unknown>>() };
    }),
  );
  watch.isOver = true;
  await watching;
  const paid = answers.filter(({ status }) => status === 200);
  const denied = answers.filter(({ body }) => body["code"] === "daily_limit_exceeded");
  t.equal(
    paid.length + denied.length,
    50,
    JSON.stringify(answers.find((one) => !paid.includes(one) && !denied.includes(one))?.body),
  );
  t.ok(paid.length >= 20, `${paid.length}: as many maxima as the limit holds, at the least`);
  t.ok(most >= LIMIT / 2n, `sampled while amounts were reserved: ${most}`);
  t.ok(most <= LIMIT, `never more than the limit: ${most}`);
  const charged = paid.reduce((sum, { index }) => sum + 1_000n + BigInt(index), 0n);
  t.equal((await one.balanceOf(PAYEE)) - before, charged, "each was charged what was used");
  const me = await one.app.inject({ url: "/api/agents/me", headers: agent.headers });
  t.match(me.json(), { limits: { reserved: "0" } });
  await assertLedgerIsWallet(t, one);
  // The uncharged rest is available to others.
  t.match(await one.fetch({ url: `${origin}/upto/500` }), { status: 200, body: { paid: true } });
});
