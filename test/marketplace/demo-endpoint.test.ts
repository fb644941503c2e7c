// Goal: the demo endpoint sells live chain statistics, one response per payment even after a restart, and is listed
// from the first start.
import {
  decodePaymentRequiredHeader,
  decodePaymentResponseHeader,
  encodePaymentSignatureHeader,
} from "@x402/core/http";
import { wrapAxiosWithPayment } from "@x402/axios";
import { wrapFetchWithPayment } from "@x402/fetch";
import { create as createAxios } from "axios";
import t from "tap";
import { privateKeyToAddress } from "viem/accounts";
import type { ListingWire } from "../../server/schemas/listings.ts";
import { testApp, type TestApp } from "../helpers/app.ts";
import { testAccount, type TestChain } from "../helpers/chain.ts";
import { createAgent, signIn } from "../helpers/owner.ts";
import { until } from "../helpers/until.ts";
import { proofFor, stockClient } from "../paywall/stock.ts";

interface Stats {
  height: number;
  time: string;
  gasUsed: string;
  gasLimit: string;
  baseFee: string;
  transactions: number;
  meanBlockTimeSeconds: number | null;
}

const demoUrl = ({ baseUrl }: TestApp): string => `${baseUrl}/api/arc-stats`;
const termsOf = async (service: TestApp) => {
  const answer = await fetch(demoUrl(service));
  return decodePaymentRequiredHeader(answer.headers.get("payment-required") ?? "");
};
const receiptOf = (answer: Response) =>
  decodePaymentResponseHeader(answer.headers.get("payment-response") ?? "");
const balanceOf = (chain: TestChain, address: string) => chain.usdcOf(address as `0x${string}`);
const listings = async ({ app }: TestApp): Promise<ListingWire[]> =>
  (await app.inject("/api/listings")).json<{ items: ListingWire[] }>().items;

t.test("stock clients buy live statistics", async (t) => {
  const service = await testApp(t, { listen: true });
  const { chain } = service;
  const payer = testAccount(2);
  const payee = privateKeyToAddress(chain.relayerPrivateKey);
  await chain.mint(payer.address, 1_000_000n);
  const required = await termsOf(service);
  t.match(required.accepts, [{ amount: "1000", payTo: payee, network: "eip155:5042002" }]);

  const before = await balanceOf(chain, payee);
  const answer = await wrapFetchWithPayment(fetch, stockClient(chain, payer))(demoUrl(service));
  t.equal(answer.status, 200);
  t.equal(answer.headers.get("cache-control"), "no-store");
  const receipt = receiptOf(answer);
  const stats = (await answer.json()) as Stats;
  const paidIn = await chain.publicClient.getTransactionReceipt({
    hash: receipt.transaction as `0x${string}`,
  });
  // Read before the payment settles: its block is not included.
  t.ok(BigInt(stats.height) < paidIn.blockNumber && stats.height >= 0);
  const block = await chain.publicClient.getBlock({ blockNumber: BigInt(stats.height) });
  t.match(stats, {
    time: new Date(Number(block.timestamp) * 1000).toISOString(),
    gasUsed: block.gasUsed.toString(),
    gasLimit: block.gasLimit.toString(),
    baseFee: String(block.baseFeePerGas),
    transactions: block.transactions.length,
  });
  t.equal((await balanceOf(chain, payee)) - before, 1000n);

  const older = wrapAxiosWithPayment(createAxios(), stockClient(chain, payer) as never);
  const second = await older.get<Stats>(demoUrl(service));
  t.ok(second.data.height >= stats.height);
  t.type(second.data.meanBlockTimeSeconds, "number");
  t.equal((await balanceOf(chain, payee)) - before, 2000n);
});

t.test("one payment buys one response: in parallel, later, and after a restart", async (t) => {
  const service = await testApp(t, { listen: true });
  const { chain, database } = service;
  const payer = testAccount(3);
  await chain.mint(payer.address, 1_000_000n);
  const { headers } = await proofFor(chain, payer, await termsOf(service));
  const show = (to: TestApp) => fetch(demoUrl(to), { headers });

  const answers = await Promise.all(Array.from({ length: 20 }, () => show(service)));
  t.equal(answers.filter(({ status }) => status === 200).length, 1);
  const refused = answers.filter(({ status }) => status === 402);
  t.equal(refused.length, 19);
  for (const answer of refused) t.match(receiptOf(answer), { success: false });
  t.equal(await balanceOf(chain, payer.address), 999_000n);

  const again = await show(service);
  t.equal(again.status, 402);
  t.match(receiptOf(again), { success: false, errorReason: "duplicate_settlement" });
  t.equal(again.headers.get("cache-control"), "no-store");

  await service.app.close();
  const restarted = await testApp(t, { listen: true, chain, database });
  // Another origin is another resource; but the proof's terms still match, so only the facilitator's record refuses
  // it.
  const later = await show(restarted);
  t.equal(later.status, 402);
  t.match(receiptOf(later), { success: false, errorReason: "duplicate_settlement" });
  t.equal(await balanceOf(chain, payer.address), 999_000n);
});

t.test("a payment identifier of the payer buys no second response", async (t) => {
  const service = await testApp(t, { listen: true });
  const { chain } = service;
  const payer = testAccount(6);
  await chain.mint(payer.address, 1_000_000n);
  const { payload } = await proofFor(chain, payer, await termsOf(service));
  // With this extension, a facilitator may repeat its response to the same caller. Here the caller is the paywall,
  // and the identifier comes from the client that shows the proof.
  const extensions = {
    ...payload.extensions,
    "payment-identifier": { info: { required: false, id: "pay_0123456789abcdef" }, schema: {} },
  };
  const header = encodePaymentSignatureHeader({ ...payload, extensions });
  const show = () => fetch(demoUrl(service), { headers: { "payment-signature": header } });
  const answers = await Promise.all(Array.from({ length: 8 }, show));
  t.equal(answers.filter(({ status }) => status === 200).length, 1);
  t.equal((await show()).status, 402);
});

t.test("one payment buys one response, on any replica", async (t) => {
  const first = await testApp(t, { listen: true });
  const { chain, database } = first;
  const second = await testApp(t, { listen: true, chain, database });
  const payer = testAccount(5);
  await chain.mint(payer.address, 1_000_000n);
  for (let round = 1n; round <= 3n; round += 1n) {
    const { headers } = await proofFor(chain, payer, await termsOf(first));
    const answers = await Promise.all(
      Array.from({ length: 12 }, (_, index) =>
        fetch(demoUrl(index % 2 === 0 ? first : second), { headers }),
      ),
    );
    t.equal(answers.filter(({ status }) => status === 200).length, 1);
    t.equal(answers.filter(({ status }) => status === 402).length, 11);
    t.equal(await balanceOf(chain, payer.address), 1_000_000n - round * 1000n);
  }
});

t.test("an agent buys it through its listing, and the use is counted", async (t) => {
  const service = await testApp(t, {
    listen: true,
    configure: (config) => {
      config.local = {
        faucetPrivateKey: testAccount(0).privateKey,
        demoOwnerPrivateKey: testAccount(901).privateKey,
      };
      config.fetchPrivateOrigins.push(config.publicUrl);
    },
  });
  const { app, chain } = service;
  const payTo = privateKeyToAddress(chain.relayerPrivateKey);
  const agent = await createAgent(service, await signIn(service), { allowlist: [payTo] });
  await chain.mint(agent.walletAddress, 1_000_000n);
  await until(async () => (await listings(service)).length > 0);
  const [listing] = await listings(service);
  const answer = await app.inject({
    method: "POST",
    url: "/api/agents/x402-fetch",
    headers: agent.headers,
    payload: JSON.stringify({ listingId: listing?.id, detail: "full" }),
  });
  t.match(answer.json(), { paid: true, amountPaid: "0.001", delivered: true, payTo, status: 200 });
  t.match(answer.json<{ data: Stats }>().data, { network: "eip155:5042002", height: Number });
  await until(async () => (await listings(service))[0]?.uses === 1);
});

t.test("nothing is charged while the chain is unreachable", async (t) => {
  const service = await testApp(t, { listen: true });
  const { chain } = service;
  const payer = testAccount(4);
  await chain.mint(payer.address, 1_000_000n);
  const { headers } = await proofFor(chain, payer, await termsOf(service));
  await chain.stop();
  const answer = await fetch(demoUrl(service), { headers });
  t.equal(answer.status, 503);
  t.match(await answer.json(), { code: "chain_unavailable" });
  await chain.start();
  t.equal(await balanceOf(chain, payer.address), 1_000_000n);
  t.equal(
    (await fetch(demoUrl(service), { headers })).status,
    200,
    "the same proof is served afterwards",
  );
});

t.test("listed from the first start, once, and updated when its URL changes", async (t) => {
  const service = await testApp(t, { listen: true });
  const { chain, database } = service;
  await until(async () => (await listings(service)).length > 0);
  const replicas = await Promise.all([
    testApp(t, { chain, database, env: { PUBLIC_URL: service.baseUrl } }),
    testApp(t, { chain, database, env: { PUBLIC_URL: service.baseUrl } }),
  ]);
  await Promise.all(replicas.map(({ app }) => app.listings.refreshBuiltIns()));
  const [first, ...more] = await listings(service);
  t.same(more, []);
  t.match(first, {
    source: "built-in",
    mine: false,
    url: `${service.baseUrl}/api/arc-stats`,
    price: "0.001",
    payTo: privateKeyToAddress(chain.relayerPrivateKey),
    status: "active",
  });

  const payTo = testAccount(8).address;
  const moved = await testApp(t, {
    chain,
    database,
    env: { PUBLIC_URL: "https://purser.example", DEMO_PAY_TO: payTo },
  });
  await moved.app.listings.refreshBuiltIns();
  t.match(await listings(moved), [
    { id: first?.id, url: "https://purser.example/api/arc-stats", host: "purser.example", payTo },
  ]);
});
