/**
 * A price on a tool of an MCP server, by x402's MCP transport: the terms are a tool result with `isError`, the proof comes
 * in the call's `_meta`, the receipt goes back in the result's. Depends on no MCP SDK: it wraps the tool's handler, which
 * both official ones call with the arguments (of a tool that takes any) and a context.
 */
import { decodePaymentResponseHeader, encodePaymentSignatureHeader } from "@x402/core/http";
import type { PaymentPayload, PaymentRequired, SettleResponse } from "@x402/core/types";
import type { Receipt, SettledPayment } from "./answers.ts";
import type { Cashier, PaidResource } from "./charge.ts";
import { isRecord } from "./foreign-json.ts";

export type { Receipt } from "./answers.ts";
export { cashier, type CashierOptions } from "./cashier.ts";
export { Cashier, type PaidResource } from "./charge.ts";
export { PAYMENT_NETWORKS, type PaymentNetwork } from "./networks.ts";

/** As the protocol names them. */
export const PAYMENT_META = "x402/payment";
export const PAYMENT_RESPONSE_META = "x402/payment-response";
/** Ours, in a tool's own `_meta`: what `tools/list` tells of the price, so that nobody has to call a tool to learn it. */
export const PAYMENT_REQUIRED_META = "x402/payment-required";

/** For a price that is known before the tool runs; who paid and calls again pays again. */
export interface PricedTool extends Omit<PaidResource, "price" | "discoverable" | "again"> {
  /** USDC as a decimal string. */
  price: string;
  /** The tool's, as it is registered. */
  name: string;
  /** What is sold; `mcp://tool/<name>` unless said. */
  url?: string;
}

export interface PaidTool<Args extends unknown[]> extends PricedTool {
  /** Work that may fail, done when a fitting proof is there and before it is settled: an error here costs nothing. */
  prepare?: (...args: Args) => void | Promise<void>;
}

/** What a call ends in that was not paid, or that failed. */
export type ToolFailure = {
  isError: true;
  structuredContent?: Record<string, unknown>;
  content: { type: "text"; text: string }[];
  _meta?: Record<string, unknown>;
};

/**
 * The tool's handler behind a price: settled before it runs, and run once per payment. It is given the receipt, and after
 * that what the SDK gives it. What it throws after it was paid is told with the receipt. Where the cashier signs receipts,
 * that of a call that did not fail is signed.
 */
export function paidTool<Args extends unknown[], Result extends object>(
  desk: Pick<Cashier, "charge" | "required">,
  tool: PaidTool<Args>,
  handler: (receipt: Receipt, ...args: Args) => Result | Promise<Result>,
): (...args: Args) => Promise<Result | ToolFailure> {
  return async (...args) => {
    const asked = { ...request(tool), headers: proofOf(args.at(-1)) };
    const charge = await desk.charge(tool, asked, async () => tool.prepare?.(...args));
    if (charge.kind === "unpaid") return unpaid(charge.required);
    if (charge.kind !== "settled" && charge.kind !== "refused")
      throw new Error(`a tool cannot be charged as ${charge.kind}`);
    const settlement = settlementOf(charge);
    if (charge.kind === "refused") {
      const why = `Payment settlement failed: ${settlement.errorReason ?? "not settled"}`;
      return withReceipt(unpaid(await desk.required(tool, request(tool), why)), settlement);
    }
    const result = await run(() => handler(charge.receipt, ...args));
    const isDone = (result as { isError?: unknown }).isError !== true;
    return withReceipt(result, isDone ? settlementOf(await charge.delivered()) : settlement);
  };
}

/** For the tool's `_meta` in `tools/list`: asks the facilitator what it takes, so it is made when the server starts. */
export async function priceTag(
  desk: Pick<Cashier, "required">,
  tool: PricedTool,
): Promise<Record<string, unknown>> {
  return { [PAYMENT_REQUIRED_META]: await desk.required(tool, request(tool)) };
}

function request({ name, url = `mcp://tool/${name}` }: PricedTool) {
  return { method: "POST", url, path: url, headers: {} };
}

/** The context is what the SDK gives last: `_meta` stands in it (1.x), or in its `mcpReq` (2.x). */
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

const settlementOf = ({ headers }: Pick<SettledPayment, "headers">): SettleResponse =>
  decodePaymentResponseHeader(headers["payment-response"] ?? "");

function withReceipt<Result extends object>(result: Result, settlement: SettleResponse): Result {
  const { _meta } = result as { _meta?: Record<string, unknown> };
  return { ...result, _meta: { ..._meta, [PAYMENT_RESPONSE_META]: settlement } };
}

/** In the words of the SDKs; thrown on to them, the receipt would not reach who paid. */
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
