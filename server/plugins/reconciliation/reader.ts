/**
 * Reads a chain block by block as blocks become final, and compares it with the ledger's rows. One replica at a time
 * per chain; the cursor is in Postgres, so a downtime of any length leaves no gap, and nothing is reported twice. A
 * response without logs proves nothing. A range counts as read only if its last block was the same before and after, if
 * a log or receipt shows every row that claims to be settled in it, and if the transfers lead from each wallet's last
 * balance to its current one.
 */
import { isChannelOrder } from "../../core/authorization.ts";
import type { Address, Hex } from "viem";
import type { BlockFacts, WalletLog } from "../../infra/chain/wallet-logs.ts";
import { checkBalances, LOOK_BACK, type BalanceDeps } from "./balances.ts";
import { compareSpan, notOnChain, type LedgerRow, type Finding } from "./compare.ts";
import type { Repair, Timeouts } from "./repair.ts";
import type { LanesRead } from "./lanes.ts";
import type { Cursor, IncomingRow, SpanRead } from "./cursor-store.ts";

interface ReaderDeps extends Pick<BalanceDeps, "balancesAt" | "knownBalances"> {
  confirmations: number;
  head(): Promise<bigint>;
  block(blockNumber: bigint): Promise<BlockFacts | undefined>;
  logs(args: {
    wallets: readonly Address[];
    fromBlock: bigint;
    toBlock: bigint;
  }): Promise<WalletLog[]>;
  /** Every agent's wallet, with its agent. */
  wallets(): Promise<ReadonlyMap<Address, string>>;
  rows(authorizations: readonly { from: string; nonce: string }[]): Promise<Map<string, LedgerRow>>;
  claims(range: { from: bigint; to: bigint; limit: number }): Promise<LedgerRow[]>;
  /** The third-party payments among these that their own transactions do not show. */
  notShown(claims: readonly LedgerRow[]): Promise<LedgerRow[]>;
  repair(finding: Finding): Promise<Repair>;
  lease(firstBlock: bigint): Promise<Cursor | undefined>;
  rewind(args: { nextBlock: bigint; readBefore: bigint }): Promise<void>;
  store(span: SpanRead): Promise<boolean>;
  /** The positions of those transfers to agents that are in the ledger. */
  recorded(agentIds: readonly string[], txHashes: readonly Hex[]): Promise<ReadonlySet<string>>;
  /** Records transfers whose logs arrived late. */
  addIncoming(rows: readonly IncomingRow[]): Promise<void>;
  goneIncoming(span: { from: bigint; to: bigint; seen: ReadonlySet<string> }): Promise<Finding[]>;
  /** The relayers' nonces, as of a final block. */
  lanes(finalBlock: bigint): Promise<LanesRead>;
  /** Some of the payment channels, as of a final block that was read. */
  channels(finalBlock: bigint): Promise<void>;
  /** Closes differences whose rows agree with the chain by now. */
  recheck(): Promise<void>;
  timeouts: Timeouts;
  log: { warn(fields: object, message: string): void };
}

const RANGE = 2_000n;
const MIN_RANGE = 1n;
/** How far to go back after a reorganisation: further than any reorganisation beyond the confirmations. */
const REWIND = 2_000n;
/** Every round renews the lease, so a long catch-up is divided into rounds. */
const MAX_RANGES_PER_PASS = 20;
/** The most rows of one range that are compared with the chain at once. */
const MAX_CLAIMS = 10_000;

export class Reconciler {
  readonly #deps: ReaderDeps;
  readonly #balanceDeps: BalanceDeps;
  #range = RANGE;
  #lanesReadAt: bigint | undefined;
  #recheckedMs = Number.NEGATIVE_INFINITY;
  #lookBackAtMs = 0;
  /** What the last read for late logs has handled already. */
  #shown: ReadonlySet<string> = new Set();

  constructor(deps: ReaderDeps) {
    this.#deps = deps;
    this.#balanceDeps = {
      ...deps,
      logs: (wallets, from, until) => this.#readAll(wallets, from, until),
      lookBackWithin: (ms) => {
        this.#lookBackAtMs = Math.min(this.#lookBackAtMs, performance.now() + ms);
      },
    };
  }

  /** Reads new blocks. True if there are more to read at once. */
  async pass(): Promise<boolean> {
    // The head first and the wallets after it: a wallet created later receives money in a later block.
    const head = await this.#deps.head();
    const safe = head - BigInt(this.#deps.confirmations - 1);
    const cursor = await this.#deps.lease(safe + 1n);
    if (!cursor || safe < 0n) return false;
    let next = await this.#afterRollback(cursor, safe);
    if (next === undefined) return true;
    if (next <= safe) {
      const wallets = await this.#deps.wallets();
      for (let done = 0; done < MAX_RANGES_PER_PASS && next <= safe; done += 1) {
        const read = await this.#readSpan({ wallets, from: next, safe, head, cursor });
        if (read === undefined) return false;
        next = read;
      }
    }
    if (next <= safe) return true;
    if (performance.now() >= this.#lookBackAtMs) await this.#lookBack(safe);
    if (performance.now() - this.#recheckedMs > this.#deps.timeouts.timings.reconcileRecheckMs) {
      this.#recheckedMs = performance.now();
      await this.#deps.recheck();
    }
    // No new block means no new nonce.
    const read = this.#lanesReadAt === safe ? "done" : await this.#deps.lanes(safe);
    this.#lanesReadAt = read === "done" ? safe : undefined;
    if (read === "more") return true;
    await this.#deps.channels(safe);
    return false;
  }

  /** The next block to read after the range; undefined if it does not count as read yet. */
  async #readSpan(args: {
    wallets: ReadonlyMap<Address, string>;
    from: bigint;
    safe: bigint;
    head: bigint;
    cursor: Cursor;
  }): Promise<bigint | undefined> {
    const { wallets, from, safe, cursor } = args;
    const last = from + this.#range - 1n;
    let to = last < safe ? last : safe;
    const tail = await this.#deps.block(to);
    if (!tail) return undefined;
    let [logs, claims] = await Promise.all([
      this.#readLogs([...wallets.keys()], from, to),
      this.#deps.claims({ from, to, limit: MAX_CLAIMS }),
    ]);
    if (claims.length === MAX_CLAIMS && this.#range > MIN_RANGE) {
      this.#range /= 2n;
      return from;
    }
    const findings = await this.#findings(wallets, logs, claims);
    const cut = await this.#repairAll(findings);
    // Ends before the first block without a result.
    if (cut !== undefined) to = cut - 1n < to ? cut - 1n : to;
    if (to < from) return undefined;
    logs = logs.filter(({ blockNumber }) => blockNumber <= to);
    const end = cut === undefined ? tail : await this.#deps.block(to);
    const balances = await checkBalances(this.#balanceDeps, { ...args, to, logs });
    if (!end || !balances) return undefined;
    // The block was replaced meanwhile: the data may be of either branch.
    if ((await this.#deps.block(to))?.hash !== end.hash || !belongTo(logs, to, end.hash))
      return undefined;
    if (cursor.readBefore !== null && from < cursor.readBefore)
      await this.#voidGone(from, to, logs);
    const isAgainOver = cursor.readBefore !== null && to + 1n >= cursor.readBefore;
    const isStored = await this.#deps.store({
      nextBlock: to + 1n,
      lastHash: end.hash,
      lastAt: end.at,
      readBefore: isAgainOver ? null : cursor.readBefore,
      incoming: await this.#incoming(wallets, logs),
      balances,
    });
    return isStored ? to + 1n : undefined;
  }

  async #readLogs(
    wallets: readonly Address[],
    fromBlock: bigint,
    toBlock: bigint,
  ): Promise<WalletLog[]> {
    try {
      const logs = await this.#deps.logs({ wallets, fromBlock, toBlock });
      if (this.#range < RANGE) this.#range *= 2n;
      return logs;
    } catch (error) {
      // Nodes limit ranges or results in different ways, so the next range is half as long, down to one block.
      if (this.#range > MIN_RANGE) this.#range /= 2n;
      throw error;
    }
  }

  async #findings(
    wallets: ReadonlyMap<Address, string>,
    logs: readonly WalletLog[],
    claims: readonly LedgerRow[],
  ): Promise<Finding[]> {
    // What is done with a channel uses no authorization of the token: its own transaction shows it.
    const isOurs = (row: LedgerRow): boolean => wallets.has(row.from) && !isChannelOrder(row.terms);
    const thirdParty = claims.filter((row) => !isOurs(row));
    const [rows, unshown] = await Promise.all([
      this.#deps.rows(logs.flatMap((log) => (log.event === "transfer" ? [] : [log]))),
      this.#deps.notShown(thirdParty),
    ]);
    const found = compareSpan({ logs, wallets, rows, claims: claims.filter(isOurs) });
    return [...found, ...unshown.map(notOnChain)];
  }

  /** The first block with something that has no result yet. */
  async #repairAll(findings: readonly Finding[]): Promise<bigint | undefined> {
    let cut: bigint | undefined;
    for (const finding of findings) {
      const { blockNumber } = finding;
      if ((await this.#deps.repair(finding)) === "done") continue;
      if (cut === undefined || blockNumber < cut) cut = blockNumber;
    }
    return cut;
  }

  async #readAll(wallets: readonly Address[], from: bigint, until: bigint): Promise<WalletLog[]> {
    const logs: WalletLog[] = [];
    while (from <= until) {
      const last = from + this.#range - 1n;
      const to = last < until ? last : until;
      logs.push(...(await this.#readLogs(wallets, from, to)));
      from = to + 1n;
    }
    return logs;
  }

  /** Reads the recent blocks again: logs that arrived late are compared with the rows, and recorded. */
  async #lookBack(safe: bigint): Promise<void> {
    const wallets = await this.#deps.wallets();
    const from = safe > LOOK_BACK ? safe - LOOK_BACK : 0n;
    const logs = await this.#readAll([...wallets.keys()], from, safe);
    const unseen = logs.filter((log) => !this.#shown.has(placeOf(log)));
    // With all logs of the transaction, because an authorization's use and its transfer explain each other.
    const transactions = new Set(unseen.map(({ txHash }) => txHash));
    const together = logs.filter(({ txHash }) => transactions.has(txHash));
    const cut = await this.#repairAll(await this.#findings(wallets, together, []));
    const arrived = unseen.flatMap((log) => {
      const agentId = log.event === "transfer" && wallets.get(log.to);
      return agentId ? [{ ...log, agentId }] : [];
    });
    if (arrived.length > 0) {
      const agentIds = [...new Set(arrived.map(({ agentId }) => agentId))];
      const hashes = arrived.map(({ txHash }) => txHash);
      const recorded = await this.#deps.recorded(agentIds, hashes);
      const late = arrived.filter((log) => !recorded.has(placeOf(log)));
      await this.#deps.addIncoming(await this.#incoming(wallets, late));
    }
    // What has no result yet is checked again.
    const isDone = (log: WalletLog): boolean => cut === undefined || log.blockNumber < cut;
    this.#shown = new Set(logs.filter(isDone).map(placeOf));
    this.#lookBackAtMs = performance.now() + this.#deps.timeouts.timings.reconcileLookBackMs;
  }

  async #incoming(
    wallets: ReadonlyMap<Address, string>,
    logs: readonly WalletLog[],
  ): Promise<IncomingRow[]> {
    const times = new Map<bigint, Date>();
    const rows: IncomingRow[] = [];
    for (const log of logs) {
      if (log.event !== "transfer" || log.amountAtomic === 0n) continue;
      const { from, to, amountAtomic, txHash, logIndex, blockNumber } = log;
      const agentId = wallets.get(to);
      if (agentId === undefined) continue;
      const settledAt =
        times.get(blockNumber) ?? (await this.#deps.block(blockNumber))?.at ?? new Date();
      times.set(blockNumber, settledAt);
      rows.push({ agentId, from, amountAtomic, txHash, logIndex, blockNumber, settledAt });
    }
    return rows;
  }

  async #voidGone(from: bigint, to: bigint, logs: readonly WalletLog[]): Promise<void> {
    const seen = new Set(logs.map(placeOf));
    for (const finding of await this.#deps.goneIncoming({ from, to, seen }))
      await this.#deps.repair(finding);
  }

  /** Where to continue; undefined if the cursor went back, because the last block read no longer exists. */
  async #afterRollback(cursor: Cursor, safe: bigint): Promise<bigint | undefined> {
    const { nextBlock, lastHash } = cursor;
    const last = nextBlock - 1n;
    if (lastHash === null || last < 0n) return nextBlock;
    if (last > safe) {
      // A node that lags, or a chain that was reset: a lag ends by itself.
      if (!this.#deps.timeouts.isOver("behind", 2 * this.#deps.timeouts.timings.reconcileAbsentMs))
        return nextBlock;
    } else {
      this.#deps.timeouts.forget("behind");
      const block = await this.#deps.block(last);
      if (!block || block.hash === lastHash) return block ? nextBlock : safe + 1n;
    }
    this.#deps.timeouts.forget("behind");
    const from = last > safe ? safe + 1n : nextBlock;
    const rewound = from > REWIND ? from - REWIND : 0n;
    this.#deps.log.warn(
      { lastBlock: String(last), readAgainFrom: String(rewound) },
      "the chain was rolled back below the last read block; reading it again",
    );
    await this.#deps.rewind({ nextBlock: rewound, readBefore: nextBlock });
    return undefined;
  }
}

const belongTo = (logs: readonly WalletLog[], last: bigint, hash: Hex): boolean =>
  logs.every(({ blockNumber, blockHash }) => blockNumber !== last || blockHash === hash);

const placeOf = ({ txHash, logIndex }: Pick<WalletLog, "txHash" | "logIndex">): string =>
  `${txHash}:${logIndex}`;
