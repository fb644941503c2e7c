/**
 * Requests a URL as a buyer does who has not paid yet: once, and a POST with the caller's body only where one without a
 * body was refused. Every request goes through the guarded way out.
 */
import { plainWords } from "../../core/foreign-text.ts";
import { OutboundError, reasonOf } from "../../infra/outbound/guard.ts";
import type { OutboundRequest, OutboundResponse } from "../../infra/outbound/outbound.ts";
import type { Finding } from "../../schemas/validate.ts";
import { probeOf } from "../x402-client/ask.ts";
import { isRedirect } from "../x402-client/content.ts";
import type { TargetRequest } from "../x402-client/request.ts";
import { finding, type CauseCode } from "./causes.ts";

export type Send = (request: OutboundRequest) => Promise<OutboundResponse>;

export interface Wanted {
  url: URL;
  method: "GET" | "POST";
  body: string | undefined;
}

export interface Exchange {
  /** The request that was answered last. */
  target: TargetRequest;
  response?: OutboundResponse;
  findings: Finding[];
}

/** What the URL itself rules out. An error among these means that nothing is requested. */
export function checkUrl(url: URL, privateOrigins: readonly string[]): Finding[] {
  if (url.username !== "" || url.password !== "") return [finding("url_has_credentials", "url")];
  if (url.protocol === "https:" || privateOrigins.includes(url.origin)) return [];
  return [finding("not_https", "url", { fix: url.href.replace(/^http:/, "https:") })];
}

export async function exchange(send: Send, wanted: Wanted, timeoutMs: number): Promise<Exchange> {
  const { url, method, body } = wanted;
  const bare = await request(send, probeOf(url.href, { method, timeoutMs }));
  const status = bare.response?.status ?? 0;
  if (body === undefined || method !== "POST" || !isRefusedBody(status)) return judged(bare);
  const headers = { "content-type": typeOf(body) };
  const whole = await request(send, probeOf(url.href, { method, timeoutMs, headers, body }));
  if (whole.response?.status !== 402) return judged(whole);
  return { ...whole, findings: [finding("post_needs_body", "status", { found: String(status) })] };
}

/** A refusal that a body could change. */
const isRefusedBody = (status: number): boolean =>
  status >= 400 && status < 500 && ![401, 402, 403, 404, 405, 410, 429].includes(status);

function typeOf(body: string): string {
  try {
    JSON.parse(body);
    return "application/json";
  } catch {
    return "text/plain; charset=utf-8";
  }
}

async function request(send: Send, target: TargetRequest): Promise<Exchange> {
  try {
    return { target, response: await send(target), findings: [] };
  } catch (error) {
    if (!(error instanceof OutboundError)) throw error;
    return { target, findings: [finding(causeOf(error), "url")] };
  }
}

function causeOf(error: OutboundError): CauseCode {
  const reason = reasonOf(error);
  switch (error.failure) {
    case "blocked":
      return "url_blocked";
    case "timeout":
      return "timed_out";
    case "too_large":
      return reason === "headers" ? "headers_too_large" : "answer_too_large";
    case "undecodable":
      return "answer_unreadable";
    default:
      if (reason === "name") return "name_unknown";
      return reason === "certificate" ? "certificate_invalid" : "unreachable";
  }
}

const BY_STATUS: Partial<Record<number, CauseCode>> = {
  401: "needs_login",
  403: "needs_login",
  404: "not_found",
  405: "wrong_method",
  410: "not_found",
  429: "too_many_requests",
};

function judged(made: Exchange): Exchange {
  const { response, target } = made;
  if (!response || response.status === 402) return made;
  const { status, headers } = response;
  const found = String(status);
  if (isRedirect(status)) {
    const where = headers["location"];
    const to = plainWords(Array.isArray(where) ? where[0] : where, 300);
    return { ...made, findings: [finding("redirects", "Location", { found: to || found })] };
  }
  const other = target.method === "GET" ? "POST" : "GET";
  const code = BY_STATUS[status] ?? ofRange(status);
  const isOfMethod = code === "not_found" || code === "wrong_method";
  const fix = isOfMethod ? `Check the path, or validate it with the method ${other}` : undefined;
  return { ...made, findings: [finding(code, "status", { found, fix })] };
}

function ofRange(status: number): CauseCode {
  if (status < 300) return "free";
  return status >= 500 ? "server_error" : "other_status";
}
