// A seller controlled by the test: honest, lying, slow or broken. It speaks real HTTP and settles on the real test chain.
import type { IncomingMessage, ServerResponse } from "node:http";
import { encodePaymentRequiredHeader, encodePaymentResponseHeader } from "@x402/core/http";
import type { PaymentRequired, SettleResponse } from "@x402/core/types";
import type { Test } from "tap";
import { parseAbi, type Address, type Hex } from "viem";
import type { TestChain } from "../helpers/chain.ts";
import { localServer, type LocalServer } from "./sellers.ts";

export interface Proof {
  payload: {
    signature: Hex;
    authorization: {
      from: Address;
      to: Address;
      value: string;
      validAfter: string;
      validBefore: string;
      nonce: Hex;
    };
  };
  accepted: Record<string, unknown>;
}

export interface Exchange {
  request: IncomingMessage;
  response: ServerResponse;
  body: string;
  /** The number of requests with a proof so far, including this one. */
  proofs: number;
  proof: Proof;
}

export interface Script {
  /** The terms of the nth unpaid request (1 is the first). */
  terms?: (nth: number) => Record<string, unknown> | Record<string, unknown>[];
  /** Answers an unpaid request instead of the default 402. */
  onUnpaid?: (exchange: Omit<Exchange, "proof" | "proofs">, nth: number) => void | Promise<void>;
  /** Answers a request with a proof; without it, the seller settles and delivers. */
  onProof?: (exchange: Exchange) => void | Promise<void>;
}

export interface ScriptedSeller extends LocalServer {
  url: string;
  script: Script;
  proofs: Proof[];
  unpaidRequests: IncomingMessage[];
  /** The default payment requirements, with some members replaced. */
  entry(over?: Record<string, unknown>): Record<string, unknown>;
  /** Submits the authorization as a facilitator would, and returns the transaction hash. */
  settle(proof: Proof): Promise<Hex>;
  receipt(over: Partial<SettleResponse>): Record<string, string>;
  refuse(response: ServerResponse, entries: unknown, more?: Record<string, string>): void;
}

const ABI = parseAbi([
  "function transferWithAuthorization(address from, address to, uint256 value, uint256 validAfter, uint256 validBefore, bytes32 nonce, bytes signature)",
]);

export async function scriptedSeller(
  t: Pick<Test, "teardown">,
  chain: TestChain,
  payTo: Address,
  script: Script = {},
): Promise<ScriptedSeller> {
  const submitter = chain.accounts[0];
  if (!submitter) throw new Error("the test chain has no accounts");
  const wallet = chain.walletClient(submitter);
  const proofs: Proof[] = [];
  let previous: Promise<unknown> = Promise.resolve();
  const unpaidRequests: IncomingMessage[] = [];
  const server = await localServer(t, (request, response) => {
    void handle(request, response).catch(() => response.destroy());
  });
  const seller: ScriptedSeller = {
    ...server,
    url: `${server.origin}/paid?x=1`,
    script,
    proofs,
    unpaidRequests,
    entry: (over = {}) => ({
      scheme: "exact",
      network: `eip155:${chain.chainId}`,
      amount: "1000",
      asset: chain.usdc,
      payTo,
      maxTimeoutSeconds: 60,
      extra: { name: "USDC", version: "2" },
      ...over,
    }),
    settle(proof) {
      // One account, so its transactions are sent one after the other.
      const settled = previous.then(() => submit(proof));
      previous = settled.catch(() => undefined);
      return settled;
    },
    receipt: (over) => ({
      "payment-response": encodePaymentResponseHeader({
        success: true,
        transaction: "",
        network: `eip155:${chain.chainId}`,
        ...over,
      }),
    }),
    refuse(response, entries, more = {}) {
      const required = {
        x402Version: 2,
        error: "payment required",
        resource: { url: seller.url },
        accepts: [entries].flat(),
      } as unknown as PaymentRequired;
      response
        .writeHead(402, { "payment-required": encodePaymentRequiredHeader(required), ...more })
        .end("{}");
    },
  };

  async function submit({ payload: { authorization, signature } }: Proof): Promise<Hex> {
    const hash = await wallet.writeContract({
      address: chain.usdc,
      abi: ABI,
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
    await chain.publicClient.waitForTransactionReceipt({ hash });
    return hash;
  }

  async function handle(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    const body = Buffer.concat(chunks).toString();
    const header = request.headers["payment-signature"] ?? request.headers["x-payment"];
    if (typeof header !== "string") {
      unpaidRequests.push(request);
      if (seller.script.onUnpaid)
        return seller.script.onUnpaid({ request, response, body }, unpaidRequests.length);
      return seller.refuse(
        response,
        seller.script.terms?.(unpaidRequests.length) ?? seller.entry(),
      );
    }
    const proof = JSON.parse(Buffer.from(header, "base64").toString()) as Proof;
    proofs.push(proof);
    if (seller.script.onProof)
      return seller.script.onProof({ request, response, body, proofs: proofs.length, proof });
    const transaction = await seller.settle(proof);
    response
      .writeHead(200, { "content-type": "application/json", ...seller.receipt({ transaction }) })
      .end('{"answer":42}');
  }
  return seller;
}
