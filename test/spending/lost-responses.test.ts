// Goal: when a caller never received its response, the next identical call replays it and pays once; after a
// delivered response, the next identical call is a new purchase.
// Tier: full (waits in real time for callers that never got an answer).
import t, { type Test } from "tap";
import { forgetDelivered } from "../../server/plugins/payments/lost-responses.ts";
import { testApp, type TestApp } from "../helpers/app.ts";
import { asOwner } from "../helpers/owner.ts";
import { until } from "../helpers/until.ts";
import { assertLedgerIsChain, market, PAYEE } from "../x402-client/market.ts";

const env = { SETTLE_WAIT_MS: "3000" };
const made = await market(t, { listen: true, env });
const { agent, baseUrl, chain, database, seller } = made;
// An aborted client leaves a connection open without a request, which Node does not count as idle.
t.teardown(() => made.app.server.closeAllConnections());

interface CallResult {
  status: number;
  body: Record<string, unknown>;
  replayed: string | null;
}

const post = async (
  path: string,
  body: unknown,
  { key, signal, at = baseUrl }: { key?: string; signal?: AbortSignal; at?: string } = {},
): Promise<CallResult> => {
  const answer = await fetch(`${at}/api/agents/${path}`, {
    method: "POST",
    headers: { ...agent.headers, ...(key === undefined ? {} : { "idempotency-key": key }) },
    body: typeof body === "string" ? body : JSON.stringify(body),
    signal: signal ?? null,
  });
  return {
    status: answer.status,
    body: (await answer.json()) as Record<string, unknown>,
    replayed: answer.headers.get("idempotent-replayed"),
  };
};
const mine = async (): Promise<void> => {
  await chain.testClient.setAutomine(true);
  await chain.testClient.mine({ blocks: 1 });
};
/**
 * Sends a call, waits until `begun`, and disconnects. No block is mined meanwhile, so that no response comes
 * before.
 */
const disconnect = async (
  t: Test,
  path: string,
  body: unknown,
  begun: () => Promise<unknown>,
  { decides = true }: { decides?: boolean } = {},
) => {
  await chain.testClient.setAutomine(false);
  const client = new AbortController();
  const request = post(path, body, { signal: client.signal });
  const gone = t.rejects(request, { name: "AbortError" }, "the client received nothing");
  await begun();
  client.abort();
  await gone;
  if (decides) await mine();
};
/** Resolves when the next statement of this name has returned. */
const answered = ({ pool }: TestApp["app"], name: string): Promise<void> => {
  const query = pool.query.bind(pool) as (...args: unknown[]) => Promise<unknown>;
  return new Promise<void>((resolve) => {
    const seen = async (...args: unknown[]): Promise<unknown> => {
      const answer = await query(...args);
      if ((args[0] as { name?: string }).name === name) resolve();
      return answer;
    };
    Object.assign(pool, { query: seen });
  }).then(() => void Reflect.deleteProperty(pool, "query"));
};
const paid = async (): Promise<number> => {
  const { rows } = await database.pool.query<{ count: number }>(
    "SELECT count(*)::int AS count FROM payments WHERE agent_id = $1 AND status IN ('reserved', 'submitted', 'settled', 'unknown')",
    [agent.id],
  );
  return rows[0]?.count ?? 0;
};
const allSettled = async () =>
  until(async () => {
    const { rowCount } = await database.pool.query(
      "SELECT 1 FROM payments WHERE agent_id = $1 AND outstanding",
      [agent.id],
    );
    return rowCount === 0;
  });
let number = 0;
/** A call that differs from all others of this file. */
const spending = () => ({ recipient: PAYEE, amount: "0.001", memo: `n${(number += 1)}` });
const fetching = () => ({ url: `${seller.url}&n=${(number += 1)}` });

/** Holds the seller's responses until they are released. */
function holdSeller(answer = '{"answer":42}') {
  let release: () => void = () => undefined;
  let reached: () => void = () => undefined;
  const held = new Promise<void>((resolve) => (release = resolve));
  const atSeller = new Promise<void>((resolve) => (reached = resolve));
  seller.script = {
    onProof: async ({ response, proof }) => {
      reached();
      await held;
      const transaction = await seller.settle(proof);
      response
        .writeHead(200, { "content-type": "application/json", ...seller.receipt({ transaction }) })
        .end(answer);
    },
  };
  return { release, atSeller };
}

t.test("a fetch whose client disconnected", async (t) => {
  const body = fetching();
  const before = await paid();
  const { release, atSeller } = holdSeller();
  await disconnect(t, "x402-fetch", body, () => atSeller);
  const second = post("x402-fetch", body);
  const third = post("x402-fetch", JSON.stringify({ ...body, reason: "not what is bought" }));
  release();
  for (const result of [await second, await third]) {
    t.match(result, {
      status: 200,
      replayed: "true",
      body: { replayed: true, next: /Idempotency-Key/, paid: true, data: { answer: 42 } },
    });
  }
  t.equal(await paid(), before + 1, "one payment");
  t.equal(seller.proofs.length, 1);

  seller.script = {};
  const next = await post("x402-fetch", body);
  t.match(next, { status: 200, replayed: null, body: { paid: true } });
  t.equal(next.body["replayed"], undefined);
  t.equal(await paid(), before + 2, "its response was delivered: the next call is a new purchase");
  await post("x402-fetch", body);
  t.equal(await paid(), before + 3, "and so is the one after it");
});

t.test("a spend whose client disconnected", async (t) => {
  const body = spending();
  const before = await paid();
  const first = async () => until(async () => (await paid()) === before + 1);
  await disconnect(t, "spend", body, first);
  const joined = await post("spend", { memo: body.memo, amount: body.amount, recipient: PAYEE });
  t.match(joined, { status: 200, replayed: "true", body: { replayed: true, txHash: /^0x/ } });
  t.equal(await paid(), before + 1, "one payment, whatever the order of the fields");
  t.equal((await post("spend", body)).body["replayed"], undefined);
  t.equal(await paid(), before + 2);

  await disconnect(t, "spend", body, async () => until(async () => (await paid()) === before + 3));
  await allSettled();
  const late = await post("spend", body);
  t.match(late.body, { replayed: true }, "also when the payment ended before the repeat");
  t.equal(await paid(), before + 3);
});

t.test("a second purchase needs a key, or a new call after the response", async (t) => {
  const body = spending();
  const before = await paid();
  await disconnect(t, "spend", body, async () => until(async () => (await paid()) === before + 1));
  const own = await post("spend", body, { key: "a second one" });
  t.match(own, { status: 200, replayed: null });
  t.equal(await paid(), before + 2);
  t.match(
    (await post("spend", body)).body,
    { replayed: true },
    "the first call is still undelivered",
  );
  t.equal(await paid(), before + 2);
});

t.test("parallel calls: one pays, the others get its response", async (t) => {
  const before = await paid();
  for (const [path, body] of [
    ["spend", spending()],
    ["x402-fetch", fetching()],
  ] as const) {
    const results = await Promise.all(Array.from({ length: 10 }, () => post(path, body)));
    t.same(
      results.map(({ status }) => status),
      results.map(() => 200),
      JSON.stringify(results.find(({ status }) => status !== 200)),
    );
    t.equal(new Set(results.map((one) => one.body["paymentId"])).size, 1, `${path}: one payment`);
    t.equal(results.filter((one) => one.replayed === null).length, 1);
  }
  t.equal(await paid(), before + 2);
});

t.test("also when one call reaches the database late, on any replica", async (t) => {
  const replica = await testApp(t, { listen: true, database, chain: made.chain, env });
  const isDelivered = async (memo: string): Promise<boolean> => {
    const { rowCount } = await database.pool.query(
      `SELECT 1 FROM idempotency_keys k JOIN payments p ON p.id = k.payment_id
        WHERE p.memo = $1 AND k.told_at <= now() - interval '1 second'`,
      [memo],
    );
    return rowCount === 1;
  };
  /**
   * Delays the first statement of this name, as if it waited for a connection, until the other call's response was
   * delivered.
   */
  const delay = ({ pool }: TestApp["app"], name: string, memo: string) => {
    const query = pool.query.bind(pool) as (...args: unknown[]) => Promise<unknown>;
    let isReached = false;
    const late = async (...args: unknown[]): Promise<unknown> => {
      const [statement] = args as [{ name?: string }];
      if (statement.name === name && !isReached) {
        isReached = true;
        await until(() => isDelivered(memo), 20_000);
      }
      return query(...args);
    };
    Object.assign(pool, { query: late });
    return () => isReached;
  };
  for (const name of ["joinable-call", "purser-reserve"]) {
    const body = spending();
    const before = await paid();
    const isThere = delay(replica.app, name, body.memo);
    const late = post("spend", body, { at: replica.baseUrl });
    await until(isThere);
    const first = await post("spend", body);
    t.match(first, { status: 200, replayed: null });
    t.match(await late, { status: 200, replayed: "true", body: { replayed: true } }, name);
    t.equal(await paid(), before + 1, `${name}: one payment`);
    t.match(await post("spend", body, { at: replica.baseUrl }), { status: 200, replayed: null });
    t.equal(await paid(), before + 2, `${name}: a later call is a new purchase`);
    Reflect.deleteProperty(replica.app.pool, "query");
  }
});

t.test("calls in quick succession are separate purchases", async (t) => {
  const body = fetching();
  const before = await paid();
  for (let turn = 0; turn < 5; turn += 1) t.equal((await post("x402-fetch", body)).replayed, null);
  t.equal(await paid(), before + 5);
});

t.test("when nothing was paid, the next call simply runs", async (t) => {
  const body = { ...fetching(), maxAmount: "0.01" };
  const before = await paid();
  let refused = 0;
  seller.script = {
    onProof: ({ response }) => {
      refused += 1;
      response.writeHead(500).end();
    },
  };
  // A GET is shown to the seller twice, in case it accepts the second time.
  await disconnect(t, "x402-fetch", body, () => until(() => refused === 2));
  seller.script = {};
  const again = await post("x402-fetch", body);
  t.match(again, { status: 200, replayed: null, body: { paid: true } });
  t.equal(await paid(), before + 1);

  seller.script = { terms: () => seller.entry({ amount: "2000000" }) };
  t.match(await post("x402-fetch", body), { status: 403 });
  seller.script = {};
  t.match(
    await post("x402-fetch", body),
    { status: 200, replayed: null },
    "a denial leaves nothing to replay",
  );
});

t.test("a paid failure that was not delivered is replayed, and not paid again", async (t) => {
  const body = fetching();
  const before = await paid();
  let proofs = 0;
  seller.script = {
    onProof: async ({ response, proof }) => {
      proofs += 1;
      if (proofs === 1) await seller.settle(proof);
      response.writeHead(500).end();
    },
  };
  await disconnect(t, "x402-fetch", body, () => until(async () => proofs > 0));
  const replayed = await post("x402-fetch", body);
  t.match(replayed, {
    status: 502,
    replayed: "true",
    body: { code: "paid_upstream_failed", replayed: true, txHash: /^0x/, next: String },
  });
  t.equal(await paid(), before + 1);
  seller.script = {};
  t.match(await post("x402-fetch", body), { status: 200, replayed: null }, "it was delivered now");
});

t.test("also when the repeat requests an approval that already exists", async (t) => {
  const body = fetching();
  const withRequest = { ...body, requestApproval: true };
  const before = await paid();
  const tooDear = { perPaymentLimit: "0.0005" };
  const limit = (change: object) =>
    asOwner(made.app, made.owner, {
      method: "PATCH",
      url: `/api/agents/${agent.id}`,
      body: change,
    });
  t.equal((await limit(tooDear)).statusCode, 200);
  const requested = await post("x402-fetch", withRequest);
  t.match(requested, { status: 202, body: { idempotencyKey: /^approval-/ } });
  t.equal((await limit({ perPaymentLimit: null })).statusCode, 200);
  const { release, atSeller } = holdSeller();
  await disconnect(t, "x402-fetch", body, () => atSeller);
  const joined = post("x402-fetch", withRequest);
  release();
  t.match(await joined, { status: 200, replayed: "true", body: { paid: true, replayed: true } });
  t.equal(await paid(), before + 1, "one payment");
  seller.script = {};
  t.match(await post("x402-fetch", withRequest), { status: 200, replayed: null });
  t.equal(await paid(), before + 2, "delivered: the next call uses the approval");
  t.match(await post("x402-fetch", withRequest), { status: 200, replayed: "true" });
  t.equal(await paid(), before + 2);
});

t.test("after ten minutes it is a new purchase, unless the outcome is open", async (t) => {
  const body = spending();
  const before = await paid();
  const age = async (minutes: number) => {
    const by = `interval '${minutes} minutes'`;
    await database.pool.query(
      `UPDATE idempotency_keys SET created_at = created_at - ${by}, updated_at = updated_at - ${by} WHERE implicit`,
    );
    await database.pool.query(`UPDATE payments SET settled_at = settled_at - ${by}`);
  };
  const isPaying = async () => until(async () => (await paid()) === before + 1);
  await disconnect(t, "spend", body, isPaying, { decides: false });
  await age(11);
  const lookedUp = answered(made.app, "joinable-call");
  const undecided = post("spend", body);
  await lookedUp;
  await mine();
  t.match((await undecided).body, { replayed: true }, "outcome open: joined at any age");
  await disconnect(t, "spend", body, async () => until(async () => (await paid()) === before + 2));
  await allSettled();
  await age(9);
  t.match((await post("spend", body)).body, { replayed: true }, "after nine minutes: joined");
  await disconnect(t, "spend", body, async () => until(async () => (await paid()) === before + 3));
  await allSettled();
  await age(11);
  t.match(
    await post("spend", body),
    { status: 200, replayed: null },
    "after eleven minutes: a new purchase",
  );
  t.equal(await paid(), before + 4);
});

t.test("the seller's response is kept as long as the outcome on chain is open", async (t) => {
  const body = fetching();
  const before = await paid();
  seller.script = { onProof: ({ response }) => void response.writeHead(200).end("on credit") };
  const unknown = { status: 504, body: { code: "payment_status_unknown" } };
  t.match(await post("x402-fetch", body), unknown);
  const ofThis = `implicit AND payment_id = (SELECT id FROM payments WHERE url = '${body.url}')`;
  // As if the process had died before it stored the response.
  await database.pool.query(`UPDATE idempotency_keys SET response = NULL WHERE ${ofThis}`);
  t.match(await post("x402-fetch", body), unknown);
  const noted = await database.pool.query(
    `SELECT 1 FROM idempotency_keys WHERE ${ofThis} AND response IS NOT NULL`,
  );
  t.equal(
    noted.rowCount,
    1,
    "the call that finishes the payment stores the response where later calls look for it",
  );
  const age = () =>
    database.pool.query(
      `UPDATE idempotency_keys SET updated_at = updated_at - interval '1 hour' WHERE ${ofThis}`,
    );
  await age();
  await forgetDelivered(database.pool);
  const proof = seller.proofs.at(-1);
  if (proof) await seller.settle(proof);
  await allSettled();
  await forgetDelivered(database.pool);
  const shown = seller.proofs.length;
  t.match(await post("x402-fetch", body), {
    status: 200,
    replayed: "true",
    body: { text: "on credit", paid: true },
  });
  t.equal(seller.proofs.length, shown, "the seller gets no second request");
  t.equal(await paid(), before + 1);
  seller.script = {};
});

t.test("a lost delivery mark leads to a replay, never to a payment", async (t) => {
  const body = spending();
  const before = await paid();
  await post("spend", body);
  await until(async () => {
    const { rows } = await database.pool.query<{ delivered: boolean }>(
      "SELECT told_at IS NOT NULL AS delivered FROM idempotency_keys WHERE implicit ORDER BY created_at DESC LIMIT 1",
    );
    return rows[0]?.delivered === true;
  });
  await database.pool.query("UPDATE idempotency_keys SET told_at = NULL");
  t.match((await post("spend", body)).body, { replayed: true });
  t.equal(await paid(), before + 1);
});

/** Holds statements of this name until they are released. */
function hold({ pool }: TestApp["app"], name: string): () => void {
  const query = pool.query.bind(pool) as (...args: unknown[]) => Promise<unknown>;
  let release: () => void = () => undefined;
  const released = new Promise<void>((resolve) => (release = resolve));
  const held = async (...args: unknown[]): Promise<unknown> => {
    if ((args[0] as { name?: string }).name === name) await released;
    return query(...args);
  };
  Object.assign(pool, { query: held });
  return () => {
    Reflect.deleteProperty(pool, "query");
    release();
  };
}

t.test(
  "a call that another process gets before the delivery mark is stored is a replay",
  async (t) => {
    const replica = await testApp(t, { listen: true, database, chain: made.chain, env });
    const body = spending();
    const before = await paid();
    const release = hold(made.app, "calls-delivered");
    t.match(await post("spend", body), { status: 200, replayed: null });
    const at = replica.baseUrl;
    t.match(await post("spend", body, { at }), { status: 200, replayed: "true" });
    t.equal(await paid(), before + 1);
    t.match(await post("spend", body, { at }), { status: 200, replayed: null }, "it was delivered");
    release();
    t.match(await post("spend", body), { status: 200, replayed: null });
    t.equal(await paid(), before + 3);
  },
);

t.test("a response is kept for as long as a call can join it", async (t) => {
  const delivered = fetching();
  await post("x402-fetch", delivered);
  const { release, atSeller } = holdSeller();
  const undelivered = fetching();
  await disconnect(t, "x402-fetch", undelivered, () => atSeller);
  release();
  await allSettled();
  const rowOf = ({ url }: { url: string }) =>
    `implicit AND payment_id = (SELECT id FROM payments WHERE url = '${url}')`;
  const isKept = async (body: { url: string }): Promise<boolean> =>
    (
      await database.pool.query(
        `SELECT 1 FROM idempotency_keys WHERE ${rowOf(body)} AND response IS NOT NULL`,
      )
    ).rowCount === 1;
  await until(() => isKept(undelivered));
  const grow = async () => {
    await database.pool.query(
      "UPDATE idempotency_keys SET updated_at = updated_at - interval '6 minutes' WHERE implicit",
    );
    await database.pool.query("UPDATE payments SET settled_at = settled_at - interval '6 minutes'");
  };
  const age = async () => {
    await grow();
    await forgetDelivered(database.pool);
  };
  await age();
  t.ok(await isKept(delivered), "a call from before the delivery may look it up late");
  t.match((await post("x402-fetch", undelivered)).body, { replayed: true, data: { answer: 42 } });
  await age();
  t.notOk((await isKept(delivered)) || (await isKept(undelivered)));

  // One that is marked delivered at the same moment is deleted as well.
  const marked = fetching();
  await post("x402-fetch", marked);
  await allSettled();
  await until(() => isKept(marked));
  await grow();
  await grow();
  const marking = await database.pool.connect();
  await marking.query("BEGIN");
  await marking.query(`UPDATE idempotency_keys SET told_at = now() WHERE ${rowOf(marked)}`);
  const deleting = forgetDelivered(database.pool);
  await until(async () => {
    const { rowCount } = await database.pool.query(
      "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'",
    );
    return rowCount !== 0;
  });
  await marking.query("COMMIT");
  marking.release();
  await deleting;
  t.notOk(await isKept(marked));

  // A call that joins it afterwards gets the part that is left.
  await database.pool.query(
    `UPDATE idempotency_keys SET updated_at = now(), told_at = NULL WHERE ${rowOf(delivered)}`,
  );
  const { rows } = await database.pool.query<{ id: string }>(
    "SELECT id FROM payments WHERE url = $1",
    [delivered.url],
  );
  const before = await paid();
  t.match(await post("x402-fetch", delivered), {
    status: 409,
    body: { code: "answer_not_kept", paymentId: rows[0]?.id, detail: /Nothing was paid now/ },
  });
  t.equal(await paid(), before);
  seller.script = {};
});

t.test("the ledger equals the chain", async (t) => {
  await allSettled();
  await assertLedgerIsChain(t, made);
});
