// Goal: the published servers and clients work unmodified with this facilitator and pay exactly once, exactly the
// price, in both flows and with every scheme and extension.
import { decodePaymentResponseHeader } from "@x402/core/http";
import t from "tap";
import { parseEventLogs, parseAbi, type Hex } from "viem";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
import { testApp } from "../helpers/app.ts";
import { approvePermit2, EXACT_PROXY, UPTO_PROXY } from "../helpers/permit2.ts";
import { axiosClient, fetchClient } from "./stock-clients.ts";
import { expressApi, honoApi, PRICE_ATOMIC, RAILS, USED_ATOMIC } from "./stock-servers.ts";

const TRANSFER = parseAbi([
  "event Transfer(address indexed from, address indexed to, uint256 value)",
]);
const SERVERS = { "@x402/express": expressApi, "@x402/hono": honoApi };
const CLIENTS = { "@x402/fetch": fetchClient, "@x402/axios": axiosClient };
const FLOWS = ["authorization", "upfront"] as const;

t.test("stock servers and clients", async (t) => {
  const { app, chain, baseUrl } = await testApp(t, {
    listen: true,
    env: { PAYER_APPROVALS_5042002: "true" },
  });
  const network = `eip155:${chain.chainId}` as const;

  for (const [serverName, startServer] of Object.entries(SERVERS)) {
    for (const flow of FLOWS) {
      const payTo = privateKeyToAccount(generatePrivateKey()).address;
      const api = await startServer(t, {
        facilitatorUrl: `${baseUrl}/api/x402`,
        network,
        usdc: chain.usdc,
        payTo,
        flow,
      });
      for (const [clientName, makeClient] of Object.entries(CLIENTS)) {
        await t.test(`${serverName}, ${clientName}, ${flow}`, async (t) => {
          const account = privateKeyToAccount(generatePrivateKey());
          await chain.mint(account.address, 1_000_000n);
          const unpaid = await fetch(api.url);
          t.equal(unpaid.status, 402);
          t.ok(unpaid.headers.get("payment-required"));
          const servedBefore = api.served();

          const pay = makeClient({ account, network, usdc: chain.usdc });
          const paid = await pay(api.url);
          t.equal(paid.status, 200);
          t.same(paid.body, { secret: 42 });
          const receipt = decodePaymentResponseHeader(paid.receipt);
          t.match(receipt, { success: true, network, payer: account.address });
          const { logs } = await chain.publicClient.getTransactionReceipt({
            hash: receipt.transaction as Hex,
          });
          const moved = parseEventLogs({ abi: TRANSFER, logs }).filter(
            ({ args }) => args.from === account.address && args.to === payTo,
          );
          t.same(
            moved.map(({ args }) => args.value),
            [PRICE_ATOMIC],
          );

          const replayed = await fetch(api.url, { headers: { "payment-signature": paid.proof } });
          t.equal(replayed.status, 402, "a proof is valid once");
          t.notMatch(await replayed.text(), /secret/);
          const replays = flow === "upfront" ? 0 : 1;
          t.ok(api.served() <= servedBefore + 1 + replays);
        });
      }
    }
  }

  for (const [serverName, startServer] of Object.entries(SERVERS)) {
    const payTo = privateKeyToAccount(generatePrivateKey()).address;
    const api = await startServer(t, {
      facilitatorUrl: `${baseUrl}/api/x402`,
      network,
      usdc: chain.usdc,
      payTo,
      flow: "authorization",
      rails: true,
    });
    for (const [clientName, makeClient] of Object.entries(CLIENTS))
      for (const [rail, { scheme, extensions }] of Object.entries(RAILS)) {
        const isAllowed = Object.keys(extensions).length === 0;
        // The older client supports no extensions: it needs an existing allowance.
        if (clientName === "@x402/axios" && !isAllowed) continue;
        await t.test(`${serverName}, ${clientName}, ${rail}`, async (t) => {
          const account = privateKeyToAccount(generatePrivateKey());
          await chain.mint(account.address, 1_000_000n);
          if (isAllowed) await approvePermit2(chain, [account]);
          if ("erc20ApprovalGasSponsoring" in extensions)
            await chain.testClient.setBalance({ address: account.address, value: 10n ** 18n });
          const reader = chain.publicClient;
          const url = api.url.replace(/paid$/, `rails/${rail}`);
          const paid = await makeClient({ account, network, usdc: chain.usdc, reader })(url);
          t.same([paid.status, paid.body], [200, { secret: 42 }]);
          const receipt = decodePaymentResponseHeader(paid.receipt);
          t.match(receipt, { success: true, network, payer: account.address });
          const hash = receipt.transaction as Hex;
          const { logs } = await chain.publicClient.getTransactionReceipt({ hash });
          const moved = parseEventLogs({ abi: TRANSFER, logs }).filter(
            ({ args }) => args.from === account.address && args.to === payTo,
          );
          const price = scheme === "upto" ? USED_ATOMIC : PRICE_ATOMIC;
          t.same(
            moved.map(({ args }) => args.value),
            [price],
          );
          const { to } = await chain.publicClient.getTransaction({ hash });
          const proxy = scheme === "upto" ? UPTO_PROXY : EXACT_PROXY;
          t.equal(to?.toLowerCase(), proxy.toLowerCase(), "through the proxy");
          const replayed = await fetch(url, { headers: { "payment-signature": paid.proof } });
          t.not(replayed.status, 200, "a proof is valid once");
          t.notMatch(await replayed.text(), /secret/);
        });
      }
  }

  await t.test("a closed facilitator requires a key", async (t) => {
    t.equal((await app.inject("/api/x402/supported")).statusCode, 200);
    const closed = await testApp(t, {
      chain,
      listen: true,
      env: { FACILITATOR_API_KEYS: "first-key,second-key" },
    });
    const facilitatorUrl = `${closed.baseUrl}/api/x402`;
    const refused = await fetch(`${facilitatorUrl}/verify`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: "{}",
    });
    t.equal(refused.status, 401);
    t.match(await refused.json(), { code: "missing_api_key" });
    t.equal((await fetch(`${facilitatorUrl}/supported`)).status, 200, "discovery is public");
    const account = privateKeyToAccount(generatePrivateKey());
    await chain.mint(account.address, 1_000_000n);
    const api = await expressApi(t, {
      facilitatorUrl,
      facilitatorKey: "second-key",
      network,
      usdc: chain.usdc,
      payTo: chain.admin.address,
      flow: "authorization",
    });
    t.equal((await fetchClient({ account, network, usdc: chain.usdc })(api.url)).status, 200);
  });
});
