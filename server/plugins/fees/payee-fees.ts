/** Decides what a payee owes for a payment, and whether its credit allows another one. */
import type { Address } from "viem";
import { feeOn, PAY_FEES_PATH, type FeeAgreement, type FeeTerms } from "../../core/fees.ts";
import { parseAddress } from "../../core/foreign-text.ts";
import { formatAtomic } from "../../core/money.ts";
import { refuse, type Payment, type Refusal } from "../../schemes/scheme.ts";
import type { PayeeFees } from "../facilitator/payee-fees.ts";
import type { FeeKey } from "./store.ts";

interface Deps {
  terms: FeeTerms;
  /** The service's own payees owe nothing. */
  exempt: readonly string[];
  owed: (key: FeeKey) => Promise<bigint>;
  payUrl: (account: string) => string;
}

export class Fees implements PayeeFees {
  readonly #deps: Deps;

  constructor(deps: Deps) {
    this.#deps = deps;
  }

  /** A payment that was accepted before stays good; so fees in flight may exceed the credit. */
  async refusal({
    payer,
    payTo,
    amountAtomic,
    network,
  }: Pick<Payment, "payer" | "payTo" | "amountAtomic" | "network">): Promise<Refusal | undefined> {
    const { terms, owed, payUrl } = this.#deps;
    const account = lower(payTo);
    const fee = this.#feeOf(account, amountAtomic);
    if (fee === 0n) return undefined;
    const owing = await owed({ chainId: network.chainId, account });
    if (owing + fee <= terms.creditAtomic) return undefined;
    return refuse(
      "fees_unpaid",
      payer,
      `The seller owes this facilitator ${formatAtomic(owing)} USDC in fees, and ${formatAtomic(terms.creditAtomic)} is the most. Nothing was sent. The seller pays them at ${payUrl(account)}`,
    );
  }

  feeFor(payee: Address, amountAtomic: bigint): FeeAgreement | undefined {
    const account = lower(payee);
    const amount = this.#feeOf(account, amountAtomic);
    return amount === 0n ? undefined : { account, amount: amount.toString() };
  }

  /**
   * The account is in the resource that our own 402 names. It is not signed by the wallet; but only we and the payer have the
   * signature before we have stored it.
   */
  paymentFor(payee: Address, resourceUrl: string | undefined): FeeAgreement | undefined {
    const { payTo } = this.#deps.terms;
    if (payTo === undefined || lower(payee) !== payTo || resourceUrl === undefined)
      return undefined;
    const account = accountIn(resourceUrl);
    return account && { account };
  }

  #feeOf(account: Address, amountAtomic: bigint): bigint {
    const { terms, exempt } = this.#deps;
    if (account === terms.payTo || exempt.includes(account)) return 0n;
    return feeOn(terms, amountAtomic);
  }
}

const lower = (address: Address): Address => address.toLowerCase() as Address;

/** Replicas and moves have other origins, so only the path counts. */
function accountIn(resourceUrl: string): Address | undefined {
  const url = URL.canParse(resourceUrl) ? new URL(resourceUrl) : undefined;
  if (url?.pathname !== PAY_FEES_PATH) return undefined;
  const account = parseAddress(url.searchParams.get("account"));
  return account.ok ? account.address : undefined;
}
