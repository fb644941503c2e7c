// What a merchant whose account is in the first cell sees of payments that the second one settled.
import { once } from "node:events";
import type { ServerResponse } from "node:http";
import type { Test } from "tap";
import { request } from "undici";
import { hashBody, signForward } from "../../server/core/cells.ts";
import { deleteOldRows } from "../../server/infra/retention.ts";
import { signIn } from "../helpers/owner.ts";
import { until } from "../helpers/until.ts";
import { pay, refund, refundUrl, send, type Owner } from "../merchants/world.ts";
import { post, signedPayment } from "./payments.ts";
import { SECRET, type CellsWorld } from "./cells-world.ts";

interface Listed {
  items: { id: string; createdAt: string; amount: string }[];
  nextCursor: string | null;
  missingCells: string[];
}

export async function merchantCases(t: Test, { worlds, payerOf, whileDown }: CellsWorld) {
  const [one, two, three] = worlds;
  const { chain } = one;
  const merchant = await signIn(one, await payerOf("c1"));
  const payTo = merchant.account.address;
  const payers = { c1: await payerOf("c1"), c2: await payerOf("c2") };
  const payFrom = (id: "c1" | "c2", amount: string) =>
    pay({ app: one.app, chain, payer: payers[id] }, payTo, amount);
  const paid: string[] = [];
  for (const [index, id] of (["c1", "c2", "c2", "c1", "c2"] as const).entries())
    paid.unshift(await payFrom(id, String((index + 1) * 1_000)));
  const read = async <T>(path: string, owner: Owner = merchant): Promise<T> => {
    const { status, body } = await send(one, owner, "GET", `/api/merchant${path}`);
    t.equal(status, 200, JSON.stringify(body));
    return body as T;
  };
  const walk = async (limit: number): Promise<string[]> => {
    const ids: string[] = [];
    for (let cursor = ""; ;) {
      const page = await read<Listed>(`/settlements?limit=${limit}${cursor}`);
      t.ok(page.items.length <= limit);
      ids.push(...page.items.map(({ id }) => id));
      if (page.nextCursor === null) return ids;
      cursor = `&cursor=${page.nextCursor}`;
    }
  };
  const ofSecond = paid[0] as string;
  const back = { account: merchant.account, headers: merchant.headers };

  await t.test("each of its settlements once, newest first, for any page size", async (t) => {
    for (const limit of [1, 2, 3, 100]) t.same(await walk(limit), paid, `by ${limit}`);
    // All of one millisecond, in both cells: only their ids differ.
    for (const { database } of worlds)
      await database.pool.query(
        "UPDATE settlements SET created_at = '2026-01-01T00:00:00.000Z'::timestamptz + random() * interval '900 us' WHERE to_address = $1",
        [payTo.toLowerCase()],
      );
    const sorted = paid.toSorted().toReversed();
    for (const limit of [1, 2, 4]) t.same(await walk(limit), sorted, `by ${limit}, at one time`);
    for (const { database } of worlds)
      await database.pool.query(
        "UPDATE settlements SET created_at = settled_at WHERE to_address = $1",
        [payTo.toLowerCase()],
      );
    const found = await read<Listed>(`/settlements?payment=${ofSecond}`);
    t.same(
      found.items.map(({ id }) => id),
      [ofSecond],
    );
  });

  await t.test("sums, products and the export have them all", async (t) => {
    t.match(await read(""), {
      totals: { settled: 5, volume: "0.015", payers: 2 },
      missingCells: [],
    });
    t.match(await read("/products"), {
      items: [{ settled: 5, volume: "0.015" }],
      nextCursor: null,
      missingCells: [],
    });
    const { headers } = merchant;
    const csv = await one.app.inject({ url: "/api/merchant/settlements.csv", headers });
    const lines = csv.body.trim().split("\r\n").slice(1);
    t.same(new Set(lines.map((line) => line.split(",")[1])), new Set(paid));
    t.equal(lines.length, paid.length);
  });

  await t.test("a refusal by another cell is counted for the merchant", async (t) => {
    const payer = await payerOf("c2");
    const body = await signedPayment({ chain, payer, payTo, amount: "9000000" });
    t.match(await post(one.app, "verify", body), { isValid: false });
    const counted = async (): Promise<unknown> => {
      for (const { app } of worlds) await app.keepRefusals();
      return (await read<{ refusals: unknown[] }>("")).refusals;
    };
    const reason = "invalid_exact_evm_insufficient_balance";
    t.match(await counted(), [{ reason, count: 1 }]);
    // Neither the cell where it was posted nor the payer's knows the merchant.
    t.match(await post(three.app, "verify", body), { isValid: false });
    t.match(await post(three.app, "settle", body), { success: false });
    t.match(await counted(), [{ reason, count: 3 }]);
    const ofMerchantsCell = await signedPayment({
      chain,
      payer: payers.c1,
      payTo,
      amount: "9000000",
    });
    t.match(await post(three.app, "verify", ofMerchantsCell), { isValid: false });
    t.match(
      await counted(),
      [{ reason, count: 4 }],
      "once, although its payer's cell is the merchant's",
    );
    t.match(await read("/products"), { items: [{ settled: 5, refused: 4 }] });
    for (const { database } of [two, three])
      t.equal((await database.pool.query("SELECT 1 FROM merchant_refusals")).rowCount, 0);
  });

  await t.test("a merchant that was paid in other cells only is a merchant", async (t) => {
    const other = await signIn(one, await payerOf("c1"));
    const account = other.account.address;
    const payer = payers.c2;
    await pay({ app: two.app, chain, payer }, account, "1000");
    const isNotified = async (): Promise<boolean> => {
      const { body } = await send(one, other, "GET", "/api/notifications");
      return (body["items"] as unknown[]).length > 0;
    };
    await until(isNotified);
    // Longer ago than notifications are kept.
    const { pool } = one.app;
    await pool.query(
      `UPDATE notifications SET created_at = now() - interval '40 days'
        WHERE owner_id = (SELECT id FROM owners WHERE address = $1)`,
      [account.toLowerCase()],
    );
    await deleteOldRows(pool, one.config.retention);
    const { body: kept } = await send(one, other, "GET", "/api/notifications");
    t.match(kept["items"], [{ type: "settlement.settled" }], "the last one");
    const body = await signedPayment({ chain, payer, payTo: account, amount: "9000000" });
    t.match(await post(three.app, "verify", body), { isValid: false });
    await three.app.keepRefusals();
    t.match(await read("", other), { refusals: [{ count: 1 }] });
  });

  await t.test("somebody else's rows are nobody's, in any cell", async (t) => {
    const other = await signIn(one, await payerOf("c1"));
    t.same((await read<Listed>("/settlements", other)).items, []);
    const found = await send(one, other, "GET", `/api/merchant/settlements/${ofSecond}`);
    t.match(found, { status: 404, body: { code: "not_found" } });
    const tried = await send(one, other, "POST", refundUrl(ofSecond), {});
    t.match(tried, { status: 404, body: { code: "not_found" } });
    // Only another cell may name a wallet.
    const path = "/api/cells/merchant/settlement";
    const sent = { payee: { address: payTo.toLowerCase(), chainId: 0 }, id: ofSecond };
    const ask = (secret: string) => {
      const forward = {
        from: "c1",
        to: "c2",
        path,
        sentAtSeconds: Math.floor(Date.now() / 1000),
        bodyHash: hashBody(sent),
      };
      const headers = { "purser-forward": signForward(secret, forward) };
      return two.app.inject({ method: "POST", url: path, headers, payload: sent });
    };
    t.equal((await ask("another secret")).statusCode, 404);
    t.match((await ask(SECRET)).json(), { settlement: { id: ofSecond } });
  });

  await t.test("a payment of another cell is refunded once, and has a receipt", async (t) => {
    // The merchant's account was once in that cell.
    await two.database.pool.query(
      `INSERT INTO owners (id, address, chain_id, moved_to, moved_url, moved_at) VALUES ('own_moved', $1, 0, 'c1', 'http://c1', now())`,
      [payTo.toLowerCase()],
    );
    const before = await chain.usdcOf(payers.c2.address);
    const sent = await refund(one, back, ofSecond, "0.003");
    t.match(sent, { status: 200, body: { status: "settled", amount: "0.003" } });
    const rest = await Promise.all([
      refund(one, back, ofSecond, "0.002"),
      refund(one, back, ofSecond, "0.002"),
    ]);
    t.equal(rest[0].body["id"], rest[1].body["id"], "one refund");
    t.equal(await chain.usdcOf(payers.c2.address), before + 5_000n);
    const more = await send(one, merchant, "POST", refundUrl(ofSecond), {});
    t.match(more, { status: 409, body: { code: "not_refundable", refundable: "0" } });
    t.match(await read(`/settlements/${ofSecond}`), { refunded: "0.005", refundable: "0" });
    t.match(await read(""), { totals: { refunds: 2, refunded: "0.005" } });
    const url = `/api/merchant/settlements/${ofSecond}/receipt`;
    const made = await send(one, merchant, "POST", url, {});
    t.equal(made.status, 200);
    t.match(made.body["url"], two.baseUrl);
    const receipt = await two.app.inject(`/api/receipts/${String(made.body["id"])}`);
    t.match(receipt.json(), { receipt: { status: "paid", refunded: "0.005" } });
  });

  await t.test("the state of a payment is found from every cell, within a limit", async (t) => {
    const stateOf = async (id: string, remoteAddress = "192.0.2.1") => {
      const answer = await one.app.inject({ url: `/api/x402/payments/${id}`, remoteAddress });
      return { status: answer.statusCode, body: answer.json() };
    };
    t.match(await stateOf(ofSecond), { status: 200, body: { id: ofSecond, status: "settled" } });
    const unknown = `pay_${"0".repeat(26)}`;
    t.match(await stateOf(unknown), { status: 404 });
    const { rateLimits } = one.config;
    const limit = rateLimits.cells;
    rateLimits.cells = { perMinute: 3, isShared: false };
    const tries = await Promise.all(Array.from({ length: 5 }, () => stateOf(unknown)));
    rateLimits.cells = limit;
    t.match(new Set(tries.map(({ status }) => status)), new Set([404, 429]));
    t.match(await stateOf(paid[1] as string), { status: 200 }, "one that is here costs nothing");
  });

  await t.test("a cell that does not answer is named, and breaks nothing", async (t) => {
    const here = paid.filter((_, index) => index === 1 || index === 4);
    await whileDown(async () => {
      const page = await read<Listed>("/settlements");
      t.same(
        page.items.map(({ id }) => id),
        here,
      );
      t.same(page.missingCells, ["c2"]);
      t.match(await read(""), { totals: { settled: 2, volume: "0.005" }, missingCells: ["c2"] });
      t.match(await read("/products"), { missingCells: ["c2"] });
      const { headers } = merchant;
      const csv = await one.app.inject({ url: "/api/merchant/settlements.csv", headers });
      t.match(csv.headers["content-disposition"], "settlements-without-c2.csv");
      t.equal(csv.body.trim().split("\r\n").length, 3);
      for (const path of [
        `/api/merchant/settlements/${ofSecond}`,
        `/api/x402/payments/${ofSecond}`,
      ]) {
        const answer = await one.app.inject({ url: path, headers, remoteAddress: "192.0.2.9" });
        t.match(answer.json(), { code: "service_unavailable", missingCells: ["c2"] });
      }
      const tried = await send(one, merchant, "POST", refundUrl(ofSecond), {});
      t.match(tried, { status: 503, body: { missingCells: ["c2"] } });
    });
  });

  await t.test(
    "a caller that hung up while another cell settles gets it with a repeat",
    async (t) => {
      const payer = payers.c2;
      const body = await signedPayment({ chain, payer, payTo });
      const ended = new Promise<void>((resolve) => {
        two.app.server.on("request", ({ url }: { url?: string }, response: ServerResponse) => {
          if (url === "/api/cells/settle") void once(response, "close").then(() => resolve());
        });
      });
      await chain.testClient.setIntervalMining({ interval: 0 });
      const hangUp = new AbortController();
      const posted = request(`${one.baseUrl}/api/x402/settle`, {
        method: "POST",
        headers: { "content-type": "application/json" },
        body: JSON.stringify(body),
        signal: hangUp.signal,
      });
      const isAccepted = async (): Promise<boolean> => {
        const from = [payer.address.toLowerCase()];
        const open = "SELECT 1 FROM settlements WHERE from_address = $1 AND status = 'submitted'";
        return (await two.database.pool.query(open, from)).rows.length > 0;
      };
      await until(isAccepted);
      hangUp.abort();
      await t.rejects(posted);
      await ended;
      await chain.testClient.setIntervalMining({ interval: 1 });
      t.match(await post(one.app, "settle", body), { success: true });
      t.match(await post(two.app, "settle", body), { errorReason: "duplicate_settlement" });
    },
  );
}
