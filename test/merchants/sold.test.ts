// Goal: a merchant sees what was sold, and nothing of other merchants; what third parties write is kept without secrets
// and within limits; a receipt shows the ledger's state, only to people with its link, and no changed one passes.
import { randomBytes } from "node:crypto";
import t from "tap";
import { verifyTypedData } from "viem";
import { main } from "../../packages/purser/src/cli.ts";
import { checkReceipt } from "../../packages/purser/src/receipt.ts";
import { deleteOldRows } from "../../server/infra/retention.ts";
import { REASONS } from "../../server/schemes/scheme.ts";
import { FIXES } from "../../server/plugins/merchants/fixes.ts";
import { RECEIPT_TYPES } from "../../server/plugins/merchants/receipts.ts";
import { post, signedPayment, type Body } from "../facilitator/payments.ts";
import { testApp } from "../helpers/app.ts";
import { createAgent, signIn } from "../helpers/owner.ts";
import { until } from "../helpers/until.ts";
import { newAccount, pay, refund, send } from "./world.ts";

const self = newAccount();
const ctx = await testApp(t, {
  listen: true,
  env: { DEMO_PAY_TO: self.address, RATE_LIMITS: "receipt=40" },
  configure: (config) => void (config.fetchPrivateOrigins = [config.publicUrl]),
});
const { app, chain, config, database } = ctx;
const payer = newAccount();
await chain.mint(payer.address, 1_000_000_000n);
const merchant = await signIn(ctx, self);
const rival = await signIn(ctx);
const payTo = self.address;

interface Resource {
  url?: unknown;
  description?: unknown;
}
type Options = Partial<Parameters<typeof signedPayment>[0]> & { method?: string };

/** A payment that names what it buys. */
async function paymentFor(resource: Resource, { method, ...options }: Options = {}): Promise<Body> {
  const input = { info: { input: { type: "http", method } }, schema: {} };
  const body = await signedPayment({
    chain,
    payer,
    payTo,
    ...options,
    ...(method !== undefined && { extensions: { bazaar: input } }),
  });
  return { ...body, paymentPayload: { ...body.paymentPayload, resource } };
}

async function sell(resource: Resource, options: Options = {}): Promise<string> {
  const answer = await post(app, "settle", await paymentFor(resource, options));
  if (answer["success"] !== true) throw new Error(`not settled: ${JSON.stringify(answer)}`);
  return String(answer["paymentId"]);
}

/** Another program's authorization, so that no evidence on the chain corrects it. */
const insertFailed = (id: string, to: string, url: string) =>
  database.pool.query(
    `INSERT INTO settlements (from_address, chain_id, asset, nonce, id, kind, to_address, value, valid_after, valid_before,
       signature, relay, status, error_reason, proof, final_at, resource_url, resource_method)
     VALUES ($1, $2, $3, $4, $5, 'facilitated', $6, 700000, 0, 1, '', true, 'failed', 'test', '{}', now(), $7, 'POST')`,
    [
      payer.address.toLowerCase(),
      chain.chainId,
      chain.usdc.toLowerCase(),
      `0x${randomBytes(32).toString("hex")}`,
      id,
      to.toLowerCase(),
      url,
    ],
  );

const read = async (path: string, owner = merchant) => {
  const { status, body } = await send(ctx, owner, "GET", `/api/merchant${path}`);
  t.equal(status, 200, JSON.stringify(body));
  return body as { items: Record<string, unknown>[]; nextCursor: string | null };
};
const detail = (id: string) => send(ctx, merchant, "GET", `/api/merchant/settlements/${id}`);
const hashOf = async (id: string) => String((await detail(id)).body["txHash"]);

t.test("what a payment was for, without secrets, marked and cut", async (t) => {
  for (const [resource, shown] of [
    [
      { url: "https://me:secret@api.example/a?key=secret#secret", description: "A \u202Eetacerof" },
      { url: "https://api.example/a", description: "A etacerof" },
    ],
    [
      { url: "https://api.example/<script>alert(1)</script>", description: "<script>x</script>" },
      {
        url: "https://api.example/%3Cscript%3Ealert(1)%3C/script%3E",
        description: "<script>x</script>",
      },
    ],
    [{ url: `https://api.example/${"x".repeat(10_000)}` }, { url: null, description: null }],
  ] as const) {
    const id = await sell(resource);
    t.match((await detail(id)).body, {
      thirdParty: { untrusted: true, ...shown },
      delivery: "not_reported",
      receipt: null,
    });
    const { rows } = await database.pool.query("SELECT * FROM settlements WHERE id = $1", [id]);
    t.notMatch(JSON.stringify(rows), "secret");
  }
  // The build before stored queries.
  const old = await sell({ url: "https://api.example/old" });
  await database.pool.query(
    "UPDATE settlements SET resource_url = resource_url || '?key=secret' WHERE id = $1",
    [old],
  );
  t.match((await detail(old)).body, { thirdParty: { url: "https://api.example/old" } });
  const csv = await app.inject({ url: "/api/merchant/settlements.csv", headers: merchant.headers });
  t.match(csv.body.split("\r\n")[0], /,method,url,description,maximum,delivery$/);
  t.notMatch(csv.body, "secret");
});

t.test("delivered or not is what the payer's wallet reported", async (t) => {
  const agent = await createAgent(ctx, await signIn(ctx), { allowlist: [payTo], dailyLimit: "10" });
  await chain.mint(agent.walletAddress, 5_000_000n);
  const fetched = await app.inject({
    method: "POST",
    url: "/api/agents/x402-fetch",
    headers: agent.headers,
    payload: JSON.stringify({ url: `${ctx.baseUrl}/api/arc-stats` }),
  });
  const { paid, paymentId } = fetched.json<{ paid: boolean; paymentId: string }>();
  t.ok(paid, fetched.body);
  const sold = (await detail(paymentId)).body;
  t.match(sold, { delivery: "delivered", thirdParty: { url: /\/api\/arc-stats$/ } });
  const { items } = await read("/products?days=7");
  t.ok(
    items.some(({ thirdParty }) =>
      (thirdParty as { url: string | null }).url?.endsWith("/api/arc-stats"),
    ),
    "among what was sold",
  );
  await database.pool.query("UPDATE payments SET delivered = FALSE WHERE id = $1", [paymentId]);
  t.match((await detail(paymentId)).body, { delivery: "not_delivered" });
});

t.test("sums by product, in pages, of one merchant only", async (t) => {
  const seller = await signIn(ctx);
  const to = { payTo: seller.account.address };
  const url = "https://shop.example/maps";
  const id = await sell({ url: `${url}?a` }, { ...to, amount: "3000000", method: "GET" });
  await sell({ url: `${url}?b#c` }, { ...to, amount: "1000000", method: "GET" });
  await sell({ url }, { ...to, amount: "500000", method: "POST" });
  await sell({ url: "nothing" }, { ...to, amount: "100000" });
  await insertFailed("pay_failed_sale", seller.account.address, url);
  t.match((await refund(ctx, seller, id, "0.25")).body, { status: "settled" });
  const broken = await paymentFor(
    { url: `${url}?key=secret` },
    { ...to, payer: newAccount(), method: "GET" },
  );
  t.match(await post(app, "verify", broken), { isValid: false });
  t.match(await post(app, "settle", broken), { success: false });
  const unsold = await paymentFor(
    { url: "https://shop.example/new" },
    { ...to, payer: newAccount() },
  );
  t.match(await post(app, "verify", unsold), { isValid: false });
  await app.keepRefusals();

  const { items } = await read("/products?days=7", seller);
  const lacking = "invalid_exact_evm_insufficient_balance";
  t.match(items, [
    {
      thirdParty: { untrusted: true, url, method: "GET" },
      settled: 2,
      volume: "4",
      refunded: "0.25",
      failed: 0,
      refused: 2,
      refusals: [{ reason: lacking, count: 2, message: REASONS[lacking], fix: FIXES[lacking] }],
    },
    { thirdParty: { url, method: "POST" }, settled: 1, volume: "0.5", failed: 1, refused: 0 },
    { thirdParty: { url: null, method: null }, settled: 1, volume: "0.1" },
    { thirdParty: { url: "https://shop.example/new" }, settled: 0, volume: "0", refused: 1 },
  ]);
  t.equal(items.length, 4);
  const paged = [];
  let cursor = "";
  do {
    const page = await read(`/products?days=7&limit=1${cursor}`, seller);
    paged.push(...page.items);
    cursor = page.nextCursor === null ? "" : `&cursor=${page.nextCursor}`;
    // Sold while the pages are read: not in them.
    if (paged.length === 1)
      await sell({ url: "https://shop.example/late" }, { ...to, amount: "200000" });
  } while (cursor !== "");
  t.same(paged, items);
  t.same((await read("/products", rival)).items, [], "another merchant's products");
  for (const bad of [
    "x",
    Buffer.from("[1,2,3,4]").toString("base64url"),
    Buffer.from("7").toString("base64url"),
  ])
    t.match(await send(ctx, seller, "GET", `/api/merchant/products?cursor=${bad}`), {
      status: 422,
    });
});

t.test("a flood of invented URLs stays within its limits", async (t) => {
  const seller = await signIn(ctx);
  await pay({ app, chain, payer }, seller.account.address, "1000");
  // Refused without the chain.
  const body = await paymentFor({}, { payTo: seller.account.address, value: "1" });
  const flood = async (word: string) => {
    await Promise.all(
      Array.from({ length: 120 }, (_, index) => {
        const resource = { url: `https://flood.example/${word}/${index}?${"k".repeat(50)}` };
        const paymentPayload = { ...body.paymentPayload, resource };
        return post(app, "verify", { ...body, paymentPayload });
      }),
    );
    await app.keepRefusals();
  };
  await flood("a");
  await flood("b");
  await flood("a");
  const { rows } = await database.pool.query<{ rows: number; count: number }>(
    "SELECT count(*)::int AS rows, sum(count)::int AS count FROM merchant_product_refusals WHERE url LIKE '%flood%'",
  );
  t.same(rows, [{ rows: 100, count: 200 }], "only the first hundred are counted on");
  const whole = (await send(ctx, seller, "GET", "/api/merchant?days=7")).body;
  t.match(whole, { refusals: [{ count: 360 }] }, "the counts without products are complete");
});

t.test("a payment is found by its hash or id, and nobody else's is", async (t) => {
  const id = await sell({ url: "https://api.example/found" });
  const hash = await hashOf(id);
  const found = async (payment: string, owner = merchant) =>
    (await read(`/settlements?payment=${payment}`, owner)).items.map((item) => item["id"]);
  t.same(await found(hash), [id]);
  t.same(await found(`0x${hash.slice(2).toUpperCase()}`), [id]);
  t.same(await found(id), [id]);
  const nothing = await read(`/settlements?payment=0x${"7".repeat(64)}`, rival);
  for (const other of [hash, id])
    t.same(
      await read(`/settlements?payment=${other}`, rival),
      nothing,
      "as one that does not exist",
    );
  // Another program sent the transaction that settled it.
  const foreign = `0x${"5".repeat(64)}`;
  await database.pool.query("UPDATE settlements SET tx_hash = $2, by_other = TRUE WHERE id = $1", [
    id,
    foreign,
  ]);
  t.same(await found(foreign), [id]);
  t.same(await found(foreign, rival), []);
  t.match(await send(ctx, merchant, "GET", "/api/merchant/settlements?payment=0x12"), {
    status: 422,
  });
});

t.test("a signed receipt", async (t) => {
  const id = await sell(
    { url: "https://me:secret@api.example/r?key=secret" },
    { amount: "2000000", method: "GET" },
  );
  const url = `/api/merchant/settlements/${id}/receipt`;
  t.equal((await send(ctx, rival, "POST", url, {})).status, 404);
  const [made, again] = await Promise.all([
    send(ctx, merchant, "POST", url, {}),
    send(ctx, merchant, "POST", url, {}),
  ]);
  t.same(made, again, "one receipt");
  const receipt = made?.body as { id: string; url: string };
  t.match(receipt.id, /^rcp_[0-9a-f]{48}$/);
  t.equal(receipt.url, `${config.publicUrl}/receipts/${receipt.id}`);
  t.match((await detail(id)).body, { receipt: receipt.url });
  await refund(ctx, merchant, id, "0.5");

  const open = (of: string) => app.inject({ url: `/api/receipts/${of}` });
  const answer = await open(receipt.id);
  t.equal(answer.headers["x-robots-tag"], "noindex");
  t.equal(answer.headers["cache-control"], "no-store");
  const signed = answer.json<{
    receipt: Record<string, unknown>;
    signature: `0x${string}`;
    signer: `0x${string}`;
    domain: object;
  }>();
  t.match(signed.receipt, {
    service: config.publicUrl,
    status: "paid",
    amount: "2",
    payer: payer.address,
    payee: payTo,
    transaction: await hashOf(id),
    block: /^\d+$/,
    blockHash: /^0x[0-9a-f]{64}$/,
    final: true,
    refunded: "0.5",
    refunds: [{ amount: "0.5", status: "settled", transaction: /^0x/ }],
    thirdParty: { untrusted: true, url: "https://api.example/r", method: "GET" },
  });
  t.equal(signed.signer, chain.relayer.address);
  const isValid = (message: object) =>
    verifyTypedData({
      address: signed.signer,
      domain: signed.domain,
      types: RECEIPT_TYPES,
      primaryType: "Receipt",
      message,
      signature: signed.signature,
    } as never);
  t.ok(await isValid(signed.receipt));
  t.notOk(await isValid({ ...signed.receipt, amount: "20" }));

  await t.test("the command accepts it, and no changed one", async (t) => {
    const good = await checkReceipt(receipt.url);
    t.match(good, { valid: true, signer: chain.relayer.address, receipt: { amount: "2" } });
    t.match(await checkReceipt(`${receipt.url}/`), { valid: true });
    const file = (content: unknown) =>
      `${t.testdir({ "receipt.json": JSON.stringify(content) })}/receipt.json`;
    t.match(await checkReceipt(file(signed)), { valid: true });
    const added = await checkReceipt(
      file({ ...signed, receipt: { ...signed.receipt, note: "gift" } }),
    );
    t.ok(added.valid);
    t.notMatch(JSON.stringify(added), "gift", "what is not signed is not shown");
    for (const change of [
      { amount: "20" },
      { payee: rival.account.address },
      { refunds: [] },
      { thirdParty: { untrusted: true, url: "https://api.example/other", method: "GET" } },
      { final: false },
      { amount: undefined },
    ])
      t.match(
        await checkReceipt(file({ ...signed, receipt: { ...signed.receipt, ...change } })),
        { valid: false },
        JSON.stringify(change),
      );
    const printed: string[] = [];
    const command = (of: string) => main(["receipt", of], {}, (line) => void printed.push(line));
    t.equal(await command(receipt.url), 0);
    t.equal(await command(file({ hello: 1 })), 1);
    t.match(printed.join("\n"), /"valid":true[^]*"valid":false/);
    const forged = await newAccount().signTypedData({
      domain: signed.domain,
      types: RECEIPT_TYPES,
      primaryType: "Receipt",
      message: signed.receipt,
    });
    t.match(await checkReceipt(file({ ...signed, signature: forged })), { valid: false });
  });

  await t.test("what the chain lost says so", async (t) => {
    await insertFailed("pay_lost", payTo, "https://api.example/lost");
    const lost = `rcp_${"a".repeat(48)}`;
    await database.pool.query(
      "INSERT INTO merchant_receipts (id, settlement_id) VALUES ($1, 'pay_lost')",
      [lost],
    );
    t.match((await open(lost)).json(), {
      receipt: {
        status: "removed",
        message: /was not paid again/,
        paidAt: "",
        transaction: "",
        final: false,
      },
    });
    const remade = await send(
      ctx,
      merchant,
      "POST",
      "/api/merchant/settlements/pay_lost/receipt",
      {},
    );
    t.match(remade, { status: 409, body: { code: "conflict" } });
    await database.pool.query(
      "UPDATE settlements SET created_at = now() - interval '900 days' WHERE id = 'pay_lost'",
    );
    await deleteOldRows(app.pool, config.retention);
    t.match((await open(lost)).json(), { code: "not_found" });
    const { rowCount } = await database.pool.query(
      "SELECT 1 FROM merchant_receipts WHERE id = $1",
      [lost],
    );
    t.equal(rowCount, 0, "a receipt goes with its settlement");
  });

  await t.test("other ids open nothing, guesses are limited, and no log has the id", async (t) => {
    const plain = await sell({ url: "https://api.example/none" });
    for (const guess of [id, plain, `rcp_${"0".repeat(48)}`, "rcp_", "1"])
      t.match((await open(guess)).json(), { code: "not_found" });
    await until(async () => (await open(`rcp_${"1".repeat(48)}`)).statusCode === 429);
    t.notMatch(ctx.logs.join(""), receipt.id);
  });
});
