import type { Address, Hex } from "viem";
import type { ApiError } from "../../errors.ts";
import type { DenialCode, Snapshot } from "../guardrails/types.ts";
import type { SignedAuthorization } from "../../core/authorization.ts";
import type { IdempotencyRef } from "../guardrails/types.ts";

/** The agent that pays, as authentication found it. */
export interface Payer {
  id: string;
  walletAddress: Address;
  /** Null when the owner tries the agent out. */
  apiKeyId: string | null;
}

/** One payment from an agent's wallet, whoever relays it. */
export interface PayRequest {
  payer: Payer;
  kind: "spend" | "x402";
  chainId: number;
  asset: Address;
  to: Address;
  amountAtomic: bigint;
  maxAmountAtomic?: bigint;
  refusal?: { code: DenialCode; detail?: string };
  /** At most MAX_VALID_SECONDS; counted from the database's now. */
  validForSeconds?: number;
  requestId: string | null;
  memo?: string;
  url?: string;
  listingId?: string;
  requirement?: unknown;
  idempotency?: IdempotencyRef;
  /** The wallet's balance, where the caller began to read it before; read when needed otherwise. */
  balance?: Promise<WalletBalance | undefined>;
  /** True: our engine relays it. False: it is handed to a seller and only watched. */
  relay: boolean;
}

export interface WalletBalance {
  atomic: bigint;
  blockNumber: bigint;
}

export const MAX_VALID_SECONDS = 120;

export type Authorized =
  | {
      kind: "authorized";
      /** Also the settlement's id. */
      paymentId: string;
      authorization: SignedAuthorization;
      remainingAtomic: bigint;
      snapshot: Snapshot;
    }
  | { kind: "denied"; error: ApiError; paymentId: string | null }
  | { kind: "replay"; statusCode: number; response: unknown }
  | { kind: "in_progress"; paymentId: string }
  | { kind: "key_reused" };

/** The final word on one payment, or that there is none yet. */
export type PaymentOutcome =
  | { status: "settled"; txHash: Hex; settledAt: Date }
  | { status: "failed"; reason: string; message: string; txHash: Hex | null }
  | { status: "pending"; txHash: Hex | null };
