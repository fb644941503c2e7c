// Replicas that are killed at a fault point, and the payments that they leave behind.
import { fork } from "node:child_process";
import { once } from "node:events";
import type { Test } from "tap";
import type { Address } from "viem";
import type { PrivateKeyAccount } from "viem/accounts";
import type { SignedAuthorization } from "../../server/core/authorization.ts";
import { accountsOf } from "../../server/core/gas.ts";
import { childScript } from "./child-script.ts";
import { acceptSettlements } from "../../server/plugins/settlement/accept.ts";
import type { FaultPoint } from "../../server/plugins/settlement/context.ts";
import type { SettlementRequest } from "../../server/plugins/settlement/types.ts";
import type { TestChain } from "./chain.ts";
import { expectLedgerEqualsChain } from "./engine-invariants.ts";
import { authorize, payers, randomAddress, request, type TestEngine } from "./engine.ts";
import type { TestDatabase } from "./postgres.ts";
import { until } from "./until.ts";

export const FAULT_POINTS: FaultPoint[] = [
  "claimed",
  "signed",
  "persisted",
  "broadcast",
  "mined",
  "before-final-write",
  "reported",
  "before-final",
];
/** With these depths each fault point is reached: reported in the first block, final in the third. */
export const DEPTHS = { confirmations: 3, inclusionDepth: 1 };
const PAYMENTS = 4;

export async function queuePayments(
  chain: TestChain,
  database: TestDatabase,
  sign: (payer: PrivateKeyAccount, to: Address) => Promise<SignedAuthorization> = (payer, to) =>
    authorize(chain, payer, { to }),
) {
  const accounts = payers(PAYMENTS);
  await chain.mint(
    accounts.map((account) => account.address),
    1_000n,
  );
  const to = randomAddress();
  const requests = await Promise.all(accounts.map(async (payer) => request(await sign(payer, to))));
  // The engine would add the gas reservation, so it is added here.
  for (const wanted of requests) {
    const accounts = accountsOf({ ...wanted.authorization, merchant: undefined });
    await acceptSettlements(database.pool, [{ ...wanted, gas: { accounts, hold: 10n ** 14n } }]);
  }
  return { requests, to };
}

/** Starts a replica that kills itself at the point; resolves when it has ended. */
export async function doomedReplica(
  chain: TestChain,
  databaseUrl: string,
  dieAt: FaultPoint,
): Promise<void> {
  const { chainId, usdc, rpcUrl, relayerPrivateKey } = chain;
  const child = fork(
    childScript("test/helpers/engine.child.ts"),
    [
      JSON.stringify({
        ...DEPTHS,
        databaseUrl,
        chain: { chainId, usdc, rpcUrl, relayerPrivateKey },
        dieAt,
      }),
    ],
    { execArgv: ["--enable-source-maps"], stdio: ["ignore", "inherit", "inherit", "ipc"] },
  );
  const timer = setTimeout(() => child.kill("SIGTERM"), 30_000);
  const [, signal] = (await once(child, "exit")) as [number | null, string | null];
  clearTimeout(timer);
  if (signal !== "SIGKILL")
    throw new Error(`the replica ended by ${signal} instead of dying at ${dieAt}`);
}

/** Expires all leases, as time does after their holder is dead. */
export async function endLeases({ pool }: TestDatabase): Promise<void> {
  await pool.query("UPDATE relayer_lanes SET lease_until = now()");
}

/** Waits until some replica holds the lane. */
export async function leaseTaken({ pool }: TestDatabase): Promise<void> {
  await until(async () => {
    const { rowCount } = await pool.query(
      "SELECT 1 FROM relayer_lanes WHERE lease_owner IS NOT NULL AND address !~ '^0x0+$'",
    );
    return rowCount === 1;
  }, 30_000);
}

export async function expectAllPaidOnce(
  t: Pick<Test, "same" | "equal" | "ok">,
  args: {
    node: TestEngine;
    chain: TestChain;
    database: TestDatabase;
    requests: SettlementRequest[];
    to: `0x${string}`;
  },
): Promise<void> {
  const { node, chain, database, requests, to } = args;
  const outcomes = await Promise.all(
    requests.map((wanted) => node.engine.settlement.wait(wanted.id, 25_000)),
  );
  t.same(
    outcomes.map((outcome) => outcome.status),
    requests.map(() => "settled"),
    node.logText(),
  );
  const balance = await chain.usdcOf(to);
  t.equal(balance, 1_000n * BigInt(requests.length), "the payee got each payment once");
  await until(async () => {
    const { rowCount } = await database.pool.query(
      "SELECT 1 FROM settlements WHERE final_at IS NULL",
    );
    return rowCount === 0;
  }, 15_000);
  const { rows } = await database.pool.query("SELECT status FROM relayer_transactions");
  t.ok(
    rows.every(({ status }) => status === "mined" || status === "given_up"),
    "the lane's holder follows each transaction until it is final",
  );
  const { rows: unknown } = await database.pool.query("SELECT id FROM settlements WHERE by_other");
  t.same(unknown, [], "nothing was sent before it was stored");
  await expectLedgerEqualsChain(t, chain, database.pool);
}
