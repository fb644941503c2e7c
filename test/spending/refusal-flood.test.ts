// Goal: each of thousands of different refusals of one agent gets a complete response, and they write a bounded
// number of rows that count them all.
import t from "tap";
import { getAddress, type Hex } from "viem";
import type { Payment } from "../../server/schemas/payments.ts";
import { callApi, spendAs } from "../helpers/call.ts";
import { testApp } from "../helpers/app.ts";
import { createAgent, signIn } from "../helpers/owner.ts";
import { isFullTier } from "../helpers/tier.ts";

const KEPT = 100;
const FLOOD = isFullTier ? 500 : 220;
const AT_ONCE = 24;

const ctx = await testApp(t);
const replica = await testApp(t, { chain: ctx.chain, database: ctx.database });
const { app, database } = ctx;
const owner = await signIn(ctx);

const payeeNumber = (nth: number): Hex =>
  getAddress(`0x${(nth + 1).toString(16).padStart(40, "0")}`);

t.test("a flood of different refusals", async (t) => {
  const agent = await createAgent(ctx, owner, { dailyLimit: "1", allowlist: [] });
  /** Per hour: the flood may cross an hour boundary. */
  const hoursOf = async () => {
    const { rows } = await database.pool.query<{ rows: number; rules: number; refusals: number }>(
      `SELECT count(*)::int AS rows, count(DISTINCT denial_code)::int AS rules, sum(1 + repeats)::int AS refusals
         FROM payments WHERE agent_id = $1 GROUP BY date_trunc('hour', created_at)`,
      [agent.id],
    );
    return rows;
  };
  const sum = (counts: readonly number[]): number => counts.reduce((all, one) => all + one, 0);
  const spend = async (nth: number, amount = "0.5") => {
    const { statusCode, body } = await spendAs(nth % 2 === 0 ? app : replica.app, agent, {
      recipient: payeeNumber(nth),
      amount,
      memo: `memo ${nth}`,
    });
    return { statusCode, body: JSON.parse(body) as Record<string, unknown> };
  };

  let next = 0;
  const ids = new Set<unknown>();
  await Promise.all(
    Array.from({ length: AT_ONCE }, async () => {
      while (next < FLOOD) {
        const { statusCode, body } = await spend(next++);
        if (statusCode !== 403) t.fail(JSON.stringify(body));
        t.match(
          body,
          {
            code: "recipient_not_allowed",
            blocked: true,
            suggestion: /./,
            policy: { rule: "allowlist", limit: String, requested: "0.5" },
          },
          { diagnostic: false },
        );
        ids.add(body["paymentId"]);
      }
    }),
  );
  const hours = await hoursOf();
  for (const { rows, rules } of hours) t.ok(rows <= KEPT + rules, `${rows} rows in an hour`);
  t.equal(sum(hours.map(({ refusals }) => refusals)), FLOOD, "all are counted");
  t.equal(ids.size, sum(hours.map(({ rows }) => rows)), "every response names a row");

  const read = async <Answer>(url: string, headers: Record<string, string>): Promise<Answer> =>
    (await app.inject({ url, headers })).json<Answer>();
  const { rows: others } = await database.pool.query<{ id: string; repeats: number }>(
    "SELECT id, repeats FROM payments WHERE agent_id = $1 AND counterparty IS NULL ORDER BY created_at DESC",
    [agent.id],
  );
  const [other] = others;
  t.ok(others.length > 0 && others.length <= hours.length, "one per rule and hour");
  const expected = {
    status: "blocked",
    recipient: null,
    amount: "0",
    memo: null,
    repeats: other?.repeats,
    denial: { code: "recipient_not_allowed", suggestion: /./, policy: { rule: "allowlist" } },
  };
  t.match(await read(`/api/agents/me/payments/${other?.id}`, agent.headers), expected);
  t.match(await read(`/api/agents/${agent.id}/payments/${other?.id}`, owner.headers), expected);
  const { items } = await read<{ items: Payment[] }>(
    `/api/agents/${agent.id}/payments?status=blocked&limit=100`,
    owner.headers,
  );
  t.ok(
    items.some(({ recipient }) => recipient === null),
    "it is in the list",
  );
  t.match(await read(`/api/agents/${agent.id}`, owner.headers), { blocked24h: FLOOD });

  // Another rule has its own row, also above the limit.
  const change = await callApi(app, owner, "PATCH", `/api/agents/${agent.id}`, {
    status: "paused",
  });
  t.equal(change.statusCode, 200, change.body);
  for (const nth of [1, 2, 3]) t.match(await spend(nth), { body: { code: "agent_paused" } });
  const after = await hoursOf();
  for (const { rows, rules } of after) t.ok(rows <= KEPT + rules, `${rows} rows in an hour`);
  t.equal(sum(after.map(({ refusals }) => refusals)), FLOOD + 3);
  t.ok(after.some(({ rules }) => rules === 2) || after.length > hours.length);
});

t.test("the next hour keeps single rows again", async (t) => {
  const agent = await createAgent(ctx, owner, { dailyLimit: "1", allowlist: [] });
  await database.pool.query(
    "UPDATE agents SET refusals = $2, refusals_hour = date_trunc('hour', now()) - interval '1 hour' WHERE id = $1",
    [agent.id, KEPT],
  );
  const refused = await spendAs(app, agent, { recipient: payeeNumber(1), amount: "0.5" });
  const { paymentId } = refused.json<{ paymentId: string }>();
  const kept = await app.inject({
    url: `/api/agents/me/payments/${paymentId}`,
    headers: agent.headers,
  });
  t.match(kept.json(), { recipient: payeeNumber(1), amount: "0.5", repeats: 0 });
});
