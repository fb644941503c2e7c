// Goal: a team of people needs as many of them as it says for what loosens rules and moves money: over HTTP, with wallets and a
// passkey; a removed member, a wrong role, a race at the threshold and edited rows gain nothing.
import { randomBytes } from "node:crypto";
import t from "tap";
import { toHex } from "viem";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
import { orderDigest, REQUESTED_FORM, typedDataOf, type Orders } from "../../server/core/orders.ts";
import { writeTeamSignature } from "../../server/core/teams.ts";
import { vaultHere } from "../../server/plugins/custody/wiring.ts";
import { verifyDatabase } from "../../server/plugins/audit/verify-cli.ts";
import { testApp } from "../helpers/app.ts";
import { spendAs } from "../helpers/call.ts";
import { signIn, signOrder, type SignedInOwner } from "../helpers/owner.ts";
import { signUpWithPasskey, testPasskey } from "../helpers/passkey.ts";
import { entry, teamCalls } from "../helpers/team.ts";

const service = await testApp(t);
const { app, chain, config, database } = service;
const page = new URL(config.publicUrl);
page.hostname = "localhost";

const { send, order, sign, carryOut, enter } = teamCalls(app);

const ada = await signIn(service);
const bob = await signUpWithPasskey(service, testPasskey(page.origin));
const cleo = await signIn(service);
const dan = await signIn(service);
const address = ({ account }: SignedInOwner) => account.address;
const made = await order(ada, "POST", "/api/teams", { name: "Acme", memberName: "Ada" });
t.equal(made.status, 201, JSON.stringify(made.body));
const team = made.body.owner;

const list = {
  name: "Acme",
  threshold: 2,
  approvalAbove: "1",
  members: [
    entry(ada, "Ada", "admin"),
    entry(bob, "Bob", "admin"),
    entry(cleo, "Cleo", "approver"),
    entry(dan, "Dan", "viewer"),
  ],
};
let agent = { id: "", walletAddress: "0x" as `0x${string}`, headers: {} };

t.test("members accept by signing, and then act for the team", async (t) => {
  t.equal((await enter(bob, team)).status, 404, "not yet a member");
  t.equal((await enter(ada, team)).status, 200);
  const waiting = await order(ada, "PUT", "/api/team/members", list);
  t.equal(waiting.body.code, "signatures_missing", JSON.stringify(waiting.body));
  t.equal(waiting.status, 202);
  const id = waiting.body.id;
  t.equal(
    (await send(dan, "GET", `/api/waiting-orders/${id}`)).status,
    404,
    "not for a viewer to be",
  );
  const invited = await send(bob, "GET", "/api/waiting-orders");
  t.equal(invited.body.items.length, 1, "bob is invited");
  t.equal((await sign(bob, id)).body.isComplete, false);
  const last = await sign(cleo, id);
  t.equal(last.body.isComplete, true);
  t.equal((await carryOut(ada, last)).status, 200);
  for (const who of [bob, cleo, dan]) t.equal((await enter(who, team)).status, 200);
  const session = await send(cleo, "GET", "/api/auth/session");
  t.match(session.body, { signsWith: "team", member: { role: "approver" } });
});

t.test("an agent and its rules need two admins", async (t) => {
  const body = { name: "Buyer", dailyLimit: "10", allowlist: [address(dan)] };
  for (const [who, why] of [
    [cleo, "an approver"],
    [dan, "a viewer"],
  ] as const)
    t.equal((await order(who, "POST", "/api/agents", body)).body.code, "role_not_allowed", why);
  const waiting = await order(ada, "POST", "/api/agents", body);
  t.equal(waiting.status, 202, JSON.stringify(waiting.body));
  const id = waiting.body.id;
  t.equal((await sign(cleo, id)).body.code, "role_not_allowed", "an approver signs no policy");
  t.equal((await sign(ada, id)).body.isComplete, false, "the same member twice is one");
  const last = await sign(bob, id);
  t.equal(last.body.isComplete, true);
  const [one, other] = await Promise.all([carryOut(ada, last), carryOut(bob, last)]);
  t.same(
    [one.status, other.status].toSorted((a, b) => a - b),
    [201, 409],
    "sent by both at once: made once",
  );
  const created = (one.status === 201 ? one : other).body;
  agent = {
    ...created.agent,
    headers: { authorization: `Bearer ${created.apiKey}`, "content-type": "application/json" },
  };
  await chain.mint(agent.walletAddress, 100_000_000n);
  const paid = await spendAs(app, agent, { recipient: address(dan), amount: "1" });
  t.equal(paid.statusCode, 200, paid.body);
  t.equal(
    (await send(cleo, "PATCH", `/api/agents/${agent.id}`, { dailyLimit: "5" })).status,
    200,
    "tightened by an approver",
  );
  t.equal(
    (await send(dan, "PATCH", `/api/agents/${agent.id}`, { dailyLimit: "4" })).body.code,
    "role_not_allowed",
  );
});

t.test("one approver for a small payment, two members for a larger one", async (t) => {
  const recipient = privateKeyToAccount(generatePrivateKey()).address;
  const request = async (amount: string) => {
    const answer = await spendAs(app, agent, { recipient, amount, requestApproval: true });
    return `/api/approvals/${answer.json<{ approvalId: string }>().approvalId}/approve`;
  };
  t.equal((await order(cleo, "POST", await request("0.5"), {})).status, 200);
  const large = await order(cleo, "POST", await request("2"), {});
  t.equal(large.status, 202, JSON.stringify(large.body));
  const last = await sign(ada, large.body.id);
  t.equal((await carryOut(ada, last)).status, 200);
});

t.test("money leaves to the payout address only, with two admins", async (t) => {
  const home = address(cleo);
  const payout = await order(ada, "PUT", "/api/payout", { address: home });
  const payoutSigned = await sign(bob, payout.body.id);
  t.equal((await carryOut(bob, payoutSigned)).status, 200);
  const url = `/api/agents/${agent.id}/withdrawals`;
  const prepared = await send(ada, "POST", `${url}/prepare`, { amount: "3" });
  t.equal(prepared.status, 200, JSON.stringify(prepared.body));
  const own = await signOrder(ada.account, prepared.body);
  const waiting = await send(ada, "POST", url, own);
  t.equal(waiting.status, 202, JSON.stringify(waiting.body));
  const last = await sign(bob, waiting.body.id);
  const done = await carryOut(bob, last);
  t.equal(done.status, 200, JSON.stringify(done.body));
  const left = await send(ada, "GET", "/api/waiting-orders");
  t.same(left.body.items, [], "nothing waits any more");
});

t.test(
  "a removed member's session and signatures end, and edited rows open no wallet",
  async (t) => {
    const waiting = await order(bob, "PATCH", `/api/agents/${agent.id}`, { dailyLimit: "50" });
    t.equal(waiting.status, 202, JSON.stringify(waiting.body));
    const bobs = waiting.body.id;
    const kept = (await send(bob, "GET", `/api/waiting-orders/${bobs}`)).body.request;
    const only = {
      ...list,
      threshold: 1,
      members: list.members.filter(({ name }) => name !== "Bob"),
    };
    const removal = await order(ada, "PUT", "/api/team/members", only);
    const last = await sign(bob, removal.body.id);
    const changed = await carryOut(ada, last);
    t.equal(changed.status, 200, JSON.stringify(changed.body));
    t.match(changed.body.warning, /Only one admin/);
    t.equal((await send(bob, "GET", "/api/agents")).status, 401, "bob acts for the team no longer");
    t.equal((await send(ada, "GET", `/api/waiting-orders/${bobs}`)).status, 404, "his order ended");
    const again = await send(ada, kept.method, kept.path, kept.body);
    t.equal(again.body.code, "invalid_signature", "and his signature counts no more");

    // As an intruder who writes rows: the list of members says what it likes.
    await database.pool.query(
      `UPDATE owner_orders SET document = jsonb_set(document, '{members,0,account}', to_jsonb($1::text)) WHERE kind = 'Members'`,
      [address(bob)],
    );
    const vault = vaultHere(app, { trustsCaller: false });
    const authorization = {
      chainId: chain.chainId,
      asset: chain.usdc,
      from: agent.walletAddress,
      to: address(dan),
      value: 1n,
      validAfter: 0n,
      validBefore: BigInt(Math.floor(Date.now() / 1000)) + 60n,
      nonce: `0x${"5".repeat(64)}` as const,
    };
    await t.rejects(vault.signAuthorization(agent.id, authorization, { kind: "policy" }));
    await database.pool.query(
      `UPDATE owner_orders SET document = jsonb_set(document, '{members,0,account}', to_jsonb($1::text)) WHERE kind = 'Members'`,
      [address(ada)],
    );
    t.match(
      await vaultHere(app, { trustsCaller: false }).signAuthorization(agent.id, authorization, {
        kind: "policy",
      }),
      /^0x/,
    );
  },
);

/** Whether the team's audit holds, and what the check says first. */
async function audit(): Promise<string> {
  const said: string[] = [];
  const isWhole = await verifyDatabase(app.prisma, { owner: team, noted: [] }, (line) =>
    said.push(line),
  );
  return `${isWhole} ${said[0]}`;
}

/** As an intruder with the rights of the database's owner, for whom no trigger runs. */
async function edit(sql: string, values: unknown[] = []): Promise<void> {
  const client = await database.pool.connect();
  await client.query("BEGIN; SET LOCAL session_replication_role = replica");
  await client.query(sql, values);
  await client.query("COMMIT");
  client.release();
}

/** Writes an order of the team with the signatures of these people, as if the service had accepted it. */
async function plant<K extends "Members" | "PayoutAddress">(
  kind: K,
  order: Orders[K],
  by: SignedInOwner[],
  after = "clock_timestamp()",
): Promise<() => Promise<void>> {
  const typedData = typedDataOf(kind, order, chain.chainId, REQUESTED_FORM) as never;
  const parts = by.map(async ({ account }) => ({
    address: account.address,
    signature: await account.signTypedData(typedData),
  }));
  const signature = writeTeamSignature(await Promise.all(parts));
  await edit(
    `INSERT INTO owner_orders (nonce, kind, owner_id, agent_id, chain_id, document, digest, deadline, signature, used_at)
     SELECT $1, $2, o.id, '', $3, $4, $5, $6, $7, ${after} FROM owners o WHERE o.address = $8`,
    [
      order.nonce,
      kind,
      chain.chainId,
      JSON.stringify(order),
      orderDigest(kind, order, chain.chainId, REQUESTED_FORM),
      order.deadline,
      Buffer.from(signature.slice(2), "hex"),
      team.toLowerCase(),
    ],
  );
  return () => edit("DELETE FROM owner_orders WHERE nonce = $1", [order.nonce]);
}
const newestOf = async <K extends "Members" | "PayoutAddress">(kind: K): Promise<Orders[K]> => {
  const { rows } = await database.pool.query<{ document: Orders[K] }>(
    `SELECT o.document FROM owner_orders o JOIN owners w ON w.id = o.owner_id
      WHERE o.kind = $1 AND w.address = $2 ORDER BY o.used_at DESC LIMIT 1`,
    [kind, team.toLowerCase()],
  );
  if (!rows[0]) throw new Error(`no ${kind}`);
  return rows[0].document;
};
const newNonce = () => toHex(randomBytes(32));

/** A withdrawal that Ada signs, who is enough by now, through the whole service. */
async function withdraw() {
  const url = `/api/agents/${agent.id}/withdrawals`;
  const prepared = await send(ada, "POST", `${url}/prepare`, { amount: "0.5" });
  const done = await send(ada, "POST", url, await signOrder(ada.account, prepared.body));
  return { to: prepared.body.order?.["to"], status: done.status, code: done.body.code };
}

t.test("rows of lists that an intruder wrote make nobody a member, and are found", async (t) => {
  const elsewhere = vaultHere(app, { trustsCaller: false });
  const pay = (vault: typeof elsewhere) =>
    vault.signAuthorization(
      agent.id,
      {
        chainId: chain.chainId,
        asset: chain.usdc,
        from: agent.walletAddress,
        to: address(dan),
        value: 1n,
        validAfter: 0n,
        validBefore: BigInt(Math.floor(Date.now() / 1000)) + 60n,
        nonce: newNonce(),
      },
      { kind: "policy" },
    );
  t.match(await pay(elsewhere), /^0x/);
  t.match(await audit(), /^true /);
  t.match(await withdraw(), { status: 200 });
  const raise = { dailyLimit: "60" };
  const nothingIsSigned = async (what: string) => {
    const fresh = vaultHere(app, { trustsCaller: false });
    await t.rejects(pay(fresh), { name: "CustodyError" }, `${what}: custody signs nothing`);
    t.match(await withdraw(), { status: 401, code: "invalid_signature" }, what);
    t.equal((await send(ada, "GET", "/api/team")).body.code, "policy_not_signed", what);
    const raised = await order(ada, "PATCH", `/api/agents/${agent.id}`, raise);
    t.equal(raised.body.code, "invalid_signature", what);
  };

  // Both were enough for the list before, so this one follows it as well as the one in force.
  const third = await newestOf("Members");
  const second = { ...third, name: "Ours", nonce: newNonce() };
  const LATER = "clock_timestamp()";
  const EARLIER =
    "(SELECT max(used_at) FROM owner_orders WHERE kind = 'Members') - interval '1 microsecond'";
  for (const [place, after] of [
    ["after it", LATER],
    ["before it", EARLIER],
  ] as const) {
    const drop = await plant("Members", second, [ada, bob], after);
    await nothingIsSigned(`another list of this version, ${place}`);
    t.match(await audit(), /^false FAILED .* is missing: the order Members 0x/, place);
    await drop();
  }

  await edit(
    "CREATE TABLE kept_list AS SELECT * FROM owner_orders WHERE nonce = $1".replace(
      "$1",
      `'${third.nonce}'`,
    ),
  );
  await edit("DELETE FROM owner_orders WHERE nonce = $1", [third.nonce]);
  // A process that has just started cannot know of the newer list; one that has seen it refuses.
  t.match(await withdraw(), { status: 401, code: "invalid_signature" }, "an older list");
  t.equal((await send(ada, "GET", "/api/team")).body.code, "policy_not_signed");
  t.match(await audit(), /^false FAILED .* its order is missing/);
  await edit("INSERT INTO owner_orders SELECT * FROM kept_list");
  await edit("DROP TABLE kept_list");
  t.match(await audit(), /^true /);
  t.match(await withdraw(), { status: 200 }, "with the right rows, as before");
});

t.test("the audit proves who signed", async (t) => {
  t.match(await audit(), /^true /);
});

t.test("a row of a payout address moves no money there, and is found", async (t) => {
  const payout = await newestOf("PayoutAddress");
  const thief = privateKeyToAccount(generatePrivateKey()).address;
  // In force at once, by its signed time.
  const forged = { ...payout, version: "2", payout: thief, deadline: "1700000000" };
  const forgers = [
    ["nobody", []],
    ["an approver", [cleo]],
    ["a viewer", [dan]],
    ["a former admin, who alone was never enough", [bob]],
  ] as const;
  for (const [who, by] of forgers) {
    const drop = await plant("PayoutAddress", { ...forged, nonce: newNonce() }, [...by]);
    t.match(await audit(), /^false FAILED .* is missing: the order PayoutAddress 0x/, who);
    await drop();
  }
  for (const [who, by] of forgers) {
    const drop = await plant("PayoutAddress", { ...forged, nonce: newNonce() }, [...by]);
    // The service shows what is stored, and an admin signs it; custody does not.
    t.match(await withdraw(), { to: thief, status: 503, code: "policy_not_signed" }, who);
    await drop();
  }
  t.match(await audit(), /only the owner's wallet can withdraw to another address/);
  t.equal(await chain.usdcOf(thief), 0n);
  t.match(await withdraw(), { to: payout.payout, status: 200 });
  const { rows } = await database.pool.query(
    "SELECT 1 FROM payments WHERE status IN ('reserved', 'submitted')",
  );
  t.same(rows, [], "nothing stays reserved");
  await enter(ada, null);
  t.equal((await send(ada, "GET", "/api/agents")).body.items.length, 0, "leaving moves no agent");
});
