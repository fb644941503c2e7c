// A shop that sells through payment channels, and stock payers of it.
import { decodePaymentRequiredHeader, decodePaymentResponseHeader } from "@x402/core/http";
import { x402HTTPClient } from "@x402/core/client";
import { toClientEvmSigner } from "@x402/evm";
import { BatchSettlementEvmScheme } from "@x402/evm/batch-settlement/client";
import { wrapFetchWithPayment, x402Client } from "@x402/fetch";
import type { PaymentRequired } from "@x402/core/types";
import type { FastifyInstance } from "fastify";
import type { Test } from "tap";
import type { Address, Hex } from "viem";
import type { PrivateKeyAccount } from "viem/accounts";
import type { ChannelStore, PaywallOptions } from "../../packages/paywall/src/paywall.ts";
import { CHANNELS, CHANNELS_ABI, type ChannelConfig } from "../helpers/batch-settlement.ts";
import type { TestChain } from "../helpers/chain.ts";
import { newAccount, openShop } from "./shop.ts";

/** The most of one request. */
export const PRICE = 1_000n;
export const DEPOSIT = 50_000n;
const ROUTE = { price: { channel: "0.001", fixed: "0.002" }, description: "Words" };

export interface ChannelShop {
  origin: string;
  payTo: Address;
  app: FastifyInstance;
  logged: string[];
  /** The work that was done, one entry for each request. */
  worked: string[];
  /** While it is set, work waits for it. */
  gate: { opens?: Promise<void> | undefined };
}

export async function openChannelShop(
  t: Pick<Test, "teardown">,
  chain: TestChain,
  {
    facilitator,
    store,
    authorizer = newAccount(),
    payTo = newAccount().address,
    options = {},
    channels = {},
  }: {
    facilitator: PaywallOptions["facilitator"];
    store: ChannelStore;
    authorizer?: PrivateKeyAccount | null;
    payTo?: Address;
    options?: Partial<PaywallOptions>;
    channels?: Partial<NonNullable<PaywallOptions["channels"]>>;
  },
): Promise<ChannelShop> {
  const worked: string[] = [];
  const gate: ChannelShop["gate"] = {};
  const shop = await openShop(
    t,
    chain,
    facilitator,
    (app) => {
      app.get("/words", { config: { paywall: ROUTE } }, async (request, reply) => {
        const { used, fail, text = "plain" } = request.query as Record<string, string | undefined>;
        worked.push(request.url);
        await gate.opens;
        if (fail !== undefined) return reply.code(422).send({ sorry: true });
        if (used !== undefined) request.payment?.charge(BigInt(used));
        void reply.header("x-words", text);
        return { words: text, payer: request.payment?.payer, nth: worked.length };
      });
      app.post("/words", { config: { paywall: ROUTE } }, async (request) => {
        worked.push(request.url);
        return { got: request.body };
      });
      app.get("/plain", { config: { paywall: { price: "0.002" } } }, async () => ({ plain: true }));
    },
    {
      ...options,
      payTo,
      channels: {
        store,
        withdrawDelay: "15m",
        claimEvery: "5m",
        minDeposit: "0.05",
        ...(authorizer && { receiverAuthorizer: authorizer }),
        ...channels,
      },
    },
  );
  return { ...shop, payTo, worked, gate };
}

/** Reads the response to its end, so that its connection is not left open. */
export const get: typeof fetch = async (input, init) => {
  const answer = await fetch(input, init);
  const { status, headers } = answer;
  return new Response(await answer.arrayBuffer(), { status, headers });
};

/** A stock client with its own record of its channel; `forget` is what a client does that lost it. */
export async function channelPayer(chain: TestChain, account = newAccount(), usdc = 1_000_000n) {
  if (usdc > 0n) await chain.mint(account.address, usdc);
  const network = `eip155:${chain.chainId}` as const;
  const schemeOf = () =>
    new BatchSettlementEvmScheme(toClientEvmSigner(account, chain.publicClient));
  const made = () => {
    const scheme = schemeOf();
    const client = new x402Client().register(network, scheme).setSpendControls({
      allowedAssets: [{ network, asset: chain.usdc, maxAmountPerPayment: "1000000" }],
    });
    return { scheme, client, pay: wrapFetchWithPayment(get, client) };
  };
  let current = made();
  const proof = async (url: string) => {
    const required = requiredOf(await get(url));
    const payload = await current.client.createPaymentPayload(required);
    const headers = new x402HTTPClient(current.client).encodePaymentSignatureHeader(payload);
    return { payload, headers, config: payload.payload["channelConfig"] as ChannelConfig };
  };
  return {
    account,
    pay: (url: string) => current.pay(url),
    /** A proof of the next payment, which the client does not record. */
    proof,
    signs: (required: PaymentRequired) => current.client.createPaymentPayload(required),
    /** Records the response to a proof, as the stock client does. */
    async learn({ payload }: Awaited<ReturnType<typeof proof>>, response: Response) {
      const http = new x402HTTPClient(current.client);
      return http.processPaymentResult(
        payload,
        (name) => response.headers.get(name),
        response.status,
      );
    },
    refund: (url: string, amount?: string) =>
      current.scheme.refund(url, { fetch: get, ...(amount !== undefined && { amount }) }),
    forget: () => void (current = made()),
  };
}

export const requiredOf = (response: Response) =>
  decodePaymentRequiredHeader(response.headers.get("payment-required") ?? "");
export const receiptOf = (response: Response) =>
  decodePaymentResponseHeader(response.headers.get("payment-response") ?? "");

export async function onChain(chain: TestChain, id: Hex) {
  const [balance, claimed] = await chain.publicClient.readContract({
    address: CHANNELS,
    abi: CHANNELS_ABI,
    functionName: "channels",
    args: [id],
  });
  return { balance, claimed };
}
