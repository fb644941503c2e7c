/**
 * A price on a tool of an MCP server, by x402's MCP transport: the terms are a tool result with `isError`,
 * the proof is in the call's `_meta`, the receipt in the `_meta` of the result. It wraps the tool's handler
 * and depends on no MCP SDK: both official ones call a handler with the arguments (if the tool has any) and a
 * context.
 */
import { decodePaymentResponseHeader, encodePaymentSignatureHeader } from "@x402/core/http";
import type { PaymentPayload, PaymentRequired, SettleResponse } from "@x402/core/types";
import type { KeptResponse, Receipt, Refused, SettledPayment } from "./answers.ts";
import type { Cashier } from "./cashier.ts";
import type { PaidResource } from "./resource.ts";
import { isRecord } from "./foreign-json.ts";

export type { Receipt } from "./answers.ts";
export { Cashier, cashier, type CashierOptions } from "./cashier.ts";
export type { PaidResource } from "./resource.ts";
export {
  OneProcessChannelStore,
  PostgresChannelStore,
  type ChannelStore,
} from "./channel-store.ts";
export type { ChannelOptions } from "./channel-settings.ts";
export { PAYMENT_NETWORKS, type PaymentNetwork } from "./networks.ts";

/** Names defined by the protocol. */
export const PAYMENT_META = "x402/payment";
export const PAYMENT_RESPONSE_META = "x402/payment-response";
/**
 * Our own name, in a tool's `_meta`: `tools/list` contains the price, so that clients learn it without
 * calling the tool.
 */
export const PAYMENT_REQUIRED_META = "x402/payment-required";

/** For a price that is known before the tool runs. Each call is a new payment. */
export interface PricedTool extends Omit<PaidResource, "price" | "discoverable" | "again"> {
  /** USDC as a decimal string; or through a payment channel, and `fixed` for clients without channels. */
  price: string | { channel: string; fixed?: string };
  /** The tool's name, as it is registered. */
  name: string;
  /** The URL of what is sold; `mcp://tool/<name>` by default. */
  url?: string;
}

export interface PaidTool<Args extends unknown[]> extends PricedTool {
  /**
   * Work that may fail, done once a matching proof was received and before it is settled: an error here costs
   * the caller nothing.
   */
  prepare?: (...args: Args) => void | Promise<void>;
}

/** The result of a call that was not paid, or that failed. */
export type ToolFailure = {
  isError: true;
  structuredContent?: Record<string, unknown>;
  content: { type: "text"; text: string }[];
  _meta?: Record<string, unknown>;
};

/**
 * The tool's handler behind a price: it runs after settlement, once per payment; through a channel it is charged after it
 * succeeded. Its arguments are the
 * receipt, then the SDK's own arguments. An error that it throws is returned as a tool result with the
 * receipt. Where the cashier signs receipts, the receipt of a successful call is signed.
 */
export function paidTool<Args extends unknown[], Result extends object>(
  cashier: Pick<Cashier, "charge" | "required">,
  tool: PaidTool<Args>,
  handler: (receipt: Receipt, ...args: Args) => Result | Promise<Result>,
): (...args: Args) => Promise<Result | ToolFailure> {
  return async (...args) => {
    const body = args.slice(0, -1);
    const paidRequest = { ...request(tool), body, headers: proofOf(args.at(-1)) };
    const charge = await cashier.charge(tool, paidRequest, async () => tool.prepare?.(...args));
    if (charge.kind === "unpaid") return unpaid(charge.required);
    if (charge.kind === "again") throw new Error("a tool is not fetched again");
    const refuse = async (refused: Refused) => {
      const settlement = settlementOf(refused);
      const why = `Payment settlement failed: ${settlement.errorReason ?? "not settled"}`;
      return withReceipt(unpaid(await cashier.required(tool, request(tool), why)), settlement);
    };
    if (charge.kind === "refused") return refuse(charge);
    if (charge.kind === "metered") {
      const { payer, network, maximum: amount } = charge;
      const result = await run(() => handler({ payer, network, amount, transaction: "" }, ...args));
      if (isFailure(result)) {
        const headers = await charge.release();
        return "payment-response" in headers
          ? withReceipt(result, settlementOf({ headers }))
          : result;
      }
      const kept = { status: 200, headers: {}, payload: JSON.stringify(result) };
      const outcome = await charge.settle(BigInt(amount), kept);
      if (outcome.kind === "refused") return refuse(outcome);
      return withReceipt(result, settlementOf(await outcome.delivered()));
    }
    const settlement = settlementOf(charge);
    // The response to an earlier call with this proof was lost; or it asked for a refund.
    if (charge.kept) return withReceipt(resultIn(charge.kept), settlement) as Result;
    const result = await run(() => handler(charge.receipt, ...args));
    return withReceipt(
      result,
      isFailure(result) ? settlement : settlementOf(await charge.delivered()),
    );
  };
}

/**
 * For the tool's `_meta` in `tools/list`. It reads what the facilitator supports, so call it when the server
 * starts.
 */
export async function priceTag(
  cashier: Pick<Cashier, "required">,
  tool: PricedTool,
): Promise<Record<string, unknown>> {
  return { [PAYMENT_REQUIRED_META]: await cashier.required(tool, request(tool)) };
}

function request({ name, url = `mcp://tool/${name}` }: PricedTool) {
  return { method: "POST", url, path: url, headers: {} };
}

/** The SDK passes the context last: `_meta` is in the context itself (1.x), or in its `mcpReq` (2.x). */
function proofOf(context: unknown): Record<string, string> {
  if (!isRecord(context)) return {};
  const { mcpReq } = context;
  const meta = context["_meta"] ?? (isRecord(mcpReq) ? mcpReq["_meta"] : undefined);
  const proof = isRecord(meta) ? meta[PAYMENT_META] : undefined;
  if (proof === undefined || proof === null) return {};
  return { "payment-signature": encodePaymentSignatureHeader(proof as PaymentPayload) };
}

const unpaid = (required: PaymentRequired): ToolFailure => ({
  isError: true,
  structuredContent: { ...required },
  content: [{ type: "text", text: JSON.stringify(required) }],
});

const isFailure = (result: object): boolean => (result as { isError?: unknown }).isError === true;

function resultIn({ payload }: KeptResponse): object {
  const result = JSON.parse(String(payload)) as object;
  if ("content" in result) return result;
  return { content: [{ type: "text", text: String(payload) }], structuredContent: result };
}

const settlementOf = ({ headers }: Pick<SettledPayment, "headers">): SettleResponse =>
  decodePaymentResponseHeader(headers["payment-response"] ?? "");

function withReceipt<Result extends object>(result: Result, settlement: SettleResponse): Result {
  const { _meta } = result as { _meta?: Record<string, unknown> };
  return { ...result, _meta: { ..._meta, [PAYMENT_RESPONSE_META]: settlement } };
}

/**
 * Builds the same error result as the SDKs. If the error were thrown to them, the payer would not get its
 * receipt.
 */
async function run<Result extends object>(
  work: () => Result | Promise<Result>,
): Promise<Result | ToolFailure> {
  try {
    return await work();
  } catch (error) {
    const text = error instanceof Error ? error.message : String(error);
    return { isError: true, content: [{ type: "text", text }] };
  }
}
