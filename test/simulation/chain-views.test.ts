// Goal: each endpoint of the simulated chain has its own view, and each fault of one does what it says and nothing else; what the chain did can be read back, and the same steps give the same chain.
import t, { type Test } from "tap";
import { parseGwei, type Address, type Hex } from "viem";
import * as reads from "../../server/infra/chain/contracts.ts";
import {
  ChainRefusal,
  classifyChainError,
  isEndpointFailure,
} from "../../server/infra/chain/errors.ts";
import type { Caller } from "../../server/infra/chain/rpc.ts";
import { LOCAL_USDC } from "../../server/local/chain-contracts.ts";
import { schemeOf } from "../../server/schemes/index.ts";
import { testAccount, type TestAccount } from "../helpers/chain.ts";
import { authorize, signCancel } from "../helpers/engine.ts";
import {
  AwaitedReceipt,
  EndpointDown,
  EndpointSilent,
  respond,
  RpcError,
  SimulatedChain,
  type ChainOptions,
} from "./chain/chain.ts";
import { callModel } from "./two-chains.ts";

const CHAIN_ID = 5042002;
const START_SECONDS = 1_800_000_000;
const GWEI = parseGwei("1");
const relayer = testAccount(1);
const payer = testAccount(2);
const payee: Address = "0x00000000000000000000000000000000000000aa";
const facts = { chainId: CHAIN_ID, usdc: LOCAL_USDC };
let nonces = 0;

/** A chain with three endpoints, and blocks every two seconds. */
function world(options: Partial<ChainOptions> = {}) {
  let nowSeconds = START_SECONDS;
  const chain = new SimulatedChain({
    ...facts,
    nowMs: () => nowSeconds * 1_000,
    relayers: [relayer.address],
    endpoints: 3,
    ...options,
  });
  chain.mint(payer.address, 10_000n);
  const mine = (given: Parameters<SimulatedChain["mine"]>[0] = {}) => {
    nowSeconds += 2;
    return chain.mine(given);
  };
  const endpoint = (index: number): Caller => ({
    call: (method, params) => callModel(chain, method, params, index),
  });
  const send = (raw: Hex, index = 0): Hex =>
    chain.request(index, "eth_sendRawTransaction", [raw]) as Hex;
  return { chain, mine, endpoint, send };
}

const sign = (given: object, sender: TestAccount = relayer): Promise<Hex> =>
  sender.signTransaction({
    type: "eip1559",
    chainId: CHAIN_ID,
    nonce: 0,
    to: sender.address,
    gas: 200_000n,
    maxFeePerGas: 5n * GWEI,
    maxPriorityFeePerGas: GWEI,
    ...given,
  });

async function payment(given: { value?: bigint; nonce?: number; to?: Address } = {}) {
  const signed = await authorize(facts, payer, {
    to: given.to ?? payee,
    value: given.value ?? 1_000n,
    validBefore: BigInt(START_SECONDS + 10_000),
    nonce: `0x${(nonces += 1).toString(16).padStart(64, "0")}`,
  });
  const [call] = schemeOf(signed).planTransfer(signed).calls();
  const raw = await sign({ nonce: given.nonce ?? 0, to: call.target, data: call.data });
  return { signed, call, raw };
}

const receiptOf = (caller: Caller, hash: Hex) => reads.readReceipt(caller, hash);

async function failure(run: () => unknown): Promise<unknown> {
  try {
    await run();
  } catch (error) {
    return error;
  }
  return undefined;
}

/** As the product's transport would classify it. */
async function kindOf(run: () => unknown): Promise<string> {
  const error = await failure(run);
  if (error === undefined) return "none";
  if (!(error instanceof RpcError) && !(error instanceof ChainRefusal)) throw error as Error;
  return classifyChainError(new ChainRefusal(error.message, error.code, error.data)).kind;
}

t.test("an endpoint that lags does not have the newest blocks", async (t) => {
  const { chain, mine, endpoint, send } = world();
  const lagging = chain.endpoints[1];
  if (!lagging) throw new Error("there are three");
  lagging.lagBlocks = 2;
  mine();
  mine();
  const { signed, raw } = await payment();
  const hash = send(raw);
  const { number, hash: blockHash } = mine();
  const [head, behind] = [endpoint(0), endpoint(1)];
  t.equal(BigInt(await head.call<Hex>("eth_blockNumber", [])), 3n);
  t.equal(BigInt(await behind.call<Hex>("eth_blockNumber", [])), 1n);
  t.match(await receiptOf(head, hash), { status: "0x1" });
  t.equal(await receiptOf(behind, hash), null);
  t.match(
    await behind.call("eth_getTransactionByHash", [hash]),
    { hash, blockNumber: null },
    "it still waits in its pool",
  );
  t.equal(await reads.readHeader(behind, BigInt(number)), undefined);
  t.equal(await behind.call("eth_getBlockByHash", [blockHash, false]), null);
  t.same(await reads.readAuthorizationStates(head, [signed], 3n), [true]);
  const error = await failure(() => reads.readAuthorizationStates(behind, [signed], 3n));
  t.ok(isEndpointFailure(error), "another endpoint is tried");
  t.same(await reads.readAuthorizationStates(behind, [signed], 1n), [false]);
  t.equal(await reads.readNonce(behind, relayer.address, "latest"), 0n);
  const logs = [reads.findAuthorizationUse(head, signed, { from: 0n, to: 3n })];
  logs.push(reads.findAuthorizationUse(behind, signed, { from: 0n, to: 3n }));
  t.same(await Promise.all(logs), [[hash], []]);
  mine();
  mine();
  t.match(await receiptOf(behind, hash), { blockHash });
  lagging.lagBlocks = 0;
  lagging.stuckAt = 4;
  mine();
  t.equal(BigInt(await behind.call<Hex>("eth_blockNumber", [])), 4n);
  lagging.stuckAt = undefined;
  t.equal(BigInt(await behind.call<Hex>("eth_blockNumber", [])), 6n);
});

t.test("each endpoint has its own pool", async (t) => {
  const { chain, mine, endpoint, send } = world();
  const [alone] = chain.endpoints;
  if (!alone) throw new Error("there are three");
  alone.gossips = false;
  const { raw } = await payment();
  const hash = send(raw);
  const known = () =>
    Promise.all([0, 1, 2].map((index) => endpoint(index).call("eth_getTransactionByHash", [hash])));
  t.match(await known(), [{ hash }, null, null]);
  t.equal(mine().mined.length, 0);
  t.equal(await kindOf(() => send(raw)), "already_known");
  t.equal(send(raw, 1), hash, "another endpoint takes it");
  t.match(await known(), [{ hash }, { hash }, { hash }]);
  t.equal(mine().mined.length, 1);
  t.equal(await kindOf(() => send(raw)), "nonce_too_low");

  const next = await payment({ nonce: 1 });
  send(next.raw);
  t.equal(mine().mined.length, 0);
  alone.gossips = true;
  t.equal(mine().mined.length, 1, "it is passed on with the next block");

  const forgotten = await payment({ nonce: 2 });
  const lost = send(forgotten.raw, 2);
  chain.evictMempool(lost);
  t.equal(mine().mined.length, 0);
  send(forgotten.raw, 1);
  chain.endpoints[1]?.pool.clear();
  t.equal(mine().mined.length, 1, "the others still have it");
  send(await sign({ nonce: 3 }));
  chain.evictMempool();
  t.equal(mine().mined.length, 0);
});

t.test("an endpoint that is down, silent or refuses everything", async (t) => {
  const { chain, mine, endpoint, send } = world();
  const [first] = chain.endpoints;
  if (!first) throw new Error("there are three");
  const { raw } = await payment();
  first.isDown = true;
  t.ok((await failure(() => send(raw))) instanceof EndpointDown);
  t.equal(mine().mined.length, 0, "it did not arrive");
  first.isDown = false;
  first.isSilent = true;
  t.ok((await failure(() => send(raw))) instanceof EndpointSilent);
  t.equal(mine().mined.length, 1, "it arrived all the same");
  first.isSilent = false;
  first.refusesAll = new RpcError(-32005, "rate limit exceeded");
  const error = await failure(() => endpoint(0).call("eth_blockNumber", []));
  t.ok(isEndpointFailure(error));
  first.refusesAll = undefined;
  t.equal(BigInt(await endpoint(0).call<Hex>("eth_blockNumber", [])), 2n);
  t.equal(BigInt(await endpoint(1).call<Hex>("eth_blockNumber", [])), 2n);
});

t.test("lies about what is mined", async (t) => {
  const { chain, mine, endpoint, send } = world();
  const [liar] = chain.endpoints;
  if (!liar) throw new Error("there are three");
  const { signed, call, raw } = await payment();
  const hash = send(raw);
  const block = mine();
  const [lying, honest] = [endpoint(0), endpoint(1)];
  const header = { ...block, number: 1n, timestampSeconds: 0n };
  const shown = async (caller: Caller) => ({
    receipt: Boolean(await receiptOf(caller, hash)),
    ofBlock: Boolean(await reads.readBlockReceipts(caller, header)),
    transaction: Boolean(await reads.readSent(caller, hash)),
    logs: (await reads.findAuthorizationUse(caller, signed, { from: 0n, to: 1n })).length > 0,
    used: (await reads.readAuthorizationStates(caller, [signed], 1n))[0],
  });
  const all = { receipt: true, ofBlock: true, transaction: true, logs: true, used: true };
  t.same(await shown(lying), all);
  for (const [lie, hidden] of [
    ["hidesReceipts", { receipt: false, ofBlock: false }],
    ["hidesTransactions", { transaction: false }],
    ["hidesLogs", { logs: false }],
    ["deniesUses", { used: false }],
  ] as const) {
    liar[lie] = true;
    t.same(await shown(lying), { ...all, ...hidden }, lie);
    t.same(await shown(honest), all, "the others do not lie");
    liar[lie] = false;
  }
  liar.deniesUses = true;
  const [result] = await reads.readMany(lying, [call], "latest");
  t.equal(result?.success, false, "it cannot make the token pay twice");
  liar.deniesUses = false;
  liar.hasBlockReceipts = false;
  t.equal(await kindOf(() => lying.call("eth_getBlockReceipts", ["0x1"])), "method_missing");
  liar.hasSimulate = false;
  t.equal(await kindOf(() => lying.call("eth_simulateV1", [{}, "latest"])), "method_missing");
  liar.statesKept = 1;
  mine();
  t.equal(await reads.readNonce(lying, relayer.address, "latest"), 1n);
  const error = await failure(() => reads.readNonce(lying, relayer.address, "0x1"));
  t.ok(isEndpointFailure(error), "the state is pruned");
});

t.test("lies about what was sent", async (t) => {
  const { chain, mine, endpoint, send } = world();
  const [liar] = chain.endpoints;
  if (!liar) throw new Error("there are three");
  const { raw } = await payment();
  liar.dropsSent = true;
  const hash = send(raw);
  t.equal(mine().mined.length, 0);
  t.equal(await endpoint(0).call("eth_getTransactionByHash", [hash]), null);
  liar.dropsSent = false;
  liar.failsAfterSend = new RpcError(-32603, "internal error");
  t.equal(await kindOf(() => send(raw)), "unreachable");
  t.equal(mine().mined.length, 1, "it was accepted");
  liar.failsAfterSend = "lost";
  const next = await payment({ nonce: 1 });
  t.ok((await failure(() => send(next.raw))) instanceof EndpointDown);
  t.equal(mine().mined.length, 1, "it was accepted");
  liar.failsAfterSend = undefined;
  liar.refuses = ({ gas }) =>
    gas > 100_000
      ? new RpcError(-32000, "tx fee (1.20 ether) exceeds the configured cap (1.00 ether)")
      : undefined;
  const last = await payment({ nonce: 2 });
  t.equal(await kindOf(() => send(last.raw)), "node_fee_cap");
  t.type(send(last.raw, 1), "string", "the others do not refuse it");
});

t.test("sends that wait for the receipt", async (t) => {
  const { chain, mine, send } = world();
  const [first, second, third] = chain.endpoints;
  if (!first || !second || !third) throw new Error("there are three");
  const waiting = (index: number, raw: Hex): AwaitedReceipt => {
    const answer = chain.request(index, "eth_sendRawTransactionSync", [raw]);
    if (!(answer instanceof AwaitedReceipt)) throw new Error("it does not wait");
    return answer;
  };
  const received: string[] = [];
  const one = waiting(0, (await payment()).raw);
  one.onReceipt = ({ transactionHash }) => void received.push(transactionHash);
  t.equal(one.receipt, undefined);
  mine();
  t.same(received, [one.hash]);
  second.lagBlocks = 1;
  const two = waiting(1, (await payment({ nonce: 1 })).raw);
  mine();
  t.equal(two.receipt, undefined, "it does not have the block yet");
  mine();
  t.match(two.receipt, { transactionHash: two.hash, status: "0x1" });
  third.hidesReceipts = true;
  const three = waiting(2, (await payment({ nonce: 2 })).raw);
  mine();
  t.equal(three.receipt, undefined);
  third.hidesReceipts = false;
  third.isDown = true;
  mine();
  third.isDown = false;
  mine();
  t.equal(three.receipt, undefined, "its connection was lost");
  first.hasWaitingSend = false;
  const { raw } = await payment({ nonce: 3 });
  t.equal(
    await kindOf(() => chain.request(0, "eth_sendRawTransactionSync", [raw])),
    "method_missing",
  );
  t.equal(mine().mined.length, 0, "and sent nothing");
  send(raw);
  t.equal(mine().mined.length, 1);
});

t.test("batches of calls in one request", async (t) => {
  const { chain, mine } = world();
  mine();
  const calls = ["eth_blockNumber", "eth_unknown", "eth_chainId"].map((method, id) => ({
    id,
    method,
  }));
  t.match(respond(chain, 0, calls), [
    { id: 0, result: "0x1" },
    { id: 1, error: { code: -32601 } },
    { id: 2, result: `0x${CHAIN_ID.toString(16)}` },
  ]);
  const [first] = chain.endpoints;
  if (first) first.refusesBatches = true;
  t.match(respond(chain, 0, calls), { error: { code: -32600 } });
  t.match(respond(chain, 0, calls[0]), { id: 0, result: "0x1" });
});

t.test("fees: what waits, what is refused, who is first", async (t) => {
  const { chain, mine, send, endpoint } = world();
  const [picky] = chain.endpoints;
  if (!picky) throw new Error("there are three");
  const cheap = await sign({ maxFeePerGas: 2n * GWEI });
  chain.setBaseFee(3n * GWEI);
  mine();
  picky.refusesLowFees = true;
  t.equal(await kindOf(() => send(cheap)), "fee_too_low");
  send(cheap, 1);
  t.equal(mine().mined.length, 0, "it waits");
  chain.setBaseFee(GWEI);
  t.equal(mine().mined.length, 1);
  const call = { from: relayer.address, to: payee, gas: "0x5208" };
  chain.setBaseFee(2n * GWEI);
  mine();
  const offer = `0x${GWEI.toString(16)}`;
  const calling = () => endpoint(1).call("eth_call", [{ ...call, maxFeePerGas: offer }, "latest"]);
  t.equal(await kindOf(calling), "fee_too_low");
  t.equal(await kindOf(async () => send(await sign({ nonce: 1, gas: 20_999n }), 1)), "gas_limit");
  const padded = await sign({ nonce: 1, gas: 25_000n, data: `0x${"ff".repeat(200)}` });
  t.equal(await kindOf(() => send(padded, 1)), "gas_limit", "calldata costs more");

  const others = [testAccount(11), testAccount(12)] as const;
  for (const { address } of others) chain.fund(address, 10n ** 18n);
  const tips = [GWEI, 3n * GWEI];
  const hashes: Hex[] = [];
  for (const [index, other] of others.entries()) {
    const tip = tips[index] ?? GWEI;
    hashes.push(send(await sign({ maxFeePerGas: 9n * GWEI, maxPriorityFeePerGas: tip }, other), 1));
  }
  const [second, first] = hashes;
  t.same(
    mine().mined.map(({ transaction }) => transaction.hash),
    [first, second],
  );
});

t.test("what a block may contain", async (t) => {
  const { chain, mine, send } = world({ blockGasLimit: 300_000 });
  const raws = await Promise.all([0, 1, 2].map((nonce) => payment({ nonce })));
  const hashes = raws.map(({ raw }) => send(raw));
  const [first = "0x", second = "0x", third = "0x"] = hashes;
  t.equal(mine({ only: [second, third] }).mined.length, 0, "not before the first");
  t.equal(mine({ without: [first] }).mined.length, 0);
  const { mined } = mine({ only: [first] });
  t.same(
    mined.map(({ transaction }) => transaction.hash),
    [first],
  );
  t.equal(mine().mined.length, 2, "limits are counted as used gas");
  const big = await sign({ nonce: 3, gas: 300_001n });
  t.equal(await kindOf(() => send(big)), "gas_limit");
  for (const nonce of [3, 4]) send(await sign({ nonce, gas: 290_000n }));
  t.equal(mine().mined.length, 1, "the second does not fit by its limit");
  t.equal(mine().mined.length, 1);
  t.equal(chain.transactionsOf(relayer.address).length, 5);
  for (const [nonce, gas] of [
    [5, 100_000n],
    [6, 290_000n],
    [7, 30_000n],
  ] as const)
    send(await sign({ nonce, gas }));
  t.equal(mine().mined.length, 1, "nothing overtakes what does not fit");
  t.equal(mine().mined.length, 2);
  const poor = testAccount(13);
  chain.fund(poor.address, 21_000n * 6n * GWEI);
  send(await sign({ nonce: 0, gas: 21_000n }, poor));
  chain.fund(poor.address, -21_000n * 5n * GWEI);
  chain.setBaseFee(GWEI / 100n);
  t.equal(mine().mined.length, 0, "nor what cannot be paid");
});

t.test("a reorganisation: what returns, what is lost, and what stays", async (t) => {
  const { chain, mine, send, endpoint } = world();
  mine();
  const [one, two] = [await payment(), await payment({ nonce: 1 })];
  const [lost, kept] = [send(one.raw), send(two.raw)];
  mine({ only: [lost] });
  chain.mint(payee, 5n);
  chain.fund(payee, 7n);
  mine();
  const before = chain.head;
  t.equal(chain.balanceOf(payee), 2_005n);
  chain.reorganise(2, { drop: [lost] });
  t.equal(chain.head.number, before.number);
  t.not(chain.head.hash, before.hash);
  t.equal(chain.head.timestampSeconds, before.timestampSeconds);
  t.equal(chain.balanceOf(payee), 5n, "money from outside stays");
  t.equal(chain.nativeBalanceOf(payee), 7n);
  t.equal(await endpoint(0).call("eth_getBlockByHash", [before.hash, false]), null);
  t.equal(await endpoint(0).call("eth_getTransactionByHash", [lost]), null);
  t.match(await endpoint(2).call("eth_getTransactionByHash", [kept]), { blockNumber: null });
  t.equal(mine().mined.length, 0, "its nonce waits for the lost one");
  send(one.raw, 1);
  t.equal(mine().mined.length, 2);
  chain.reorganise(1);
  t.equal(mine().mined.length, 2, "both returned to the pool");
  t.equal(chain.balanceOf(payee), 2_005n);
  t.equal([...chain.ends()].length, 2);
  chain.reorganise(1, { drop: "all" });
  t.equal(mine().mined.length, 0);
  t.equal([...chain.ends()].length, 0);
  t.equal(chain.nativeBalanceOf(relayer.address), 10_000n * 10n ** 18n, "no gas was paid");
});

t.test("an endpoint that does not know of a reorganisation", async (t) => {
  const { chain, mine, send, endpoint } = world();
  const [one, two] = [await payment(), await payment({ nonce: 1 })];
  const first = send(one.raw);
  mine();
  const second = send(two.raw);
  const removed = mine();
  const [left] = chain.endpoints;
  if (!left) throw new Error("there are three");
  left.ignoresReorganisations = true;
  chain.reorganise(1, { drop: "all" });
  const [old, current] = [endpoint(0), endpoint(1)];
  t.match(await receiptOf(old, second), { blockHash: removed.hash });
  t.equal(await receiptOf(current, second), null);
  t.ok(await old.call("eth_getBlockByHash", [removed.hash, false]));
  t.same(await reads.readAuthorizationStates(old, [one.signed, two.signed], 2n), [true, true]);
  t.same(await reads.readAuthorizationStates(current, [one.signed, two.signed], 2n), [true, false]);
  t.same(await reads.readBalances(old, LOCAL_USDC, [payee], 1n), [1_000n]);
  t.same(await reads.findAuthorizationUse(old, two.signed, { from: 0n, to: 2n }), [second]);
  t.equal(await reads.readNonce(old, relayer.address, "latest"), 2n);
  t.equal(await reads.readNonce(current, relayer.address, "latest"), 1n);
  t.equal(await kindOf(() => send(two.raw)), "nonce_too_low", "it is mined there");
  send(two.raw, 1);
  mine();
  t.equal(BigInt(await old.call<Hex>("eth_blockNumber", [])), 2n, "it gets no other blocks");
  t.match(await receiptOf(current, second), { blockNumber: "0x3" });
  left.ignoresReorganisations = false;
  t.match(await receiptOf(old, second), { blockNumber: "0x3" });
  t.match(await receiptOf(old, first), { blockNumber: "0x1" });
  t.equal(await old.call("eth_getBlockByHash", [removed.hash, false]), null);
});

t.test("third parties: a relay, a cancellation, money, a second signer", async (t) => {
  const { chain, mine, send } = world();
  const stranger: Address = "0x00000000000000000000000000000000000000bb";
  const [relayed, canceled] = [await payment(), await payment()];
  const hash = chain.sendAs(stranger, {
    to: relayed.call.target as Address,
    data: relayed.call.data,
  });
  const cancel = schemeOf(canceled.signed).cancelCall?.(
    canceled.signed,
    await signCancel(facts, payer, canceled.signed.nonce),
  );
  if (!cancel) throw new Error("it can be canceled");
  chain.sendAs(stranger, { to: cancel.target as Address, data: cancel.data });
  const { number } = mine();
  const from = payer.address.toLowerCase();
  t.match(
    [...chain.ends()],
    [
      {
        kind: "used",
        from,
        nonce: relayed.signed.nonce,
        value: 1_000n,
        txHash: hash,
        block: number,
      },
      { kind: "canceled", from, nonce: canceled.signed.nonce, sender: stranger },
    ],
  );
  t.ok(chain.isEnded(payer.address, canceled.signed.nonce));
  t.notOk(chain.isEnded(payer.address, `0x${"f".repeat(64)}`));
  send(relayed.raw);
  const [late] = mine().mined;
  t.match(late?.receipt, { status: "0x0", logs: [] }, "the relayer comes too late");
  t.equal(late?.feeWei, BigInt(late?.receipt.gasUsed ?? 0) * 2n * GWEI);
  t.equal(chain.nativeBalanceOf(relayer.address), 10_000n * 10n ** 18n - (late?.feeWei ?? 0n));

  chain.sendAs(relayer.address, { to: stranger, value: 3n });
  mine();
  t.equal(chain.nativeBalanceOf(stranger) % 10n, 3n);
  const own = await payment({ nonce: 1 });
  t.equal(await kindOf(() => send(own.raw)), "nonce_too_low", "a second signer took the nonce");

  chain.deposit(payee, 40n);
  mine();
  t.match([...chain.transfers()].at(-1), { from: `0x${"0".repeat(40)}`, value: 40n });
  chain.pauseToken();
  mine();
  const paused = await payment({ nonce: 2 });
  send(paused.raw);
  t.match(mine().mined[0]?.receipt, { status: "0x0" });
  chain.pauseToken(false);
  chain.blacklist(payee);
  mine();
  const blocked = await payment({ nonce: 3 });
  send(blocked.raw);
  t.match(mine().mined[0]?.receipt, { status: "0x0" });
  chain.blacklist(payee, false);
  mine();
  const last = await payment({ nonce: 4 });
  send(last.raw);
  t.match(mine().mined[0]?.receipt, { status: "0x1" });
});

t.test("the same steps give the same chain", async (t) => {
  const raws = await Promise.all([0, 1, 2].map((nonce) => payment({ nonce })));
  const played = () => {
    const { chain, mine, send } = world();
    for (const { raw } of raws) send(raw);
    mine();
    chain.reorganise(1);
    mine();
    chain.sendAs(payee, { to: payee });
    mine();
    return {
      blocks: chain.ledger.blocks.map(({ hash }) => hash),
      ends: [...chain.ends()],
      wei: chain.nativeBalanceOf(relayer.address),
    };
  };
  const [first, second] = [played(), played()];
  t.equal(first.ends.length, 3);
  t.same(second, first);
});

t.test("old states stay readable", async (t: Test) => {
  const { chain, mine, send, endpoint } = world();
  for (let nonce = 0; nonce < 5; nonce += 1) {
    send((await payment({ nonce })).raw);
    mine();
  }
  const balances = await Promise.all(
    [0n, 1n, 2n, 3n, 4n, 5n].map((block) =>
      reads.readBalances(endpoint(0), LOCAL_USDC, [payee], block),
    ),
  );
  t.same(balances.flat(), [0n, 1_000n, 2_000n, 3_000n, 4_000n, 5_000n]);
  t.equal(chain.balanceOf(payee, 3), 3_000n);
});
