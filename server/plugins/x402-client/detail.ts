/**
 * How much of an answer is returned. What is stored, and what later calls with the key find, is always the full answer:
 * the same call with `detail: "full"` returns it and pays nothing.
 */
import { ExactJson, parseExact } from "../../core/exact-json.ts";
import { isRecord } from "../../core/foreign-text.ts";
import type { Detail } from "../../schemas/common.ts";
import type { Answer } from "../payments/idempotency.ts";
import { isRedirect } from "./content.ts";

type Body = Record<string, unknown>;

/** In this order, because a reader who stops early should have read the payment. */
const ALWAYS = [
  "success",
  "paid",
  "amountPaid",
  "txHash",
  "channel",
  "paymentId",
  "status",
  "data",
  "text",
  "dataBase64",
  "contentEncoding",
  "delivered",
  "remaining",
] as const;
/** There only if they say something unusual, or in a quote. */
const UNUSUAL = [
  "note",
  "cached",
  "signedIn",
  "budgetReturnsAt",
  "task",
  "dryRun",
  "price",
  "maximum",
  "requirement",
] as const;

export function withDetail(answer: Answer, detail: Detail = "short"): Answer {
  const { statusCode, replayed, joined, body } = answer;
  // An approval that was requested, or another answer than of a fetch.
  if (!("paid" in body) || statusCode !== 200) return answer;
  const whole = { ...body, evidence: evidenceOf(body) };
  return {
    statusCode,
    replayed,
    ...(joined && { joined }),
    body: detail === "full" ? whole : shortAnswer(whole),
  };
}

function shortAnswer(body: Body): Body {
  const { contentType, omittedHeaders, truncated, verdict, evidence } = body;
  const isQuote = body["dryRun"] === true;
  const headers = neededHeaders(body);
  return {
    // A quote has no content.
    ...picked(body, isQuote ? ALWAYS.filter((name) => name !== "data") : ALWAYS),
    evidence,
    ...picked(body, UNUSUAL),
    ...("dataBase64" in body && { contentType }),
    ...(truncated === true && { truncated }),
    ...(headers && { headers }),
    ...(isLong(omittedHeaders) && { omittedHeaders }),
    ...(verdict !== undefined && { verdict: shortVerdict(valueOf(verdict)) }),
  };
}

const picked = (body: Body, names: readonly string[]): Body =>
  Object.fromEntries(names.flatMap((name) => (name in body ? [[name, body[name]]] : [])));

/** Members of a stored answer are text until they are read. */
const valueOf = (member: unknown): unknown =>
  member instanceof ExactJson ? parseExact(member.text) : member;

const isLong = (member: unknown): boolean => {
  const list = valueOf(member);
  return Array.isArray(list) && list.length > 0;
};

/** Without these an agent cannot follow a redirect, or know when to try again. */
function neededHeaders(body: Body): Body | undefined {
  const status = Number(body["status"]);
  const headers = valueOf(body["headers"]);
  if (!isRecord(headers) || (status < 400 && !isRedirect(status))) return undefined;
  const needed = picked(headers, ["location", "retry-after"]);
  return Object.keys(needed).length > 0 ? needed : undefined;
}

function evidenceOf(body: Body): "verified" | "not verified" | null {
  const receipt = valueOf(body["receipt"]);
  const evidence = isRecord(receipt) ? receipt["evidence"] : undefined;
  if (!isRecord(evidence)) return null;
  return evidence["verified"] === true ? "verified" : "not verified";
}

/** Every rule with its result, and the reason of those that did not pass. */
function shortVerdict(verdict: unknown): unknown {
  if (!isRecord(verdict)) return verdict;
  const { allowed, code, detail, rules, ...numbers } = verdict;
  const short = { allowed, code, detail };
  const listed = (Array.isArray(rules) ? rules.filter(isRecord) : []).map((rule) =>
    rule["passed"] === false ? rule : { rule: rule["rule"], passed: rule["passed"] },
  );
  if (allowed === true) return { ...short, rules: listed };
  const { choice: _choice, ...policy } = numbers;
  return { ...short, ...policy, rules: listed };
}
