// Goal: where addresses are screened, a listed one neither pays nor is paid, in no place and whatever the service does;
// an owner's withdrawal always works; and no open payment gets stuck or is paid twice.
// Own process (a hook of the whole file).
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import t from "tap";
import { writeTeamSignature } from "../../server/core/teams.ts";
import { generatePrivateKey, privateKeyToAccount, type PrivateKeyAccount } from "viem/accounts";
import { post, signedPayment } from "../facilitator/payments.ts";
import { testApp, type TestApp } from "../helpers/app.ts";
import { callApi, spendAs } from "../helpers/call.ts";
import {
  asOwner,
  createAgent,
  freshNonce,
  nameRecoveryWallet,
  signIn,
  signOrder,
  siweMessage,
  verify,
  type NewTestAgent,
  type SignedInOwner,
} from "../helpers/owner.ts";
import { makeTeam, teamCalls } from "../helpers/team.ts";
import { pay, signedRefund, send, refundUrl } from "../merchants/world.ts";
import { assertAuditsHold } from "../owners/audit.helper.ts";
import { market, PAYEE } from "../x402-client/market.ts";
import { localServer } from "../x402-client/sellers.ts";
import { expressSeller, ourFacilitator } from "../x402-client/stock-sellers.ts";

const account = (): PrivateKeyAccount => privateKeyToAccount(generatePrivateKey());
const TOKEN = "the-token-of-the-service";

/** The operator's service, as the test wants it now. */
const listed = new Set<string>();
const asked: string[][] = [];
let isDown = false;
const service = await localServer(t, (request, response) => {
  let text = "";
  request.on("data", (part: Buffer) => (text += part.toString()));
  request.on("end", () => {
    const { addresses } = JSON.parse(text) as { addresses: string[] };
    asked.push(addresses);
    if (isDown || request.headers.authorization !== `Bearer ${TOKEN}`)
      response.writeHead(503).end();
    else
      response.end(JSON.stringify({ blocked: addresses.filter((address) => listed.has(address)) }));
  });
});
const list = (...addresses: string[]) => {
  listed.clear();
  for (const address of addresses) listed.add(address.toLowerCase());
};
t.afterEach(() => {
  list();
  isDown = false;
});

const env = (fails: "open" | "closed") => ({
  SCREENING_URL: `${service.origin}/screen`,
  SCREENING_TOKEN: TOKEN,
  SCREENING_FAILS: fails,
});
// Each question reaches the service.
const timings = { screeningFreshMs: 0 };
const made = await market(t, { env: env("closed"), timings, listen: true });
const { app, chain, database, seller } = made;
const replica = await testApp(t, { chain, database, env: env("open"), timings });
replica.config.fetchPrivateOrigins.push(seller.origin);

const owner = await signIn(made);
const agent = await createAgent(made, owner, { allowlist: [PAYEE] });
await chain.mint(agent.walletAddress, 5_000_000n);
const payer = account();
await chain.mint(payer.address, 1_000_000_000n);
const merchant = await signIn(made);
const settlementId = await pay({ app, chain, payer }, merchant.account.address);
await chain.mint(merchant.account.address, 1_000_000n);
const { pool } = database;

interface Seen {
  status: number;
  code: string | undefined;
}
const seen = ({ statusCode, json }: { statusCode: number; json: () => unknown }): Seen => ({
  status: statusCode,
  code: (json() as { code?: string }).code,
});
const protocol = (answer: Record<string, unknown>): Seen => ({
  status: 200,
  code: (answer["invalidReason"] ?? answer["errorReason"]) as string | undefined,
});
const ownerOn = ({ config }: TestApp, who: SignedInOwner): SignedInOwner => ({
  ...who,
  headers: { ...who.headers, origin: config.publicUrl },
});
const trySignIn = async (where: TestApp, who: PrivateKeyAccount): Promise<Seen> => {
  const nonce = await freshNonce(where.app);
  const message = siweMessage(where, { nonce, address: who.address });
  return seen(await verify(where, { message, signature: await who.signMessage({ message }) }));
};
const facilitate = async (where: TestApp, operation: "verify" | "settle") =>
  protocol(
    await post(
      where.app,
      operation,
      await signedPayment({ chain, payer, payTo: PAYEE, amount: "1000" }),
    ),
  );
const spend = async (where: TestApp, who: NewTestAgent = agent) =>
  seen(await spendAs(where.app, who, { recipient: PAYEE, amount: "0.001" }));
const fetchPaid = async (where: TestApp, more: object = {}) =>
  callApi(where.app, agent, "POST", "/api/agents/x402-fetch", { url: seller.url, ...more });
const newAgent = async (where: TestApp) =>
  seen(
    await asOwner(where.app, ownerOn(where, owner), {
      method: "POST",
      url: "/api/agents",
      body: { name: "Another", dailyLimit: "1", allowlist: [PAYEE] },
    }),
  );
const refund = async (where: TestApp) => {
  const who = ownerOn(where, merchant);
  const authorization = await signedRefund(where, who, settlementId, "0.001");
  const { status, body } = await send(where, who, "POST", refundUrl(settlementId), {
    authorization,
  });
  return { status, code: body["code"] as string | undefined };
};

/** Each place, and what a listed address and a service that is down mean there. `pass`: as if nothing was screened. */
interface Row {
  place: string;
  act: (where: TestApp) => Promise<Seen>;
  of: string;
  pass: Seen;
  listed: Seen | "pass";
  closed: Seen | "pass";
}
const ok = (status = 200): Seen => ({ status, code: undefined });
const denied = (code: string): Seen => ({ status: 403, code });
const DOWN: Seen = { status: 503, code: "screening_unavailable" };
const [REFUSED, UNKNOWN] = ["address_screened", "screening_unavailable"].map((code) => ({
  status: 200,
  code,
})) as [Seen, Seen];
const known = owner.account;
const listedStranger = account();
const facilitator = { pass: ok(), listed: REFUSED, closed: UNKNOWN };
const orders = { pass: ok(201), listed: denied("account_screened"), closed: DOWN };
const agents = { pass: ok(), listed: denied("payee_screened"), closed: DOWN };
const ofOwner = { ...agents, listed: denied("account_screened"), of: known.address };
const TABLE: Row[] = [
  {
    place: "verify, payee",
    act: (where) => facilitate(where, "verify"),
    of: PAYEE,
    ...facilitator,
  },
  {
    place: "verify, payer",
    act: (where) => facilitate(where, "verify"),
    of: payer.address,
    ...facilitator,
  },
  {
    place: "settle, payee",
    act: (where) => facilitate(where, "settle"),
    of: PAYEE,
    ...facilitator,
  },
  {
    place: "settle, payer",
    act: (where) => facilitate(where, "settle"),
    of: payer.address,
    ...facilitator,
  },
  { place: "spend", act: (where) => spend(where), of: PAYEE, ...agents },
  { place: "fetch", act: async (where) => seen(await fetchPaid(where)), of: PAYEE, ...agents },
  { place: "spend, owner", act: (where) => spend(where), ...ofOwner },
  { place: "fetch, owner", act: async (where) => seen(await fetchPaid(where)), ...ofOwner },
  { place: "spend, wallet", act: (where) => spend(where), ...ofOwner, of: agent.walletAddress },
  { place: "refund, customer", act: refund, of: payer.address, ...agents },
  { place: "refund, merchant", act: refund, of: merchant.account.address, ...agents },
  { place: "order", act: newAgent, of: known.address, ...orders },
  {
    place: "sign-in, owner",
    act: (where) => trySignIn(where, known),
    of: known.address,
    pass: ok(),
    listed: "pass",
    closed: "pass",
  },
  {
    place: "sign-up",
    act: (where) => trySignIn(where, listedStranger),
    ...ofOwner,
    of: listedStranger.address,
  },
];

async function countOf({ app }: TestApp, outcome: string): Promise<number> {
  const metric = await app.metrics.getSingleMetric("purser_screening_total")?.get();
  return (metric?.values ?? [])
    .filter(({ labels }) => labels["outcome"] === outcome)
    .reduce((sum, { value }) => sum + value, 0);
}

const settlements = async (): Promise<number> =>
  Number((await pool.query<{ n: string }>("SELECT count(*) AS n FROM settlements")).rows[0]?.n);

for (const { place, act, of, pass, ...expected } of TABLE)
  t.test(`${place}: listed, unknown, and not listed`, async (t) => {
    const before = await settlements();
    list(of);
    for (const where of [made, replica])
      t.same(await act(where), expected.listed === "pass" ? pass : expected.listed, "listed");
    isDown = true;
    t.same(await act(made), expected.closed === "pass" ? pass : expected.closed, "down, closed");
    t.equal(await settlements(), before, "nothing was stored as a payment, and nothing sent");
    const unchecked = await countOf(replica, "unchecked");
    // Who signs up stays out until the end, so that the place can be seen once more.
    if (place !== "sign-up") t.same(await act(replica), pass, "down, open");
    if (expected.closed !== "pass" && place !== "sign-up")
      t.ok((await countOf(replica, "unchecked")) > unchecked, "it was counted");
    list();
    isDown = false;
    t.same(await act(made), pass, "not listed");
  });

t.test(
  "a refusal says neither which list nor why, and one question has all addresses",
  async (t) => {
    list(PAYEE);
    asked.length = 0;
    const answer = await spendAs(
      app,
      agent,
      { recipient: PAYEE, amount: "0.001", requestApproval: true },
      "key",
    );
    t.match(answer.json(), {
      code: "payee_screened",
      blocked: true,
      retryable: false,
      detail: "This service does not pay this address.",
      policy: { rule: "target" },
    });
    t.notMatch(answer.json(), { approvable: true });
    t.same(asked, [[PAYEE, agent.walletAddress, known.address].map((one) => one.toLowerCase())]);
    const quote = await fetchPaid(made, { dryRun: true });
    t.match(quote.json(), { paid: false, verdict: { allowed: false, code: "payee_screened" } });
    const shown = await callApi(app, owner, "GET", `/api/agents/${agent.id}/payments`);
    const { items } = shown.json<{ items: { id: string }[] }>();
    const { paymentId } = answer.json<{ paymentId: string }>();
    t.match(
      items.find(({ id }) => id === paymentId),
      { status: "blocked", denial: { code: "payee_screened" } },
    );
    t.equal(
      (await spendAs(app, agent, { recipient: PAYEE, amount: "0.001" }, "key")).statusCode,
      403,
    );
    list();
    const again = await spendAs(app, agent, { recipient: PAYEE, amount: "0.001" }, "key");
    t.equal(again.statusCode, 200, "the key was not used up");
    list(PAYEE);
    const replayed = await spendAs(app, agent, { recipient: PAYEE, amount: "0.001" }, "key");
    t.equal(replayed.statusCode, 200, "what was paid before is answered as before");
    t.same(replayed.json(), again.json());
    t.notMatch(made.logs.join(""), new RegExp(TOKEN));
  },
);

t.test(
  "a listed owner reads, tightens and withdraws, also while the service is down",
  async (t) => {
    const who = await signIn(made);
    const own = await createAgent(made, who, { allowlist: [PAYEE] });
    await chain.mint(own.walletAddress, 1_000_000n);
    const wallet = account();
    await nameRecoveryWallet(app, who, wallet);
    for (const down of [false, true]) {
      list(who.account.address, wallet.address);
      isDown = down;
      const session = await signIn(made, who.account);
      await signIn(made, wallet, who.account.address);
      const request = (method: "GET" | "PATCH" | "POST", url: string, body?: unknown) =>
        asOwner(app, session, { method, url, body });
      t.match((await request("GET", "/api/agents")).json(), { items: [{ id: own.id }] });
      const raised = await request("PATCH", `/api/agents/${own.id}`, { dailyLimit: "50" });
      t.equal(seen(raised).code, down ? "screening_unavailable" : "account_screened");
      t.equal(
        (await request("PATCH", `/api/agents/${own.id}`, { dailyLimit: down ? "1" : "2" }))
          .statusCode,
        200,
      );
      const key = await request("POST", `/api/agents/${own.id}/keys`, { label: "another" });
      t.equal(seen(key).code, down ? "screening_unavailable" : "account_screened");
      const path = `/api/agents/${own.id}/withdrawals`;
      const prepared = await callApi(app, session, "POST", `${path}/prepare`, { amount: "0.4" });
      const { order, typedData } = prepared.json<{ order: unknown; typedData: never }>();
      const signature = await who.account.signTypedData(typedData);
      const before = await chain.usdcOf(who.account.address);
      const withdrawn = await callApi(app, session, "POST", path, { order, signature });
      t.equal(withdrawn.statusCode, 200, withdrawn.body);
      t.equal((await chain.usdcOf(who.account.address)) - before, 400_000n);
    }
    isDown = false;
    const read = await callApi(app, who, "GET", "/api/merchant");
    t.equal(read.statusCode, 200, "a merchant reads");
    const { rows } = await pool.query<{ body: string }>(
      `SELECT l.body FROM audit_log l JOIN owners o ON o.id = l.owner_id
      WHERE o.address = $1 AND l.action = 'screening.refused' ORDER BY l.seq`,
      [who.account.address.toLowerCase()],
    );
    t.match(
      rows.map(({ body }) => JSON.parse(body) as unknown),
      [
        { after: { code: "account_screened", method: "PATCH" } },
        { after: { code: "account_screened", method: "POST", route: "/api/agents/:id/keys" } },
      ],
    );
  },
);

t.test("nobody signs for another in place of a listed owner", async (t) => {
  const who = await signIn(made);
  const wallet = account();
  await nameRecoveryWallet(app, who, wallet);
  const move = () =>
    asOwner(app, who, { method: "POST", url: "/api/recovery/move", body: {} }, wallet);
  for (const { address } of [wallet, who.account]) {
    list(address);
    t.same(seen(await move()), denied("account_screened"), "no move from it, and none to it");
  }
  list();
  const [ada, bob] = [await signIn(made), await signIn(made)];
  await makeTeam(
    made,
    [
      [ada, "admin"],
      [bob, "admin"],
    ],
    { threshold: 2 },
  );
  const { order, sign, send, signatureOf, carryOut } = teamCalls(app);
  const body = { name: "Of the team", dailyLimit: "1", allowlist: [PAYEE] };
  list(bob.account.address);
  const waiting = await order(ada, "POST", "/api/agents", body);
  t.equal(waiting.status, 202, "an order of who is not listed");
  t.match(await order(bob, "POST", "/api/agents", body), {
    status: 403,
    body: { code: "account_screened" },
  });
  t.match(await sign(bob, waiting.body.id), { status: 403, body: { code: "account_screened" } });
  list();
  // Whoever joins the signatures, and whenever they were made: the listed one is in it.
  const signature = await signatureOf(bob, waiting.body.id);
  const asked = await send(ada, "POST", "/api/agents", body);
  const own = await signOrder(ada.account, asked.body);
  const theirs = await signOrder(bob.account, asked.body);
  const parts = [
    [ada, own],
    [bob, theirs],
  ] as const;
  const joined = writeTeamSignature(
    parts.map(([who, signed]) => ({
      address: who.account.address.toLowerCase(),
      signature: signed?.signature ?? "0x",
    })),
  );
  const authorization = { order: own?.order, signature: joined };
  const sendJoined = () => send(ada, "POST", "/api/agents", { ...body, authorization });
  list(bob.account.address);
  t.match(await sendJoined(), { status: 403, body: { code: "account_screened" } });
  list();
  t.equal((await sendJoined()).status, 201, "the same, of two who are not listed");
  t.match(await send(bob, "POST", `/api/waiting-orders/${waiting.body.id}/sign`, { signature }), {
    status: 200,
  });
  list(bob.account.address);
  t.match(await carryOut(ada, await send(ada, "GET", `/api/waiting-orders/${waiting.body.id}`)), {
    status: 403,
    body: { code: "account_screened" },
  });
  list();
  t.equal((await move()).statusCode, 200);
});

t.test(
  "a payment of a listed owner's agent is refused, recorded, and nothing lifts it",
  async (t) => {
    list(known.address);
    const answer = await spendAs(app, agent, {
      recipient: PAYEE,
      amount: "0.001",
      requestApproval: true,
    });
    t.equal(answer.statusCode, 403);
    t.match(answer.json(), { code: "account_screened", blocked: true, policy: { rule: "target" } });
    t.notMatch(answer.json(), { approvable: true });
    const quote = await fetchPaid(made, { dryRun: true });
    t.match(quote.json(), { paid: false, verdict: { allowed: false, code: "account_screened" } });
    const { paymentId } = answer.json<{ paymentId: string }>();
    const shown = await callApi(app, agent, "GET", `/api/agents/me/payments/${paymentId}`);
    t.match(shown.json(), { status: "blocked", denial: { code: "account_screened" } });
  },
);

t.test("refusals fill neither the audit nor any table", async (t) => {
  list(PAYEE);
  const rowsIn = async (table: string, where = "TRUE") =>
    Number(
      (await pool.query<{ n: string }>(`SELECT count(*) AS n FROM ${table} WHERE ${where}`)).rows[0]
        ?.n,
    );
  const audits = () => rowsIn("audit_log", "action = 'screening.refused'");
  const [before, refused] = [await settlements(), await countOf(made, "refused")];
  for (let round = 0; round < 30; round += 1) {
    await facilitate(made, "verify");
    await spend(made);
  }
  t.ok((await audits()) <= 20 * 3, "a few an hour for each owner");
  t.equal(await settlements(), before);
  t.equal(await countOf(made, "refused"), refused + 60);
});

t.test("a payment that was signed before is settled by its evidence, once", async (t) => {
  const fetch = async (key: string) =>
    callApi(
      app,
      { headers: { ...agent.headers, "idempotency-key": key } },
      "POST",
      "/api/agents/x402-fetch",
      {
        url: seller.url,
        detail: "full",
      },
    );
  const before = await chain.usdcOf(PAYEE);
  // Listed on the way to the seller, who settles elsewhere.
  seller.script.onProof = async ({ proof, response }) => {
    list(PAYEE);
    const transaction = await seller.settle(proof);
    response.writeHead(200, { ...seller.receipt({ transaction }) }).end("{}");
  };
  const paid = await fetch("paid-elsewhere");
  t.match(paid.json(), { paid: true, status: 200 });
  t.same((await fetch("paid-elsewhere")).json(), paid.json(), "and answered again");
  t.equal((await chain.usdcOf(PAYEE)) - before, 1_000n);
  // The seller settles here, where it is refused: the authorization is canceled, and its budget returns.
  list();
  seller.script.onProof = async ({ proof, response }) => {
    list(PAYEE);
    const requirements = seller.entry();
    const answer = await post(app, "settle", {
      x402Version: 2,
      paymentPayload: { x402Version: 2, accepted: requirements, payload: proof.payload },
      paymentRequirements: requirements,
    });
    t.match(answer, { success: false, errorReason: "address_screened" });
    seller.refuse(response, requirements);
  };
  const unpaid = await fetch("refused-here");
  t.not(unpaid.statusCode, 200, unpaid.body);
  list();
  t.equal((await fetch("refused-here")).statusCode, unpaid.statusCode, "the same answer again");
  t.equal((await chain.usdcOf(PAYEE)) - before, 1_000n, "paid once in all");
  const { rows } = await pool.query(
    "SELECT 1 FROM payments WHERE status IN ('reserved', 'submitted', 'unknown')",
  );
  t.same(rows, [], "nothing is open");
  seller.script = {};
});

t.test("stock middleware passes the reason on to the payer", async (t) => {
  list(PAYEE);
  const shop = await expressSeller(t, {
    chain,
    payTo: PAYEE,
    facilitator: ourFacilitator(made.baseUrl),
  });
  const body = await signedPayment({ chain, payer, payTo: PAYEE, amount: "1000" });
  const answer = await fetch(shop, {
    headers: {
      "payment-signature": Buffer.from(JSON.stringify(body.paymentPayload)).toString("base64"),
    },
  });
  t.equal(answer.status, 402);
  const required = answer.headers.get("payment-required") ?? "";
  t.match(Buffer.from(required, "base64").toString(), /address_screened/);
  const supported = await app.inject("/api/x402/supported");
  t.notMatch(supported.body, /screen/i);
});

t.test("a replica with a file reports its age, and none starts with a broken one", async (t) => {
  const folder = mkdtempSync(join(tmpdir(), "purser-screening-"));
  t.teardown(() => rmSync(folder, { recursive: true }));
  const path = join(folder, "list.txt");
  const start = () =>
    testApp(t, { chain, database, env: { SCREENING_FILE: path, SCREENING_FAILS: "closed" } });
  writeFileSync(path, "nonsense\n");
  await t.rejects(start(), {
    name: "ConfigError",
    message: /SCREENING_FILE names .*line 1 is not/,
  });
  writeFileSync(path, `2020-01-01\n${PAYEE}\n`);
  const withFile = await start();
  t.same(await facilitate(withFile, "verify"), REFUSED);
  const metrics = await withFile.app.metrics.metrics();
  const [, age] = /^purser_screening_list_age_seconds (\d+)/m.exec(metrics) ?? [];
  t.ok(Number(age) > 86_400, "as the file's date says");
});

t.test("the audits hold", (t) => assertAuditsHold(t, app.prisma));
