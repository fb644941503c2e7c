// Goal: a member, a former member, or somebody beside a team gets nothing that the team did not sign: by its roles, its waiting
// orders, its sessions, races between its requests, and a connection that is cut in the middle.
import t, { type Test } from "tap";
import type { Hex } from "viem";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
import { MAX_WAITING, MAX_WAITING_OF_MEMBER } from "../../server/plugins/orders/waiting.ts";
import { readTeamSignature, writeTeamSignature } from "../../server/core/teams.ts";
import type { EntryBody } from "../../server/plugins/audit/authority.ts";
import { verifyChain } from "../../server/plugins/audit/verify.ts";
import { testApp } from "../helpers/app.ts";
import { spendAs } from "../helpers/call.ts";
import { signIn, signOrder, type SignedInOwner } from "../helpers/owner.ts";
import { signInWithPasskey, signUpWithPasskey, testPasskey, tryOffer } from "../helpers/passkey.ts";
import { entry, makeTeam, teamCalls, type Answer } from "../helpers/team.ts";
import { until } from "../helpers/until.ts";
import { assertAuditsHold, documentedScript, rehash, rowsOf } from "./audit.helper.ts";

const service = await testApp(t);
const { app, chain, config, database } = service;
const { pool } = database;
const replica = await testApp(t, { chain, database, env: { PUBLIC_URL: config.publicUrl } });
const { send, order, signatureOf, sign, carryOut, enter, together } = teamCalls(app);
const there = teamCalls(replica.app);
const page = new URL(config.publicUrl);
page.hostname = "localhost";

const ada = await signIn(service);
const bob = await signUpWithPasskey(service, testPasskey(page.origin));
const cleo = await signIn(service);
const dan = await signIn(service);
const stranger = await signIn(service);
const LIST = [
  [ada, "admin"],
  [bob, "admin"],
  [cleo, "approver"],
  [dan, "viewer"],
] as const;
const team = await makeTeam(service, [[ada, "admin"], ...LIST.slice(1)] as never, { threshold: 2 });
const NAMES = ["Ada", "Bob", "Cleo", "Dan"];
const members = LIST.map(([who, role], index) => entry(who, NAMES[index] ?? "", role));
const rules = (list = members, threshold = 2) => ({
  name: "Acme",
  threshold,
  approvalAbove: "1",
  members: list,
});
const lower = ({ account }: SignedInOwner) => account.address.toLowerCase();
const newAddress = () => privateKeyToAccount(generatePrivateKey()).address;
const home = newAddress();

async function newAgent(dailyLimit = "10") {
  const body = { name: "Buyer", dailyLimit, allowlist: [dan.account.address] };
  const made = await together([ada, bob], "POST", "/api/agents", body);
  if (made.status !== 201) throw new Error(JSON.stringify(made.body));
  const { agent, apiKey } = made.body;
  await chain.mint(agent.walletAddress, 100_000_000n);
  const headers = { authorization: `Bearer ${apiKey}`, "content-type": "application/json" };
  return { ...agent, apiKey, url: `/api/agents/${agent.id}`, headers };
}
const agent = await newAgent();
const limitOf = async (url: string) => {
  const { rows } = await pool.query<{ limit: string }>(
    "SELECT daily_limit::text AS limit FROM agents WHERE id = $1",
    [url.split("/").at(-1)],
  );
  return rows[0]?.limit;
};
const ids = async (who: SignedInOwner) =>
  (await send(who, "GET", "/api/waiting-orders")).body.items.map(({ id }) => id);
const notified = async (who: SignedInOwner, subjectId: string) =>
  (await send(who, "GET", "/api/notifications?limit=100")).body.items.filter(
    (one) => one.subjectId === subjectId,
  );
/** The text of a team with these people's own signatures of a waiting order. */
const textOf = async (id: string, ...people: SignedInOwner[]): Promise<Hex> =>
  writeTeamSignature(
    await Promise.all(
      people.map(async (who) => ({ address: lower(who), signature: await signatureOf(who, id) })),
    ),
  ) as Hex;
const resend = (who: SignedInOwner, { body }: Answer, signature: string) => {
  const { request } = body;
  const sent = request.body as { authorization: object };
  const authorization = { ...sent.authorization, signature };
  return send(who, request.method, request.path, { ...sent, authorization });
};
/** Holds these rows until `release`. */
async function hold(sql: string, values: unknown[]) {
  const client = await pool.connect();
  await client.query("BEGIN");
  await client.query(sql, values);
  const waiting = () =>
    pool.query<{ pid: number }>(
      "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'",
    );
  return {
    /** Until so many statements wait for a lock. Returns their processes. */
    async reached(count = 1) {
      await until(async () => (await waiting()).rows.length >= count);
      return (await waiting()).rows.map(({ pid }) => pid);
    },
    async release() {
      await client.query("COMMIT");
      client.release();
    },
  };
}

t.test("signatures that do not count", async (t) => {
  const waiting = await order(ada, "PATCH", agent.url, { dailyLimit: "11" });
  t.equal(waiting.status, 202, JSON.stringify(waiting.body));
  const { id } = waiting.body;
  const shown = await send(ada, "GET", `/api/waiting-orders/${id}`);
  const refused = async (signature: string, why: string) =>
    t.equal((await resend(ada, shown, signature)).body.code, "invalid_signature", why);
  await refused(await textOf(id, ada, dan), "with a viewer's");
  await refused(await textOf(id, ada, cleo), "with an approver's");
  await refused(await textOf(id, ada, stranger), "with a stranger's");
  const [part = { address: "", signature: "" }] = readTeamSignature(await textOf(id, ada)) ?? [];
  const piece = part.address.slice(2) + "0041" + part.signature.slice(2);
  await refused(`0x7465616d31${piece}${piece}`, "the same member twice");
  await refused(`0x7465616d31${piece}${piece.toUpperCase()}`, "and in another spelling");
  await refused(
    writeTeamSignature([part, { address: lower(bob), signature: part.signature }]),
    "one signature for two",
  );
  t.equal((await sign(dan, id)).body.code, "role_not_allowed", "a viewer signs nothing");
  t.equal((await sign(cleo, id)).body.code, "role_not_allowed", "an approver no rules");
  t.equal((await sign(stranger, id)).status, 404);
  const other = await order(ada, "PATCH", agent.url, { dailyLimit: "12" });
  const ofOther = await signatureOf(bob, other.body.id);
  t.equal(
    (await send(bob, "POST", `/api/waiting-orders/${id}/sign`, { signature: ofOther })).body.code,
    "invalid_signature",
    "of another order",
  );
  t.equal(await limitOf(agent.url), "10000000");
  for (const one of [id, other.body.id]) await send(ada, "DELETE", `/api/waiting-orders/${one}`);
});

t.test("an order of one team is nothing in another with the same members", async (t) => {
  for (const who of [ada, bob]) await enter(who, null);
  const second = await makeTeam(
    service,
    [
      [ada, "admin"],
      [bob, "admin"],
    ],
    { threshold: 2 },
  );
  const asked = await order(ada, "PUT", "/api/payout", { address: stranger.account.address });
  const complete = await sign(bob, asked.body.id);
  t.equal(complete.body.isComplete, true);
  for (const who of [ada, bob]) await enter(who, team);
  const answer = await carryOut(ada, complete);
  t.equal(answer.body.code, "policy_changed", "the text names the team");
  t.equal((await send(ada, "GET", `/api/waiting-orders/${asked.body.id}`)).status, 404);
  t.equal((await enter(stranger, second)).status, 404);
  await enter(ada, second);
  t.same(await ids(ada), [asked.body.id], "and it still waits in its own");
  await enter(ada, team);
});

t.test("a waiting order cannot be spoiled, replaced or ended by others", async (t) => {
  const waiting = await order(ada, "PATCH", agent.url, { dailyLimit: "13" });
  const { id } = waiting.body;
  const { rows } = await pool.query<{ text: string }>(
    "SELECT body::text AS text FROM waiting_orders WHERE id = $1",
    [id],
  );
  t.notMatch(
    rows[0]?.text,
    /signature|deadline|nonce/,
    "of the request only what is needed is kept",
  );
  const shown = await send(bob, "GET", `/api/waiting-orders/${id}`);
  // Another order with the same nonce, which Bob signs for a request of his own.
  const asked = await send(bob, "PATCH", agent.url, { dailyLimit: "99" });
  const { nonce, deadline } = shown.body.order;
  const typed = (asked.body as unknown as { typedData: { message: object } }).typedData;
  const forged = {
    order: { ...asked.body.order, nonce, deadline },
    typedData: { ...typed, message: { ...typed.message, nonce, deadline } },
  };
  const own = await signOrder(bob.account, forged);
  const body = { dailyLimit: "99", authorization: own };
  const spoiled = await send(bob, "PATCH", agent.url, body);
  t.not(spoiled.status, 202, "a nonce is of one order");
  const after = await send(ada, "GET", `/api/waiting-orders/${id}`);
  t.equal(after.body.collected.length, 1, "and only Ada signed this one");
  // The signed order with another request.
  const request = shown.body.request;
  const other = await send(bob, request.method, request.path, {
    ...request.body,
    dailyLimit: "14",
  });
  t.equal(other.body.code, "policy_changed");
  t.equal((await send(bob, "DELETE", `/api/waiting-orders/${id}`)).body.code, "role_not_allowed");
  t.equal((await send(ada, "GET", `/api/waiting-orders/${id}`)).status, 200, "it still waits");
  const last = await sign(bob, id);
  t.equal(last.body.isComplete, true);
  t.equal((await send(ada, "DELETE", `/api/waiting-orders/${id}`)).status, 200);
  t.equal(
    (await carryOut(bob, last)).body.code,
    "order_used",
    "given up, it is carried out by nobody",
  );
  t.equal(await limitOf(agent.url), "10000000");
});

t.test("at most so many wait, of one member and of all", async (t) => {
  const add = (count: number, member: string) =>
    pool.query(
      `INSERT INTO waiting_orders (id, team_id, member, kind, nonce, chain_id, form, document, method, path, body, signature, expires_at)
       SELECT 'wto_' || $2 || n, o.id, $2, 'Resume', '0x' || $3 || lpad(to_hex(n), 63, '0'), 1, 'readable', '{}', 'POST', '/', '{}', '0x00',
              now() + interval '1 hour'
         FROM owners o, generate_series(1, $1::int) n WHERE o.address = $4`,
      [count, member, member.slice(-1), team.toLowerCase()],
    );
  const ask = () => order(ada, "PATCH", agent.url, { dailyLimit: "15" });
  await add(MAX_WAITING_OF_MEMBER, lower(ada));
  t.equal((await ask()).body.code, "conflict", "too many of Ada");
  await pool.query("DELETE FROM waiting_orders WHERE member = $1", [lower(ada)]);
  await add(MAX_WAITING - 1, "0xf");
  const last = await ask();
  t.equal(last.status, 202, JSON.stringify(last.body));
  t.equal((await ask()).body.code, "conflict", "too many of all");
  await pool.query("DELETE FROM waiting_orders");
});

t.test("two complete orders at once, at two replicas: one is carried out", async (t) => {
  const complete = async (dailyLimit: string) =>
    sign(bob, (await order(ada, "PATCH", agent.url, { dailyLimit })).body.id);
  const [one, other] = [await complete("21"), await complete("22")];
  const answers = await Promise.all([carryOut(ada, one), there.carryOut(bob, other)]);
  t.same(
    answers.map(({ status }) => status).toSorted((a, b) => a - b),
    [200, 409],
  );
  const isFirst = answers[0].status === 200;
  t.equal((isFirst ? answers[1] : answers[0]).body.code, "policy_changed");
  t.equal(await limitOf(agent.url), isFirst ? "21000000" : "22000000");
  const loser = (isFirst ? other : one).body.id;
  t.same(await ids(ada), [], "the second would do something else by now, and ended");
  t.match(
    (await notified(dan, loser)).find(({ type }) => type === "order.ended")?.title,
    /would do something else/,
  );
});

t.test("a connection that is cut between the order and its change leaves neither", async (t) => {
  const last = await sign(
    bob,
    (await order(ada, "PATCH", agent.url, { dailyLimit: "31" })).body.id,
  );
  const before = await limitOf(agent.url);
  // The order is used, and then the wallet is sealed again, which waits here.
  const held = await hold("SELECT 1 FROM agent_wallets WHERE agent_id = $1 FOR UPDATE", [agent.id]);
  const sent = carryOut(ada, last);
  for (const pid of await held.reached())
    await pool.query("SELECT pg_terminate_backend($1)", [pid]);
  t.ok((await sent).status >= 500);
  await held.release();
  t.equal(await limitOf(agent.url), before);
  t.same(await ids(bob), [last.body.id], "it waits as before");
  t.equal((await carryOut(bob, last)).status, 200, "and is carried out once");
  t.equal(await limitOf(agent.url), "31000000");
  t.equal((await carryOut(ada, last)).body.code, "order_used");
});

t.test("budgets, keys, programs and approvals", async (t) => {
  const budget = (await send(ada, "POST", "/api/budgets", { name: "All", dailyLimit: "5" }))
    .body as unknown as { budget?: { id: string }; id?: string };
  const budgetId = budget.budget?.id ?? budget.id ?? "";
  const raised = await order(ada, "PATCH", `/api/budgets/${budgetId}`, { dailyLimit: "50" });
  t.equal(raised.status, 202, "one signature raises no budget");
  const { rows } = await pool.query("SELECT daily_limit::text FROM budgets WHERE id = $1", [
    budgetId,
  ]);
  t.same(rows, [{ daily_limit: "5000000" }]);

  const key = await order(ada, "POST", `${agent.url}/keys`, { label: "second" });
  t.equal(key.status, 202);
  const complete = await sign(bob, key.body.id);
  const made = await carryOut(bob, complete);
  t.equal(made.status, 201);
  const secret = made.body.apiKey;
  t.match(secret, /^purser_/);
  const again = await carryOut(ada, complete);
  t.equal(again.body.code, "order_used");
  const seen = [key, complete, again, await send(ada, "GET", `${agent.url}/keys`)];
  t.notOk(JSON.stringify(seen).includes(secret), "shown once, to the one who carried it out");

  const program = await send(ada, "POST", "/api/oauth/requests", { client_id: "x" });
  t.match(program.body, { code: "conflict", detail: /Create an API key/ });

  const ask = async (amount: string) => {
    const body = { recipient: newAddress(), amount, requestApproval: true };
    const answer = await spendAs(app, agent, body);
    return `/api/approvals/${answer.json<{ approvalId: string }>().approvalId}/approve`;
  };
  t.equal((await order(cleo, "POST", await ask("1"), {})).status, 200, "at the amount: one");
  t.equal((await order(cleo, "POST", await ask("1.000001"), {})).status, 202, "above it: two");
});

t.test("a passkey that its member removed signs no more", async (t) => {
  const waiting = await order(ada, "PATCH", agent.url, { dailyLimit: "41" });
  const complete = await sign(bob, waiting.body.id);
  t.equal(complete.body.isComplete, true);
  await enter(bob, null);
  const next = testPasskey(page.origin);
  t.equal((await tryOffer(service, bob, next)).statusCode, 200);
  const { rows } = await pool.query<{ id: string }>("SELECT id FROM passkeys WHERE id = $1", [
    next.credentialId,
  ]);
  const changed = await order(bob, "PUT", "/api/passkeys", { ids: [rows[0]?.id] });
  t.equal(changed.status, 200, JSON.stringify(changed.body));
  t.equal((await carryOut(ada, complete)).body.code, "invalid_signature");
  t.not(await limitOf(agent.url), "41000000");
  await send(ada, "DELETE", `/api/waiting-orders/${waiting.body.id}`);
  Object.assign(bob, await signInWithPasskey(service, next));
  t.equal((await enter(bob, team)).status, 200, "the member is the same, with another passkey");
});

t.test("who is told that an order waits, and by what", async (t) => {
  const waiting = await order(ada, "PATCH", agent.url, { dailyLimit: "42" });
  const { id } = waiting.body;
  await enter(bob, null);
  const [event] = await notified(bob, id);
  t.match(event, { type: "order.waiting", path: `/waiting?order=${id}`, readAt: null });
  t.equal((await sign(bob, id)).status, 200, "he signs it there, as himself");
  await enter(bob, team);
  await enter(cleo, null);
  t.same(await notified(cleo, id), [], "an approver is not asked for rules");
  t.equal((await send(cleo, "GET", `/api/waiting-orders/${id}`)).status, 404);
  await enter(cleo, team);
  const complete = await send(ada, "GET", `/api/waiting-orders/${id}`);
  t.equal((await carryOut(ada, complete)).status, 200);
  const types = (await notified(dan, id)).map(({ type }) => type);
  t.same(types, ["order.carried_out", "order.waiting"]);

  const list = rules([...members, entry(stranger, "Eve", "approver")]);
  const invitation = (await order(ada, "PUT", "/api/team/members", list)).body.id;
  t.match(await notified(stranger, invitation), [{ type: "team.invited" }]);
  t.same(await ids(stranger), [invitation]);
  await pool.query("UPDATE waiting_orders SET expires_at = now() - interval '1 second'");
  t.same(await ids(stranger), []);
  await pool.query("DELETE FROM waiting_orders WHERE id = $1", [invitation]);
  t.match((await notified(dan, invitation))[0], { type: "order.ended", title: /expired/ });
});

t.test("contracts, and who may act for a team", async (t) => {
  const contract = newAddress();
  await pool.query("INSERT INTO owners (id, address, chain_id) VALUES ('own_contract', $1, $2)", [
    contract.toLowerCase(),
    chain.chainId,
  ]);
  const named = (role: "admin" | "viewer") =>
    order(ada, "PUT", "/api/team/members", {
      ...rules([...members, { name: "Safe", address: contract, role }]),
    });
  t.match((await named("admin")).body, { code: "validation_failed", detail: /contract/ });
  const asViewer = await named("viewer");
  t.equal(asViewer.status, 202, "a viewer signs nothing");
  await send(ada, "DELETE", `/api/waiting-orders/${asViewer.body.id}`);
  t.equal((await enter(stranger, team)).status, 404);
});

t.test("the recovery wallet of a team whose admins must all sign", async (t) => {
  const payout = await together([ada, bob], "PUT", "/api/payout", { address: home });
  t.equal(payout.status, 200, JSON.stringify(payout.body));
  const safe = privateKeyToAccount(generatePrivateKey());
  const url = "/api/recovery/second";
  const asked = await order(ada, "PUT", url, { address: safe.address }, safe);
  t.equal(asked.status, 202, JSON.stringify(asked.body));
  const last = await sign(bob, asked.body.id);
  const done = await carryOut(bob, last);
  t.equal(done.status, 200, JSON.stringify(done.body));
  // Bob's key is lost: Ada alone can change nothing, and the recovery wallet can save the money.
  const recovery = await signIn(service, safe, team);
  t.equal((await enter(recovery, null)).body.code, "second_wallet_only_tightens");
  t.equal((await send(recovery, "POST", "/api/owner/stop")).status, 200);
  const withdrawals = `${agent.url}/withdrawals`;
  const prepared = await send(recovery, "POST", `${withdrawals}/prepare`, { amount: "4" });
  t.equal(prepared.status, 200, JSON.stringify(prepared.body));
  const taken = await send(recovery, "POST", withdrawals, await signOrder(safe, prepared.body));
  t.equal(taken.status, 200, JSON.stringify(taken.body));
  const elsewhere = { amount: "1", to: stranger.account.address };
  t.equal(
    (await send(recovery, "POST", `${withdrawals}/prepare`, elsewhere)).body.code,
    "second_wallet_only_tightens",
  );
  const resumed = await together([ada, bob], "POST", "/api/owner/resume", {});
  t.equal(resumed.status, 200, JSON.stringify(resumed.body));
});

t.test("a list of members that changes while an order of the older one is sent", async (t) => {
  const withdrawals = `${agent.url}/withdrawals`;
  const ask = async () => {
    const prepared = await send(ada, "POST", `${withdrawals}/prepare`, { amount: "3" });
    return send(ada, "POST", withdrawals, await signOrder(ada.account, prepared.body));
  };
  const withdrawal = await sign(bob, (await ask()).body.id);
  t.equal(withdrawal.body.isComplete, true);
  const renamed = { ...rules(), name: "Acme Ltd" };
  const rename = await order(ada, "PUT", "/api/team/members", renamed);
  const renaming = await sign(bob, rename.body.id);
  // Its signatures are counted with the older list, and then it waits here.
  const agentHeld = await hold("SELECT 1 FROM agents WHERE id = $1 FOR UPDATE", [agent.id]);
  const sent = carryOut(ada, withdrawal);
  await agentHeld.reached();
  t.equal((await carryOut(ada, renaming)).status, 200);
  await agentHeld.release();
  const withdrawn = await sent;
  t.match(withdrawn.body, { code: "invalid_signature", detail: /members of the team changed/ });
  t.equal((await carryOut(ada, withdrawal)).body.code, "withdrawal_replayed", "it has ended");

  const patch = await order(ada, "PATCH", agent.url, { dailyLimit: "51" });
  const complete = await sign(bob, patch.body.id);
  const withoutBob = rules(
    members.filter(({ name }) => name !== "Bob"),
    1,
  );
  const change = await order(ada, "PUT", "/api/team/members", withoutBob);
  const removal = await sign(bob, change.body.id);
  const stream = await openStream(bob);
  // Both are counted with the list in force, and then wait for each other here, in this order.
  const sql = "SELECT 1 FROM owners WHERE address = $1 FOR NO KEY UPDATE";
  const teamHeld = await hold(sql, [team.toLowerCase()]);
  const removing = carryOut(ada, removal);
  await teamHeld.reached(1);
  const patching = carryOut(ada, complete);
  await teamHeld.reached(2);
  await teamHeld.release();
  t.equal((await removing).status, 200);
  const patched = await patching;
  t.equal(patched.body.code, "policy_changed");
  t.not(await limitOf(agent.url), "51000000");
  t.match(await stream.ended, /event: session/, "the open stream of the one who left ends");
  t.equal((await send(bob, "GET", "/api/agents")).status, 401);
  await isRefusedOf(t, bob);
  t.equal((await carryOut(ada, complete)).body.code, "invalid_signature", "and later, too");

  // The money stayed with the team, and the others can take it.
  const done = await ask();
  t.equal(done.status, 200, JSON.stringify(done.body));
});

async function isRefusedOf(t: Test, who: SignedInOwner) {
  const { rows } = await pool.query(
    "SELECT 1 FROM sessions s JOIN owners o ON o.id = s.owner_id WHERE o.address = $1 AND s.team_id IS NOT NULL AND s.revoked_at IS NULL",
    [lower(who)],
  );
  t.same(rows, [], "no session for the team is left");
}

/** The text of a stream, once it has ended. */
async function openStream({ headers }: SignedInOwner) {
  const answer = await app.inject({ url: "/api/events", headers, payloadAsStream: true });
  const stream = answer.stream();
  let text = "";
  stream.on("data", (bytes: Buffer) => (text += bytes.toString()));
  const ended = new Promise<string>((resolve) => stream.once("end", () => resolve(text)));
  await until(() => text.includes("connected"));
  return { ended };
}

t.test("a session for another account: its stream ends, its devices stay", async (t) => {
  const stream = await openStream(cleo);
  await pool.query(
    `INSERT INTO push_devices (id, owner_id, session_id, endpoint, endpoint_hash, p256dh, auth, label, types)
     SELECT 'psh_' || repeat('0', 26), s.owner_id, s.id, 'https://push.example/', decode(repeat('ab', 32), 'hex'), '', '', 'a', '{key.created}'
       FROM sessions s JOIN owners o ON o.id = s.owner_id WHERE o.address = $1 AND s.revoked_at IS NULL`,
    [lower(cleo)],
  );
  t.equal((await enter(cleo, null)).status, 200);
  t.match(await stream.ended, /event: session/);
  const { rowCount } = await pool.query(
    "SELECT 1 FROM push_devices WHERE endpoint = 'https://push.example/'",
  );
  t.equal(rowCount, 1, "the person's device gets notifications as before");
});

t.test("an audit in which too few members signed is found", async (t) => {
  await assertAuditsHold(t, app.prisma);
  const text = (await app.inject({ url: "/api/audit/export", headers: ada.headers })).body;
  const rows = rowsOf(text);
  const check = await documentedScript(t);
  t.match(await check(rows), { code: 0 });
  const bodyOf = (row: { body: string }) => JSON.parse(row.body) as EntryBody;
  const isByTwo = (row: { body: string }) => {
    const { action, proof } = bodyOf(row) as { action: string; proof?: { signers?: [Signer] } };
    const [signer] = proof?.signers ?? [];
    const parts = signer && readTeamSignature(signer.signature);
    return action === "policy.signed" && parts?.length === 2;
  };
  const at = rows.findIndex(isByTwo);
  const cut = rows.map((row, index) => {
    if (index !== at) return row;
    const body = bodyOf(row) as unknown as { proof: { signers: [Signer] } };
    const [signer] = body.proof.signers;
    const [one] = readTeamSignature(signer.signature) ?? [];
    signer.signature = writeTeamSignature(one ? [one] : []);
    return { ...row, body: JSON.stringify(body) };
  });
  const forged = rehash(cut, at);
  t.match(await verifyChain(forged), { ok: false, why: /1 members signed it, and it needs 2/ });
  t.match(await check(forged), { code: 1, output: /1 members signed it, and it needs 2/ });
});
interface Signer {
  signature: string;
}
