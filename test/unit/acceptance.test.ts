// Goal: payments accepted together get the result that each would get alone, whatever happens to the others and to the database's answer.
import { mock } from "node:test";
import { DatabaseError } from "pg";
import t from "tap";
import type { Hex } from "viem";
import type { Sql } from "../../server/infra/db/pool.ts";
import { acceptInGroups, acceptSettlements } from "../../server/plugins/settlement/accept.ts";
import {
  AcceptanceUnknown,
  type Accepted,
  type SettlementRequest,
  type SettlementRow,
} from "../../server/plugins/settlement/types.ts";
import { storedAs } from "./chain-answers.ts";
import { AUTHORIZATION, recordOf } from "./payment-samples.ts";

const nonceOf = (id: number): Hex => `0x${id.toString(16).padStart(64, "0")}`;
const request = (id: number, over: Partial<SettlementRequest> = {}): SettlementRequest => ({
  id: `pay_${id}`,
  kind: "facilitated",
  agentId: null,
  authorization: { ...AUTHORIZATION, nonce: nonceOf(id) },
  relay: true,
  ...over,
});
const rowOf = (id: number, name = `pay_${id}`): SettlementRow =>
  recordOf({ ...AUTHORIZATION, nonce: nonceOf(id) }, { id: name });

function databaseError(code: string, detail?: string): DatabaseError {
  const error = new DatabaseError(`refused ${code}`, 1, "error");
  error.code = code;
  error.detail = detail;
  return error;
}

/** Accepts what `refuses` does not; `groups` are the payments of each call. */
function world(
  refuses: (ids: string[], call: number) => Error | undefined,
  rows: Record<string, SettlementRow | Error> = {},
) {
  const groups: string[][] = [];
  let looks = 0;
  const accept = acceptInGroups({
    acceptAll: async (requests) => {
      const ids = requests.map(({ id }) => id);
      groups.push(ids);
      const error = refuses(ids, groups.length);
      if (error) throw error;
      return requests.map(({ id, authorization }): Accepted => ({
        created: false,
        attached: id === "pay_2",
        settlement: recordOf(authorization, { id: id === "pay_3" ? "pay_of_another" : id }),
      }));
    },
    find: async ({ nonce }) => {
      looks += 1;
      const found = rows[nonce];
      if (found instanceof Error) throw found;
      return found;
    },
  });
  const results = (ids: number[]) =>
    Promise.allSettled(ids.map((id) => accept(request(id)))).then((all) =>
      all.map((one) =>
        one.status === "rejected"
          ? (one.reason as Error)
          : `${one.value.settlement.id} ${one.value.created ? "created" : "known"}${one.value.attached ? " attached" : ""}`,
      ),
    );
  return { results, groups, looks: () => looks };
}

t.test(
  "a group in the order of its nonces, with results in the order of its callers",
  async (t) => {
    const { results, groups } = world(() => undefined);
    t.same(await results([4, 1, 3, 2]), [
      "pay_4 created",
      "pay_1 created",
      "pay_of_another known",
      "pay_2 created attached",
    ]);
    t.same(groups, [["pay_1", "pay_2", "pay_3", "pay_4"]], "two replicas cannot deadlock");
  },
);

t.test("one payment that the database rejects", async (t) => {
  const broken = databaseError("23514");
  const { results, groups } = world((ids) => (ids.includes("pay_2") ? broken : undefined));
  t.same(await results([1, 2, 3]), ["pay_1 created", broken, "pay_of_another known"]);
  t.same(groups, [["pay_1", "pay_2", "pay_3"], ["pay_1"], ["pay_2"], ["pay_3"]], "each by itself");
  t.same(await results([2]), [broken]);
  t.equal(groups.length, 5, "alone, it is not repeated");
});

t.test("payments without gas are named: the others are accepted together", async (t) => {
  const detail = JSON.stringify([
    { id: "pay_2", accounts: ["payer:x"], retryMs: 1_000 },
    { id: "pay_4", accounts: ["strangers"], retryMs: null },
  ]);
  const short = databaseError("PU005", detail);
  const { results, groups } = world((ids) =>
    ids.includes("pay_2") || ids.includes("pay_4") ? short : undefined,
  );
  t.match(await results([1, 2, 5, 4]), [
    "pay_1 created",
    { code: "gas_budget_exhausted", message: /this payer/ },
    "pay_5 created",
    { code: "gas_budget_exhausted", message: /third parties/ },
  ]);
  t.same(groups, [
    ["pay_1", "pay_2", "pay_4", "pay_5"],
    ["pay_1", "pay_5"],
  ]);
  t.match(await results([4]), [{ code: "gas_budget_exhausted" }]);
  t.equal(groups.length, 3, "no other is left");
});

t.test("the database's answer is lost", async (t) => {
  mock.timers.enable({ apis: ["setTimeout"] });
  t.teardown(() => mock.timers.reset());
  /** Ends the waits between the look-ups. */
  const pass = async <T>(waiting: Promise<T>): Promise<T> => {
    for (let turn = 0; turn < 20; turn += 1) {
      await new Promise((resolve) => setImmediate(resolve));
      mock.timers.tick(500);
    }
    return waiting;
  };
  const lost = new Error("Connection terminated unexpectedly");
  const rows = {
    [nonceOf(1)]: rowOf(1),
    [nonceOf(2)]: rowOf(2, "pay_of_another"),
    [nonceOf(3)]: new Error("the database is down"),
  };
  const { results, groups, looks } = world(() => lost, rows);
  const found = await pass(results([1, 2, 3, 4]));
  t.same(found.slice(0, 2), ["pay_1 created", "pay_of_another known"]);
  for (const [index, id] of [
    [2, "pay_3"],
    [3, "pay_4"],
  ] as const) {
    t.ok(found[index] instanceof AcceptanceUnknown, "it may still appear");
    t.match(found[index], { id, cause: lost });
  }
  t.equal(groups.length, 1, "the statement is not repeated");
  t.equal(looks(), 2 + 2 * 3, "three look-ups where there is no row");
});

/** The statements, and what the database returns to each. */
function statements(...answers: object[][]) {
  const asked: { name: string; values: unknown[] }[] = [];
  const sql = {
    query: async (query: { name: string; values: unknown[] }) => {
      asked.push(query);
      return { rows: answers.shift() ?? [] };
    },
  } as unknown as Sql;
  return { sql, asked };
}
const columns = (id: number, over: object = {}) => ({
  ...storedAs(recordOf({ ...AUTHORIZATION, nonce: nonceOf(id) }, { id: `pay_${id}` })),
  relay: true,
  ...over,
});

t.test("the row of a new settlement", async (t) => {
  const upper = (text: string) => text.toUpperCase().replace("0X", "0x");
  const { from, to, asset, signature } = AUTHORIZATION;
  const whole = request(0xab, {
    authorization: {
      ...AUTHORIZATION,
      from: upper(from) as Hex,
      to: upper(to) as Hex,
      asset: upper(asset) as Hex,
      nonce: upper(nonceOf(0xab)) as Hex,
      terms: { scheme: "exact-permit2" },
    },
    callerKeyHash: Buffer.from("0102", "hex"),
    bodyHash: Buffer.from("0304", "hex"),
    acceptedBlock: 0n,
    gas: { accounts: ["strangers"], hold: 7n },
    traceparent: "00-trace",
    resource: { url: "https://a.example", method: "GET", description: "Weather" },
    fee: { account: to, amount: "7" },
  });
  const { sql, asked } = statements([columns(0xab), columns(2)]);
  await acceptSettlements(sql, [whole, request(2)]);
  const common = {
    from_address: from,
    chain_id: AUTHORIZATION.chainId,
    asset: asset.toLowerCase(),
    kind: "facilitated",
    agent_id: null,
    to_address: to,
    value: "1000",
    valid_after: "0",
    valid_before: "2000",
    signature: `\\x${signature.slice(2)}`,
    relay: true,
    status: "queued",
  };
  t.same(JSON.parse(String(asked[0]?.values[0])), [
    {
      ...common,
      id: "pay_171",
      nonce: nonceOf(0xab),
      caller_key_hash: "\\x0102",
      body_hash: "\\x0304",
      accepted_block: "0",
      gas_accounts: ["strangers"],
      gas_hold: "7",
      terms: { scheme: "exact-permit2" },
      traceparent: "00-trace",
      resource_url: "https://a.example",
      resource_method: "GET",
      resource_description: "Weather",
      fee: { account: to, amount: "7" },
    },
    {
      ...common,
      id: "pay_2",
      nonce: nonceOf(2),
      caller_key_hash: null,
      body_hash: null,
      accepted_block: null,
      gas_accounts: [],
      gas_hold: "0",
      terms: null,
      traceparent: null,
      resource_url: null,
      resource_method: null,
      resource_description: null,
      fee: null,
    },
  ]);
  t.equal(asked.length, 1);
});

t.test("a known authorization, a watched one, and the same one twice", async (t) => {
  const brief = (all: Accepted[]) =>
    all.map(({ created, attached, settlement }) => [settlement.id, created, attached]);
  const run = (requests: SettlementRequest[], ...answers: object[][]) => {
    const { sql, asked } = statements(...answers);
    return acceptSettlements(sql, requests).then((all) => ({ all: brief(all), asked }));
  };
  const one = request(1);
  const known = { ...columns(1), id: "pay_old", attached: false };
  const watched = { ...known, relay: false };
  t.same((await run([one], [columns(1)])).all, [["pay_1", true, false]], "new");
  t.same((await run([one], [], [known])).all, [["pay_old", false, false]], "known");
  t.same((await run([one], [], [{ ...known, attached: true }])).all, [["pay_old", false, true]]);
  t.same(
    (await run([one, one], [columns(1)], [{ ...columns(1), attached: false }])).all,
    [
      ["pay_1", true, false],
      ["pay_1", false, false],
    ],
    "twice in one list: created once",
  );
  const late = await run([one], [], [watched], [{ ...known, attached: true }]);
  t.same(late.all, [["pay_old", false, true]], "another transaction attached it: asked again");
  t.equal(late.asked.length, 3);
  const still = await run([one], [], [watched], [watched]);
  t.same(still.all, [["pay_old", false, false]], "it cannot be attached");
  const watching = await run([{ ...one, relay: false }], [], [watched]);
  t.same([watching.all, watching.asked.length], [[["pay_old", false, false]], 2], "to be watched");
  await t.rejects(run([one], [], [], []), { message: /cannot be read/ });
  t.same((await run([one], [], [], [known])).all, [["pay_old", false, false]], "read a bit later");
});

t.test("what a watched row is compared with", async (t) => {
  const upper = (text: string) => text.toUpperCase().replace("0X", "0x") as Hex;
  const { from, to, asset } = AUTHORIZATION;
  const authorization = {
    ...AUTHORIZATION,
    from: upper(from),
    to: upper(to),
    asset: upper(asset),
    nonce: upper(nonceOf(0xab)),
  };
  const values = async (over: Partial<SettlementRequest>) => {
    const { sql, asked } = statements([], [{ ...columns(0xab), attached: false }]);
    await acceptSettlements(sql, [request(0xab, { authorization, ...over })]);
    return asked[1]?.values;
  };
  const first = [from, AUTHORIZATION.chainId, asset.toLowerCase(), nonceOf(0xab), "1000"];
  t.same(await values({}), [
    ...first,
    null,
    null,
    true,
    to,
    "0",
    "2000",
    null,
    null,
    null,
    null,
    null,
  ]);
  const [key, body] = [Buffer.from("01", "hex"), Buffer.from("02", "hex")];
  t.same(
    await values({
      authorization: { ...authorization, terms: { scheme: "exact-permit2" } },
      callerKeyHash: key,
      bodyHash: body,
      resource: { url: "https://a.example", method: "GET", description: "Weather" },
      fee: { account: to, amount: "7" },
    }),
    [
      ...first,
      key,
      body,
      true,
      to,
      "0",
      "2000",
      { scheme: "exact-permit2" },
      "https://a.example",
      "GET",
      "Weather",
      { account: to, amount: "7" },
    ],
  );
});
