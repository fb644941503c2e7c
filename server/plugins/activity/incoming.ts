import { setTimeout as delay } from "node:timers/promises";
import fp from "fastify-plugin";
import type { Address } from "viem";
import type { ChainClient } from "../../infra/chain/index.ts";
import { readBlock, readTransfersTo } from "../../infra/chain/transfer-logs.ts";
import {
  leaseCursor,
  releaseCursor,
  storeIncoming,
  walletsSince,
  type CursorKey,
} from "./incoming-reader.ts";
import { newId } from "../../core/ids.ts";
import { IncomingReader } from "./incoming-reader.ts";

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
