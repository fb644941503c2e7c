// Goal: a team of people needs as many of them as it says for what loosens rules and moves money: over HTTP, with wallets and a
// passkey; a removed member, a wrong role, a race at the threshold and edited rows gain nothing.
import t from "tap";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
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

t.test("the audit proves who signed", async (t) => {
  const said: string[] = [];
  t.ok(
    await verifyDatabase(app.prisma, { owner: team, noted: [] }, (line) => said.push(line)),
    said.join(),
  );
  await enter(ada, null);
  t.equal((await send(ada, "GET", "/api/agents")).body.items.length, 0, "leaving moves no agent");
});
