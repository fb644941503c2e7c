// Goal: the local chain's USDC behaves like the deployed one, and every invalid authorization fails with real
// USDC's error message.
import { readFileSync } from "node:fs";
import t, { type Test } from "tap";
import {
  BaseError,
  encodeFunctionData,
  hashTypedData,
  parseSignature,
  recoverAddress,
  toHex,
  type Abi,
  type Address,
  type Hex,
} from "viem";
import { randomBytes } from "node:crypto";
import { testChain, type TestAccount, type TestChain } from "../helpers/chain.ts";

const artifact = (path: string) =>
  JSON.parse(readFileSync(new URL(path, import.meta.url), "utf8")) as { abi: Abi; bytecode: Hex };
const usdcAbi = artifact("../../server/local/contracts/LocalUsdc.json").abi;
const factoryArtifact = artifact("../helpers/contracts/TestWalletFactory.json");

const AUTHORIZATION = [
  { name: "from", type: "address" },
  { name: "to", type: "address" },
  { name: "value", type: "uint256" },
  { name: "validAfter", type: "uint256" },
  { name: "validBefore", type: "uint256" },
  { name: "nonce", type: "bytes32" },
] as const;
const TYPES = {
  TransferWithAuthorization: AUTHORIZATION,
  ReceiveWithAuthorization: AUTHORIZATION,
  CancelAuthorization: [
    { name: "authorizer", type: "address" },
    { name: "nonce", type: "bytes32" },
  ],
  Permit: [
    { name: "owner", type: "address" },
    { name: "spender", type: "address" },
    { name: "value", type: "uint256" },
    { name: "nonce", type: "uint256" },
    { name: "deadline", type: "uint256" },
  ],
} as const;
const CURVE_ORDER = 0xfffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141n;
const FAR = 2n ** 40n;

interface Authorization {
  from: Address;
  to: Address;
  value: bigint;
  validAfter: bigint;
  validBefore: bigint;
  nonce: Hex;
}

interface World {
  chain: TestChain;
  payer: TestAccount;
  payee: TestAccount;
  other: TestAccount;
  authorize: (changes?: Partial<Authorization>) => Authorization;
  sign: (
    by: TestAccount,
    primaryType: keyof typeof TYPES,
    message: Record<string, unknown>,
  ) => Promise<Hex>;
  read: (functionName: string, args?: unknown[]) => Promise<unknown>;
  /** Sends it and returns "ok" or the revert message. */
  send: (by: TestAccount, functionName: string, args: unknown[]) => Promise<string>;
}

async function world(t: Test): Promise<World> {
  const chain = await testChain(t);
  const [payer, payee, other] = chain.accounts as [TestAccount, TestAccount, TestAccount];
  await chain.mint(payer.address, 100_000_000n);
  const domain = {
    name: "USDC",
    version: "2",
    chainId: chain.chainId,
    verifyingContract: chain.usdc,
  };
  return {
    chain,
    payer,
    payee,
    other,
    authorize: (changes = {}) => ({
      from: payer.address,
      to: payee.address,
      value: 1_500_000n,
      validAfter: 0n,
      validBefore: FAR,
      nonce: toHex(randomBytes(32)),
      ...changes,
    }),
    sign: (by, primaryType, message) =>
      by.signTypedData({ domain, types: TYPES, primaryType, message: message as never }),
    read: (functionName, args = []) =>
      chain.publicClient.readContract({ address: chain.usdc, abi: usdcAbi, functionName, args }),
    async send(by, functionName, args) {
      const data = encodeFunctionData({ abi: usdcAbi, functionName, args });
      try {
        const hash = await chain.walletClient(by).sendTransaction({ to: chain.usdc, data });
        const receipt = await chain.publicClient.waitForTransactionReceipt({ hash });
        return receipt.status === "success" ? "ok" : "reverted without a reason";
      } catch (error) {
        const text = error instanceof BaseError ? error.details : String(error);
        return text.replace(/^execution reverted: */, "").replace(/^revert: */, "");
      }
    },
  };
}

const split = (signature: Hex): [number, Hex, Hex] => {
  const { r, s, yParity } = parseSignature(signature);
  return [27 + yParity, r, s];
};
const fields = (a: Authorization) => [a.from, a.to, a.value, a.validAfter, a.validBefore, a.nonce];
const vrs = (a: Authorization, signature: Hex) => [...fields(a), ...split(signature)];
const packed = (a: Authorization, signature: Hex) => [...fields(a), signature];
// Two overloads share a name; viem selects by the number of arguments.

t.test("is USDC by name, decimals and EIP-712 domain", async (t) => {
  const { chain, read } = await world(t);
  t.equal(await read("name"), "USDC");
  t.equal(await read("symbol"), "USDC");
  t.equal(await read("decimals"), 6);
  t.equal(await read("version"), "2");
  t.equal(
    await read("DOMAIN_SEPARATOR"),
    "0x361191522483d32a83e70ae7183b4b9629442c13a78bc9921d6f707911c8c6b0",
    "the separator of Arc Testnet's USDC",
  );
  const other = await testChain(t, {
    chainId: 84532,
    usdc: "0x036CbD53842c5426634e7929541eC2318f3dCF7e",
  });
  const separator = await other.publicClient.readContract({
    address: other.usdc,
    abi: usdcAbi,
    functionName: "DOMAIN_SEPARATOR",
  });
  t.not(
    separator,
    await read("DOMAIN_SEPARATOR"),
    "on another chain and address the domain differs",
  );
  t.equal(await read("isMinter", [chain.admin.address]), true);
});

for (const [form, args] of [
  ["(v, r, s)", vrs],
  ["(bytes)", packed],
] as const) {
  t.test(`transferWithAuthorization ${form} pays once`, async (t) => {
    const { chain, payer, payee, other, authorize, sign, read, send } = await world(t);
    const a = authorize();
    const signature = await sign(payer, "TransferWithAuthorization", { ...a });
    t.equal(await read("authorizationState", [a.from, a.nonce]), false);
    t.equal(await send(other, "transferWithAuthorization", args(a, signature)), "ok");
    t.equal(await read("authorizationState", [a.from, a.nonce]), true);
    t.equal(await read("balanceOf", [payee.address]), 1_500_000n);
    t.equal(await read("balanceOf", [payer.address]), 98_500_000n);
    const logs = await chain.publicClient.getContractEvents({
      address: chain.usdc,
      abi: usdcAbi,
      fromBlock: 0n,
    });
    t.match(
      logs.map((log) => [log.eventName, log.topics.length]),
      [
        ["AuthorizationUsed", 3],
        ["Transfer", 3],
      ],
      "both parts of AuthorizationUsed are indexed",
    );
    t.equal(
      await send(other, "transferWithAuthorization", args(a, signature)),
      "FiatTokenV2: authorization is used or canceled",
      "a replay",
    );
  });

  t.test(`receiveWithAuthorization ${form} is for the payee only`, async (t) => {
    const { payer, payee, other, authorize, sign, read, send } = await world(t);
    const a = authorize();
    const signature = await sign(payer, "ReceiveWithAuthorization", { ...a });
    t.equal(
      await send(other, "receiveWithAuthorization", args(a, signature)),
      "FiatTokenV2: caller must be the payee",
    );
    t.equal(
      await send(other, "transferWithAuthorization", args(a, signature)),
      "FiatTokenV2: invalid signature",
      "it is not a transfer authorization",
    );
    t.equal(await send(payee, "receiveWithAuthorization", args(a, signature)), "ok");
    t.equal(await read("balanceOf", [payee.address]), a.value);
  });

  t.test(`cancelAuthorization ${form} cancels an unused authorization`, async (t) => {
    const { chain, payer, other, authorize, sign, read, send } = await world(t);
    const a = authorize();
    const transfer = await sign(payer, "TransferWithAuthorization", { ...a });
    const cancel = { authorizer: a.from, nonce: a.nonce };
    const signature = await sign(payer, "CancelAuthorization", cancel);
    const cancelArgs = (by: Hex) =>
      form === "(bytes)" ? [a.from, a.nonce, by] : [a.from, a.nonce, ...split(by)];
    const forged = await sign(other, "CancelAuthorization", cancel);
    t.equal(
      await send(other, "cancelAuthorization", cancelArgs(forged)),
      "FiatTokenV2: invalid signature",
    );
    t.equal(await send(other, "cancelAuthorization", cancelArgs(signature)), "ok");
    t.equal(
      await send(other, "transferWithAuthorization", args(a, transfer)),
      "FiatTokenV2: authorization is used or canceled",
    );
    t.equal(
      await send(other, "cancelAuthorization", cancelArgs(signature)),
      "FiatTokenV2: authorization is used or canceled",
    );
    t.equal(await read("balanceOf", [payer.address]), 100_000_000n);
    const [log] = await chain.publicClient.getContractEvents({
      address: chain.usdc,
      abi: usdcAbi,
      eventName: "AuthorizationCanceled",
      fromBlock: 0n,
    });
    t.equal(log?.topics.length, 3);
  });
}

t.test("times, balances and signatures are refused with real USDC's messages", async (t) => {
  const { chain, payer, other, authorize, sign, send } = await world(t);
  const now = (await chain.publicClient.getBlock()).timestamp;
  const attempt = async (
    changes: Partial<Authorization>,
    mangle: (signature: Hex) => Hex = (signature) => signature,
    by = payer,
  ): Promise<string> => {
    const a = authorize(changes);
    const signature = mangle(await sign(by, "TransferWithAuthorization", { ...a }));
    return send(other, "transferWithAuthorization", packed(a, signature));
  };
  t.equal(await attempt({ validBefore: now }), "FiatTokenV2: authorization is expired");
  t.equal(
    await attempt({ validAfter: now + 1_000n }),
    "FiatTokenV2: authorization is not yet valid",
  );
  t.equal(
    await attempt({ validAfter: 1n << 47n, validBefore: (1n << 47n) | FAR }),
    "FiatTokenV2: authorization is not yet valid",
    "large values are ordinary timestamps",
  );
  t.equal(await attempt({ value: 100_000_001n }), "ERC20: transfer amount exceeds balance");
  t.equal(await attempt({ value: 2n ** 256n - 1n }), "ERC20: transfer amount exceeds balance");
  t.equal(
    await attempt({ to: "0x0000000000000000000000000000000000000000" }),
    "ERC20: transfer to the zero address",
  );
  t.equal(await attempt({}, undefined, other), "FiatTokenV2: invalid signature");
  t.equal(
    await attempt({}, (signature) => signature.slice(0, -2) as Hex),
    "ECRecover: invalid signature length",
  );
  t.equal(
    await attempt({}, (signature) => `${signature.slice(0, -2)}1d` as Hex),
    "ECRecover: invalid signature 'v' value",
  );
  t.equal(
    await attempt({}, (signature) => `${signature.slice(0, -2)}00` as Hex),
    "ECRecover: invalid signature 'v' value",
    "v of 0 or 1 is refused as well",
  );
  t.equal(
    await attempt({}, highS),
    "ECRecover: invalid signature 's' value",
    "the same signature with its other s",
  );
  t.equal(await attempt({}, () => `0x${"00".repeat(64)}1b`), "ECRecover: invalid signature");
});

function highS(signature: Hex): Hex {
  const { r, s, yParity } = parseSignature(signature);
  const other = toHex(CURVE_ORDER - BigInt(s), { size: 32 });
  return `${r}${other.slice(2)}${yParity === 0 ? "1c" : "1b"}`;
}

t.test("the changed high-s signature is one that ecrecover itself would accept", async (t) => {
  const { payer, chain, authorize, sign } = await world(t);
  const message = authorize();
  const signature = await sign(payer, "TransferWithAuthorization", { ...message });
  const hash = hashTypedData({
    domain: { name: "USDC", version: "2", chainId: chain.chainId, verifyingContract: chain.usdc },
    types: TYPES,
    primaryType: "TransferWithAuthorization",
    message,
  });
  const recovered = await recoverAddress({ hash, signature: highS(signature) }).catch(() => null);
  t.ok(
    recovered === payer.address || recovered === null,
    "otherwise the test above would prove nothing",
  );
});

t.test("a blocked account and a paused token move nothing", async (t) => {
  const { chain, payer, payee, other, authorize, sign, read, send } = await world(t);
  const a = authorize();
  const signature = await sign(payer, "TransferWithAuthorization", { ...a });
  const pay = () => send(other, "transferWithAuthorization", packed(a, signature));
  const blocked = "Blacklistable: account is blacklisted";

  t.equal(
    await send(other, "blacklist", [payer.address]),
    "Blacklistable: caller is not the blacklister",
  );
  for (const account of [payer, payee]) {
    t.equal(await send(chain.admin, "blacklist", [account.address]), "ok");
    t.equal(await read("isBlacklisted", [account.address]), true);
    t.equal(await pay(), blocked);
    t.equal(await send(chain.admin, "unBlacklist", [account.address]), "ok");
  }
  t.equal(await read("balanceOf", [payer.address]), 100_000_000n, "the balance is unchanged");

  t.equal(await send(other, "pause", []), "Pausable: caller is not the pauser");
  t.equal(await send(chain.admin, "pause", []), "ok");
  t.equal(await pay(), "Pausable: paused");
  t.equal(await send(payer, "transfer", [payee.address, 1n]), "Pausable: paused");
  t.equal(await send(chain.admin, "mint", [payee.address, 1n]), "Pausable: paused");
  t.equal(await send(chain.admin, "unpause", []), "ok");
  t.equal(await pay(), "ok");
});

t.test("only the faucet's key mints, and the plain ERC-20 functions work", async (t) => {
  const { chain, payer, payee, other, sign, read, send } = await world(t);
  t.equal(await send(other, "mint", [other.address, 1n]), "FiatToken: caller is not a minter");
  t.equal(await send(chain.admin, "mint", [payee.address, 7n]), "ok");
  t.equal(await read("totalSupply"), 7n);
  t.equal(await send(payer, "transfer", [payee.address, 3n]), "ok");
  t.equal(
    await send(other, "transferFrom", [payer.address, payee.address, 1n]),
    "ERC20: transfer amount exceeds allowance",
  );
  t.equal(await send(payer, "approve", [other.address, 5n]), "ok");
  t.equal(await send(other, "transferFrom", [payer.address, payee.address, 2n]), "ok");
  t.equal(await read("allowance", [payer.address, other.address]), 3n);
  t.equal(await read("balanceOf", [payee.address]), 12n);

  const permit = {
    owner: payer.address,
    spender: other.address,
    value: 9n,
    nonce: 0n,
    deadline: FAR,
  };
  const signature = await sign(payer, "Permit", permit);
  const args = [permit.owner, permit.spender, permit.value, permit.deadline];
  t.equal(await send(other, "permit", [...args, ...split(signature)]), "ok");
  t.equal(await read("allowance", [payer.address, other.address]), 9n);
  t.equal(
    await send(other, "permit", [...args, signature]),
    "EIP2612: invalid signature",
    "its nonce is used",
  );
});

t.test("a smart wallet pays by ERC-1271, and a hostile one does not", async (t) => {
  const { chain, payer: owner, other, payee, authorize, sign, read, send } = await world(t);
  const wallets = chain.walletClient(other);
  const deployed = await chain.publicClient.waitForTransactionReceipt({
    hash: await wallets.deployContract({ ...factoryArtifact, args: [] }),
  });
  const factory = deployed.contractAddress;
  if (!factory) throw new Error("no factory");
  const create = async (mode: number): Promise<Address> => {
    const args = [owner.address, mode, toHex(mode, { size: 32 })];
    const call = { address: factory, abi: factoryArtifact.abi, args };
    const hash = await wallets.writeContract({ ...call, functionName: "create" });
    await chain.publicClient.waitForTransactionReceipt({ hash });
    const address = await chain.publicClient.readContract({ ...call, functionName: "addressOf" });
    return address as Address;
  };
  const signedBy = async (from: Address): Promise<unknown[]> => {
    await chain.mint(from, 10_000_000n);
    const a = authorize({ from });
    return packed(a, await sign(owner, "TransferWithAuthorization", { ...a }));
  };
  const payFrom = async (mode: number): Promise<string> =>
    send(other, "transferWithAuthorization", await signedBy(await create(mode)));
  const [honest, wrongValue, reverts, burnsAllGas, expensive, twoFaced, anything] = [
    0, 1, 2, 3, 4, 5, 6,
  ] as const;
  t.equal(await payFrom(honest), "ok");
  t.equal(await payFrom(expensive), "ok");
  t.equal(await payFrom(anything), "ok");
  t.equal(await payFrom(wrongValue), "FiatTokenV2: invalid signature");
  t.equal(await payFrom(reverts), "FiatTokenV2: invalid signature");
  t.equal(await read("balanceOf", [payee.address]), 4_500_000n);

  const transfer = async (mode: number) => ({
    to: chain.usdc,
    data: encodeFunctionData({
      abi: usdcAbi,
      functionName: "transferWithAuthorization",
      args: await signedBy(await create(mode)),
    }),
    gas: 400_000n,
  });
  await t.rejects(
    chain.publicClient.call(await transfer(burnsAllGas)),
    "no result within the gas limit",
  );
  const call = await transfer(twoFaced);
  await chain.publicClient.call(call); // The simulation without a gas price passes,
  const sent = await chain.publicClient.waitForTransactionReceipt({
    hash: await wallets.sendTransaction(call),
  });
  t.equal(sent.status, "reverted", "but the transaction with one reverts");
});
