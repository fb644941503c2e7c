// Goal: every transfer to an agent's wallet appears in its activity exactly once, also after downtime and with
// several readers.
import t from "tap";
import { parseAbi, type Address } from "viem";
import { testApp } from "../helpers/app.ts";
import { createAgent, signIn, type NewTestAgent } from "../helpers/owner.ts";
import { until } from "../helpers/until.ts";

const ERC20 = parseAbi(["function transfer(address to, uint256 value) returns (bool)"]);
const usdc = 1_000_000n;

const ctx = await testApp(t);
const { app, chain, database } = ctx;
const owner = await signIn(ctx);
const sender = chain.accounts[0];
if (!sender) throw new Error("no account");
await chain.mint(sender.address, 1_000n * usdc);

async function transfer(to: Address, amountAtomic: bigint, token = chain.usdc): Promise<void> {
  if (!sender) return;
  const hash = await chain.walletClient(sender).writeContract({
    address: token,
    abi: ERC20,
    functionName: "transfer",
    args: [to, amountAtomic],
  });
  await chain.publicClient.waitForTransactionReceipt({ hash });
}

/** Reads until no blocks are left. */
async function readAll(from: typeof app = app): Promise<void> {
  while (await from.reconciliation.read(chain.chainId));
}

async function incomingOf(agent: NewTestAgent): Promise<string[]> {
  const answer = await app.inject({
    url: "/api/agents/me/payments?kind=incoming",
    headers: agent.headers,
  });
  return answer.json<{ items: { amount: string }[] }>().items.map((item) => item.amount);
}

await readAll(); // Sets the cursor: transfers from before the service started are not imported.
const agent = await createAgent(ctx, owner, { dailyLimit: "1", allowlist: [] });

t.test("a transfer appears with its sender, hash and time", async (t) => {
  await transfer(agent.walletAddress, 5n * usdc);
  await readAll();
  const answer = await app.inject({ url: "/api/agents/me/payments", headers: agent.headers });
  t.match(answer.json(), {
    items: [
      {
        kind: "incoming",
        status: "settled",
        amount: "5",
        sender: sender.address,
        recipient: agent.walletAddress,
        txHash: /^0x[0-9a-f]{64}$/,
        settledAt: String,
      },
    ],
  });
  const me = await app.inject({ url: "/api/agents/me", headers: agent.headers });
  t.match(me.json(), { limits: { spent: "0", remaining: "1" } }, "it does not count as spending");
});

t.test("transfers of zero and to other wallets do not appear", async (t) => {
  await transfer(agent.walletAddress, 0n);
  await transfer(chain.relayer.address, usdc);
  await readAll();
  t.same(await incomingOf(agent), ["5"]);
});

t.test("after downtime, no transfer is missing or duplicated", async (t) => {
  for (const amount of [1n, 2n, 3n]) await transfer(agent.walletAddress, amount * usdc);
  const late = await createAgent(ctx, owner, { dailyLimit: "1", allowlist: [] });
  await transfer(late.walletAddress, 7n * usdc);
  // More than one range of blocks, in steps that a slow machine can mine in time.
  for (let step = 0; step < 21; step += 1) await chain.testClient.mine({ blocks: 100 });
  await transfer(agent.walletAddress, 4n * usdc);
  await readAll();
  await readAll();
  t.same((await incomingOf(agent)).sort(), ["1", "2", "3", "4", "5"]);
  t.same(await incomingOf(late), ["7"]);
});

t.test("several readers: each transfer appears once, and one holds the lease", async (t) => {
  const other = await testApp(t, { chain, database });
  for (let index = 0; index < 5; index += 1) {
    await transfer(agent.walletAddress, 10n * usdc);
    await Promise.all([readAll(), readAll(other.app)]);
  }
  await until(async () => {
    await readAll();
    return (await incomingOf(agent)).filter((amount) => amount === "10").length === 5;
  });
  const { rows } = await database.pool.query<{ owners: number }>(
    "SELECT count(DISTINCT lease_owner)::int AS owners FROM ledger_cursors",
  );
  t.equal(rows[0]?.owners, 1);
});

t.test("a chain that was rolled back is read again", async (t) => {
  const snapshot = await chain.testClient.snapshot();
  await chain.testClient.mine({ blocks: 3 });
  await readAll();
  await chain.testClient.revert({ id: snapshot });
  await transfer(agent.walletAddress, 20n * usdc);
  await chain.testClient.mine({ blocks: 6 });
  await readAll();
  t.equal((await incomingOf(agent)).filter((amount) => amount === "20").length, 1);
});
