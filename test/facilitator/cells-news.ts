// A merchant whose account is in the first cell is notified of what the others settled, and owes one sum of fees.
import type { IncomingMessage, RequestListener, ServerResponse } from "node:http";
import { text } from "node:stream/consumers";
import type { Test } from "tap";
import { deleteOldRows } from "../../server/infra/retention.ts";
import { FORWARD_HEADER } from "../../server/plugins/cells/index.ts";
import {
  placeIn,
  readNewsFor,
  takeTurn,
  writeNews,
} from "../../server/plugins/cells/news-store.ts";
import { signIn } from "../helpers/owner.ts";
import { until } from "../helpers/until.ts";
import { FEE_ADDRESS, pay, payFeesUrl, refund, send } from "../merchants/world.ts";
import { post, signedPayment } from "./payments.ts";
import { newsAreRead, type CellsWorld } from "./cells-world.ts";

interface Asked {
  feesAfter?: string | null;
  noticesAfter?: string | null;
}
interface Notified {
  type: string;
  data: Record<string, unknown>;
}

export async function newsCases(
  t: Test,
  { worlds, payerOf, whileDown, whileAnswering }: CellsWorld,
) {
  const [one, two, three] = worlds;
  const { chain } = one;
  const merchant = await signIn(one, await payerOf("c1"));
  const payTo = merchant.account.address;
  const payers = { c1: await payerOf("c1"), c2: await payerOf("c2"), c3: await payerOf("c3") };
  const payFrom = (id: keyof typeof payers, amount = "1000"): Promise<string> =>
    pay({ app: one.app, chain, payer: payers[id] }, payTo, amount);
  const notified = async (): Promise<Notified[]> => {
    const { body } = await send(one, merchant, "GET", "/api/notifications?limit=100");
    return (body["items"] as Notified[]).toReversed();
  };
  const settlements = async (): Promise<unknown[]> =>
    (await notified())
      .filter(({ type }) => type === "settlement.settled")
      .map(({ data }) => data["settlementId"]);
  const readAll = () => Promise.all(worlds.map(newsAreRead));
  const areSettlements = (count: number): Promise<void> =>
    until(async () => (await settlements()).length >= count);

  const paid: string[] = [];
  await t.test("each settlement is notified once, however often the news are read", async (t) => {
    paid.push(await payFrom("c1"), await payFrom("c2"), await payFrom("c3"));
    await areSettlements(3);
    await readAll();
    t.same(new Set(await settlements()), new Set(paid));
    t.equal((await settlements()).length, 3);

    // Three replicas have read the same, and write it together.
    const { pool } = one.app;
    await until(() => takeTurn(pool, "c2", 600_000));
    paid.push(await payFrom("c2", "2000"));
    const asked = await placeIn(pool, "c2");
    let news = await readNewsFor(two.app.pool, "c1", asked);
    // Other tests' transactions on the same server hold news back.
    await until(async () => {
      news = await readNewsFor(two.app.pool, "c1", asked);
      return news.notices.length > 0;
    });
    const written = [1, 2, 3].map(() => writeNews(pool, "c2", { asked, news }));
    t.equal((await Promise.all(written)).filter(Boolean).length, 1);
    await pool.query("UPDATE cell_news SET next_read_at = now()");
    await readAll();
    t.equal((await settlements()).length, 4);
    t.match((await notified()).at(-1), {
      type: "settlement.settled",
      data: { settlementId: paid.at(-1), amount: "0.002", payTo: payTo.toLowerCase() },
    });
    const left = await one.database.pool.query("SELECT 1 FROM cell_notices WHERE address = $1", [
      payTo.toLowerCase(),
    ]);
    t.equal(left.rowCount, 0, "its own cell needs no notice");
  });

  await t.test("a transaction that ends later than younger ones is not passed over", async (t) => {
    const slow = await two.database.pool.connect();
    try {
      await slow.query("BEGIN");
      await slow.query(
        `INSERT INTO cell_notices (address, chain_id, type, subject_id, data)
         VALUES ($1, 1, 'settlement.settled', 'pay_slow', '{"settlementId": "pay_slow"}')`,
        [payTo.toLowerCase()],
      );
      paid.push(await payFrom("c2"));
      await readAll();
      t.notOk((await settlements()).includes(paid.at(-1)), "it waits for the older one");
      await slow.query("COMMIT");
    } finally {
      slow.release(true);
    }
    await areSettlements(6);
    t.same((await settlements()).slice(-2), ["pay_slow", paid.at(-1)]);
  });

  await t.test("a cell that is down delays only its own", async (t) => {
    const before = (await settlements()).length;
    await whileDown(async () => {
      // It runs, and the others cannot reach it.
      paid.push(await pay({ app: two.app, chain, payer: payers.c2 }, payTo, "1000"));
      paid.push(await payFrom("c3"));
      await areSettlements(before + 1);
      t.same((await settlements()).slice(before), [paid.at(-1)], "the third cell's is here");
      await newsAreRead(one);
      const { rows } = await one.database.pool.query<{ cell: string }>(
        "SELECT cell FROM cell_news WHERE read_at < next_read_at - interval '1 second'",
      );
      t.same(rows, [{ cell: "c2" }], "only the second one's are old");
    });
    await areSettlements(before + 2);
    t.equal((await settlements()).at(-1), paid.at(-2));
  });

  const answerMore = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    const { feesAfter = null, noticesAfter = null } = JSON.parse(await text(request)) as Asked;
    const news = { fees: [], notices: [], feesAfter, noticesAfter, isMore: true };
    response.writeHead(200, { "content-type": "application/json" });
    const more = JSON.stringify({ ...news, behindSeconds: 0 });
    setTimeout(() => response.end(more), 20);
  };
  const answers: Record<string, RequestListener> = {
    "one byte after the other": (_request, response) => {
      response.writeHead(200, { "content-type": "application/json" });
      const timer = setInterval(() => response.write(" "), 50);
      response.on("close", () => clearInterval(timer));
    },
    "that there is always more": (request, response) => {
      void answerMore(request, response);
    },
  };
  for (const [what, answer] of Object.entries(answers))
    await t.test(`a cell that answers ${what} delays only its own`, async (t) => {
      const before = (await settlements()).length;
      let isAsked = false;
      const listener: RequestListener = (request, response) => {
        isAsked ||= String(request.headers[FORWARD_HEADER]).startsWith("v1 c1 ");
        answer(request, response);
      };
      await whileAnswering(listener, async () => {
        await until(() => isAsked);
        paid.push(await payFrom("c3"));
        await until(async () => (await settlements()).length > before);
        t.same((await settlements()).slice(before), [paid.at(-1)], "the third cell's is here");
      });
    });

  await t.test("the oldest notification that was not read says how old the news are", async (t) => {
    const { pool } = two.database;
    const ageInFirst = async (): Promise<number> => {
      const { rows } = await one.database.pool.query<{ seconds: number }>(
        "SELECT extract(epoch FROM clock_timestamp() - read_at)::float8 AS seconds FROM cell_news WHERE cell = 'c2'",
      );
      return rows[0]?.seconds ?? Number.NaN;
    };
    const open = await pool.connect();
    try {
      // A transaction holds back what is younger, for an hour.
      await open.query("BEGIN");
      await open.query("SELECT pg_current_xact_id()");
      paid.push(await payFrom("c2"));
      await pool.query("UPDATE cell_notices SET created_at = now() - interval '1 hour'");
      await until(async () => (await ageInFirst()) > 3_000);
    } finally {
      await open.query("COMMIT");
      open.release();
    }
    await until(async () => (await settlements()).includes(paid.at(-1)));
    await readAll();
    t.ok((await ageInFirst()) < 600, "and they are new again");
  });

  await t.test("the outcome of a refund in another cell is notified", async (t) => {
    const back = { account: merchant.account, headers: merchant.headers };
    const made = await refund(one, back, String(paid[1]));
    t.match(made, { status: 200, body: { status: "settled" } });
    await until(async () => (await notified()).at(-1)?.type === "refund.settled");
    t.match((await notified()).at(-1), {
      type: "refund.settled",
      data: { settlementId: paid[1], refundId: made.body["id"] },
    });
  });

  await t.test("a cell that was restored is read from where it is now", async (t) => {
    // As if many transactions of the second cell had been lost.
    const future = 10n ** 15n;
    await one.database.pool.query(
      "UPDATE cell_news SET notices_after = $1, fees_after = $2 WHERE cell = 'c2'",
      [`${future} 1`, `${future} 1 ${payTo.toLowerCase()}`],
    );
    const before = (await settlements()).length;
    const placeOf = async (): Promise<string> => {
      const places = await one.database.pool.query<{ place: string }>(
        "SELECT notices_after AS place FROM cell_news WHERE cell = 'c2'",
      );
      return String(places.rows[0]?.place);
    };
    await until(async () => !(await placeOf()).startsWith(String(future)));
    paid.push(await payFrom("c2"));
    await areSettlements(before + 1);
    t.same((await settlements()).slice(before), [paid.at(-1)], "nothing twice");
  });

  await t.test("what other cells have read is deleted after an hour", async (t) => {
    const { pool } = two.database;
    const countOf = async () =>
      Number((await pool.query("SELECT count(*) AS n FROM cell_notices")).rows[0].n);
    await pool.query("UPDATE cell_notices SET created_at = now() - interval '2 hours'");
    paid.push(await payFrom("c2"));
    const isReadByAll = async (): Promise<boolean> => {
      const { rows } = await pool.query<{ read: boolean }>(
        "SELECT min(c.their_tx) >= (SELECT max(tx) FROM cell_notices) AS read FROM cell_news c",
      );
      return rows[0]?.read === true;
    };
    await until(isReadByAll);
    await deleteOldRows(two.app.pool, two.config.retention);
    t.equal(await countOf(), 1, "the newest stays");
    await pool.query("UPDATE cell_notices SET created_at = now() - interval '2 hours'");
    await pool.query("UPDATE cell_news SET their_tx = -1 WHERE cell = 'c3'");
    await deleteOldRows(two.app.pool, two.config.retention);
    t.equal(await countOf(), 1, "the third cell has not read it");
  });

  await t.test("fees of all cells are one account", (t) => feeCases(t));

  async function feeCases(t: Test): Promise<void> {
    const seller = await signIn(one, await payerOf("c1"));
    const account = seller.account.address;
    for (const { config } of worlds)
      Object.assign(config.fees, {
        perSettlementAtomic: 10_000n,
        creditAtomic: 25_000n,
      });
    const settle = (id: keyof typeof payers) =>
      pay({ app: one.app, chain, payer: payers[id] }, account, "200000");
    const feesOf = async (path = "") => {
      const { status, body } = await send(one, seller, "GET", `/api/merchant/fees${path}`);
      t.equal(status, 200);
      return body;
    };
    /** In every cell. */
    const areOwed = (owed: bigint): Promise<void> =>
      until(async () => {
        const sums = worlds.map(({ database }) =>
          database.pool.query<{ owed: string }>(
            `SELECT sum(charged - paid)::text AS owed FROM (
               SELECT account, charged, paid FROM fee_accounts
               UNION ALL SELECT account, charged, paid FROM cell_fee_accounts) AS f WHERE account = $1`,
            [account.toLowerCase()],
          ),
        );
        return (await Promise.all(sums)).every(({ rows }) => rows[0]?.owed === String(owed));
      });
    const sold = [await settle("c2"), await settle("c3")];
    await areOwed(20_000n);
    t.match(await feesOf(), { accounts: [{ owed: "0.02", charged: "0.02", refused: false }] });

    // Two cells together reach the credit, so a third one refuses.
    for (const id of ["c1", "c2", "c3"] as const) {
      const body = await signedPayment({
        chain,
        payer: payers[id],
        payTo: account,
        amount: "200000",
      });
      t.match(await post(one.app, "settle", body), { errorReason: "fees_unpaid" }, id);
    }
    const list = await feesOf("/entries?limit=1");
    t.match(list, { items: [{ id: sold[1], amount: "0.01" }], missingCells: [] });
    t.match(await feesOf(`/entries?cursor=${String(list["nextCursor"])}`), {
      items: [{ id: sold[0] }],
      nextCursor: null,
    });
    await whileDown(async () => {
      t.match(await feesOf("/entries"), { items: [{ id: sold[1] }], missingCells: ["c2"] });
      t.match(await feesOf(), { accounts: [{ owed: "0.02" }] }, "as that cell said last");
      const csv = await one.app.inject({
        url: "/api/merchant/fees/entries.csv",
        headers: seller.headers,
      });
      t.match(csv.headers["content-disposition"], "fees-without-c2.csv");
    });

    // It is paid in the payer's cell, wherever that is posted.
    const offer = await three.app.inject({ method: "POST", url: payFeesUrl(account) });
    t.equal(offer.statusCode, 402);
    const terms = Buffer.from(String(offer.headers["payment-required"]), "base64").toString();
    const { accepts, resource } = JSON.parse(terms) as {
      accepts: { amount: string }[];
      resource: unknown;
    };
    t.equal(accepts[0]?.amount, "20000");
    const signed = await signedPayment({
      chain,
      payer: payers.c2,
      payTo: FEE_ADDRESS,
      amount: "20000",
    });
    const proof = { ...signed.paymentPayload, resource, accepted: accepts[0] };
    const answer = await three.app.inject({
      method: "POST",
      url: payFeesUrl(account),
      headers: { "payment-signature": Buffer.from(JSON.stringify(proof)).toString("base64") },
    });
    t.match(answer.json(), { paid: "0.02", owed: "0" }, answer.body);
    await areOwed(0n);
    t.match(await feesOf(), { accounts: [{ owed: "0", paid: "0.02", charged: "0.02" }] });
    await settle("c1");
    // A second look at everything changes nothing.
    await one.database.pool.query("UPDATE cell_news SET fees_after = NULL");
    await areOwed(10_000n);
    t.match(await feesOf(), { accounts: [{ owed: "0.01", paid: "0.02", charged: "0.03" }] });
  }
}
