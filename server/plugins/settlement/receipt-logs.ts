/**
 * A stranger names the transaction that used an authorization. The name is only where to look: its
 * receipt, from our own node, either shows exactly our transfer or proves nothing.
 */
import type { ProvenOutcome, SettlementRecord } from "./store.ts";
import type { EngineContext } from "./context.ts";
import { authorizationOf, keyOf } from "./prove.ts";
import { schemeOf } from "../../schemes/index.ts";

export async function proveByTransaction(
  ctx: EngineContext,
  id: string,
  txHash: string,
): Promise<{ record: SettlementRecord | undefined; outcome: ProvenOutcome | undefined }> {
  const [record, receipt, isOurs] = await Promise.all([
    ctx.settlements.findOpenRecord(ctx.pool, id),
    // Where a block is final only under later ones, its receipt alone proves nothing yet.
    ctx.network.confirmations === 1 ? ctx.reads.readReceipt(ctx.rpc, txHash) : null,
    ctx.transactions.isOurTransaction(ctx.pool, txHash),
  ]);
  if (!record || !receipt) return { record, outcome: undefined };
  const key = keyOf(record);
  const authorization = authorizationOf(record);
  const fate = schemeOf(authorization).fateIn(receipt.logs, authorization);
  if (fate !== "paid") return { record, outcome: undefined };
  return {
    record,
    outcome: {
      ...key,
      status: "settled",
      hash: receipt.transactionHash,
      block: BigInt(receipt.blockNumber).toString(),
      byOther: !isOurs,
    },
  };
}
