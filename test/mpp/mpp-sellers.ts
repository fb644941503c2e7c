// Sellers that request payment over MPP: one built with the published package, and one with hand-written
// challenges.
import type { IncomingMessage, ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { randomBytes } from "node:crypto";
import { serve } from "@hono/node-server";
import { evm, Mppx } from "mppx/server";
import type { Test } from "tap";
import { getAddress, type Address } from "viem";
import {
  fromBase64Url,
  toBase64Url,
  type PaymentChallenge,
} from "../../packages/paywall/src/mpp-wire.ts";
import type { TestChain } from "../helpers/chain.ts";
import type { Proof, ScriptedSeller } from "../x402-client/scripted-seller.ts";

/**
 * What mppx accepts as a facilitator: a URL, or an object with the protocol's two functions (verify, settle).
 */
export type MppxFacilitator = NonNullable<
  NonNullable<Parameters<typeof evm.charge>[0]["x402"]>["facilitator"]
>;

interface MppxSellerOptions {
  chain: TestChain;
  payTo: Address;
  facilitator: MppxFacilitator;
  /**
   * The package always offers x402 beside MPP; without this, the test removes that header from the response.
   */
  offersX402?: boolean;
  /** In USDC; the price over x402 is the same. */
  amount?: string;
  /** Set: a payment over x402 must be bound to this route (mppx's extension of x402). */
  boundTo?: string;
}

/** The published server, unmodified. Returns the URL of what it sells, and the number of sales. */
export async function mppxSeller(
  t: Pick<Test, "teardown">,
  { chain, payTo, facilitator, offersX402 = false, amount = "0.001", boundTo }: MppxSellerOptions,
): Promise<{ url: string; origin: string; sold(): number }> {
  const payment = Mppx.create({
    methods: [
      evm.charge({
        currency: chain.usdc,
        chainId: chain.chainId,
        decimals: 6,
        authorization: { name: "USDC", version: "2" },
        recipient: payTo,
        x402: { facilitator, ...(boundTo !== undefined && { routeBinding: "required" }) },
      }),
    ],
    secretKey: randomBytes(32).toString("hex"),
  });
  let sold = 0;
  const sell = async (request: Request): Promise<Response> => {
    const scope = boundTo === undefined ? {} : { scope: boundTo };
    const result = await payment.charge({ amount, ...scope })(request);
    if (result.status === 200) {
      sold += 1;
      return result.withReceipt(Response.json({ sold: "mppx" }));
    }
    const { body, headers, status } = result.challenge;
    const sent = new Headers(headers);
    if (!offersX402) sent.delete("payment-required");
    return new Response(body, { headers: sent, status });
  };
  const server = await new Promise<ReturnType<typeof serve>>((resolve) => {
    const started = serve({ fetch: sell, port: 0, hostname: "127.0.0.1" }, () => resolve(started));
  });
  t.teardown(() => new Promise<void>((resolve) => void server.close(() => resolve())));
  const origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  return { origin, url: `${origin}/paid`, sold: () => sold };
}

/** The charge request of a hand-written challenge, with parts replaced. */
export const chargeRequest = (chain: TestChain, payTo: Address, over: object = {}): object => ({
  amount: "1000",
  currency: getAddress(chain.usdc),
  methodDetails: { chainId: chain.chainId, credentialTypes: ["authorization"], decimals: 6 },
  recipient: getAddress(payTo),
  ...over,
});

export const challengeOf = (
  request: object,
  over: Partial<Record<keyof PaymentChallenge | "description", string>> = {},
): Record<string, string> => ({
  id: randomBytes(16).toString("base64url"),
  realm: "127.0.0.1",
  method: "evm",
  intent: "charge",
  request: toBase64Url(request),
  expires: inSeconds(300),
  ...over,
});

export const inSeconds = (seconds: number): string =>
  new Date(Date.now() + seconds * 1_000).toISOString();

export const asHeader = (challenge: Record<string, string>): string =>
  `Payment ${Object.entries(challenge)
    .map(([name, value]) => `${name}="${value.replaceAll(/["\\]/g, "\\$&")}"`)
    .join(", ")}`;

interface Credential {
  challenge: PaymentChallenge;
  payload: Proof["payload"]["authorization"] & { type: string; signature: `0x${string}` };
  source?: string;
}

/** The credential in a request, if there is one. */
export function credentialOf({ headers }: IncomingMessage): Credential | undefined {
  const shown = headers["payment-authorization"] ?? headers.authorization;
  if (typeof shown !== "string" || !shown.startsWith("Payment ")) return undefined;
  return fromBase64Url(shown.slice("Payment ".length)) as Credential;
}

const proofOf = ({ payload }: Credential): Proof => {
  const { type: _type, signature, ...authorization } = payload;
  return { accepted: {}, payload: { signature, authorization } };
};

interface Charging {
  credentials: Credential[];
  /** Responds to a request with a credential; without it, the seller settles and delivers. */
  onCredential?: (credential: Credential, response: ServerResponse) => Promise<void> | void;
}

/** Makes a scripted seller request payment with the nth of these headers, and deliver for a credential. */
export function requestOverMpp(
  seller: ScriptedSeller,
  challenge: (nth: number) => string | string[],
  options: Omit<Charging, "credentials"> = {},
): Charging {
  const charging: Charging = { credentials: [], ...options };
  let challenges = 0;
  seller.script = {
    onUnpaid: async ({ request, response }) => {
      const credential = credentialOf(request);
      if (!credential) {
        challenges += 1;
        response.writeHead(402, { "www-authenticate": challenge(challenges) }).end("{}");
        return;
      }
      charging.credentials.push(credential);
      if (charging.onCredential) return charging.onCredential(credential, response);
      const reference = await seller.settle(proofOf(credential));
      response.writeHead(200, { "content-type": "application/json", ...receiptOf(reference) });
      response.end('{"answer":42}');
    },
  };
  return charging;
}

export const receiptOf = (reference: string): Record<string, string> => ({
  "payment-receipt": toBase64Url({
    method: "evm",
    reference,
    status: "success",
    timestamp: new Date().toISOString(),
  }),
});
