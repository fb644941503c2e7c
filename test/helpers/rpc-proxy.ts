// A JSON-RPC proxy between us and the node that can be slow, silent, lagging, wrong or lying, call by call.
//
//   proxy.behave = lagging({ blocks: 3 });                         a backend three blocks behind
//   proxy.behave = lagging({ ms: 6_000 }, RECEIPTS_AND_LOGS);      only these are behind
//   proxy.behave = alternating(PASSING, lagging({ blocks: 2 }));   a load balancer over two backends
//   proxy.behave = firstOf(refusing("tx fee exceeds the configured cap"), denying());
//   proxy.reset();                                                 the node's own answers from now on
import { Agent, createServer, request, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import type { Test } from "tap";
import { keccak256, type Hex } from "viem";
import { denied, heightOf, HeadHistory, seenFrom, type Age, type RpcAnswer } from "./rpc-views.ts";

export interface RpcCall {
  id: number;
  method: string;
  params: unknown[];
}

interface RpcError {
  code: number;
  message: string;
  data?: unknown;
}

export type Behaviour =
  /** Forwarded; returns the node's answer. */
  | { do: "pass" }
  /** Not forwarded; returns this answer. */
  | { do: "answer"; result?: unknown; error?: RpcError }
  /** Forwarded, but the answer is replaced. */
  | { do: "pass-and-lie"; result?: unknown; error?: RpcError }
  /** A read is answered as by a node that is this far behind; anything else is forwarded. */
  | ({ do: "lag" } & Age)
  /** A read returns null, empty or "unused", whatever the node knows; anything else is forwarded. */
  | { do: "deny" }
  /** A send returns its hash and is not forwarded. */
  | { do: "swallow" }
  /** Answered when `until` resolves, with the node's answer from before or (with `forward: "after"`) from then. */
  | { do: "hold"; until: Promise<unknown>; forward?: "before" | "after" }
  /** Never answered (the caller runs into its timeout); forwarded or not. */
  | { do: "hang"; pass?: boolean }
  /** The connection is cut (`reset`: by RST); forwarded or not. */
  | { do: "cut"; pass?: boolean; reset?: boolean }
  /** An HTTP response with this status and an HTML body. */
  | { do: "status"; code: number };

/** `request` numbers the HTTP requests: all calls of a batch have the same number, because they reach the same backend. */
export type Rule = (call: RpcCall, request: number) => Behaviour;

export interface RpcProxy {
  url: string;
  /** Milliseconds added to every call. */
  delayMs: number;
  behave: Rule;
  /** Whether sends that wait for their block (EIP-7966) are supported; by default the method does not exist. */
  waits: boolean;
  /** Calls seen so far, in order. */
  calls: RpcCall[];
  count: (method: string) => number;
  reset: () => void;
}

const PASS: Behaviour = { do: "pass" };
export const PASSING: Rule = () => PASS;
export const SEND = "eth_sendRawTransaction";
export const SEND_AND_WAIT = "eth_sendRawTransactionSync";
/** The answer of nodes that do not support waiting for a block. */
const NO_SUCH_METHOD: Behaviour = {
  do: "answer",
  error: { code: -32601, message: `the method ${SEND_AND_WAIT} does not exist/is not available` },
};
export const RECEIPTS_AND_LOGS = ["eth_getTransactionReceipt", "eth_getLogs"] as const;

/** This behaviour for these methods (all, when none is named). */
export const behaving =
  (behaviour: Behaviour, methods: readonly string[] = []): Rule =>
  ({ method }) =>
    methods.length === 0 || methods.includes(method) ? behaviour : PASS;

/** This behaviour for reads: all of them, or those of these methods. */
const reading =
  (behaviour: Behaviour, methods: readonly string[] | undefined): Rule =>
  ({ method }) =>
    (methods?.includes(method) ?? !method.startsWith("eth_send")) ? behaviour : PASS;

export const lagging = (age: Age, methods?: readonly string[]): Rule =>
  reading({ do: "lag", ...age }, methods);

export const denying = (methods?: readonly string[]): Rule => reading({ do: "deny" }, methods);

/** Sends are refused with this message, as geth refuses them. */
export const refusing = (message: string, code = -32000): Rule =>
  behaving({ do: "answer", error: { code, message } }, [SEND]);

export const swallowing: Rule = behaving({ do: "swallow" }, [SEND]);

/** The rules in turn by HTTP request, like a load balancer over several backends. */
export const alternating =
  (...rules: Rule[]): Rule =>
  (call, request) =>
    rules[request % rules.length]?.(call, request) ?? PASS;

/** The first rule that does not forward the call decides. */
export const firstOf =
  (...rules: Rule[]): Rule =>
  (call, request) =>
    rules.map((rule) => rule(call, request)).find((behaviour) => behaviour.do !== "pass") ?? PASS;

export async function rpcProxy(
  t: Pick<Test, "teardown">,
  target: string,
  options: { delayMs?: number; port?: number; keepsCalls?: boolean } = {},
): Promise<RpcProxy> {
  const agent = new Agent({ keepAlive: true });
  const callNode = async (method: string, params: unknown[]): Promise<RpcAnswer> => {
    const body = JSON.stringify({ jsonrpc: "2.0", id: 0, method, params });
    const { result, error } = JSON.parse(await forward(body)) as RpcAnswer;
    return error ? { error } : { result };
  };
  const heads = new HeadHistory(callNode);
  let requests = 0;
  const server = createServer((incoming, outgoing) => {
    void handle(incoming, outgoing).catch(() => outgoing.destroy());
  });
  server.keepAliveTimeout = 60_000;
  const proxy: RpcProxy = {
    url: "",
    delayMs: options.delayMs ?? 0,
    behave: PASSING,
    waits: false,
    calls: [],
    count: (method) => proxy.calls.filter((call) => call.method === method).length,
    reset: () => {
      proxy.behave = PASSING;
      proxy.calls.length = 0;
    },
  };

  async function handle(incoming: IncomingMessage, outgoing: ServerResponse): Promise<void> {
    const body = await readAll(incoming);
    if (proxy.delayMs > 0) await sleep(proxy.delayMs);
    const parsed = JSON.parse(body) as RpcCall | RpcCall[];
    const calls = [parsed].flat();
    if (options.keepsCalls !== false) proxy.calls.push(...calls);
    const number = requests++;
    const behaviours = calls.map((call) =>
      call.method === SEND_AND_WAIT && !proxy.waits ? NO_SUCH_METHOD : proxy.behave(call, number),
    );
    // An outage of one call affects the connection, and so the whole batch.
    const outage = behaviours.find(isOutage);
    if (outage) {
      if (outage.do !== "status" && outage.pass === true) await forward(body);
      return fail(outage, outgoing);
    }
    const answer = behaviours.every(({ do: what }) => what === "pass")
      ? await forward(body)
      : await answerEach(parsed, calls, behaviours);
    outgoing.writeHead(200, { "content-type": "application/json" }).end(answer);
  }

  async function answerEach(
    parsed: RpcCall | RpcCall[],
    calls: RpcCall[],
    behaviours: Behaviour[],
  ): Promise<string> {
    const answers = await Promise.all(
      calls.map(async (call, index) => ({
        jsonrpc: "2.0",
        id: call.id,
        ...(await answerTo(call, behaviours[index] ?? PASS)),
      })),
    );
    return JSON.stringify(Array.isArray(parsed) ? answers : answers[0]);
  }

  async function answerTo(call: RpcCall, behaviour: Behaviour): Promise<RpcAnswer> {
    const { method, params } = call;
    switch (behaviour.do) {
      case "lag":
        return seenFrom(await heightOf(behaviour, heads, callNode), method, params, callNode);
      case "deny":
        return denied(method, params, await callNode(method, params));
      case "swallow":
        return method === SEND ? { result: keccak256(params[0] as Hex) } : callNode(method, params);
      case "hold": {
        const early = behaviour.forward === "after" ? undefined : await callNode(method, params);
        await behaviour.until;
        return early ?? callNode(method, params);
      }
      case "answer":
      case "pass-and-lie": {
        if (behaviour.do === "pass-and-lie") await callNode(method, params);
        const { result, error } = behaviour;
        return error ? { error } : { result };
      }
      default:
        return callNode(method, params);
    }
  }

  function forward(body: string): Promise<string> {
    return new Promise((resolve, reject) => {
      const outgoing = request(
        target,
        { method: "POST", agent, headers: { "content-type": "application/json" } },
        (response) => void readAll(response).then(resolve, reject),
      );
      outgoing.on("error", reject);
      outgoing.end(body);
    });
  }

  await new Promise<void>((resolve) => server.listen(options.port ?? 0, "127.0.0.1", resolve));
  proxy.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  await heads.start();
  t.teardown(async () => {
    heads.stop();
    server.closeAllConnections();
    agent.destroy();
    await new Promise((resolve) => server.close(resolve));
  });
  return proxy;
}

type Outage = Extract<Behaviour, { do: "hang" | "cut" | "status" }>;

function isOutage(behaviour: Behaviour): behaviour is Outage {
  return behaviour.do === "hang" || behaviour.do === "cut" || behaviour.do === "status";
}

function fail(outage: Outage, outgoing: ServerResponse): void {
  if (outage.do === "hang") return;
  if (outage.do === "status")
    return void outgoing.writeHead(outage.code, { "content-type": "text/html" }).end("<h1>no</h1>");
  if (outage.reset === true) outgoing.socket?.resetAndDestroy();
  else outgoing.destroy();
}

async function readAll(stream: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of stream) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks).toString("utf8");
}
