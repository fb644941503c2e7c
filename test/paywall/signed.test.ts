// Goal: the paywall's signatures pass the stock verifiers, and a wallet that has paid fetches the same again
// by signature: once per challenge, within its time, and no other wallet does.
// Tier: full (tries every variant of one feature).
import { decodePaymentRequiredHeader, decodePaymentResponseHeader } from "@x402/core/http";
import { x402HTTPClient } from "@x402/core/client";
import {
  extractOffersFromPaymentRequired,
  extractReceiptFromResponse,
  decodeSignedOffers,
  findAcceptsObjectFromSignedOffer,
  verifyOfferSignatureEIP712,
  verifyReceiptMatchesOffer,
  verifyReceiptSignatureEIP712,
} from "@x402/extensions/offer-receipt";
import {
  createSIWxClientExtension,
  createSIWxPayload,
  encodeSIWxHeader,
  type SIWxPayload,
  wrapFetchWithSIWx,
} from "@x402/extensions/sign-in-with-x";
import { wrapFetchWithPayment } from "@x402/fetch";
import Fastify, { type FastifyInstance } from "fastify";
import type { FastifyRequest } from "fastify";
import t from "tap";
import type { PrivateKeyAccount } from "viem/accounts";
import { OneProcessStore, paywall, type PaywallStore } from "../../packages/paywall/src/paywall.ts";
import { PostgresPaywallStore } from "../../server/plugins/paywall/store.ts";
import { testApp } from "../helpers/app.ts";
import { balanceOf, newAccount, openShop, fetchUntilSettled, stockPayer } from "./shop.ts";
import { referenceFacilitator } from "./stock.ts";

const our = await testApp(t, { listen: true });
const { chain } = our;
const seller = newAccount();
const payer = newAccount();
await chain.mint(payer.address, 1_000_000n);

const challengeOf = async (url: string) => {
  const answer = await fetch(url);
  const required = decodePaymentRequiredHeader(answer.headers.get("payment-required") ?? "");
  const extension = required.extensions?.["sign-in-with-x"] as {
    info: Record<string, unknown>;
    supportedChains: { chainId: string; type: string }[];
  };
  return { ...extension.info, ...extension.supportedChains[0] } as Record<string, unknown>;
};
type Info = Parameters<typeof createSIWxPayload>[0];
const signIn = async (
  url: string,
  account: PrivateKeyAccount,
  change: Record<string, unknown> = {},
): Promise<SIWxPayload> => {
  const info = { ...(await challengeOf(url)), ...change } as unknown as Info;
  return createSIWxPayload(info, account, info.uri);
};
const show = (url: string, payload: object | string) =>
  fetch(url, {
    headers: {
      "sign-in-with-x":
        typeof payload === "string" ? payload : encodeSIWxHeader(payload as SIWxPayload),
    },
  });
const errorOf = (answer: Response) =>
  decodePaymentRequiredHeader(answer.headers.get("payment-required") ?? "").error;

t.test("offers and receipts pass the stock client's verifiers", async (t) => {
  const { origin } = await openShop(
    t,
    chain,
    referenceFacilitator(chain),
    (app) => {
      app.get("/joke", { config: { paywall: { price: "0.01" } } }, async () => ({ ok: true }));
      app.get("/broken", { config: { paywall: { price: "0.01" } } }, async () => {
        throw new Error("after payment");
      });
      app.get(
        "/by-use",
        { config: { paywall: { price: { upTo: "0.05" } } } },
        async (request: FastifyRequest) => {
          request.payment?.charge("0.02");
          return { ok: true };
        },
      );
    },
    { payTo: seller.address, receipts: { signer: seller } },
  );
  for (const path of ["/joke", "/by-use"]) {
    const url = `${origin}${path}`;
    const unpaid = await fetch(url);
    const required = decodePaymentRequiredHeader(unpaid.headers.get("payment-required") ?? "");
    const offers = extractOffersFromPaymentRequired(required);
    t.equal(offers.length, required.accepts.length, "each way to pay has a signed offer");
    for (const offer of offers) {
      const verified = await verifyOfferSignatureEIP712(offer as never);
      t.equal(verified.signer, seller.address);
      t.equal(verified.payload.resourceUrl, url);
    }
    const [decoded] = decodeSignedOffers(offers);
    if (!decoded) throw new Error("no offer");
    t.match(findAcceptsObjectFromSignedOffer(decoded, required.accepts), { payTo: seller.address });

    const answer = await wrapFetchWithPayment(fetchUntilSettled, stockPayer(chain, payer))(url);
    t.equal(answer.status, 200);
    const receipt = extractReceiptFromResponse(answer);
    if (!receipt) throw new Error("no receipt");
    const { signer, payload } = await verifyReceiptSignatureEIP712(receipt as never);
    t.equal(signer, seller.address);
    t.equal(verifyReceiptMatchesOffer(receipt, decoded, [payer.address]), true);
    const { transaction } = decodePaymentResponseHeader(
      answer.headers.get("payment-response") ?? "",
    );
    t.equal(payload.transaction, transaction);
  }
  const broken = await wrapFetchWithPayment(
    fetchUntilSettled,
    stockPayer(chain, payer),
  )(`${origin}/broken`);
  t.equal(broken.status, 500);
  t.match(decodePaymentResponseHeader(broken.headers.get("payment-response") ?? ""), {
    success: true,
  });
  t.equal(extractReceiptFromResponse(broken), undefined, "paid, and not delivered");
});

t.test("a failing signer only loses the receipt", async (t) => {
  const signer = async (): Promise<`0x${string}`> => {
    throw new Error("the signer is unavailable");
  };
  const { origin, logged } = await openShop(
    t,
    chain,
    referenceFacilitator(chain),
    (app) => void app.get("/", { config: { paywall: { price: "0.01" } } }, async () => "yes"),
    { receipts: { signer } },
  );
  const answer = await wrapFetchWithPayment(fetchUntilSettled, stockPayer(chain, payer))(origin);
  t.equal(answer.status, 200);
  t.equal(extractReceiptFromResponse(answer), undefined);
  t.match(logged.join(""), /the signer is unavailable/);
});

const STORES: Record<string, () => PaywallStore> = {
  "one process": () => new OneProcessStore(),
  Postgres: () => new PostgresPaywallStore(our.app.prisma),
};

for (const [name, makeStore] of Object.entries(STORES)) {
  t.test(`paid once, fetched again by signature: ${name}`, async (t) => {
    const store = makeStore();
    const facilitator = referenceFacilitator(chain);
    let served = 0;
    const routes = (app: FastifyInstance): void => {
      for (const [path, time] of [
        ["/article", "1h"],
        ["/other", "1h"],
        ["/brief", "5s"],
      ] as const) {
        const price = { price: "0.01", again: { for: time } };
        app.get(path, { config: { paywall: price } }, async (request) => {
          served += 1;
          return { kind: request.payment?.kind, payer: request.payment?.payer };
        });
      }
    };
    const { origin, payTo } = await openShop(t, chain, facilitator, routes, { store });
    const url = `${origin}/article`;
    const paying = wrapFetchWithPayment(fetchUntilSettled, stockPayer(chain, payer));
    t.match(errorOf(await show(url, await signIn(url, payer))), "siwx_not_paid");
    t.same(await (await paying(url)).json(), { kind: "settled", payer: payer.address });

    await t.test("the stock clients", async (t) => {
      const before = await balanceOf(chain, payer.address);
      const signing = wrapFetchWithSIWx(fetch, payer);
      for (const _ of [1, 2]) {
        const answer = await signing(url);
        t.equal(answer.status, 200);
        t.same(await answer.json(), { kind: "again", payer: payer.address });
        t.equal(answer.headers.get("payment-response"), null);
      }
      const both = stockPayer(chain, payer).registerExtension(
        createSIWxClientExtension({ signers: [payer] }),
      );
      const http = wrapFetchWithPayment(fetchUntilSettled, new x402HTTPClient(both));
      t.same(await (await http(url)).json(), { kind: "again", payer: payer.address });
      t.equal(await balanceOf(chain, payer.address), before, "and nothing was paid");
      const fresh = newAccount();
      await chain.mint(fresh.address, 1_000_000n);
      t.equal((await signing(`${url}?page=2`)).status, 402, "another query is another resource");
      const otherWallet = await wrapFetchWithSIWx(fetch, fresh)(url);
      t.equal(otherWallet.status, 402);
      t.equal(errorOf(otherWallet), "siwx_not_paid");
    });

    await t.test("replayed and modified sign-ins are refused with their reason", async (t) => {
      const shown = await signIn(url, payer);
      const all = await Promise.all(Array.from({ length: 10 }, () => show(url, shown)));
      t.equal(all.filter(({ status }) => status === 200).length, 1, "a challenge is accepted once");
      for (const answer of all.filter(({ status }) => status !== 200))
        t.equal(errorOf(answer), "invalid_siwx_nonce");
      t.equal(errorOf(await show(url, shown)), "invalid_siwx_nonce");
      const later = new Date(Date.now() + 86_400_000).toISOString();
      const ago = new Date(Date.now() - 1_000).toISOString();
      const old = new Date(Date.now() - 600_000).toISOString();
      const bent: [string, Record<string, unknown>][] = [
        ["invalid_siwx_uri_mismatch", { uri: `${origin}/other` }],
        ["invalid_siwx_uri_mismatch", { uri: `${url}?page=2` }],
        ["invalid_siwx_expiration_time", { expirationTime: later }],
        ["invalid_siwx_expiration_time", { expirationTime: undefined }],
        ["invalid_siwx_expired", { expirationTime: ago }],
        ["invalid_siwx_issued_at_too_old", { issuedAt: old }],
        ["invalid_siwx_issued_at_in_future", { issuedAt: later }],
        ["invalid_siwx_unsupported_chain", { chainId: "eip155:1" }],
      ];
      for (const [reason, change] of bent)
        t.equal(errorOf(await show(url, await signIn(url, payer, change))), reason, reason);
      const elsewhere = await signIn(url, payer);
      for (const [reason, change] of [
        ["invalid_siwx_domain_mismatch", { domain: "evil.example" }],
        ["invalid_siwx_signature", { address: seller.address }],
        ["invalid_siwx_signature", { nonce: "f".repeat(32) }],
        ["invalid_siwx_signature", { statement: "Something else." }],
      ] as const)
        t.equal(errorOf(await show(url, { ...elsewhere, ...change })), reason, reason);
      for (const garbage of ["", "not base64!", "e30=", "W10=", "bnVsbA=="])
        t.equal(errorOf(await show(url, garbage)), "invalid_siwx_payload", garbage);
      t.equal((await show(url, elsewhere)).status, 200, "none of them used the nonce");
      const before = served;
      t.equal((await show(`${origin}/other`, await signIn(`${origin}/other`, payer))).status, 402);
      t.equal(served, before);
    });

    await t.test("access expires; replicas with one store know payments", async (t) => {
      const brief = `${origin}/brief`;
      t.equal((await paying(brief)).status, 200);
      t.equal((await show(brief, await signIn(brief, payer))).status, 200);
      // Waits in real time, because the shop uses the system clock.
      await new Promise((resolve) => setTimeout(resolve, 5_100));
      t.equal(errorOf(await show(brief, await signIn(brief, payer))), "siwx_not_paid");

      const shared = name === "Postgres" ? makeStore() : store;
      const replica = await openShop(t, chain, facilitator, routes, {
        store: shared,
        payTo,
        publicUrl: origin,
      });
      const shown = await signIn(url, payer);
      const there = await show(`${replica.origin}/article`, shown);
      t.same(await there.json(), { kind: "again", payer: payer.address });
      t.equal(
        errorOf(await show(url, shown)),
        "invalid_siwx_nonce",
        "the nonce was used at the other replica",
      );
    });
  });
}

t.test("invalid configuration of repeat access is refused at startup", async (t) => {
  const app = Fastify();
  await app.register(paywall, {
    facilitator: referenceFacilitator(chain),
    networks: [`eip155:${chain.chainId}`],
    payTo: chain.usdc,
    store: new OneProcessStore(),
  });
  const again = { price: "0.01", again: { for: "1h" } };
  t.throws(() => app.post("/", { config: { paywall: again } }, async () => ({})), /only a GET/);
  const never = { price: "0.01", again: { for: "soon" } };
  t.throws(() => app.get("/", { config: { paywall: never } }, async () => ({})), /again.for/);
});

t.test("our own blocks API: paid by use, fetched again, with offer and receipt", async (t) => {
  const url = `${our.baseUrl}/api/arc-blocks?from=1&count=3`;
  const answer = await wrapFetchWithPayment(fetchUntilSettled, stockPayer(chain, payer))(url);
  t.equal(answer.status, 200, JSON.stringify([...answer.headers]));
  t.match(await answer.json(), { blocks: [{ height: 1 }, { height: 2 }, { height: 3 }] });
  const receipt = extractReceiptFromResponse(answer);
  if (!receipt) throw new Error("no receipt");
  const { signer } = await verifyReceiptSignatureEIP712(receipt as never);
  t.equal(signer, chain.relayer.address);
  t.match(decodePaymentResponseHeader(answer.headers.get("payment-response") ?? ""), {
    amount: "3000",
  });
  const again = await wrapFetchWithSIWx(fetch, payer)(url);
  t.equal(again.status, 200);
  t.equal(((await again.json()) as { blocks: unknown[] }).blocks.length, 3);
  const head = await chain.publicClient.getBlockNumber();
  const growing = await wrapFetchWithPayment(
    fetchUntilSettled,
    stockPayer(chain, payer),
  )(`${our.baseUrl}/api/arc-blocks?from=${head}&count=50`);
  t.same(
    await growing.json(),
    { network: `eip155:${chain.chainId}`, blocks: [] },
    "no partial response",
  );
  const beyond = `${our.baseUrl}/api/arc-blocks?from=999999`;
  const none = await wrapFetchWithPayment(fetchUntilSettled, stockPayer(chain, payer))(beyond);
  t.same(await none.json(), { network: `eip155:${chain.chainId}`, blocks: [] });
  t.match(decodePaymentResponseHeader(none.headers.get("payment-response") ?? ""), {
    amount: "0",
    transaction: "",
  });
});
