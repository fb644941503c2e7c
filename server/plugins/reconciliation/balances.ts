/**
 * Whether the transfers lead from each wallet's last balance to the one it has. A log may come later than its block:
 * where they do not match, what was read before is read again, before anything is reported.
 */
import type { Address } from "viem";
import type { WalletLog } from "../../infra/chain/wallet-logs.ts";
import { changesOf, type Finding } from "./compare.ts";
import type { Repair, Patience } from "./repair.ts";

export interface BalanceDeps {
  balancesAt(wallets: readonly Address[], block: bigint): Promise<Map<Address, bigint> | undefined>;
  /** Each as of the block in which it was read. */
  knownBalances(
    wallets: readonly Address[],
  ): Promise<Map<string, { atomic: bigint; blockNumber: bigint }>>;
  logs(wallets: readonly Address[], from: bigint, until: bigint): Promise<WalletLog[]>;
  repair(finding: Finding): Promise<Repair>;
  /** Logs that came late are looked for by then. */
  lookBackWithin(ms: number): void;
  patience: Patience;
}

/** Nodes keep the state of about this many blocks. */
const STATE_BLOCKS = 64n;
/** Incoming transfers of the last so many blocks are read again and again, whichever process read them first. */
export const LOOK_BACK = 1_000n;
/** Sooner, where a wallet holds more than its logs show. */
const LOOK_SOON_MS = 5_000;

/** New balances of the wallets that moved; undefined while a wallet holds less than its transfers show. */
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
  const { patience } = deps;
  const changes = changesOf(logs, wallets);
  const moved = [...changes.keys()];
  if (moved.length === 0 || head - to > STATE_BLOCKS) return [];
  const [known, now] = await Promise.all([deps.knownBalances(moved), deps.balancesAt(moved, to)]);
  if (!now) return [];
  const holds = (wallet: Address): bigint => now.get(wallet) ?? 0n;
  const late = await cameLate(
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
    // More than the logs show: something came in that a late node has not logged yet.
    if (holds(wallet) > expected) deps.lookBackWithin(LOOK_SOON_MS);
    if (holds(wallet) < expected) short.push({ wallet, expected });
    // What lasted before is over: the next time counts from its own beginning.
    else patience.forget(`balance:${wallet}`);
  }
  // Their waiting runs side by side, and ends together.
  const isOver = short.map(({ wallet }) =>
    patience.isOver(`balance:${wallet}`, patience.timings.reconcileAbsentMs),
  );
  if (isOver.includes(false)) return undefined;
  for (const { wallet, expected } of short) {
    await deps.repair({
      kind: "balance_short",
      // Where the cursor stands: a span that cannot end grows with the chain, and is one difference all the same.
      key: `${wallet}:${from}`,
      agentId: wallets.get(wallet) ?? null,
      blockNumber: to,
      txHash: null,
      detail: { expected, holds: holds(wallet) },
    });
    patience.forget(`balance:${wallet}`);
  }
  return moved.map((wallet) => ({ wallet, atomic: holds(wallet) }));
}

/**
 * How much these wallets' balances changed after they were last known, in blocks that were read before all of their
 * logs were there.
 */
async function cameLate(
  deps: BalanceDeps,
  asked: readonly { wallet: Address; since: bigint }[],
  before: bigint,
): Promise<Map<Address, bigint>> {
  const late = new Map<Address, bigint>();
  const oldest = before > LOOK_BACK ? before - LOOK_BACK : 0n;
  const first = asked.reduce((least, { since }) => (since < least ? since : least), before);
  const from = first > oldest ? first : oldest;
  if (from >= before) return late;
  const asking = asked.map(({ wallet }) => wallet);
  const logs = await deps.logs(asking, from, before - 1n);
  for (const { wallet, since } of asked) {
    const own = logs.filter(({ blockNumber }) => blockNumber >= since);
    const change = changesOf(own, new Map([[wallet, ""]])).get(wallet);
    if (change !== undefined) late.set(wallet, change);
  }
  if (late.size > 0) deps.lookBackWithin(0);
  return late;
}
