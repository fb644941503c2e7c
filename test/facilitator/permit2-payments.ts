// Permit2 payments like those of stock clients, and a few hundred false or garbage ones.
import {
  encodeFunctionData,
  maxUint256,
  numberToHex,
  parseSignature,
  serializeCompactSignature,
  signatureToCompactSignature,
  type Address,
  type Hex,
} from "viem";
import { generatePrivateKey, privateKeyToAccount, type PrivateKeyAccount } from "viem/accounts";
import type { TestChain } from "../helpers/chain.ts";
import {
  approvePermit2,
  ERC20_ABI,
  EXACT_PROXY,
  exactSettleData,
  PERMIT2,
  permit2Message,
  signPermit2,
  UPTO_PROXY,
  type Permit2Message,
} from "../helpers/permit2.ts";
import { change, GARBAGE, type Bent } from "./bent-payments.ts";
import type { Body } from "./payments.ts";
import { deployWallet, MODES } from "./wallets.ts";

interface Permit2PaymentOptions {
  chain: TestChain;
  payer: PrivateKeyAccount;
  payTo: Address;
  amount?: bigint;
  /** If set, the scheme is `upto`, to be settled by this account. */
  facilitator?: Address;
  /** The signed values, where they differ from the requirements. */
  signed?: Partial<Permit2Message>;
  signer?: PrivateKeyAccount;
  network?: string;
  signedChainId?: number;
  extensions?: Record<string, unknown>;
}

/** A version 2 body for verify and settle. */
export async function permit2Payment(options: Permit2PaymentOptions): Promise<Body> {
  const { chain, payer, payTo, amount = 1_000n, facilitator, signed, extensions } = options;
  const message = permit2Message(chain, payer.address, {
    to: payTo,
    amount,
    ...(facilitator && { facilitator }),
    ...signed,
  });
  const signature = await signPermit2(
    { chainId: options.signedChainId ?? chain.chainId },
    options.signer ?? payer,
    message,
  );
  const paymentRequirements = {
    scheme: facilitator ? "upto" : "exact",
    network: options.network ?? `eip155:${chain.chainId}`,
    asset: chain.usdc,
    amount: amount.toString(),
    payTo,
    maxTimeoutSeconds: 60,
    extra: {
      name: "USDC",
      version: "2",
      assetTransferMethod: "permit2",
      ...(facilitator && { facilitatorAddress: facilitator }),
    },
  };
  const { from, permitted, spender, nonce, deadline, witness } = message;
  return {
    x402Version: 2,
    paymentPayload: {
      x402Version: 2,
      resource: { url: "http://localhost/paid" },
      accepted: paymentRequirements,
      payload: {
        signature,
        permit2Authorization: {
          from,
          permitted: { token: permitted.token, amount: permitted.amount.toString() },
          spender,
          nonce: nonce.toString(),
          deadline: deadline.toString(),
          witness: { ...witness, validAfter: witness.validAfter.toString() },
        },
      },
      ...(extensions && { extensions }),
    },
    paymentRequirements,
  };
}

/** The token's EIP-2612 permit for Permit2, as the payer's part of the extension. */
export async function sponsoring(
  chain: TestChain,
  payer: PrivateKeyAccount,
  given: { amount?: bigint; deadline?: bigint; nonce?: bigint; spender?: Address } = {},
): Promise<Record<string, unknown>> {
  const nonce = await chain.publicClient.readContract({
    address: chain.usdc,
    abi: ERC20_ABI,
    functionName: "nonces",
    args: [payer.address],
  });
  const message = {
    owner: payer.address,
    spender: given.spender ?? PERMIT2,
    value: given.amount ?? 1_000n,
    nonce: given.nonce ?? nonce,
    deadline: given.deadline ?? BigInt(now() + 600),
  };
  const signature = await payer.signTypedData({
    domain: { name: "USDC", version: "2", chainId: chain.chainId, verifyingContract: chain.usdc },
    types: {
      Permit: [
        { name: "owner", type: "address" },
        { name: "spender", type: "address" },
        { name: "value", type: "uint256" },
        { name: "nonce", type: "uint256" },
        { name: "deadline", type: "uint256" },
      ],
    },
    primaryType: "Permit",
    message,
  });
  const info = {
    from: payer.address,
    asset: chain.usdc,
    spender: message.spender,
    amount: message.value.toString(),
    nonce: message.nonce.toString(),
    deadline: message.deadline.toString(),
    signature,
    version: "1",
  };
  return { eip2612GasSponsoring: { info } };
}

export interface ApprovalOptions {
  to?: Address;
  data?: Hex;
  value?: bigint;
  nonce?: number;
  gas?: bigint;
  maxFeePerGas?: bigint;
  maxPriorityFeePerGas?: bigint;
  chainId?: number;
  signer?: PrivateKeyAccount;
  type?: "eip1559" | "legacy";
}

export const approveData = (spender: Address = PERMIT2, amount = maxUint256): Hex =>
  encodeFunctionData({ abi: ERC20_ABI, functionName: "approve", args: [spender, amount] });

/** The payer's own approval as a signed transaction that is not sent, with any field changed on request. */
export async function approvalBy(
  chain: TestChain,
  payer: PrivateKeyAccount,
  { signer = payer, type = "eip1559", ...given }: ApprovalOptions = {},
): Promise<{ erc20ApprovalGasSponsoring: { info: Record<string, unknown> } }> {
  const nonce = await chain.publicClient.getTransactionCount({ address: payer.address });
  const tip = given.maxPriorityFeePerGas ?? 10n ** 9n;
  const maxFeePerGas = given.maxFeePerGas ?? 10n ** 10n;
  const signedTransaction = await signer.signTransaction({
    to: given.to ?? chain.usdc,
    data: given.data ?? approveData(),
    value: given.value ?? 0n,
    nonce: given.nonce ?? nonce,
    gas: given.gas ?? 70_000n,
    chainId: given.chainId ?? chain.chainId,
    ...(type === "legacy"
      ? { type, gasPrice: maxFeePerGas }
      : { type, maxFeePerGas, maxPriorityFeePerGas: tip < maxFeePerGas ? tip : maxFeePerGas }),
  });
  const info = {
    from: payer.address,
    asset: chain.usdc,
    spender: PERMIT2,
    amount: maxUint256.toString(),
    signedTransaction,
    version: "1",
  };
  return { erc20ApprovalGasSponsoring: { info } };
}

const now = (): number => Math.floor(Date.now() / 1000);
const SIGNED = "paymentPayload.payload.permit2Authorization";
const SIGNATURE = "paymentPayload.payload.signature";
const SPONSORING = "paymentPayload.extensions.eip2612GasSponsoring";
const ORDER = 0xfffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141n;
const PATHS = [
  "paymentRequirements.scheme",
  "paymentRequirements.network",
  "paymentRequirements.asset",
  "paymentRequirements.amount",
  "paymentRequirements.payTo",
  "paymentRequirements.extra",
  "paymentPayload.accepted.scheme",
  "paymentPayload.accepted.network",
  SIGNATURE,
  SIGNED,
  `${SIGNED}.from`,
  `${SIGNED}.permitted`,
  `${SIGNED}.permitted.token`,
  `${SIGNED}.permitted.amount`,
  `${SIGNED}.spender`,
  `${SIGNED}.nonce`,
  `${SIGNED}.deadline`,
  `${SIGNED}.witness`,
  `${SIGNED}.witness.to`,
  `${SIGNED}.witness.validAfter`,
];
const SPONSORED = ["from", "asset", "spender", "amount", "nonce", "deadline", "signature"];

type Make = (change?: Partial<Permit2PaymentOptions>) => Promise<Body>;

export async function bentPermit2Payments(
  chain: TestChain,
  facilitator?: Address,
): Promise<Bent[]> {
  const payer = privateKeyToAccount(generatePrivateKey());
  const fresh = privateKeyToAccount(generatePrivateKey());
  const poor = privateKeyToAccount(generatePrivateKey());
  const other = privateKeyToAccount(generatePrivateKey());
  const coinless = privateKeyToAccount(generatePrivateKey());
  await chain.mint([payer.address, fresh.address], 1_000_000_000n);
  await approvePermit2(chain, [payer, poor]);
  const payTo = privateKeyToAccount(generatePrivateKey()).address;
  const proxy = facilitator ? UPTO_PROXY : EXACT_PROXY;
  const make: Make = (more = {}) =>
    permit2Payment({ chain, payer, payTo, ...(facilitator && { facilitator }), ...more });
  const bent: Bent[] = [];
  const add = async (name: string, body: Promise<Body> | Body): Promise<void> =>
    void bent.push({ name, body: await body });
  const bend = async (name: string, path: string, value: unknown): Promise<void> =>
    add(name, change(await make(), path, value));

  for (const amount of [1n, 999n, 1_000n, 123_456n, 1_000_000_000n])
    await add(`good ${amount}`, make({ amount }));
  await bend("good, recipient in lower case", "paymentRequirements.payTo", payTo.toLowerCase());
  await bend("good, says nothing of the method", "paymentRequirements.extra", { name: "USDC" });
  // On the chain's clock: its newest block may be seconds old.
  const { timestamp } = await chain.publicClient.getBlock();
  await add("good, valid just now", make({ signed: witness({ validAfter: timestamp - 1n }) }));
  await add("zero amount", make({ amount: 0n }));
  await add("pays itself", make({ payTo: payer.address }));
  await add("endless deadline", make({ signed: { deadline: 2n ** 256n - 1n } }));
  await add("greatest nonce", make({ signed: { nonce: 2n ** 256n - 1n } }));

  function witness(part: { to?: Address; validAfter?: bigint; facilitator?: Address }) {
    return { witness: { to: payTo, validAfter: 0n, ...(facilitator && { facilitator }), ...part } };
  }
  const permitted = (amount: bigint, token: Address = chain.usdc) => ({
    permitted: { token, amount },
  });
  const falsePayments: [string, Partial<Permit2PaymentOptions>][] = [
    ["another signer", { signer: other }],
    ["another from", { signed: { from: other.address } }],
    ["another recipient", { signed: witness({ to: other.address }) }],
    ["less than required", { signed: permitted(999n) }],
    ["more than required", { signed: permitted(1_001n) }],
    ["another token", { signed: permitted(1_000n, other.address) }],
    ["for another spender", { signed: { spender: other.address } }],
    ["for Permit2 itself", { signed: { spender: PERMIT2 } }],
    ["for the other proxy", { signed: { spender: facilitator ? EXACT_PROXY : UPTO_PROXY } }],
    ["expired long ago", { signed: { deadline: 1_000n } }],
    ["expired now", { signed: { deadline: BigInt(now()) } }],
    ["expires in 5 s", { signed: { deadline: BigInt(now() + 5) } }],
    ["valid later", { signed: witness({ validAfter: BigInt(now() + 1_000) }) }],
    ["signed for another chain", { signedChainId: 8453 }],
    ["another network", { network: "eip155:1" }],
    ["no balance", { payer: poor }],
    ["more than the balance", { amount: 1_000_000_001n }],
    ["no allowance", { payer: fresh }],
    ["no allowance, no balance", { payer: other }],
    ["another spender and expired", { signed: { spender: other.address, deadline: 5n } }],
    ["expired and less than required", { signed: { deadline: 5n, ...permitted(9n) } }],
    ["less than required, another signer", { signer: other, signed: permitted(9n) }],
    ...(facilitator
      ? ([
          ["for another facilitator", { signed: witness({ facilitator: other.address }) }],
          [
            "for another facilitator and recipient",
            { signed: witness({ facilitator: other.address, to: other.address }) },
          ],
          [
            "for another facilitator, expired",
            { signed: { ...witness({ facilitator: other.address }), deadline: 5n } },
          ],
        ] as [string, Partial<Permit2PaymentOptions>][])
      : []),
  ];
  for (const [name, options] of falsePayments) await add(name, make(options));
  await bend("accepted another network", "paymentPayload.accepted.network", "eip155:1");
  await bend("accepted another scheme", "paymentPayload.accepted.scheme", "batch-settlement");
  await bend("accepted another amount", "paymentPayload.accepted.amount", "1");
  await bend("accepted another payTo", "paymentPayload.accepted.payTo", other.address);
  await bend("accepted another asset", "paymentPayload.accepted.asset", other.address);
  await bend("no code at the asset", "paymentRequirements.asset", other.address);

  const used = await make();
  const { permit2Authorization, signature } = used.paymentPayload["payload"] as {
    permit2Authorization: Record<string, string>;
    signature: Hex;
  };
  if (!facilitator) {
    const message = permit2Message(chain, payer.address, {
      to: payTo,
      nonce: BigInt(permit2Authorization["nonce"] ?? 0),
      deadline: BigInt(permit2Authorization["deadline"] ?? 0),
    });
    const hash = await chain
      .walletClient(chain.admin)
      .sendTransaction({ to: proxy, data: exactSettleData(message, signature) });
    await chain.publicClient.waitForTransactionReceipt({ hash });
    await add("used", used);
    await add("used nonce, other terms", make({ amount: 5n, signed: { nonce: message.nonce } }));
    await add(
      "used nonce, no balance",
      make({ amount: 1_000_000_001n, signed: { nonce: message.nonce } }),
    );
  }

  const resign = async (name: string, bendIt: (signature: Hex) => string): Promise<void> => {
    const body = await make();
    const { signature } = body.paymentPayload["payload"] as { signature: Hex };
    await add(name, change(body, SIGNATURE, bendIt(signature)));
  };
  await resign("compact signature", (hex) =>
    serializeCompactSignature(signatureToCompactSignature(parseSignature(hex))),
  );
  await resign("v as 0 or 1", (hex) => `${hex.slice(0, 130)}0${hex.endsWith("1c") ? 1 : 0}`);
  await resign("v wrong", (hex) => `${hex.slice(0, 130)}${hex.endsWith("1c") ? "1b" : "1c"}`);
  await resign("v 29", (hex) => `${hex.slice(0, 130)}1d`);
  await resign("high s", (hex) => {
    const s = ORDER - BigInt(`0x${hex.slice(66, 130)}`);
    return `${hex.slice(0, 66)}${numberToHex(s, { size: 32 }).slice(2)}${hex.endsWith("1c") ? "1b" : "1c"}`;
  });
  await resign("r zero", (hex) => `0x${"0".repeat(64)}${hex.slice(66)}`);
  await resign("65 zero bytes", () => `0x${"00".repeat(65)}`);
  await resign("too long", (hex) => `${hex}00`);
  await resign("ERC-6492 ending only", (hex) => `${hex}${"6492".repeat(16)}`);

  const owner = privateKeyToAccount(generatePrivateKey());
  for (const mode of MODES) {
    const wallet = await deployWallet(chain, owner.address, mode);
    await chain.mint(wallet, 1_000_000n);
    await add(`wallet ${mode}`, make({ signed: { from: wallet }, signer: owner }));
    await add(`wallet ${mode}, another signer`, make({ signed: { from: wallet } }));
  }

  const sponsored = async (
    name: string,
    given: Parameters<typeof sponsoring>[2],
    more: Partial<Permit2PaymentOptions> = {},
  ): Promise<void> =>
    add(
      `sponsored, ${name}`,
      make({ payer: fresh, extensions: await sponsoring(chain, fresh, given), ...more }),
    );
  await sponsored("good", {});
  await sponsored("good, a payer with an allowance", {}, { payer });
  await sponsored("less than required", { amount: 999n });
  await sponsored("more than required", { amount: 10_000n });
  await sponsored("another spender", { spender: other.address });
  await sponsored("expired", { deadline: 1_000n });
  await sponsored("expires in 5 s", { deadline: BigInt(now() + 5) });
  await sponsored("a nonce to come", { nonce: 7n });
  await sponsored("no balance", {}, { payer: other });
  const good = await make({ payer: fresh, extensions: await sponsoring(chain, fresh) });
  for (const name of SPONSORED)
    for (const value of ["", "abc", "0x", "-1", `0x${"ab".repeat(20)}`, null, 7, "7"])
      await add(
        `sponsored, ${name} = ${JSON.stringify(value)}`,
        change(good, `${SPONSORING}.info.${name}`, value),
      );
  await add("sponsored, version = x", change(good, `${SPONSORING}.info.version`, "x"));
  await add("sponsored, no info", change(good, SPONSORING, { schema: {} }));
  await add("sponsored, what the server announced", change(good, SPONSORING, ANNOUNCED));

  await chain.testClient.setBalance({ address: fresh.address, value: 10n ** 19n });
  const approved = async (name: string, given: ApprovalOptions): Promise<void> =>
    add(
      `approved, ${name}`,
      make({ payer: fresh, extensions: await approvalBy(chain, fresh, given) }),
    );
  await approved("good", {});
  await approved("good, of the old kind", { type: "legacy" });
  await approved("good, just enough", { data: approveData(PERMIT2, 1_000n) });
  await approved("another contract", { to: other.address });
  await approved("another spender", { data: approveData(other.address) });
  await approved("nothing called", { data: "0x" });
  await approved("half a call", { data: approveData().slice(0, 80) as Hex });
  await approved("another signer", { signer: other });
  await approved("value", { value: 1n });
  await approved("another chain", { chainId: 8453 });
  await approved("less than required", { data: approveData(PERMIT2, 999n) });
  await approved("a tail", { data: `${approveData()}00` });
  await approved("gas of a block", { gas: 25_000_000n });
  await approved("too little gas", { gas: 30_000n });
  await approved("a nonce to come", { nonce: 7 });
  await approved("gas too cheap", { maxFeePerGas: 1n });
  await chain.mint(coinless.address, 1_000_000n);
  await add(
    "approved, no coins",
    make({ payer: coinless, extensions: await approvalBy(chain, coinless) }),
  );
  await add(
    "approved, good, a payer with an allowance",
    make({ extensions: await approvalBy(chain, payer) }),
  );
  await add(
    "approved, no balance",
    make({ payer: other, extensions: await approvalBy(chain, other) }),
  );
  const ready = await make({ payer: fresh, extensions: await approvalBy(chain, fresh) });
  for (const name of ["from", "asset", "spender", "amount", "signedTransaction", "version"])
    for (const value of ["", "abc", "0x", "0x02", `0x${"ab".repeat(20)}`, null, 7])
      await add(
        `approved, ${name} = ${JSON.stringify(value)}`,
        change(ready, `paymentPayload.extensions.erc20ApprovalGasSponsoring.info.${name}`, value),
      );

  for (const path of PATHS)
    for (const value of GARBAGE)
      await bend(`${path} = ${JSON.stringify(value) ?? "absent"}`.slice(0, 100), path, value);
  return bent;
}

const ANNOUNCED = { info: { description: "a facilitator", version: "1" }, schema: {} };
