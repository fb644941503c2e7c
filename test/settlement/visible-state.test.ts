// Goal: readiness and metrics show an operator what the engine does, and why it does nothing.
import t from "tap";
import { testApp } from "../helpers/app.ts";
import { testAccount } from "../helpers/chain.ts";
import { until } from "../helpers/until.ts";
import { authorize, payers, randomAddress, request } from "../helpers/engine.ts";

t.test("a funded relayer at work", async (t) => {
  const { app, chain } = await testApp(t);
  const [payer] = payers(1);
  if (!payer) throw new Error("no payer");
  await chain.mint(payer.address, 10_000n);
  const wanted = request(await authorize(chain, payer, { to: randomAddress() }));
  await app.settlement.accept(app.pool, wanted);
  t.equal((await app.settlement.wait(wanted.id, 15_000)).status, "settled");
  const ready = await app.inject("/api/ready");
  t.match(ready.json(), { parts: { [`relayer:eip155:${chain.chainId}`]: { ok: true } } });
  const metrics = await app.metrics.metrics();
  const label = `network="eip155:${chain.chainId}"`;
  t.match(metrics, `purser_settlements_total{${label},status="settled"} 1`);
  t.match(metrics, `purser_settlement_batch_size_count{${label}} 1`);
  t.match(metrics, `purser_settlement_queue{${label}} 0`);
  t.match(metrics, `purser_settlement_seconds_count{${label}} 1`);
  t.match(metrics, `purser_settlement_gas_count{${label}} 1`);
  t.match(metrics, /purser_lane_balance\{[^}]+\} (10000|9999\.)/);
  t.match(metrics, /purser_lane_held\{[^}]+\} 1/);
  t.match(metrics, /purser_rpc_calls_total\{[^}]*method="eth_sendRawTransactionSync"[^}]*\} 1/);

  // A probe may hang for seconds, in which the load balancer would send more clients.
  app.readiness.add("slow", () => new Promise(() => undefined));
  app.readiness.leave();
  const leaving = await app.inject("/api/ready");
  t.equal(leaving.statusCode, 503);
  t.same(leaving.json(), {
    ready: false,
    parts: { process: { ok: false, detail: "it is being stopped" } },
  });
});

t.test("a relayer that cannot pay for gas", async (t) => {
  const { app, chain, logs } = await testApp(t, {
    listen: true,
    env: { RELAYER_PRIVATE_KEYS: testAccount(99).privateKey },
  });
  const ready = await app.inject("/api/ready");
  t.equal(ready.statusCode, 503);
  const part = ready.json<{ parts: Record<string, { ok: boolean; detail: string }> }>().parts[
    `relayer:eip155:${chain.chainId}`
  ];
  const { address } = testAccount(99);
  t.match(part, { ok: false, detail: /cannot pay for gas/ });
  t.match(part?.detail, `Send USDC on Arc Testnet (eip155:${chain.chainId}) to ${address}.`);
  await t.rejects(app.settlement.assertAvailable(chain.chainId), {
    code: "relayer_unfunded",
    message: /^The relayer on Arc Testnet cannot pay for gas. Nothing was signed.$/,
  });
  await until(() => logs.some((line) => line.includes(`No gas: Send USDC on Arc Testnet`)));
  t.ok(
    logs.some((line) => line.includes(address)),
    "the start's log names the address",
  );
});
