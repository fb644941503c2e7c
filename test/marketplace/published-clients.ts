// Clients that others published, each asked what it would do with a 402. They sign with a wallet that has no money.
import { createRequire } from "node:module";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { registerExactEvmScheme } from "@x402/evm/exact/client";
import { wrapFetchWithPayment, x402Client } from "@x402/fetch";
import { evm, Mppx } from "mppx/client";
import type { Address } from "viem";
import type { ClientOutlook } from "../../server/schemas/validate.ts";
import { testAccount } from "../helpers/chain.ts";
import type { Case } from "./broken-sellers.ts";

interface PublishedClient {
  client: ClientOutlook["client"];
  name: string;
  /** Undefined: it is not installed. */
  pay: typeof fetch | undefined;
}

/** Of a request with a body. */
const JSON_TYPE = { "content-type": "application/json" };

const payer = testAccount(3);

/** Whether a payment goes out. `pay` is a client's own way to send a request. */
export async function signs(
  client: PublishedClient,
  origin: string,
  { name, method = "GET", body }: Case,
): Promise<boolean> {
  sent = false;
  try {
    await client.pay?.(`${origin}/${name}`, { method, headers: JSON_TYPE, ...(body && { body }) });
  } catch {
    // It refuses.
  }
  return sent;
}

let sent = false;
/** Remembers whether a request had a proof of payment. */
const watching: typeof fetch = (input, init) => {
  const { headers } = new Request(input, init);
  sent ||= ["payment-signature", "x-payment", "authorization"].some((name) => headers.has(name));
  return fetch(input, init);
};

/** The folder in X402_1_CLIENTS has `x402-fetch` 1.x: with its dependencies too large for our own packages. */
async function version1(): Promise<typeof fetch | undefined> {
  const folder = process.env["X402_1_CLIENTS"];
  if (folder === undefined) return undefined;
  const found = createRequire(join(folder, "package.json")).resolve("x402-fetch");
  const { wrapFetchWithPayment: wrap } = (await import(pathToFileURL(found).href)) as {
    wrapFetchWithPayment: (send: typeof fetch, signer: unknown) => typeof fetch;
  };
  return wrap(watching, payer);
}

/** `mppx` is set up for these tokens: it has no defaults. */
export async function publishedClients(
  tokens: { usdc: Address; chainId: number }[],
): Promise<PublishedClient[]> {
  const version2 = new x402Client();
  registerExactEvmScheme(version2, { signer: payer });
  const charge = evm.charge({
    account: payer,
    authorization: { name: "USDC", version: "2" },
    currencies: tokens.map(({ usdc }) => usdc),
    networks: tokens.map(({ chainId }) => chainId),
    decimals: 6,
  });
  const mpp = Mppx.create({ methods: [charge], polyfill: false, fetch: watching });
  return [
    { client: "x402-2", name: "@x402/fetch", pay: wrapFetchWithPayment(watching, version2) },
    { client: "x402-1", name: "x402-fetch", pay: await version1() },
    { client: "mpp", name: "mppx", pay: mpp.fetch },
  ];
}
