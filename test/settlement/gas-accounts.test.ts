// Goal: a gas budget is never exceeded by parallel requests; a group of payments shrinks to what the budget still holds.
import t from "tap";
import { readGasBudget } from "../../server/core/gas.ts";
import { inTransaction, type Pool } from "../../server/infra/db/pool.ts";
import { acceptInGroups, acceptSettlements } from "../../server/plugins/settlement/accept.ts";
import {
  limitsOf,
  readGasAccounts,
  writeGasLimits,
} from "../../server/plugins/settlement/gas-store.ts";
import { findByAuthorization } from "../../server/plugins/settlement/store.ts";
import type { SettlementRequest } from "../../server/plugins/settlement/types.ts";
import { expectGasIsAccounted } from "../helpers/engine-invariants.ts";
import { randomAddress, randomNonce, request } from "../helpers/engine.ts";
import { testDatabase } from "../helpers/postgres.ts";

const CHAIN_ID = 5042002;
const HOLD = 10n ** 15n;

/** Acceptance as in one replica: grouped, on the given pool. */
const replica = (pool: Pool) =>
  acceptInGroups({
    acceptAll: (requests) => inTransaction(pool, (sql) => acceptSettlements(sql, requests)),
    find: (key) => findByAuthorization(pool, key),
  });

function payment(accounts: string[], hold = HOLD): SettlementRequest {
  const authorization = {
    chainId: CHAIN_ID,
    asset: randomAddress(),
    from: randomAddress(),
    to: randomAddress(),
    value: 1_000n,
    validAfter: 0n,
    validBefore: 4_102_444_800n,
    nonce: randomNonce(),
    signature: `0x${"11".repeat(65)}` as const,
  };
  return { ...request(authorization), gas: { accounts, hold } };
}

async function world(budget: string) {
  const { pool, url } = await testDatabase(t);
  await writeGasLimits(pool, CHAIN_ID, limitsOf(readGasBudget(budget), 3n));
  return { pool, url };
}

const settled = (results: PromiseSettledResult<unknown>[]): number =>
  results.filter(({ status }) => status === "fulfilled").length;

t.test("two replicas share the bucket of third parties exactly", async (t) => {
  const { pool } = await world("strangers=0.0104");
  const [one, other] = [replica(pool), replica(pool)];
  const results = await Promise.allSettled(
    Array.from({ length: 60 }, (_, index) =>
      (index % 2 === 0 ? one : other)(payment(["strangers", `payer:${randomAddress()}`])),
    ),
  );
  t.equal(settled(results), 10, "as many as it holds, and not one more");
  const refused = results.filter(({ status }) => status === "rejected");
  t.ok(
    refused.every((result) =>
      t.match(result, { reason: { code: "gas_budget_exhausted", extra: { availableAt: /^20/ } } }),
    ),
  );
  await expectGasIsAccounted(t, pool);
});

t.test("an unused budget is exactly full", async (t) => {
  const { pool } = await world("agents=20");
  for (let count = 0; count < 50; count += 1)
    for (const { account, left, perDay } of await readGasAccounts(pool, CHAIN_ID, [
      "agents",
      "merchants",
    ]))
      if (left !== perDay) t.fail(`${account}: ${left} of ${perDay}`);
});

t.test("a group loses exactly the payments whose own bucket is empty", async (t) => {
  const { pool } = await world("payee=0.003,merchant=0.002");
  const accept = replica(pool);
  const shop = `payee:${randomAddress()}`;
  const forShop = Array.from({ length: 12 }, () => payment(["strangers", shop]));
  const others = Array.from({ length: 12 }, () =>
    payment(["strangers", `payee:${randomAddress()}`]),
  );
  const keyed = Array.from({ length: 5 }, () => payment(["merchants", "merchant:k"]));
  const tooDear = payment(["merchants", "merchant:l"], 3n * HOLD);
  const results = await Promise.allSettled([...forShop, ...others, ...keyed, tooDear].map(accept));
  t.equal(settled(results.slice(0, 12)), 3, "those of the shop");
  t.equal(settled(results.slice(12, 24)), 12, "all others of the same group");
  t.equal(settled(results.slice(24, 29)), 2, "those of a merchant");
  t.match(results.at(-1), {
    reason: {
      code: "gas_budget_exhausted",
      extra: { availableAt: null },
      message: /costs more than/,
    },
  });
  await expectGasIsAccounted(t, pool);
});

t.test("the same payment submitted again costs nothing more", async (t) => {
  const { pool } = await world("strangers=0.0014");
  const [one, other] = [replica(pool), replica(pool)];
  const wanted = payment(["strangers"]);
  const answers = await Promise.all(
    Array.from({ length: 20 }, (_, index) =>
      (index % 2 === 0 ? one : other)({ ...wanted, id: `${wanted.id}${index}` }),
    ),
  );
  t.equal(answers.filter(({ created }) => created).length, 1);
  const { rows } = await pool.query(
    "SELECT held::text FROM gas_accounts WHERE account = 'strangers'",
  );
  t.same(rows, [{ held: String(HOLD) }]);
  await expectGasIsAccounted(t, pool);
});

t.test("an owner's bucket is shared by many connections under its row lock", async (t) => {
  const { pool } = await world("owner=0.0101");
  const takes = await Promise.all(
    Array.from({ length: 50 }, () =>
      pool.query<{ fits_at: Date | null }>(
        "SELECT purser_gas_take($1, 'owner:own_1', $2) AS fits_at",
        [CHAIN_ID, String(HOLD)],
      ),
    ),
  );
  t.equal(takes.filter(({ rows }) => rows[0]?.fits_at === null).length, 10);
});

t.test("a payment costs more than estimated: the debt is paid first", async (t) => {
  const { pool } = await world("strangers=0.01");
  const accept = replica(pool);
  await pool.query("SELECT purser_gas_move($1, '{strangers}', '{0}', ARRAY[$2::numeric])", [
    CHAIN_ID,
    String(15n * HOLD),
  ]);
  const [refused] = await Promise.allSettled([accept(payment(["strangers"]))]);
  t.match(refused, { reason: { code: "gas_budget_exhausted" } });
  const { availableAt } = (
    refused as PromiseRejectedResult & { reason: { extra: { availableAt: string } } }
  ).reason.extra;
  const hours = (Date.parse(availableAt) - Date.now()) / 3_600_000;
  t.ok(hours > 14.3 && hours < 14.5, `when 6 of 10 have come back: ${hours} h`);
  await pool.query("UPDATE gas_accounts SET full_at = full_at - interval '14.5 hours'");
  t.match(await accept(payment(["strangers"])), { created: true });
});
