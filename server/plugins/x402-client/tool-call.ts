/**
 * One tool of a remote MCP server as a target like any other: an answer of MCP in the words of HTTP (x402's MCP transport:
 * the terms of a tool are a result that is an error, the proof goes in the call's `_meta`, the receipt comes in the
 * result's). So whatever decides, pays, confirms and takes back knows one kind of target.
 */
import { decodePaymentSignatureHeader } from "@x402/core/http";
import { parseExact, stringifyExact } from "../../core/exact-json.ts";
import { isRecord, parseForeignJson, plainWords } from "../../core/foreign-text.ts";
import { OutboundError, type OutboundFailure } from "../../infra/outbound/guard.ts";
import { DEFAULT_TIMEOUT_MS, type OutboundResponse } from "../../infra/outbound/outbound.ts";
import { ApiError } from "../../errors.ts";
import { isRedirect } from "./content.ts";
import {
  isStream,
  McpConnection,
  unusable,
  type McpRequestOptions,
  type Exchange,
} from "./mcp-connection.ts";

export interface ToolCall {
  tool: string;
  arguments?: Record<string, unknown>;
}

/** As the protocol names them. */
const PAYMENT = "x402/payment";
const PAYMENT_RESPONSE = "x402/payment-response";
/** Our paywall's field for a tool's price in `tools/list`; the protocol has no field for it yet. */
const PAYMENT_REQUIRED = "x402/payment-required";
/** Headers of the transport are not the caller's to set. */
export const isOfTransport = (header: string): boolean =>
  /^(mcp-.*|accept|content-type|last-event-id)$/i.test(header);

/** The HTTP status that stands for a failed tool. */
const TOOL_FAILED = 500;
/** Lists longer than this are not looked through. */
const MAX_PAGES = 8;

export class ToolTarget {
  readonly #line: McpConnection;
  readonly #call: ToolCall;

  constructor(ask: McpRequestOptions, call: ToolCall) {
    this.#line = new McpConnection(ask);
    this.#call = call;
  }

  /** Calls the tool. A proof among the headers goes where MCP has it. */
  ask: McpRequestOptions = async ({ headers = {}, ...request }) => {
    const { "payment-signature": v2, "x-payment": v1, ...rest } = headers;
    const shown = v2 ?? v1;
    const proof = shown === undefined ? undefined : decodePaymentSignatureHeader(shown);
    const exchange = await this.#line.request({ ...request, headers: rest }, "tools/call", {
      name: this.#call.tool,
      arguments: this.#call.arguments ?? {},
      ...(proof && { _meta: { [PAYMENT]: proof } }),
    });
    return inHttp(exchange, proof !== undefined);
  };

  /** The terms that it announces in the list of tools. Calling a free tool to learn them would run it. */
  quote: McpRequestOptions = async (request) => {
    const deadlineMs = performance.now() + (request.timeoutMs ?? DEFAULT_TIMEOUT_MS);
    let cursor: unknown;
    for (let page = 0; page < MAX_PAGES; page += 1) {
      const params = cursor === undefined ? {} : { cursor };
      const timeoutMs = Math.max(1, Math.ceil(deadlineMs - performance.now()));
      const timed = { ...request, timeoutMs };
      const exchange = await this.#line.request(timed, "tools/list", params);
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
    this.#line.end();
  }
}

function announced({ _meta }: Record<string, unknown>, response: OutboundResponse) {
  const required = isRecord(_meta) ? _meta[PAYMENT_REQUIRED] : undefined;
  if (!isTerms(required)) throw new ApiError("price_not_announced");
  return inWords(response, 402, required, termsHeader(required));
}

/** The result, in the form of an HTTP response. */
function inHttp(exchange: Exchange, isPaid: boolean): OutboundResponse {
  const { response, reply } = exchange;
  const { status } = response;
  if (!reply) return withoutReply(exchange, isPaid);
  const { result, error } = reply;
  const terms = termsOf(reply);
  const claim = claimOf(result);
  if (terms) return inWords(response, 402, terms, { ...termsHeader(terms), ...claim });
  if (error) return inWords(response, status >= 400 ? status : TOOL_FAILED, error);
  const { isError, resultType = "complete" } = result as Record<string, unknown>;
  // A tool that requests more input (a person's answer, for example) has not done its work.
  const isDone = isError !== true && resultType === "complete" && status < 300;
  return inWords(response, isDone ? 200 : TOOL_FAILED, result, claim);
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
  // Of a stream nobody knows whether any of it is the answer.
  if (truncated !== undefined && status < 300 && isStream(response))
    throw new OutboundError(CUT[truncated]);
  // As far as it came; the caller treats it as any other incomplete answer.
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

/** In the result, as a value or as text; or, as the transport once had it, in an error. */
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

/** Version 1 has no header: its terms are the body. */
const termsHeader = (terms: Record<string, unknown>): Record<string, string> =>
  terms["x402Version"] === 1 ? {} : { "payment-required": inHeader(terms) };

const inHeader = (value: unknown): string => Buffer.from(stringifyExact(value)).toString("base64");

/** Some sellers report a failed settlement beside the terms. */
function claimOf(result: unknown): Record<string, string> {
  if (!isRecord(result)) return {};
  const places = [result["_meta"], result["structuredContent"]];
  const claim = places.map((place) => isRecord(place) && place[PAYMENT_RESPONSE]).find(isRecord);
  return claim ? { "payment-response": inHeader(claim) } : {};
}

const inWords = (
  { truncated: _whole, contentEncoding: _unpacked, ...response }: OutboundResponse,
  status: number,
  said: unknown,
  headers: Record<string, string> = {},
): OutboundResponse => ({
  ...response,
  status,
  headers: { "content-type": "application/json", ...headers },
  body: Buffer.from(stringifyExact(said)),
});

/** For the owner: which tool of the server, because the URL alone does not show it. */
export function readableTarget(url: URL, mcp: ToolCall | undefined): string {
  return mcp ? `${url.href}#${encodeURIComponent(plainWords(mcp.tool, 128))}` : url.href;
}
