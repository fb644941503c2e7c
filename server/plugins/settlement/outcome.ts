/** What a settlement's row says became of it. */
import type { SettlementOutcome, SettlementRow } from "./types.ts";

type OutcomeFields = Pick<
  SettlementRow,
  | "id"
  | "status"
  | "txHash"
  | "blockNumber"
  | "settledAt"
  | "byOther"
  | "errorReason"
  | "errorMessage"
>;

export function outcomeOf(row: OutcomeFields): SettlementOutcome {
  const { id, txHash } = row;
  if (row.status === "settled" && txHash && row.settledAt)
    return {
      status: "settled",
      id,
      txHash,
      blockNumber: row.blockNumber ?? 0n,
      settledAt: row.settledAt,
      byOther: row.byOther,
    };
  if (row.status === "failed" || row.status === "expired") {
    const reason = row.errorReason ?? "unexpected_settle_error";
    return {
      status: row.status,
      id,
      reason,
      message: row.errorMessage ?? reason,
      ...(txHash && { txHash }),
    };
  }
  return { status: "pending", id, ...(txHash && { txHash }) };
}
