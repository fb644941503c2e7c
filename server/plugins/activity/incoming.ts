import { setTimeout as delay } from "node:timers/promises";
import fp from "fastify-plugin";
import type { Address, Hex } from "viem";
import type { ChainClient } from "../../infra/chain/index.ts";
import {
  readBlock,
  readTransfersTo,
  type BlockFacts,
  type TransferLog,
} from "../../infra/chain/transfer-logs.ts";
import { newId } from "../../core/ids.ts";
import {
  decimalOf,
  databaseNow,
  secondsAfter,
  type Db,
  type PrismaClient,
} from "../../infra/db/prisma.ts";

declare module "fastify" {
  interface FastifyInstance {
    /** Reads new incoming transfers of a chain now; true when more wait. */
    readIncoming(chainId: number): Promise<boolean>;
  }
}

const LEASE_SECONDS = 30;
const MIN_POLL_MS = 1_000;
const MAX_POLL_MS = 10_000;

export default fp(
  async (app) => {
    const owner = newId("req");
    const closing = new AbortController();
    const readers = new Map<number, { reader: IncomingReader; key: CursorKey; pollMs: number }>();
    const loops: Promise<void>[] = [];
    for (const chain of app.chains.all) readers.set(chain.network.chainId, wire(chain));

    app.decorate("readIncoming", async (chainId: number) => {
      const wired = readers.get(chainId);
      return wired ? wired.reader.pass() : false;
    });
    app.addHook("onListen", async () => {
      for (const [chainId, { reader, pollMs }] of readers)
        loops.push(loop(chainId, reader, pollMs));
    });
    app.addHook("preClose", async () => {
      closing.abort();
      await Promise.all(loops);
      // Another replica need not wait for the lease to lapse.
      for (const { key } of readers.values())
        await releaseCursor(app.prisma, key, owner).catch(() => undefined);
    });

    function wire(chain: ChainClient) {
      const { network, client } = chain;
      const key = {
        chainId: network.chainId,
        asset: network.usdc.address.toLowerCase() as Address,
      };
      const reader = new IncomingReader({
        owner,
        confirmations: network.confirmations,
        head: () => client.getBlockNumber({ cacheTime: 0 }),
        block: (blockNumber) => readBlock(chain, blockNumber),
        transfers: (args) => readTransfersTo(chain, args),
        wallets: knownWallets(),
        lease: (firstBlock) =>
          leaseCursor(app.prisma, key, { owner, leaseSeconds: LEASE_SECONDS, firstBlock }),
        store: (args) => storeIncoming(app.prisma, key, { owner, ...args }),
        log: app.log.child({ part: "incoming", network: network.id }),
      });
      const pollMs = Math.min(Math.max(network.blockTimeMs, MIN_POLL_MS), MAX_POLL_MS);
      return { reader, key, pollMs };
    }

    /** Wallets never change, so only new ones are read. */
    function knownWallets(): () => Promise<readonly Address[]> {
      const known = new Set<Address>();
      let since: Date | undefined;
      return async () => {
        const { wallets, now } = await walletsSince(app.prisma, since);
        for (const wallet of wallets) known.add(wallet);
        since = now;
        return [...known];
      };
    }

    async function loop(chainId: number, reader: IncomingReader, pollMs: number): Promise<void> {
      let waitMs = pollMs;
      while (!closing.signal.aborted) {
        try {
          waitMs = (await reader.pass()) ? 0 : pollMs;
        } catch (error) {
          if (closing.signal.aborted) return;
          waitMs = Math.min(waitMs * 2 + pollMs, MAX_POLL_MS);
          app.log.warn({ err: error, chainId }, "incoming transfers could not be read; will retry");
        }
        await delay(waitMs, undefined, { signal: closing.signal }).catch(() => undefined);
      }
    }
  },
  { name: "incoming" },
);

/**
 * Incoming transfers to agents' wallets, read from the token's logs. One replica at a time per
 * chain; the cursor lives in Postgres, so downtime leaves no gap and a restart tells nothing twice.
 */

export interface Deps {
  owner: string;
  confirmations: number;
  head(): Promise<bigint>;
  block(blockNumber: bigint): Promise<BlockFacts | undefined>;
  transfers(args: {
    wallets: readonly Address[];
    fromBlock: bigint;
    toBlock: bigint;
  }): Promise<TransferLog[]>;
  wallets(): Promise<readonly Address[]>;
  lease(firstBlock: bigint): Promise<Cursor | undefined>;
  store(args: { rows: IncomingRow[]; nextBlock: bigint; lastHash: Hex | null }): Promise<boolean>;
  log: { warn(fields: object, message: string): void };
}

const RANGE = 2_000n;
const MIN_RANGE = 1n;
/** After a rollback: far enough back for any reorganization beyond the confirmations. */
const REWIND = 2_000n;
/** A lease is renewed by every pass; a long catch-up ends a pass so that it is. */
const MAX_RANGES_PER_PASS = 20;

class IncomingReader {
  readonly #deps: Deps;
  #range = RANGE;

  constructor(deps: Deps) {
    this.#deps = deps;
  }

  /** Reads what is new. True when there is more to read at once. */
  async pass(): Promise<boolean> {
    // The head first, the wallets after it: a wallet made later is funded in a later block.
    const head = await this.#deps.head();
    const safe = head - BigInt(this.#deps.confirmations - 1);
    const cursor = await this.#deps.lease(safe + 1n);
    if (!cursor || safe < 0n) return false;
    let next = await this.#afterRollback(cursor, safe);
    if (next > safe) return false;
    const wallets = await this.#deps.wallets();
    for (let done = 0; done < MAX_RANGES_PER_PASS && next <= safe; done += 1) {
      const read = await this.#readRange(wallets, next, safe);
      if (read === undefined) return false;
      next = read;
    }
    return next <= safe;
  }

  /** The next block to read after the range, or undefined when another process took over. */
  async #readRange(
    wallets: readonly Address[],
    fromBlock: bigint,
    safe: bigint,
  ): Promise<bigint | undefined> {
    const last = fromBlock + this.#range - 1n;
    const toBlock = last < safe ? last : safe;
    const logs = await this.#deps
      .transfers({ wallets, fromBlock, toBlock })
      .catch((error: unknown) => {
        // Nodes limit ranges or results in their own ways: half of it next time, down to one block.
        if (this.#range > MIN_RANGE) this.#range /= 2n;
        throw error;
      });
    if (this.#range < RANGE) this.#range *= 2n;
    const tail = await this.#deps.block(toBlock);
    if (!tail) return undefined;
    const rows = await this.#toRows(logs);
    const nextBlock = toBlock + 1n;
    const isStored = await this.#deps.store({ rows, nextBlock, lastHash: tail.hash });
    return isStored ? nextBlock : undefined;
  }

  async #toRows(logs: readonly TransferLog[]): Promise<IncomingRow[]> {
    const times = new Map<bigint, Date>();
    for (const { blockNumber } of logs)
      if (!times.has(blockNumber))
        times.set(blockNumber, (await this.#deps.block(blockNumber))?.at ?? new Date());
    return logs.map((log) => ({
      ...log,
      id: newId("pay"),
      settledAt: times.get(log.blockNumber) ?? new Date(),
    }));
  }

  /** Where to read on: further back if the last block read is not on the chain any more. */
  async #afterRollback(cursor: Cursor, safe: bigint): Promise<bigint> {
    const { nextBlock, lastHash } = cursor;
    const last = nextBlock - 1n;
    // A node that lags, or a chain that shrank: told apart when it has grown past the place again.
    if (lastHash === null || last > safe || last < 0n) return nextBlock;
    const block = await this.#deps.block(last);
    if (block?.hash === lastHash) return nextBlock;
    const rewound = nextBlock > REWIND ? nextBlock - REWIND : 0n;
    this.#deps.log.warn(
      { lastBlock: String(last), readAgainFrom: String(rewound) },
      "the chain was rolled back below what was read; reading transfers again",
    );
    return rewound;
  }
}

interface CursorKey {
  chainId: number;
  asset: Address;
}

interface Cursor {
  nextBlock: bigint;
  /** Of the last block read; another hash there now means the chain was rolled back. */
  lastHash: Hex | null;
}

const idOf = ({ chainId, asset }: CursorKey) => ({ chainId: BigInt(chainId), asset });

/** The cursor, if this process may read for a while; undefined while another one does. */
export async function leaseCursor(
  db: Db,
  key: CursorKey,
  args: { owner: string; leaseSeconds: number; firstBlock: bigint },
): Promise<Cursor | undefined> {
  const { owner, leaseSeconds, firstBlock } = args;
  const now = await databaseNow(db);
  await db.incomingCursor.createMany({
    data: [{ ...idOf(key), nextBlock: firstBlock, leaseUntil: now, updatedAt: now }],
    skipDuplicates: true,
  });
  const [leased] = await db.incomingCursor.updateManyAndReturn({
    where: { ...idOf(key), OR: [{ leaseOwner: owner }, { leaseUntil: { lte: now } }] },
    data: { leaseOwner: owner, leaseUntil: secondsAfter(now, leaseSeconds) },
    select: { nextBlock: true, lastHash: true },
  });
  return leased && { ...leased, lastHash: leased.lastHash as Hex | null };
}

async function releaseCursor(db: Db, key: CursorKey, owner: string): Promise<void> {
  await db.incomingCursor.updateMany({
    where: { ...idOf(key), leaseOwner: owner },
    data: { leaseUntil: await databaseNow(db) },
  });
}

interface IncomingRow {
  id: string;
  to: Address;
  from: Address;
  amountAtomic: bigint;
  txHash: Hex;
  logIndex: number;
  blockNumber: bigint;
  settledAt: Date;
}

/**
 * The transfers and the cursor move in one transaction, and only under the lease: nothing is missed
 * or told twice, whoever reads next. False when the lease was lost meanwhile.
 */
async function storeIncoming(
  prisma: PrismaClient,
  key: CursorKey,
  args: { owner: string; rows: IncomingRow[]; nextBlock: bigint; lastHash: Hex | null },
): Promise<boolean> {
  const { owner, rows, nextBlock, lastHash } = args;
  return prisma.$transaction(async (tx) => {
    const now = await databaseNow(tx);
    const moved = await tx.incomingCursor.updateMany({
      where: { ...idOf(key), leaseOwner: owner, leaseUntil: { gt: now } },
      data: { nextBlock, lastHash, updatedAt: now },
    });
    if (moved.count !== 1) return false;
    if (rows.length === 0) return true;
    const agents = await tx.agent.findMany({
      where: { walletAddress: { in: [...new Set(rows.map(({ to }) => to))] } },
      select: { id: true, walletAddress: true },
    });
    const agentOf = new Map(agents.map(({ id, walletAddress }) => [walletAddress, id]));
    await tx.payment.createMany({
      data: rows.flatMap(({ to, from, amountAtomic, ...transfer }) => {
        const agentId = agentOf.get(to);
        if (agentId === undefined) return [];
        return {
          ...transfer,
          ...idOf(key),
          agentId,
          kind: "incoming",
          status: "settled",
          counterparty: from,
          amount: decimalOf(amountAtomic),
        };
      }),
      skipDuplicates: true,
    });
    return true;
  });
}

/** For rows whose transaction committed late. */
const MARGIN_SECONDS = 600;

/** Wallets made since, with a margin. */
async function walletsSince(
  db: Db,
  since: Date | undefined,
): Promise<{ wallets: Address[]; now: Date }> {
  const now = await databaseNow(db);
  const agents = await db.agent.findMany({
    where: since === undefined ? {} : { createdAt: { gt: secondsAfter(since, -MARGIN_SECONDS) } },
    select: { walletAddress: true },
  });
  return { wallets: agents.map(({ walletAddress }) => walletAddress as Address), now };
}
