/**
 * The table of all agent tools, from which the MCP, OpenAI and Anthropic definitions are made. Every tool is one call
 * of our own HTTP API, so that limits, idempotency and errors are the same on every path. No tool changes a rule: rules
 * belong to the owner.
 */
import { parseExact } from "../../core/exact-json.ts";
import { isRecord } from "../../core/foreign-text.ts";
import { ASK_THE_OWNER, NEVER_SPLIT, repeatUnanswered, UNTRUSTED } from "./guidance.ts";
import {
  input,
  integer,
  oneOf,
  optional,
  part,
  text,
  texts,
  type ToolInput,
} from "./tool-inputs.ts";

type Arguments = Record<string, unknown>;

export interface ApiCall {
  method: "GET" | "POST";
  url: string;
  payload?: Arguments;
}

export interface AgentTool {
  name: string;
  title: string;
  description: string;
  input: ToolInput;
  readOnly: boolean;
  /** Moves money, so it has an Idempotency-Key. */
  pays: boolean;
  /** Involves services of third parties. */
  openWorld: boolean;
  /** Arguments without the members that are null. */
  toCall(args: Arguments): ApiCall;
}

/** Arguments from which no call can be made. The API refuses everything else that is wrong with them. */
export class InvalidArguments extends Error {}

const idempotencyKey = optional(
  text(
    "Usually null. A new key buys the same again at once; the idempotencyKey of an answer repeats that call",
  ),
);
const APPROVAL = `${ASK_THE_OWNER} Call request_approval once with a reason, then wait_for_approval, then repeat exactly the same call with the idempotencyKey of the answer.`;
const UNANSWERED = repeatUnanswered("idempotencyKey");
const maxAmount = optional(text("USDC"));
const detail = optional(oneOf(["short", "full"], "full: every member of the answer"));
const target = {
  url: optional(text()),
  listingId: optional(text("Instead of url: a result of search_services")),
  mcp: optional(
    part(
      { tool: text(), arguments: optional(text("A JSON object")) },
      "A tool of the MCP server at url",
    ),
  ),
};
const timeoutMs = optional(integer());
const task = optional(text("A task you opened"));

const fetchCall = (args: Arguments): ApiCall => ({
  method: "POST",
  url: "/api/agents/x402-fetch",
  payload: fetchBody(args),
});
const spendCall = (args: Arguments): ApiCall => ({
  method: "POST",
  url: "/api/agents/spend",
  payload: args,
});

export const AGENT_TOOLS: readonly AgentTool[] = [
  {
    name: "wallet_status",
    title: "Wallet status",
    description:
      "Returns your wallet's balance, the largest payment you can make now (limits.available), the rule that limits it (limits.boundBy), the remaining amount of each limit, and the allowed payees.",
    input: input({ detail }),
    readOnly: true,
    pays: false,
    openWorld: false,
    toCall: (args) => ({ method: "GET", url: `/api/agents/me${queryText(args)}` }),
  },
  {
    name: "x402_quote",
    title: "Price of a paid URL",
    description:
      "Returns the price of a GET of a URL, a marketplace listing, or a tool of an MCP server (mcp), and whether your limits allow it. maximum:true: the price is the most it may charge. Sends no body, calls no tool and pays nothing. Returns the terms, not the content.",
    input: input({ ...target, maxAmount, task, timeoutMs, detail }),
    readOnly: true,
    pays: false,
    openWorld: true,
    toCall: (args) => fetchCall({ ...args, dryRun: true }),
  },
  {
    name: "x402_fetch",
    title: "Fetch and pay if required",
    description: `Fetches a URL or a marketplace listing, or calls a tool of a remote MCP server (url and mcp), and pays its x402 price from your wallet, within your limits. Give maxAmount. ${UNANSWERED} ${APPROVAL} ${UNTRUSTED}`,
    input: input({
      ...target,
      method: optional(oneOf(["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"])),
      headers: optional(texts("Name: value")),
      body: optional(text("Sent byte for byte; a JSON object or array as application/json")),
      maxAmount,
      maxAge: optional(
        integer("Seconds: returns what you paid for within this time (cached:true), unpaid"),
      ),
      task,
      timeoutMs,
      idempotencyKey,
      detail,
    }),
    readOnly: false,
    pays: true,
    openWorld: true,
    toCall: fetchCall,
  },
  {
    name: "send_usdc",
    title: "Send USDC",
    description: `Pays USDC to an address that your owner allowed. ${NEVER_SPLIT} ${UNANSWERED} ${APPROVAL}`,
    input: input({
      recipient: text("0x address"),
      amount: text('Such as "1.50"'),
      network: optional(text("CAIP-2; null: your wallet's")),
      memo: optional(text("For your own records")),
      task,
      idempotencyKey,
    }),
    readOnly: false,
    pays: true,
    openWorld: true,
    toCall: spendCall,
  },
  {
    name: "request_approval",
    title: "Ask the owner",
    description:
      "Asks your owner to allow one payment that a rule refused (approvable:true). Pass the tool, exactly the refused arguments, and a reason. Nothing is paid before your owner signs; then repeat the same call with the returned idempotencyKey. If the rules now allow the payment, it is paid immediately.",
    input: input({
      tool: oneOf(["send_usdc", "x402_fetch"]),
      arguments: text("The arguments of the refused call, unchanged, as a JSON object"),
      reason: text("Shown to your owner"),
      idempotencyKey,
    }),
    readOnly: false,
    pays: true,
    openWorld: true,
    toCall({ tool, arguments: refused, reason }) {
      const args = withoutNulls(readObject(refused, "arguments"));
      const { payload, ...call } = tool === "send_usdc" ? spendCall(args) : fetchCall(args);
      return { ...call, payload: { ...payload, requestApproval: true, reason } };
    },
  },
  {
    name: "wait_for_approval",
    title: "Wait for the owner's decision",
    description:
      "Waits for your owner's decision. open: call it again later. granted: repeat exactly the same call with idempotencyKey; it is paid once. declined: stop, and do not pay in another way or in parts.",
    input: input({
      approvalId: text(),
      waitSeconds: optional(integer("At most 30, the default")),
    }),
    readOnly: true,
    pays: false,
    openWorld: false,
    toCall: ({ approvalId, waitSeconds = 30 }) => ({
      method: "GET",
      url: `/api/agents/approvals/${encodeURIComponent(String(approvalId))}${queryText({ wait: waitSeconds })}`,
    }),
  },
  {
    name: "open_task",
    title: "Open a task",
    description:
      "Sets a ceiling for one piece of work, within your limits: payments that name the task count in it.",
    input: input({
      id: text("Your own, such as report-1"),
      limit: text("USDC"),
      expiresAt: optional(text("RFC 3339")),
      name: optional(text("For your owner")),
    }),
    readOnly: false,
    pays: false,
    openWorld: false,
    toCall: (args) => ({ method: "POST", url: "/api/agents/tasks", payload: args }),
  },
  {
    name: "close_task",
    title: "Close a task",
    description: "Ends a task: it pays nothing more. Returns what it cost.",
    input: input({ id: text() }),
    readOnly: false,
    pays: false,
    openWorld: false,
    toCall: ({ id }) => ({
      method: "POST",
      url: `/api/tasks/${encodeURIComponent(String(id))}/close`,
      payload: {},
    }),
  },
  {
    name: "list_tasks",
    title: "Tasks",
    description: "Returns one task, or the open ones: what they cost, what is reserved and left.",
    input: input({ id: optional(text()), cursor: optional(text()) }),
    readOnly: true,
    pays: false,
    openWorld: false,
    toCall: ({ id, cursor }) => ({
      method: "GET",
      url:
        typeof id === "string"
          ? `/api/tasks/${encodeURIComponent(id)}`
          : `/api/agents/tasks${queryText({ state: "open", ...(cursor === undefined ? {} : { cursor }) })}`,
    }),
  },
  {
    name: "search_services",
    title: "Search paid services",
    description: `Searches the marketplace of paid APIs. Use a result's id as listingId. maximum:true: the price is the most it may charge. ${UNTRUSTED}`,
    input: input({
      search: optional(text()),
      category: optional(text()),
      network: optional(text()),
      maxPrice: optional(text("USDC")),
      limit: optional(integer()),
      cursor: optional(text()),
      detail,
    }),
    readOnly: true,
    pays: false,
    // Descriptions that sellers wrote.
    openWorld: true,
    toCall: ({ detail: asked = "short", ...args }) => ({
      method: "GET",
      url: `/api/listings${queryText({ ...args, detail: asked })}`,
    }),
  },
  {
    name: "list_payments",
    title: "List payments",
    description:
      "Lists your payments, including refused ones, newest first. Use it to see how a call without a response ended and what you spent.",
    input: input({
      status: optional(
        text("Comma list of blocked, reserved, submitted, settled, voided, unknown"),
      ),
      kind: optional(text("Comma list of spend, x402, withdrawal, incoming, deposit")),
      task: optional(text()),
      from: optional(text("RFC 3339")),
      to: optional(text("RFC 3339")),
      limit: optional(integer("At most 100")),
      cursor: optional(text("nextCursor of the page before")),
      detail,
    }),
    readOnly: true,
    pays: false,
    openWorld: false,
    toCall: (args) => ({ method: "GET", url: `/api/agents/me/payments${queryText(args)}` }),
  },
  {
    name: "payment_status",
    title: "Payment status",
    description:
      "Returns everything about one of your payments: its status, its transaction, the seller's evidence and, if refused, the rule that refused it.",
    input: input({ paymentId: text() }),
    readOnly: true,
    pays: false,
    openWorld: false,
    toCall: ({ paymentId }) => ({
      method: "GET",
      url: `/api/agents/me/payments/${encodeURIComponent(String(paymentId))}`,
    }),
  },
];

/** Strict function calling has no optional members: null stands for one that is left out. */
export const withoutNulls = (args: Arguments): Arguments =>
  Object.fromEntries(Object.entries(args).filter(([, value]) => value !== null));

/**
 * The body of x402-fetch. Strict schemas have no free objects, so headers come as lines, and a body and the arguments
 * of a remote tool as JSON text. Clients without strict schemas may still pass objects.
 */
function fetchBody({ headers, body, mcp, ...args }: Arguments): Arguments {
  const named = Array.isArray(headers) ? Object.fromEntries(headers.map(readHeader)) : headers;
  return {
    ...args,
    ...(named === undefined ? {} : { headers: named }),
    ...(body === undefined ? {} : { body }),
    ...(mcp === undefined ? {} : { mcp: isRecord(mcp) ? toolCall(withoutNulls(mcp)) : mcp }),
  };
}

const toolCall = ({ arguments: given, ...mcp }: Arguments): Arguments =>
  given === undefined ? mcp : { ...mcp, arguments: readObject(given, "mcp.arguments") };

function readHeader(line: unknown): [string, string] {
  const [, name, value] = /^([^:]+):(.*)$/s.exec(String(line)) ?? [];
  if (name === undefined || value === undefined)
    throw new InvalidArguments(`headers: "${String(line).slice(0, 100)}" is not "Name: value"`);
  return [name.trim(), value.trim()];
}

function readObject(given: unknown, path: string): Arguments {
  const value = typeof given === "string" ? parsed(given) : given;
  if (!isRecord(value)) throw new InvalidArguments(`${path} must be a JSON object`);
  return value;
}

function parsed(json: string): unknown {
  try {
    return parseExact(json);
  } catch {
    return undefined;
  }
}

function queryText(args: Arguments): string {
  const search = new URLSearchParams();
  for (const [key, value] of Object.entries(args)) search.set(key, String(value));
  return search.size === 0 ? "" : `?${search.toString()}`;
}

/** https://platform.openai.com/docs/guides/function-calling#strict-mode */
export const openAiTools = () =>
  AGENT_TOOLS.map(({ name, description, input: parameters }) => ({
    type: "function" as const,
    function: { name, description, strict: true as const, parameters },
  }));

/** https://docs.anthropic.com/en/docs/build-with-claude/tool-use */
export const anthropicTools = () =>
  AGENT_TOOLS.map(({ name, description, input: input_schema }) => ({
    name,
    description,
    input_schema,
  }));
