/**
 * Reconciliation: compares the chain's records of our wallets and relayers with the ledger's rows. Registered before
 * payments, which show its state to owners; it reads payments and settlements as rows, and corrects them through
 * functions of the settlement engine.
 */
import { setTimeout as delay } from "node:timers/promises";
import fp from "fastify-plugin";
import type { Address, Hex } from "viem";
import { newId } from "../../core/ids.ts";
import {
  readNonce,
  readReceipt,
  readReceiptWithCall,
  withCall,
  type RpcReceipt,
} from "../../infra/chain/contracts.ts";
import { afterStartup } from "../../infra/after-startup.ts";
import type { ChainClient } from "../../infra/chain/index.ts";
import * as walletLogs from "../../infra/chain/wallet-logs.ts";
import { payoutsIn } from "../../schemes/batch-settlement/index.ts";
import { schemeOf } from "../../schemes/index.ts";
import type { LedgerState } from "../../schemas/overview.ts";
import { isOurTransaction } from "../settlement/lane-store.ts";
import { finalizeSettlements } from "../settlement/store.ts";
import { keyOf, unexplainedIn, type LedgerRow, type Finding } from "./compare.ts";
import { agrees, repair, Timeouts, type RepairDeps } from "./repair.ts";
import { onPromotion } from "../../infra/db/primary.ts";
import { RestoreHold } from "./hold.ts";
import { ChannelProofs, readTotals } from "./channels.ts";
import { readLanes } from "./lanes.ts";
import { Reconciler } from "./reader.ts";
import * as channelStore from "./channels-store.ts";
import * as cursors from "./cursor-store.ts";
import * as holds from "./hold-store.ts";
import { readState, showToOperators } from "./state.ts";
import * as store from "./store.ts";

declare module "fastify" {
  interface FastifyInstance {
    reconciliation: {
      /** Reads and compares the new blocks of a chain; true if more are waiting. */
      read(chainId: number): Promise<boolean>;
      /** The state of reconciliation, with the differences that concern this owner. */
      stateFor(ownerId: string): Promise<LedgerState[]>;
      /** Throws `chain_unavailable` while this database may lack payments that count. */
      assertCurrent(chainId: number): Promise<void>;
    };
  }
}

const { queriesFor, readBalancesAt, readBlock, readWalletLogs, withUses } = walletLogs;
const explained =
  (chain: ChainClient, known: walletLogs.SentCalls, wallets: readonly Address[]) =>
  (logs: walletLogs.WalletLog[]) =>
    withUses(chain, logs, { unexplained: unexplainedIn(logs, new Set(wallets)), known });
/**
 * The time that the engine gets after the deadline in a final block, to prove the outcome of a payment in its own
 * rounds.
 */
const PROOF_MS = 60_000;
const MAX_POLL_MS = 10_000;
/** The pause between two rounds of a long catch-up, so that other work runs. */
const BREATH_MS = 20;
/** A cache: otherwise each round would read the same receipt for every payment of a batch. */
const MAX_RECEIPTS = 2_000;

interface ChainReconciliation {
  reader: Reconciler;
  hold: RestoreHold;
  key: cursors.CursorKey;
  pollMs: () => number;
  rest: (waitMs: number) => Promise<void>;
}

async function pass({ reader, hold }: ChainReconciliation): Promise<boolean> {
  try {
    return await reader.pass();
  } finally {
    // Even if the chain could not be read: another replica may have read it.
    await hold.look();
  }
}

export default fp(
  async (app) => {
    const owner = newId("req");
    const { timings } = app.config;
    const closing = new AbortController();
    const loops: Promise<void>[] = [];
    const reconciliation = new Map<number, ChainReconciliation>();
    for (const chain of app.chains.all) reconciliation.set(chain.network.chainId, open(chain));

    const networks = app.chains.all.map(({ network }) => network);
    app.decorate("reconciliation", {
      read: async (chainId: number) => {
        const entry = reconciliation.get(chainId);
        return entry !== undefined && pass(entry);
      },
      assertCurrent: async (chainId: number) => reconciliation.get(chainId)?.hold.assertOver(),
      stateFor: (ownerId: string) => readState(app.prisma, networks, ownerId),
    });
    showToOperators(app);
    // Before the engine starts, because its first transaction would hide the sign. If the chain does not respond now,
    // the first payment tries again.
    const looked = [...reconciliation.values()].map(({ hold }) =>
      hold.assertOver().catch(() => undefined),
    );
    await Promise.race([
      Promise.all(looked),
      delay(timings.reconcileFirstMs, undefined, { ref: false }),
    ]);
    afterStartup(app, () => {
      for (const [chainId, entry] of reconciliation) loops.push(loop(chainId, entry));
    });
    app.addHook("preClose", async () => {
      closing.abort();
      await Promise.all(loops);
      // So that another replica need not wait for the lease to expire.
      for (const { key } of reconciliation.values())
        await cursors.releaseCursor(app.prisma, key, owner).catch(() => undefined);
    });

    function open(chain: ChainClient): ChainReconciliation {
      const { network, client, rpc } = chain;
      const { chainId } = network;
      // One for each chain: keys and wallets have the same addresses on all of them.
      const timeouts = new Timeouts(timings);
      const log = app.log.child({ part: "reconciliation", network: network.id });
      const key = { chainId, asset: network.usdc.address.toLowerCase() as Address };
      const receipts = new Map<Hex, RpcReceipt>();
      const known = new walletLogs.SentCalls();
      const receipt = async (hash: Hex): Promise<RpcReceipt | null> => {
        const found = receipts.get(hash) ?? (await readReceipt(rpc, hash));
        if (found) receipts.set(hash, found);
        return found;
      };
      const proofSeconds = (network.confirmations * network.blockTimeMs + PROOF_MS) / 1_000;
      const repairDeps: RepairDeps = {
        ...key,
        receipt: (hash) => readReceipt(rpc, hash),
        receiptFor: (hash, row) => readReceiptWithCall(rpc, hash, row),
        receiptsFor: (hash, row) =>
          rpc.witnesses((endpoint) => readReceiptWithCall(endpoint, hash, row)),
        blockTime: async (block) => (await readBlock(chain, block))?.at,
        isOurs: (hash) => isOurTransaction(app.pool, hash),
        finalize: (outcomes) => finalizeSettlements(app.pool, chainId, outcomes),
        row: async (authorization) =>
          (await store.readRows(app.pool, key, [authorization])).get(keyOf(authorization)),
        mayHaveMade: (transfer) => store.findMakers(app.pool, key, transfer, proofSeconds),
        found: (payment) => store.insertFound(app.pool, { ...payment, ...key }),
        note: (finding) => store.noteDifference(app.prisma, chainId, finding),
        repaired: (finding) => store.closeDifference(app.prisma, chainId, finding),
        timeouts,
        log,
      };
      const rows = (keys: readonly { from: string; nonce: string }[]) =>
        store.readRows(app.pool, key, keys);
      const repairFinding = (finding: Finding) => repair(repairDeps, finding);
      const wallets = knownWallets();
      const channels = new ChannelProofs({
        chainId,
        due: (limit) => channelStore.dueChannels(app.pool, chainId, limit),
        totals: (ids, block) => readTotals(rpc, ids, block),
        witnesses: (ids, block) => rpc.witnesses((endpoint) => readTotals(endpoint, ids, block)),
        rows: (those, block) => channelStore.readChannelRows(app.pool, those, block),
        payouts: (one, block) => channelStore.payoutsSince(app.pool, chainId, one, block),
        payout: async (hash) => {
          const found = await receipt(hash);
          return found ? payoutsIn(found.logs) : undefined;
        },
        correct: (one, returned) => channelStore.correctReturned(app.pool, one, returned),
        agreed: (those) => channelStore.endChannelDifferences(app.pool, chainId, those),
        lookAgain: (those) => channelStore.proveLater(app.pool, those),
        repair: repairFinding,
        timeouts,
        log,
      });
      const reader = new Reconciler({
        confirmations: network.confirmations,
        head: () => {
          receipts.clear();
          return app.chainReads
            .of(chainId)
            .heads.refresh()
            .then(({ number }) => number);
        },
        block: (blockNumber) => readBlock(chain, blockNumber),
        logs: (args) => readWalletLogs(chain, args).then(explained(chain, known, args.wallets)),
        wallets: () => wallets.read(),
        balancesAt: (those, block) => readBalancesAt(chain, those, block),
        knownBalances: (those) => store.readKnownBalances(app.prisma, chainId, those),
        rows,
        claims: (range) => store.readClaims(app.prisma, key, range),
        notShown: async (claims) => {
          const missing: LedgerRow[] = [];
          for (const row of claims) {
            if (receipts.size > MAX_RECEIPTS) receipts.clear();
            const own = row.txHash === null ? null : await receipt(row.txHash);
            const found = own && (await withCall(rpc, own, row));
            const authorization = { chainId, ...row };
            if (!found || schemeOf(authorization).outcomeIn(found, authorization) !== "paid")
              missing.push(row);
            else timeouts.forget(`payment_not_on_chain:${keyOf(row)}`);
          }
          return missing;
        },
        repair: repairFinding,
        lease: (firstBlock) =>
          cursors.leaseCursor(app.prisma, key, {
            owner,
            leaseSeconds: timings.reconcileLeaseMs / 1_000,
            firstBlock,
          }),
        rewind: (args) => cursors.rewindCursor(app.prisma, key, { owner, ...args }),
        store: (span) => cursors.storeSpan(app.prisma, key, owner, span),
        recorded: async (agentIds, txHashes) => {
          const transfers = { agentIds, txHashes };
          const rows = await cursors.recordedIncoming(app.prisma, chainId, transfers);
          return new Set(rows.map(({ txHash, logIndex }) => `${txHash}:${logIndex}`));
        },
        addIncoming: (incoming) => cursors.insertIncoming(app.prisma, key, incoming),
        goneIncoming: async (span) => {
          const gone = await cursors.voidGoneIncoming(app.prisma, chainId, span);
          return gone.map(({ id, agentId, txHash, blockNumber }) => ({
            kind: "incoming_gone" as const,
            key: id,
            agentId,
            txHash,
            blockNumber: blockNumber ?? span.from,
          }));
        },
        recheck: async () => {
          await store.closeExplained(app.pool, chainId);
          for (const open of await store.readOpenOnRows(app.prisma, chainId)) {
            const [from = "", ...rest] = open.key.split(":");
            const nonce = rest.join(":");
            const row = await repairDeps.row({ from, nonce });
            const finding = { ...open, ...(row && { row }) };
            if (await agrees(repairDeps, finding)) await repairDeps.repaired(finding);
          }
        },
        lanes: (finalBlock) =>
          readLanes(
            {
              chainId,
              db: app.prisma,
              lanes: () => store.readLaneNonces(app.pool, chainId),
              nonceAt: (address, block) => readNonce(rpc, address, `0x${block.toString(16)}`),
              receipt,
              receiptsFor: (hash) => rpc.witnesses((endpoint) => readReceipt(endpoint, hash)),
              withCall: (found, row) => withCall(rpc, found, row),
              rows,
              repair: repairFinding,
              agreed: async (lane) => {
                const openMs = timings.reconcileAgreedMs;
                if (await store.closeLaneDifference(app.prisma, chainId, { lane, openMs }))
                  log.warn(
                    { lane },
                    "the ledger and the chain agree on this relayer's nonce again",
                  );
              },
              timeouts,
            },
            finalBlock,
          ),
        channels: (finalBlock) => channels.run(finalBlock),
        timeouts,
        log,
      });
      const blockMs = Math.max(
        Math.min(network.blockTimeMs, MAX_POLL_MS),
        timings.reconcileRoundMs,
      );
      const mostMs = Math.max(MAX_POLL_MS, blockMs);
      // Many wallets need several queries per read, so they are read less often.
      const pollMs = () =>
        wallets.count() === 0
          ? mostMs
          : Math.min(blockMs * Math.max(1, queriesFor(wallets.count()) / 4), mostMs);
      const hold = new RestoreHold({
        onPromotion: (again) => onPromotion(again, closing.signal),
        lanes: () => store.readLaneNonces(app.pool, chainId),
        usedOnChain: (address) => readNonce(rpc, address, "latest"),
        head: () => client.getBlockNumber({ cacheTime: 0 }),
        read: () => holds.readHold(app.pool, key),
        begin: (untilBlock, used) => holds.beginHold(app.prisma, key, untilBlock, used),
        place: (generation, untilBlock) =>
          holds.placeHold(app.prisma, key, { generation, untilBlock }),
        lift: (generation) => holds.liftHold(app.prisma, key, generation),
        log,
      });
      // Without wallets there are only third-party payments, so it reads seldom until a wallet exists.
      const rest = async (waitMs: number): Promise<void> => {
        const untilMs = performance.now() + waitMs;
        for (;;) {
          const leftMs = untilMs - performance.now();
          if (leftMs <= 0 || closing.signal.aborted) return;
          await delay(Math.min(leftMs, blockMs), undefined, { signal: closing.signal });
          if (wallets.count() === 0 && (await wallets.read()).size > 0) return;
        }
      };
      return { reader, hold, key, pollMs, rest };
    }

    /** Wallets never change, so only those that came or went are read. */
    function knownWallets() {
      const known = new Map<Address, string>();
      let since: Date | undefined;
      return {
        count: () => known.size,
        async read(): Promise<ReadonlyMap<Address, string>> {
          const { wallets, gone, now } = await store.walletsSince(app.prisma, since);
          for (const [wallet, agentId] of wallets) known.set(wallet, agentId);
          for (const wallet of gone) known.delete(wallet);
          since = now;
          return known;
        },
      };
    }

    async function loop(chainId: number, entry: ChainReconciliation): Promise<void> {
      let waitMs = 0;
      while (!closing.signal.aborted) {
        try {
          waitMs = (await pass(entry)) ? BREATH_MS : entry.pollMs();
        } catch (error) {
          if (closing.signal.aborted) return;
          waitMs = Math.min(waitMs * 2 + entry.pollMs(), MAX_POLL_MS);
          app.log.warn({ err: error, chainId }, "the chain could not be compared; will retry");
        }
        await entry.rest(waitMs).catch(() => undefined);
      }
    }
  },
  { name: "reconciliation" },
);
