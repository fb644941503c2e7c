// Builds payments like stock clients, with any field changed on request.
import type { FastifyInstance } from "fastify";
import type { Address, Hex } from "viem";
import { generatePrivateKey, type PrivateKeyAccount } from "viem/accounts";
import type { TestChain } from "../helpers/chain.ts";
import { transferOf } from "../helpers/eip3009.ts";

export interface Payment {
  chain: Pick<TestChain, "chainId" | "usdc">;
  payer: PrivateKeyAccount;
  payTo: Address;
  amount: string;
  /** The signed values, where they differ from the requirements. */
  signer: PrivateKeyAccount;
  from: Address;
  signedTo: Address;
  value: string;
  validAfter: string;
  validBefore: string;
  nonce: Hex;
  signedChainId: number;
  signedName: string;
  signedVersion: string;
  domainName: string;
  domainVersion: string;
  asset: Address;
  network: string;
  scheme: string;
  extensions: Record<string, unknown>;
}

type Needed = Pick<Payment, "chain" | "payer" | "payTo">;
export interface Body {
  x402Version: number;
  paymentPayload: Record<string, unknown>;
  paymentRequirements: Record<string, unknown>;
}

/** A version 2 body for verify and settle. */
export async function signedPayment(options: Needed & Partial<Payment>): Promise<Body> {
  const { chain, payer, payTo } = options;
  const amount = options.amount ?? "1000";
  const asset = options.asset ?? chain.usdc;
  const paymentRequirements = {
    scheme: options.scheme ?? "exact",
    network: options.network ?? `eip155:${chain.chainId}`,
    asset,
    amount,
    payTo,
    maxTimeoutSeconds: 60,
    extra: { name: options.domainName ?? "USDC", version: options.domainVersion ?? "2" },
  };
  const authorization = {
    from: options.from ?? payer.address,
    to: options.signedTo ?? payTo,
    value: options.value ?? amount,
    validAfter: options.validAfter ?? "0",
    validBefore: options.validBefore ?? String(Math.floor(Date.now() / 1000) + 600),
    nonce: options.nonce ?? generatePrivateKey(),
  };
  const signature = await (options.signer ?? payer).signTypedData({
    domain: {
      name: options.signedName ?? "USDC",
      version: options.signedVersion ?? "2",
      chainId: options.signedChainId ?? chain.chainId,
      verifyingContract: asset,
    },
    ...transferOf(authorization as Parameters<typeof transferOf>[0]),
  });
  return {
    x402Version: 2,
    paymentPayload: {
      x402Version: 2,
      resource: { url: "http://localhost/paid" },
      accepted: paymentRequirements,
      payload: { signature, authorization },
      ...(options.extensions && { extensions: options.extensions }),
    },
    paymentRequirements,
  };
}

/** Posts to the facilitator; any status but 200 fails the test. */
export async function post(
  app: FastifyInstance,
  operation: "verify" | "settle",
  body: unknown,
  headers: Record<string, string> = {},
): Promise<Record<string, unknown>> {
  const response = await app.inject({
    method: "POST",
    url: `/api/x402/${operation}`,
    headers: { "content-type": "application/json", ...headers },
    payload: JSON.stringify(body),
  });
  if (response.statusCode !== 200)
    throw new Error(`${operation} answered ${response.statusCode}: ${response.body}`);
  return response.json();
}
