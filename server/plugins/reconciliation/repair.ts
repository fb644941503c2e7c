/**
 * Handles a difference: the proof is read again, the row is corrected or written, and operators are alerted. A
 * difference that rests on an absence counts only after some time, and only if all endpoints agree.
 */
import type { Timings } from "../../core/timings.ts";
import type { Address, Hex } from "viem";
import type { Nonce, SchemeTerms } from "../../core/authorization.ts";
import type { RpcReceipt } from "../../infra/chain/contracts.ts";
import type { Witnesses } from "../../infra/chain/rpc.ts";
import { readReceiptLogs, type TransferLog } from "../../infra/chain/wallet-logs.ts";
import { schemeOf } from "../../schemes/index.ts";
import { amountIn, proofOf } from "../settlement/receipts.ts";
import { REASON_CANCELED, type ProvenOutcome } from "../settlement/types.ts";
import { isUnexplained, type LedgerRow, type DifferenceKind, type Finding } from "./compare.ts";

export interface RepairDeps {
  chainId: number;
  asset: Address;
  receipt(hash: Hex): Promise<RpcReceipt | null>;
  /** The receipt with everything needed to decide about this row. */
  receiptFor(hash: Hex, row: LedgerRow): Promise<RpcReceipt | null>;
  /** Each endpoint's own receipt, and how many must return none before there is none. */
  receiptsFor(hash: Hex, row: LedgerRow): Promise<Witnesses<RpcReceipt | null>>;
  blockTime(block: bigint): Promise<Date | undefined>;
  isOurs(hash: Hex): Promise<boolean>;
  finalize(outcomes: readonly ProvenOutcome[]): Promise<unknown>;
  /** The current row. */
  row(authorization: { from: string; nonce: string }): Promise<LedgerRow | undefined>;
  found(payment: {
    agentId: string;
    payer: Address;
    payee: Address;
    amount: bigint;
    nonce: Nonce;
    terms: SchemeTerms | null;
    txHash: Hex;
    block: bigint;
    blockHash: Hex;
    at: Date;
  }): Promise<string | undefined>;
  /** For a transfer whose transaction does not name the authorization: the rows that may have made it. */
  mayHaveMade(transfer: TransferLog): Promise<{ isOpen: boolean }[]>;
  /** True if the difference is new. */
  note(finding: Finding): Promise<boolean>;
  repaired(finding: Pick<Finding, "kind" | "key">): Promise<void>;
  timeouts: Timeouts;
  log: {
    warn(fields: object, message: string): void;
    error(fields: object, message: string): void;
  };
}

/** Since when each condition has lasted, in this process. */
export class Timeouts {
  readonly timings: Timings;
  readonly #since = new Map<string, number>();

  constructor(timings: Timings) {
    this.timings = timings;
  }

  isOver(key: string, ms: number): boolean {
    const now = performance.now();
    const since = this.#since.get(key) ?? now;
    this.#since.set(key, since);
    return now - since >= ms;
  }

  forget(key: string): void {
    this.#since.delete(key);
  }
}

/** The explanation in the log and in the owner's overview. */
export const MEANING: Record<DifferenceKind, string> = {
  payment_open: "a payment was on chain long before the ledger recorded it",
  payment_not_settled: "a payment recorded as failed is on chain",
  payment_elsewhere: "a payment is in a different transaction from the one in the ledger",
  payment_not_on_chain: "a payment recorded as settled is not on chain",
  payment_unknown:
    "the ledger did not have a payment of an agent's wallet: the database was restored, or the key is used elsewhere",
  payment_other: "an authorization of an agent's wallet was used for a different payment",
  cancel_open: "an authorization was cancelled on chain long before the ledger recorded it",
  cancel_unknown: "an agent's wallet cancelled an authorization that the ledger does not have",
  transfer_unknown: "money left an agent's wallet without an authorization: its key may be stolen",
  incoming_gone: "a chain reorganisation reversed an incoming transfer",
  balance_short: "a wallet's balance is lower than its recorded transfers",
  channel_balance:
    "the deposits of a payment channel are not what was claimed, what came back and what is in it",
  channel_claimed:
    "more was claimed from a payment channel than its wallet signed: the database was restored, or the channel's key is used elsewhere",
  channel_row:
    "the row of a payment channel does not agree with what its wallet signed, or with what was claimed at its end: it was changed",
  relayer_nonce:
    "a transaction not in the ledger used a relayer nonce: a second signer has its key, or the database was restored",
};

export type Repair = "done" | "wait";

const WAITS: Partial<Record<DifferenceKind, "reconcileOpenMs" | "reconcileAbsentMs">> = {
  payment_open: "reconcileOpenMs",
  cancel_open: "reconcileOpenMs",
  payment_not_on_chain: "reconcileAbsentMs",
  // Rows and chain are read one after the other.
  channel_balance: "reconcileAbsentMs",
  channel_claimed: "reconcileAbsentMs",
  channel_row: "reconcileAbsentMs",
};

/** "wait": there is no result yet, so the block does not count as read. */
export async function repair(deps: RepairDeps, finding: Finding): Promise<Repair> {
  const { kind, key } = finding;
  const wait = WAITS[kind];
  if (wait && !deps.timeouts.isOver(`${kind}:${key}`, deps.timeouts.timings[wait])) return "wait";
  const proven = await prove(deps, finding);
  if (proven === "wait") return "wait";
  if (proven === "fine") return "done";
  deps.timeouts.forget(`${kind}:${key}`);
  // The engine may have been faster while the proof was read.
  if (await agrees(deps, finding)) return "done";
  const isNew = await deps.note(finding);
  const isRepaired = (await proven()) || (await agrees(deps, finding));
  if (isRepaired) await deps.repaired(finding);
  if (isNew) logDifference(deps, finding, isRepaired);
  return "done";
}

/** Whether the current row agrees with the chain. */
export async function agrees(
  deps: Pick<RepairDeps, "row">,
  { kind, row, txHash }: Pick<Finding, "kind" | "row" | "txHash">,
): Promise<boolean> {
  if (!row) return false;
  const now = await deps.row(row);
  switch (kind) {
    case "payment_open":
    case "payment_not_settled":
    case "payment_elsewhere":
      return now?.status === "settled" && now.txHash === txHash;
    case "payment_not_on_chain":
      return now !== undefined && !(now.status === "settled" && now.txHash === txHash);
    case "cancel_open":
      return now !== undefined && !["queued", "submitted"].includes(now.status);
    default:
      return false;
  }
}

function logDifference(
  deps: Pick<RepairDeps, "log" | "chainId">,
  finding: Finding,
  isRepaired: boolean,
): void {
  const { kind, key, agentId, txHash, blockNumber, row, detail } = finding;
  const level = kind === "payment_open" || kind === "cancel_open" ? "warn" : "error";
  deps.log[level](
    {
      alarm: `ledger_${kind}`,
      key,
      agentId,
      txHash,
      blockNumber: String(blockNumber),
      settlement: row?.id,
      repaired: isRepaired,
      ...detail,
    },
    `the ledger differed from the chain: ${MEANING[kind]}`,
  );
}

/** What to do: the function returns true if ledger and chain then agree, false if the row has to be read again. */
type Proven = "wait" | "fine" | (() => Promise<boolean>);

async function prove(deps: RepairDeps, finding: Finding): Promise<Proven> {
  const { kind, row, txHash } = finding;
  switch (kind) {
    case "payment_open":
    case "payment_not_settled":
    case "payment_elsewhere":
    case "cancel_open":
      return row && txHash ? provePaid(deps, row, txHash) : "wait";
    case "payment_not_on_chain":
      return row ? proveAbsent(deps, row) : "wait";
    case "payment_unknown":
      return proveUnknown(deps, finding);
    case "transfer_unknown":
      return proveUnexplained(deps, finding);
    case "payment_other":
      return row && txHash ? proveOther(deps, row, txHash) : "wait";
    default:
      // The rows are right: the problem is outside. Those of relayers' nonces and of channels end when both agree
      // (lanes.ts, channels.ts); the others, a person closes.
      return finding.correct ?? (async () => kind === "incoming_gone");
  }
}

const authorizationOf = (row: LedgerRow, chainId: number) => ({
  ...row,
  chainId,
  validAfter: 0n,
  validBefore: 0n,
});

async function provePaid(deps: RepairDeps, row: LedgerRow, txHash: Hex): Promise<Proven> {
  const receipt = await deps.receiptFor(txHash, row);
  const authorization = authorizationOf(row, deps.chainId);
  const scheme = schemeOf(authorization);
  const fate = receipt && scheme.outcomeIn(receipt, authorization);
  if (!receipt || (fate !== "paid" && fate !== "canceled")) return "wait";
  const { from, asset, nonce } = row;
  const base = { from, asset, nonce, proof: proofOf(receipt), isFinal: true };
  const outcome: ProvenOutcome =
    fate === "paid"
      ? {
          ...base,
          status: "settled",
          byOther: !(await deps.isOurs(txHash)),
          ...amountIn(scheme.chargedIn?.(receipt, authorization)),
        }
      : {
          ...base,
          status: "failed",
          reason: REASON_CANCELED,
          message: "The authorization was canceled on chain.",
        };
  return async () => {
    await deps.finalize([outcome]);
    return false;
  };
}

/** Whether this row's own transaction shows the payment: one endpoint is enough to show it, all must miss it. */
async function proveAbsent(deps: RepairDeps, row: LedgerRow): Promise<Proven> {
  const { txHash, blockNumber, blockHash, from, asset, nonce } = row;
  if (txHash === null || blockNumber === null) return "fine";
  const authorization = authorizationOf(row, deps.chainId);
  const isShown = (receipt: RpcReceipt | null): boolean =>
    receipt !== null && schemeOf(authorization).outcomeIn(receipt, authorization) === "paid";
  const { answers, needed } = await deps.receiptsFor(txHash, row);
  // The receipt shows the payment, so only the logs lack it.
  if (answers.some(isShown)) return "wait";
  if (answers.length < needed) return "wait";
  const proof = {
    kind: "receipt" as const,
    tx: txHash,
    block: blockNumber.toString(),
    blockHash: blockHash ?? "",
  };
  return async () => {
    await deps.finalize([{ from, asset, nonce, status: "open", proof, isFinal: false }]);
    return false;
  };
}

/** Logs come in several responses, which may be of different blocks; one receipt contains what belongs together. */
async function proveUnexplained(deps: RepairDeps, { transfer }: Finding): Promise<Proven> {
  const receipt = transfer && (await deps.receipt(transfer.txHash));
  if (!receipt || !isUnexplained(transfer, readReceiptLogs(receipt, deps.asset))) return "wait";
  const makers = await deps.mayHaveMade(transfer);
  // The engine reads from the contract which of them it was. If that is still unknown when they have expired, the
  // transfer is a difference: reconciliation of all other wallets must continue.
  if (makers.some(({ isOpen }) => isOpen)) return "wait";
  return makers.length > 0 ? "fine" : async () => false;
}

async function proveOther(deps: RepairDeps, row: LedgerRow, txHash: Hex): Promise<Proven> {
  const receipt = await deps.receiptFor(txHash, row);
  const authorization = authorizationOf(row, deps.chainId);
  if (!receipt || schemeOf(authorization).outcomeIn(receipt, authorization) === "paid")
    return "wait";
  return async () => false;
}

async function proveUnknown(deps: RepairDeps, finding: Finding): Promise<Proven> {
  const { agentId, transfer, txHash, nonce } = finding;
  if (agentId === null || !transfer || !txHash || !nonce) return "wait";
  const at = await deps.blockTime(transfer.blockNumber);
  if (!at) return "wait";
  return async () =>
    (await deps.found({
      agentId,
      payer: transfer.from,
      payee: transfer.to,
      amount: transfer.amountAtomic,
      nonce,
      terms: finding.terms ?? null,
      txHash,
      block: transfer.blockNumber,
      blockHash: transfer.blockHash,
      at,
    })) !== undefined;
}
