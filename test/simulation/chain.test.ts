// Goal: the simulated chain says what a real node says: payments, refusals, batches, blocks, pools and their errors agree with anvil, step by step and in random sequences.
import t, { type Test } from "tap";
import {
  encodeFunctionData,
  erc20Abi,
  keccak256,
  maxUint256,
  parseAbi,
  parseGwei,
  parseTransaction,
  recoverTransactionAddress,
  toFunctionSelector,
  type Abi,
  type Address,
  type Hex,
} from "viem";
import type { ContractCall } from "../../server/core/abi.ts";
import type { SignedAuthorization } from "../../server/core/authorization.ts";
import { BATCHER_ADDRESS } from "../../server/core/batcher.ts";
import { NETWORKS } from "../../server/core/networks.ts";
import { readBatcher } from "../../server/infra/chain/batcher/read.ts";
import * as reads from "../../server/infra/chain/contracts.ts";
import type { Caller } from "../../server/infra/chain/rpc.ts";
import {
  allowanceCall,
  allowanceOf,
  permitDigest,
  permitsCall,
} from "../../server/schemes/allowance/index.ts";
import {
  AUTHORIZATION_USED,
  paymentSchemeOf,
  schemeOf,
  TRANSFER,
} from "../../server/schemes/index.ts";
import { PERMIT2 } from "../../server/schemes/permit2/onchain.ts";
import { authorize, randomAddress, signCancel, TOKEN_ABI } from "../helpers/engine.ts";
import { authorizePermit2 } from "../helpers/permit2.ts";
import type { TestAccount } from "../helpers/chain.ts";
import { Random } from "../helpers/random.ts";
import { revertWith } from "./chain/abi.ts";
import {
  isRefused,
  outcomeOf,
  randomAccount,
  randomWord,
  throughBatcher,
  throughMulticall,
  twoChains,
  type TwoChains,
} from "./two-chains.ts";

let both: TwoChains;
let relayer: TestAccount;

t.before(async () => {
  both = await twoChains(t);
  relayer = await both.account();
});

const FEES = { maxFeeWei: parseGwei("10"), priorityFeeWei: parseGwei("1") };
/** The simulated gas is an estimate. */
const GAS_MAY_DIFFER = 0.04;

const callsOf = (...signed: SignedAuthorization[]): ContractCall[] =>
  signed.flatMap((one) => schemeOf(one).planTransfer(one).calls());

interface Sent {
  to: Address;
  data: Hex;
  gas?: bigint;
}
const alone = ({ target, data }: ContractCall): Sent => ({ to: target as Address, data });

/** Sends from the relayer and mines; what the receipt shows is the same on both chains. */
async function mined(t: Test, sent: Sent, sender = relayer): Promise<reads.RpcReceipt> {
  const count = await both.same(t, "nonce", (chain) =>
    reads.readNonce(chain, sender.address, "latest"),
  );
  const raw = await both.sign(sender, { nonce: Number(count), ...sent });
  const hash = await both.send(t, raw);
  if (isRefused(hash)) throw new Error(`refused: ${hash.failed}`);
  await both.mine();
  return sameReceipt(t, hash);
}

async function sameReceipt(t: Test, hash: Hex): Promise<reads.RpcReceipt> {
  const { anvil, simulated } = await both.each((chain) => reads.readReceipt(chain, hash));
  if (!anvil || !simulated) {
    t.equal(simulated, anvil, "both have the receipt or neither");
    throw new Error("no receipt");
  }
  t.strictSame(shown(simulated), shown(anvil), "the receipt");
  sameGas(t, simulated.gasUsed, anvil.gasUsed);
  return anvil;
}

/** Without the hash of the block and the gas, which differ. */
function shown(receipt: reads.RpcReceipt) {
  const { transactionHash, blockNumber, blockHash, status, effectiveGasPrice, logs } = receipt;
  return {
    transactionHash,
    blockNumber,
    status,
    effectiveGasPrice,
    isHashRight: logs.every((log) => log.blockHash === blockHash),
    logs: logs.map(logShown),
  };
}

function logShown(log: object) {
  const { address, topics, data, transactionHash, blockNumber, logIndex, transactionIndex } =
    log as Record<string, unknown>;
  return { address, topics, data, transactionHash, blockNumber, logIndex, transactionIndex };
}

function sameGas(t: Test, simulated: string, anvil: string): void {
  const ratio = Number(simulated) / Number(anvil);
  t.ok(
    Math.abs(ratio - 1) <= GAS_MAY_DIFFER,
    `gas ${Number(simulated)} simulated, ${Number(anvil)} real`,
  );
}

/** As a plain call, in a simulation as the product makes it, and mined. */
async function refusedEverywhere(
  t: Test,
  call: ContractCall,
  reason: string | undefined,
): Promise<void> {
  const plain = await both.same(t, "a call", (chain) =>
    reads.callAs(chain, relayer.address, call, { gas: 300_000n, fees: FEES }),
  );
  t.equal(plain.success, false);
  const found = await outcomeOf(async () =>
    both.anvil.call("eth_call", [{ to: call.target, data: call.data }, "latest"]),
  );
  t.match(found, { failed: "reverted", reason });
  const [result] = await both.same(t, "a simulation", (chain) =>
    reads.simulate(chain, {
      from: relayer.address,
      calls: [call],
      gas: 500_000n,
      fees: FEES,
    }),
  );
  t.equal(result?.success, false);
  const receipt = await mined(t, alone(call));
  t.equal(receipt.status, "0x0");
  t.same(receipt.logs, []);
}

const balancesOf = (t: Test, accounts: readonly Address[], block = both.height) =>
  both.same(t, `balances at ${block}`, (chain) =>
    reads.readBalances(chain, both.usdc, accounts, block),
  );

t.test("a payment in both forms is paid once and then used", async (t) => {
  const payer = await both.payer(10_000n);
  const to = randomAddress();
  const signed = await authorize(both, payer, { to });
  const form = await authorize(both, payer, { to });
  const asBytes = {
    target: both.usdc,
    data: encodeFunctionData({
      abi: TOKEN_ABI,
      functionName: "transferWithAuthorization",
      args: [
        form.from,
        form.to,
        form.value,
        form.validAfter,
        form.validBefore,
        form.nonce,
        form.signature,
      ],
    }),
  };
  for (const call of [...callsOf(signed), asBytes]) {
    const receipt = await mined(t, alone(call));
    t.equal(receipt.status, "0x1");
    t.equal(receipt.logs.length, 2);
    await refusedEverywhere(t, call, "FiatTokenV2: authorization is used or canceled");
  }
  t.same(await balancesOf(t, [payer.address, to]), [8_000n, 2_000n]);
  const used = await both.same(t, "states", (chain) =>
    reads.readAuthorizationStates(
      chain,
      [signed, form, { ...form, nonce: `0x${"5".repeat(64)}` }],
      both.height,
    ),
  );
  t.same(used, [true, true, false]);
  const found = await both.same(t, "the search for its use", (chain) =>
    reads.findAuthorizationUse(chain, signed, { from: 1n, to: both.height }),
  );
  t.equal(found.length, 1);
});

t.test("the token refuses with the same words", async (t) => {
  const payer = await both.payer(10_000n);
  const other = await both.payer(10_000n);
  const to = randomAddress();
  const of = (terms: object) => authorize(both, payer, { to, ...terms });
  const good = await of({});
  const { signature } = good;
  const withSignature = (changed: Hex) => callsOf({ ...good, signature: changed })[0];
  const asBytes = (changed: Hex): ContractCall => ({
    target: both.usdc,
    data: encodeFunctionData({
      abi: TOKEN_ABI,
      functionName: "transferWithAuthorization",
      args: [
        good.from,
        good.to,
        good.value,
        good.validAfter,
        good.validBefore,
        good.nonce,
        changed,
      ],
    }),
  });
  const high = (2n ** 256n - 432420386565659656852420866394968145600n).toString(16);
  const cases: [ContractCall | undefined, string | undefined][] = [
    [callsOf(await of({ validBefore: both.nowSeconds - 1n }))[0], "authorization is expired"],
    [
      callsOf(await of({ validAfter: both.nowSeconds + 600n }))[0],
      "authorization is not yet valid",
    ],
    [callsOf(await of({ value: 10_001n }))[0], "ERC20: transfer amount exceeds balance"],
    [callsOf({ ...good, value: 999n })[0], "FiatTokenV2: invalid signature"],
    [callsOf({ ...good, from: other.address })[0], "FiatTokenV2: invalid signature"],
    [asBytes(signature.slice(0, -2) as Hex), "ECRecover: invalid signature length"],
    [asBytes("0x"), "ECRecover: invalid signature length"],
    [asBytes(`${signature.slice(0, -2)}00` as Hex), "ECRecover: invalid signature 'v' value"],
    [
      withSignature(`${signature.slice(0, 66)}${high}1b` as Hex),
      "ECRecover: invalid signature 's' value",
    ],
    [withSignature(`0x${"0".repeat(64)}${signature.slice(66)}`), "ECRecover: invalid signature"],
    [callsOf(await of({ to: `0x${"0".repeat(40)}` }))[0], "transfer to the zero address"],
    [{ target: both.usdc, data: "0x12345678" }, undefined],
    [{ target: both.usdc, data: callsOf(good)[0]?.data.slice(0, 300) as Hex }, undefined],
  ];
  for (const [call, reason] of cases) {
    if (!call) throw new Error("no call");
    const receipt = await sameRefusal(t, call, reason);
    t.equal(receipt, undefined);
  }
  // One of them all the way into a block.
  const [first] = cases;
  if (first?.[0]) await refusedEverywhere(t, first[0], "FiatTokenV2: authorization is expired");
  t.same(await balancesOf(t, [payer.address, to]), [10_000n, 0n]);
});

async function sameRefusal(t: Test, call: ContractCall, reason: string | undefined) {
  const found = await both.same(t, reason ?? "no reason", async (chain) =>
    outcomeOf(() => chain.call("eth_call", [{ to: call.target, data: call.data }, "latest"])),
  );
  t.match(found, { failed: "reverted" });
  if (reason !== undefined)
    t.ok(
      "reason" in found && found.reason?.endsWith(reason),
      `${JSON.stringify(found)} is ${reason}`,
    );
  return undefined;
}

t.test("the window of an authorization ends at the same second", async (t) => {
  const payer = await both.payer(10_000n);
  const now = both.nowSeconds;
  for (const terms of [
    { validAfter: now },
    { validAfter: now - 1n },
    { validBefore: now },
    { validBefore: now + 1n },
    { validBefore: now + 2n },
    { validBefore: now + 3n },
  ]) {
    const [call] = callsOf(await authorize(both, payer, { to: randomAddress(), ...terms }));
    if (!call) throw new Error("no call");
    await both.same(t, `a call with ${Object.keys(terms)[0]}`, (chain) =>
      reads.callAs(chain, relayer.address, call, { gas: 300_000n }),
    );
  }
  for (const deadline of [now - 1n, now, now + 1n]) {
    const wanted = {
      network: networkOf(both),
      owner: payer.address,
      spender: PERMIT2,
      value: 1_000n,
      count: 0n,
      deadline,
    };
    const signature = await payer.sign({ hash: `0x${hex(permitDigest(wanted))}` });
    const witness = { to: randomAddress(), validAfter: deadline };
    const terms = [{ deadline }, { witness }];
    const signed = terms.map((given) =>
      authorizePermit2(both, payer, { to: witness.to, ...given }),
    );
    const calls = callsOf({ ...allowanceOf(wanted), signature }, ...(await Promise.all(signed)));
    for (const call of calls)
      await both.same(t, "a permit at its deadline", (chain) =>
        reads.callAs(chain, relayer.address, call, { gas: 300_000n }),
      );
  }
  const edge = await authorize(both, payer, { to: randomAddress(), validBefore: now + 3n });
  const late = await authorize(both, payer, { to: randomAddress(), validBefore: now + 4n });
  const results = [];
  for (const one of [edge, late])
    results.push((await mined(t, alone(callsOf(one)[0] as ContractCall))).status);
  t.same(results, ["0x1", "0x0"]);
});

t.test("a pause and a blocked account", async (t) => {
  const payer = await both.payer(10_000n);
  const to = randomAddress();
  const [call] = callsOf(await authorize(both, payer, { to }));
  if (!call) throw new Error("no call");
  const admin = (data: Hex) => mined(t, { to: both.usdc, data }, both.admin);
  await admin(both.adminCall("pause"));
  await sameRefusal(t, call, "Pausable: paused");
  await admin(both.adminCall("unpause"));
  for (const account of [payer.address, to]) {
    await admin(both.adminCall("blacklist", account));
    await refusedEverywhere(t, call, "Blacklistable: account is blacklisted");
    await admin(both.adminCall("unBlacklist", account));
  }
  t.equal((await mined(t, alone(call))).status, "0x1");
  // By somebody else.
  await refusedEverywhere(
    t,
    { target: both.usdc, data: both.adminCall("pause") },
    "Pausable: caller is not the pauser",
  );
});

t.test("a cancellation before and after its payment", async (t) => {
  const payer = await both.payer(10_000n);
  const [one, two] = await Promise.all(
    [1, 2].map(() => authorize(both, payer, { to: randomAddress() })),
  );
  if (!one || !two) throw new Error("two are signed");
  const cancel = async (signed: typeof one): Promise<ContractCall> => {
    const call = schemeOf(signed).cancelCall?.(signed, await signCancel(both, payer, signed.nonce));
    if (!call) throw new Error("no call");
    return call;
  };
  const bytesForm = {
    target: both.usdc,
    data: encodeFunctionData({
      abi: TOKEN_ABI,
      functionName: "cancelAuthorization",
      args: [two.from, two.nonce, await signCancel(both, payer, one.nonce)],
    }),
  };
  await refusedEverywhere(t, bytesForm, "FiatTokenV2: invalid signature");
  const receipt = await mined(t, alone(await cancel(one)));
  t.equal(receipt.logs.length, 1);
  await refusedEverywhere(
    t,
    callsOf(one)[0] as ContractCall,
    "FiatTokenV2: authorization is used or canceled",
  );
  await mined(t, alone(callsOf(two)[0] as ContractCall));
  await refusedEverywhere(t, await cancel(two), "FiatTokenV2: authorization is used or canceled");
  t.match(
    [...both.model.ends()].filter(({ from }) => from === payer.address.toLowerCase()),
    [
      { kind: "canceled", nonce: one.nonce },
      { kind: "used", nonce: two.nonce, value: two.value, to: two.to },
    ],
  );
});

t.test("the payee's own transfer, and a third party's with an approval", async (t) => {
  const payer = await both.account();
  const payee = await both.account();
  await both.each((chain) => chain.mint([payer.address], 10_000n));
  const nonce = randomWord(new Random(7));
  const message = {
    from: payer.address,
    to: payee.address,
    value: 500n,
    validAfter: 0n,
    validBefore: both.nowSeconds + 600n,
    nonce,
  };
  const signature = await payer.signTypedData({
    domain: { name: "USDC", version: "2", chainId: both.chainId, verifyingContract: both.usdc },
    primaryType: "ReceiveWithAuthorization",
    types: {
      ReceiveWithAuthorization: [
        { name: "from", type: "address" },
        { name: "to", type: "address" },
        { name: "value", type: "uint256" },
        { name: "validAfter", type: "uint256" },
        { name: "validBefore", type: "uint256" },
        { name: "nonce", type: "bytes32" },
      ],
    },
    message,
  });
  const data = encodeFunctionData({
    abi: parseAbi([
      "function receiveWithAuthorization(address,address,uint256,uint256,uint256,bytes32,bytes)",
    ]),
    args: [
      message.from,
      message.to,
      message.value,
      message.validAfter,
      message.validBefore,
      nonce,
      signature,
    ],
  });
  await refusedEverywhere(t, { target: both.usdc, data }, "FiatTokenV2: caller must be the payee");
  t.equal((await mined(t, { to: both.usdc, data }, payee)).status, "0x1");
  const abi: Abi = erc20Abi;
  const erc20 = (functionName: string, args: unknown[]) => ({
    to: both.usdc,
    data: encodeFunctionData({ abi, functionName, args }),
  });
  await mined(t, erc20("approve", [payee.address, 300n]), payer);
  await mined(t, erc20("transferFrom", [payer.address, payee.address, 200n]), payee);
  const last = erc20("transferFrom", [payer.address, payee.address, 101n]);
  t.equal((await mined(t, last, payee)).status, "0x0", "more than approved");
  await mined(t, erc20("approve", [payee.address, maxUint256]), payer);
  await mined(t, erc20("transferFrom", [payer.address, payee.address, 101n]), payee);
  await mined(t, erc20("transfer", [randomAddress(), 1n]), payee);
  t.same(await balancesOf(t, [payer.address, payee.address]), [9_199n, 800n]);
  const left = await both.same(t, "allowance", (chain) =>
    reads.readMany(chain, [allowanceCall(both.usdc, payer.address, payee.address)], "latest"),
  );
  t.equal(BigInt(left[0]?.data ?? 0), maxUint256);
});

t.test("a batch with one bad item", async (t) => {
  const payers = await Promise.all([1, 2, 3, 4, 5].map(() => both.payer(3_000n)));
  const signed = async () =>
    Promise.all(
      payers.map((payer, index) =>
        authorize(both, payer, { to: randomAddress(), value: index === 2 ? 5_000n : 1_000n }),
      ),
    );
  const probes = {
    target: BATCHER_ADDRESS,
    data: throughBatcher(callsOf(...(await signed()))).data,
  };
  for (const through of [throughMulticall, throughBatcher]) {
    const items = await signed();
    const calls = callsOf(...items);
    const results = await both.same(t, "simulated", (chain) =>
      reads.simulate(chain, {
        from: relayer.address,
        calls: [...calls, schemeOf(items[0] as never).stateCall(items[0] as never)],
        gas: 1_500_000n,
        fees: FEES,
      }),
    );
    t.same(
      results.map(({ success }) => success),
      [true, true, false, true, true, true],
    );
    const batch = through(calls);
    await both.same(t, "the raw result", (chain) =>
      chain.call("eth_call", [{ from: relayer.address, ...batch }, "latest"]),
    );
    const receipt = await mined(t, { ...batch, gas: 1_500_000n });
    t.equal(receipt.logs.length, 8);
    const states = await both.same(t, "states", (chain) =>
      reads.readAuthorizationStates(chain, items, both.height),
    );
    t.same(states, [true, true, false, true, true]);
  }
  await both.same(t, "a batch within a batch", (chain) =>
    reads.readMany(chain, [probes, { ...probes, mustSucceed: true }], "latest"),
  );
  const mustSucceed = reads.encodeAggregate(
    callsOf(...(await signed())).map((call) => ({ ...call, mustSucceed: true })),
  );
  await refusedEverywhere(
    t,
    { target: throughMulticall([]).to, data: mustSucceed },
    "Multicall3: call failed",
  );
});

t.test("the gas limit is too small", async (t) => {
  const payers = await Promise.all([1, 2, 3].map(() => both.payer(3_000n)));
  const signed = await Promise.all(
    payers.map((payer) => authorize(both, payer, { to: randomAddress() })),
  );
  const calls = callsOf(...signed);
  const receipt = await mined(t, { ...alone(calls[0] as ContractCall), gas: 60_000n });
  t.equal(receipt.status, "0x0");
  t.equal(Number(receipt.gasUsed), 60_000, "all of it is used");
  // Enough for the first of three; the rest fails within the batch, or the batch with it.
  const some = await mined(t, { ...throughMulticall(calls), gas: 150_000n });
  t.ok(some.logs.length < 6);
  const none = await mined(t, { ...throughBatcher(calls, 20_000n), gas: 300_000n });
  t.equal(none.status, "0x1");
  t.same(none.logs, []);
  await both.same(t, "a call without enough gas", (chain) =>
    outcomeOf(() =>
      reads.callAs(chain, relayer.address, calls[1] as ContractCall, { gas: 40_000n }),
    ),
  );
});

t.test("permit2: exact, upto and the token's permit", async (t) => {
  const payer = await both.account();
  await both.each((chain) => chain.mint([payer.address], 100_000n));
  const to = randomAddress();
  const facilitator = relayer.address;
  const callOf = async (given: object): Promise<ContractCall> =>
    callsOf(await authorizePermit2(both, payer, { to, ...given }))[0] as ContractCall;
  await refusedEverywhere(t, await callOf({}), "TRANSFER_FROM_FAILED");

  // The token's permit in the same call, and one that somebody else has sent before.
  const wanted = {
    network: networkOf(both),
    owner: payer.address,
    spender: PERMIT2,
    value: 1_000n,
    count: 0n,
    deadline: both.nowSeconds + 600n,
  };
  const permitSignature = await payer.sign({ hash: `0x${hex(permitDigest(wanted))}` });
  const first = await authorizePermit2(both, payer, { to });
  const permit = {
    amount: "1000",
    deadline: wanted.deadline.toString(),
    signature: permitSignature,
  };
  const withPermit = { ...first, terms: { scheme: "exact-permit2" as const, permit } };
  const [call] = callsOf(withPermit);
  t.equal((await mined(t, alone(call as ContractCall))).status, "0x1");
  const second = await authorizePermit2(both, payer, { to });
  const again = { ...second, terms: { scheme: "exact-permit2" as const, permit } };
  const receipt = await mined(t, alone(callsOf(again)[0] as ContractCall));
  t.equal(receipt.status, "0x0", "the permit is used and its allowance too");

  // An allowance relayed by itself.
  const allowance = { ...wanted, value: 50_000n, count: 1n };
  const relayed = {
    ...allowanceOf(allowance),
    signature: await payer.sign({ hash: `0x${hex(permitDigest(allowance))}` }),
  };
  t.equal((await mined(t, alone(callsOf(relayed)[0] as ContractCall))).status, "0x1");
  await refusedEverywhere(t, callsOf(relayed)[0] as ContractCall, "EIP2612: invalid signature");
  const counts = await both.same(t, "permit nonces", (chain) =>
    reads.readMany(
      chain,
      [
        permitsCall(both.usdc, payer.address),
        allowanceCall(both.usdc, payer.address, PERMIT2),
        ...(paymentSchemeOf(first).diagnosisCalls?.(first) ?? []),
      ],
      "latest",
    ),
  );
  t.same(
    counts.slice(0, 2).map(({ data }) => BigInt(data)),
    [2n, 50_000n],
  );
  const laterPermit = await mined(t, alone(callsOf(again)[0] as ContractCall));
  t.equal(laterPermit.logs.length, 3, "a permit that fails ends nothing");

  const exact = await callOf({});
  t.equal((await mined(t, alone(exact))).status, "0x1");
  const custom = (signature: string): string => `custom error ${toFunctionSelector(signature)}`;
  await refusedEverywhere(t, exact, custom("InvalidNonce()"));
  const now = both.nowSeconds;
  for (const [given, error] of [
    [{ deadline: now - 10n }, "SignatureExpired(uint256)"],
    [{ witness: { to, validAfter: now + 600n } }, "PaymentTooEarly()"],
    [{ amount: 0n }, "InvalidAmount()"],
    [{ witness: { to: `0x${"0".repeat(40)}`, validAfter: 0n } }, "InvalidDestination()"],
  ] as const)
    await refusedEverywhere(t, await callOf(given), custom(error));
  const signed = await authorizePermit2(both, payer, { to });
  const stranger = await both.payer(1n);
  const wrong = {
    ...signed,
    signature: (await authorizePermit2(both, stranger, { to })).signature,
  };
  await refusedEverywhere(t, callsOf(wrong)[0] as ContractCall, custom("InvalidSigner()"));
  const short = { ...signed, signature: signed.signature.slice(0, -4) as Hex };
  await refusedEverywhere(t, callsOf(short)[0] as ContractCall, custom("InvalidSignatureLength()"));
  const nobody = `0x${"0".repeat(64)}${signed.signature.slice(66)}` as Hex;
  await refusedEverywhere(
    t,
    callsOf({ ...signed, signature: nobody })[0] as ContractCall,
    custom("InvalidSignature()"),
  );

  const part = await callOf({ facilitator, amount: 5_000n, charged: 700n });
  t.equal((await mined(t, alone(part))).status, "0x1");
  const more = await callOf({ facilitator, amount: 5_000n, charged: 5_001n });
  await refusedEverywhere(t, more, custom("AmountExceedsPermitted()"));
  const others = await callOf({ facilitator: randomAddress(), amount: 5_000n });
  await refusedEverywhere(t, others, custom("UnauthorizedFacilitator()"));
  const inBatch = await callOf({ facilitator, amount: 5_000n });
  const batch = await mined(t, { ...throughMulticall([inBatch, await callOf({})]), gas: 900_000n });
  t.equal(batch.logs.length, 2, "upto cannot ride in a batch, exact can");
  t.same(await balancesOf(t, [to]), [1_000n + 1_000n + 1_000n + 700n + 1_000n]);
});

const hex = (bytes: Uint8Array): string => Buffer.from(bytes).toString("hex");
function networkOf({ chainId, usdc }: TwoChains) {
  const found = NETWORKS.find((network) => network.chainId === chainId);
  if (!found) throw new Error("no network has this chain id");
  return { ...found, usdc: { ...found.usdc, address: usdc } };
}

/** Returns ERC-1271's magic value to every call. */
const ACCEPTS: Hex = `0x7f1626ba7e${"0".repeat(56)}5f5260205ff3`;
/** Reverts. */
const REFUSES: Hex = "0x5f5ffd";
/** Burns all gas it is given. */
const BURNS: Hex = "0x5b5f56";

t.test("payers with code, code sizes and the batcher", async (t) => {
  const signer = await both.payer(1n);
  const wallets = await Promise.all([1, 2, 3].map(() => both.payer(3_000n)));
  const [accepting, refusing, burning] = wallets.map(({ address }) => address) as [
    Address,
    Address,
    Address,
  ];
  await both.each(async (chain) => {
    await chain.setCode(accepting, ACCEPTS, () => `1626ba7e${"0".repeat(56)}`);
    await chain.setCode(refusing, REFUSES, () => {
      throw revertWith("");
    });
    await chain.setCode(burning, BURNS, (frame) => {
      frame.charge(Number.POSITIVE_INFINITY);
      return "";
    });
  });
  await both.mine();
  const sizes = await both.same(t, "code sizes", (chain) =>
    reads.readCodeSizes(chain, [accepting, refusing, burning, signer.address, BATCHER_ADDRESS]),
  );
  t.same([...sizes.values()].slice(0, 4), [39n, 3n, 3n, 0n]);
  t.equal(await both.same(t, "batcher", (chain) => readBatcher(chain, BATCHER_ADDRESS)), "ours");
  t.equal(await both.same(t, "no batcher", (chain) => readBatcher(chain, accepting)), "other");
  t.equal(await both.same(t, "no code", (chain) => readBatcher(chain, signer.address)), "absent");
  const domain = await both.same(t, "domain", (chain) =>
    reads.checkTokenDomain({ network: networkOf(both), rpc: chain }),
  );
  t.same(domain, { ok: true });
  const from = async (wallet: Address) => ({
    ...(await authorize(both, signer, { to: randomAddress() })),
    from: wallet,
  });
  const items = [await from(accepting), await from(refusing), await from(burning)];
  const [good, bad, burner] = callsOf(...items) as [ContractCall, ContractCall, ContractCall];
  t.equal((await mined(t, alone(good))).logs.length, 2);
  await refusedEverywhere(t, bad, "FiatTokenV2: invalid signature");
  const burnt = await mined(t, { ...alone(burner), gas: 200_000n });
  t.equal(burnt.status, "0x0");
  const fresh = await from(accepting);
  const batch = await mined(t, {
    ...throughBatcher([burner, ...callsOf(fresh)], 100_000n),
    gas: 400_000n,
  });
  t.equal(batch.logs.length, 2, "it uses up only its own share");
});

t.test("a pool and its errors", async (t) => {
  const sender = await both.account();
  const plain = (given: Partial<Parameters<TwoChains["sign"]>[1]> & { nonce: number }) =>
    both.sign(sender, { to: sender.address, data: "0x", gas: 30_000n, ...given });
  const kind = async (raw: Hex, what: string): Promise<string> => {
    const answer = await both.send(t, raw, what);
    return isRefused(answer) ? answer.failed : "taken";
  };
  const counts = () =>
    both.same(t, "counts", (chain) =>
      Promise.all(
        ["latest", "pending"].map((tag) => reads.readNonce(chain, sender.address, tag as "latest")),
      ),
    );
  const [first, third] = [await plain({ nonce: 0 }), await plain({ nonce: 2 })];
  t.equal(await kind(first, "the first"), "taken");
  t.equal(await kind(first, "again"), "already_known");
  t.equal(await kind(third, "with a gap"), "taken");
  t.same(await counts(), [0n, 1n]);
  t.equal(
    await kind(await plain({ nonce: 0, gas: 30_001n }), "same fees"),
    "replacement_underpriced",
  );
  const better = await plain({
    nonce: 0,
    gas: 30_002n,
    maxFeePerGas: parseGwei("12"),
    maxPriorityFeePerGas: parseGwei("2"),
  });
  t.equal(await kind(better, "higher fees"), "taken");
  t.equal(await kind(await plain({ nonce: 1, gas: 30_000_001n }), "above a block"), "gas_limit");
  t.equal(
    await kind(await plain({ nonce: 1, value: 10n ** 22n }), "without the money"),
    "insufficient_gas_money",
  );
  t.equal(await kind(await plain({ nonce: 1, chainId: 1 }), "another chain's"), "rejected");
  t.equal(await kind("0x02ff", "no transaction"), "rejected");
  await both.mine();
  t.same(await counts(), [1n, 1n]);
  const hashes = await both.same(t, "the block", async (chain) => {
    const { transactions } = await chain.call<{ transactions: Hex[] }>("eth_getBlockByNumber", [
      reads.tagOf(both.height),
      false,
    ]);
    return transactions;
  });
  t.equal(hashes.length, 1, "the replacement alone");
  t.equal(await kind(first, "of a used nonce"), "nonce_too_low");
  t.equal(await kind(better, "a mined one"), "nonce_too_low");
  t.equal(await kind(await plain({ nonce: 1 }), "fills the gap"), "taken");
  t.same(await counts(), [1n, 3n]);
  await both.mine();
  t.same(await counts(), [3n, 3n]);
  const dropped = await plain({ nonce: 3 });
  t.equal(await kind(dropped, "dropped later"), "taken");
  await both.each((chain) => chain.forgetPool());
  await both.mine();
  t.same(await counts(), [3n, 3n]);
  t.equal(await kind(dropped, "sent again"), "taken");
  const pending = await both.same(t, "while it waits", (chain) =>
    seenTransactions(chain, [dropped]),
  );
  t.match(pending, [{ blockNumber: null }]);
  await both.mine();
  const poor = await both.account(1_000n);
  const unpaid = await both.sign(poor, { nonce: 0, to: poor.address, data: "0x", gas: 21_000n });
  t.equal(await kind(unpaid, "without any money"), "insufficient_gas_money");
});

async function seenTransactions(chain: Caller, raws: readonly Hex[]) {
  return Promise.all(
    raws.map(async (raw) => {
      const found = await chain.call<Record<string, unknown> | null>("eth_getTransactionByHash", [
        keccak256(raw),
      ]);
      if (!found) return null;
      const { hash, from, to, nonce, input, value, blockNumber, transactionIndex } = found;
      return { hash, from, to, nonce, input, value, blockNumber, transactionIndex };
    }),
  );
}

t.test("the base fee decides what is in a block and what is paid", async (t) => {
  const cheap = await both.account();
  const rich = await both.account();
  const offer = { maxFeePerGas: parseGwei("3"), maxPriorityFeePerGas: parseGwei("1") };
  const send = (sender: TestAccount, nonce: number, fees: object) =>
    both
      .sign(sender, { nonce, to: sender.address, data: "0x", gas: 21_000n, ...fees })
      .then((raw) => both.send(t, raw)) as Promise<Hex>;
  const low = await send(cheap, 0, offer);
  const high = await send(rich, 0, { ...offer, maxFeePerGas: parseGwei("20") });
  both.baseFeeWei = parseGwei("5");
  await both.mine();
  const receipt = await sameReceipt(t, high);
  t.equal(BigInt(receipt.effectiveGasPrice ?? 0), parseGwei("6"));
  t.equal(await both.same(t, "waits", (chain) => reads.readReceipt(chain, low)), null);
  both.baseFeeWei = parseGwei("2.5");
  await both.mine();
  // anvil forgets what offers too little; other nodes keep it until the fee falls.
  const later = await reads.readReceipt(both.simulated, low);
  t.equal(BigInt(later?.effectiveGasPrice ?? 0), parseGwei("3"), "no more than its maximum");
  both.baseFeeWei = parseGwei("1");
  await both.mine();
  const paid = await both.same(t, "native balance", (chain) =>
    reads.readNativeBalance(chain, rich.address),
  );
  t.equal(paid, 10n ** 21n - 21_000n * parseGwei("6"));
  const poor = await both.payer(1n);
  await both.same(t, "a call of an account that cannot pay", (chain) =>
    outcomeOf(() =>
      reads.callAs(
        chain,
        poor.address,
        { target: both.usdc, data: "0x3644e515" },
        {
          gas: 100_000n,
          fees: FEES,
        },
      ),
    ),
  );
});

t.test("old states, logs and receipts of blocks", async (t) => {
  const payer = await both.payer(10_000n);
  const to = randomAddress();
  await both.mine();
  const start = both.height;
  const signed = await Promise.all([1, 2, 3].map(() => authorize(both, payer, { to })));
  for (const call of callsOf(...signed)) await mined(t, alone(call));
  for (let block = start; block <= both.height; block += 1n) {
    t.same(await balancesOf(t, [to], block), [1_000n * (block - start)]);
    await both.same(t, "states", (chain) => reads.readAuthorizationStates(chain, signed, block));
    await both.same(t, "nonce", (chain) =>
      reads.readNonce(chain, relayer.address, reads.tagOf(block)),
    );
    await sameBlock(t, block);
  }
  for (const topics of [
    [[AUTHORIZATION_USED, TRANSFER], `0x${payer.address.slice(2).toLowerCase().padStart(64, "0")}`],
    [[TRANSFER], null, [`0x${to.slice(2).toLowerCase().padStart(64, "0")}`]],
    [],
  ]) {
    const logs = await both.same(t, "logs", async (chain) =>
      (
        await chain.call<object[]>("eth_getLogs", [
          {
            address: both.usdc,
            topics,
            fromBlock: reads.tagOf(start),
            toBlock: reads.tagOf(both.height - 1n),
          },
        ])
      ).map(logShown),
    );
    t.ok(logs.length >= 2);
  }
  const absent = both.height + 5n;
  t.equal(
    await both.same(t, "no block yet", (chain) => reads.readHeader(chain, absent)),
    undefined,
  );
  await both.same(t, "no state yet", (chain) =>
    outcomeOf(() => reads.readBalances(chain, both.usdc, [to], absent)),
  );
});

/** Everything that the product reads of a block. */
async function sameBlock(t: Test, number: bigint): Promise<void> {
  await both.same(t, `block ${number}`, async (chain) => {
    const block = await chain.call<Record<string, unknown> | null>("eth_getBlockByNumber", [
      reads.tagOf(number),
      true,
    ]);
    const header = await reads.readHeader(chain, number);
    if (!block || !header) return undefined;
    const transactions = block["transactions"] as Record<string, unknown>[];
    const receipts = await reads.readBlockReceipts(chain, header);
    const byHash = await chain.call<{ number: Hex } | null>("eth_getBlockByHash", [
      header.hash,
      false,
    ]);
    return {
      number: block["number"],
      timestamp: block["timestamp"],
      baseFee: block["baseFeePerGas"],
      gasLimit: block["gasLimit"],
      byHash: byHash?.number,
      transactions: transactions.map(({ hash, from, to, nonce, input, blockNumber }) => ({
        hash,
        from,
        to,
        nonce,
        input,
        blockNumber,
      })),
      receipts: receipts?.map(shown),
    };
  });
}

t.test("estimates and a simulation of several calls", async (t) => {
  const payer = await both.payer(10_000n);
  const [call] = callsOf(await authorize(both, payer, { to: randomAddress() }));
  const estimate = (from: Address, to: string, data: Hex = "0x") =>
    both.each((chain) => chain.call<Hex>("eth_estimateGas", [{ from, to, data, value: "0x0" }]));
  const transfer = await estimate(relayer.address, relayer.address);
  t.same(transfer, { anvil: "0x5208", simulated: "0x5208" });
  const payment = await estimate(relayer.address, both.usdc, call?.data);
  sameGas(t, payment.simulated, payment.anvil);
  await both.same(t, "of a call that fails", (chain) =>
    outcomeOf(() => chain.call("eth_estimateGas", [{ to: both.usdc, data: "0x12345678" }])),
  );
  const statuses = await both.same(t, "one after the other", async (chain) => {
    const calls = [1, 2].map(() => ({ from: relayer.address, to: both.usdc, data: call?.data }));
    const [block] = await chain.call<{ calls: { status: Hex }[] }[]>("eth_simulateV1", [
      { blockStateCalls: [{ calls }] },
      "latest",
    ]);
    return block?.calls.map(({ status }) => status);
  });
  t.same(statuses, ["0x1", "0x0"]);
});

t.test("a reorganisation takes back what its blocks did", async (t) => {
  const payer = await both.payer(10_000n);
  const to = randomAddress();
  await both.mine();
  const signed = await Promise.all([1, 2, 3].map(() => authorize(both, payer, { to })));
  const calls = callsOf(...signed);
  const kept = await mined(t, alone(calls[0] as ContractCall));
  const lost = await mined(t, alone(calls[1] as ContractCall));
  const before = await both.each((chain) => reads.readHeader(chain, both.height));
  await both.reorganise(1);
  const after = await both.each((chain) => reads.readHeader(chain, both.height));
  t.not(after.simulated?.hash, before.simulated?.hash);
  t.equal(after.simulated?.timestampSeconds, after.anvil?.timestampSeconds);
  const { transactionHash } = lost;
  t.equal(await both.same(t, "gone", (chain) => reads.readReceipt(chain, transactionHash)), null);
  await sameReceipt(t, kept.transactionHash);
  t.same(await balancesOf(t, [to]), [1_000n]);
  await sameBlock(t, both.height);
  t.equal((await mined(t, alone(calls[2] as ContractCall))).status, "0x1");
  t.equal((await mined(t, alone(calls[1] as ContractCall))).status, "0x1", "it can be sent again");
  t.same(await balancesOf(t, [to]), [3_000n]);
  await both.reorganise(4);
  t.same(await balancesOf(t, [to]), [0n]);
  t.equal(
    await both.same(t, "gone", (chain) => reads.readReceipt(chain, kept.transactionHash)),
    null,
  );
  for (let depth = 0n; depth < 4n; depth += 1n) await sameBlock(t, both.height - depth);
});

/** One world of random steps by its seed. Each step is made on both chains, and everything they show is compared. */
class RandomSteps {
  readonly #t: Test;
  readonly #random: Random;
  readonly #payers: TestAccount[] = [];
  readonly #senders: TestAccount[] = [];
  readonly #payees: Address[] = [];
  readonly #signed: SignedAuthorization[] = [];
  readonly #calls: ContractCall[] = [];
  readonly #raws: Hex[] = [];
  readonly #hashes: Hex[] = [];
  #sinceStart = 0n;

  constructor(t: Test, seed: number) {
    this.#t = t;
    this.#random = new Random(seed);
  }

  async begin(): Promise<void> {
    for (let count = 0; count < 3; count += 1) {
      const payer = randomAccount(this.#random);
      this.#payers.push(payer);
      await both.each((chain) => chain.mint([payer.address], 5_000n));
      this.#payees.push(payer.address, randomAccount(this.#random).address);
    }
    for (let count = 0; count < 2; count += 1) {
      const sender = randomAccount(this.#random);
      this.#senders.push(sender);
      await both.fund(sender.address, 10n ** 21n);
    }
    this.#sinceStart = both.height + 1n;
    await this.#mine();
    for (let count = 0; count < 3; count += 1) await this.#sign();
  }

  async step(): Promise<void> {
    const roll = this.#random.int(0, 99);
    if (roll < 20) await this.#sign();
    else if (roll < 35) await this.#simulate();
    else if (roll < 70) await this.#send();
    else if (roll < 76) await this.#resend();
    else if (roll < 96) await this.#mine();
    else await this.#reorganise();
  }

  async end(): Promise<void> {
    await this.#mine();
    await both.each((chain) => chain.forgetPool());
    const ends = [...both.model.ends()].filter(({ from }) =>
      this.#payers.some(({ address }) => address.toLowerCase() === from),
    );
    const keys = ends.map(({ from, nonce }) => `${from} ${nonce}`);
    this.#t.equal(new Set(keys).size, keys.length, "each authorization ends once");
  }

  async #sign(): Promise<void> {
    const payer = this.#random.pick(this.#payers);
    const terms = {
      to: this.#random.pick(this.#payees),
      value: this.#random.pick([1_000n, 1_000n, 700n, 4_000n, 6_000n, 0n]),
      validAfter: this.#random.pick([0n, 0n, 0n, both.nowSeconds + 5n]),
      validBefore: both.nowSeconds + this.#random.pick([600n, 600n, 600n, 3n, -1n]),
    };
    const kind = this.#random.int(0, 9);
    const known = this.#signed.length > 0 ? this.#random.pick(this.#signed) : undefined;
    if (kind < 5) {
      this.#add(await authorize(both, payer, { ...terms, nonce: randomWord(this.#random) }));
    } else if (kind === 5 && known && !known.nonce.startsWith("permit2:")) {
      // Another payment with the same nonce.
      const owner = this.#payers.find(({ address }) => address === known.from) ?? payer;
      this.#add(await authorize(both, owner, { ...terms, nonce: known.nonce }));
    } else if (kind === 6 && known && !known.nonce.startsWith("permit2:")) {
      const owner = this.#payers.find(({ address }) => address === known.from) ?? payer;
      const call = schemeOf(known).cancelCall?.(known, await signCancel(both, owner, known.nonce));
      if (call) this.#calls.push(call);
    } else if (kind === 7) {
      const wanted = {
        network: networkOf(both),
        owner: payer.address,
        spender: PERMIT2,
        value: this.#random.pick([2_000n, maxUint256]),
        count: BigInt(this.#random.int(0, 1)),
        deadline: both.nowSeconds + 600n,
      };
      const signature = await payer.sign({ hash: `0x${hex(permitDigest(wanted))}` });
      this.#calls.push(...callsOf({ ...allowanceOf(wanted), signature }));
    } else {
      const { to, value } = terms;
      const isUpto = this.#random.int(0, 1) === 0;
      this.#add(
        await authorizePermit2(both, payer, {
          to,
          amount: value + 1n,
          nonce: BigInt(randomWord(this.#random)),
          deadline: terms.validBefore,
          ...(isUpto && { facilitator: this.#random.pick(this.#senders).address, charged: value }),
        }),
      );
    }
  }

  #add(signed: SignedAuthorization): void {
    this.#signed.push(signed);
    this.#calls.push(...callsOf(signed));
  }

  #some(): ContractCall[] {
    const count = this.#random.int(1, 4);
    return Array.from({ length: count }, () => this.#random.pick(this.#calls));
  }

  async #simulate(): Promise<void> {
    const calls = this.#some();
    const from = this.#random.pick(this.#senders).address;
    await both.same(this.#t, "a simulation", (chain) =>
      outcomeOf(() => reads.simulate(chain, { from, calls, gas: 2_000_000n, fees: FEES })),
    );
    const [call] = calls as [ContractCall];
    await both.same(this.#t, "a call", (chain) =>
      outcomeOf(() => reads.callAs(chain, from, call, { gas: 300_000n, fees: FEES })),
    );
  }

  async #send(): Promise<void> {
    const sender = this.#random.pick(this.#senders);
    const [latest, pending] = await this.#counts(sender);
    const calls = this.#some();
    const isTransfer = ({ target, data }: ContractCall): boolean =>
      target.toLowerCase() === both.usdc.toLowerCase() && data.length === 2 + 8 + 9 * 64;
    const way = this.#random.int(0, 2);
    const [first] = calls as [ContractCall];
    let sent = alone(first);
    if (way === 1) sent = throughMulticall(calls);
    if (way === 2 && calls.every(isTransfer)) sent = throughBatcher(calls, 300_000n);
    const isShort = sent.to === first.target && this.#random.int(0, 5) === 0;
    const factor = this.#random.pick([1n, 1n, 2n]);
    const nonce = this.#random.pick([pending, pending, pending, pending, latest, pending + 1n, 0n]);
    const raw = await both.sign(sender, {
      nonce: Number(nonce),
      ...sent,
      gas: isShort ? 40_000n : 300_000n * BigInt(calls.length) + 60_000n,
      // No two offer the same, and the first offers the most: nodes differ in the order of equals.
      maxFeePerGas: parseGwei("10") * factor - BigInt(this.#raws.length),
      maxPriorityFeePerGas: parseGwei("1") * factor - BigInt(this.#raws.length),
    });
    const answer = await both.send(this.#t, raw);
    this.#raws.push(raw);
    if (!isRefused(answer)) this.#hashes.push(answer);
  }

  /** Bytes that were sent before. Behind a gap, anvil lets a cheaper transaction replace a dearer one: not compared. */
  async #resend(): Promise<void> {
    if (this.#raws.length === 0) return;
    const raw = this.#random.pick(this.#raws);
    const { nonce } = parseTransaction(raw);
    const from = await recoverTransactionAddress({ serializedTransaction: raw as never });
    const sender = this.#senders.find(({ address }) => address === from);
    if (!sender) throw new Error("nobody sent this");
    const [, pending] = await this.#counts(sender);
    if (BigInt(nonce ?? 0) <= pending) await both.send(this.#t, raw);
  }

  #counts(sender: TestAccount): Promise<[bigint, bigint]> {
    return both.same(this.#t, "the next nonces", async (chain) => [
      await reads.readNonce(chain, sender.address, "latest"),
      await reads.readNonce(chain, sender.address, "pending" as never),
    ]);
  }

  async #mine(): Promise<void> {
    await both.mine();
    await this.#compare();
  }

  async #reorganise(): Promise<void> {
    const most = Number(both.height - this.#sinceStart);
    if (most === 0) return;
    await both.reorganise(Math.min(this.#random.int(1, 3), most));
    await this.#compare();
  }

  async #compare(): Promise<void> {
    const t = this.#t;
    const accounts = [...this.#payers.map(({ address }) => address), ...this.#payees];
    const [from, to] = [this.#sinceStart, both.height];
    const old = from + BigInt(this.#random.int(0, Number(to - from)));
    const ofToken = this.#signed.filter(({ nonce }) => !nonce.startsWith("permit2:"));
    await sameBlock(t, both.height);
    await both.same(t, "what the chain shows", async (chain) => {
      const all = await Promise.all([
        Promise.all(this.#hashes.map((hash) => reads.readReceipt(chain, hash))),
        seenTransactions(chain, this.#raws),
        reads.readBalances(chain, both.usdc, accounts, to),
        reads.readBalances(chain, both.usdc, accounts, old),
        reads.readAuthorizationStates(chain, this.#signed, to),
        reads.readAuthorizationStates(chain, this.#signed, old),
        Promise.all(
          ofToken.map((one) => reads.findAuthorizationUse(chain, one as never, { from, to })),
        ),
        Promise.all(
          this.#senders.map(({ address }) => reads.readNonce(chain, address, reads.tagOf(old))),
        ),
      ] as const);
      const [receipts, transactions, ...states] = all;
      return {
        receipts: receipts.map((receipt) => receipt && shown(receipt)),
        transactions: transactions.map((found) => found?.hash),
        states,
      };
    });
    for (const sender of this.#senders) await this.#counts(sender);
  }
}

// More of them by hand: CHAIN_SEED=13 CHAIN_SEQUENCES=100.
const FIRST_SEED = Number(process.env["CHAIN_SEED"] ?? 1);
const SEQUENCES = Number(process.env["CHAIN_SEQUENCES"] ?? 12);
const STEPS = 25;

for (let seed = FIRST_SEED; seed < FIRST_SEED + SEQUENCES; seed += 1)
  t.test(`random steps, seed ${seed}`, async (t) => {
    const steps = new RandomSteps(t, seed);
    await steps.begin();
    for (let count = 0; count < STEPS; count += 1) await steps.step();
    await steps.end();
  });
