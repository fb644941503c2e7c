/**
 * Checks the relayers' nonces: each nonce used at a final block must belong to a transaction of ours, whose receipt
 * shows the outcome of all its payments. A nonce that another transaction used means a second signer, or a database
 * that was restored. It is one difference with one alarm, however many nonces it is and however long they take to read.
 * It ends when the database and the chain have agreed on the lane's nonce for some time.
 */
import type { Hex } from "viem";
import type { RpcReceipt } from "../../infra/chain/contracts.ts";
import type { Witnesses } from "../../infra/chain/rpc.ts";
import type { Db } from "../../infra/db/prisma.ts";
import { schemeOf } from "../../schemes/index.ts";
import { keyOf, kindOfPaid, notOnChain, type LedgerRow, type Finding } from "./compare.ts";
import type { Repair, Timeouts } from "./repair.ts";

interface LaneDeps {
  chainId: number;
  db: Db;
  lanes(): Promise<readonly Lane[]>;
  nonceAt(address: string, block: bigint): Promise<bigint>;
  receipt(hash: Hex): Promise<RpcReceipt | null>;
  /** What each endpoint says: one of them may hide a receipt. */
  receiptsFor(hash: Hex): Promise<Witnesses<RpcReceipt | null>>;
  /** With the transaction's call, if the row's scheme needs it. */
  withCall(receipt: RpcReceipt, row: LedgerRow): Promise<RpcReceipt | null>;
  rows(authorizations: readonly { from: string; nonce: string }[]): Promise<Map<string, LedgerRow>>;
  repair(finding: Finding): Promise<Repair>;
  /** Closes the lane's open difference, if there is one. */
  agreed(address: string): Promise<void>;
  timeouts: Timeouts;
}

interface Lane {
  address: string;
  nextNonce: bigint;
  /** Used on the chain, and already covered by a hold. */
  lookedNonce: bigint;
}

/** The most nonces of one key that are checked at once. */
const MAX_NONCES = 100n;
const AT_ONCE = 8;

/** waiting: a nonce has no result yet; more: continue at once. */
export type LanesRead = "done" | "waiting" | "more";

export async function readLanes(deps: LaneDeps, finalBlock: bigint): Promise<LanesRead> {
  let result: LanesRead = "done";
  for (const lane of await deps.lanes()) {
    const read = await readLane(deps, lane, finalBlock);
    if (read === "more" || result === "done") result = read;
  }
  return result;
}

async function readLane(deps: LaneDeps, lane: Lane, finalBlock: bigint): Promise<LanesRead> {
  const { db } = deps;
  const { address } = lane;
  const id = { chainId: BigInt(deps.chainId), address };
  const used = await deps.nonceAt(address, finalBlock);
  const known = await db.ledgerLane.findUnique({ where: { chainId_address: id } });
  const start = known?.nextNonce ?? (await firstOwn(db, id, used));
  // After a reorganisation fewer nonces are used.
  const from = start > used ? used : start;
  const end = used - from > MAX_NONCES ? from + MAX_NONCES : used;
  const next = from < end ? await follow(deps, { address, from, end, finalBlock }) : from;
  if (known?.nextNonce !== next)
    await db.ledgerLane.upsert({
      where: { chainId_address: id },
      create: { ...id, nextNonce: next },
      update: { nextNonce: next },
    });
  if (next < end) return "waiting";
  if (end < used) return "more";
  await endAlarm(deps, lane, used);
  return "done";
}

/** A second signer that continues keeps the difference open; one that stopped has rung for long enough to be noticed. */
async function endAlarm(deps: LaneDeps, lane: Lane, used: bigint): Promise<void> {
  const { address, nextNonce, lookedNonce } = lane;
  const { timeouts } = deps;
  const isAgreed = used <= nextNonce || used <= lookedNonce;
  const isOver = timeouts.isOver(agreementOf(address), timeouts.timings.reconcileAgreedMs);
  if (isAgreed && isOver) await deps.agreed(address);
  // After an end, the next look is as much later, so that most rounds cost nothing.
  if (!isAgreed || isOver) timeouts.forget(agreementOf(address));
}

const agreementOf = (address: string): string => `agreed:${address}`;

/** Transactions from before the key became ours do not count. */
async function firstOwn(
  db: Db,
  { chainId, address }: { chainId: bigint; address: string },
  used: bigint,
): Promise<bigint> {
  const first = await db.relayerTransaction.findFirst({
    where: { chainId, laneAddress: address },
    orderBy: { nonce: "asc" },
    select: { nonce: true },
  });
  return first && first.nonce < used ? first.nonce : used;
}

/** The first nonce without a result yet. */
async function follow(
  deps: LaneDeps,
  {
    address,
    from,
    end,
    finalBlock,
  }: { address: string; from: bigint; end: bigint; finalBlock: bigint },
): Promise<bigint> {
  const stored = await deps.db.relayerTransaction.findMany({
    where: { chainId: BigInt(deps.chainId), laneAddress: address, nonce: { gte: from, lt: end } },
    include: { attempts: { orderBy: { attempt: "desc" } }, items: true },
  });
  const byNonce = new Map(stored.map((tx) => [tx.nonce, tx]));
  type Stored = (typeof stored)[number];
  const receipts = new Map<bigint, RpcReceipt>();
  const waiting = [...stored];
  const work = async (): Promise<void> => {
    for (let tx = waiting.pop(); tx; tx = waiting.pop()) {
      const receipt = await receiptOf(deps, hashesOf(tx));
      if (receipt) receipts.set(tx.nonce, receipt);
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
  const { timeouts } = deps;
  // Its row may be committed a moment after its block, and a receipt may be late, so an absence must last. The
  // absences of all nonces last at the same time.
  const lasting = new Set<bigint>();
  for (let nonce = from; nonce < end; nonce += 1n) {
    const key = `${address}:${nonce}`;
    if (receipts.has(nonce)) timeouts.forget(key);
    else if (timeouts.isOver(key, timeouts.timings.reconcileAbsentMs)) lasting.add(nonce);
  }
  const foreign: bigint[] = [];
  const holdsUp = async (nonce: bigint, tx: Stored | undefined): Promise<boolean> => {
    const receipt = receipts.get(nonce);
    if (tx && receipt) return (await judge(deps, tx.items, receipt)) === "wait";
    if (!lasting.has(nonce)) return true;
    const shown = tx && (await receiptAnywhere(deps, hashesOf(tx)));
    if (shown === "unknown") return true;
    timeouts.forget(`${address}:${nonce}`);
    if (tx && shown) return (await judge(deps, tx.items, shown)) === "wait";
    foreign.push(nonce);
    return false;
  };
  let next = from;
  while (next < end && !(await holdsUp(next, byNonce.get(next)))) next += 1n;
  await raiseAlarm(deps, address, foreign, finalBlock);
  return next;
}

const hashesOf = ({ attempts }: { attempts: readonly { hash: string }[] }): Hex[] =>
  attempts.map(({ hash }) => hash as Hex);

/** Of any endpoint; "unknown" while too few of them answer to believe that there is none. */
async function receiptAnywhere(
  deps: LaneDeps,
  hashes: readonly Hex[],
): Promise<RpcReceipt | "unknown" | undefined> {
  let isKnown = true;
  for (const hash of hashes) {
    const { answers, needed } = await deps.receiptsFor(hash);
    const receipt = answers.find((answer) => answer !== null);
    if (receipt) return receipt;
    if (answers.length < needed) isKnown = false;
  }
  return isKnown ? undefined : "unknown";
}

async function receiptOf(deps: LaneDeps, hashes: readonly Hex[]): Promise<RpcReceipt | null> {
  for (const hash of hashes) {
    const receipt = await deps.receipt(hash);
    if (receipt) return receipt;
  }
  return null;
}

/** Ends the agreement; the store adds these nonces to the lane's open difference. */
async function raiseAlarm(
  deps: LaneDeps,
  address: string,
  foreign: readonly bigint[],
  finalBlock: bigint,
): Promise<void> {
  const [first] = foreign;
  const last = foreign.at(-1);
  if (first === undefined || last === undefined) return;
  deps.timeouts.forget(agreementOf(address));
  await deps.repair({
    kind: "relayer_nonce",
    key: `${address}:${first}`,
    agentId: null,
    blockNumber: finalBlock,
    txHash: null,
    detail: { lane: address, firstNonce: first, lastNonce: last, count: foreign.length },
  });
}

/** Whether the rows agree with this receipt about all payments of its transaction. */
async function judge(
  deps: LaneDeps,
  items: readonly { fromAddress: string; asset: string; nonce: string }[],
  receipt: RpcReceipt,
): Promise<Repair> {
  const rows = await deps.rows(items.map(({ fromAddress: from, nonce }) => ({ from, nonce })));
  let result: Repair = "done";
  for (const item of items) {
    const row = rows.get(keyOf({ from: item.fromAddress, nonce: item.nonce }));
    const withCall = row && (await deps.withCall(receipt, row));
    const finding = row && withCall && findingOf(deps.chainId, row, withCall);
    if (finding && (await deps.repair(finding)) === "wait") result = "wait";
  }
  return result;
}

function findingOf(chainId: number, row: LedgerRow, receipt: RpcReceipt): Finding | undefined {
  const authorization = { chainId, ...row };
  const fate = schemeOf(authorization).outcomeIn(receipt, authorization);
  const { transactionHash: txHash, blockHash } = receipt;
  const blockNumber = BigInt(receipt.blockNumber);
  if (fate === "untouched")
    return row.status === "settled" && row.txHash === txHash ? notOnChain(row) : undefined;
  if (fate !== "paid") return undefined;
  const kind = kindOfPaid(row, { txHash, blockHash });
  return kind && { kind, key: keyOf(row), agentId: row.agentId, blockNumber, txHash, row };
}
