// Goal: the fault-injecting RPC proxy of the other tests really lags, denies, contradicts, refuses and drops as
// configured.
// Own process (its proxy is reset after each test of the process).
import t from "tap";
import {
  decodeFunctionResult,
  encodeFunctionData,
  keccak256,
  multicall3Abi,
  numberToHex,
  type Hex,
} from "viem";
import { MULTICALL3 } from "../../server/local/chain-contracts.ts";
import { until } from "../helpers/until.ts";
import { testChain } from "../helpers/chain.ts";
import { authorize, payers, randomAddress, TOKEN_ABI } from "../helpers/engine.ts";
import {
  alternating,
  behaving,
  denying,
  firstOf,
  lagging,
  PASSING,
  RECEIPTS_AND_LOGS,
  refusing,
  rpcProxy,
  SEND,
  swallowing,
} from "../helpers/rpc-proxy.ts";
import type { RpcAnswer } from "../helpers/rpc-views.ts";

const chain = await testChain(t);
await chain.testClient.setAutomine(false);
const proxy = await rpcProxy(t, chain.rpcUrl);
t.afterEach(() => proxy.reset());

async function post(body: unknown): Promise<unknown> {
  const headers = { "content-type": "application/json" };
  const answer = await fetch(proxy.url, { method: "POST", headers, body: JSON.stringify(body) });
  return answer.json();
}
const callRpc = async (method: string, ...params: unknown[]): Promise<RpcAnswer> =>
  (await post({ jsonrpc: "2.0", id: 7, method, params })) as RpcAnswer;

/** One authorization used in the newest block, after three empty blocks. */
async function payment() {
  const [payer] = payers(1);
  if (!payer) throw new Error("no payer");
  await chain.mint(payer.address, 1_000n);
  await chain.testClient.mine({ blocks: 3 });
  const authorization = await authorize(chain, payer, { to: randomAddress() });
  const { from, to, value, validAfter, validBefore, nonce, signature } = authorization;
  const hash = await chain.walletClient(chain.relayer).writeContract({
    address: chain.usdc,
    abi: TOKEN_ABI,
    functionName: "transferWithAuthorization",
    args: [from, to, value, validAfter, validBefore, nonce, signature],
    gas: 200_000n,
    account: chain.relayer,
    chain: chain.chain,
  });
  await chain.testClient.mine({ blocks: 1 });
  const state = encodeFunctionData({
    abi: TOKEN_ABI,
    functionName: "authorizationState",
    args: [from, nonce],
  });
  const balance = encodeFunctionData({
    abi: TOKEN_ABI,
    functionName: "balanceOf",
    args: [to],
  });
  const head = Number(await chain.publicClient.getBlockNumber({ cacheTime: 0 }));
  return { hash, head, state, balance, stateCall: { to: chain.usdc, data: state } };
}
const FALSE = numberToHex(0, { size: 32 });
const TRUE = numberToHex(1, { size: 32 });
const logFilter = (fromBlock: number, toBlock: number | "latest") => ({
  address: chain.usdc,
  fromBlock: numberToHex(fromBlock),
  toBlock: toBlock === "latest" ? toBlock : numberToHex(toBlock),
});

t.test("a backend two blocks behind", async (t) => {
  const { hash, head, stateCall } = await payment();
  const newest = (await callRpc("eth_getBlockByNumber", "latest", false)).result as { hash: Hex };
  proxy.behave = lagging({ blocks: 2 });
  const old = numberToHex(head - 2);
  t.equal((await callRpc("eth_blockNumber")).result, old);
  t.match((await callRpc("eth_getBlockByNumber", "latest", false)).result, { number: old });
  t.equal((await callRpc("eth_getBlockByNumber", numberToHex(head), false)).result, null);
  t.equal((await callRpc("eth_getBlockByHash", newest.hash, false)).result, null);
  t.equal((await callRpc("eth_getTransactionReceipt", hash)).result, null);
  t.match((await callRpc("eth_getTransactionByHash", hash)).result, { hash, blockNumber: null });
  t.same((await callRpc("eth_getLogs", logFilter(0, "latest"))).result, []);
  t.same((await callRpc("eth_getLogs", logFilter(head, head))).result, []);
  t.match(await callRpc("eth_getLogs", { blockHash: newest.hash }), {
    error: { message: "unknown block" },
  });
  t.equal((await callRpc("eth_call", stateCall, "latest")).result, FALSE);
  t.match(
    await callRpc("eth_call", stateCall, numberToHex(head)),
    { error: { message: "header not found" } },
    "the error of nodes for a block that they do not have",
  );
  t.match(await callRpc("eth_call", stateCall, { blockHash: newest.hash }), {
    error: { message: "header not found" },
  });
  const relayer = chain.relayer.address;
  const before = Number((await callRpc("eth_getTransactionCount", relayer, "latest")).result);
  await chain.testClient.mine({ blocks: 2 });
  t.equal(
    (await callRpc("eth_call", stateCall, "latest")).result,
    TRUE,
    "two blocks later it is known",
  );
  t.match((await callRpc("eth_getTransactionReceipt", hash)).result, {
    blockNumber: numberToHex(head),
  });
  t.equal(((await callRpc("eth_getLogs", logFilter(0, "latest"))).result as []).length > 0, true);
  const after = Number((await callRpc("eth_getTransactionCount", relayer, "latest")).result);
  t.equal(after, before + 1);
});

t.test("delayed receipts and logs, current calls", async (t) => {
  proxy.behave = lagging({ ms: 600_000 }, RECEIPTS_AND_LOGS);
  const { hash, head, stateCall } = await payment();
  t.equal((await callRpc("eth_getTransactionReceipt", hash)).result, null);
  t.same((await callRpc("eth_getLogs", logFilter(head, head))).result, []);
  t.equal((await callRpc("eth_call", stateCall, "latest")).result, TRUE);
  proxy.behave = lagging({ ms: 200 }, RECEIPTS_AND_LOGS);
  await until(async () => (await callRpc("eth_getTransactionReceipt", hash)).result !== null);
  t.match((await callRpc("eth_getTransactionReceipt", hash)).result, { transactionHash: hash });
  t.equal(((await callRpc("eth_getLogs", logFilter(head, head))).result as []).length, 2);
});

t.test("two backends that contradict each other, per batch", async (t) => {
  const { hash, stateCall } = await payment();
  proxy.behave = alternating(PASSING, lagging({ blocks: 1 }));
  const batch = [
    { jsonrpc: "2.0", id: 1, method: "eth_getTransactionReceipt", params: [hash] },
    { jsonrpc: "2.0", id: 2, method: "eth_call", params: [stateCall, "latest"] },
  ];
  const saw: boolean[] = [];
  for (let round = 0; round < 4; round += 1) {
    const answers = (await post(batch)) as (RpcAnswer & { id: number })[];
    t.same(
      answers.map(({ id }) => id),
      [1, 2],
    );
    const [receipt, used] = [answers[0]?.result !== null, answers[1]?.result === TRUE];
    t.equal(receipt, used, "one backend responds to the whole batch");
    saw.push(receipt);
  }
  t.equal(saw.filter(Boolean).length, 2);
  t.equal(saw[0] === saw[1], false, "alternating");
});

t.test("a backend that denies what it knows", async (t) => {
  const { hash, head, state, balance, stateCall } = await payment();
  proxy.behave = denying();
  t.equal((await callRpc("eth_getTransactionReceipt", hash)).result, null);
  t.same((await callRpc("eth_getLogs", logFilter(head, head))).result, []);
  t.equal((await callRpc("eth_call", stateCall, "latest")).result, FALSE);
  const call = (callData: Hex) => ({ target: chain.usdc, allowFailure: true, callData });
  const data = encodeFunctionData({
    abi: multicall3Abi,
    functionName: "aggregate3",
    args: [[call(state), call(balance)]],
  });
  const answer = (await callRpc("eth_call", { to: MULTICALL3, data }, "latest")).result as Hex;
  const inside = decodeFunctionResult({
    abi: multicall3Abi,
    functionName: "aggregate3",
    data: answer,
  });
  t.equal(inside[0]?.returnData, FALSE, "also inside an aggregate call");
  t.equal(Number(inside[1]?.returnData), 1_000, "the other call of the aggregate is unchanged");
  proxy.behave = denying(RECEIPTS_AND_LOGS);
  t.equal(
    (await callRpc("eth_call", stateCall, "latest")).result,
    TRUE,
    "only the selected methods",
  );
});

t.test("transactions that are refused, dropped or held", async (t) => {
  const raw = await chain.walletClient(chain.admin).signTransaction({
    to: randomAddress(),
    value: 1n,
    gas: 21_000n,
    nonce: await chain.publicClient.getTransactionCount({ address: chain.admin.address }),
    maxFeePerGas: 10_000_000_000n,
    maxPriorityFeePerGas: 1n,
    account: chain.admin,
    chain: chain.chain,
  });
  const isKnown = async () =>
    (await chain.testClient.request({
      method: "eth_getTransactionByHash",
      params: [keccak256(raw)],
    } as never)) !== null;
  proxy.behave = firstOf(denying(), refusing("tx fee exceeds the configured cap"));
  t.match(await callRpc(SEND, raw), { error: { message: "tx fee exceeds the configured cap" } });
  proxy.behave = swallowing;
  t.equal((await callRpc(SEND, raw)).result, keccak256(raw), "its hash is returned");
  t.equal(await isKnown(), false, "the node never received it");
  let release = (): void => undefined;
  const released = new Promise<void>((resolve) => (release = resolve));
  proxy.behave = behaving({ do: "hold", until: released }, [SEND]);
  let isAnswered = false;
  const sent = callRpc(SEND, raw).finally(() => (isAnswered = true));
  while (!(await isKnown())) await new Promise((resolve) => setTimeout(resolve, 10));
  t.equal(isAnswered, false, "the node has it, the sender waits");
  release();
  t.equal((await sent).result, keccak256(raw));
  t.equal(proxy.count(SEND), 3);
});

t.test("no usable response", async (t) => {
  proxy.behave = behaving({ do: "status", code: 429 });
  const limited = await fetch(proxy.url, { method: "POST", body: '{"id":1,"params":[]}' });
  t.equal(limited.status, 429);
  t.match(await limited.text(), /<h1>/);
  for (const reset of [true, false]) {
    proxy.behave = behaving({ do: "cut", reset });
    await t.rejects(callRpc("eth_blockNumber"), { message: "fetch failed" });
  }
  proxy.behave = behaving({ do: "hang" });
  const signal = AbortSignal.timeout(200);
  const body = '{"id":1,"method":"eth_blockNumber","params":[]}';
  await t.rejects(fetch(proxy.url, { method: "POST", body, signal }), { name: "TimeoutError" });
  proxy.reset();
  t.type((await callRpc("eth_blockNumber")).result, "string", "back to normal");
});
