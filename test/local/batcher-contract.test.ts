// Goal: Purser's batcher contract makes exactly the packed calls, each within its gas and failing alone, rejects
// truncated or malformed input, cannot be abused by others, and makes a payment in a full batch at least 5 %
// cheaper than Multicall3.
import { randomBytes } from "node:crypto";
import t from "tap";
import {
  concat,
  decodeFunctionResult,
  encodeFunctionData,
  getContractAddress,
  hexToBytes,
  keccak256,
  numberToHex,
  pad,
  parseAbi,
  parseEventLogs,
  toHex,
  type Address,
  type Hex,
} from "viem";
import { privateKeyToAccount } from "viem/accounts";
import type { ContractCall } from "../../server/core/abi.ts";
import {
  BATCHER_ADDRESS,
  BATCHER_CODE_HASH,
  NO_ANSWERS,
  NO_TRANSFERS,
  packTransfers,
} from "../../server/core/batcher.ts";
import { CREATE2_DEPLOYER, MULTICALL3_ADDRESS } from "../../server/core/networks.ts";
import artifact from "../../server/infra/chain/batcher/Batcher.json" with { type: "json" };
import { encodeAggregate } from "../../server/infra/chain/contracts.ts";
import { transferCalldata } from "../../server/schemes/exact-eip3009/onchain.ts";
import { unpackTransfers } from "../helpers/batcher-calls.ts";
import { testChain } from "../helpers/chain.ts";
import { authorize, payers, randomAddress } from "../helpers/engine.ts";

const BATCHER = parseAbi(["function relay(bytes packed) returns (bytes)"]);
const TOKEN = parseAbi([
  "function authorizationState(address, bytes32) view returns (bool)",
  "event AuthorizationUsed(address indexed authorizer, bytes32 indexed nonce)",
]);
const GAS = 100_000n;
const chain = await testChain(t);
const { publicClient, testClient } = chain;

type Signed = Awaited<ReturnType<typeof authorize>>;
const callOf = (signed: Signed, target: string = signed.asset): ContractCall => ({
  target,
  data: transferCalldata(signed, signed.signature),
});
function packed(calls: readonly ContractCall[], gas = GAS): Hex {
  const data = packTransfers(calls, gas);
  if (data === undefined) throw new Error("not to be packed");
  return data;
}
async function signed(count: number, over: Partial<Parameters<typeof authorize>[2]> = {}) {
  const accounts = payers(count);
  await chain.mint(
    accounts.map(({ address }) => address),
    10_000n,
  );
  const to = randomAddress();
  return Promise.all(accounts.map((payer) => authorize(chain, payer, { to, ...over })));
}
/** The success flag of each call. */
const answerOf = (data: Hex): number[] => [
  ...hexToBytes(decodeFunctionResult({ abi: BATCHER, functionName: "relay", data })),
];
const simulate = async (data: Hex, gas = 5_000_000n): Promise<number[]> => {
  const answer = await publicClient.call({ to: BATCHER_ADDRESS, data, gas });
  return answerOf(answer.data ?? "0x");
};
async function send(to: Address, data: Hex, gas = 20_000_000n) {
  const hash = await chain.walletClient(chain.relayer).sendTransaction({ to, data, gas });
  return publicClient.waitForTransactionReceipt({ hash });
}
const place = async (bytecode: Hex): Promise<Address> => {
  const address = randomAddress();
  await testClient.setCode({ address, bytecode });
  return address;
};

t.test("address and code equal the artifact on any chain", async (t) => {
  const { creationCode, deployedBytecode, salt } = artifact as Record<string, unknown> & {
    creationCode: Hex;
    deployedBytecode: Hex;
    salt: Hex;
  };
  const made = { opcode: "CREATE2", from: CREATE2_DEPLOYER, salt, bytecode: creationCode } as const;
  t.equal(getContractAddress(made), BATCHER_ADDRESS);
  t.equal(keccak256(deployedBytecode), BATCHER_CODE_HASH);
  t.equal(await publicClient.getCode({ address: BATCHER_ADDRESS }), deployedBytecode, "placed");
  await testClient.setCode({ address: BATCHER_ADDRESS, bytecode: "0x" });
  await send(CREATE2_DEPLOYER, concat([salt, creationCode]));
  t.equal(await publicClient.getCode({ address: BATCHER_ADDRESS }), deployedBytecode, "deployed");
  // It contains no instruction for delegatecall, selfdestruct, create or storage.
  const ops = instructionsOf(hexToBytes(deployedBytecode));
  for (const op of [0x54, 0x55, 0x5c, 0x5d, 0xf0, 0xf2, 0xf4, 0xf5, 0xff])
    t.notOk(ops.includes(op), `0x${op.toString(16)}`);
  t.equal(ops.filter((op) => op === 0xf1).length, 1, "one call");
});

function instructionsOf(code: Uint8Array): number[] {
  const found: number[] = [];
  for (let at = 0; at < code.length; at += 1) {
    const op = code[at] ?? 0;
    found.push(op);
    if (op >= 0x60 && op <= 0x7f) at += op - 0x5f;
  }
  return found;
}

t.test("it makes the packed calls, byte for byte", async (t) => {
  // A contract that logs its calldata.
  const recorder = await place("0x365f5f37365fa000");
  const made = async (calls: readonly ContractCall[]): Promise<void> => {
    const data = packed(calls);
    t.same(unpackTransfers(data), calls, "unpackTransfers agrees");
    const { logs, status } = await send(BATCHER_ADDRESS, data);
    t.equal(status, "success");
    t.same(
      logs.map((log) => log.data),
      calls.map((call) => call.data),
    );
  };
  const to = randomAddress();
  const some = async (count: number, over: (index: number) => object) => {
    const accounts = payers(count);
    const all = await Promise.all(
      accounts.map((payer, index) => authorize(chain, payer, { to, ...over(index) })),
    );
    return all.map((one) => callOf(one, recorder));
  };
  await made(await some(40, () => ({ value: 1_000n, validBefore: 2_000_000_000n })));
  await made(
    await some(20, (index) => ({
      to: randomAddress(),
      value: 10n ** BigInt(index),
      validBefore: 2n ** 40n - BigInt(index),
    })),
  );
  const most = 2n ** 256n - 1n;
  await made(
    await some(4, (index) => ({
      to: index % 2 === 0 ? `0x${"ff".repeat(20)}` : `0x${"00".repeat(19)}01`,
      value: index % 2 === 0 ? most : 0n,
      validAfter: index % 2 === 0 ? 0n : most,
      validBefore: most,
    })),
  );
  await made(await some(1, () => ({})));
});

t.test("each call fails alone, and successful ones are in the token's logs", async (t) => {
  const good = await signed(4);
  const [first, second, third, fourth] = good;
  const [poor] = await signed(1, { value: 10n ** 12n });
  const [late] = await signed(1, { validBefore: 1n });
  if (!first || !second || !third || !fourth || !poor || !late) throw new Error("too few");
  const forged = { ...third, signature: second.signature };
  const batch = [first, poor, second, first, forged, late, fourth];
  const data = packed(batch.map((one) => callOf(one)));
  const wanted = [1, 0, 1, 0, 0, 0, 1];
  t.same(
    await simulate(data),
    wanted,
    "a duplicate, a forged, an expired one and one without balance",
  );
  const receipt = await send(BATCHER_ADDRESS, data);
  t.equal(receipt.status, "success");
  const used = parseEventLogs({ abi: TOKEN, logs: receipt.logs, eventName: "AuthorizationUsed" });
  t.same(
    used.map(({ args }) => args.nonce),
    [first, second, fourth].map(({ nonce }) => nonce),
  );
  t.same(await simulate(data), [0, 0, 0, 0, 0, 0, 0], "nothing succeeds twice");
  const { data: none } = await publicClient.call({ to: BATCHER_ADDRESS, data: NO_TRANSFERS });
  t.equal(none, NO_ANSWERS, "an empty batch");
});

t.test("truncated or malformed input is rejected as a whole", async (t) => {
  const data = packed((await signed(3)).map((one) => callOf(one)));
  const size = Number.parseInt(data.slice(10 + 64, 10 + 128), 16);
  const argument = data.slice(10 + 128, 10 + 128 + size * 2);
  const relay = (digits: string): Hex =>
    encodeFunctionData({ abi: BATCHER, functionName: "relay", args: [`0x${digits}`] });
  const width = (at: number, bytes: string): string =>
    argument.slice(0, at * 2) + bytes + argument.slice(at * 2 + 2);
  const crooked: [string, Hex][] = [
    ["nothing", "0x"],
    ["a selector alone", data.slice(0, 10) as Hex],
    ["another function", `0xac9650d8${data.slice(10)}`],
    ["no argument", relay("")],
    ["half a head", relay(argument.slice(0, 155 * 2))],
    ["a byte too few", relay(argument.slice(0, -2))],
    ["a byte too many", relay(`${argument}00`)],
    ["a transfer cut in two", relay(argument.slice(0, -100))],
    ["cut behind its length", data.slice(0, -128) as Hex],
    [
      "a length beyond all",
      `${data.slice(0, 10 + 64)}${"f".repeat(64)}${data.slice(10 + 128)}` as Hex,
    ],
    ["an offset beyond all", `${data.slice(0, 10)}${"f".repeat(64)}${data.slice(10 + 64)}` as Hex],
    ...[24, 25, 26, 27].map((at): [string, Hex] => [`width 33 at ${at}`, relay(width(at, "21"))]),
    ...[24, 25, 26, 27].map((at): [string, Hex] => [`width 255 at ${at}`, relay(width(at, "ff"))]),
  ];
  for (const [name, each] of crooked) {
    await t.rejects(publicClient.call({ to: BATCHER_ADDRESS, data: each }), name);
    t.equal(unpackTransfers(each), undefined, `${name}: unpackTransfers rejects it too`);
  }
  await t.rejects(publicClient.call({ to: BATCHER_ADDRESS, data, value: 1n }), "native coins");
  t.same(await simulate(data), [1, 1, 1]);
});

t.test("a token that burns gas, reverts or calls back costs only its gas limit", async (t) => {
  const batch = await signed(10);
  const reentrant = randomAddress();
  const again = packed(batch.slice(0, 2).map((one) => callOf(one, reentrant)));
  const size = hexToBytes(again).length;
  // A contract that calls its caller with another batch, and then fails.
  const head = `61${numberToHex(size, { size: 2 }).slice(2)}8060165f395f5f825f5f335af1505f5ffd`;
  const evil: [string, Hex, number][] = [
    ["burns all it gets", "0x5b5f56", 0],
    ["an invalid instruction", "0xfe", 0],
    ["an endless answer", "0x61ffff5ff3", 1],
    ["an endless revert", "0x61ffff5ffd", 0],
    ["no code", "0x", 1],
  ];
  const overhead = 30_000n + 2_500n * 10n;
  for (const [name, code, flag] of evil) {
    const target = await place(code);
    const data = packed(batch.map((one) => callOf(one, target)));
    const { status, gasUsed } = await send(BATCHER_ADDRESS, data);
    t.equal(status, "success", name);
    t.ok(gasUsed <= overhead + 10n * GAS, `${name}: ${gasUsed}`);
    t.same(
      await simulate(data),
      batch.map(() => flag),
      name,
    );
  }
  const back = `0x${head}`.padEnd(2 + 0x16 * 2, "00") as Hex;
  await testClient.setCode({ address: reentrant, bytecode: concat([back, again]) });
  const { status, gasUsed } = await send(
    BATCHER_ADDRESS,
    packed(batch.map((one) => callOf(one, reentrant))),
  );
  t.equal(status, "success", "reentrant");
  t.ok(gasUsed > 100_000n && gasUsed <= overhead + 10n * GAS, `reentrant: ${gasUsed}`);
  // With too little gas, only the remaining calls fail.
  const short = packed(batch.map((one) => callOf(one)));
  const flags = await simulate(short, 400_000n).catch((): number[] => []);
  t.ok(flags.length === 0 || flags.includes(0), flags.join(""));
  t.same(
    await simulate(short),
    batch.map(() => 1),
    "all are still valid",
  );
});

t.test("it holds nothing that can be taken, and acts for nobody", async (t) => {
  await chain.mint(BATCHER_ADDRESS, 5_000n);
  const [payer] = payers(1);
  if (!payer) throw new Error("no payer");
  const own = { ...(await authorize(chain, payer, { to: payer.address })), from: BATCHER_ADDRESS };
  t.same(await simulate(packed([callOf(own)])), [0], "tokens sent to it by mistake stay there");
  // It must not return a valid answer to isValidSignature (ERC-1271).
  const question = concat(["0x1626ba7e", pad("0x01"), pad("0x40"), pad("0x00")]);
  await t.rejects(publicClient.call({ to: BATCHER_ADDRESS, data: question }));
  const thief = privateKeyToAccount(toHex(randomBytes(32)));
  t.equal(
    packTransfers([{ target: chain.usdc, data: `0x095ea7b3${"0".repeat(576)}` }], GAS),
    undefined,
    `no approval for ${thief.address} can be packed: its only call has one selector`,
  );
});

t.test("the cost of a payment in a full batch", async (t) => {
  const now = BigInt(Math.floor(Date.now() / 1_000));
  const fullBatch = async (isOnePayee: boolean): Promise<ContractCall[]> => {
    const accounts = payers(100);
    const one = randomAddress();
    const payees = accounts.map(() => (isOnePayee ? one : randomAddress()));
    await chain.mint([...new Set([...accounts.map(({ address }) => address), ...payees])], 10_000n);
    const all = await Promise.all(
      accounts.map((payer, index) =>
        authorize(chain, payer, {
          to: payees[index] ?? one,
          value: 1_000n + BigInt(index),
          validAfter: now - 600n - BigInt(index % 7),
          validBefore: now + 600n + BigInt(index % 7),
        }),
      ),
    );
    return all.map((signed) => callOf(signed));
  };
  // Two batches of one shape instead of one sent twice: a node that was reset may still cache what it mined.
  const measure = async (name: string, isOnePayee: boolean): Promise<void> => {
    const before = await send(MULTICALL3_ADDRESS, encodeAggregate(await fullBatch(isOnePayee)));
    const after = await send(BATCHER_ADDRESS, packed(await fullBatch(isOnePayee)));
    t.same([before.logs.length, after.logs.length], [200, 200]);
    const saved = 100 - (100 * Number(after.gasUsed)) / Number(before.gasUsed);
    t.comment(
      `${name}: ${before.gasUsed / 100n} by Multicall3, ${after.gasUsed / 100n} by the batcher, ${saved.toFixed(1)} % less`,
    );
    t.ok(saved > 5, `${saved}`);
    t.ok(after.gasUsed / 100n <= (isOnePayee ? 45_000n : 49_500n), `${after.gasUsed / 100n}`);
  };
  await measure("one payee", true);
  await measure("many payees", false);
});
