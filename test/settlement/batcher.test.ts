// Goal: a batch goes through our batcher contract where its code is deployed, else through Multicall3, with the same proof; a payment that burns gas uses up only its own share.
import type { Pool } from "pg";
import t from "tap";
import { keccak256, type Hex } from "viem";
import { BATCHER_ADDRESS, BATCHER_CODE_HASH, NO_ANSWERS } from "../../server/core/batcher.ts";
import { MULTICALL3_ADDRESS } from "../../server/core/networks.ts";
import { ChainRpc } from "../../server/infra/chain/rpc.ts";
import { Batcher } from "../../server/plugins/settlement/batch.ts";
import { transferCalldata } from "../../server/schemes/exact-eip3009/onchain.ts";
import { unpackTransfers } from "../helpers/batcher-calls.ts";
import { balanceSlot, testChain, type TestChain } from "../helpers/chain.ts";
import { expectLedgerEqualsChain } from "../helpers/engine-invariants.ts";
import {
  authorize,
  payers,
  randomAddress,
  request,
  startEngine,
  type TestEngine,
} from "../helpers/engine.ts";
import { testDatabase } from "../helpers/postgres.ts";
import { rpcProxy } from "../helpers/rpc-proxy.ts";
import { until } from "../helpers/until.ts";

const COUNT = 12;
const BATCHER = BATCHER_ADDRESS.toLowerCase();
const MULTICALL3 = MULTICALL3_ADDRESS.toLowerCase();
/** Burns all gas it is given. */
const BURNER: Hex = "0x5b5f56";

async function paymentsOf(chain: TestChain) {
  const accounts = payers(COUNT);
  await chain.mint(
    accounts.map(({ address }) => address),
    10_000n,
  );
  const signed = accounts.map((payer, index) =>
    authorize(chain, payer, { to: randomAddress(), value: 1_000n + BigInt(index) }),
  );
  return (await Promise.all(signed)).map((one) => request(one));
}

/** Accepts all in one statement, so that one claim finds all of them. */
async function settleAll(node: TestEngine, wanted: Awaited<ReturnType<typeof paymentsOf>>) {
  const { settlement } = node.engine;
  await settlement.acceptAll(node.pool, wanted);
  const outcomes = await Promise.all(wanted.map(({ id }) => settlement.wait(id, 40_000)));
  return outcomes.map(({ status }) => status);
}
const all = (status: string): string[] => Array.from({ length: COUNT }, () => status);
const warnings = (node: TestEngine): string[] =>
  node.logs.flatMap(({ message }) => (message.includes("batcher") ? message : []));

async function sentTo(pool: Pool): Promise<string[]> {
  const { rows } = await pool.query<{ to_address: string }>(
    "SELECT to_address FROM relayer_transactions ORDER BY nonce",
  );
  return rows.map((row) => row.to_address);
}

t.jobs = 2;
t.test("through the batcher, and on without it", { timeout: 90_000 }, async (t) => {
  const chain = await testChain(t, { blockTimeSeconds: 0.5 });
  const database = await testDatabase(t);
  const node = await startEngine(t, { databaseUrl: database.url, chain });
  await until(() => node.engine.chains.get(chain.chainId)?.ctx.batcher.address !== undefined);
  const wanted = await paymentsOf(chain);
  t.same(await settleAll(node, wanted), all("settled"), node.logText());
  t.same(await sentTo(database.pool), [BATCHER]);
  const { rows } = await database.pool.query<{ calldata: Buffer }>(
    "SELECT calldata FROM relayer_transactions",
  );
  t.same(
    unpackTransfers(`0x${rows[0]?.calldata.toString("hex") ?? ""}`)
      ?.map(({ data }) => data)
      .sort(),
    wanted
      .map(({ authorization }) =>
        transferCalldata(authorization, authorization.signature).toLowerCase(),
      )
      .sort(),
    "the sent calls are the accepted payments",
  );

  // A payer with code burns the gas of the simulation. The batcher must not be taken for missing because of that.
  const burning = await paymentsOf(chain);
  const burner = burning.at(-1)?.authorization.from ?? "0x";
  await chain.testClient.setCode({ address: burner, bytecode: BURNER });
  const statuses = await settleAll(node, burning);
  t.equal(statuses.filter((status) => status === "settled").length, COUNT - 1, node.logText());
  t.same(warnings(node), []);
  const before = await sentTo(database.pool);
  t.same(before.slice(0, 2), [BATCHER, BATCHER]);

  // Remove the batcher's code: an account without code accepts every call and does nothing.
  const code = await chain.publicClient.getCode({ address: BATCHER_ADDRESS });
  await chain.testClient.setCode({ address: BATCHER_ADDRESS, bytecode: "0x" });
  t.same(await settleAll(node, await paymentsOf(chain)), all("settled"), node.logText());
  t.same(
    await sentTo(database.pool),
    [...before, MULTICALL3],
    "nothing was sent to the empty address",
  );
  t.match(warnings(node), [/no longer responds/]);
  t.equal(warnings(node).length, 1);
  await chain.testClient.setCode({ address: BATCHER_ADDRESS, bytecode: code as Hex });
  await expectLedgerEqualsChain(t, chain, database.pool);
});

t.test("a batcher that is deployed during a simulation does not carry that batch", async (t) => {
  const chain = await testChain(t, { blockTimeSeconds: 0.5 });
  const database = await testDatabase(t);
  const code = await chain.publicClient.getCode({ address: BATCHER_ADDRESS });
  await chain.testClient.setCode({ address: BATCHER_ADDRESS, bytecode: "0x" });
  const proxy = await rpcProxy(t, chain.rpcUrl);
  const node = await startEngine(t, { databaseUrl: database.url, chain, rpcUrls: [proxy.url] });
  const batcher = node.engine.chains.get(chain.chainId)?.ctx.batcher as Batcher;
  await until(() => warnings(node).length === 1);
  const deployed = async (): Promise<void> => {
    await chain.testClient.setCode({ address: BATCHER_ADDRESS, bytecode: code as Hex });
    await batcher.look();
  };
  let looked: Promise<void> | undefined;
  proxy.behave = ({ method, params: [call] }) => {
    const { to, maxFeePerGas } = (call ?? {}) as Record<string, string>;
    const isSimulation = method === "eth_call" && to === MULTICALL3_ADDRESS && maxFeePerGas;
    if (!isSimulation || looked) return { do: "pass" };
    return { do: "hold", forward: "before", until: (looked = deployed()) };
  };
  t.same(await settleAll(node, await paymentsOf(chain)), all("settled"), node.logText());
  t.equal(batcher.address, BATCHER_ADDRESS, "it is known by then");
  t.same(await sentTo(database.pool), [MULTICALL3], "and was not part of this simulation");
  t.same(await settleAll(node, await paymentsOf(chain)), all("settled"), node.logText());
  t.same(await sentTo(database.pool), [MULTICALL3, BATCHER]);
  await expectLedgerEqualsChain(t, chain, database.pool);
});

t.test("a payment that burns gas uses up its own share only", { timeout: 90_000 }, async (t) => {
  const chain = await testChain(t, { blockTimeSeconds: 0.5 });
  const database = await testDatabase(t);
  const wanted = await paymentsOf(chain);
  const burner = wanted[3]?.authorization.from ?? "0x";
  const spender = wanted[5]?.authorization.from ?? "0x";
  let isFirst = true;
  const node = await startEngine(t, {
    databaseUrl: database.url,
    chain,
    fault: async (point) => {
      if (point !== "signed" || !isFirst) return;
      isFirst = false;
      // After the simulation, in the block that includes the batch.
      await chain.testClient.setCode({ address: burner, bytecode: BURNER });
      await chain.testClient.setStorageAt({
        address: chain.usdc,
        index: balanceSlot(spender),
        value: `0x${"0".repeat(64)}`,
      });
    },
  });
  await until(() => node.engine.chains.get(chain.chainId)?.ctx.batcher.address !== undefined);
  const statuses = await settleAll(node, wanted);
  t.equal(statuses.filter((status) => status === "settled").length, COUNT - 2, node.logText());
  t.not(statuses[3], "settled");
  t.equal(statuses[5], "failed");
  const { rows } = await database.pool.query<{ count: number }>(
    `SELECT count(DISTINCT s.tx_hash)::int AS count FROM settlements s WHERE s.status = 'settled'`,
  );
  t.same(rows, [{ count: 1 }], "the other payments are in the first transaction");
  const { rows: offenders } = await database.pool.query("SELECT payer FROM lane_offenders");
  t.same(
    offenders,
    [{ payer: burner.toLowerCase() }],
    "only the payer with code is recorded as offender",
  );
  const { rows: alone } = await database.pool.query(
    "SELECT from_address FROM settlements WHERE solo AND from_address = $1",
    [spender.toLowerCase()],
  );
  t.equal(alone.length, 1, "the one that failed in a batch goes alone");
  await expectLedgerEqualsChain(t, chain, database.pool);
});

t.test("different code at its address is not used", { timeout: 60_000 }, async (t) => {
  const chain = await testChain(t, { blockTimeSeconds: 0.5 });
  const code = (await chain.publicClient.getCode({ address: BATCHER_ADDRESS })) ?? "0x";
  t.equal(keccak256(code), BATCHER_CODE_HASH);
  // Change one byte of the code.
  await chain.testClient.setCode({
    address: BATCHER_ADDRESS,
    bytecode: `${code.slice(0, -2)}00` as Hex,
  });
  const database = await testDatabase(t);
  const node = await startEngine(t, { databaseUrl: database.url, chain });
  t.same(await settleAll(node, await paymentsOf(chain)), all("settled"), node.logText());
  t.same(await sentTo(database.pool), [MULTICALL3]);
  t.match(warnings(node), [/has different code/]);
  t.equal(warnings(node).length, 1);
  await expectLedgerEqualsChain(t, chain, database.pool);
});

t.test("it is looked for until it is deployed, and its absence is logged once", async (t) => {
  let code: Hex | Error = new Error("the endpoint is down");
  const logged: string[] = [];
  const record = (_fields: object, message: string) => void logged.push(message);
  const call = async (method: string) => {
    if (code instanceof Error) throw code;
    return method === "eth_call" ? NO_ANSWERS : code;
  };
  const rpc = { call };
  const log = { info: record, warn: record, error: record };
  const network = { id: "eip155:1" as const };
  const batcher = new Batcher({ network, rpc: rpc as never, log, lookAgainMs: 5 });
  batcher.start();
  t.teardown(() => batcher.stop());
  await batcher.look();
  t.same(
    [batcher.address, logged],
    [undefined, []],
    "an endpoint that does not answer proves nothing",
  );
  code = "0x";
  await batcher.look();
  await batcher.look();
  t.match(logged, [/is not deployed/]);
  t.equal(logged.length, 1);
  const chain = await testChain(t);
  code = (await chain.publicClient.getCode({ address: BATCHER_ADDRESS })) ?? "0x";
  await until(() => batcher.address === BATCHER_ADDRESS);
  batcher.checkProbe({ success: true, data: NO_ANSWERS });
  t.equal(batcher.address, BATCHER_ADDRESS);
  code = "0x";
  for (const answer of [undefined, { success: false, data: NO_ANSWERS }] as const) {
    batcher.checkProbe(answer);
    t.equal(batcher.address, undefined);
  }
  t.match(logged.slice(1), [/no longer responds/], "after it was found, its loss is logged again");
  t.equal(logged.length, 2);
});

t.test("it is not used on a chain that lacks its opcodes", async (t) => {
  // Before PUSH0 existed: the code is there, but every call of it fails.
  const chain = await testChain(t, { flags: ["--hardfork=paris"] });
  const code = (await chain.publicClient.getCode({ address: BATCHER_ADDRESS })) ?? "0x";
  t.equal(keccak256(code), BATCHER_CODE_HASH);
  const logged: string[] = [];
  const record = (_fields: object, message: string) => void logged.push(message);
  const rpc = new ChainRpc({ urls: [chain.rpcUrl] });
  t.teardown(() => rpc.close());
  const network = { id: "eip155:1" as const };
  const batcher = new Batcher({ network, rpc, log: { warn: record } });
  await batcher.look();
  t.equal(batcher.address, undefined);
  t.match(logged, [/does not work on this chain/]);
  t.equal(logged.length, 1);
});
