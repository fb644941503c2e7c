// Goal: while the relayer cannot pay gas, nothing is reserved or signed, the caller gets the reason, and payments
// work again once it is funded.
import t from "tap";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
import { spendAs } from "../helpers/call.ts";
import { testApp } from "../helpers/app.ts";
import { createAgent, signIn } from "../helpers/owner.ts";
import { until } from "../helpers/until.ts";

t.test("a relayer without gas", async (t) => {
  const context = await testApp(t);
  const { app, chain, database } = context;
  const payee = privateKeyToAccount(generatePrivateKey()).address;
  const agent = await createAgent(context, await signIn(context), { allowlist: [payee] });
  await chain.mint(agent.walletAddress, 5_000_000n);
  const spend = () => spendAs(app, agent, { recipient: payee, amount: "1" });

  await chain.testClient.setBalance({ address: chain.relayer.address, value: 0n });
  // Readiness and the payment check read the same cached balance: wait until it is seen.
  const relayerIsReady = async (): Promise<boolean> =>
    (await app.inject("/api/ready")).json().parts[`relayer:eip155:${chain.chainId}`].ok;
  await until(async () => !(await relayerIsReady()), 20_000);
  const refused = await spend();
  t.equal(refused.statusCode, 503);
  t.match(refused.json(), { code: "relayer_unfunded", retryable: true });
  const { rows } = await database.pool.query(
    "SELECT count(*)::int AS open FROM payments WHERE status NOT IN ('settled', 'voided', 'blocked')",
  );
  t.equal(rows[0].open, 0, "nothing counts against the limit");

  await chain.testClient.setBalance({ address: chain.relayer.address, value: 10n ** 20n });
  await until(relayerIsReady, 20_000);
  t.equal((await spend()).statusCode, 200);
});
