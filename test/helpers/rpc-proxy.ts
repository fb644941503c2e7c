// A JSON-RPC proxy between us and the node that can be slow, silent, wrong, or a liar, call by call.
import { createServer, request, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { Agent } from "node:http";
import type { Test } from "tap";

export interface RpcCall {
  id: number;
  method: string;
  params: unknown[];
}

export type Behaviour =
  /** Passed on and answered as the node answers. */
  | { do: "pass" }
  /** Not passed on; answered with this. */
  | { do: "answer"; result?: unknown; error?: { code: number; message: string } }
  /** Passed on, but the answer is replaced. */
  | { do: "pass-and-lie"; result?: unknown; error?: { code: number; message: string } }
  /** Never answered (the caller runs into its timeout); passed on or not. */
  | { do: "hang"; pass?: boolean }
  /** The connection is cut; passed on or not. */
  | { do: "cut"; pass?: boolean }
  /** An HTTP failure that is not JSON-RPC. */
  | { do: "status"; code: number };

export interface RpcProxy {
  url: string;
  /** Milliseconds added to every call. */
  delayMs: number;
  behave: (call: RpcCall) => Behaviour;
  /** Methods seen so far, in order. */
  calls: RpcCall[];
  count: (method: string) => number;
  reset: () => void;
}

const PASS: Behaviour = { do: "pass" };

export async function rpcProxy(
  t: Pick<Test, "teardown">,
  target: string,
  options: { delayMs?: number } = {},
): Promise<RpcProxy> {
  const agent = new Agent({ keepAlive: true });
  const server = createServer((incoming, outgoing) => {
    void handle(incoming, outgoing).catch(() => outgoing.destroy());
  });
  server.keepAliveTimeout = 60_000;
  const proxy: RpcProxy = {
    url: "",
    delayMs: options.delayMs ?? 0,
    behave: () => PASS,
    calls: [],
    count: (method) => proxy.calls.filter((call) => call.method === method).length,
    reset: () => {
      proxy.behave = () => PASS;
      proxy.calls.length = 0;
    },
  };

  async function handle(incoming: IncomingMessage, outgoing: ServerResponse): Promise<void> {
    const body = await readAll(incoming);
    if (proxy.delayMs > 0) await new Promise((resolve) => setTimeout(resolve, proxy.delayMs));
    const parsed = JSON.parse(body) as RpcCall | RpcCall[];
    const calls = [parsed].flat();
    proxy.calls.push(...calls);
    // A batch passes as a whole unless one of its calls is to be treated otherwise.
    const special = calls.map((call) => proxy.behave(call)).find((what) => what.do !== "pass");
    const behaviour = special ?? PASS;
    const passes =
      behaviour.do === "pass" ||
      behaviour.do === "pass-and-lie" ||
      ((behaviour.do === "hang" || behaviour.do === "cut") && behaviour.pass === true);
    const answer = passes ? await forward(body) : "";
    if (behaviour.do === "hang") return;
    if (behaviour.do === "cut") return void outgoing.destroy();
    if (behaviour.do === "status")
      return void outgoing
        .writeHead(behaviour.code, { "content-type": "text/html" })
        .end("<h1>no</h1>");
    outgoing.writeHead(200, { "content-type": "application/json" });
    if (behaviour.do === "pass") return void outgoing.end(answer);
    const { result, error } = behaviour;
    const made = calls.map(({ id }) => ({
      jsonrpc: "2.0",
      id,
      ...(error ? { error } : { result }),
    }));
    outgoing.end(JSON.stringify(Array.isArray(parsed) ? made : made[0]));
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

  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  proxy.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  t.teardown(async () => {
    server.closeAllConnections();
    agent.destroy();
    await new Promise((resolve) => server.close(resolve));
  });
  return proxy;
}

async function readAll(stream: IncomingMessage): Promise<string> {
  const chunks: Buffer[] = [];
  for await (const chunk of stream) chunks.push(chunk as Buffer);
  return Buffer.concat(chunks).toString("utf8");
}
