/**
 * The one path of money out of an agent's wallet, shared by spend, x402-fetch and MCP:
 * chain available -> balance -> decide and reserve -> sign -> persist and hand to the engine.
 */
import { randomBytes } from "node:crypto";
import type { Address, Hex } from "viem";
import { ApiError } from "../../errors.ts";
import type { Guardrails } from "../guardrails/decide.ts";
import type { ReserveRequest, Verdict } from "../guardrails/types.ts";
import type { Authorization } from "../../core/authorization.ts";
import type { Settlement, SettlementOutcome, SettlementRequest } from "../settlement/types.ts";
import {
  MAX_VALID_SECONDS,
  type Authorized,
  type Payer,
  type PaymentOutcome,
  type PayRequest,
  type WalletBalance,
} from "./types.ts";

export interface BalanceReader {
  balances(
    chainId: number,
    addresses: readonly Address[],
  ): Promise<{ blockNumber: bigint; balances: Map<string, bigint> }>;
}

export interface PaymentsDependencies {
  settlement: Pick<Settlement, "assertAvailable" | "wait">;
  /** Persists the signature and makes the payment submitted, in a transaction of its own or of a group. */
  accept(request: SettlementRequest): Promise<{ created: boolean }>;
  balances: BalanceReader;
  guardrails: Guardrails;
  sign(agentId: string, authorization: Authorization): Promise<Hex>;
  isReservationGone(error: unknown): boolean;
  store: {
    markUnknown(key: { agentId: string; paymentId: string }): Promise<void>;
    voidUnsigned(args: {
      agentId: string;
      paymentId: string;
      code: string;
      detail: string;
    }): Promise<boolean>;
    staleReservations(args: {
      olderThanSeconds: number;
      limit: number;
    }): Promise<{ agentId: string; paymentId: string }[]>;
  };
  /** Marks the points a crash test stops at; does nothing in service. */
  fault(point: "reserved" | "signed"): Promise<void>;
  log: {
    error(fields: object, message: string): void;
    warn(fields: object, message: string): void;
  };
}

const SWEEP_BATCH = 200;

export class Payments {
  readonly #deps: PaymentsDependencies;

  constructor(deps: PaymentsDependencies) {
    this.#deps = deps;
  }

  /** The verdict a payment would get now; nothing is reserved, signed or written. */
  async evaluate(request: Omit<PayRequest, "relay">): Promise<Verdict> {
    return this.#deps.guardrails.evaluate(await this.#reserveRequest({ ...request, relay: false }));
  }

  /** Records a refusal found before a price or payee could be judged (a dry run records nothing); answers its error. */
  async refuse(
    request: Omit<PayRequest, "relay" | "to"> & { to: Address | null },
    { dryRun }: { dryRun: boolean },
  ): Promise<ApiError> {
    const reserveRequest = {
      ...this.#withoutBalance(request),
      balance: { atomic: 0n, blockNumber: 0n },
    };
    if (dryRun) {
      const { error } = await this.#deps.guardrails.evaluate(reserveRequest);
      if (!error) throw new Error("a refusal ended as allowed");
      return error;
    }
    const result = await this.#deps.guardrails.reserve(reserveRequest);
    if (result.kind !== "denied") throw new Error(`a refusal ended as ${result.kind}`);
    return result.error;
  }

  async authorize(request: PayRequest): Promise<Authorized> {
    const { payer, chainId, asset, to, amountAtomic } = request;
    await this.#deps.settlement.assertAvailable(chainId, { kind: request.kind });
    const reserveRequest = await this.#reserveRequest(request);
    const reserved = await this.#deps.guardrails.reserve(reserveRequest);
    if (reserved.kind !== "reserved") return reserved;
    const { paymentId } = reserved;
    const authorization: Authorization = {
      chainId,
      asset,
      from: payer.walletAddress,
      to,
      value: amountAtomic,
      validAfter: 0n,
      validBefore: reserved.validBeforeSeconds,
      nonce: reserveRequest.nonce,
    };
    const signed = await this.signAndSubmit({
      agentId: payer.id,
      paymentId,
      kind: request.kind,
      authorization,
      relay: request.relay,
    });
    return {
      kind: "authorized",
      paymentId,
      authorization: { ...authorization, signature: signed },
      remainingAtomic: reserved.remainingAtomic,
      snapshot: reserved.snapshot,
    };
  }

  /**
   * From a reservation to a signature in the engine's hands. One statement persists the signature and
   * makes the payment submitted, and fails if the reservation is gone: until then nothing leaves us.
   */
  async signAndSubmit(args: {
    agentId: string;
    paymentId: string;
    kind: "spend" | "x402" | "withdrawal";
    authorization: Authorization;
    relay: boolean;
  }): Promise<Hex> {
    const { agentId, paymentId, authorization } = args;
    try {
      await this.#deps.fault("reserved");
      const signature = await this.#deps.sign(agentId, authorization);
      await this.#deps.fault("signed");
      const { created } = await this.#deps.accept({
        id: paymentId,
        kind: args.kind,
        agentId,
        authorization: { ...authorization, signature },
        relay: args.relay,
      });
      if (!created) throw new Error(`authorization ${authorization.nonce} exists already`);
      return signature;
    } catch (error) {
      if (this.#deps.isReservationGone(error))
        throw new ApiError("service_unavailable", {
          detail: "The reservation ran out before it was signed. Nothing was paid; retry.",
          cause: error,
        });
      // Releases nothing that was submitted after all, should only the answer have been lost.
      await this.#releaseQuietly(agentId, paymentId, "not_signed");
      throw error;
    }
  }

  /** Waits for the engine's proof. Without one in time the payment is unknown, never failed. */
  async outcome(
    key: { agentId: string; paymentId: string },
    timeoutMs: number,
  ): Promise<PaymentOutcome> {
    const outcome = toPaymentOutcome(await this.#deps.settlement.wait(key.paymentId, timeoutMs));
    if (outcome.status === "pending") await this.#deps.store.markUnknown(key);
    return outcome;
  }

  /** Nothing was signed and nothing will be: gives the budget back. */
  async voidReserved(
    key: { agentId: string; paymentId: string },
    code: string,
    detail: string,
  ): Promise<boolean> {
    return this.#deps.store.voidUnsigned({ ...key, code, detail });
  }

  /** Releases reservations whose process died before it signed. A late signer then fails cleanly. */
  async sweepUnsigned(options: { olderThanSeconds: number }): Promise<number> {
    let released = 0;
    for (;;) {
      const stale = await this.#deps.store.staleReservations({ ...options, limit: SWEEP_BATCH });
      for (const key of stale) {
        if (await this.voidReserved(key, "not_signed", "The process stopped before it signed."))
          released += 1;
      }
      if (stale.length < SWEEP_BATCH) break;
    }
    if (released > 0)
      this.#deps.log.warn({ released }, "reservations without a signature released");
    return released;
  }

  async #releaseQuietly(agentId: string, paymentId: string, code: string): Promise<void> {
    await this.voidReserved({ agentId, paymentId }, code, "Signing did not succeed.").catch(
      // The sweep will do it.
      (error: unknown) =>
        this.#deps.log.error({ err: error, agentId, paymentId }, "reservation not released yet"),
    );
  }

  async #reserveRequest(request: PayRequest): Promise<ReserveRequest> {
    const { chainId, payer } = request;
    const balance = (await request.balance) ?? (await this.readBalance(chainId, payer));
    return { ...this.#withoutBalance(request), balance };
  }

  async readBalance(chainId: number, payer: Pick<Payer, "walletAddress">): Promise<WalletBalance> {
    const wallet = payer.walletAddress.toLowerCase() as Address;
    const { blockNumber, balances } = await this.#deps.balances.balances(chainId, [wallet]);
    return { atomic: balances.get(wallet) ?? 0n, blockNumber };
  }

  #withoutBalance(
    request: Omit<PayRequest, "relay" | "to"> & { to: Address | null },
  ): Omit<ReserveRequest, "balance"> {
    const { payer, validForSeconds = MAX_VALID_SECONDS } = request;
    return {
      agentId: payer.id,
      apiKeyId: payer.apiKeyId,
      walletAddress: payer.walletAddress,
      kind: request.kind,
      chainId: request.chainId,
      asset: request.asset,
      to: request.to,
      amountAtomic: request.amountAtomic,
      maxAmountAtomic: request.maxAmountAtomic,
      refusal: request.refusal,
      nonce: `0x${randomBytes(32).toString("hex")}`,
      validForSeconds: Math.min(validForSeconds, MAX_VALID_SECONDS),
      requestId: request.requestId,
      memo: request.memo,
      url: request.url,
      listingId: request.listingId,
      requirement: request.requirement,
      idempotency: request.idempotency,
    };
  }
}

export function toPaymentOutcome(outcome: SettlementOutcome): PaymentOutcome {
  switch (outcome.status) {
    case "settled":
      return { status: "settled", txHash: outcome.txHash, settledAt: outcome.settledAt };
    case "pending":
      return { status: "pending", txHash: outcome.txHash ?? null };
    default:
      return {
        status: "failed",
        reason: outcome.reason,
        message: outcome.message,
        txHash: outcome.txHash ?? null,
      };
  }
}
