// Goal: payments that were simulated at the newest block are not all simulated again with their batch, only one of them is; and no simulation is trusted that may be outdated.
import t, { type Test } from "tap";
import { privateKeyToAccount, type PrivateKeyAccount } from "viem/accounts";
import type { SettlementRequest } from "../../server/plugins/settlement/types.ts";
import { testChain, type TestChain } from "../helpers/chain.ts";
import { expectLedgerEqualsChain } from "../helpers/engine-invariants.ts";
import {
  authorize,
  BRISK,
  payers,
  randomAddress,
  request,
  startEngine,
} from "../helpers/engine.ts";
import { testDatabase } from "../helpers/postgres.ts";
import { rpcProxy, type RpcCall } from "../helpers/rpc-proxy.ts";
import { until } from "../helpers/until.ts";

const COUNT = 20;
const VALUE = 1_000n;
const BLOCK_EVERY_MS = 200;
/** An ERC-1271 wallet that accepts every signature. */
const YES = "0x631626ba7e60e01b60005260206000f3";
const TRANSFERS = /e3ee160e|cf092995/g;

t.jobs = 4;

/** A chain that mines only on request, so that nothing becomes outdated by itself. */
async function world(t: Test) {
  const chain = await testChain(t);
  await chain.testClient.setAutomine(false);
  await chain.testClient.mine({ blocks: 1 });
  const proxy = await rpcProxy(t, chain.rpcUrl);
  return { chain, proxy };
}

/** Mines until the promise is settled. */
async function goOnUntil<T>({ testClient }: TestChain, ended: Promise<T>): Promise<T> {
  const mining = setInterval(() => void testClient.mine({ blocks: 1 }), BLOCK_EVERY_MS);
  return ended.finally(() => clearInterval(mining));
}

/** The number of transfers that the node was called to simulate. */
const triedIn = (calls: readonly RpcCall[]): number =>
  calls
    .filter(({ method }) => method === "eth_call")
    .reduce((sum, { params }) => sum + (JSON.stringify(params).match(TRANSFERS)?.length ?? 0), 0);

async function engineWorld(t: Test, accounts: readonly PrivateKeyAccount[] = payers(COUNT)) {
  const { chain, proxy } = await world(t);
  const database = await testDatabase(t);
  const node = await startEngine(t, {
    databaseUrl: database.url,
    chain: { ...chain, rpcUrl: proxy.url },
    blockTimeMs: 2_000,
    timings: BRISK,
  });
  await chain.mint([...new Set(accounts.map(({ address }) => address))], VALUE);
  const { number: newest } = await node.heads.refresh();
  const requests: SettlementRequest[] = [];
  for (const payer of accounts) {
    const signed = await authorize(chain, payer, { to: randomAddress(), value: VALUE });
    requests.push({ ...request(signed), rehearsedBlock: newest });
  }
  /** Accepts all at once, in this order, so that they are claimed in this order. */
  const acceptAll = async () => {
    const isAccepted = node.engine.settlement.expect(chain.chainId);
    await node.engine.settlement.acceptAll(node.pool, requests);
    isAccepted();
  };
  /** Then mines until all have an outcome. */
  const settleAll = async () => {
    const { settlement } = node.engine;
    proxy.calls.length = 0;
    await acceptAll();
    // By then every payment that is not in the first transaction was sent, refused or returned to the queue.
    await until(async () => {
      const { rows } = await node.pool.query<{ count: number }>(
        "SELECT count(*)::int AS count FROM settlements WHERE status = 'queued' AND lane_address IS NOT NULL",
      );
      return node.batches.length > 0 && rows[0]?.count === 0;
    });
    const tried = triedIn(proxy.calls);
    const ends = Promise.all(requests.map(({ id }) => settlement.wait(id, 30_000)));
    const outcomes = await goOnUntil(chain, ends);
    await expectLedgerEqualsChain(t, chain, database.pool);
    return { tried, statuses: outcomes.map(({ status }) => status) };
  };
  /** The number of transactions that contained this payment. */
  const sentOf = async (index: number): Promise<number> => {
    const { rows } = await node.pool.query<{ count: number }>(
      "SELECT count(*)::int AS count FROM settlement_transactions WHERE from_address = $1",
      [requests[index]?.authorization.from.toLowerCase()],
    );
    return rows[0]?.count ?? 0;
  };
  return { chain, node, requests, newest, acceptAll, settleAll, sentOf };
}

const all = (status: string, count = COUNT): string[] =>
  Array.from({ length: count }, () => status);

t.test("at the newest block: one simulation stands for all", async (t) => {
  const { node, settleAll } = await engineWorld(t);
  const { tried, statuses } = await settleAll();
  t.same(statuses, all("settled"));
  t.same(node.batches, [COUNT]);
  t.equal(tried, 1);
});

t.test("not simulated before, or at an older block: each is simulated", async (t) => {
  const { chain, node, requests, newest, settleAll } = await engineWorld(t);
  for (const [index, wanted] of requests.entries())
    if (index % 2 === 0) delete wanted.rehearsedBlock;
  await chain.testClient.mine({ blocks: 1 });
  t.ok((await node.heads.refresh()).number > newest);
  const { tried, statuses } = await settleAll();
  t.same(statuses, all("settled"));
  t.equal(tried, COUNT);
});

t.test("some simulated before and some not: the others are simulated now", async (t) => {
  const { requests, settleAll } = await engineWorld(t);
  for (const wanted of requests.slice(0, 5)) delete wanted.rehearsedBlock;
  const { tried, statuses } = await settleAll();
  t.same(statuses, all("settled"));
  t.equal(tried, 6);
});

t.test("the representative is refused: all are simulated", async (t) => {
  const { chain, requests, settleAll, sentOf } = await engineWorld(t);
  await chain.mint(
    requests.slice(0, 3).map(({ authorization }) => authorization.from),
    -VALUE,
  );
  const { tried, statuses } = await settleAll();
  t.same(statuses, [...all("failed", 3), ...all("settled", COUNT - 3)]);
  t.ok(tried >= 1 + COUNT, `${tried}`);
  for (const index of [0, 1, 2]) t.equal(await sentOf(index), 0, "and it cost no gas");
});

t.test("a payer that signed more than its balance", async (t) => {
  const accounts = payers(COUNT - 1);
  const [twice] = accounts;
  if (!twice) throw new Error("no account");
  const { settleAll, sentOf } = await engineWorld(t, [...accounts, twice]);
  const { statuses } = await settleAll();
  t.same(statuses.toSorted(), ["failed", ...all("settled", COUNT - 1)]);
  t.equal(await sentOf(0), 1, "the second one was found before it cost gas");
});

t.test("a payer with enough balance for all its payments needs no extra simulation", async (t) => {
  const accounts = payers(COUNT - 1);
  const [twice] = accounts;
  if (!twice) throw new Error("no account");
  const { chain, settleAll } = await engineWorld(t, [...accounts, twice]);
  await chain.mint(twice.address, VALUE);
  const { tried, statuses } = await settleAll();
  t.same(statuses, all("settled"));
  t.equal(tried, 1);
});

t.test("a payer that has code by now goes alone", async (t) => {
  const { chain, node, requests, settleAll } = await engineWorld(t);
  const address = requests[7]?.authorization.from ?? "0x";
  await chain.testClient.setCode({ address, bytecode: YES });
  const { statuses } = await settleAll();
  t.same(statuses, all("settled"));
  t.same(
    node.batches.toSorted((one, other) => one - other),
    [1, COUNT - 1],
  );
});

t.test("a payment that was returned to the queue is simulated again", async (t) => {
  const { chain, node, acceptAll, settleAll } = await engineWorld(t);
  const { pool } = node;
  const notes = async () =>
    (
      await pool.query<{ noted: number; count: number }>(
        "SELECT count(rehearsed_block)::int AS noted, count(*)::int AS count FROM settlements",
      )
    ).rows[0];
  const relayer = privateKeyToAccount(chain.relayerPrivateKey).address;
  const balance = await chain.publicClient.getBalance({ address: relayer });
  // The relayer cannot pay for gas, so it returns its claims.
  await chain.testClient.setBalance({ address: relayer, value: 0n });
  await acceptAll();
  await until(async () => (await notes())?.noted === 0);
  t.same(await notes(), { noted: 0, count: COUNT });
  await chain.testClient.setBalance({ address: relayer, value: balance });
  const { statuses } = await settleAll();
  t.same(statuses, all("settled"));
});
