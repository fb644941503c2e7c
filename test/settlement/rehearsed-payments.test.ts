// Goal: what was rehearsed at the newest block is not simulated again with its batch, but for one; and nothing is believed that the chain may see otherwise by now.
import t, { type Test } from "tap";
import { privateKeyToAccount, type PrivateKeyAccount } from "viem/accounts";
import type { SettlementRequest } from "../../server/plugins/settlement/types.ts";
import { testApp } from "../helpers/app.ts";
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
import { post, signedPayment } from "../facilitator/payments.ts";

const COUNT = 20;
const VALUE = 1_000n;
const BLOCK_EVERY_MS = 200;
/** ERC-1271's yes to everything. */
const YES = "0x631626ba7e60e01b60005260206000f3";
const TRANSFERS = /e3ee160e|cf092995/g;

t.jobs = 4;

/** A chain that stands still until it is told to go on: nothing becomes old by itself. */
async function world(t: Test) {
  const chain = await testChain(t);
  await chain.testClient.setAutomine(false);
  await chain.testClient.mine({ blocks: 1 });
  const proxy = await rpcProxy(t, chain.rpcUrl);
  return { chain, proxy };
}

/** Block by block. */
async function goOnUntil<T>({ testClient }: TestChain, ended: Promise<T>): Promise<T> {
  const mining = setInterval(() => void testClient.mine({ blocks: 1 }), BLOCK_EVERY_MS);
  return ended.finally(() => clearInterval(mining));
}

/** How many transfers the node was asked to try. */
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
  /** In this order, and at once: so they are claimed. */
  const acceptAll = async () => {
    const isAccepted = node.engine.settlement.expect(chain.chainId);
    await node.engine.settlement.acceptAll(node.pool, requests);
    isAccepted();
  };
  /** Then on until all have an end. */
  const settleAll = async () => {
    const { settlement } = node.engine;
    proxy.calls.length = 0;
    await acceptAll();
    // What is not sent with the first transaction is sent, refused or given back by then.
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
  /** How often each was in a transaction. */
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

t.test("at the newest block: one stands for all", async (t) => {
  const { node, settleAll } = await engineWorld(t);
  const { tried, statuses } = await settleAll();
  t.same(statuses, all("settled"));
  t.same(node.batches, [COUNT]);
  t.equal(tried, 1);
});

t.test("not rehearsed, or before the newest block: each is simulated", async (t) => {
  const { chain, node, requests, newest, settleAll } = await engineWorld(t);
  for (const [index, wanted] of requests.entries())
    if (index % 2 === 0) delete wanted.rehearsedBlock;
  await chain.testClient.mine({ blocks: 1 });
  t.ok((await node.heads.refresh()).number > newest);
  const { tried, statuses } = await settleAll();
  t.same(statuses, all("settled"));
  t.equal(tried, COUNT);
});

t.test("some rehearsed and some not: what was not is simulated", async (t) => {
  const { requests, settleAll } = await engineWorld(t);
  for (const wanted of requests.slice(0, 5)) delete wanted.rehearsedBlock;
  const { tried, statuses } = await settleAll();
  t.same(statuses, all("settled"));
  t.equal(tried, 6);
});

t.test("the one that stands for all is refused: nothing is believed any more", async (t) => {
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

t.test("whoever signed more than is there", async (t) => {
  const accounts = payers(COUNT - 1);
  const [twice] = accounts;
  if (!twice) throw new Error("nobody");
  const { settleAll, sentOf } = await engineWorld(t, [...accounts, twice]);
  const { statuses } = await settleAll();
  t.same(statuses.toSorted(), ["failed", ...all("settled", COUNT - 1)]);
  t.equal(await sentOf(0), 1, "the second one was seen before it cost gas");
});

t.test("whoever has enough for all that was signed is believed", async (t) => {
  const accounts = payers(COUNT - 1);
  const [twice] = accounts;
  if (!twice) throw new Error("nobody");
  const { chain, settleAll } = await engineWorld(t, [...accounts, twice]);
  await chain.mint(twice.address, VALUE);
  const { tried, statuses } = await settleAll();
  t.same(statuses, all("settled"));
  t.equal(tried, 1);
});

t.test("a payer that has code by now travels alone", async (t) => {
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

t.test("what was given back to the queue is not believed again", async (t) => {
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
  // It cannot pay: what it claimed, it gives back.
  await chain.testClient.setBalance({ address: relayer, value: 0n });
  await acceptAll();
  await until(async () => (await notes())?.noted === 0);
  t.same(await notes(), { noted: 0, count: COUNT });
  await chain.testClient.setBalance({ address: relayer, value: balance });
  const { statuses } = await settleAll();
  t.same(statuses, all("settled"));
});

t.test("a burst at the facilitator", { timeout: 60_000 }, async (t) => {
  const { chain, proxy } = await world(t);
  const { app } = await testApp(t, {
    chain: { ...chain, rpcUrl: proxy.url },
    // The newest block stays the newest, however long a busy machine takes.
    configure: (config) => {
      const [network] = config.networks;
      config.networks = [{ ...network, blockTimeMs: 30_000 }];
    },
  });
  const accounts = payers(COUNT);
  await chain.mint(
    accounts.map(({ address }) => address),
    VALUE,
  );
  const payTo = randomAddress();
  const bodies = await Promise.all(
    accounts.map((payer) => signedPayment({ chain, payer, payTo, amount: String(VALUE) })),
  );
  // As in a burst: then it is looked for which block is the newest.
  await chain.testClient.mine({ blocks: 1 });
  const newest = await chain.publicClient.getBlockNumber();
  const here = [app.settlement.expect(chain.chainId)];
  await until(() => {
    here.push(app.settlement.expect(chain.chainId));
    return app.settlement.newestBlock(chain.chainId) === newest;
  });
  proxy.calls.length = 0;
  const answers = Promise.all(bodies.map((body) => post(app, "settle", body)));
  for (const over of here) over();
  await until(() => proxy.calls.some(({ method }) => method.startsWith("eth_sendRaw")));
  const tried = triedIn(proxy.calls);
  for (const answer of await goOnUntil(chain, answers))
    t.equal(answer["success"], true, JSON.stringify(answer));
  // Each before it is accepted, and one for each batch.
  t.ok(tried < COUNT * 1.5, `${tried} transfers were tried`);
});
