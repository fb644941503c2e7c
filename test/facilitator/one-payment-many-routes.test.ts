// Goal: one payment pays for one request to a stock server, even if the payer sets an identifier
// (`payment-identifier`) or the server sends an Idempotency-Key per request.
import { setTimeout as sleep } from "node:timers/promises";
import { decodePaymentRequiredHeader, encodePaymentSignatureHeader } from "@x402/core/http";
import { ExactEvmScheme } from "@x402/evm";
import { x402Client } from "@x402/fetch";
import t from "tap";
import type { Address } from "viem";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
import { testApp } from "../helpers/app.ts";
import { expressApi, PRICE_ATOMIC } from "./stock-servers.ts";

/** A proof by the published client, with the payer's identifier added. */
async function namedProof(
  url: string,
  { network, usdc }: { network: `${string}:${string}`; usdc: Address },
  account: ReturnType<typeof privateKeyToAccount>,
): Promise<string> {
  const unpaid = await fetch(url);
  const required = decodePaymentRequiredHeader(unpaid.headers.get("payment-required") ?? "");
  const client = new x402Client().register(network, new ExactEvmScheme(account)).setSpendControls({
    allowedAssets: [{ network, asset: usdc, maxAmountPerPayment: "1000000" }],
  });
  const payload = await client.createPaymentPayload(required);
  const identifier = { info: { required: false, id: "pay_7d5d747be160e280504c" }, schema: {} };
  return encodePaymentSignatureHeader({
    ...payload,
    extensions: { ...payload.extensions, "payment-identifier": identifier },
  });
}

t.test("one payment with an identifier, two routes", async (t) => {
  const { chain, baseUrl } = await testApp(t, { listen: true });
  const network = `eip155:${chain.chainId}` as const;
  for (const flow of ["authorization", "upfront"] as const) {
    await t.test(flow, async (t) => {
      const payTo = privateKeyToAccount(generatePrivateKey()).address;
      const account = privateKeyToAccount(generatePrivateKey());
      await chain.mint(account.address, 10n * PRICE_ATOMIC);
      const options = { network, usdc: chain.usdc, payTo, flow, alsoAt: "/other" } as const;
      const api = await expressApi(t, { ...options, facilitatorUrl: `${baseUrl}/api/x402` });
      const other = new URL("/other", api.url).href;
      const headers = { "payment-signature": await namedProof(api.url, options, account) };
      const open = async (url: string): Promise<number> => (await fetch(url, { headers })).status;

      const atOnce = await Promise.all(
        Array.from({ length: 20 }, (_, index) => open(index % 2 === 0 ? api.url : other)),
      );
      t.equal(
        atOnce.filter((status) => status === 200).length,
        1,
        "one success among parallel requests",
      );
      const later: number[] = [];
      for (let attempt = 0; attempt < 10; attempt += 1)
        later.push(await open(attempt % 2 === 0 ? other : api.url));
      t.same(new Set(later), new Set([402]), "and none later");
      const paid = await chain.usdcOf(payTo);
      t.equal(paid, PRICE_ATOMIC, "paid once");
    });
  }
});

t.test("a seller with a key per request delivers as often as it is paid", async (t) => {
  const payments = 40;
  const one = await testApp(t, { listen: true });
  const { chain, database } = one;
  const two = await testApp(t, { listen: true, chain, database });
  const payTo = privateKeyToAccount(generatePrivateKey()).address;
  const account = privateKeyToAccount(generatePrivateKey());
  await chain.mint(account.address, 2n * BigInt(payments) * PRICE_ATOMIC);
  const options = {
    network: `eip155:${chain.chainId}`,
    usdc: chain.usdc,
    payTo,
    flow: "upfront",
    alsoAt: "/other",
    namesRequests: true,
  } as const;
  const apis = await Promise.all(
    [one, two].map(({ baseUrl }) =>
      expressApi(t, { ...options, facilitatorUrl: `${baseUrl}/api/x402` }),
    ),
  );
  const urls = apis.flatMap(({ url }) => [url, new URL("/other", url).href]);
  const proofs = await Promise.all(
    Array.from({ length: payments }, () => namedProof(urls[0] ?? "", options, account)),
  );
  let delivered = 0;
  // A few at a time: they race, but are not a burst.
  while (proofs.length > 0) {
    const statuses = await Promise.all(
      proofs.splice(0, 4).flatMap((proof, at) =>
        urls.map(async (url, index) => {
          await sleep(at + 4 * index);
          return (await fetch(url, { headers: { "payment-signature": proof } })).status;
        }),
      ),
    );
    delivered += statuses.filter((status) => status === 200).length;
  }
  t.equal(delivered, payments, "one delivery per payment");
  const paid = await chain.usdcOf(payTo);
  t.equal(paid, BigInt(payments) * PRICE_ATOMIC, "each paid once");
});
