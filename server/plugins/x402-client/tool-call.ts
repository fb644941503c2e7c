/**
 * A tool of a remote MCP server as a fetch target: translates MCP responses to HTTP responses.
 * In x402's MCP transport the terms of a tool are an error result, the proof is in the call's `_meta`, and the
 * receipt is in the result's `_meta`. With the translation, all other code handles one kind of target.
 */
import { decodePaymentSignatureHeader } from "@x402/core/http";
import { parseExact, stringifyExact } from "../../core/exact-json.ts";
import { isRecord, parseForeignJson } from "../../core/foreign-text.ts";
import { OutboundError, type OutboundFailure } from "../../infra/outbound/guard.ts";
import { DEFAULT_TIMEOUT_MS, type OutboundResponse } from "../../infra/outbound/outbound.ts";
import { ApiError } from "../../errors.ts";
import { isRedirect } from "./content.ts";
import { isStream, McpConnection, unusable, type Exchange } from "./mcp-connection.ts";
import type { SendRequest, ToolCall } from "./request.ts";

/** Field names of x402's MCP transport. */
const PAYMENT = "x402/payment";
const PAYMENT_RESPONSE = "x402/payment-response";
/** Our paywall's field for a tool's price in `tools/list`; the protocol has no field for it yet. */
const PAYMENT_REQUIRED = "x402/payment-required";
/** The HTTP status for a failed tool. */
const TOOL_FAILED = 500;
/** Only this many pages of a tool list are searched. */
const MAX_PAGES = 8;

export class ToolTarget {
  readonly #connection: McpConnection;
  readonly #call: ToolCall;

  constructor(send: SendRequest, call: ToolCall) {
    this.#connection = new McpConnection(send);
    this.#call = call;
  }

  /** Calls the tool. A payment proof in the headers is moved to the MCP field. */
  send: SendRequest = async ({ headers = {}, ...request }) => {
    const { "payment-signature": v2, "x-payment": v1, ...rest } = headers;
    const shown = v2 ?? v1;
    const proof = shown === undefined ? undefined : decodePaymentSignatureHeader(shown);
    const exchange = await this.#connection.request({ ...request, headers: rest }, "tools/call", {
      name: this.#call.tool,
      arguments: this.#call.arguments ?? {},
      ...(proof && { _meta: { [PAYMENT]: proof } }),
    });
    return toHttp(exchange, proof !== undefined);
  };

  /**
   * Reads the price that the list of tools announces. Calling the tool to learn its price would run it if it is
   * free.
   */
  quote: SendRequest = async (request) => {
    const deadlineMs = performance.now() + (request.timeoutMs ?? DEFAULT_TIMEOUT_MS);
    let cursor: unknown;
    for (let page = 0; page < MAX_PAGES; page += 1) {
      const params = cursor === undefined ? {} : { cursor };
      const timeoutMs = Math.max(1, Math.ceil(deadlineMs - performance.now()));
      const timed = { ...request, timeoutMs };
      const exchange = await this.#connection.request(timed, "tools/list", params);
      const { response, reply } = exchange;
      const { tools, nextCursor } = isRecord(reply?.result) ? reply.result : {};
      if (!Array.isArray(tools)) {
        if (isRedirect(response.status)) return response;
        throw unusable(exchange);
      }
      const tool: unknown = tools.find((one) => isRecord(one) && one["name"] === this.#call.tool);
      if (isRecord(tool)) return announced(tool, response);
      cursor = nextCursor;
      if (typeof cursor !== "string") break;
    }
    throw new ApiError("upstream_error", {
      detail: "The MCP server has no tool with this name. Nothing was paid.",
    });
  };

  end(): void {
    this.#connection.end();
  }
}

function announced({ _meta }: Record<string, unknown>, response: OutboundResponse) {
  const required = isRecord(_meta) ? _meta[PAYMENT_REQUIRED] : undefined;
  if (!isTerms(required)) throw new ApiError("price_not_announced");
  return httpResponse(response, 402, required, termsHeader(required));
}

/** Converts the result to an HTTP response. */
function toHttp(exchange: Exchange, isPaid: boolean): OutboundResponse {
  const { response, reply } = exchange;
  const { status } = response;
  if (!reply) return withoutReply(exchange, isPaid);
  const { result, error } = reply;
  const terms = termsOf(reply);
  const claim = claimOf(result);
  if (terms) return httpResponse(response, 402, terms, { ...termsHeader(terms), ...claim });
  if (error) return httpResponse(response, status >= 400 ? status : TOOL_FAILED, error);
  const { isError, resultType = "complete" } = result as Record<string, unknown>;
  // A tool that requests more input (a person's answer, for example) has not finished.
  const isDone = isError !== true && resultType === "complete" && status < 300;
  return httpResponse(response, isDone ? 200 : TOOL_FAILED, result, claim);
}

function withoutReply(exchange: Exchange, isPaid: boolean): OutboundResponse {
  const { response, isSent } = exchange;
  const { status, truncated } = response;
  if (status === 402)
    throw new OutboundError("unreachable", {
      detail:
        "The MCP server requires an HTTP payment for itself, which is not the price of a tool",
      neverSent: !isSent,
    });
  // In a cut stream it is unknown whether any of it is the response.
  if (truncated !== undefined && status < 300 && isStream(response))
    throw new OutboundError(CUT[truncated]);
  // Returned as far as it came; the caller handles it like any other incomplete response.
  if (truncated !== undefined && status < 300 && response.body.length > 0) return response;
  if (status >= 400 || (isRedirect(status) && !isPaid)) return response;
  throw unusable(exchange);
}

const CUT: Record<NonNullable<OutboundResponse["truncated"]>, OutboundFailure> = {
  size: "too_large",
  timeout: "timeout",
  connection: "unreachable",
  encoding: "unreachable",
};

const isTerms = (value: unknown): value is Record<string, unknown> =>
  isRecord(value) && Array.isArray(value["accepts"]) && "x402Version" in value;

/** Terms are in the result, as a value or as text, or in an error as in an older version of the transport. */
function termsOf({ result, error }: NonNullable<Exchange["reply"]>) {
  if (error) return error["code"] === 402 && isTerms(error["data"]) ? error["data"] : undefined;
  if (!isRecord(result) || result["isError"] !== true) return undefined;
  const { structuredContent, content } = result;
  if (isTerms(structuredContent)) return structuredContent;
  const first: unknown = Array.isArray(content) ? content[0] : undefined;
  const text = isRecord(first) && first["type"] === "text" ? first["text"] : undefined;
  if (typeof text !== "string" || !parseForeignJson(text).ok) return undefined;
  const parsed = parseExact(text);
  return isTerms(parsed) ? parsed : undefined;
}

/** x402 version 1 has no header: its terms are in the body. */
const termsHeader = (terms: Record<string, unknown>): Record<string, string> =>
  terms["x402Version"] === 1 ? {} : { "payment-required": inHeader(terms) };

const inHeader = (value: unknown): string => Buffer.from(stringifyExact(value)).toString("base64");

/** Some sellers report a failed settlement together with the terms. */
function claimOf(result: unknown): Record<string, string> {
  if (!isRecord(result)) return {};
  const places = [result["_meta"], result["structuredContent"]];
  const claim = places.map((place) => isRecord(place) && place[PAYMENT_RESPONSE]).find(isRecord);
  return claim ? { "payment-response": inHeader(claim) } : {};
}

const httpResponse = (
  { truncated: _whole, contentEncoding: _unpacked, ...response }: OutboundResponse,
  status: number,
  content: unknown,
  headers: Record<string, string> = {},
): OutboundResponse => ({
  ...response,
  status,
  headers: { "content-type": "application/json", ...headers },
  body: Buffer.from(stringifyExact(content)),
});
