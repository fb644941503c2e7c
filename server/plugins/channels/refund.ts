/** Asks a seller's API to return what is left in a channel: its own 402, and then the payer's refund request. */
import {
  decodePaymentRequiredHeader,
  decodePaymentResponseHeader,
  encodePaymentSignatureHeader,
} from "@x402/core/http";
import type { PaymentPayload } from "@x402/core/types";
import { isRecord, readForeignJson } from "../../core/foreign-text.ts";
import {
  readOffer,
  refundPayload,
  type ChannelOrder,
} from "../../schemes/batch-settlement/paying.ts";
import { SCHEME } from "../../schemes/batch-settlement/index.ts";
import type { NetworkFacts } from "../../core/networks.ts";
import type { OutboundRequest, OutboundResponse } from "../../infra/outbound/outbound.ts";

const TIMEOUT_MS = 30_000;
const MAX_BYTES = 64 * 1024;

/** `voucher`: for exactly what the seller has charged. True if the seller says that it returned the rest. */
export async function askForRefund(
  send: (request: OutboundRequest) => Promise<OutboundResponse>,
  url: string,
  {
    order,
    voucher,
    network,
  }: { order: ChannelOrder; voucher: `0x${string}`; network: NetworkFacts },
): Promise<boolean> {
  const get = (headers: Record<string, string> = {}) =>
    send({ url, method: "GET", headers, timeoutMs: TIMEOUT_MS, maxBytes: MAX_BYTES });
  const asked = await get();
  const header = asked.headers["payment-required"];
  if (asked.status !== 402 || typeof header !== "string") return false;
  const terms = termsIn(header, order, network);
  if (!terms) return false;
  const proof = { ...terms, x402Version: 2, payload: refundPayload(order, voucher) };
  const answered = await get({
    "payment-signature": encodePaymentSignatureHeader(proof as unknown as PaymentPayload),
  });
  const response = answered.headers["payment-response"];
  if (answered.status >= 400 || typeof response !== "string") return false;
  const report = readForeignJson(() => decodePaymentResponseHeader(response));
  return report.ok && isRecord(report.value) && report.value["success"] === true;
}

/** The seller's entry that is for this channel. */
function termsIn(header: string, { config }: ChannelOrder, network: NetworkFacts) {
  const read = readForeignJson(() => decodePaymentRequiredHeader(header));
  if (!read.ok || !isRecord(read.value)) return undefined;
  const { accepts, resource } = read.value;
  const accepted = (Array.isArray(accepts) ? accepts : []).filter(isRecord).find((entry) => {
    const { scheme, network: id, payTo, extra } = entry;
    if (scheme !== SCHEME || id !== network.id || !isRecord(extra)) return false;
    const offer = readOffer(extra, network);
    return (
      typeof offer !== "string" &&
      typeof payTo === "string" &&
      payTo.toLowerCase() === config.receiver &&
      offer.receiverAuthorizer === config.receiverAuthorizer &&
      offer.withdrawDelay === config.withdrawDelay
    );
  });
  return accepted && { accepted, ...(isRecord(resource) && { resource }) };
}
