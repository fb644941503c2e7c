// Goal: what a member does for a team is counted for that person and named in the team's audit; a long signature, a copied passkey,
// or many requests of one member cannot spoil or hide what waits.
import t from "tap";
import { hashTypedData } from "viem";
import { testApp } from "../helpers/app.ts";
import { signIn, type SignedInOwner } from "../helpers/owner.ts";
import { signUpWithPasskey, testPasskey } from "../helpers/passkey.ts";
import { makeTeam, teamCalls } from "../helpers/team.ts";

const LIMIT = 6;
const service = await testApp(t, { env: { RATE_LIMITS: `probe=${LIMIT}` } });
const { app, config, database } = service;
const { pool } = database;
const page = new URL(config.publicUrl);
page.hostname = "localhost";
const { send, order, sign, carryOut, enter, together } = teamCalls(app);

const passkey = testPasskey(page.origin);
const ada = await signIn(service);
const bob = await signUpWithPasskey(service, passkey);
const cleo = await signIn(service);
const people = [
  [ada, "admin"],
  [bob, "admin"],
  [cleo, "approver"],
] as const;
const team = await makeTeam(service, people as never, { threshold: 2 });
const made = await together([ada, bob], "POST", "/api/agents", { name: "Buyer", dailyLimit: "5" });
const url = `/api/agents/${made.body.agent.id}`;
const addressOf = (who: SignedInOwner) => who.account.address.toLowerCase();
/** Later the more of its quota an account has used. */
const usedOf = async (address: string): Promise<number> => {
  const { rows } = await pool.query<{ used: number }>(
    `SELECT extract(epoch FROM full_at)::float8 AS used FROM owner_quotas JOIN owners o ON o.id = owner_id WHERE o.address = $1`,
    [address.toLowerCase()],
  );
  return rows[0]?.used ?? 0;
};

t.test("what waits uses up the quota of the member who sent it, and not the team's", async (t) => {
  const [person, whole] = [await usedOf(addressOf(ada)), await usedOf(team)];
  const waiting = await order(ada, "PATCH", url, { dailyLimit: "6" });
  t.equal(waiting.status, 202, JSON.stringify(waiting.body));
  t.ok((await usedOf(addressOf(ada))) > person, "counted for Ada");
  t.equal(await usedOf(team), whole, "and not for the team");
  await send(ada, "DELETE", `/api/waiting-orders/${waiting.body.id}`);
});

t.test("the audit of a team names the person who acted", async (t) => {
  const denied = await send(cleo, "POST", "/api/owner/denied-payees", {
    site: "https://shop.example",
  });
  t.match(denied.body, { denied: { addedBy: cleo.account.address } });
  await pool.query(
    `INSERT INTO email_addresses (owner_id, address, confirmed_at, digest, urgent, next_digest_at)
     SELECT id, 'team@mail.example', now(), 'daily', '{}', now() FROM owners WHERE address = $1`,
    [team.toLowerCase()],
  );
  t.equal((await send(bob, "DELETE", "/api/email")).status, 200);
  const allowed = await together([ada, bob], "POST", "/api/owner/denied-payees/remove", {
    site: "https://shop.example",
  });
  t.equal(allowed.status, 200, JSON.stringify(allowed.body));
  const entries = (await send(ada, "GET", "/api/audit?limit=100")).body.items as unknown as {
    action: string;
    actor: string;
  }[];
  const actorOf = (wanted: string) =>
    entries.find(({ action }) => action === wanted)?.actor.toLowerCase();
  t.equal(actorOf("owner.payee_denied"), addressOf(cleo));
  t.equal(actorOf("email.removed"), addressOf(bob));
  t.equal(actorOf("owner.payee_allowed"), addressOf(ada), "who carried it out");
});

/** Bob's signature of a waiting order, with what his device says beside it. */
async function signAs(id: string, said: Parameters<typeof passkey.signHash>[1]): Promise<string> {
  const { body } = await send(bob, "GET", `/api/waiting-orders/${id}`);
  const { typedData } = body as unknown as { typedData: Parameters<typeof hashTypedData>[0] };
  const signature = passkey.signHash(hashTypedData(typedData), said);
  const answer = await send(bob, "POST", `/api/waiting-orders/${id}/sign`, { signature });
  return answer.body.code ?? String(answer.status);
}

t.test("a copy of a member's passkey, which counts back, signs nothing", async (t) => {
  const [first, second] = [
    await order(ada, "PATCH", url, { dailyLimit: "7" }),
    await order(ada, "PATCH", url, { dailyLimit: "8" }),
  ];
  t.equal(await signAs(first.body.id, { count: 7 }), "200");
  t.equal(await signAs(first.body.id, { count: 7 }), "200", "the same request again");
  t.equal(await signAs(second.body.id, { count: 6 }), "invalid_signature");
  t.equal(await signAs(second.body.id, { count: 0 }), "invalid_signature");
  t.equal(await signAs(second.body.id, { count: 8 }), "200");
  const complete = await send(ada, "GET", `/api/waiting-orders/${first.body.id}`);
  t.equal((await carryOut(ada, complete)).status, 200);
  await send(ada, "DELETE", `/api/waiting-orders/${second.body.id}`);
});

t.test("a signature so long that the others' no longer fit is refused", async (t) => {
  const { id } = (await order(ada, "PATCH", url, { dailyLimit: "9" })).body;
  t.equal(await signAs(id, { count: 20, more: "x".repeat(1_024) }), "invalid_signature");
  const signature = `0x${"00".repeat(24_577)}`;
  const answer = await send(bob, "POST", `/api/waiting-orders/${id}/sign`, { signature });
  t.equal(answer.body.code, "validation_failed", "longer than any text of a team");
  t.equal((await send(ada, "GET", `/api/waiting-orders/${id}`)).body.collected.length, 1);
  t.equal(await signAs(id, { count: 20, more: "x".repeat(100) }), "200", "a browser adds a little");
  await send(ada, "DELETE", `/api/waiting-orders/${id}`);
});

t.test("what waits is listed page by page, each once, newest first", async (t) => {
  const ids: string[] = [];
  for (const dailyLimit of ["11", "12", "13"])
    ids.unshift((await order(ada, "PATCH", url, { dailyLimit })).body.id);
  const seen: string[] = [];
  let cursor: string | null = "";
  while (cursor !== null) {
    const query: string = cursor === "" ? "" : `&cursor=${cursor}`;
    const { body } = await send(ada, "GET", `/api/waiting-orders?limit=2${query}`);
    seen.push(...body.items.map(({ id }) => id));
    cursor = (body as unknown as { nextCursor: string | null }).nextCursor;
  }
  t.same(seen, ids);
  await enter(cleo, null);
  const own = await send(cleo, "GET", "/api/waiting-orders?limit=1");
  t.match(own.body, { items: [], nextCursor: null }, "an approver signs no rules");
});

t.test("a team's address is no wallet: nothing is sold, refunded or paid out to it", async (t) => {
  for (const [method, path, body] of [
    ["GET", "/api/merchant", undefined],
    ["GET", "/api/merchant/settlements", undefined],
    ["POST", "/api/merchant/settlements/set_x/refund", {}],
    ["POST", "/api/merchant/keys", {}],
  ] as const) {
    const refused = await send(ada, method, path, body);
    t.equal(refused.status, 409, path);
    t.match(refused.body, { code: "conflict", detail: /^A team has no wallet .* would be lost/ });
  }
  t.equal((await send(ada, "GET", "/api/merchant/keys")).status, 200, "older keys can be revoked");
  for (const address of [team, bob.account.address]) {
    const refused = await send(ada, "PUT", "/api/payout", { address });
    t.match(refused.body, { code: "invalid_address", detail: /nobody can spend from/ });
  }
});

t.test("a person changes accounts only so often, whichever session does it", async (t) => {
  const other = await signIn(service, cleo.account);
  const answers: number[] = [];
  // The budget grows back with time, so on a slow machine it takes some more.
  while (answers.at(-1) !== 429 && answers.length < 10 * LIMIT)
    answers.push((await enter(answers.length % 2 === 0 ? cleo : other, team)).status);
  t.equal(answers[0], 200);
  t.equal(answers.at(-1), 429, answers.join());
  t.equal((await sign(bob, "wto_none")).status, 404, "others go on");
});
