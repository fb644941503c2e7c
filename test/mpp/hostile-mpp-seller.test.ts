// Goal: a malicious MPP challenge moves no money: each invalid challenge is refused with its reason and
// nothing is signed, and a wallet pays a challenge once.
import t from "tap";
import { keccak256, stringToBytes, type Hex } from "viem";
import { toBase64Url } from "../../packages/paywall/src/mpp-wire.ts";
import { callApi } from "../helpers/call.ts";
import { createAgent } from "../helpers/owner.ts";
import { assertLedgerIsChain, market, PAYEE, type Market } from "../x402-client/market.ts";
import {
  asHeader,
  requestOverMpp,
  challengeOf,
  chargeRequest,
  credentialOf,
  inSeconds,
  receiptOf,
} from "./mpp-sellers.ts";

/** As text, both for responses with several reasons and for those with one sentence. */
const textOf = ({ body }: { body: Record<string, unknown> }): string => JSON.stringify(body);

async function signedSoFar({ database, agent }: Market): Promise<number> {
  const { rows } = await database.pool.query<{ count: string }>(
    "SELECT count(*)::text AS count FROM settlements WHERE agent_id = $1",
    [agent.id],
  );
  return Number(rows[0]?.count);
}

t.test("a seller that requests payment over MPP", async (t) => {
  const made = await market(t);
  const { seller, chain } = made;
  const { url } = seller;
  const charge = (over: object = {}): object => chargeRequest(chain, PAYEE, over);
  const details = (over: object): object => ({
    methodDetails: {
      chainId: chain.chainId,
      credentialTypes: ["authorization"],
      decimals: 6,
      ...over,
    },
  });

  await t.test("an honest seller is paid, with confirmation on chain", async (t) => {
    const challenge = challengeOf(charge(), { opaque: "eyJhIjoiYiJ9", description: 'a "b"' });
    const { description: _words, ...bound } = challenge;
    const charging = requestOverMpp(seller, () => [`Bearer realm="x"`, asHeader(challenge)]);
    const before = BigInt(Math.floor(Date.now() / 1_000));
    const answer = await made.fetch({
      url,
      headers: { authorization: "Bearer the-agents-own", "payment-authorization": "x" },
    });
    t.match(answer, {
      status: 200,
      body: {
        paid: true,
        amountPaid: "0.001",
        data: { answer: 42 },
        omittedHeaders: ["authorization", "payment-authorization"],
        thirdParty: { paymentResponse: { method: "evm", reference: answer.body["txHash"] } },
      },
    });
    const [credential] = charging.credentials;
    t.same(credential?.challenge, bound, "repeated exactly, without the parts that are not bound");
    t.match(credential, {
      source: `did:pkh:eip155:${chain.chainId}:${made.agent.walletAddress}`,
      payload: {
        type: "authorization",
        value: "1000",
        validAfter: "0",
        nonce: keccak256(stringToBytes(`${challenge["id"]}127.0.0.1`)),
      },
    });
    const lives = BigInt(credential?.payload.validBefore ?? 0) - before;
    t.ok(lives > 0n && lives <= 125n, `our cap, not its 300 s: ${lives}`);
  });

  await t.test("the credential is sent in the header that the challenge names", async (t) => {
    const challenge = challengeOf(charge(), { header: "Payment-Authorization" });
    requestOverMpp(seller, () => asHeader(challenge), {
      onCredential: async (credential, response) => {
        t.match(credential.challenge, { header: "Payment-Authorization" });
        const reference = await seller.settle({
          accepted: {},
          payload: { signature: credential.payload.signature, authorization: credential.payload },
        });
        response.writeHead(200, receiptOf(reference)).end("sold");
      },
    });
    t.match(await made.fetch({ url }), { status: 200, body: { paid: true, text: "sold" } });
  });

  await t.test("invalid challenges are refused with their reason", async (t) => {
    const signed = await signedSoFar(made);
    const header = (over: Record<string, string>, request = charge()) =>
      asHeader(challengeOf(request, over));
    const twin = challengeOf(charge());
    const crooked: Record<string, [string | string[], string, RegExp]> = {
      expired: [header({ expires: inSeconds(-1) }), "challenge_expired", /expires at/],
      "about to expire": [header({ expires: inSeconds(5) }), "challenge_expired", /expires at/],
      "of no time": [header({ expires: "soon" }), "challenge_expired", /"soon/],
      "of another host": [header({ realm: "shop.test" }), "challenge_other_host", /shop\.test/],
      "of a realm that ends alike": [
        header({ realm: "7.0.0.1" }),
        "challenge_other_host",
        /requested host/,
      ],
      "for another body": [
        header({ digest: "sha-256=47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFV=" }),
        "challenge_other_body",
        /different body/,
      ],
      "with splits": [
        header({}, charge(details({ splits: [{ amount: "1", recipient: PAYEE }] }))),
        "challenge_splits",
        /several payees/,
      ],
      "for the hash of a transaction": [
        header({}, charge(details({ credentialTypes: ["hash", "transaction"] }))),
        "challenge_credential_types",
        /hash/,
      ],
      "of no credential types": [
        header({}, charge(details({ credentialTypes: undefined }))),
        "challenge_credential_types",
        /not supported/,
      ],
      "on another chain": [
        header({}, charge(details({ chainId: 1 }))),
        "unsupported_network",
        /eip155:1/,
      ],
      "of no chain": [
        header({}, charge(details({ chainId: "1" }))),
        "unsupported_network",
        /not configured/,
      ],
      "in another currency": [
        header({}, charge({ currency: PAYEE })),
        "unsupported_asset",
        /not its USDC/,
      ],
      "with other decimals": [
        header({}, charge(details({ decimals: 18 }))),
        "unsupported_terms",
        /decimals/,
      ],
      "to a recipient with a typo": [
        header({}, charge({ recipient: PAYEE.replace("0x3C", "0x3c") })),
        "payee_invalid",
        /checksum/,
      ],
      "to the zero address": [
        header({}, charge({ recipient: `0x${"0".repeat(40)}` })),
        "payee_invalid",
        /zero/,
      ],
      "to the wallet itself": [
        header({}, charge({ recipient: made.agent.walletAddress })),
        "payee_invalid",
        /itself/,
      ],
      "of nothing": [header({}, charge({ amount: "0" })), "amount_invalid", /positive/],
      "of a number": [header({}, charge({ amount: 1000 })), "amount_invalid", /positive/],
      "of the same id twice": [
        [asHeader(twin), asHeader({ ...twin, request: toBase64Url(charge({ amount: "1" })) })],
        "challenge_repeated",
        /same id|have the id/,
      ],
      "of another method": [header({ method: "tempo" }), "challenge_unsupported", /tempo\/charge/],
      "of another intent": [header({ intent: "session" }), "challenge_unsupported", /evm\/session/],
      "without an id": [header({ id: "" }), "challenge_unreadable", /lacks/],
      "of no JSON": [header({ request: "!!!" }), "challenge_unreadable", /cannot be parsed/],
      "of hidden letters": [header({ id: "a\u00a0b" }), "challenge_unreadable", /ASCII/],
      "with one parameter twice": [`${header({})}, id="again"`, "challenge_unreadable", /twice/],
      "that never ends its quote": [`${header({})}, opaque="abc`, "challenge_unreadable", /parsed/],
      "into a header of its choice": [
        header({ header: "Cookie" }),
        "challenge_unreadable",
        /Cookie/,
      ],
      "too long to repeat": [
        header({ opaque: "A".repeat(7_000) }),
        "challenge_too_long",
        /exceeds/,
      ],
      "too long altogether": [
        Array.from({ length: 8 }, () => header({ opaque: "A".repeat(5_000) })),
        "challenge_too_long",
        /exceeds/,
      ],
    };
    for (const [what, [challenge, code, why]] of Object.entries(crooked)) {
      const charging = requestOverMpp(seller, () => challenge);
      const answer = await made.fetch({ url });
      t.match(
        answer,
        { status: 422, body: { code: "unsupported_payment_requirements" } },
        `${what}: ${answer.text}`,
      );
      t.match(textOf(answer), why, what);
      t.match(textOf(answer), new RegExp(code), `${what}: ${code}`);
      t.equal(charging.credentials.length, 0, what);
    }
    t.equal(await signedSoFar(made), signed, "nothing was signed");
    t.equal(await made.reserved(), "0");
  });

  await t.test("an invalid challenge does not affect x402 beside it", async (t) => {
    const both = asHeader(challengeOf(charge({ amount: "1" }), { realm: "shop.test" }));
    seller.script = {
      onUnpaid: ({ response }) =>
        seller.refuse(response, seller.entry(), { "www-authenticate": both }),
    };
    const sold = seller.proofs.length;
    t.match(await made.fetch({ url }), { status: 200, body: { paid: true, amountPaid: "0.001" } });
    t.equal(seller.proofs.length, sold + 1, "paid by x402");
  });

  await t.test("only the cheaper of two protocols is paid", async (t) => {
    const cheap = challengeOf(charge({ amount: "999" }));
    const credentials: unknown[] = [];
    seller.script = {
      onUnpaid: async ({ request, response }) => {
        const credential = credentialOf(request);
        if (!credential)
          return seller.refuse(response, seller.entry(), { "www-authenticate": asHeader(cheap) });
        credentials.push(credential);
        const { signature, ...authorization } = credential.payload;
        await seller.settle({ accepted: {}, payload: { signature, authorization } });
        response.writeHead(200).end("sold");
      },
    };
    const sold = seller.proofs.length;
    t.match(await made.fetch({ url }), { status: 200, body: { amountPaid: "0.000999" } });
    t.equal(credentials.length, 1);
    t.equal(seller.proofs.length, sold);
    t.match((await made.fetch({ url, dryRun: true })).body["offers"], [
      { protocol: "x402", scheme: "exact" },
      { protocol: "mpp", scheme: "exact" },
    ]);
  });

  await t.test("a second 402 is final, and the signed authorization is canceled", async (t) => {
    const charging = requestOverMpp(seller, () => asHeader(challengeOf(charge())), {
      onCredential: (_credential, response) => {
        const fresh = asHeader(challengeOf(charge()));
        response.writeHead(402, { "www-authenticate": fresh }).end("{}");
      },
    });
    t.match(await made.fetch({ url }), {
      status: 502,
      body: { code: "settlement_failed", paid: false },
    });
    t.equal(charging.credentials.length, 1);
    t.equal(await made.reserved(), "0", "the reserved amount is released");
  });

  await t.test("one challenge, received twice", async (t) => {
    const challenge = challengeOf(charge());
    const charging = requestOverMpp(seller, () => asHeader(challenge));
    const before = await made.balanceOf(PAYEE);
    const calls = Array.from({ length: 6 }, (_, nth) =>
      made.fetch({ url }, { "idempotency-key": `twice-${nth}` }),
    );
    const answers = await Promise.all(calls);
    const codes = answers
      .map(({ status, body }) => (body["code"] as string | undefined) ?? `${status}`)
      .toSorted();
    t.same(codes, ["200", ...Array.from({ length: 5 }, () => "challenge_already_used")]);
    t.equal((await made.balanceOf(PAYEE)) - before, 1000n, "one payment");
    t.equal(charging.credentials.length, 1);
    t.match(await made.fetch({ url }), {
      status: 403,
      body: { code: "challenge_already_used", detail: /already answered this challenge/ },
    });
    t.match(await made.lastPayment(), { status: "blocked", denial_code: "challenge_already_used" });
    t.match(await made.fetch({ url, dryRun: true }), {
      body: { verdict: { allowed: false, code: "challenge_already_used" } },
    });
    const nonce = charging.credentials[0]?.payload.nonce ?? "0x";
    await renumber(made, nonce, FORGOTTEN);
    t.match(
      await made.fetch({ url }, { "idempotency-key": "forgotten" }),
      { body: { code: "challenge_already_used" } },
      "the chain knows the used nonce",
    );
    await renumber(made, FORGOTTEN, nonce);

    await t.test("the same challenge for two agents is two payments", async (t) => {
      const other = await createAgent(made, made.owner, { allowlist: [PAYEE] });
      await chain.mint(other.walletAddress, 1_000_000n);
      const answer = await callApi(made.app, other, "POST", "/api/agents/x402-fetch", { url });
      t.match([answer.statusCode, answer.json()], [200, { paid: true }]);
      const nonces = charging.credentials.map(({ payload }): Hex => payload.nonce);
      t.same(nonces, [nonces[0], nonces[0]], "one nonce");
      t.equal((await made.balanceOf(PAYEE)) - before, 2000n);
    });
  });

  await t.test("no approval for a payment whose nonce the seller chooses", async (t) => {
    requestOverMpp(seller, () => asHeader(challengeOf(charge({ amount: "900000000" }))));
    const answer = await made.fetch(
      { url, requestApproval: true },
      { "idempotency-key": "approve-me" },
    );
    t.match(answer, {
      body: {
        code: /limit_exceeded|insufficient/,
        approvable: false,
        detail: /An approval cannot/,
      },
    });
  });
  await assertLedgerIsChain(t, made);
});

/** As after the deletion of an old row: then only the chain knows that the nonce was used. */
const FORGOTTEN: Hex = `0x${"0".repeat(64)}`;
const renumber = ({ database, agent }: Market, from: Hex, to: Hex) =>
  database.pool.query("UPDATE settlements SET nonce = $3 WHERE agent_id = $1 AND nonce = $2", [
    agent.id,
    from,
    to,
  ]);
