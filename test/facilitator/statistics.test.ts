// Goal: the facilitator's statistics match its work, and survive the end of a process.
import t from "tap";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
import { testApp } from "../helpers/app.ts";
import { post, signedPayment } from "./payments.ts";

t.test("statistics", async (t) => {
  const { app, chain, database } = await testApp(t);
  const payer = privateKeyToAccount(generatePrivateKey());
  const payTo = privateKeyToAccount(generatePrivateKey()).address;
  await chain.mint(payer.address, 1_000_000n);
  const empty = (await app.inject("/api/x402/stats")).json();
  t.match(empty, {
    last24h: {
      verified: 0,
      settled: 0,
      failed: 0,
      volume: "0",
      successRate: null,
      medianSettleMs: null,
    },
    allTime: { settled: 0, volume: "0" },
    recent: [],
    relayers: [{ address: chain.relayer.address, low: false, gasSymbol: "USDC" }],
  });
  t.equal(empty.hourly.length, 24);

  const bodies = await Promise.all(
    Array.from({ length: 3 }, () => signedPayment({ chain, payer, payTo, amount: "250000" })),
  );
  for (const body of bodies) {
    await post(app, "verify", body);
    t.match(await post(app, "settle", body), { success: true });
  }
  await post(app, "verify", {});
  const metrics = await app.metrics.metrics();
  t.match(metrics, /purser_x402_requests_total\{operation="verify",outcome="valid"\} 3/);
  t.match(metrics, /purser_x402_requests_total\{operation="verify",outcome="invalid_payload"\} 1/);
  t.match(metrics, /purser_x402_requests_total\{operation="settle",outcome="settled"\} 3/);
  t.match(metrics, /purser_x402_seconds_count\{operation="settle"\} 3/);
  await app.close();

  // Another process, so that nothing can come from memory.
  const next = await testApp(t, { database, chain });
  const stats = (await next.app.inject("/api/x402/stats")).json();
  t.match(stats, {
    last24h: { verified: 4, settled: 3, failed: 0, volume: "0.75", successRate: 1 },
    allTime: { settled: 3, volume: "0.75" },
    batchSizes: [{ size: 1, count: 3 }],
  });
  t.type(stats.last24h.medianSettleMs, "number");
  t.match(stats.hourly.at(-1), { settled: 3, volume: "0.75" });
  t.equal(stats.recent.length, 3);
  t.match(stats.recent[0], {
    kind: "facilitated",
    status: "settled",
    from: payer.address,
    to: payTo,
    amount: "0.25",
  });
});
