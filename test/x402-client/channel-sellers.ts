// Sellers that are paid through channels: the published server in front of any facilitator, with what a test changes.
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { decodePaymentResponseHeader, encodePaymentResponseHeader } from "@x402/core/http";
import type { FacilitatorClient } from "@x402/core/server";
import { BatchSettlementEvmScheme } from "@x402/evm/batch-settlement/server";
import { ExactEvmScheme } from "@x402/evm/exact/server";
import { paymentMiddleware, setSettlementOverrides, x402ResourceServer } from "@x402/express";
import express from "express";
import type { Test } from "tap";
import type { Address } from "viem";
import { generatePrivateKey, privateKeyToAccount, type PrivateKeyAccount } from "viem/accounts";
import type { TestChain } from "../helpers/chain.ts";

type Report = Record<string, unknown> & { extra?: Record<string, unknown> };

interface ChannelSellerOptions {
  chain: TestChain;
  payTo: Address;
  facilitator: FacilitatorClient;
  /** The most that one request costs; the seller charges `?charge=`, or all of it. */
  price?: string;
  withdrawDelay?: number;
  minDeposit?: string;
  /** It also sells for this exact price. */
  exact?: string;
  /** The key that signs its claims; another seller with it has the same channels. */
  authorizer?: PrivateKeyAccount;
  maxTimeoutSeconds?: number;
}

export interface ChannelSeller {
  origin: string;
  /** Requests that came with a proof. */
  paidRequests: number;
  /** How often the handler ran. */
  served: number;
  /** Changes the seller's report before it is sent. */
  report?: ((report: Report) => Report | undefined) | undefined;
  /** Runs before the payment is looked at: may answer itself. */
  before?: express.RequestHandler | undefined;
  /** Runs in place of the handler's answer. */
  handler?: express.RequestHandler | undefined;
  /** Claims everything, and settles it. */
  collect(): Promise<void>;
}

/** `GET /word` costs the price; `?charge=` charges less. */
export async function channelSeller(
  t: Pick<Test, "teardown">,
  options: ChannelSellerOptions,
): Promise<ChannelSeller> {
  const { chain, payTo, facilitator, price = "1000", withdrawDelay = 900, exact } = options;
  const network = `eip155:${chain.chainId}` as const;
  const scheme = new BatchSettlementEvmScheme(payTo, {
    receiverAuthorizerSigner: options.authorizer ?? privateKeyToAccount(generatePrivateKey()),
    withdrawDelay,
  });
  const resources = new x402ResourceServer(facilitator)
    .register(network, scheme)
    .register(network, new ExactEvmScheme());
  const inUsdc = (amount: string, more: object = {}) => ({
    amount,
    asset: chain.usdc,
    extra: { name: "USDC", version: "2", ...more },
  });
  const terms = { network, payTo, maxTimeoutSeconds: options.maxTimeoutSeconds ?? 60 };
  const minDeposit = options.minDeposit === undefined ? {} : { minDeposit: options.minDeposit };
  const accepts = [
    { ...terms, scheme: "batch-settlement", price: inUsdc(price, minDeposit) },
    ...(exact === undefined ? [] : [{ ...terms, scheme: "exact", price: inUsdc(exact) }]),
  ];
  const api = express();
  const seller: ChannelSeller = {
    origin: "",
    paidRequests: 0,
    served: 0,
    async collect() {
      const manager = scheme.createChannelManager(facilitator, network, chain.usdc);
      await manager.claim();
      await manager.settle();
    },
  };
  api.use((request, response, next) => {
    if (request.headers["payment-signature"] !== undefined) seller.paidRequests += 1;
    rewriteReport(response, (report) => (seller.report ? seller.report(report) : report));
    if (seller.before) seller.before(request, response, next);
    else next();
  });
  api.use(paymentMiddleware({ "/word": { accepts, description: "A word" } }, resources));
  api.all("/word", (request, response, next) => {
    seller.served += 1;
    const { charge } = request.query;
    if (typeof charge === "string") setSettlementOverrides(response, { amount: charge });
    if (seller.handler) seller.handler(request, response, next);
    else response.json({ word: seller.served });
  });
  const listening = createServer(api).listen(0, "127.0.0.1");
  await new Promise((resolve) => listening.once("listening", resolve));
  t.teardown(() => {
    listening.closeAllConnections();
    return new Promise((resolve) => void listening.close(resolve));
  });
  seller.origin = `http://127.0.0.1:${(listening.address() as AddressInfo).port}`;
  return seller;
}

/** The seller does all of its work, and the connection breaks before the first byte of the response to a proof. */
export const loseResponses: express.RequestHandler = (request, response, next) => {
  if (request.headers["payment-signature"] !== undefined)
    response.end = (() => {
      response.destroy();
      return response;
    }) as never;
  next();
};

function rewriteReport(
  response: express.Response,
  rewrite: (report: Report) => Report | undefined,
): void {
  const set = response.setHeader.bind(response);
  response.setHeader = (name, value) => {
    if (name.toLowerCase() !== "payment-response" || typeof value !== "string")
      return set(name, value);
    const report = rewrite(decodePaymentResponseHeader(value));
    return report === undefined
      ? response
      : set(name, encodePaymentResponseHeader(report as never));
  };
}
