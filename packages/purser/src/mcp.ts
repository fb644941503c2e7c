/**
 * `purser mcp`: a stdio proxy for the service's MCP server. Every message is forwarded unchanged, in both
 * directions.
 */
import { PassThrough } from "node:stream";
import {
  type JSONRPCMessage,
  type RequestId,
  StreamableHTTPClientTransport,
} from "@modelcontextprotocol/client";
import { StdioServerTransport } from "@modelcontextprotocol/server/stdio";
import type { Settings } from "./settings.ts";
import { classifyFailure } from "./transport.ts";

/** In JSON-RPC's range for errors that the implementation defines. */
const SERVER_ERROR = -32_000;
/**
 * Requests with this key are of MCP revisions since 2026-07-28, where closing the connection cancels a
 * request.
 */
const ENVELOPE = "io.modelcontextprotocol/protocolVersion";

interface PendingRequest {
  hangUp: AbortController;
  isEnveloped: boolean;
  /** Removes the request: it was answered, refused or cancelled. */
  end: () => void;
}

export async function serveStdio({ url, apiKey }: Settings): Promise<void> {
  // A stream that does not end with stdin: at the end of its input the transport would also close stdout,
  // with responses outstanding.
  const lines = new PassThrough();
  const stdio = new StdioServerTransport(lines, process.stdout);
  const http = new StreamableHTTPClientTransport(new URL(`${url}/mcp`), {
    requestInit: { headers: { authorization: `Bearer ${apiKey}` } },
    // Redirects are not followed: the key and the body must not go to another server.
    fetch: (input, init) => fetch(input, { ...init, redirect: "manual" }),
  });
  const pending = new Map<RequestId, PendingRequest>();
  const ends = new Set<Promise<void>>();

  const refuse = async (id: RequestId | undefined, text: string): Promise<void> => {
    const request = id === undefined ? undefined : pending.get(id);
    if (id === undefined || !request) return;
    request.end();
    if (!request.hangUp.signal.aborted)
      await stdio.send({ jsonrpc: "2.0", id, error: { code: SERVER_ERROR, message: text } });
  };

  const forward = async (message: JSONRPCMessage): Promise<void> => {
    const canceled = canceledBy(message);
    const toCancel = canceled === undefined ? undefined : pending.get(canceled);
    if (toCancel?.isEnveloped) {
      toCancel.hangUp.abort();
      return toCancel.end();
    }
    const id = "method" in message && "id" in message ? message.id : undefined;
    const hangUp = new AbortController();
    if (id !== undefined) {
      const isEnveloped = hasEnvelope(message);
      const ended = new Promise<void>((resolve) => {
        const end = () => (pending.delete(id), resolve());
        pending.set(id, { hangUp, isEnveloped, end });
      }).finally(() => ends.delete(ended));
      ends.add(ended);
    }
    try {
      await http.send(message, {
        requestSignal: hangUp.signal,
        onRequestStreamEnd: () => void refuse(id, CONNECTION_LOST),
      });
    } catch (error) {
      await refuse(id, explain(url, error));
    }
  };

  Object.assign(stdio, { onmessage: (message: JSONRPCMessage) => void forward(message) });
  Object.assign(http, {
    onmessage(message: JSONRPCMessage) {
      const isAnswer = "result" in message || "error" in message;
      const version = "result" in message ? message.result["protocolVersion"] : undefined;
      if (typeof version === "string") http.setProtocolVersion(version);
      void stdio.send(message);
      if (isAnswer && message.id !== undefined) pending.get(message.id)?.end();
    },
    onerror: (error: Error) => console.error(`purser mcp: ${explain(url, error)}`),
  });
  const hungUp = new Promise<void>((resolve) => process.stdin.once("end", resolve));
  await http.start();
  await stdio.start();
  process.stdin.pipe(lines, { end: false });
  await hungUp;
  // Lets the last input line arrive.
  await new Promise((resolve) => setImmediate(resolve));
  // Requests sent before the client hung up are completed: one of them may be a payment.
  await Promise.all(ends);
  await http.close();
}

const CONNECTION_LOST =
  "The connection to the service ended before the response. The call may have been carried out. Repeat the same call: it is not paid twice.";

function canceledBy(message: JSONRPCMessage): RequestId | undefined {
  if (!("method" in message) || message.method !== "notifications/cancelled") return undefined;
  return message.params?.["requestId"] as RequestId | undefined;
}

const hasEnvelope = (message: JSONRPCMessage): boolean =>
  "method" in message && typeof message.params?._meta?.[ENVELOPE] === "string";

function explain(url: string, error: unknown): string {
  const { status } = error as { status?: unknown };
  if (status === 401)
    return `${url} refuses the key. Set AGENT_API_KEY to a valid key of an agent.`;
  if (typeof status === "number")
    return `${url}/mcp returned HTTP ${status}. Check that PURSER_URL is the URL of a Purser service.`;
  const { detail, suggestion } = classifyFailure(url, error).problem;
  return `${detail} ${suggestion}`;
}
