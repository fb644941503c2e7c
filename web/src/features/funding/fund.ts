import { queryOptions } from "@tanstack/react-query";
import { serverNowMs } from "../../lib/clock.ts";
import { api } from "../../lib/api.ts";
import { keys } from "../../lib/query-keys.ts";
import type { Connection } from "../../lib/wallet/connection.ts";
import {
  sendTransfer,
  signTypedData,
  TRANSFER_SCHEME,
  transferAuthorization,
  VALID_FOR_SECONDS,
} from "../../lib/wallet/typed-data.ts";
import type { NetworkInfo, ServiceInfo, TypedData } from "../../lib/wire.ts";

interface SettleAnswer {
  success: boolean;
  transaction?: string;
  errorReason?: string;
  errorMessage?: string;
}

export interface FundRequest {
  info: ServiceInfo;
  network: NetworkInfo;
  connection: Connection;
  to: string;
  amountAtomic: bigint;
  /** Shows the transfer; the wallet opens after that. */
  review: (typedData: TypedData) => Promise<void>;
}

/** The body with which the same settlement is requested again after "settlement_pending". */
type SettleBody = Record<string, unknown>;

export type PendingFund = { kind: "pending"; body: SettleBody };
export type FundResult =
  | { kind: "done"; txHash: string }
  | { kind: "sent"; txHash: string }
  | PendingFund;

export class FundingError extends Error {
  override readonly name = "FundingError";
}

export async function settle(body: SettleBody): Promise<FundResult> {
  const answer = await api.post<SettleAnswer>("/api/x402/settle", body);
  if (answer.success) return { kind: "done", txHash: answer.transaction ?? "" };
  if (answer.errorReason === "settlement_pending") return { kind: "pending", body };
  // The same signed transfer was settled before this response: the money arrived, once.
  if (answer.errorReason === "duplicate_settlement" && answer.transaction)
    return { kind: "done", txHash: answer.transaction };
  throw new FundingError(
    answer.errorMessage ?? answer.errorReason ?? "The transfer was not settled. No money moved.",
  );
}

/**
 * The owner signs one transfer and our facilitator sends it, without gas. Where the service's facilitator
 * requires a key, the wallet sends the transfer itself.
 */
export async function fund({
  info,
  network,
  connection,
  to,
  amountAtomic,
  review,
}: FundRequest): Promise<FundResult> {
  if (info.facilitator.requiresKey && connection.wallet.kind !== "demo") {
    return {
      kind: "sent",
      txHash: await sendTransfer(connection, network.usdc.address, to, amountAtomic),
    };
  }
  const { authorization, typedData } = transferAuthorization(
    network,
    connection.address,
    to,
    amountAtomic,
    serverNowMs(),
  );
  await review(typedData);
  const signature = await signTypedData(connection, typedData);
  const requirements = {
    scheme: TRANSFER_SCHEME,
    network: network.id,
    asset: network.usdc.address,
    amount: amountAtomic.toString(),
    payTo: to,
    maxTimeoutSeconds: VALID_FOR_SECONDS,
    extra: { name: network.usdc.name, version: network.usdc.version },
  };
  return settle({
    x402Version: 2,
    paymentPayload: {
      x402Version: 2,
      accepted: requirements,
      payload: { signature, authorization },
    },
    paymentRequirements: requirements,
  });
}

export const requestFaucet = (address: string): Promise<{ txHash: string; amount: string }> =>
  api.post("/api/local/faucet", { address });

/** The balance of the owner's wallet on that network; `null` while the chain cannot be read. */
export const ownBalanceQuery = (network: string) =>
  queryOptions({
    queryKey: keys.ownBalance(network),
    queryFn: ({ signal }) =>
      api.get<{ balance: string | null }>("/api/owner/balance", { query: { network }, signal }),
    retry: false,
  });
