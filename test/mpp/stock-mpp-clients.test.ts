// Goal: published MPP clients pay our paywall unmodified, mppx's own validator reports no fault, and one
// credential pays for one response of one resource.
import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { decodePaymentRequiredHeader } from "@x402/core/http";
import type { PaymentRequired } from "@x402/core/types";
import { Challenge } from "mppx";
import { evm, Mppx } from "mppx/client";
import t from "tap";
import type { Address } from "viem";
import { fromBase64Url, toBase64Url } from "../../packages/paywall/src/mpp-wire.ts";
import { testApp } from "../helpers/app.ts";
import { shop, PAID, type Shop } from "./shop.ts";
import { stockClient } from "../paywall/stock.ts";

const run = promisify(execFile);

interface Validated {
  summary: { failed: number };
  endpoints: Record<"challenge" | "errorHandling", { label: string; severity: string }[]>[];
}

const methodOf = ({ chain, payer }: Shop) =>
  evm.charge({
    account: payer,
    authorization: { name: "USDC", version: "2" },
    currencies: [chain.usdc],
    networks: [chain.chainId],
    decimals: 6,
  });

/**
 * A credential of the published client for our challenge, optionally modified before or after it is signed.
 */
async function credentialFor(
  made: Shop,
  path = PAID,
  bend: (challenge: Challenge.Challenge) => Challenge.Challenge = (challenge) => challenge,
): Promise<string> {
  const unpaid = await fetch(`${made.baseUrl}${path}`);
  const [challenge] = Challenge.fromResponseList(unpaid);
  if (!challenge) throw new Error("no challenge");
  const context = { challenge: bend(challenge) as never, context: {} };
  return methodOf(made).createCredential(context);
}

const show = (made: Shop, authorization: string, path = PAID, headers = {}) =>
  fetch(`${made.baseUrl}${path}`, { headers: { authorization, ...headers } });

const rebuilt = (credential: string, change: (parts: Record<string, object>) => object): string =>
  `Payment ${toBase64Url(change(fromBase64Url(credential.slice(8)) as Record<string, object>))}`;

t.test("a paywall that also requests payment over MPP", async (t) => {
  const made = await shop(t);
  const { baseUrl, payer } = made;

  await t.test("mppx pays", async (t) => {
    const before = await made.held();
    const { fetch: pay } = Mppx.create({ methods: [methodOf(made)], polyfill: false });
    const answer = await pay(`${baseUrl}${PAID}`);
    t.equal(answer.status, 200, await answer.clone().text());
    t.match(await answer.json(), { height: Number });
    t.equal(before - (await made.held()), 1000n);
    t.match(fromBase64Url(answer.headers.get("payment-receipt") ?? ""), {
      method: "evm",
      status: "success",
      reference: /^0x[0-9a-f]{64}$/,
    });
    t.equal(answer.headers.get("payment-response"), null, "paid by MPP, not by x402");
  });

  await t.test("mppx validate reports no fault", async (t) => {
    const bin = new URL("../../node_modules/mppx/dist/bin.js", import.meta.url).pathname;
    const args = [bin, "validate", baseUrl, "--endpoint", `GET:${PAID}`, "--output-json"];
    const { stdout } = await run(process.execPath, args, { maxBuffer: 16 * 1024 * 1024 }).catch(
      (error: unknown) => ({ stdout: String((error as { stdout?: string }).stdout) }),
    );
    const { summary, endpoints } = JSON.parse(stdout) as Validated;
    t.match(summary, { failed: 0 }, JSON.stringify(endpoints));
    const passed = endpoints
      .flatMap(({ challenge, errorHandling }) => [...challenge, ...errorHandling])
      .filter(({ severity }) => severity === "pass")
      .map(({ label }) => label);
    for (const label of [
      "Challenge parseable",
      "Challenge expires in the future",
      "Realm matches server hostname",
      "Valid recipient address",
      "Has chainId",
      "Malformed credential returns 402",
      "Error response includes fresh challenge",
    ])
      t.ok(passed.includes(label), `${label}: ${JSON.stringify(endpoints)}`);
  });

  await t.test("one credential gets one response", async (t) => {
    const before = await made.held();
    const rows = await made.settlements();
    const credential = await credentialFor(made);
    const answers = await Promise.all(Array.from({ length: 8 }, () => show(made, credential)));
    const statuses = answers.map(({ status }) => String(status)).toSorted();
    t.same(statuses, ["200", ...Array.from({ length: 7 }, () => "402")]);
    t.equal((await show(made, credential)).status, 402, "nor later");
    t.equal(before - (await made.held()), 1000n, "paid once");
    t.equal(await made.settlements(), rows + 1);
  });

  await t.test("modified credentials are refused, and nothing is settled", async (t) => {
    const before = await made.held();
    const rows = await made.settlements();
    const late = (challenge: Challenge.Challenge) => ({
      ...challenge,
      expires: new Date(Date.now() + 3_600_000).toISOString(),
    });
    const other = (over: object) => (challenge: Challenge.Challenge) => ({
      ...challenge,
      request: { ...challenge.request, ...over },
    });
    const honest = await credentialFor(made);
    const foreign = await credentialFor(made, PAID, (challenge) =>
      Challenge.from({ ...challenge, id: undefined, secretKey: "f".repeat(64) } as never),
    );
    const bent = (payload: object) =>
      rebuilt(honest, (parts) => ({ ...parts, payload: { ...parts["payload"], ...payload } }));
    const NOBODY: Address = "0x90F79bf6EB2c4f870365E785982E1f101E93b906";
    const refused: Record<string, [string, RegExp]> = {
      "a longer life": [await credentialFor(made, PAID, late), /did not issue/],
      "a lower price": [await credentialFor(made, PAID, other({ amount: "1" })), /did not issue/],
      "another payee": [
        await credentialFor(made, PAID, other({ recipient: NOBODY })),
        /did not issue/,
      ],
      "another server's": [foreign, /did not issue/],
      "another resource's": [await credentialFor(made, `${PAID}?x=1`), /different resource/],
      "another nonce": [bent({ nonce: `0x${"ab".repeat(32)}` }), /not the hash of the challenge/],
      "a hash of a transaction": [bent({ type: "hash" }), /type authorization/],
      "another source": [
        rebuilt(honest, (parts) => ({ ...parts, source: `did:pkh:eip155:1:${NOBODY}` })),
        /source is not the payer/,
      ],
      "no JSON": ["Payment dGhpcyBpcyBnYXJiYWdl", /not readable/],
    };
    for (const [what, [credential, why]] of Object.entries(refused)) {
      const answer = await show(made, credential);
      t.equal(answer.status, 402, what);
      t.match(await answer.json(), { error: why }, what);
      t.match(answer.headers.get("www-authenticate"), /^Payment id="/, `${what}: a new challenge`);
    }
    const unsigned = await show(made, bent({ value: "1" }));
    t.match([unsigned.status, await unsigned.json()], [402, { success: false }], "its signature");
    t.match(unsigned.headers.get("www-authenticate"), /^Payment id="/, "a new challenge");
    const unpaid = await fetch(`${baseUrl}${PAID}`);
    const required = Buffer.from(unpaid.headers.get("payment-required") ?? "", "base64");
    const proof = await stockClient(made.chain, payer).createPaymentPayload(
      JSON.parse(required.toString()) as never,
    );
    const two = await show(made, honest, PAID, { "payment-signature": encode(proof) });
    t.match([two.status, await two.json()], [402, { error: /two proofs/ }]);
    t.equal(await made.held(), before);
    t.equal(await made.settlements(), rows);
    t.equal((await show(made, honest)).status, 200, "the unmodified credential is accepted");
  });

  await t.test("a price by use is paid in advance over MPP", async (t) => {
    const before = await made.held();
    const { fetch: pay } = Mppx.create({ methods: [methodOf(made)], polyfill: false });
    const answer = await pay(`${baseUrl}${BLOCKS}?from=0&count=2`);
    t.match(
      [answer.status, await answer.json()],
      [200, { blocks: [{ height: 0 }, { height: 1 }] }],
      "the answer",
    );
    t.match(fromBase64Url(answer.headers.get("payment-receipt") ?? ""), { status: "success" });
    t.equal(before - (await made.held()), 2000n, "0.001 for each block");
    const required = await priceAt(`${baseUrl}${BLOCKS}?from=0&count=2`);
    t.match(required.accepts, [
      { scheme: "upto", amount: "50000" },
      { scheme: "exact", amount: "2000" },
    ]);
    const rows = await made.settlements();
    const beyond = `${BLOCKS}?from=999999&count=2`;
    const refused = await show(made, await credentialFor(made, beyond), beyond);
    t.match([refused.status, await refused.json()], [404, { detail: /Nothing was paid/ }]);
    t.same([before - (await made.held()), await made.settlements()], [2000n, rows]);
  });

  await t.test("the price comes before what is wrong with the parameters", async (t) => {
    const before = await made.held();
    const rows = await made.settlements();
    // With a maximum, and in advance over EIP-3009 and over Permit2.
    for (const [wrong, amounts] of [
      ["", ["50000", "10000", "10000"]],
      ["?from=abc&count=2", ["50000", "2000", "2000"]],
      ["?from=1&count=51", ["50000"]],
    ] as const) {
      const url = `${baseUrl}${BLOCKS}${wrong}`;
      const required = await priceAt(url);
      t.same(
        required.accepts.map(({ amount }) => amount),
        amounts,
        `${wrong}: at most, and in advance where the number of blocks is known`,
      );
      const proofs: Record<string, string>[] = [
        { "payment-signature": encode({ x402Version: 2, payload: {}, accepted: {} }) },
        { authorization: await credentialFor(made, `${BLOCKS}?from=0&count=2`) },
      ];
      for (const headers of proofs) {
        const paid = await fetch(url, { headers });
        t.match([paid.status, await paid.json()], [422, { code: "validation_failed" }], wrong);
      }
    }
    const unpaid = await fetch(`${baseUrl}${BLOCKS}`);
    t.match(unpaid.headers.get("www-authenticate"), /^Payment id="/, "over MPP too");
    t.equal((await fetch(`${baseUrl}${BLOCKS}`, { method: "HEAD" })).status, 402);
    const withKey = await fetch(`${baseUrl}${BLOCKS}`, { headers: { authorization: "Bearer x" } });
    t.equal(withKey.status, 402, "an API key is no payment");
    t.same([await made.held(), await made.settlements()], [before, rows], "nothing was charged");
  });

  await t.test("another replica accepts this replica's challenge", async (t) => {
    const { database, chain } = made;
    const replica = await testApp(t, {
      database,
      chain,
      listen: true,
      env: { PUBLIC_URL: made.config.publicUrl, SETTLE_WAIT_MS: "10000" },
    });
    const credential = await credentialFor(made);
    const [here, there] = await Promise.all([
      show(made, credential),
      fetch(`${replica.baseUrl}${PAID}`, { headers: { authorization: credential } }),
    ]);
    t.same([here.status + there.status], [602], "and it pays at only one of them");
  });
});

const BLOCKS = "/api/arc-blocks";

async function priceAt(url: string): Promise<PaymentRequired> {
  const unpaid = await fetch(url);
  if (unpaid.status !== 402) throw new Error(`${unpaid.status}: ${await unpaid.text()}`);
  return decodePaymentRequiredHeader(unpaid.headers.get("payment-required") ?? "");
}

const encode = (value: unknown): string => Buffer.from(JSON.stringify(value)).toString("base64");
