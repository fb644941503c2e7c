// Goal: the facilitator's statistics match its work, and survive the end of a process.
import t from "tap";
import type { Address } from "viem";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
import { readDays, readTotals } from "../../server/plugins/merchants/store.ts";
import {
  readAllTime,
  readDayTotals,
  readHours,
  readRecent,
} from "../../server/plugins/facilitator/store.ts";
import { testApp } from "../helpers/app.ts";
import { CHANNELS } from "../helpers/batch-settlement.ts";
import { channelWorld } from "./channel-bodies.ts";
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

t.test(
  "of a payment channel, a deposit is a payment; claims, settles and refunds are not",
  async (t) => {
    const { app, chain, database } = await testApp(t);
    const world = channelWorld(chain);
    const seller = world.seller();
    const channel = await world.newChannel(seller);
    const settle = async (body: Awaited<ReturnType<typeof world.deposit>>) =>
      t.match(await post(app, "settle", body), { success: true });
    await settle(await world.deposit(channel));
    await settle(await world.claim([{ channel, total: 700n }]));
    await settle(world.settle(seller));
    await settle(await world.refund(channel, { amount: 9_300n }));
    const { rows } = await database.pool.query<{ kind: string; scheme: string }>(
      "SELECT kind, terms->>'scheme' AS scheme FROM settlements ORDER BY created_at",
    );
    t.same(
      rows,
      ["eip3009", "claim", "settle", "refund"].map((what) => ({
        kind: "facilitated",
        scheme: `channel-${what}`,
      })),
    );
    const { prisma } = app;
    t.match(await readDayTotals(prisma), { settled: 1, failed: 0, volume: 10_000n });
    t.match((await readHours(prisma)).at(-1), { settled: 1, failed: 0, volume: 10_000n });
    t.same(await readAllTime(prisma), { settled: 1, volume: 10_000n });
    const recent = await readRecent(prisma, 20);
    t.equal(recent.length, 1);
    t.match(recent, [
      {
        status: "settled",
        kind: "facilitated",
        chainId: BigInt(chain.chainId),
        fromAddress: channel.payer.address.toLowerCase(),
        toAddress: CHANNELS.toLowerCase(),
        value: 10_000n,
        txHash: /^0x[0-9a-f]{64}$/,
        createdAt: Date,
        settledAt: Date,
      },
    ]);
    // What reached the receiver came from the contract, and is no payment of anybody in its list.
    const address = seller.receiver.toLowerCase() as Address;
    const payee = { id: "own_receiver", address, chainId: 0 };
    t.match(await readTotals(prisma, payee, 1), { settled: 0, pending: 0, failed: 0, volume: 0n });
    t.match(await readDays(prisma, payee, 1), [{ settled: 0, failed: 0, volume: 0n }]);
  },
);
