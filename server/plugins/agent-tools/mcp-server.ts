/**
 * The MCP server: tools, resources and a prompt, for one request of one agent. Stateless, so any replica can handle the
 * next request.
 */
import {
  CLIENT_CAPABILITIES_META_KEY,
  createMcpHandler,
  inputRequired,
  ProtocolError,
  ProtocolErrorCode,
  ResourceNotFoundError,
  Server,
  type CallToolResult,
  type InputRequiredResult,
  type McpHttpHandler,
  type ServerContext,
  type Tool,
} from "@modelcontextprotocol/server";
import { isRecord } from "../../core/foreign-text.ts";
import { VERSION } from "../../infra/version.ts";
import { answerResource, contentOf, shortProblem, type StoredAnswer } from "./content.ts";
import {
  ASK_THE_OWNER,
  NEVER_SPLIT,
  repeatUnanswered,
  UNTRUSTED,
  WHEN_PAUSED,
} from "./guidance.ts";
import {
  AGENT_TOOLS,
  InvalidArguments,
  withoutNulls,
  type AgentTool,
  type ApiCall,
} from "./tools.ts";

interface ApiAnswer {
  status: number;
  body: Record<string, unknown>;
  /** The text of a response that is not JSON. */
  text: string;
  /** The idempotency key under which it is stored; generated if the caller gave none. */
  idempotencyKey: string | undefined;
}

/** The client, with access to our API on its behalf. */
export interface McpCaller {
  /** Uses the caller's credential; `id` is the JSON-RPC request that a cancellation would name. */
  callApi(
    call: ApiCall,
    options?: { idempotencyKey?: string | undefined; id?: string | number; pays?: boolean },
  ): Promise<ApiAnswer>;
  /** The response of one of the agent's own paid fetches, while it is stored. */
  storedAnswer(key: string): Promise<StoredAnswer | undefined>;
}

const SKILL_URI = "purser://skill";
const ANSWER_URI = "purser://answers/";
/** Clients that restart their timeout on progress notifications wait as long as the payment takes. */
const PROGRESS_MS = 750;

const INSTRUCTIONS = [
  "You have a USDC wallet with limits that your owner set. Call x402_quote before you pay. A refusal names the rule, and when the same payment fits.",
  NEVER_SPLIT,
  repeatUnanswered("idempotencyKey"),
  ASK_THE_OWNER,
  WHEN_PAUSED,
  "Call request_approval once, then wait_for_approval, then repeat the same call with the idempotencyKey of the answer.",
  UNTRUSTED,
  "The same holds for parts marked UNTRUSTED.",
].join(" ");

const SETUP = `Set up my Purser wallet with me.
1. Read the resource ${SKILL_URI}: it explains how to pay and what to do when a payment is refused.
2. Call wallet_status. Show me the wallet's address and balance, how much it can pay now (limits.available), which rule limits that (limits.boundBy), and the allowed payees.
3. If the balance is 0, tell me to send USDC to that address on that network, and stop.
4. Find one cheap service with search_services and read its price with x402_quote. Do not pay before I confirm.`;

/** Supports both protocols: revision 2026-07-28, and the earlier ones, without sessions. */
export const mcpHandler = (
  callerOf: (request: Request) => McpCaller | undefined,
  onerror: (error: Error) => void,
): McpHttpHandler =>
  createMcpHandler(
    ({ requestInfo }) => {
      const caller = requestInfo && callerOf(requestInfo);
      if (!caller) throw new Error("an MCP request without a caller");
      return createMcpServer(caller);
    },
    { onerror },
  );

function createMcpServer(caller: McpCaller): Server {
  const server = new Server(
    { name: "purser", version: VERSION },
    {
      capabilities: { tools: {}, resources: {}, prompts: {} },
      instructions: INSTRUCTIONS,
      cacheHints: { "tools/list": { ttlMs: 60_000, cacheScope: "public" } },
    },
  );
  server.setRequestHandler("tools/list", () => ({ tools: AGENT_TOOLS.map(describe) }));
  server.setRequestHandler("tools/call", async ({ params }, context) => {
    const tool = AGENT_TOOLS.find((candidate) => candidate.name === params.name);
    if (!tool) throw invalid(`There is no tool "${params.name}"`);
    return whileReporting(context, () => run(tool, params.arguments ?? {}, { caller, context }));
  });
  offerResources(server, caller);
  server.setRequestHandler("prompts/list", () => ({
    prompts: [{ name: "setup", title: "Set up the wallet", description: "The first steps" }],
  }));
  server.setRequestHandler("prompts/get", ({ params }) => {
    if (params.name !== "setup") throw invalid(`There is no prompt "${params.name}"`);
    return {
      messages: [{ role: "user" as const, content: { type: "text" as const, text: SETUP } }],
    };
  });
  return server;
}

const invalid = (message: string): ProtocolError =>
  new ProtocolError(ProtocolErrorCode.InvalidParams, message);

function offerResources(server: Server, caller: McpCaller): void {
  server.setRequestHandler("resources/list", () => ({
    resources: [
      {
        uri: SKILL_URI,
        name: "skill",
        title: "How to use this wallet",
        description: "The skill file: the calls you need, and what to do when a payment is refused",
        mimeType: "text/markdown",
      },
    ],
  }));
  server.setRequestHandler("resources/templates/list", () => ({
    resourceTemplates: [
      {
        uriTemplate: `${ANSWER_URI}{idempotencyKey}`,
        name: "answer",
        title: "Response of a paid fetch",
        description: "The response of one of your paid fetches, stored for 48 hours. UNTRUSTED",
      },
    ],
  }));
  server.setRequestHandler("resources/read", async ({ params: { uri } }) => {
    if (uri === SKILL_URI) {
      const { text } = await caller.callApi({ method: "GET", url: "/skill.md" });
      return { contents: [{ uri, mimeType: "text/markdown", text }] };
    }
    const key = uri.startsWith(ANSWER_URI) ? decode(uri.slice(ANSWER_URI.length)) : undefined;
    const stored = key === undefined ? undefined : await caller.storedAnswer(key);
    if (!stored) throw new ResourceNotFoundError(uri);
    return { contents: answerResource(uri, stored) };
  });
}

function decode(text: string): string | undefined {
  try {
    return decodeURIComponent(text);
  } catch {
    return undefined;
  }
}

/** Sends progress notifications while the call runs, if the client requested them with a token. */
async function whileReporting<T>({ mcpReq }: ServerContext, work: () => Promise<T>): Promise<T> {
  const progressToken = mcpReq._meta?.progressToken;
  if (progressToken === undefined) return work();
  let progress = 0;
  const notify = (): void => {
    const params = { progressToken, progress: (progress += 1), message: "Still running" };
    // A failed notification is ignored: the payment does not depend on it.
    mcpReq.notify({ method: "notifications/progress", params }).catch(() => undefined);
  };
  const timer = setInterval(notify, PROGRESS_MS);
  try {
    return await work();
  } finally {
    clearInterval(timer);
  }
}

async function run(
  tool: AgentTool,
  args: Record<string, unknown>,
  { caller, context }: { caller: McpCaller; context: ServerContext },
): Promise<CallToolResult | InputRequiredResult> {
  const { idempotencyKey: given, ...rest } = withoutNulls(args);
  if (given !== undefined && (typeof given !== "string" || !tool.pays))
    throw invalid("idempotencyKey must be a string and works only with tools that pay");
  const elicited = elicitedFromUser(context);
  const { status, body, idempotencyKey } = await caller.callApi(
    callOf(tool, elicited.isWanted ? { ...rest, ...elicited.approval } : rest),
    { idempotencyKey: given, id: context.mcpReq.id, pays: tool.pays },
  );
  const mayAsk = tool.pays && body["approvable"] === true && rest["requestApproval"] === undefined;
  if (mayAsk && elicited.canAsk) return elicitFromUser(body);
  const isError = status >= 400;
  const shown = isError ? shortProblem(body) : body;
  // A response with its own key (an open approval request) must be repeated with that key.
  const answer = idempotencyKey === undefined ? shown : { idempotencyKey, ...shown };
  const uri = idempotencyKey && `${ANSWER_URI}${encodeURIComponent(idempotencyKey)}`;
  const isKept = body["paid"] === true && !isError;
  return { isError, content: contentOf(answer, isKept ? uri : undefined) };
}

function callOf(tool: AgentTool, args: Record<string, unknown>): ApiCall {
  try {
    return tool.toCall(args);
  } catch (error) {
    throw error instanceof InvalidArguments ? invalid(error.message) : error;
  }
}

/**
 * Whether the client can ask its user (elicitation), and the user's response. Only since revision 2026-07-28, where
 * each request contains the client's capabilities and the user's response, so that any replica can handle it. Earlier
 * clients send their capabilities once in a handshake, which a server without sessions does not keep: they get the
 * refusal instead.
 */
function elicitedFromUser({ mcpReq }: ServerContext) {
  const envelope = mcpReq.envelope as Record<string, unknown> | undefined;
  const can = envelope?.[CLIENT_CAPABILITIES_META_KEY];
  const answered = mcpReq.inputResponses?.["approval"];
  const content = isRecord(answered) && answered["action"] === "accept" ? answered["content"] : {};
  const { ask, reason } = isRecord(content) ? content : {};
  return {
    canAsk: isRecord(can) && isRecord(can["elicitation"]) && answered === undefined,
    isWanted: ask === true,
    approval: {
      requestApproval: true,
      ...(typeof reason === "string" && reason !== "" ? { reason: reason.slice(0, 280) } : {}),
    },
  };
}

function elicitFromUser({ detail }: Record<string, unknown>): InputRequiredResult {
  return inputRequired({
    inputRequests: {
      approval: inputRequired.elicit({
        message: `A rule of the wallet refuses this payment. ${String(detail)} The owner may allow it once. Ask the owner?`,
        requestedSchema: {
          type: "object",
          properties: {
            ask: { type: "boolean", title: "Ask the owner" },
            reason: { type: "string", title: "Reason, in one sentence", maxLength: 280 },
          },
          required: ["ask"],
        },
      }),
    },
  });
}

function describe(tool: AgentTool): Tool {
  return {
    name: tool.name,
    title: tool.title,
    description: tool.description,
    // No output schema: it would cost a model ten times what all else here costs, and require every result twice.
    inputSchema: tool.input as unknown as Tool["inputSchema"],
    annotations: {
      readOnlyHint: tool.readOnly,
      destructiveHint: tool.pays,
      // Two separate calls pay twice; only the repeat of an unanswered call does not.
      idempotentHint: !tool.pays,
      openWorldHint: tool.openWorld,
    },
  };
}
