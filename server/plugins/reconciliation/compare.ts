/** Compares the chain's logs of a range of blocks with the ledger's rows: pure functions. */
import type { Address, Hex } from "viem";
import type { Nonce, SchemeTerms } from "../../core/authorization.ts";
import { schemeOf } from "../../schemes/index.ts";
import type { EndLog, TransferLog, WalletLog } from "../../infra/chain/wallet-logs.ts";
import type { SettlementKind, SettlementStatus } from "../settlement/types.ts";

/** The claim of a settlement's row. */
export interface LedgerRow {
  id: string;
  kind: SettlementKind;
  agentId: string | null;
  from: Address;
  to: Address;
  asset: Address;
  value: bigint;
  nonce: Nonce;
  terms: SchemeTerms | null;
  status: SettlementStatus;
  txHash: Hex | null;
  blockNumber: bigint | null;
  blockHash: Hex | null;
}

/**
 * The kinds of differences between ledger and chain. docs/operations/differences.md explains each kind and what to do.
 */
export type DifferenceKind =
  | "payment_open"
  | "payment_not_settled"
  | "payment_elsewhere"
  | "payment_not_on_chain"
  | "payment_unknown"
  | "payment_other"
  | "cancel_open"
  | "cancel_unknown"
  | "transfer_unknown"
  | "incoming_gone"
  | "balance_short"
  | "relayer_nonce"
  | "channel_balance"
  | "channel_claimed"
  | "channel_row";

export interface Finding {
  kind: DifferenceKind;
  /** Identifies the difference on the chain. */
  key: string;
  agentId: string | null;
  blockNumber: bigint;
  txHash: Hex | null;
  row?: LedgerRow;
  transfer?: TransferLog;
  nonce?: Nonce;
  terms?: SchemeTerms;
  detail?: Record<string, unknown>;
  /** Makes the row agree with what was proven; true if it does then. */
  correct?: () => Promise<boolean>;
}

/** A deposit into a channel uses a nonce of the token, under a prefix of ours that the token's logs do not have. */
export const keyOf = ({ from, nonce }: { from: string; nonce: string }): string =>
  `${from}:${nonce.replace(/^channel:/, "")}`;

/** The transfer of each authorization use, and the transfers out of our wallets without one. */
function matchTransfers(logs: readonly WalletLog[], wallets: { has(wallet: Address): boolean }) {
  const transferOf = new Map<EndLog, TransferLog>();
  const unexplained: TransferLog[] = [];
  const waiting = new Map<string, EndLog>();
  for (const log of logs) {
    if (!wallets.has(log.from)) continue;
    const place = `${log.txHash}:${log.from}`;
    if (log.event === "used") waiting.set(place, log);
    if (log.event !== "transfer") continue;
    // The token logs the transfer right after the authorization's use.
    const used = waiting.get(place);
    if (used) transferOf.set(used, log);
    else if (log.amountAtomic > 0n) unexplained.push(log);
    waiting.delete(place);
  }
  return { transferOf, unexplained };
}

/** Transfers out of our wallets that no event of the token explains. */
export const unexplainedIn = (
  logs: readonly WalletLog[],
  wallets: ReadonlySet<Address>,
): ReadonlySet<WalletLog> => new Set(matchTransfers(logs, wallets).unexplained);

/** Whether the logs of its transaction contain this transfer, but no authorization that made it. */
export function isUnexplained(transfer: TransferLog, logs: readonly WalletLog[]): boolean {
  const { from, to, amountAtomic } = transfer;
  return matchTransfers(logs, new Map([[from, ""]])).unexplained.some(
    (one) => one.to === to && one.amountAtomic === amountAtomic,
  );
}

export function compareSpan(args: {
  logs: readonly WalletLog[];
  wallets: ReadonlyMap<Address, string>;
  /** The rows of the authorizations in the logs, by their key. */
  rows: ReadonlyMap<string, LedgerRow>;
  /** Agents' rows that claim to be settled in this range. */
  claims: readonly LedgerRow[];
}): Finding[] {
  const { logs, wallets, rows, claims } = args;
  const { transferOf, unexplained } = matchTransfers(logs, wallets);
  const ends = logs.filter((log): log is EndLog => log.event !== "transfer");
  const used = new Set(ends.filter(({ event }) => event === "used").map(keyOf));
  const findings = ends.flatMap((log) => {
    const row = rows.get(keyOf(log));
    const transfer = transferOf.get(log);
    const kind = log.event === "used" ? kindOfUse(log, row, transfer) : kindOfCancel(row);
    if (kind === undefined) return [];
    const { blockNumber, txHash, nonce, terms } = log;
    const agentId = wallets.get(log.from) ?? null;
    return [
      {
        kind,
        key: keyOf(log),
        agentId,
        blockNumber,
        txHash,
        nonce,
        ...(row && { row }),
        ...(transfer && { transfer }),
        ...(terms && { terms }),
      },
    ];
  });
  // Relayed through another contract: its calls prove nothing, but a settlement that was proven in another way does.
  const isOf = (row: LedgerRow) => (transfer: TransferLog) =>
    !schemeOf(row).isNamedInLogs &&
    transfer.txHash === row.txHash &&
    transfer.from === row.from &&
    transfer.to === row.to &&
    transfer.amountAtomic === row.value;
  return [
    ...findings,
    ...claims
      .filter((row) => !used.has(keyOf(row)) && !unexplained.some(isOf(row)))
      .map(notOnChain),
    ...unexplained
      .filter((transfer) => !claims.some((row) => isOf(row)(transfer)))
      .map((transfer): Finding => {
        const { txHash, logIndex, blockNumber, from } = transfer;
        const key = `${txHash}:${logIndex}`;
        const agentId = wallets.get(from) ?? null;
        return { kind: "transfer_unknown", key, agentId, blockNumber, txHash, transfer };
      }),
  ];
}

function kindOfUse(
  log: EndLog,
  row: LedgerRow | undefined,
  transfer: TransferLog | undefined,
): DifferenceKind | undefined {
  if (!row) return "payment_unknown";
  const takenBy = schemeOf(row).collector ?? row.to;
  if (transfer?.to !== takenBy || !isAmountOf(row, transfer.amountAtomic)) return "payment_other";
  return kindOfPaid(row, log);
}

/** Before the row contains the charged amount, any part of the maximum may have been charged. */
function isAmountOf(row: LedgerRow, amount: bigint): boolean {
  const { status, terms, value } = row;
  return status !== "settled" && terms !== null && "maximum" in terms
    ? amount <= BigInt(terms.maximum)
    : amount === value;
}

/** The difference, if any, of a row whose exact authorization the chain executed here. */
export function kindOfPaid(
  row: LedgerRow,
  place: { txHash: Hex; blockHash: Hex },
): DifferenceKind | undefined {
  switch (row.status) {
    case "settled":
      return row.txHash === place.txHash ? undefined : "payment_elsewhere";
    case "failed":
    case "expired":
      return "payment_not_settled";
    default:
      return "payment_open";
  }
}

function kindOfCancel(row: LedgerRow | undefined): DifferenceKind | undefined {
  if (!row) return "cancel_unknown";
  return row.status === "queued" || row.status === "submitted" ? "cancel_open" : undefined;
}

export const notOnChain = (row: LedgerRow): Finding => ({
  kind: "payment_not_on_chain",
  key: keyOf(row),
  agentId: row.agentId,
  blockNumber: row.blockNumber ?? 0n,
  txHash: row.txHash,
  row,
});

/** The changes of each wallet's balance by the transfers of a range. */
export function changesOf(
  logs: readonly WalletLog[],
  wallets: ReadonlyMap<Address, string>,
): Map<Address, bigint> {
  const changes = new Map<Address, bigint>();
  const add = (wallet: Address, amount: bigint): void => {
    if (wallets.has(wallet)) changes.set(wallet, (changes.get(wallet) ?? 0n) + amount);
  };
  for (const log of logs) {
    if (log.event !== "transfer") continue;
    add(log.from, -log.amountAtomic);
    add(log.to, log.amountAtomic);
  }
  return changes;
}
