// Goal: every payment of a batch is simulated before it is sent, also if it was simulated before; one that would fail costs no gas, and a payer with code goes alone.
import t, { type Test } from "tap";
import type { PrivateKeyAccount } from "viem/accounts";
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
  const requests: SettlementRequest[] = [];
  for (const payer of accounts) {
    const signed = await authorize(chain, payer, { to: randomAddress(), value: VALUE });
    requests.push(request(signed));
  }
  /** Accepts all at once, and mines until all have an outcome. */
  const settleAll = async () => {
    const { settlement } = node.engine;
    proxy.calls.length = 0;
    await settlement.acceptAll(node.pool, requests);
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
  return { chain, node, requests, settleAll, sentOf };
}

const all = (status: string, count = COUNT): string[] =>
  Array.from({ length: count }, () => status);

t.test("each payment of a batch is simulated", async (t) => {
  const { node, settleAll } = await engineWorld(t);
  const { tried, statuses } = await settleAll();
  t.same(statuses, all("settled"));
  t.same(node.batches, [COUNT]);
  t.equal(tried, COUNT);
});

t.test("payments without money are refused before they cost gas", async (t) => {
  const { chain, requests, settleAll, sentOf } = await engineWorld(t);
  await chain.mint(
    requests.slice(0, 3).map(({ authorization }) => authorization.from),
    -VALUE,
  );
  const { statuses } = await settleAll();
  t.same(statuses, [...all("failed", 3), ...all("settled", COUNT - 3)]);
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
