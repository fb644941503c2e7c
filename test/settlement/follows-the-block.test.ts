// Goal: a payment is reported with its block and few RPC calls, whether the endpoint waits for the block (EIP-7966), cannot, hangs, drops the connection or lies; and only a mined payment is reported.
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import t, { type Test } from "tap";
import { encodeEventTopics, keccak256, pad, parseTransaction, slice, toHex, type Hex } from "viem";
import { ChainRpc } from "../../server/infra/chain/rpc.ts";
import { testChain, type TestChain } from "../helpers/chain.ts";
import {
  authorize,
  payers,
  randomAddress,
  request,
  settle,
  startEngine,
  TOKEN_ABI,
  type TestEngine,
} from "../helpers/engine.ts";
import { testDatabase, type TestDatabase } from "../helpers/postgres.ts";
import { rpcProxy, SEND, SEND_AND_WAIT, type RpcProxy, type Rule } from "../helpers/rpc-proxy.ts";

const BLOCK_MS = 500;
const BLOCK = "eth_getBlockByNumber";
const RECEIPT = "eth_getTransactionReceipt";
/** The most RPC calls for a single payment, from acceptance to report, ... */
const MAX_CALLS = 6;
/** ... and where the block is polled for: eight times in its time and once after the send, each with the receipt. */
const MAX_CALLS_POLLED = 4 + 2 * 9;

let chain: TestChain;
let database: TestDatabase;

t.before(async () => {
  chain = await testChain(t, { blockTimeSeconds: BLOCK_MS / 1_000 });
  database = await testDatabase(t);
});

interface World {
  node: TestEngine;
  proxy: RpcProxy;
  /** Settles one payment; returns the RPC calls made meanwhile, each with the number of its HTTP request. */
  pay(): Promise<{ txHash: Hex; calls: { method: string; request: number }[] }>;
}

async function world(t: Test, { waits, rule }: { waits: boolean; rule?: Rule }): Promise<World> {
  const proxy = await rpcProxy(t, chain.rpcUrl);
  proxy.waits = waits;
  let calls: { method: string; request: number }[] = [];
  proxy.behave = (call, number) => {
    calls.push({ method: call.method, request: number });
    return rule?.(call, number) ?? { do: "pass" };
  };
  const node = await startEngine(t, {
    databaseUrl: database.url,
    chain,
    rpcUrls: [proxy.url],
    blockTimeMs: BLOCK_MS,
    // A resend in these tests must have another reason than the time passed.
    timings: { resendAfterMs: 60_000 },
  });
  return {
    node,
    proxy,
    async pay() {
      const [payer] = payers(1);
      if (!payer) throw new Error("no payer");
      await chain.mint(payer.address, 1_000n);
      const wanted = request(await authorize(chain, payer, { to: randomAddress() }));
      calls = [];
      const outcome = await settle(node, wanted, 25_000);
      if (outcome.status !== "settled") throw new Error(`${outcome.status}: ${node.logText()}`);
      const receipt = await chain.publicClient.getTransactionReceipt({ hash: outcome.txHash });
      t.equal(receipt.status, "success");
      t.equal(receipt.blockNumber, outcome.blockNumber, "it is in the reported block");
      return { txHash: outcome.txHash, calls: [...calls] };
    },
  };
}

const count = (calls: { method: string }[], method: string): number =>
  calls.filter((each) => each.method === method).length;

/** Among so many payments, at least one meets a known endpoint and a punctual block. */
const TRIES = 30;

/** Returns the calls of the first payment that needed at most this many; else those of the payment with the fewest. */
async function cheapest(place: World, maxCalls: number) {
  let { calls } = await place.pay();
  for (let tries = 1; tries < TRIES && calls.length > maxCalls; tries += 1) {
    const next = await place.pay();
    if (next.calls.length < calls.length) ({ calls } = next);
  }
  return calls;
}

t.test("an endpoint that waits for the block", { timeout: 90_000 }, async (t) => {
  const calls = await cheapest(await world(t, { waits: true }), MAX_CALLS);
  t.equal(count(calls, SEND_AND_WAIT), 1);
  t.equal(count(calls, SEND), 0, "the same call sends and waits");
  t.ok(calls.length <= MAX_CALLS, calls.map(({ method }) => method).join(" "));
  const sent = calls.findIndex(({ method }) => method === SEND_AND_WAIT);
  const block = calls.findLastIndex(({ method }) => method === BLOCK);
  t.ok(block > sent, "its receipt is checked against its block");
});

t.test("an endpoint that cannot wait", { timeout: 90_000 }, async (t) => {
  const place = await world(t, { waits: false });
  const calls = await cheapest(place, MAX_CALLS_POLLED);
  t.equal(place.proxy.count(SEND_AND_WAIT), 1, "it is tried once");
  t.equal(count(calls, SEND), 1);
  t.ok(calls.length <= MAX_CALLS_POLLED, calls.map(({ method }) => method).join(" "));
  const last = calls.findLast(({ method }) => method === RECEIPT);
  t.ok(
    calls.some(({ method, request: number }) => method === BLOCK && number === last?.request),
    "a block and the receipts of ours in it are requested in one HTTP request",
  );
});

t.test("it hangs, but the transaction was broadcast", { timeout: 60_000 }, async (t) => {
  const place = await world(t, {
    waits: true,
    rule: ({ method }) => (method === SEND_AND_WAIT ? { do: "hang", pass: true } : { do: "pass" }),
  });
  const { calls } = await place.pay();
  t.ok(count(calls, RECEIPT) > 0, "the block is polled for anyway");
  for (let more = 0; more < 4; more += 1) await place.pay();
  t.ok(place.proxy.count(SEND_AND_WAIT) <= 4, "later waits on it are bounded");
  t.same(place.node.batches, [1, 1, 1, 1, 1], "nothing was sent twice");
});

t.test("it hangs, and the transaction was not broadcast", { timeout: 90_000 }, async (t) => {
  const place = await world(t, {
    waits: true,
    rule: ({ method }) => (method === SEND_AND_WAIT ? { do: "hang" } : { do: "pass" }),
  });
  const { calls } = await place.pay();
  t.equal(count(calls, SEND), 1, "it is sent again with the next block, and once");
  t.same(place.node.batches, [1]);
});

t.test("it drops the connection", { timeout: 60_000 }, async (t) => {
  const place = await world(t, {
    waits: true,
    rule: ({ method }) => (method === SEND_AND_WAIT ? { do: "cut" } : { do: "pass" }),
  });
  const { calls } = await place.pay();
  const cut = calls.findIndex(({ method }) => method === SEND_AND_WAIT);
  const again = calls.findIndex(({ method }) => method === SEND);
  t.ok(cut >= 0 && again > cut, "it is sent again");
  t.ok(
    calls.slice(cut + 1, again).every(({ method }) => method === BLOCK || method === RECEIPT),
    "at once",
  );
  await place.pay();
  t.equal(place.proxy.count(SEND_AND_WAIT), 1);
});

/** What the logs would be if this transaction, of a single payment, had moved the money. */
function logsOf(raw: Hex) {
  const { to: address, data = "0x" } = parseTransaction(raw);
  const argument = (index: number): Hex => slice(data, 4 + 32 * index, 36 + 32 * index);
  const addressIn = (index: number): Hex => slice(argument(index), 12);
  const used = { authorizer: addressIn(0), nonce: argument(5) };
  return [
    {
      topics: encodeEventTopics({ abi: TOKEN_ABI, eventName: "AuthorizationUsed", args: used }),
      data: "0x",
    },
    {
      topics: [
        ...encodeEventTopics({ abi: TOKEN_ABI, eventName: "Transfer" }),
        pad(addressIn(0)),
        pad(addressIn(1)),
      ],
      data: argument(2),
    },
  ].map((log, index) => ({ address, logIndex: toHex(index), ...log }));
}

t.test("it returns a receipt that is in no block", { timeout: 60_000 }, async (t) => {
  const block = await chain.publicClient.getBlock({ blockTag: "latest" });
  const receiptOf = (raw: Hex) => ({
    transactionHash: keccak256(raw),
    blockNumber: toHex(block.number + 5n),
    blockHash: keccak256("0x01"),
    status: "0x1",
    gasUsed: "0x5208",
    logs: logsOf(raw),
  });
  const falseReceipts: Hex[] = [];
  const place = await world(t, {
    waits: true,
    rule: ({ method, params }) => {
      if (method !== SEND_AND_WAIT) return { do: "pass" };
      const raw = params[0] as Hex;
      falseReceipts.push(keccak256(raw));
      return { do: "pass-and-lie", result: receiptOf(raw) };
    },
  });
  const { txHash } = await place.pay();
  t.equal(txHash, falseReceipts[0], "the real transaction was waited for");
  t.same(place.node.batches, [1], "and no other was made in its place");
});

t.test("receipts of a block that does not exist yet", { timeout: 60_000 }, async (t) => {
  let falseReceipts = 0;
  let raw: Hex = "0x";
  const place = await world(t, {
    waits: false,
    rule: ({ method, params }) => {
      if (method === SEND) raw = params[0] as Hex;
      if (method !== RECEIPT || (falseReceipts += 1) > 4) return { do: "pass" };
      const result = {
        transactionHash: params[0],
        blockNumber: "0xfffffff",
        blockHash: falseReceipts % 2 === 0 ? `0x${"0".repeat(64)}` : keccak256("0x01"),
        status: "0x1",
        gasUsed: "0x5208",
        logs: logsOf(raw),
      };
      return { do: "answer", result };
    },
  });
  await place.pay();
  t.ok(falseReceipts > 1);
  t.same(place.node.batches, [1], "they prove nothing, and no other transaction is made");
});

/** The ways in which endpoints refuse JSON-RPC batch requests. */
const REFUSALS: Record<string, (calls: readonly { id: number }[]) => unknown> = {
  "with one answer": () => ({ jsonrpc: "2.0", id: null, error: { code: -32600, message: "no" } }),
  "with one answer in a list": () => [{ jsonrpc: "2.0", id: null, error: { code: -32600 } }, null],
  "with ids of its own": (calls) =>
    calls.map(({ id }) => ({ jsonrpc: "2.0", id: String(id), result: "wrong" })),
  "each for itself, by a limit": (calls) =>
    calls.map(({ id }) => ({ jsonrpc: "2.0", id, error: { code: -32005, message: "too many" } })),
};

for (const [how, refuse] of Object.entries(REFUSALS))
  t.test(`an endpoint without batch requests refuses ${how}`, async (t) => {
    const bodies: unknown[] = [];
    const server = createServer((incoming, outgoing) => {
      let body = "";
      incoming.on("data", (chunk) => (body += String(chunk)));
      incoming.on("end", () => {
        const calls = JSON.parse(body) as { id: number; method: string } | { id: number }[];
        bodies.push(calls);
        outgoing.end(
          JSON.stringify(
            Array.isArray(calls)
              ? refuse(calls)
              : calls.method === "no"
                ? { jsonrpc: "2.0", id: calls.id, error: { code: -32000, message: "refused" } }
                : { jsonrpc: "2.0", id: calls.id, result: calls.method },
          ),
        );
      });
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const { port } = server.address() as AddressInfo;
    const rpc = new ChainRpc({ urls: [`http://127.0.0.1:${port}`] });
    t.teardown(async () => {
      await rpc.close();
      server.close();
    });
    const callThree = () =>
      rpc.callMany(["one", "no", "two"].map((method) => ({ method, params: [] })));
    const [one, no, two] = await callThree();
    t.match(one, { status: "fulfilled", value: "one" });
    t.match(no, { status: "rejected", reason: { message: "refused" } });
    t.match(two, { status: "fulfilled", value: "two" });
    await callThree();
    t.equal(bodies.filter((body) => Array.isArray(body)).length, 1, "the refusal is remembered");
  });
