// Payments of outside payers: what they sign, what a seller presents, and what anybody can send to the chain.
import {
  encodeFunctionData,
  maxUint256,
  parseAbi,
  parseSignature,
  type Address,
  type Hex,
} from "viem";
import { privateKeyToAccount, type PrivateKeyAccount } from "viem/accounts";
import {
  EXACT_PROXY,
  exactSettleData,
  PERMIT2,
  PERMIT2_ABI,
  signPermit2,
  UPTO_PROXY,
} from "../helpers/permit2.ts";
import { transferOf } from "../helpers/eip3009.ts";
import type { Random } from "../helpers/random.ts";
import { CHAIN_ID, RELAYERS, USDC, type World } from "./world.ts";

export type Scheme = "exact" | "exact-permit2" | "upto";

export const TOKEN_ABI = parseAbi([
  "function transfer(address to, uint256 value) returns (bool)",
  "function approve(address spender, uint256 value) returns (bool)",
  "function transferWithAuthorization(address from, address to, uint256 value, uint256 validAfter, uint256 validBefore, bytes32 nonce, bytes signature)",
  "function cancelAuthorization(address authorizer, bytes32 nonce, uint8 v, bytes32 r, bytes32 s)",
]);
const CANCEL_TYPES = {
  CancelAuthorization: [
    { name: "authorizer", type: "address" },
    { name: "nonce", type: "bytes32" },
  ],
} as const;
const DOMAIN = { name: "USDC", version: "2", chainId: CHAIN_ID, verifyingContract: USDC } as const;
const NETWORK = `eip155:${CHAIN_ID}`;
const V1_NETWORK = "base-sepolia";

/** A transaction that anybody may send, or only `by`. */
export interface ChainCall {
  to: Address;
  data: Hex;
  by?: Address;
}

export interface SignedPayment {
  scheme: Scheme;
  payer: PrivateKeyAccount;
  /** Lower case. */
  from: Address;
  to: Address;
  /** What moves. */
  amountAtomic: bigint;
  /** As the engine stores it, and the chain reports it. */
  nonce: string;
  validBefore: bigint;
  /** The body of a verify and of a settle. */
  verifyBody: Record<string, unknown>;
  settleBody: Record<string, unknown>;
  /** Relays it without us. Undefined where only our relayer may. */
  relay: ChainCall | undefined;
}

const KEYS = 12;
let known: PrivateKeyAccount[] | undefined;
/** They have nothing until an actor gives it to them. */
export const outsiders = (): PrivateKeyAccount[] =>
  (known ??= Array.from({ length: KEYS }, (_, index) =>
    privateKeyToAccount(`0x${(0xbeef00 + index).toString(16).padStart(64, "0")}`),
  ));

export const addressOf = ({ address }: PrivateKeyAccount): Address =>
  address.toLowerCase() as Address;

export function randomHex(random: Random, bytes: number): Hex {
  const digits = Array.from({ length: bytes }, () =>
    random.int(0, 255).toString(16).padStart(2, "0"),
  );
  return `0x${digits.join("")}`;
}

/** Lets Permit2 take the payer's money. */
export const approvePermit2 = (world: World, payer: Address): void =>
  void world.chain.sendAs(payer, {
    to: USDC,
    data: encodeFunctionData({
      abi: TOKEN_ABI,
      functionName: "approve",
      args: [PERMIT2, maxUint256],
    }),
  });

export interface Wanted {
  scheme: Scheme;
  payer: PrivateKeyAccount;
  to: Address;
  amountAtomic: bigint;
  validSeconds: number;
  /** Another account's signature in the place of the payer's. */
  forger?: PrivateKeyAccount;
  /** The nonce of another payment. */
  nonce?: Hex;
  version?: 1 | 2;
}

export function signPayment(world: World, random: Random, wanted: Wanted): Promise<SignedPayment> {
  return wanted.scheme === "exact"
    ? signExact(world, random, wanted)
    : signOverPermit2(world, random, wanted);
}

const secondsOf = (world: World): number => Math.floor(world.timeline.nowMs / 1_000);

async function signExact(world: World, random: Random, wanted: Wanted): Promise<SignedPayment> {
  const { payer, to, amountAtomic, validSeconds, forger = payer, version = 2 } = wanted;
  const nonce = wanted.nonce ?? randomHex(random, 32);
  const validBefore = BigInt(secondsOf(world) + validSeconds);
  const authorization = {
    from: payer.address,
    to,
    value: String(amountAtomic),
    validAfter: "0",
    validBefore: String(validBefore),
    nonce,
  };
  const signature = await forger.signTypedData({ domain: DOMAIN, ...transferOf(authorization) });
  const body = bodyOf(version, { scheme: "exact", amountAtomic, to }, { signature, authorization });
  return {
    scheme: "exact",
    payer,
    from: addressOf(payer),
    to,
    amountAtomic,
    nonce,
    validBefore,
    verifyBody: body,
    settleBody: body,
    relay: { to: USDC, data: relayData(authorization, signature) },
  };
}

/** Calldata of the token's transfer, for anybody. */
export const relayData = (
  authorization: Record<"from" | "to" | "nonce", Hex> &
    Record<"value" | "validAfter" | "validBefore", string>,
  signature: Hex,
): Hex =>
  encodeFunctionData({
    abi: TOKEN_ABI,
    functionName: "transferWithAuthorization",
    args: [
      authorization.from,
      authorization.to,
      BigInt(authorization.value),
      BigInt(authorization.validAfter),
      BigInt(authorization.validBefore),
      authorization.nonce,
      signature,
    ],
  });

async function signOverPermit2(
  world: World,
  random: Random,
  wanted: Wanted,
): Promise<SignedPayment> {
  const { scheme, payer, to, amountAtomic, validSeconds, forger = payer } = wanted;
  const isUpto = scheme === "upto";
  const maximum = isUpto ? amountAtomic + BigInt(random.int(0, 50_000)) : amountAtomic;
  const nonce = BigInt(wanted.nonce ?? randomHex(random, 32));
  const deadline = BigInt(secondsOf(world) + validSeconds);
  const facilitator = isUpto ? random.pick([...RELAYERS].slice(0, world.lanes)) : undefined;
  const message = {
    from: payer.address,
    permitted: { token: USDC, amount: maximum },
    spender: isUpto ? UPTO_PROXY : EXACT_PROXY,
    nonce,
    deadline,
    witness: { to, validAfter: 0n, ...(facilitator && { facilitator }) },
  };
  const signature = await signPermit2({ chainId: CHAIN_ID }, forger, message);
  const permit2Authorization = {
    from: payer.address,
    permitted: { token: USDC, amount: String(maximum) },
    spender: message.spender,
    nonce: String(nonce),
    deadline: String(deadline),
    witness: { to, validAfter: "0", ...(facilitator && { facilitator }) },
  };
  const name = isUpto ? "upto" : "exact";
  const extra = {
    assetTransferMethod: "permit2",
    ...(facilitator && { facilitatorAddress: facilitator }),
  };
  const proof = { signature, permit2Authorization };
  return {
    scheme,
    payer,
    from: addressOf(payer),
    to,
    amountAtomic,
    nonce: `permit2:0x${nonce.toString(16).padStart(64, "0")}`,
    validBefore: deadline + 1n,
    verifyBody: bodyOf(2, { scheme: name, amountAtomic: maximum, to, extra }, proof),
    settleBody: bodyOf(2, { scheme: name, amountAtomic, maximum, to, extra }, proof),
    relay: isUpto ? undefined : { to: EXACT_PROXY, data: exactSettleData(message, signature) },
  };
}

function bodyOf(
  version: 1 | 2,
  terms: { scheme: string; amountAtomic: bigint; maximum?: bigint; to: Address; extra?: object },
  payload: object,
): Record<string, unknown> {
  const { scheme, amountAtomic, maximum = amountAtomic, to, extra } = terms;
  const required = (amount: bigint) => ({
    scheme,
    network: version === 2 ? NETWORK : V1_NETWORK,
    asset: USDC,
    [version === 2 ? "amount" : "maxAmountRequired"]: String(amount),
    payTo: to,
    maxTimeoutSeconds: 60,
    extra: { name: "USDC", version: "2", ...extra },
  });
  const paymentPayload =
    version === 2
      ? { x402Version: 2, accepted: required(maximum), payload }
      : { x402Version: 1, scheme, network: V1_NETWORK, payload };
  return { x402Version: version, paymentPayload, paymentRequirements: required(amountAtomic) };
}

/** The payer takes its authorization back. */
export async function cancelCall({ payer, nonce }: SignedPayment): Promise<ChainCall> {
  if (!nonce.startsWith("permit2:")) {
    const message = { authorizer: payer.address, nonce: nonce as Hex };
    const signed = {
      domain: DOMAIN,
      types: CANCEL_TYPES,
      primaryType: "CancelAuthorization",
      message,
    } as const;
    const { r, s, yParity } = parseSignature(await payer.signTypedData(signed));
    const args = [payer.address, message.nonce, 27 + yParity, r, s] as const;
    return {
      to: USDC,
      data: encodeFunctionData({ abi: TOKEN_ABI, functionName: "cancelAuthorization", args }),
    };
  }
  const number = BigInt(nonce.slice("permit2:".length));
  const args = [number >> 8n, 1n << (number & 255n)] as const;
  const data = encodeFunctionData({
    abi: PERMIT2_ABI,
    functionName: "invalidateUnorderedNonces",
    args,
  });
  return { to: PERMIT2, data, by: addressOf(payer) };
}

export const transferCall = (to: Address, atomic: bigint): ChainCall => ({
  to: USDC,
  data: encodeFunctionData({ abi: TOKEN_ABI, functionName: "transfer", args: [to, atomic] }),
});
