// Goal: viem's client and the engine share one RPC transport: the same endpoints, failover, timeouts and counters,
// and the same meaning of errors.
import { readGasBudget } from "../../server/core/gas.ts";
import { createServer, type RequestListener } from "node:http";
import type { AddressInfo } from "node:net";
import t, { type Test } from "tap";
import { parseAbi } from "viem";
import { createChainClient } from "../../server/infra/chain/index.ts";
import { classifyChainError } from "../../server/infra/chain/errors.ts";
import { findNetwork } from "../../server/core/networks.ts";

const network = findNetwork("eip155:5042002");
if (!network) throw new Error("no network");
const facts = network;

async function endpoint(t: Test, listener: RequestListener): Promise<string> {
  const server = createServer(listener).listen(0, "127.0.0.1");
  await new Promise((resolve) => server.once("listening", resolve));
  t.teardown(() => server.closeAllConnections());
  t.teardown(() => void server.close());
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}/secret-key`;
}

/** Returns this response to every call, and records the calls. */
function node(answer: object, seen: string[]): RequestListener {
  return (request, response) => {
    let text = "";
    request.on("data", (part: Buffer) => (text += part.toString()));
    request.on("end", () => {
      const { id, method } = JSON.parse(text) as { id: number; method: string };
      seen.push(method);
      response.setHeader("content-type", "application/json");
      response.end(JSON.stringify({ jsonrpc: "2.0", id, ...answer }));
    });
  };
}

const GAS = { gasBudget: readGasBudget(""), nativePriceAtomic: 1_000_000n };

function clientOf(t: Test, rpcUrls: string[]) {
  const counted: string[] = [];
  const chain = createChainClient({ ...facts, ...GAS, rpcUrls, wsUrls: [] }, (method, ok) =>
    counted.push(`${method} ${ok ? "yes" : "no"}`),
  );
  t.teardown(() => chain.rpc.close());
  return { ...chain, counted };
}

t.test("both skip an endpoint that fails", async (t) => {
  const [first, second]: [string[], string[]] = [[], []];
  const limited = { error: { code: -32005, message: "daily request limit exceeded" } };
  const { client, rpc, counted } = clientOf(t, [
    await endpoint(t, node(limited, first)),
    await endpoint(t, node({ result: "0x2a" }, second)),
  ]);
  t.equal(await client.getBlockNumber(), 42n);
  t.equal(await rpc.call("eth_blockNumber", []), "0x2a");
  t.same(first, ["eth_blockNumber"], "the engine knows the failure that viem met");
  t.equal(second.length, 2);
  t.equal(counted.length, 3, "every call is counted");
});

t.test("a revert reaches viem as a revert, and means the same everywhere", async (t) => {
  const seen: string[] = [];
  const reverted = { error: { code: 3, message: "execution reverted: Pausable: paused" } };
  const { client, rpc } = clientOf(t, [await endpoint(t, node(reverted, seen))]);
  const [byViem, byEngine] = await Promise.all([
    client
      .readContract({
        address: facts.usdc.address,
        abi: parseAbi(["function name() view returns (string)"]),
        functionName: "name",
      })
      .then(
        () => undefined,
        (error: unknown) => error as Error,
      ),
    rpc.call("eth_call", []).then(
      () => undefined,
      (error: unknown) => error as Error,
    ),
  ]);
  t.match(byViem?.message, /Pausable: paused/, "viem decodes the revert");
  t.notMatch(byViem?.message, /secret-key/, "a URL may carry a key");
  for (const error of [byViem, byEngine]) t.equal(classifyChainError(error).kind, "reverted");
  t.equal(seen.length, 2, "a response is not requested twice");
});

t.test("no response means unreachable, for both", async (t) => {
  const { client, rpc, counted } = clientOf(t, [
    await endpoint(t, (_request, response) => void response.writeHead(502).end("no backend")),
    "http://127.0.0.1:1/secret-key",
  ]);
  for (const call of [client.getBlockNumber(), rpc.call("eth_blockNumber", [])]) {
    const error = await call.then(
      () => undefined,
      (error: unknown) => error as Error,
    );
    t.equal(classifyChainError(error).kind, "unreachable");
    t.notMatch(error?.message, /secret-key/);
  }
  t.same([...new Set(counted)], ["eth_blockNumber no"]);
});
