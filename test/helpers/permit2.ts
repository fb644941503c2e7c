// Permit2 payments as the published client signs them: for the chain, the engine and the facilitator.
import { randomBytes } from "node:crypto";
import {
  PERMIT2_ADDRESS,
  permit2WitnessTypes,
  uptoPermit2WitnessTypes,
  x402ExactPermit2ProxyABI,
  x402ExactPermit2ProxyAddress,
  x402UptoPermit2ProxyAddress,
} from "@x402/evm";
import { encodeFunctionData, maxUint256, parseAbi, toHex, type Address, type Hex } from "viem";
import type { SignedAuthorization } from "../../server/core/authorization.ts";
import type { PrivateKeyAccount } from "viem/accounts";
import type { TestChain } from "./chain.ts";

export const EXACT_PROXY = x402ExactPermit2ProxyAddress;
export const UPTO_PROXY = x402UptoPermit2ProxyAddress;
export const PERMIT2 = PERMIT2_ADDRESS;

export const ERC20_ABI = parseAbi([
  "function approve(address spender, uint256 value) returns (bool)",
  "function allowance(address owner, address spender) view returns (uint256)",
  "function balanceOf(address account) view returns (uint256)",
  "function nonces(address owner) view returns (uint256)",
]);
export const PERMIT2_ABI = parseAbi([
  "function nonceBitmap(address owner, uint256 word) view returns (uint256)",
  "function invalidateUnorderedNonces(uint256 word, uint256 mask)",
  "function DOMAIN_SEPARATOR() view returns (bytes32)",
  "struct TokenPermissions { address token; uint256 amount; }",
  "struct PermitTransferFrom { TokenPermissions permitted; uint256 nonce; uint256 deadline; }",
  "struct SignatureTransferDetails { address to; uint256 requestedAmount; }",
  "function permitWitnessTransferFrom(PermitTransferFrom permit, SignatureTransferDetails transferDetails, address owner, bytes32 witness, string witnessTypeString, bytes signature)",
  "event UnorderedNonceInvalidation(address indexed owner, uint256 word, uint256 mask)",
  "error InvalidAmount(uint256 maxAmount)",
  "error InvalidContractSignature()",
  "error InvalidNonce()",
  "error InvalidSignature()",
  "error InvalidSignatureLength()",
  "error InvalidSigner()",
  "error SignatureExpired(uint256 signatureDeadline)",
]);

/** Signed by the payer: the digest contains every field except `from`. */
export interface Permit2Message {
  from: Address;
  permitted: { token: Address; amount: bigint };
  spender: Address;
  nonce: bigint;
  deadline: bigint;
  witness: { to: Address; validAfter: bigint; facilitator?: Address };
}

export const permit2Message = (
  chain: Pick<TestChain, "usdc">,
  payer: Address,
  given: { to: Address; amount?: bigint; facilitator?: Address } & Partial<Permit2Message>,
): Permit2Message => {
  const { to, amount = 1_000n, facilitator, ...rest } = given;
  return {
    from: payer,
    permitted: { token: chain.usdc, amount },
    spender: facilitator ? UPTO_PROXY : EXACT_PROXY,
    nonce: BigInt(toHex(randomBytes(32))),
    deadline: BigInt(Math.floor(Date.now() / 1_000) + 600),
    witness: { to, validAfter: 0n, ...(facilitator && { facilitator }) },
    ...rest,
  };
};

export function signPermit2(
  chain: Pick<TestChain, "chainId">,
  payer: PrivateKeyAccount,
  { permitted, spender, nonce, deadline, witness }: Permit2Message,
): Promise<Hex> {
  const domain = { name: "Permit2", chainId: chain.chainId, verifyingContract: PERMIT2 };
  const message = { permitted, spender, nonce, deadline, witness };
  const { facilitator } = witness;
  return facilitator === undefined
    ? payer.signTypedData({
        domain,
        types: permit2WitnessTypes,
        primaryType: "PermitWitnessTransferFrom",
        message,
      })
    : payer.signTypedData({
        domain,
        types: uptoPermit2WitnessTypes,
        primaryType: "PermitWitnessTransferFrom",
        message: { ...message, witness: { ...witness, facilitator } },
      });
}

/** Gives each payer native balance and sends its approval, which is needed once. */
export async function approvePermit2(
  chain: TestChain,
  payers: readonly PrivateKeyAccount[],
  value = maxUint256,
): Promise<void> {
  await Promise.all(
    payers.map(async (payer) => {
      await chain.testClient.setBalance({ address: payer.address, value: 10n ** 18n });
      const hash = await chain.walletClient(payer).writeContract({
        address: chain.usdc,
        abi: ERC20_ABI,
        functionName: "approve",
        args: [PERMIT2, value],
      });
      await chain.publicClient.waitForTransactionReceipt({ hash });
    }),
  );
}

export const isNonceUsed = async (
  chain: TestChain,
  owner: Address,
  nonce: bigint,
): Promise<boolean> => {
  const word = await chain.publicClient.readContract({
    address: PERMIT2,
    abi: PERMIT2_ABI,
    functionName: "nonceBitmap",
    args: [owner, nonce >> 8n],
  });
  return ((word >> (nonce & 255n)) & 1n) === 1n;
};

/** A signed Permit2 payment in the engine's format. */
export async function authorizePermit2(
  chain: Pick<TestChain, "chainId" | "usdc">,
  payer: PrivateKeyAccount,
  { charged, ...given }: Parameters<typeof permit2Message>[2] & { charged?: bigint },
): Promise<SignedAuthorization & { message: Permit2Message }> {
  const message = permit2Message(chain, payer.address, given);
  return {
    chainId: chain.chainId,
    asset: message.permitted.token,
    from: payer.address,
    to: message.witness.to,
    value: charged ?? message.permitted.amount,
    validAfter: message.witness.validAfter,
    validBefore: message.deadline + 1n,
    nonce: `permit2:${toHex(message.nonce, { size: 32 })}`,
    terms:
      given.facilitator === undefined
        ? { scheme: "exact-permit2" }
        : {
            scheme: "upto",
            maximum: message.permitted.amount.toString(),
            facilitator: given.facilitator.toLowerCase() as Address,
          },
    signature: await signPermit2(chain, payer, message),
    message,
  };
}

/** Calldata of the settle call, which anyone may send. */
export const exactSettleData = (
  { from, permitted, nonce, deadline, witness }: Permit2Message,
  signature: Hex,
): Hex =>
  encodeFunctionData({
    abi: x402ExactPermit2ProxyABI,
    functionName: "settle",
    args: [
      { permitted, nonce, deadline },
      from,
      { to: witness.to, validAfter: witness.validAfter },
      signature,
    ],
  });
