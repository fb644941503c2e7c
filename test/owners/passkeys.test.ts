// Goal: a passkey signs in and signs only for its own owner, at our own pages, with its person verified: nothing is accepted
// twice, for another purpose, or before the owner has signed a list with it. Money goes to the payout address only.
import t, { type Test } from "tap";
import { getAddress, type Hex } from "viem";
import { generatePrivateKey, privateKeyToAccount, type PrivateKeyAccount } from "viem/accounts";
import { PASSKEYS_CHAIN, readPasskeySignature } from "../../server/core/passkeys.ts";
import { createPrisma } from "../../server/infra/db/prisma.ts";
import { createPool } from "../../server/infra/db/pool.ts";
import { verifyDatabase } from "../../server/plugins/audit/verify-cli.ts";
import { callApi } from "../helpers/call.ts";
import { testApp } from "../helpers/app.ts";
import {
  asOwner,
  createAgent,
  nameRecoveryWallet,
  signIn,
  type SignedInOwner,
} from "../helpers/owner.ts";
import {
  passkeyOptions,
  signInWithPasskey,
  signUpWithPasskey,
  testPasskey,
  tryOffer,
  tryPasskeySignIn,
  trySignUp,
  type Said,
  type TestPasskey,
} from "../helpers/passkey.ts";

const service = await testApp(t);
const { app, chain, config, database } = service;
const { pool } = database;
const passkeyHere = () => testPasskey(config.publicUrl);
const wallet = () => privateKeyToAccount(generatePrivateKey());

type Method = "GET" | "POST" | "PUT" | "DELETE";
const call = (who: Pick<SignedInOwner, "headers">, method: Method, url: string, body?: unknown) =>
  callApi(app, who, method, url, body);
const codeOf = (answer: { json: () => unknown }) => (answer.json() as { code?: string }).code;

interface Payout {
  address: string | null;
  since: string | null;
  next: { address: string; from: string } | null;
}

interface ToSign {
  order: Record<string, unknown>;
  typedData: Parameters<PrivateKeyAccount["signTypedData"]>[0];
}

/** The list of passkeys in a request that the owner signs. */
const signList = (owner: SignedInOwner, passkeys: TestPasskey[]) =>
  asOwner(app, owner, {
    method: "PUT",
    url: "/api/passkeys",
    body: { ids: passkeys.map(({ credentialId }) => credentialId) },
  });

/** By the first steps, which ask for one. */
const hasWayBack = async (owner: SignedInOwner): Promise<boolean> =>
  (await call(owner, "GET", "/api/owner/first-steps")).json<{ steps: { recovery: boolean } }>()
    .steps.recovery;

async function add(owner: SignedInOwner, all: TestPasskey[]): Promise<TestPasskey> {
  const passkey = passkeyHere();
  const offered = await tryOffer(service, owner, passkey);
  if (offered.statusCode !== 200) throw new Error(offered.body);
  const signed = await signList(owner, [...all, passkey]);
  if (signed.statusCode !== 200) throw new Error(signed.body);
  return passkey;
}

t.test(
  "an owner without a wallet signs up, signs out, signs in, and has the same agents",
  async (t) => {
    const { passkey, ...owner } = await signUpWithPasskey(service);
    const session = await call(owner, "GET", "/api/auth/session");
    t.match(session.json(), {
      address: getAddress(passkey.address),
      signsWith: "passkeys",
      signedInWith: "passkey",
      second: null,
    });
    const agent = await createAgent(service, owner);
    const again = await tryPasskeySignIn(service, passkey, {}, { headers: owner.headers });
    t.equal(again.statusCode, 200, again.body);
    t.equal((await call(owner, "GET", "/api/auth/session")).statusCode, 401, "the old one ended");
    const next = await signInWithPasskey(service, passkey);
    t.equal((await call(next, "GET", `/api/agents/${agent.id}`)).statusCode, 200);
    const twice = await trySignUp(service, passkey);
    t.equal(codeOf(twice), "passkey_known");
    t.equal(twice.statusCode, 409);
    const list = await call(next, "GET", "/api/passkeys");
    t.match(list.json(), {
      signsWith: "passkeys",
      version: 0,
      passkeys: [{ id: passkey.credentialId, status: "active", ...passkey.key }],
    });
  },
);

t.test("a session is opened only by this passkey, here, once, and for this purpose", async (t) => {
  const { passkey, ...owner } = await signUpWithPasskey(service);
  const other = (await signUpWithPasskey(service)).passkey;
  const wrong: Record<string, Said> = {
    "another page": { origin: "https://evil.example" },
    "another domain": { domain: "evil.example" },
    "no person was verified": { isVerified: false },
    "nobody was present": { isPresent: false },
    "in a frame of another page": { crossOrigin: true },
    "a registration": { type: "webauthn.create" },
  };
  for (const [name, said] of Object.entries(wrong)) {
    const answer = await tryPasskeySignIn(service, passkey, said);
    t.equal(codeOf(answer), "invalid_signature", name);
    t.equal(answer.headers["set-cookie"], undefined, `${name}: no cookie`);
    const made = await trySignUp(service, testPasskey(config.publicUrl, said));
    if (name !== "a registration" && name !== "in a frame of another page")
      t.equal(codeOf(made), "invalid_signature", `sign-up: ${name}`);
  }
  const refusals = await pool.query(
    "SELECT 1 FROM audit_log WHERE action = 'session.refused' AND owner_id = (SELECT owner_id FROM passkeys WHERE id = $1)",
    [passkey.credentialId],
  );
  t.ok(refusals.rows.length > 0, "the owner's audit has the refusals");

  const swapped = await tryPasskeySignIn(
    service,
    other,
    {},
    {
      edit: (credential) => ({ ...credential, id: passkey.credentialId }),
    },
  );
  t.equal(codeOf(swapped), "invalid_signature", "another owner's passkey");
  const unknown = await tryPasskeySignIn(service, passkeyHere());
  t.match(unknown.json(), { code: "invalid_signature", detail: /not known here/ });
  const foreign = await tryPasskeySignIn(
    service,
    passkey,
    {},
    {
      headers: { origin: "https://evil.example" },
    },
  );
  t.equal(codeOf(foreign), "origin_not_allowed");

  const { nonce, challenge } = await passkeyOptions(service, "/api/auth/passkey/sign-in-options");
  const once = { nonce, credential: passkey.get(challenge) };
  const url = "/api/auth/passkey/sign-in";
  const race = await Promise.all(
    [1, 2].map(() =>
      call(
        {
          headers: { origin: config.publicUrl, "content-type": "application/json" },
        },
        "POST",
        url,
        once,
      ),
    ),
  );
  t.same(
    race.map(({ statusCode }) => statusCode).toSorted((a, b) => a - b),
    [200, 401],
    "a nonce works once",
  );

  const prepared = await call(owner, "PUT", "/api/payout", { address: wallet().address });
  const { order, typedData } = prepared.json<ToSign>();
  const digestSigned = await passkey.signTypedData(typedData);
  const challengeOfOrder = challengeIn(digestSigned);
  const next = await passkeyOptions(service, "/api/auth/passkey/sign-in-options");
  const withOrder = { nonce: next.nonce, credential: passkey.get(challengeOfOrder) };
  t.equal(
    codeOf(await call(owner, "POST", url, withOrder)),
    "invalid_signature",
    "an order's digest",
  );
  const options = await passkeyOptions(service, "/api/auth/passkey/sign-in-options");
  const signature = passkey.signHash(
    `0x${Buffer.from(options.challenge, "base64url").toString("hex")}`,
  );
  const reverse = await call(owner, "PUT", "/api/payout", {
    address: order["payout"],
    authorization: { order, signature },
  });
  t.equal(codeOf(reverse), "invalid_signature", "a sign-in is no order");
});

/** The challenge in a passkey's signature: what was signed, in base64url. */
const challengeIn = (signature: Hex): string => {
  const read = readPasskeySignature(signature);
  const said = JSON.parse(Buffer.from(read?.clientData ?? []).toString()) as { challenge: string };
  return said.challenge;
};

t.test("a device that counts back is a copy, and is refused", async (t) => {
  const { passkey } = await signUpWithPasskey(service);
  const at = (count: number) => tryPasskeySignIn(service, passkey, { count });
  t.equal((await at(5)).statusCode, 200);
  t.match((await at(5)).json(), { code: "invalid_signature", detail: /a copy/ });
  t.match((await at(4)).json(), { code: "invalid_signature", detail: /a copy/ });
  t.match((await at(0)).json(), { code: "invalid_signature", detail: /a copy/ });
  t.equal((await at(6)).statusCode, 200);
});

t.test("a new passkey signs nothing until the owner has signed a list with it", async (t) => {
  const owner = await signUpWithPasskey(service);
  const second = passkeyHere();
  t.equal((await tryOffer(service, owner, second)).statusCode, 200);
  t.equal(codeOf(await tryOffer(service, owner, second)), "passkey_known");
  t.equal(await hasWayBack(owner), false);
  const early = await tryPasskeySignIn(service, second);
  t.match(early.json(), { code: "invalid_signature", detail: /list/ });
  const bySecond = { ...owner, account: second as unknown as PrivateKeyAccount };
  t.equal(codeOf(await signList(bySecond, [second])), "invalid_signature", "it cannot list itself");
  const foreign = (await signUpWithPasskey(service)).passkey;
  t.equal(codeOf(await signList(owner, [owner.passkey, foreign])), "validation_failed");
  t.equal(codeOf(await signList(owner, [])), "validation_failed", "one stays");

  const listed = await signList(owner, [owner.passkey, second]);
  t.match(listed.json(), { version: 1, passkeys: [{ status: "active" }, { status: "active" }] });
  t.equal(await hasWayBack(owner), true);
  const phone = await signInWithPasskey(service, second);
  await createAgent(service, phone);

  const removed = await signList(phone, [second]);
  t.match(removed.json(), { version: 2, passkeys: [{ status: "removed" }, { status: "active" }] });
  t.equal((await call(owner, "GET", "/api/auth/session")).statusCode, 401, "its session ended");
  t.match((await tryPasskeySignIn(service, owner.passkey)).json(), { detail: /removed/ });
  const byRemoved = { ...phone, account: owner.account };
  const body = { method: "PUT" as const, url: "/api/payout", body: { address: wallet().address } };
  t.equal(codeOf(await asOwner(app, byRemoved, body)), "invalid_signature");
  t.equal(codeOf(await signList(phone, [second, owner.passkey])), "validation_failed", "for good");
  t.equal(codeOf(await trySignUp(service, owner.passkey)), "passkey_known");
});

t.test("of two lists that are signed at once, one counts", async (t) => {
  const owner = await signUpWithPasskey(service);
  const extras = [passkeyHere(), passkeyHere()];
  for (const extra of extras) await tryOffer(service, owner, extra);
  const put = async (extra: TestPasskey) => {
    const body = { ids: [owner.passkey.credentialId, extra.credentialId] };
    const { order, typedData } = (await call(owner, "PUT", "/api/passkeys", body)).json<ToSign>();
    const signature = await owner.passkey.signTypedData(typedData);
    return { ...body, authorization: { order, signature } };
  };
  const bodies = await Promise.all(extras.map(put));
  const answers = await Promise.all(
    bodies.map((body) => call(owner, "PUT", "/api/passkeys", body)),
  );
  t.same(
    answers.map(({ statusCode }) => statusCode).toSorted((a, b) => a - b),
    [200, 409],
  );
  const list = (await call(owner, "GET", "/api/passkeys")).json<{ version: number }>();
  t.equal(list.version, 1);
});

t.test("an owner has at most 20 passkeys, and old offers give way", async (t) => {
  const owner = await signUpWithPasskey(service);
  await pool.query(
    `INSERT INTO passkeys (id, owner_id, name, x, y, status)
     SELECT 'offered-' || n, owner_id, 'Phone', '0x' || lpad(to_hex(n), 64, '0'), y, 'offered'
       FROM passkeys, generate_series(1, 19) n WHERE id = $1`,
    [owner.passkey.credentialId],
  );
  const full = await tryOffer(service, owner, passkeyHere());
  t.match(full.json(), { code: "conflict", detail: /at most 20/ });
  await pool.query(
    "UPDATE passkeys SET created_at = now() - interval '25 hours' WHERE status = 'offered'",
  );
  t.equal((await tryOffer(service, owner, passkeyHere())).statusCode, 200);
  const { passkeys } = (await call(owner, "GET", "/api/passkeys")).json<{ passkeys: unknown[] }>();
  t.equal(passkeys.length, 2);
});

t.test(
  "a wallet's owner adds a passkey, which signs its orders and withdraws to the wallet only",
  async (t) => {
    const owner = await signIn(service);
    t.equal(await hasWayBack(owner), false);
    const passkey = await add(owner, []);
    t.equal(await hasWayBack(owner), true);
    const byPasskey = await signInWithPasskey(service, passkey);
    const session = (await call(byPasskey, "GET", "/api/auth/session")).json<{ address: string }>();
    t.match(session, {
      address: owner.account.address,
      signsWith: "wallet",
      signedInWith: "passkey",
    });
    const agent = await createAgent(service, byPasskey);
    await chain.mint(agent.walletAddress, 2_000_000n);
    const withdraw = async (to: string) => {
      const url = `/api/agents/${agent.id}/withdrawals`;
      const prepared = await call(byPasskey, "POST", `${url}/prepare`, { amount: "1", to });
      const { order, typedData } = prepared.json<ToSign>();
      return call(byPasskey, "POST", url, {
        order,
        signature: await passkey.signTypedData(typedData),
      });
    };
    t.equal(codeOf(await withdraw(wallet().address)), "payout_address_only");
    const home = await withdraw(owner.account.address);
    t.equal(home.statusCode, 200, home.body);
    t.equal((await signList(owner, [])).statusCode, 200, "a wallet's owner needs no passkey");
    t.equal((await call(byPasskey, "GET", "/api/auth/session")).statusCode, 401);
    t.equal(codeOf(await call(owner, "GET", "/api/payout")), "conflict");
    t.equal(
      codeOf(await call(owner, "PUT", "/api/payout", { address: wallet().address })),
      "conflict",
    );
  },
);

t.test(
  "an owner without a wallet withdraws to the payout address in force, and nowhere else",
  async (t) => {
    const owner = await signUpWithPasskey(service);
    const agent = await createAgent(service, owner);
    await chain.mint(agent.walletAddress, 3_000_000n);
    const url = `/api/agents/${agent.id}/withdrawals`;
    const prepare = (body: object) => call(owner, "POST", `${url}/prepare`, body);
    t.equal(codeOf(await prepare({ amount: "1" })), "payout_address_missing");
    const payout = async () => (await call(owner, "GET", "/api/payout")).json<Payout>();
    t.same(await payout(), { address: null, since: null, next: null });
    t.equal(
      codeOf(await call(owner, "GET", "/api/owner/balance")),
      "conflict",
      "there is no wallet",
    );
    const name = (address: string) =>
      asOwner(app, owner, { method: "PUT", url: "/api/payout", body: { address } });
    for (const nobody of [
      owner.passkey.address,
      config.networks[0].usdc.address,
      `0x${"0".repeat(40)}`,
    ])
      t.equal(codeOf(await name(getAddress(nobody))), "invalid_address", nobody);
    const first = wallet().address;
    const named = await name(first);
    const { since } = named.json<Payout>();
    t.same(named.json(), { address: first, since, next: null }, "the first is in force at once");
    t.ok(Math.abs(Date.parse(since ?? "") - Date.now()) < 60_000, "since then");
    const later = wallet().address;
    const change = { address: first, since, next: { address: later } };
    t.match((await name(later)).json(), change);
    t.equal(codeOf(await prepare({ amount: "1", to: later })), "payout_address_only");
    const prepared = await prepare({ amount: "1" });
    const { order, typedData } = prepared.json<ToSign>();
    t.equal(order["to"], first, "the default");
    const signature = await owner.passkey.signTypedData(typedData);
    const done = await call(owner, "POST", url, { order, signature });
    t.match(done.json(), { success: true, recipient: first });
    const wrongly = { ...order, to: later };
    const signed = await owner.passkey.signTypedData({
      ...typedData,
      message: { ...typedData.message, to: later },
    });
    const elsewhere = await call(owner, "POST", url, { order: wrongly, signature: signed });
    t.equal(codeOf(elsewhere), "payout_address_only");
    t.same((await name(first)).json(), { address: first, since, next: null }, "taken back");
    t.match((await name(later)).json(), change);
    const { from } = (await payout()).next ?? {};
    // As if this order were older; custody would refuse it, because the deadline is signed.
    const shift = (seconds: number) =>
      pool.query(
        `UPDATE owner_orders SET document = jsonb_set(document, '{deadline}', to_jsonb(((document->>'deadline')::bigint + $2)::text))
          WHERE kind = 'PayoutAddress' AND document->>'version' = '4'
            AND owner_id = (SELECT owner_id FROM passkeys WHERE id = $1)`,
        [owner.passkey.credentialId, seconds],
      );
    await shift(-90_000);
    t.same(
      await payout(),
      {
        address: later,
        since: new Date(Date.parse(from ?? "") - 90_000_000).toISOString(),
        next: null,
      },
      "a change that has waited is in force, since then",
    );
    await shift(90_000);

    const other = await signUpWithPasskey(service);
    const noWallet = await call(owner, "PUT", "/api/recovery/second", {
      address: getAddress(other.passkey.address),
      chainId: PASSKEYS_CHAIN,
    });
    t.equal(codeOf(noWallet), "validation_failed", noWallet.body);
    t.match(noWallet.body, /must be a wallet/);
    const recovery = wallet();
    await nameRecoveryWallet(app, owner, recovery);
    const second = await signIn(service, recovery, getAddress(owner.passkey.address));
    const bySecond = await call(second, "POST", `${url}/prepare`, {
      amount: "1",
      to: recovery.address,
    });
    t.equal(codeOf(bySecond), "second_wallet_only_tightens");
  },
);

t.test("where the service has no domain, there are no passkeys", async (t) => {
  const { passkeys } = config;
  config.passkeys = undefined;
  t.teardown(() => Object.assign(config, { passkeys }));
  const answer = await app.inject({ url: "/api/auth/passkey/sign-in-options" });
  t.equal(codeOf(answer), "passkeys_not_available");
  t.equal((await app.inject({ url: "/api/info" })).json<{ passkeys: unknown }>().passkeys, null);
});

t.test("every audit of these owners is valid", async (t: Test) => {
  const own = createPool(database.url, { maxConnections: 2 });
  const prisma = createPrisma(own);
  const output: string[] = [];
  t.ok(
    await verifyDatabase(prisma, { owner: undefined, noted: [] }, (line) => output.push(line)),
    output.filter((line) => line.startsWith("FAILED")).join("; "),
  );
  await prisma.$disconnect();
  await own.end();
});
