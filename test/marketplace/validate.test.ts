// Goal: the validator names every cause for which nobody can pay or find an API, and never pays, follows, floods or
// believes a target.
import { createServer } from "node:https";
import type { AddressInfo } from "node:net";
import { findDefaultAsset } from "@x402/evm";
import t from "tap";
import { parseAbi } from "viem";
import { NETWORKS } from "../../server/core/networks.ts";
import { GROUPS, type CauseCode } from "../../server/plugins/validate/causes.ts";
import { STOCK_NETWORKS } from "../../server/plugins/validate/clients.ts";
import { checkOffer } from "../../server/plugins/validate/offers.ts";
import { checkOnChain } from "../../server/plugins/validate/onchain.ts";
import { checkAbout } from "../../server/plugins/validate/place.ts";
import { checkFee } from "../../server/plugins/validate/validate.ts";
import type { Validation } from "../../server/schemas/validate.ts";
import { createAgent, signIn } from "../helpers/owner.ts";
import { freePort } from "../../server/local/free-port.ts";
import { testApp } from "../helpers/app.ts";
import { testAccount } from "../helpers/chain.ts";
import { selfSigned } from "../packages/bad-connections.ts";
import {
  BLOCKED,
  brokenSellers,
  CASES,
  DOCUMENTS,
  OTHER_TOKEN,
  type Case,
} from "./broken-sellers.ts";
import { publishedClients, signs } from "./published-clients.ts";

const sellers = await brokenSellers(t);
const closed = `http://127.0.0.1:${await freePort()}`;
const AMPLE = ["validate", "validate-host", "validate-all"].map((name) => `${name}=100000`).join();
const service = await testApp(t, {
  env: {
    FETCH_PRIVATE_ORIGINS: sellers.origin,
    NETWORKS: "eip155:5042002,eip155:8453",
    RPC_URL_8453: closed,
    NATIVE_PRICE_8453: "3000",
    RATE_LIMITS: AMPLE,
  },
  timings: { validateMs: 500 },
});
const { app, chain, config } = service;

async function validate(payload: object, remoteAddress = "203.0.113.9") {
  const answer = await app.inject({
    method: "POST",
    url: "/api/x402/validate",
    headers: { "content-type": "application/json" },
    remoteAddress,
    payload: JSON.stringify(payload),
  });
  return { status: answer.statusCode, headers: answer.headers, body: answer.json<Validation>() };
}
const codesOf = ({ findings }: Validation): string[] => findings.map(({ code }) => code).sort();
/** Reported so far by a case of this file. */
const made = new Set<string>();

const code = await chain.publicClient.getCode({ address: chain.usdc });
await chain.testClient.setCode({ address: OTHER_TOKEN, bytecode: code ?? "0x" });
await chain.walletClient(chain.admin).writeContract({
  address: chain.usdc,
  abi: parseAbi(["function blacklist(address account)"]),
  functionName: "blacklist",
  args: [BLOCKED],
});

t.test("each cause, by a real server, and what published clients do", async (t) => {
  const clients = await publishedClients(
    config.networks.map(({ chainId, usdc }) => ({ chainId, usdc: usdc.address })),
  );
  const agent = await createAgent(service, await signIn(service));
  /** Whether our own wallet finds an offer to pay. */
  const quotes = async ({ name }: Case): Promise<boolean> => {
    const answer = await app.inject({
      method: "POST",
      url: "/api/agents/x402-fetch",
      headers: agent.headers,
      payload: { url: `${sellers.origin}/${name}`, dryRun: true },
    });
    return answer.json<{ verdict?: object }>().verdict !== undefined;
  };
  for (const seller of CASES) {
    const { name, method, body } = seller;
    const url = `${sellers.origin}/${name}`;
    const { status, body: answer } = await validate({ url, method, body });
    t.equal(status, 200, name);
    t.same(codesOf(answer), [...seller.codes].sort(), name);
    const isGlobal = answer.findings.some(
      ({ severity, offer }) => severity === "error" && offer === null,
    );
    if (isGlobal || answer.offers.length === 0) t.notOk(answer.ok, name);
    for (const { code, message, where, fix } of answer.findings) {
      made.add(code);
      t.match(message, /^[^<>]+\.$/, `${code}: a sentence of ours`);
      t.notSame(where, "");
      t.not(fix, "");
    }
    if (seller.isRaw || answer.status !== 402) continue;
    const own = answer.clients[0];
    // A quote only sends GET, and reads the balance.
    if (method === undefined && name !== "no-node")
      t.equal(await quotes(seller), own?.outcome !== "refuses", `${name}: ${own?.why}`);
    for (const published of clients) {
      if (published.pay === undefined) continue;
      const outlook = answer.clients.find(({ client }) => client === published.client);
      const expected = outlook?.outcome === "pays" || outlook?.outcome === "fails";
      const about = `${published.name}: ${name} (${outlook?.outcome}: ${outlook?.why})`;
      t.equal(await signs(published, sellers.origin, seller), expected, about);
    }
  }
  for (const { name, pay } of clients)
    t.pass(name, pay === undefined ? { skip: "it is not installed: see X402_1_CLIENTS" } : {});
});

t.test("what a flawless API gets", async (t) => {
  const { body } = await validate({ url: `${sellers.origin}/flawless` });
  t.match(body, {
    ok: true,
    status: 402,
    findings: [],
    offers: [{ price: "0.01", networkName: "Arc Testnet", simulation: { result: "holds" } }],
    clients: [
      { client: "purser", outcome: "pays", offer: 1 },
      { client: "x402-2", outcome: "refuses", why: /allowedAssets/ },
      { client: "x402-1", outcome: "refuses" },
      { client: "mpp", outcome: "pays", offer: 1 },
    ],
    listed: { wouldBe: true, byPayment: true, listingId: null },
    thirdParty: { untrusted: true, description: "Weather" },
  });
  t.equal(await app.prisma.listing.count({ where: { url: body.url } }), 0, "nothing is stored");
  t.equal(await app.prisma.nomination.count(), 0);
});

t.test("who pays which", async (t) => {
  const outcomes = async (name: string) => {
    const { body } = await validate({ url: `${sellers.origin}/${name}` });
    return [body.ok, ...body.clients.map(({ outcome }) => outcome)];
  };
  t.same(await outcomes("v1-on-polygon"), [true, "refuses", "pays", "pays", "refuses"]);
  t.same(await outcomes("v1-without-extra"), [false, "refuses", "refuses", "fails", "refuses"]);
  t.same(await outcomes("base-sepolia"), [true, "refuses", "pays", "refuses", "refuses"]);
  t.same(await outcomes("both-versions"), [true, "refuses", "pays", "pays", "refuses"]);
  t.same(await outcomes("v1-only"), [true, "refuses", "pays", "pays", "refuses"]);
  t.same(await outcomes("wrong-domain-on-base"), [false, "refuses", "fails", "refuses", "refuses"]);
  t.same(await outcomes("no-domain"), [false, "fails", "refuses", "refuses", "refuses"]);
  t.same(await outcomes("auth-capture"), [true, "refuses", "refuses", "refuses", "refuses"]);
  const { body: inEscrow } = await validate({ url: `${sellers.origin}/auth-capture` });
  t.match(inEscrow.clients[0], { client: "purser", why: /escrow contract \(auth-capture\)/ });
  t.same(await outcomes("mpp"), [true, "pays", "refuses", "refuses", "pays"]);
  t.same(await outcomes("one-good-offer"), [true, "refuses", "pays", "refuses", "fails"]);
  t.same(await outcomes("free"), [false, "refuses", "refuses", "refuses", "refuses"]);
});

t.test("the fix is the line to copy", async (t) => {
  const fixOf = async (name: string) => {
    const { body } = await validate({ url: `${sellers.origin}/${name}` });
    return body.findings[0]?.fix;
  };
  t.equal(await fixOf("wrong-domain"), '"extra": { "name": "USDC", "version": "2" }');
  t.equal(await fixOf("price-dollars"), '"amount": "10000"');
  t.equal(await fixOf("price-number"), '"amount": "10000"');
  t.equal(await fixOf("v1-name-in-v2"), '"network": "eip155:84532"');
  t.equal(await fixOf("asset-of-base"), `"asset": "${chain.usdc}"`);
});

t.test("causes without an answer", async (t) => {
  const failing = async (url: string, codes: CauseCode[]): Promise<void> => {
    const { status, body } = await validate({ url });
    t.equal(status, 200, url);
    t.same(codesOf(body), codes, url);
    t.match(body, { ok: false, status: null, offers: [], listed: { wouldBe: false } });
    for (const one of codes) made.add(one);
  };
  for (const url of [
    "https://10.0.0.1/",
    "https://[::1]/",
    "https://0x7f.1/",
    "https://169.254.169.254/latest/meta-data",
    "https://localhost/",
    "https://shop.example:25/",
  ])
    await failing(url, ["url_blocked"]);
  const { host } = new URL(sellers.origin);
  await failing(`http://user:secret@${host}/flawless`, ["url_has_credentials"]);
  await failing("http://shop.example/", ["not_https"]);
  await failing("https://nothing.invalid/", ["name_unknown"]);
  config.fetchPrivateOrigins.push(closed);
  await failing(`${closed}/`, ["unreachable"]);
  const tls = selfSigned(t.testdir({}));
  if (tls) {
    const server = createServer(tls, (_request, response) => response.end()).listen(0, "127.0.0.1");
    t.teardown(() => server.close());
    await new Promise((resolve) => server.once("listening", resolve));
    const origin = `https://127.0.0.1:${(server.address() as AddressInfo).port}`;
    config.fetchPrivateOrigins.push(origin);
    await failing(origin, ["certificate_invalid"]);
  } else made.add("certificate_invalid");
});

t.test("the host's document, with the line at fault", async (t) => {
  const wheres: string[] = [];
  for (const document of DOCUMENTS) {
    sellers.document = document;
    const { body } = await validate({ url: `${sellers.origin}/flawless` });
    t.same(codesOf(body), document.codes, document.text.slice(0, 60));
    t.ok(body.ok, "the API can be paid nevertheless");
    for (const { code, where } of body.findings) {
      made.add(code);
      wheres.push(where);
    }
  }
  sellers.document = undefined;
  const { body } = await validate({ url: `${sellers.origin}/flawless` });
  t.match(body.wellKnown, { outcome: "found", resources: 1 });
  for (const place of ["status", "line 3", "line 1", "version", "resources", "resources[1]"])
    t.ok(wheres.includes(`/.well-known/x402: ${place}`), place);
});

t.test("causes that need a public host or another chain", async (t) => {
  const asked = new URL("https://shop.example/weather");
  const about = (url: string) => {
    const more = { serviceName: undefined, description: "a", mimeType: "text/plain" };
    return checkAbout({ where: "PAYMENT-REQUIRED: resource", url, ...more }, asked);
  };
  const codes = (found: { code: string }[]): string[] => found.map(({ code: one }) => one);
  t.same(codes(about("http://shop.example/weather")), ["resource_not_https"]);
  t.same(codes(about("http://localhost:3000/weather")), ["resource_private", "resource_not_https"]);
  t.same(codes(about("https://10.1.2.3/weather")), ["resource_private"]);
  const { body } = await validate({ url: `${sellers.origin}/flawless` });
  const raw = {
    scheme: "exact",
    network: "eip155:5042002",
    amount: "10000",
    asset: chain.usdc,
    payTo: body.offers[0]?.payTo,
    maxTimeoutSeconds: 60,
    extra: { name: "USDC", version: "2" },
  };
  const offer = checkOffer({ number: 1, version: 2, index: 0, where: "accepts[0]", raw }, config);
  const refused = await checkOnChain(
    {
      rpcOf: (id) => app.chains.byNetwork(id)?.rpc,
      check: async () => ({ isValid: false, reason: "unsupported_scheme", message: "No." }),
    },
    offer,
  );
  t.match(refused, {
    simulation: { result: "refused" },
    findings: [{ code: "simulation_refused" }],
  });
  const fees = {
    perSettlementAtomic: 500n,
    partsPerMillion: 0n,
    creditAtomic: 0n,
    payTo: undefined,
  };
  t.match(checkFee(offer, fees), [{ code: "facilitator_fee", offer: 1, message: /0\.0005 USDC/ }]);
  t.same(checkFee(offer, { ...fees, perSettlementAtomic: 0n }), []);
  t.same(checkFee({ ...offer, isUsdc: false }, fees), []);
  const elsewhere = ["resource_not_https", "resource_private", "simulation_refused"];
  for (const one of [...elsewhere, "facilitator_fee"]) made.add(one);
});

t.test("the table has no cause that nothing makes", async (t) => {
  const all = Object.values(GROUPS).flatMap((group) => Object.keys(group));
  t.ok(all.length >= 30, `${all.length} causes`);
  t.same(
    all.filter((one) => !made.has(one)),
    [],
  );
});

t.test("the stock client's tokens are those that we name", (t) => {
  const known = NETWORKS.filter(({ id, usdc }) => findDefaultAsset(usdc.address, id) !== undefined);
  t.same(new Set(known.map(({ id }) => id)), STOCK_NETWORKS);
  t.end();
});

t.test("nothing is paid, and little is requested", async (t) => {
  sellers.asked.length = 0;
  await validate({ url: `${sellers.origin}/flawless` });
  t.same(sellers.asked.map(({ method }) => method).sort(), ["GET", "GET", "GET", "OPTIONS"]);
  sellers.asked.length = 0;
  await validate({ url: `${sellers.origin}/redirect` });
  t.equal(sellers.asked.length, 1, "a redirect is not followed");
  sellers.asked.length = 0;
  await validate({ url: `${sellers.origin}/flawless`, method: "POST", body: "transfer=all" });
  t.same(
    sellers.asked.map(({ body }) => body),
    ["", "", "", ""],
    "a body goes out only where an empty POST is refused",
  );
  sellers.asked.length = 0;
  await validate({ url: `${sellers.origin}/missing`, method: "POST", body: "{}" });
  t.equal(sellers.asked.length, 1);
  t.equal(await chain.usdcOf(testAccount(3).address), 0n);
  const count = await app.pool.query("SELECT 1 FROM settlements");
  t.equal(count.rowCount, 0);
});

t.test("third parties' text is marked, plain and short", async (t) => {
  const { body } = await validate({ url: `${sellers.origin}/hidden-text` });
  t.equal(body.thirdParty.description, "Weather gnp");
  const script = await validate({ url: `${sellers.origin}/script-text` });
  t.match(script.headers["content-type"], /json/);
  const { thirdParty, ...ours } = script.body;
  t.match(thirdParty, { untrusted: true });
  const own = { ...ours, findings: ours.findings.map(({ thirdParty: _theirs, ...rest }) => rest) };
  t.notMatch(JSON.stringify(own), /alert\(1\)/);
  const terms = await validate({ url: `${sellers.origin}/many-offers` });
  t.ok(JSON.stringify(terms.body).length < 64 * 1024);
});

t.test("input", async (t) => {
  for (const [payload, path] of [
    [{ url: "shop.example" }, "body.url"],
    [{ url: "ftp://shop.example/" }, "body.url"],
    [{ url: `${config.publicUrl}/api/x402/validate` }, "body.url"],
    [{ url: "https://shop.example/", body: "a" }, "body.body"],
  ] as const) {
    const { status, body } = await validate(payload);
    t.equal(status, 422, JSON.stringify(payload));
    t.match(body, { code: "validation_failed", errors: [{ path }] });
  }
  t.equal((await validate({ url: "https://a.example/", method: "DELETE" })).status, 422);
});

t.test("why it is not listed", async (t) => {
  const url = `${sellers.origin}/flawless`;
  const { body } = await validate({ url });
  const payTo = body.offers[0]?.payTo?.toLowerCase();
  const listed = async () => (await validate({ url })).body.listed;
  await app.pool.query(
    `INSERT INTO nominations (id, url, host, pay_to, network, payer, status, reason)
     VALUES ('nom_1', $1, 'a', $2, 'eip155:5042002', $2, 'refused', 'It was down.')`,
    [url, payTo],
  );
  t.match(await listed(), { wouldBe: true, byPayment: false, why: /It was down\./ });
  await app.pool.query(
    `INSERT INTO listings (id, source, name, url, method, host, pay_to, asset, network, price, price_ceiling,
                           status, flag, status_reason, requirement, next_probe_at)
     VALUES ('lst_1', 'bazaar', 'A', $1, 'GET', 'a', $2, $2, 'eip155:5042002', 1, 1, 'failing', 'listing_mismatch', 'It moved.', '{}', now())`,
    [url, payTo],
  );
  t.match(await listed(), { wouldBe: false, listingId: "lst_1", why: /failing: It moved\./ });
  await app.pool.query("UPDATE listings SET status = 'paused' WHERE id = 'lst_1'");
  t.match(await listed(), { listingId: null }, "a paused listing is its owner's secret");
});

t.test("budgets: of a caller, of a target, and of all", async (t) => {
  const RATE_LIMITS = "validate=3,validate-host=4,validate-all=6";
  const small = await testApp(t, { env: { RATE_LIMITS }, chain });
  const ask = async (host: string, from: string): Promise<string> => {
    const answer = await small.app.inject({
      method: "POST",
      url: "/api/x402/validate",
      remoteAddress: `203.0.113.${from}`,
      payload: { url: `https://${host}/` },
    });
    return answer.json<{ detail?: string }>().detail ?? "ok";
  };
  const answers: string[] = [];
  for (const [host, from] of [
    ["10.0.0.1", "1"],
    ["10.0.0.1", "1"],
    ["10.0.0.1", "1"],
    ["10.0.0.1", "1"],
    ["10.0.0.1", "2"],
    ["10.0.0.1", "2"],
    ["10.0.0.2", "3"],
    ["10.0.0.2", "3"],
  ] as const)
    answers.push((/limit: ([a-z-]+)/.exec(await ask(host, from)) ?? ["", "ok"])[1] ?? "");
  t.same(answers, ["ok", "ok", "ok", "validate", "ok", "validate-host", "ok", "validate-all"]);
});
