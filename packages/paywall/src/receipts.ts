/** Signed offers and receipts, the protocol's `offer-receipt` extension: the library's words, signed by the seller. */
import type { PaymentRequired, SettleResponse } from "@x402/core/types";
import {
  createEIP712OfferReceiptIssuer,
  createOfferReceiptExtension,
  declareOfferReceiptExtension,
  OFFER_RECEIPT,
} from "@x402/extensions/offer-receipt";

/** What is signed, as viem's accounts take it. */
export interface TypedData {
  domain: object;
  types: Record<string, { name: string; type: string }[]>;
  primaryType: string;
  message: Record<string, unknown>;
}
export type SignTypedData = (typedData: TypedData) => Promise<`0x${string}`>;

export interface ReceiptOptions {
  /** The key of `payTo`, where it is at hand: an account of viem, or what signs typed data (EIP-712). */
  signer: SignTypedData | { signTypedData: (typedData: never) => Promise<`0x${string}`> };
  /** Names the transaction in the receipt (true unless said): the payer shows it to whom it likes. */
  namesTransaction?: boolean;
}

type Extended = Record<string, unknown>;

export class ReceiptIssuer {
  readonly #extension: ReturnType<typeof createOfferReceiptExtension>;
  readonly #declaration: unknown;

  constructor(
    { signer, namesTransaction = true }: ReceiptOptions,
    onFault: (error: unknown, what: string) => void = () => undefined,
  ) {
    const sign: SignTypedData =
      typeof signer === "function"
        ? signer
        : (typedData) => (signer.signTypedData as SignTypedData)(typedData);
    // The library goes on without a signature that failed, and tells nobody but the console.
    const signReceipt: SignTypedData = async (typedData) => {
      try {
        return await sign(typedData);
      } catch (error) {
        onFault(error, "signing an offer or a receipt");
        throw error;
      }
    };
    // The key is known by its signature; only signatures of the other form name one.
    this.#extension = createOfferReceiptExtension(createEIP712OfferReceiptIssuer("", signReceipt));
    this.#declaration = declareOfferReceiptExtension({ includeTxHash: namesTransaction })[
      OFFER_RECEIPT
    ];
  }

  /** An offer for each entry of the terms, to be told with them. */
  async offers(required: PaymentRequired): Promise<Extended> {
    const offers = await this.#extension.enrichPaymentRequiredResponse?.(this.#declaration, {
      requirements: required.accepts,
      resourceInfo: required.resource,
      paymentRequiredResponse: required,
    });
    return offers === undefined ? {} : { [OFFER_RECEIPT]: offers };
  }

  /** The same outcome with a receipt: that of what was paid and delivered. */
  async receipted(response: SettleResponse, url: string): Promise<SettleResponse> {
    const receipt = await this.#extension.enrichSettlementResponse?.(this.#declaration, {
      result: response,
      transportContext: { request: { adapter: { getUrl: () => url } } },
    } as never);
    if (receipt === undefined) return response;
    return { ...response, extensions: { ...response.extensions, [OFFER_RECEIPT]: receipt } };
  }
}
