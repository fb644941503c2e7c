/**
 * The table of all agent tools, from which the MCP, OpenAI and Anthropic definitions are made. Every tool is one call
 * of our own HTTP API, so that limits, idempotency and errors are the same on every path. No tool changes a rule: rules
 * belong to the owner.
 */
import { Type, type TObject, type TSchema } from "typebox";
import { AgentApproval, ApprovalRequired } from "../../schemas/approvals.ts";
import { Amount, Page, Strict } from "../../schemas/common.ts";
import { ListingPage } from "../../schemas/listings.ts";
import {
  AgentSelf,
  Payment,
  PaymentFilters,
  SpendAnswer,
  SpendRequest,
} from "../../schemas/payments.ts";
import { X402FetchAnswer, X402FetchRequest } from "../../schemas/x402-fetch.ts";
import { ASK_THE_OWNER, NEVER_SPLIT, repeatUnanswered, UNTRUSTED } from "./guidance.ts";

export interface ApiCall {
  method: "GET" | "POST";
  url: string;
  payload?: Record<string, unknown>;
}

export interface AgentTool {
  name: string;
  title: string;
  description: string;
  input: TObject;
  /** The result of a success; a refusal is the problem object. */
  output: TSchema;
  readOnly: boolean;
  /** Moves money, so it has an Idempotency-Key. */
  pays: boolean;
  /** Involves services of third parties. */
  openWorld: boolean;
  toCall(args: Record<string, unknown>): ApiCall;
}

const IdempotencyKey = Type.Optional(
  Type.String({
    minLength: 1,
    maxLength: 255,
    description:
      "Usually leave it out. Pass a new key to buy the same again immediately, or the idempotencyKey of an earlier response to repeat that call",
  }),
);
const APPROVAL = `${ASK_THE_OWNER} Call request_approval once with a reason, then wait_for_approval, then repeat exactly the same call with the idempotencyKey of the answer.`;
const UNANSWERED = repeatUnanswered("idempotencyKey");

const { dryRun: _dryRun, ...fetchProperties } = X402FetchRequest.properties;
const { url, listingId, mcp, maxAmount, timeoutMs } = fetchProperties;
const paidOrApprovalRequired = (output: TSchema): TSchema => Type.Union([output, ApprovalRequired]);

export const AGENT_TOOLS: readonly AgentTool[] = [
  {
    name: "wallet_status",
    title: "Wallet status",
    description:
      "Returns your wallet's balance, the largest payment you can make now (limits.available), the rule that limits it (limits.boundBy), the remaining amount of each limit, and the allowed payees.",
    input: Strict({}),
    output: AgentSelf,
    readOnly: true,
    pays: false,
    openWorld: false,
    toCall: () => ({ method: "GET", url: "/api/agents/me" }),
  },
  {
    name: "x402_quote",
    title: "Price of a paid URL",
    description:
      "Returns the price of a GET of a URL, a marketplace listing, or a tool of an MCP server (mcp), and whether your limits allow it. Sends no body, calls no tool and pays nothing. Returns the terms, not the content.",
    input: Strict({ url, listingId, mcp, maxAmount, timeoutMs }),
    output: X402FetchAnswer,
    readOnly: true,
    pays: false,
    openWorld: true,
    toCall: (args) => ({
      method: "POST",
      url: "/api/agents/x402-fetch",
      payload: { ...args, dryRun: true },
    }),
  },
  {
    name: "x402_fetch",
    title: "Fetch and pay if required",
    description: `Fetches a URL or a marketplace listing, or calls a tool of a remote MCP server (url and mcp), and pays its x402 price from your wallet, within your limits. Give maxAmount. ${UNANSWERED} ${APPROVAL} ${UNTRUSTED}`,
    input: Strict({ ...fetchProperties, idempotencyKey: IdempotencyKey }),
    output: paidOrApprovalRequired(X402FetchAnswer),
    readOnly: false,
    pays: true,
    openWorld: true,
    toCall: (args) => ({ method: "POST", url: "/api/agents/x402-fetch", payload: args }),
  },
  {
    name: "send_usdc",
    title: "Send USDC",
    description: `Pays USDC to an address that your owner allowed. ${NEVER_SPLIT} ${UNANSWERED} ${APPROVAL}`,
    input: Strict({ ...SpendRequest.properties, idempotencyKey: IdempotencyKey }),
    output: paidOrApprovalRequired(SpendAnswer),
    readOnly: false,
    pays: true,
    openWorld: true,
    toCall: (args) => ({ method: "POST", url: "/api/agents/spend", payload: args }),
  },
  {
    name: "request_approval",
    title: "Ask the owner",
    description:
      "Asks your owner to allow one payment that a rule refused (approvable:true). Pass the tool, exactly the refused arguments, and a reason. Nothing is paid before your owner signs; then repeat the same call with the returned idempotencyKey. If the rules now allow the payment, it is paid immediately.",
    input: Strict({
      tool: Type.Enum(["send_usdc", "x402_fetch"]),
      arguments: Type.Record(Type.String(), Type.Unknown(), {
        description: "The arguments of the refused call, unchanged",
      }),
      reason: Type.String({ minLength: 1, maxLength: 280, description: "Shown to your owner" }),
      idempotencyKey: IdempotencyKey,
    }),
    output: Type.Union([SpendAnswer, X402FetchAnswer, ApprovalRequired]),
    readOnly: false,
    pays: true,
    openWorld: true,
    toCall: ({ tool, arguments: call, reason }) => ({
      method: "POST",
      url: tool === "send_usdc" ? "/api/agents/spend" : "/api/agents/x402-fetch",
      payload: { ...(call as Record<string, unknown>), requestApproval: true, reason },
    }),
  },
  {
    name: "wait_for_approval",
    title: "Wait for the owner's decision",
    description:
      "Waits for your owner's decision. open: call it again later. granted: repeat exactly the same call with idempotencyKey; it is paid once. declined: stop, and do not pay in another way or in parts.",
    input: Strict({
      approvalId: Type.String({ minLength: 1, maxLength: 64 }),
      waitSeconds: Type.Optional(
        Type.Integer({ minimum: 0, maximum: 30, description: "Default 30" }),
      ),
    }),
    output: AgentApproval,
    readOnly: true,
    pays: false,
    openWorld: false,
    toCall: ({ approvalId, waitSeconds = 30 }) => ({
      method: "GET",
      url: `/api/agents/approvals/${encodeURIComponent(String(approvalId))}${queryText({ wait: waitSeconds })}`,
    }),
  },
  {
    name: "search_services",
    title: "Search paid services",
    description: `Searches the marketplace of paid APIs. Use a result's id as listingId. ${UNTRUSTED}`,
    input: Strict({
      search: Type.Optional(Type.String({ maxLength: 200 })),
      category: Type.Optional(Type.String({ maxLength: 40 })),
      maxPrice: Type.Optional(Amount),
      limit: Type.Optional(Type.Integer({ minimum: 1, maximum: 100 })),
      cursor: Type.Optional(Type.String({ maxLength: 300 })),
    }),
    output: ListingPage,
    readOnly: true,
    pays: false,
    // Descriptions that sellers wrote.
    openWorld: true,
    toCall: (args) => ({ method: "GET", url: `/api/listings${queryText(args)}` }),
  },
  {
    name: "list_payments",
    title: "List payments",
    description:
      "Lists your payments, including refused ones, newest first. Use it to see how a call without a response ended and what you spent.",
    input: Strict(PaymentFilters.properties),
    output: Page(Payment),
    readOnly: true,
    pays: false,
    openWorld: false,
    toCall: (args) => ({ method: "GET", url: `/api/agents/me/payments${queryText(args)}` }),
  },
  {
    name: "payment_status",
    title: "Payment status",
    description:
      "Returns one of your payments: its status, its transaction and, if refused, the rule that refused it.",
    input: Strict({ paymentId: Type.String({ minLength: 1, maxLength: 64 }) }),
    output: Payment,
    readOnly: true,
    pays: false,
    openWorld: false,
    toCall: ({ paymentId }) => ({
      method: "GET",
      url: `/api/agents/me/payments/${encodeURIComponent(String(paymentId))}`,
    }),
  },
];

function queryText(args: Record<string, unknown>): string {
  const search = new URLSearchParams();
  for (const [key, value] of Object.entries(args)) search.set(key, String(value));
  return search.size === 0 ? "" : `?${search.toString()}`;
}

/** https://platform.openai.com/docs/guides/function-calling */
export const openAiTools = () =>
  AGENT_TOOLS.map(({ name, description, input }) => ({
    type: "function",
    function: { name, description, parameters: plain(input) },
  }));

/** https://docs.anthropic.com/en/docs/build-with-claude/tool-use */
export const anthropicTools = () =>
  AGENT_TOOLS.map(({ name, description, input }) => ({
    name,
    description,
    input_schema: plain(input),
  }));

/** A schema as plain JSON, without typebox's own metadata (symbols, non-enumerable members). */
export const plain = (schema: TSchema): Record<string, unknown> =>
  JSON.parse(JSON.stringify(schema)) as Record<string, unknown>;
