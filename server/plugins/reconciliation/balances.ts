/**
 * Checks that the transfers lead from each wallet's last known balance to its current one. A log may arrive later than
 * its block: if the balances do not match, earlier blocks are read again before anything is reported.
 */
import type { Address } from "viem";
import type { WalletLog } from "../../infra/chain/wallet-logs.ts";
import { changesOf, type Finding } from "./compare.ts";
import type { Repair, Timeouts } from "./repair.ts";

export interface BalanceDeps {
  balancesAt(wallets: readonly Address[], block: bigint): Promise<Map<Address, bigint> | undefined>;
  /** Each balance with the block at which it was read. */
  knownBalances(
    wallets: readonly Address[],
  ): Promise<Map<string, { atomic: bigint; blockNumber: bigint }>>;
  logs(wallets: readonly Address[], from: bigint, until: bigint): Promise<WalletLog[]>;
  repair(finding: Finding): Promise<Repair>;
  /** Makes the next read for late logs happen by then. */
  lookBackWithin(ms: number): void;
  timeouts: Timeouts;
}

/** Nodes keep the state of about this many blocks. */
const STATE_BLOCKS = 64n;
/** Incoming transfers of this many last blocks are read repeatedly, whichever process read them first. */
export const LOOK_BACK = 1_000n;
/** Sooner than usual, if a wallet has more than its logs show. */
const LOOK_SOON_MS = 5_000;

/** The new balances of the wallets that changed; undefined while a wallet has less than its transfers show. */
export async function checkBalances(
  deps: BalanceDeps,
  span: {
    wallets: ReadonlyMap<Address, string>;
    from: bigint;
    to: bigint;
    head: bigint;
    logs: readonly WalletLog[];
  },
): Promise<{ wallet: Address; atomic: bigint }[] | undefined> {
  const { wallets, from, to, head, logs } = span;
  const { timeouts } = deps;
  const changes = changesOf(logs, wallets);
  const moved = [...changes.keys()];
  if (moved.length === 0 || head - to > STATE_BLOCKS) return [];
  const [known, now] = await Promise.all([deps.knownBalances(moved), deps.balancesAt(moved, to)]);
  if (!now) return [];
  const holds = (wallet: Address): bigint => now.get(wallet) ?? 0n;
  const late = await lateChanges(
    deps,
    moved.flatMap((wallet) => {
      const before = known.get(wallet);
      const fits = !before || holds(wallet) === before.atomic + (changes.get(wallet) ?? 0n);
      return fits ? [] : [{ wallet, since: before.blockNumber + 1n }];
    }),
    from,
  );
  const short: { wallet: Address; expected: bigint }[] = [];
  for (const wallet of moved) {
    const before = known.get(wallet);
    if (!before) continue;
    const expected = before.atomic + (late.get(wallet) ?? 0n) + (changes.get(wallet) ?? 0n);
    // More than the logs show: a transfer arrived that a slow node has not logged yet.
    if (holds(wallet) > expected) deps.lookBackWithin(LOOK_SOON_MS);
    if (holds(wallet) < expected) short.push({ wallet, expected });
    // The shortage has ended; a later one is timed from its own start.
    else timeouts.forget(`balance:${wallet}`);
  }
  // The waiting times run in parallel.
  const isOver = short.map(({ wallet }) =>
    timeouts.isOver(`balance:${wallet}`, timeouts.timings.reconcileAbsentMs),
  );
  if (isOver.includes(false)) return undefined;
  for (const { wallet, expected } of short) {
    await deps.repair({
      kind: "balance_short",
      // The key uses the cursor's block: a span that cannot be completed grows with the chain, but remains one
      // difference.
      key: `${wallet}:${from}`,
      agentId: wallets.get(wallet) ?? null,
      blockNumber: to,
      txHash: null,
      detail: { expected, holds: holds(wallet) },
    });
    timeouts.forget(`balance:${wallet}`);
  }
  return moved.map((wallet) => ({ wallet, atomic: holds(wallet) }));
}

/**
 * How much these wallets' balances changed since they were last known, by logs that arrived after their blocks had been
 * read.
 */
async function lateChanges(
  deps: BalanceDeps,
  wanted: readonly { wallet: Address; since: bigint }[],
  before: bigint,
): Promise<Map<Address, bigint>> {
  const late = new Map<Address, bigint>();
  const oldest = before > LOOK_BACK ? before - LOOK_BACK : 0n;
  const first = wanted.reduce((least, { since }) => (since < least ? since : least), before);
  const from = first > oldest ? first : oldest;
  if (from >= before) return late;
  const wallets = wanted.map(({ wallet }) => wallet);
  const logs = await deps.logs(wallets, from, before - 1n);
  for (const { wallet, since } of wanted) {
    const own = logs.filter(({ blockNumber }) => blockNumber >= since);
    const change = changesOf(own, new Map([[wallet, ""]])).get(wallet);
    if (change !== undefined) late.set(wallet, change);
  }
  if (late.size > 0) deps.lookBackWithin(0);
  return late;
}
