// Goal: a merchant sees and exports only the settlements to its own wallet, and a key that it creates itself gives
// no extra access.
import t, { type Test } from "tap";
import type { Hex } from "viem";
import { AMPLE_GAS, testApp, type TestApp } from "../helpers/app.ts";
import { testChain } from "../helpers/chain.ts";
import { freshNonce, signIn, siweMessage, verify } from "../helpers/owner.ts";
import { post, signedPayment } from "../facilitator/payments.ts";
import { deployWallet } from "../facilitator/wallets.ts";
import { send, merchantWorld, newAccount, pay } from "./world.ts";

interface Listed {
  items: { id: string; amount: string; status: string; payer: string; network: string }[];
  nextCursor: string | null;
}

t.test("a merchant's data", async (t) => {
  const ctx = await merchantWorld(t);
  const { app, chain, database, merchant, payer } = ctx;
  const payTo = merchant.account.address;
  const rival = await signIn(ctx);
  const ids = [
    await pay(ctx, payTo, "1000000"),
    await pay(ctx, payTo, "250000"),
    await pay(ctx, payTo, "2000000"),
  ];
  const rivalsId = await pay(ctx, rival.account.address, "990000");
  const list = async (query = "", owner = merchant): Promise<Listed> => {
    const answer = await send(ctx, owner, "GET", `/api/merchant/settlements${query}`);
    t.equal(answer.status, 200, JSON.stringify(answer.body));
    return answer.body as unknown as Listed;
  };
  const amounts = async (query: string) => (await list(query)).items.map(({ amount }) => amount);

  await t.test("its own settlements, by every filter and page", async (t) => {
    t.same(await amounts(""), ["2", "0.25", "1"]);
    t.same(await amounts("?minimum=1"), ["2", "1"]);
    t.same(await amounts("?status=settled&minimum=2"), ["2"]);
    t.same(await amounts("?status=pending,failed"), []);
    t.same(await amounts(`?payer=${payer.address}&network=eip155:${chain.chainId}`), [
      "2",
      "0.25",
      "1",
    ]);
    t.same(await amounts(`?payer=${newAccount().address}`), []);
    t.same(await amounts(`?from=${new Date(Date.now() + 60_000).toISOString()}`), []);
    t.same(await amounts(`?to=${new Date(Date.now() - 600_000).toISOString()}`), []);
    const first = await list("?limit=2");
    const second = await list(`?limit=2&cursor=${first.nextCursor}`);
    t.same(
      [...first.items, ...second.items].map(({ id }) => id),
      ids.toReversed(),
    );
    for (const [query, code] of [
      ["?minimum=1e9", "invalid_amount"],
      ["?payer=0x12", "invalid_address"],
      ["?network=eip155:1", "validation_failed"],
      ["?from=yesterday", "validation_failed"],
    ] as const)
      t.match(await send(ctx, merchant, "GET", `/api/merchant/settlements${query}`), {
        status: 422,
        body: { code },
      });
  });

  await t.test("what was sold, as the payment names it", async (t) => {
    const seller = await signIn(ctx);
    const { address } = seller.account;
    await pay(ctx, address, "20000");
    const newest = async () => {
      const { items } = await list("?limit=1", seller);
      return (items[0] as unknown as { thirdParty: object }).thirdParty;
    };
    t.same(await newest(), {
      untrusted: true,
      url: "http://localhost/paid",
      method: null,
      description: null,
    });
    const named = await signedPayment({
      chain,
      payer,
      payTo: address,
      amount: "30000",
      extensions: { bazaar: { info: { input: { type: "http", method: "POST" } }, schema: {} } },
    });
    const { paymentId } = await post(app, "settle", named);
    t.match(await newest(), { url: "http://localhost/paid", method: "POST" });
    const detail = await send(ctx, seller, "GET", `/api/merchant/settlements/${String(paymentId)}`);
    t.match(detail.body, { thirdParty: { method: "POST" } });
    // The build before does not write the columns.
    await database.pool.query(
      "UPDATE settlements SET resource_url = NULL, resource_method = NULL WHERE id = $1",
      [paymentId],
    );
    t.same(await newest(), { untrusted: true, url: null, method: null, description: null });
    const csv = await app.inject({
      url: "/api/merchant/settlements.csv",
      headers: seller.headers,
    });
    t.match(csv.body.split("\r\n")[0], /,method,url,description,maximum,delivery$/);
    t.match(csv.body, "http://localhost/paid");
  });

  await t.test("never those of another wallet, nor payments without the facilitator", async (t) => {
    t.same(
      (await list("", rival)).items.map(({ id }) => id),
      [rivalsId],
    );
    for (const id of [ids[0] ?? "", rivalsId]) {
      const [owner, other] = id === rivalsId ? [rival, merchant] : [merchant, rival];
      t.equal((await send(ctx, owner, "GET", `/api/merchant/settlements/${id}`)).status, 200);
      t.equal((await send(ctx, other, "GET", `/api/merchant/settlements/${id}`)).status, 404);
      t.equal(
        (await send(ctx, other, "POST", `/api/merchant/settlements/${id}/refund`, {})).status,
        404,
      );
    }
    t.same((await list("", await signIn(ctx, payer))).items, [], "a payer is not a merchant");
  });

  await t.test("totals, days, failures, and refusals of known merchants only", async (t) => {
    const [first = ""] = ids;
    await database.pool.query(
      `UPDATE settlements SET status = 'failed', error_reason = 'invalid_exact_evm_transaction_failed',
              error_message = '=HYPERLINK("http://evil")', settled_at = NULL, created_at = now() - interval '2 days' WHERE id = $1`,
      [first],
    );
    const poor = newAccount();
    const broke = await signedPayment({ chain, payer: poor, payTo });
    t.match(await post(app, "verify", broke), { isValid: false });
    t.match(await post(app, "settle", broke), { success: false });
    const unknown = newAccount().address;
    await post(app, "verify", await signedPayment({ chain, payer: poor, payTo: unknown }));
    await post(app, "verify", { ...broke, paymentRequirements: { payTo, network: "nowhere" } });
    await app.keepRefusals();
    const { body } = await send(ctx, merchant, "GET", "/api/merchant?days=7");
    t.match(body, {
      address: payTo,
      network: null,
      admitted: false,
      needsKey: false,
      totals: { settled: 2, volume: "2.25", failed: 1, pending: 0, payers: 1, refunds: 0 },
      failures: [{ reason: "invalid_exact_evm_transaction_failed", count: 1 }],
      refusals: [{ reason: "invalid_exact_evm_insufficient_balance", count: 2 }],
    });
    const days = body["days"] as { volume: string; failed: number }[];
    t.equal(days.length, 7);
    t.match(days.at(-1), { volume: "2.25", failed: 0 });
    t.match(days.at(-3), { volume: "0", failed: 1 });
    const { rows } = await database.pool.query<{ sum: string }>(
      "SELECT sum(count)::int8 AS sum FROM merchant_refusals",
    );
    t.equal(Number(rows[0]?.sum), 2, "nothing is stored for unknown addresses");
  });

  await t.test(
    "refusals of an owner that moved away are stored in its new cell only",
    async (t) => {
      const seller = (await signIn(ctx)).account.address;
      await pay(ctx, seller, "1000");
      const broke = await signedPayment({ chain, payer: newAccount(), payTo: seller });
      const refusedAndKept = async () => {
        t.match(await post(app, "verify", broke), { isValid: false });
        await app.keepRefusals();
        const { rows } = await database.pool.query<{ all: number; products: number }>(
          `SELECT (SELECT sum(count)::int FROM merchant_refusals r WHERE r.owner_id = o.id) AS all,
                (SELECT sum(count)::int FROM merchant_product_refusals r WHERE r.owner_id = o.id) AS products
           FROM owners o WHERE o.address = $1`,
          [seller.toLowerCase()],
        );
        return rows[0];
      };
      t.same(await refusedAndKept(), { all: 1, products: 1 });
      await database.pool.query(
        `UPDATE owners SET moved_to = 'c2', moved_url = 'https://c2.example', moved_at = now()
        WHERE address = $1`,
        [seller.toLowerCase()],
      );
      t.same(await refusedAndKept(), { all: 1, products: 1 });
    },
  );

  await t.test("CSV without formulas, in chunks", async (t) => {
    const answer = await app.inject({
      url: "/api/merchant/settlements.csv?minimum=1",
      headers: merchant.headers,
    });
    t.match(answer.headers["content-type"], /^text\/csv/);
    t.match(answer.headers["content-disposition"], /attachment/);
    const lines = answer.body.trim().split("\r\n");
    t.equal(lines.length, 3);
    t.match(lines[0], /^createdAt,id,status,scheme,network,payer,amount,refunded/);
    t.match(lines[2], `"'=HYPERLINK(""http://evil"")"`);
    await database.pool.query(
      `INSERT INTO settlements (from_address, chain_id, asset, nonce, id, kind, to_address, value, valid_after,
         valid_before, signature, relay, status, tx_hash, proof, settled_at, final_at)
       SELECT $1, $2, $3, '0x' || lpad(to_hex(n), 64, '0'), 'pay_many' || n, 'facilitated', $4, 1, 0, 1, '', true,
         'settled', '0x' || lpad(to_hex(n), 64, '0'), '{}', now(), now() FROM generate_series(1, 1203) n`,
      [payer.address.toLowerCase(), chain.chainId, chain.usdc.toLowerCase(), payTo.toLowerCase()],
    );
    const all = await app.inject({
      url: "/api/merchant/settlements.csv",
      headers: merchant.headers,
    });
    const listed = all.body.trim().split("\r\n").slice(1);
    t.equal(listed.length, 1_206);
    t.equal(new Set(listed).size, 1_206, "each once");
    t.equal(
      (
        await app.inject({
          url: "/api/merchant/settlements.csv?payer=no",
          headers: merchant.headers,
        })
      ).statusCode,
      422,
    );
  });

  await t.test("a contract account is a merchant on its own chain only", async (t) => {
    const key = newAccount();
    const wallet = await deployWallet(chain, key.address, "Honest");
    const message = siweMessage(ctx, { nonce: await freshNonce(app), address: wallet });
    const entered = await verify(ctx, { message, signature: await key.signMessage({ message }) });
    const [cookie = ""] = [entered.headers["set-cookie"]].flat();
    const owner = {
      ...merchant,
      headers: { ...merchant.headers, cookie: cookie.split(";", 1)[0] ?? "" },
    };
    const id = await pay(ctx, wallet, "300000");
    await database.pool.query(
      `INSERT INTO settlements (from_address, chain_id, asset, nonce, id, kind, to_address, value, valid_after,
         valid_before, signature, relay, status, tx_hash, proof, settled_at, final_at)
       VALUES ($1, 84532, $2, $3, 'pay_elsewhere', 'facilitated', $4, 7, 0, 1, '', true, 'settled', $3, '{}', now(), now())`,
      [
        payer.address.toLowerCase(),
        chain.usdc.toLowerCase(),
        `0x${"9".repeat(64)}`,
        wallet.toLowerCase(),
      ],
    );
    t.same(
      (await list("", owner)).items.map((item) => item.id),
      [id],
    );
    t.equal((await send(ctx, owner, "GET", "/api/merchant/settlements/pay_elsewhere")).status, 404);
    t.match((await send(ctx, owner, "GET", "/api/merchant")).body, {
      network: `eip155:${chain.chainId}`,
      totals: { settled: 1, volume: "0.3" },
    });
  });
});

/** Creates a key, and returns a function that calls verify or settle with it. */
async function withKey(ctx: TestApp, owner: Awaited<ReturnType<typeof signIn>>) {
  const made = await send(ctx, owner, "POST", "/api/merchant/keys", { label: "shop" });
  const apiKey = String(made.body["apiKey"]);
  const id = (made.body["key"] as { id: string }).id;
  const headers = { authorization: `Bearer ${apiKey}`, "content-type": "application/json" };
  return {
    id,
    apiKey,
    send: async (operation: "verify" | "settle", body: unknown) => {
      const answer = await ctx.app.inject({
        method: "POST",
        url: `/api/x402/${operation}`,
        headers,
        payload: JSON.stringify(body),
      });
      return { status: answer.statusCode, body: answer.json<Record<string, unknown>>() };
    },
  };
}

const gasOf = async ({ database }: TestApp, id: unknown): Promise<string[] | undefined> => {
  const { rows } = await database.pool.query<{ gas_accounts: string[] }>(
    "SELECT gas_accounts FROM settlements WHERE id = $1",
    [id],
  );
  return rows[0]?.gas_accounts;
};

t.test("keys of merchants", async (t: Test) => {
  const chain = await testChain(t);
  const boss = newAccount();
  const gas = { [`GAS_BUDGET_${chain.chainId}`]: AMPLE_GAS };
  const open = await testApp(t, { chain, env: { MERCHANTS: boss.address, ...gas } });
  const closed = await testApp(t, {
    chain,
    database: open.database,
    env: {
      MERCHANTS: `${boss.address},eip155:1:${newAccount().address}`,
      FACILITATOR_OPEN: "false",
      ...gas,
    },
  });
  const keyed = await testApp(t, {
    chain,
    database: open.database,
    env: { FACILITATOR_API_KEYS: "operators-own-key", ...gas },
  });
  const payer = newAccount();
  await chain.mint(payer.address, 1_000_000_000n);
  const payment = (payTo: Hex) => signedPayment({ chain, payer, payTo, amount: "10000" });
  const admitted = await signIn(open, boss);
  const self = await signIn(open);
  const mine = await withKey(open, self);
  const admittedKey = await withKey(open, admitted);

  await t.test("whose gas budget pays: third parties', or the merchant's own", async (t) => {
    t.match(mine.apiKey, /^purser_mk_[0-9A-Za-z]{39}$/);
    const notAdmitted = await mine.send("settle", await payment(self.account.address));
    t.match(notAdmitted.body, { success: true });
    t.ok((await gasOf(open, notAdmitted.body["paymentId"]))?.includes("strangers"));
    const known = await admittedKey.send("settle", await payment(boss.address));
    t.match(known.body, { success: true });
    const accounts = await gasOf(open, known.body["paymentId"]);
    t.match(accounts, [/^merchant:own_/, "merchants"]);
    t.match((await send(open, admitted, "GET", "/api/merchant")).body, { admitted: true });
  });

  await t.test("a closed facilitator serves a key once its merchant is admitted", async (t) => {
    const body = await payment(self.account.address);
    const at = (app: TestApp, key: string) =>
      app.app.inject({
        method: "POST",
        url: "/api/x402/verify",
        headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
        payload: JSON.stringify(body),
      });
    for (const app of [closed, keyed])
      t.match((await at(app, mine.apiKey)).json(), {
        code: "merchant_not_admitted",
        status: 403,
      });
    t.match((await at(closed, admittedKey.apiKey)).json(), { isValid: true });
    t.match((await at(keyed, "operators-own-key")).json(), { isValid: true });
    t.match((await at(closed, "operators-own-key")).json(), { code: "invalid_api_key" });
    const none = await closed.app.inject({
      method: "POST",
      url: "/api/x402/verify",
      payload: body,
    });
    t.match(none.json(), { code: "missing_api_key" });
    t.match((await send(closed, self, "GET", "/api/merchant")).body, {
      needsKey: true,
      admitted: false,
    });
  });

  await t.test("stored as a hash, listed with a hint, refused once revoked", async (t) => {
    const { rows } = await open.database.pool.query("SELECT * FROM merchant_keys");
    t.notOk(JSON.stringify(rows).includes(mine.apiKey));
    const { body } = await send(open, self, "GET", "/api/merchant/keys");
    t.match(body, { items: [{ id: mine.id, label: "shop", revokedAt: null }] });
    t.notOk(JSON.stringify(body).includes(mine.apiKey.slice(14, -4)));
    t.notOk(open.logs.join("").includes(mine.apiKey), "not in a log");
    t.equal((await send(open, admitted, "DELETE", `/api/merchant/keys/${mine.id}`)).status, 404);
    t.equal((await send(closed, self, "DELETE", `/api/merchant/keys/${mine.id}`)).status, 200);
    t.match(await mine.send("verify", await payment(self.account.address)), {
      status: 401,
      body: { code: "api_key_revoked" },
    });
    t.equal((await send(open, self, "DELETE", `/api/merchant/keys/${mine.id}`)).status, 200);
    const forged = `${mine.apiKey.slice(0, -1)}${mine.apiKey.endsWith("0") ? "1" : "0"}`;
    const other = await keyed.app.inject({
      method: "POST",
      url: "/api/x402/verify",
      headers: { authorization: `Bearer ${forged}` },
      payload: {},
    });
    t.match(other.json(), { code: "invalid_api_key" });
    const made = await Promise.all(
      Array.from({ length: 25 }, () => send(open, self, "POST", "/api/merchant/keys", {})),
    );
    t.equal(made.filter(({ status }) => status === 201).length, 20, "at most 20 active keys");
    const audit = await send(open, self, "GET", "/api/audit");
    t.match(JSON.stringify(audit.body), /merchant_key\.revoked/);
  });
});
