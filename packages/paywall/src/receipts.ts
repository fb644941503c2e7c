/** Signed offers and receipts: the protocol's `offer-receipt` extension, signed with the seller's key. */
import type { PaymentRequired, SettleResponse } from "@x402/core/types";
import {
  createEIP712OfferReceiptIssuer,
  createOfferReceiptExtension,
  declareOfferReceiptExtension,
  OFFER_RECEIPT,
} from "@x402/extensions/offer-receipt";

/** Typed data in the form that viem's accounts accept. */
interface TypedData {
  domain: object;
  types: Record<string, { name: string; type: string }[]>;
  primaryType: string;
  message: Record<string, unknown>;
}
type SignTypedData = (typedData: TypedData) => Promise<`0x${string}`>;

export interface ReceiptOptions {
  /** The key of `payTo`: a viem account, or a function that signs typed data (EIP-712). */
  signer: SignTypedData | { signTypedData: (typedData: never) => Promise<`0x${string}`> };
  /**
   * Includes the transaction hash in the receipt (default true). The payer may show the receipt to third
   * parties.
   */
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
    // When signing fails, the library goes on without a signature and only logs to the console, so the fault
    // is reported here.
    const signReceipt: SignTypedData = async (typedData) => {
      try {
        return await sign(typedData);
      } catch (error) {
        onFault(error, "signing an offer or a receipt");
        throw error;
      }
    };
    // The key id is empty: an EIP-712 signature identifies its key, only JWS signatures name one.
    this.#extension = createOfferReceiptExtension(createEIP712OfferReceiptIssuer("", signReceipt));
    this.#declaration = declareOfferReceiptExtension({ includeTxHash: namesTransaction })[
      OFFER_RECEIPT
    ];
  }

  /** A signed offer for each entry of the terms. */
  async offers(required: PaymentRequired): Promise<Extended> {
    const offers = await this.#extension.enrichPaymentRequiredResponse?.(this.#declaration, {
      requirements: required.accepts,
      resourceInfo: required.resource,
      paymentRequiredResponse: required,
    });
    return offers === undefined ? {} : { [OFFER_RECEIPT]: offers };
  }

  /** The same outcome with a receipt, for a resource that was paid and delivered. */
  async receipted(response: SettleResponse, url: string): Promise<SettleResponse> {
    const receipt = await this.#extension.enrichSettlementResponse?.(this.#declaration, {
      result: response,
      transportContext: { request: { adapter: { getUrl: () => url } } },
    } as never);
    if (receipt === undefined) return response;
    return { ...response, extensions: { ...response.extensions, [OFFER_RECEIPT]: receipt } };
  }
}
