// Goal: settlements accepted in one SQL statement have the same results as one by one: a reservation that is gone
// fails only its own request.
import t from "tap";
import { getAddress } from "viem";
import { createPool, inTransaction, LOCK_TIMEOUT, TIMEOUTS } from "../../server/infra/db/pool.ts";
import {
  isReservationGone,
  markUnknownInGroups,
  voidUnsigned,
} from "../../server/plugins/guardrails/store.ts";
import { acceptInGroups, acceptSettlements } from "../../server/plugins/settlement/accept.ts";
import { newId } from "../../server/core/ids.ts";
import { finalizeTransaction } from "../../server/plugins/settlement/lane-store.ts";
import { finalizeSettlements, findByAuthorization } from "../../server/plugins/settlement/store.ts";
import type { SettlementKey } from "../../server/core/authorization.ts";
import type { SettlementRequest } from "../../server/plugins/settlement/types.ts";
import { testDatabase } from "../helpers/postgres.ts";
import { ASSET, CHAIN_ID, PAYEE, randomAddress, seedAgent } from "./guardrails-sql.helper.ts";
import { randomNonce } from "../helpers/engine.ts";
import { until } from "../helpers/until.ts";

t.test("accepting settlements in groups", async (t) => {
  const database = testDatabase(t);
  const pool = createPool((await database).url, { maxConnections: 5 });
  t.teardown(() => pool.end());
  const agent = await seedAgent(pool, { dailyLimit: 1_000_000n });
  const make = (more: Partial<SettlementRequest> = {}): SettlementRequest => ({
    id: newId("pay"),
    kind: "facilitated",
    agentId: null,
    relay: true,
    authorization: {
      chainId: CHAIN_ID,
      asset: ASSET,
      from: randomAddress(),
      to: PAYEE,
      value: 5n,
      validAfter: 0n,
      validBefore: 4_000_000_000n,
      nonce: randomNonce(),
      signature: `0x${"11".repeat(65)}`,
    },
    ...more,
  });
  const reserved = async (): Promise<SettlementRequest> => {
    const wanted = make({ kind: "spend", agentId: agent.agentId });
    await pool.query("UPDATE agents SET window_sum = window_sum + 5 WHERE id = $1", [
      agent.agentId,
    ]);
    await pool.query(
      `INSERT INTO payments (agent_id, id, kind, status, chain_id, asset, counterparty, amount, nonce, valid_before)
       VALUES ($1, $2, 'spend', 'reserved', $3, $4, $5, 5, $6, 4000000000)`,
      [agent.agentId, wanted.id, CHAIN_ID, ASSET, PAYEE, wanted.authorization.nonce],
    );
    return wanted;
  };
  const find = (key: SettlementKey) => findByAuthorization(pool, key);
  const statusOf = async ({ id }: SettlementRequest): Promise<string> =>
    (await pool.query<{ status: string }>("SELECT status FROM payments WHERE id = $1", [id]))
      .rows[0]?.status ?? "none";

  await t.test("new, known, repeated and watched settlements", async (t) => {
    const known = make();
    const watched: SettlementRequest = { ...(await reserved()), kind: "x402", relay: false };
    await acceptSettlements(pool, [known, watched]);
    const fresh = make();
    const again = { ...fresh, id: newId("pay") };
    const attach = { ...watched, id: newId("pay"), relay: true, bodyHash: Buffer.alloc(32, 7) };
    const other = { ...watched.authorization, to: randomAddress() };
    const foreign = { ...attach, id: newId("pay"), authorization: other };
    const answers = await acceptSettlements(pool, [
      fresh,
      { ...known, id: newId("pay") },
      foreign,
      attach,
      again,
      { ...attach, id: newId("pay") },
    ]);
    t.same(
      answers.map(({ created, attached, settlement }) => [
        created,
        attached,
        settlement.id,
        settlement.relay,
      ]),
      [
        [true, false, fresh.id, true],
        [false, false, known.id, true],
        [false, false, watched.id, false],
        [false, true, watched.id, true],
        [false, false, fresh.id, true],
        [false, false, watched.id, true],
      ],
    );
    t.same(answers[0]?.settlement.authorization, { ...fresh.authorization, terms: null });
    t.same(answers[3]?.settlement.bodyHash, Buffer.alloc(32, 7));
    const { rows } = await pool.query("SELECT 1 FROM settlements");
    t.equal(rows.length, 3, "one row per authorization");
  });

  await t.test("two requests attach a watched settlement at once", async (t) => {
    const watched: SettlementRequest = { ...(await reserved()), kind: "x402", relay: false };
    await acceptSettlements(pool, [watched]);
    const attach = (fill: number): SettlementRequest => ({
      ...watched,
      id: newId("pay"),
      relay: true,
      bodyHash: Buffer.alloc(32, fill),
    });
    let second: ReturnType<typeof acceptSettlements> | undefined;
    const first = await inTransaction(pool, async (sql) => {
      const accepted = await acceptSettlements(sql, [attach(1)]);
      second = acceptSettlements(pool, [attach(2)]);
      await until(async () => {
        const { rowCount } = await pool.query(
          "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'",
        );
        return rowCount === 1;
      });
      return accepted;
    });
    const seen = [...first, ...((await second) ?? [])];
    t.equal(seen.length, 2);
    t.same(
      seen.map((accepted) => [accepted?.attached, accepted?.settlement.relay]),
      [
        [true, true],
        [false, true],
      ],
    );
    for (const accepted of seen)
      t.same(
        accepted?.settlement.bodyHash,
        Buffer.alloc(32, 1),
        "the body hash of the first request",
      );
  });

  await t.test("the result for a new settlement equals its row in every field", async (t) => {
    const full = make({
      authorization: {
        ...make().authorization,
        to: getAddress(randomAddress()),
        nonce: `permit2:${randomNonce()}`,
        terms: { scheme: "exact-permit2" },
      },
      callerKeyHash: Buffer.alloc(32, 3),
      bodyHash: Buffer.alloc(32, 4),
      acceptedBlock: 7n,
      traceparent: `00-${"a".repeat(32)}-${"b".repeat(16)}-01`,
    });
    for (const { created, settlement } of await acceptSettlements(pool, [full, make()])) {
      t.ok(created);
      t.strictSame(settlement, await find(settlement.authorization));
    }
  });

  await t.test("a request whose reservation is gone fails alone", async (t) => {
    const wanted = await Promise.all([reserved(), reserved(), reserved(), reserved()]);
    const [, gone] = wanted;
    if (!gone) throw new Error("no request");
    const key = { agentId: agent.agentId, paymentId: gone.id };
    t.ok(await voidUnsigned(pool, { ...key, code: "not_signed", detail: "too late" }));
    const groups: number[] = [];
    const accept = acceptInGroups({
      find,
      acceptAll: (requests) => {
        groups.push(requests.length);
        return acceptSettlements(pool, requests);
      },
    });
    const results = await Promise.allSettled(wanted.map(accept));
    t.equal(groups[0], wanted.length, "first all were sent in one group");
    t.same(
      results.map(({ status }) => status),
      ["fulfilled", "rejected", "fulfilled", "fulfilled"],
    );
    const [, refused] = results;
    t.ok(refused?.status === "rejected" && isReservationGone(refused.reason));
    t.same(await Promise.all(wanted.map(statusOf)), [
      "submitted",
      "voided",
      "submitted",
      "submitted",
    ]);
    const { rows } = await pool.query("SELECT 1 FROM settlements WHERE id = $1", [gone.id]);
    t.equal(rows.length, 0, "nothing was stored for it");
    for (const { id: paymentId } of wanted)
      t.notOk(
        await voidUnsigned(pool, { ...key, paymentId, code: "not_signed", detail: "too late" }),
        "what was accepted is not released any more",
      );
    t.same(await Promise.all(wanted.map(statusOf)), [
      "submitted",
      "voided",
      "submitted",
      "submitted",
    ]);
  });

  await t.test("a request that Postgres rejects fails alone", async (t) => {
    const bad = make();
    // Not a number: Postgres rejects the whole statement.
    Object.assign(bad.authorization, { validBefore: "soon" });
    const wanted = [make(), bad, make(), make()];
    const accept = acceptInGroups({
      find,
      acceptAll: (requests) => inTransaction(pool, (sql) => acceptSettlements(sql, requests)),
    });
    const results = await Promise.allSettled(wanted.map(accept));
    t.same(
      results.map(({ status }) => status),
      ["fulfilled", "rejected", "fulfilled", "fulfilled"],
    );
    const { rows } = await pool.query("SELECT 1 FROM settlements WHERE id = ANY($1)", [
      wanted.map(({ id }) => id),
    ]);
    t.equal(rows.length, 3);
  });

  await t.test("the connection is lost: the stored rows decide, nothing repeats", async (t) => {
    let calls = 0;
    const wanted = [await reserved(), make(), make()];
    const [written, known, lost] = wanted as [
      SettlementRequest,
      SettlementRequest,
      SettlementRequest,
    ];
    await acceptSettlements(pool, [{ ...known, id: newId("pay") }]);
    const accept = acceptInGroups({
      find,
      acceptAll: async () => {
        calls += 1;
        await acceptSettlements(pool, [written]);
        throw new Error("Connection terminated unexpectedly");
      },
    });
    const [own, earlier, unknown] = await Promise.allSettled(wanted.map(accept));
    t.equal(calls, 1);
    t.match(own, {
      status: "fulfilled",
      value: { created: true, settlement: { id: written.id } },
    });
    t.match(earlier, { status: "fulfilled", value: { created: false } });
    t.match(unknown, { status: "rejected", reason: { name: "AcceptanceUnknown", id: lost.id } });
  });

  await t.test("a locked agent row blocks only that agent's outcomes", async (t) => {
    const hasty = createPool((await database).url, {
      timeouts: { ...TIMEOUTS.engine, lockMs: 300 },
    });
    t.teardown(() => hasty.end());
    const thirdParties = [make(), make(), make(), make()];
    const [held, heldToo] = [await reserved(), await reserved()];
    await acceptSettlements(pool, [held, heldToo, ...thirdParties]);
    const outcome = (request: SettlementRequest, status: "settled" | "failed") => ({
      from: request.authorization.from,
      asset: request.authorization.asset,
      nonce: request.authorization.nonce,
      status,
      isFinal: true,
      proof:
        status === "settled"
          ? { kind: "receipt" as const, tx: randomNonce(), block: "1", blockHash: randomNonce() }
          : { kind: "refusal" as const, block: "1", blockHash: randomNonce() },
      ...(status === "failed" && { reason: "test" }),
    });
    const holder = await pool.connect();
    await holder.query("BEGIN");
    await holder.query("SELECT 1 FROM agents WHERE id = $1 FOR UPDATE", [agent.agentId]);
    const [one, two, three, four] = thirdParties as [
      SettlementRequest,
      SettlementRequest,
      SettlementRequest,
      SettlementRequest,
    ];
    await t.rejects(
      finalizeSettlements(hasty, CHAIN_ID, [
        outcome(held, "failed"),
        outcome(one, "failed"),
        outcome(two, "settled"),
      ]),
      { code: LOCK_TIMEOUT },
    );
    const lane = { chainId: CHAIN_ID, address: randomAddress() };
    await pool.query(
      `INSERT INTO relayer_transactions (chain_id, lane_address, nonce, to_address, calldata, gas_limit)
       VALUES ($1, $2, 0, $3, 'c', 1)`,
      [lane.chainId, lane.address, ASSET],
    );
    await finalizeTransaction(
      hasty,
      lane,
      {
        nonce: 0n,
        status: "mined",
        hash: randomNonce(),
        blockNumber: 1n,
        blockHash: randomNonce(),
      },
      [outcome(heldToo, "failed"), outcome(three, "settled"), outcome(four, "settled")],
    );
    await holder.query("ROLLBACK");
    holder.release();
    const statuses = await Promise.all(
      [held, one, two, heldToo, three, four].map(async ({ authorization }) => {
        const row = await find(authorization);
        return row?.status;
      }),
    );
    t.same(statuses, ["queued", "failed", "settled", "queued", "settled", "settled"]);
  });

  await t.test("a payment whose row is locked is marked unknown afterwards", async (t) => {
    const wanted = await Promise.all([reserved(), reserved(), reserved()]);
    await acceptSettlements(pool, wanted);
    const [held, ...others] = wanted;
    if (!held) throw new Error("no request");
    const mark = markUnknownInGroups(pool);
    const holder = await pool.connect();
    await holder.query("BEGIN");
    await holder.query("SELECT 1 FROM payments WHERE id = $1 FOR UPDATE", [held.id]);
    const marking = wanted.map(({ id }) => mark({ agentId: agent.agentId, paymentId: id }));
    await Promise.all(marking.slice(1));
    t.same(await Promise.all(others.map(statusOf)), ["unknown", "unknown"]);
    t.equal(await statusOf(held), "submitted");
    await holder.query("COMMIT");
    holder.release();
    await marking[0];
    t.equal(await statusOf(held), "unknown");
  });
});
