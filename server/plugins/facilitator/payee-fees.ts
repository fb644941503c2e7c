/** What payees owe this facilitator. The module `fees` decides; without it nothing is charged. */
import type { Address } from "viem";
import type { FeeAgreement } from "../../core/fees.ts";
import type { Payment, Refusal } from "../../schemes/scheme.ts";

export interface PayeeFees {
  /** Why this payment is refused, if its payee would owe more than its credit. */
  refusal(
    payment: Pick<Payment, "payer" | "payTo" | "amountAtomic" | "network">,
  ): Promise<Refusal | undefined>;
  /** What this payee owes for a settlement of this amount; undefined if nothing. */
  feeFor(payee: Address, amountAtomic: bigint): FeeAgreement | undefined;
  /** Whose fees a payment to this payee pays, by what it buys. */
  paymentFor(payee: Address, resourceUrl: string | undefined): FeeAgreement | undefined;
}
