/**
 * The tools an agent may be given, in one table: MCP, and the OpenAI and Anthropic definitions, are
 * three renderings of it. Every tool is one call of our own HTTP API, so that limits, idempotency and
 * errors are the same on every path. No tool changes a rule: rules belong to the owner.
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
  /** What a success looks like; a refusal is the problem object. */
  output: TSchema;
  readOnly: boolean;
  /** Moves money, so it carries an Idempotency-Key. */
  pays: boolean;
  /** Talks to services that are not ours. */
  openWorld: boolean;
  toCall(args: Record<string, unknown>): ApiCall;
}

const IdempotencyKey = Type.Optional(
  Type.String({
    minLength: 1,
    maxLength: 255,
    description:
      "Leave it out. Only to buy the same again at once: a new key of your own; or to repeat an earlier call: the idempotencyKey of its answer",
  }),
);
const APPROVAL = `${ASK_THE_OWNER} Call request_approval once with a reason, then wait_for_approval, then repeat exactly the same call with the idempotencyKey of the answer.`;
const UNANSWERED = repeatUnanswered("idempotencyKey");

const { dryRun: _dryRun, ...fetchProperties } = X402FetchRequest.properties;
const { url, listingId, mcp, maxAmount, timeoutMs } = fetchProperties;
const paidOrAsked = (output: TSchema): TSchema => Type.Union([output, ApprovalRequired]);

export const AGENT_TOOLS: readonly AgentTool[] = [
  {
    name: "wallet_status",
    title: "Wallet status",
    description:
      "Your wallet's balance, the largest payment you can make now (limits.available) and the rule that allows no more (limits.boundBy), each limit with what is left of it, and who you may pay.",
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
      "What a GET of a URL, a marketplace listing, or a tool of an MCP server (mcp) would cost, and whether your limits allow it. Asks without a body, calls no tool, pays nothing, and answers the terms, not the content.",
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
    title: "Fetch, paying if asked",
    description: `Fetches a URL or a marketplace listing, or calls a tool of a remote MCP server (url and mcp), and pays its x402 price from your wallet, within your limits. Give maxAmount. ${UNANSWERED} ${APPROVAL} ${UNTRUSTED}`,
    input: Strict({ ...fetchProperties, idempotencyKey: IdempotencyKey }),
    output: paidOrAsked(X402FetchAnswer),
    readOnly: false,
    pays: true,
    openWorld: true,
    toCall: (args) => ({ method: "POST", url: "/api/agents/x402-fetch", payload: args }),
  },
  {
    name: "send_usdc",
    title: "Send USDC",
    description: `Pays USDC to an address your owner has allowed. ${NEVER_SPLIT} ${UNANSWERED} ${APPROVAL}`,
    input: Strict({ ...SpendRequest.properties, idempotencyKey: IdempotencyKey }),
    output: paidOrAsked(SpendAnswer),
    readOnly: false,
    pays: true,
    openWorld: true,
    toCall: (args) => ({ method: "POST", url: "/api/agents/spend", payload: args }),
  },
  {
    name: "request_approval",
    title: "Ask the owner",
    description:
      "Asks your owner to allow one payment that a rule refused (approvable:true): name the tool and the very arguments that were refused, and why. Nothing is paid before your owner signs; then repeat the same call with the idempotencyKey of the answer. If the rules allow it by now, it is paid at once.",
    input: Strict({
      tool: Type.Enum(["send_usdc", "x402_fetch"]),
      arguments: Type.Record(Type.String(), Type.Unknown(), {
        description: "Of the call that was refused, unchanged",
      }),
      reason: Type.String({ minLength: 1, maxLength: 280, description: "For your owner" }),
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
      "Waits until your owner has decided what you asked for. open: call it again, or do something else meanwhile. granted: repeat exactly the same call with idempotencyKey; it is paid once. declined: stop, do not pay it in another way or in parts.",
    input: Strict({
      approvalId: Type.String({ minLength: 1, maxLength: 64 }),
      waitSeconds: Type.Optional(
        Type.Integer({ minimum: 0, maximum: 30, description: "30 if you do not say" }),
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
    // What sellers say of themselves.
    openWorld: true,
    toCall: (args) => ({ method: "GET", url: `/api/listings${queryText(args)}` }),
  },
  {
    name: "list_payments",
    title: "List payments",
    description:
      "Your payments, refused ones included, newest first: what a call without an answer came to, and what was spent.",
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
      "One of your payments: its state, transaction and, when it was refused, the rule that refused it.",
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

/** A schema as plain JSON: what typebox keeps beside it (symbols, non-enumerables) goes. */
export const plain = (schema: TSchema): Record<string, unknown> =>
  JSON.parse(JSON.stringify(schema)) as Record<string, unknown>;
