// Signs thousands of payments quickly, before a benchmark starts.
import { randomBytes } from "node:crypto";
import secp256k1 from "secp256k1";
import type { Address } from "viem";
import { privateKeyToAddress } from "viem/accounts";
import { transferDigest } from "../../server/schemes/exact-eip3009/onchain.ts";
import type { TestChain } from "../helpers/chain.ts";

interface Payer {
  privateKey: Buffer;
  address: Address;
}

export function makePayers(count: number): Payer[] {
  return Array.from({ length: count }, () => {
    const privateKey = randomBytes(32);
    return { privateKey, address: privateKeyToAddress(`0x${privateKey.toString("hex")}`) };
  });
}

/** JSON bodies for verify and settle: one after the other for each payer, each with its own nonce. */
export function signedBodies(options: {
  chain: Pick<TestChain, "chainId" | "usdc">;
  payers: readonly Payer[];
  /** If there are several, they are paid in turn. */
  payTo: Address | readonly [Address, ...Address[]];
  count: number;
  amount?: string;
}): string[] {
  const { chain, payers, count, amount = "1000" } = options;
  const payees = typeof options.payTo === "string" ? [options.payTo] : options.payTo;
  const domain = {
    name: "USDC",
    version: "2",
    chainId: chain.chainId,
    verifyingContract: chain.usdc,
  };
  const validBefore = Math.floor(Date.now() / 1000) + 3_600;
  return Array.from({ length: count }, (_, index) => {
    const payer = payers[index % payers.length];
    const payTo = payees[index % payees.length];
    if (!payer || !payTo) throw new Error("no payers");
    const paymentRequirements = {
      scheme: "exact",
      network: `eip155:${chain.chainId}`,
      asset: chain.usdc,
      amount,
      payTo,
      maxTimeoutSeconds: 600,
      extra: { name: "USDC", version: "2" },
    };
    const nonce = `0x${randomBytes(32).toString("hex")}` as const;
    const digest = transferDigest(domain, {
      from: payer.address,
      to: payTo,
      value: BigInt(amount),
      validAfter: 0n,
      validBefore: BigInt(validBefore),
      nonce,
    });
    const { signature, recid } = secp256k1.ecdsaSign(digest, payer.privateKey);
    return JSON.stringify({
      x402Version: 2,
      paymentPayload: {
        x402Version: 2,
        resource: { url: "http://localhost/paid" },
        accepted: paymentRequirements,
        payload: {
          signature: `0x${Buffer.from(signature).toString("hex")}${(27 + recid).toString(16)}`,
          authorization: {
            from: payer.address,
            to: payTo,
            value: amount,
            validAfter: "0",
            validBefore: String(validBefore),
            nonce,
          },
        },
      },
      paymentRequirements,
    });
  });
}
