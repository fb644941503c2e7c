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
import { until } from "../helpers/until.ts";

/** Burns all gas it is given: `JUMPDEST PUSH1 0 JUMP`. */
const BURNER = "0x5b600056";

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
