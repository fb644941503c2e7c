// Goal: third parties cannot make us spend gas without bound: gas per item, an unfunded relayer, a contract that burns gas or cheats.
import t from "tap";
import { testAccount, testChain } from "../helpers/chain.ts";
import { expectLedgerEqualsChain } from "../helpers/engine-invariants.ts";
import {
  authorize,
  payers,
  randomAddress,
  request,
  settle,
  startEngine,
} from "../helpers/engine.ts";
import { testDatabase } from "../helpers/postgres.ts";
import { rpcProxy } from "../helpers/rpc-proxy.ts";
import { until } from "../helpers/until.ts";

/** Burns all gas it is given: `JUMPDEST PUSH1 0 JUMP`. */
const BURNER = "0x5b600056";
/** One call with `authorizationState` of the token and `getEthBalance` of two relayers. */
const STATE_AND_BALANCES = /e94a0102.*4d2301cc.*4d2301cc/;

t.jobs = 3;
t.test(
  "an unfunded relayer signs nothing, and continues when it is funded",
  { timeout: 60_000 },
  async (t) => {
    const chain = await testChain(t, { blockTimeSeconds: 0.5 });
    const database = await testDatabase(t);
    const poor = testAccount(77);
    const node = await startEngine(t, {
      databaseUrl: database.url,
      chain,
      relayerPrivateKeys: [poor.privateKey],
    });
    await t.rejects(node.engine.settlement.assertAvailable(chain.chainId), {
      code: "relayer_unfunded",
    });
    const [payer] = payers(1);
    if (!payer) throw new Error("no payer");
    await chain.mint(payer.address, 10_000n);
    const wanted = request(await authorize(chain, payer, { to: randomAddress() }));
    t.match(await settle(node, wanted, 700), { status: "pending" });
    const { rows } = await database.pool.query(
      "SELECT count(*)::int AS count FROM relayer_attempts",
    );
    t.same(rows, [{ count: 0 }]);
    await until(() =>
      node.logs.some(({ level, message }) => level === "error" && /fund/.test(message)),
    );
    await chain.testClient.setBalance({ address: poor.address, value: 10n ** 18n });
    t.equal((await node.engine.settlement.wait(wanted.id, 15_000)).status, "settled");
    await until(async () => {
      await node.engine.settlement.assertAvailable(chain.chainId);
      return true;
    });
    await expectLedgerEqualsChain(t, chain, database.pool);
  },
);

t.test(
  "the relayers' balances are read with the token's state, each for its own lane",
  { timeout: 60_000 },
  async (t) => {
    const chain = await testChain(t);
    const database = await testDatabase(t);
    const proxy = await rpcProxy(t, chain.rpcUrl);
    const first = testAccount(77);
    const second = testAccount(78);
    const { engine } = await startEngine(t, {
      databaseUrl: database.url,
      chain,
      rpcUrls: [proxy.url],
      relayerPrivateKeys: [first.privateKey, second.privateKey],
      // Each check reads the state again. A balance that a lane read on its own would be outdated.
      timings: { chainStatusFreshMs: 0, balanceFreshMs: 3_600_000 },
    });
    const check = async (lane?: string): Promise<string> => {
      proxy.calls.length = 0;
      const result = await engine.settlement.assertAvailable(chain.chainId, { lane }).then(
        () => "available",
        (error: Error & { code?: string }) => error.code ?? error.message,
      );
      const reads = proxy.calls.filter(({ params }) =>
        STATE_AND_BALANCES.test(JSON.stringify(params)),
      );
      t.equal(reads.length, 1, "one call reads all");
      t.equal(proxy.count("eth_getBalance"), 0);
      return result;
    };
    const setBalance = (account: typeof first, value: bigint) =>
      chain.testClient.setBalance({ address: account.address, value });
    for (const [rich, poor] of [
      [first, second],
      [second, first],
    ] as const) {
      await setBalance(rich, 10n ** 18n);
      await setBalance(poor, 0n);
      t.equal(await check(rich.address), "available");
      t.equal(await check(poor.address), "relayer_unfunded");
      t.equal(await check(), "available", "one of them is enough");
    }
    await setBalance(second, 0n);
    t.equal(await check(), "relayer_unfunded");
  },
);

t.test("a wallet whose code burns all gas harms only itself", { timeout: 60_000 }, async (t) => {
  const chain = await testChain(t, { blockTimeSeconds: 0.5 });
  const database = await testDatabase(t);
  const node = await startEngine(t, { databaseUrl: database.url, chain });
  const accounts = payers(21);
  await chain.mint(
    accounts.map((account) => account.address),
    1_000n,
  );
  const [burner] = accounts;
  if (!burner) throw new Error("no payer");
  // The signature of an account with code is checked by ERC-1271, whatever its form.
  await chain.testClient.setCode({ address: burner.address, bytecode: BURNER });
  const requests = await Promise.all(
    accounts.map(async (payer) => request(await authorize(chain, payer, { to: randomAddress() }))),
  );
  const [bad, ...good] = await Promise.all(requests.map((wanted) => settle(node, wanted, 20_000)));
  t.equal(bad?.status, "failed");
  t.ok(
    good.every((outcome) => outcome.status === "settled"),
    node.logText(),
  );
  await expectLedgerEqualsChain(t, chain, database.pool);
});

t.test(
  "a wallet that starts to burn gas between the check and the send is tried at most twice",
  { timeout: 60_000 },
  async (t) => {
    const chain = await testChain(t, { blockTimeSeconds: 0.5 });
    const database = await testDatabase(t);
    const accounts = payers(21);
    const [burner] = accounts;
    if (!burner) throw new Error("no payer");
    let isFirst = true;
    const node = await startEngine(t, {
      databaseUrl: database.url,
      chain,
      fault: async (point) => {
        if (point !== "signed" || !isFirst) return;
        isFirst = false;
        await chain.testClient.setCode({ address: burner.address, bytecode: BURNER });
      },
    });
    await chain.mint(
      accounts.map((account) => account.address),
      1_000n,
    );
    const requests = await Promise.all(
      accounts.map(async (payer) =>
        request(await authorize(chain, payer, { to: randomAddress() })),
      ),
    );
    const [bad, ...good] = await Promise.all(
      requests.map((wanted) => settle(node, wanted, 30_000)),
    );
    t.equal(bad?.status, "failed");
    t.ok(
      good.every((outcome) => outcome.status === "settled"),
      node.logText(),
    );
    await expectLedgerEqualsChain(t, chain, database.pool);
  },
);
