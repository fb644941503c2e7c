// A service whose reconciliation runs when the test calls it, and the ways in which ledger and chain can differ.
import type { Test } from "tap";
import { parseAbi, type Address, type Hex } from "viem";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
import type { SignedAuthorization } from "../../server/core/authorization.ts";
import type { Timings } from "../../server/core/timings.ts";
import { newId } from "../../server/core/ids.ts";
import { spendAs } from "../helpers/call.ts";
import { testApp, type TestApp, type TestAppOptions } from "../helpers/app.ts";
import { randomNonce, TOKEN_ABI } from "../helpers/engine.ts";
import { createAgent, signIn, type NewTestAgent, type SignedInOwner } from "../helpers/owner.ts";
import { until } from "../helpers/until.ts";

export const usdc = 1_000_000n;
const ERC20 = parseAbi(["function transfer(address to, uint256 value) returns (bool)"]);

export interface ReconciliationWorld extends TestApp {
  owner: SignedInOwner;
  agent: NewTestAgent;
  payee: Address;
}

const NEVER_MS = 3_600_000;
/**
 * Reconciliation runs only when the test calls it, and an absence lasts as long as the test says (`untilRead`,
 * `readMore`).
 */
export const RECONCILIATION_TIMINGS = {
  reconcileRoundMs: NEVER_MS,
  reconcileOpenMs: NEVER_MS,
  reconcileAbsentMs: NEVER_MS,
  reconcileLookBackMs: NEVER_MS,
  watchRoundMs: 50,
} as const satisfies Partial<Timings>;

export async function reconciliationWorld(
  t: Pick<Test, "teardown">,
  options: TestAppOptions & { dailyLimit?: string } = {},
): Promise<ReconciliationWorld> {
  const ctx = await testApp(t as Test, { timings: RECONCILIATION_TIMINGS, ...options });
  await reconcile(ctx); // Transfers from before the service started are not imported.
  return withAgent(ctx, options.dailyLimit);
}

/** One more owner with an agent, on the same service. */
export async function withAgent(ctx: TestApp, dailyLimit = "10"): Promise<ReconciliationWorld> {
  const owner = await signIn(ctx);
  const payee = privateKeyToAccount(generatePrivateKey()).address;
  const agent = await createAgent(ctx, owner, { dailyLimit, allowlist: [payee] });
  await ctx.chain.mint(agent.walletAddress, 100n * usdc);
  return { ...ctx, owner, agent, payee };
}

/** Reads until no more blocks can be read now. */
export async function reconcile({ app, chain }: Pick<TestApp, "app" | "chain">): Promise<void> {
  // Blocks that a test mines have no regular schedule, so read the newest one.
  await app.chainReads
    .of(chain.chainId)
    .heads.refresh()
    .catch(() => undefined);
  while (await app.reconciliation.read(chain.chainId));
}

export const spend = (
  { app, agent, payee }: Pick<ReconciliationWorld, "app" | "agent" | "payee">,
  amount: string,
) => spendAs(app, agent, { recipient: payee, amount });

/**
 * An agent's x402 payment after its proof was sent to the seller: signed and counted, but not relayed by this
 * service.
 */
export async function sentToSeller(
  ctx: ReconciliationWorld,
  args: { amount: bigint; validForSeconds?: number },
): Promise<{ id: string; authorization: SignedAuthorization }> {
  const { app, agent, chain, payee, database } = ctx;
  const id = newId("pay");
  const authorization = {
    chainId: chain.chainId,
    asset: chain.usdc.toLowerCase() as Address,
    from: agent.walletAddress.toLowerCase() as Address,
    to: payee.toLowerCase() as Address,
    value: args.amount,
    validAfter: 0n,
    validBefore: BigInt(Math.floor(Date.now() / 1000) + (args.validForSeconds ?? 600)),
    nonce: randomNonce(),
  };
  const signature = await app.custody.signAuthorization(agent.id, authorization, {
    kind: "policy",
  });
  const signed = { ...authorization, signature };
  await database.pool.query(
    `WITH a AS (UPDATE agents SET window_sum = window_sum + $6 WHERE id = $1)
     INSERT INTO payments (agent_id, id, kind, status, chain_id, asset, counterparty, amount, nonce, valid_before)
     VALUES ($1, $2, 'x402', 'submitted', $3, $4, $5, $6, $7, $8)`,
    [
      agent.id,
      id,
      chain.chainId,
      authorization.asset,
      authorization.to,
      String(args.amount),
      authorization.nonce,
      String(authorization.validBefore),
    ],
  );
  await app.settlement.accept(app.pool, {
    id,
    kind: "x402",
    agentId: agent.id,
    authorization: signed,
    relay: false,
  });
  return { id, authorization: signed };
}

/** A third party relays it. */
export async function relay(
  { chain }: Pick<TestApp, "chain">,
  authorization: SignedAuthorization,
): Promise<Hex> {
  const [relayer] = chain.accounts;
  if (!relayer) throw new Error("no account");
  const { from, to, value, validAfter, validBefore, signature } = authorization;
  const nonce = authorization.nonce as Hex;
  const hash = await chain.walletClient(relayer).writeContract({
    address: chain.usdc,
    abi: TOKEN_ABI,
    functionName: "transferWithAuthorization",
    args: [from, to, value, validAfter, validBefore, nonce, signature],
  });
  await chain.publicClient.waitForTransactionReceipt({ hash });
  return hash;
}

/** Moves money with the wallet's own key, like a thief. */
export async function stealFrom(
  { chain }: Pick<TestApp, "chain">,
  wallet: Address,
  amount: bigint,
): Promise<Hex> {
  await chain.testClient.impersonateAccount({ address: wallet });
  await chain.testClient.setBalance({ address: wallet, value: 10n ** 18n });
  const hash = await chain.testClient.request({
    method: "eth_sendTransaction",
    params: [
      {
        from: wallet,
        to: chain.usdc,
        data: transferData(privateKeyToAccount(generatePrivateKey()).address, amount),
      },
    ],
  } as never);
  await chain.publicClient.waitForTransactionReceipt({ hash });
  return hash;
}

const transferData = (to: Address, amount: bigint): Hex =>
  `0xa9059cbb${to.slice(2).toLowerCase().padStart(64, "0")}${amount.toString(16).padStart(64, "0")}`;

export async function sendTo(
  { chain }: Pick<TestApp, "chain">,
  to: Address,
  amount: bigint,
): Promise<Hex> {
  const [sender] = chain.accounts;
  if (!sender) throw new Error("no account");
  const hash = await chain.walletClient(sender).writeContract({
    address: chain.usdc,
    abi: ERC20,
    functionName: "transfer",
    args: [to, amount],
  });
  await chain.publicClient.waitForTransactionReceipt({ hash });
  return hash;
}

interface Difference {
  kind: string;
  repaired: boolean;
  tx_hash: `0x${string}` | null;
  detail: Record<string, unknown>;
}

/** The differences of this agent, if given, and those without an agent. */
export async function differences({
  database,
  agent,
}: Pick<TestApp, "database"> & { agent?: { id: string } }): Promise<Difference[]> {
  const { rows } = await database.pool.query<Difference>(
    `SELECT kind, healed_at IS NOT NULL AS repaired, tx_hash, detail FROM ledger_differences
      WHERE $1::text IS NULL OR agent_id IS NULL OR agent_id = $1 ORDER BY seen_at`,
    [agent?.id],
  );
  return rows;
}

export async function settlementOf({ database }: Pick<TestApp, "database">, id: string) {
  const { rows } = await database.pool.query<{
    status: string;
    tx_hash: Hex | null;
    payment: string | null;
  }>(
    `SELECT s.status, s.tx_hash, p.status AS payment FROM settlements s
       LEFT JOIN payments p ON p.agent_id = s.agent_id AND p.id = s.id WHERE s.id = $1`,
    [id],
  );
  return rows[0];
}

/** Reads until the condition holds, with every absence counted as long. */
export const untilRead = (ctx: TestApp, condition: () => Promise<boolean>): Promise<void> =>
  longAbsent(ctx, () =>
    until(async () => {
      await reconcile(ctx);
      return condition();
    }, 20_000),
  );

/** Reads a few more times, with every absence counted as long. */
export const readMore = (ctx: TestApp): Promise<void> =>
  longAbsent(ctx, async () => {
    for (let pass = 0; pass < 4; pass += 1) await reconcile(ctx);
  });

async function longAbsent(
  { config: { timings } }: TestApp,
  read: () => Promise<void>,
): Promise<void> {
  const { reconcileAbsentMs } = timings;
  timings.reconcileAbsentMs = 0;
  try {
    await read();
  } finally {
    timings.reconcileAbsentMs = reconcileAbsentMs;
  }
}

export const alarms = ({ logs }: Pick<TestApp, "logs">): string[] =>
  logs.flatMap((line) => {
    const { alarm, level } = JSON.parse(line) as { alarm?: string; level: number };
    return alarm?.startsWith("ledger_") && level >= 50 ? [alarm] : [];
  });

interface LedgerView {
  ledger: {
    network: string;
    equalsChain: boolean | null;
    asOfBlock: string | null;
    differences: { kind: string; txHash: string | null }[];
  }[];
}

export const overview = async ({ app, owner }: Pick<ReconciliationWorld, "app" | "owner">) =>
  (await app.inject({ url: "/api/overview", headers: owner.headers })).json<LedgerView>();

export const ready = async ({ app }: Pick<TestApp, "app">) => {
  const answer = await app.inject("/api/ready");
  const { parts } = answer.json<{ parts: Record<string, { ok: boolean; detail: string }> }>();
  return { status: answer.statusCode, ledger: parts["ledger:eip155:5042002"] };
};

export const metric = async ({ app }: Pick<TestApp, "app">, line: string): Promise<string> => {
  const text = await app.metrics.metrics();
  return text.split("\n").find((each) => each.startsWith(line)) ?? "";
};

/**
 * Checks that every transfer from the agent's wallet in the chain's events is in the ledger once, and nothing else
 * is.
 */
export async function assertLedgerEqualsChain(
  t: Pick<Test, "same">,
  ctx: Pick<ReconciliationWorld, "chain" | "database" | "agent">,
): Promise<void> {
  const logs = await ctx.chain.publicClient.getContractEvents({
    address: ctx.chain.usdc,
    abi: TOKEN_ABI,
    eventName: "Transfer",
    args: { from: ctx.agent.walletAddress },
    fromBlock: 0n,
  });
  const { rows } = await ctx.database.pool.query<{ tx_hash: string; amount: string }>(
    `SELECT tx_hash, amount::text FROM payments
      WHERE agent_id = $1 AND status = 'settled' AND kind <> 'incoming'`,
    [ctx.agent.id],
  );
  const onChain = logs.map((log) => `${log.transactionHash} ${log.args.value}`).sort();
  t.same(
    rows.map((row) => `${row.tx_hash} ${row.amount}`).sort(),
    onChain,
    "the ledger equals the chain",
  );
}
