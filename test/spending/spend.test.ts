// Goal: an agent's spend moves exactly its amount, and the response follows the documented contract.
import t from "tap";
import { privateKeyToAccount, generatePrivateKey } from "viem/accounts";
import { testApp } from "../helpers/app.ts";
import { createAgent, signIn } from "../helpers/owner.ts";
import { usdcOf } from "./ledger.helper.ts";

const ctx = await testApp(t);
const { app, chain } = ctx;
const owner = await signIn(ctx);
const payee = privateKeyToAccount(generatePrivateKey()).address;
const usdc = 1_000_000n;

const spend = (headers: Record<string, string>, body: unknown, key?: string) =>
  app.inject({
    method: "POST",
    url: "/api/agents/spend",
    headers: { ...headers, ...(key === undefined ? {} : { "idempotency-key": key }) },
    payload: JSON.stringify(body),
  });

t.test("pays and returns the remaining limit", async (t) => {
  const agent = await createAgent(ctx, owner, { dailyLimit: "10", allowlist: [payee] });
  await chain.mint(agent.walletAddress, 5n * usdc);
  const answer = await spend(agent.headers, { recipient: payee, amount: "1.50", memo: "lunch" });
  t.equal(answer.statusCode, 200, answer.body);
  const body = answer.json();
  t.match(body, {
    success: true,
    recipient: payee,
    amount: "1.5",
    network: "eip155:5042002",
    remaining: "8.5",
    txHash: /^0x[0-9a-f]{64}$/,
  });
  t.equal(await usdcOf(ctx, payee), 1_500_000n);
  const me = await app.inject({ url: "/api/agents/me", headers: agent.headers });
  t.match(me.json(), {
    wallet: agent.walletAddress,
    balance: "3.5",
    limits: { limit: "10", spent: "1.5", reserved: "0", remaining: "8.5" },
    allowlist: [{ address: payee }],
  });
  const list = await app.inject({ url: "/api/agents/me/payments", headers: agent.headers });
  t.match(list.json(), { items: [{ id: body.paymentId, status: "settled", memo: "lunch" }] });
});
