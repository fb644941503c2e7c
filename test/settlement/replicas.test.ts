// Goal: any number of replicas share one queue: with one relayer key one of them sends at a time, with two keys both do, and nothing is paid twice.
import t from "tap";
import { testAccount, testChain } from "../helpers/chain.ts";
import { expectLedgerEqualsChain } from "../helpers/engine-invariants.ts";
import { authorize, payers, randomAddress, request, startEngine } from "../helpers/engine.ts";
import { testDatabase } from "../helpers/postgres.ts";
import { until } from "../helpers/until.ts";

const COUNT = 150;

for (const keys of [1, 2] as const) {
  t.test(`two replicas, ${keys} key(s)`, { timeout: 60_000 }, async (t) => {
    const chain = await testChain(t, { blockTimeSeconds: 0.5 });
    const database = await testDatabase(t);
    const secondKey = testAccount(2).privateKey;
    const start = (relayerPrivateKeys: `0x${string}`[]) =>
      startEngine(t, { databaseUrl: database.url, chain, relayerPrivateKeys });
    const one = await start([chain.relayerPrivateKey]);
    const other = await start([keys === 1 ? chain.relayerPrivateKey : secondKey]);
    const accounts = payers(COUNT);
    await chain.mint(
      accounts.map((account) => account.address),
      1_000n,
    );
    const to = randomAddress();
    const requests = await Promise.all(
      accounts.map(async (payer) => request(await authorize(chain, payer, { to }))),
    );
    // Each payment is submitted to both replicas at once, and one of them waits for the outcome.
    const outcomes = await Promise.all(
      requests.map(async (wanted) => {
        const [first, second] = await Promise.all([
          one.engine.settlement.accept(one.pool, wanted),
          other.engine.settlement.accept(other.pool, { ...wanted, id: `${wanted.id}x` }),
        ]);
        t.equal([first, second].filter(({ created }) => created).length, 1, "accepted once");
        t.equal(first.settlement.id, second.settlement.id, "both return the same one");
        return other.engine.settlement.wait(first.settlement.id, 30_000);
      }),
    );
    t.ok(outcomes.every((outcome) => outcome.status === "settled"));
    const balance = await chain.usdcOf(to);
    t.equal(balance, 1_000n * BigInt(COUNT));
    const { rows } = await database.pool.query(
      "SELECT DISTINCT lane_address FROM relayer_transactions",
    );
    if (keys === 1) t.equal(rows.length, 1);
    await expectLedgerEqualsChain(t, chain, database.pool);
  });
}

t.test("a lease passes on at once when its holder stops gracefully", async (t) => {
  const chain = await testChain(t, { blockTimeSeconds: 0.5 });
  const database = await testDatabase(t);
  // So long that the lease cannot pass on by expiry.
  const timings = { laneLeaseMs: 600_000 };
  const first = await startEngine(t, { databaseUrl: database.url, chain, timings });
  const isHeld = (node: typeof first) =>
    node.engine.chains.get(chain.chainId)?.lanes[0]?.held === true;
  await until(() => isHeld(first));
  const second = await startEngine(t, { databaseUrl: database.url, chain, timings });
  const [payer] = payers(1);
  if (!payer) throw new Error("no payer");
  await chain.mint(payer.address, 10_000n);
  const one = request(await authorize(chain, payer, { to: randomAddress() }));
  await second.engine.settlement.accept(second.pool, one);
  t.equal(
    (await second.engine.settlement.wait(one.id, 10_000)).status,
    "settled",
    "the holder was notified",
  );
  t.equal(isHeld(second), false);
  await first.stop();
  await until(() => isHeld(second), 30_000);
  const two = request(await authorize(chain, payer, { to: randomAddress() }));
  await second.engine.settlement.accept(second.pool, two);
  t.equal((await second.engine.settlement.wait(two.id, 10_000)).status, "settled");
  await expectLedgerEqualsChain(t, chain, database.pool);
});

t.test(
  "transactions signed with a key that left the configuration are finished",
  { timeout: 60_000 },
  async (t) => {
    const chain = await testChain(t, { blockTimeSeconds: 0.5 });
    const database = await testDatabase(t);
    // The old replica signs and stores, and hangs before it broadcasts.
    let isStored = false;
    let letGo: () => void = () => undefined;
    const held = new Promise<void>((resolve) => {
      letGo = resolve;
    });
    const old = await startEngine(t, {
      databaseUrl: database.url,
      chain,
      rpcTimeoutMs: 500,
      fault: async (point) => {
        if (point !== "persisted") return;
        isStored = true;
        await held;
      },
    });
    const [payer] = payers(1);
    if (!payer) throw new Error("no payer");
    await chain.mint(payer.address, 10_000n);
    const wanted = request(await authorize(chain, payer, { to: randomAddress() }));
    await old.engine.settlement.accept(old.pool, wanted);
    await until(() => isStored);
    await database.pool.query(
      "UPDATE relayer_lanes SET lease_until = '-infinity', lease_epoch = lease_epoch + 1",
    );
    const node = await startEngine(t, {
      databaseUrl: database.url,
      chain,
      relayerPrivateKeys: [testAccount(3).privateKey],
    });
    t.equal((await node.engine.settlement.wait(wanted.id, 20_000)).status, "settled");
    letGo();
    await expectLedgerEqualsChain(t, chain, database.pool);
  },
);
