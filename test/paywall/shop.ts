// A merchant's app with every kind of price, and stock clients that can pay each of them.
import { x402Client, x402HTTPClient } from "@x402/core/client";
import { decodePaymentResponseHeader } from "@x402/core/http";
import { toClientEvmSigner } from "@x402/evm";
import { ExactEvmScheme } from "@x402/evm/exact/client";
import { UptoEvmScheme } from "@x402/evm/upto/client";
import type { PaymentRequirements } from "@x402/core/types";
import Fastify, { type FastifyInstance, type FastifyServerOptions } from "fastify";
import type { Test } from "tap";
import { generatePrivateKey, privateKeyToAccount, type PrivateKeyAccount } from "viem/accounts";
import {
  EXACT_EIP3009,
  EXACT_PERMIT2,
  paywall,
  UPTO,
  type PaywallOptions,
} from "../../packages/paywall/src/paywall.ts";
import type { TestChain } from "../helpers/chain.ts";

export const ALL_SCHEMES = [EXACT_EIP3009, EXACT_PERMIT2, UPTO];
export const newAccount = (): PrivateKeyAccount => privateKeyToAccount(generatePrivateKey());

/** A Fastify app accepts no routes once it listens, so it is created first and opened later. */
export async function openShop(
  t: Pick<Test, "teardown">,
  chain: TestChain,
  facilitator: PaywallOptions["facilitator"],
  addRoutes: (app: FastifyInstance) => void,
  options: Partial<PaywallOptions> = {},
  server: FastifyServerOptions = {},
) {
  const payTo = options.payTo ?? newAccount().address;
  const logged: string[] = [];
  const app: FastifyInstance = Fastify({
    ...server,
    logger: {
      level: "error",
      stream: { write: (line: string) => void logged.push(line) },
    },
  });
  await app.register(paywall, {
    facilitator,
    networks: [`eip155:${chain.chainId}`],
    payTo,
    schemes: ALL_SCHEMES,
    ...options,
  });
  addRoutes(app);
  const origin = await app.listen({ host: "127.0.0.1", port: 0 });
  t.teardown(() => app.close());
  return { app, payTo, origin, logged };
}

/** A stock client, configured as its users would; `prefers` chooses among several offers. */
export function stockPayer(
  chain: TestChain,
  account: PrivateKeyAccount,
  prefers?: (offer: PaymentRequirements) => boolean,
): x402Client {
  const network = `eip155:${chain.chainId}` as const;
  const signer = toClientEvmSigner(account, chain.publicClient);
  const client = new x402Client()
    .register(network, new ExactEvmScheme(signer))
    .register(network, new UptoEvmScheme(signer))
    .setSpendControls({
      allowedAssets: [{ network, asset: chain.usdc, maxAmountPerPayment: "1000000" }],
    });
  if (prefers) client.registerPolicy((_version, offers) => offers.filter(prefers));
  return client;
}

export const overPermit2 = ({ extra }: PaymentRequirements): boolean =>
  extra["assetTransferMethod"] === "permit2";

/**
 * On a busy machine a settlement may not be in a block in time; then the same request is sent again, as the
 * response suggests.
 */
export const fetchUntilSettled: typeof fetch = async (input, init) => {
  const request = new Request(input, init);
  for (;;) {
    const answer = await fetch(request.clone());
    const receipt = answer.headers.get("payment-response");
    if (!receipt || decodePaymentResponseHeader(receipt).errorReason !== "settlement_pending")
      return answer;
  }
};

/** One signed proof made by the stock client, which a test can send repeatedly. */
export async function proofOf(client: x402Client, url: string): Promise<Record<string, string>> {
  const http = new x402HTTPClient(client);
  const answer = await fetch(url);
  const required = http.getPaymentRequiredResponse(
    (name) => answer.headers.get(name),
    await answer.json(),
  );
  return http.encodePaymentSignatureHeader(await client.createPaymentPayload(required));
}

export const balanceOf = (chain: TestChain, address: string): Promise<bigint> =>
  chain.usdcOf(address as `0x${string}`);
