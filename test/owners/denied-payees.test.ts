// Goal: what an owner never pays is paid by none of its agents, in any spelling, through any scheme and under any approval,
// from the moment the request to add it is answered; only the owner's signature ends that.
import t from "tap";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
import { databaseNow } from "../../server/infra/db/prisma.ts";
import { callApi, spendAs } from "../helpers/call.ts";
import {
  asOwner,
  createAgent,
  nameRecoveryWallet,
  signIn,
  signOrder,
  type NewTestAgent,
  type SignedInOwner,
} from "../helpers/owner.ts";
import { until } from "../helpers/until.ts";
import { channelSeller } from "../x402-client/channel-sellers.ts";
import { market, PAYEE } from "../x402-client/market.ts";
import { localServer } from "../x402-client/sellers.ts";
import { ourFacilitator } from "../x402-client/stock-sellers.ts";
import { assertAuditsHold } from "./audit.helper.ts";

const URL_OF_LIST = "/api/owner/denied-payees";
const made = await market(t, { listen: true });
const { app, chain, config, database, seller } = made;
const { pool } = database;
const newWallet = () => privateKeyToAccount(generatePrivateKey());
const ANOTHER = newWallet().address;

type Who = Pick<SignedInOwner, "headers">;
const codeOf = (answer: { json: () => unknown }) => (answer.json() as { code?: string }).code;
const deny = (who: Who, body: object) => callApi(app, who, "POST", URL_OF_LIST, body);
const denied = async (who: Who) =>
  (await callApi(app, who, "GET", URL_OF_LIST)).json<{ items: Record<string, unknown>[] }>().items;
const allowAgain = (owner: SignedInOwner, body: object) =>
  asOwner(app, owner, { method: "POST", url: `${URL_OF_LIST}/remove`, body });
const spend = (agent: NewTestAgent, recipient: string = PAYEE, more: object = {}, key?: string) =>
  spendAs(app, agent, { recipient, amount: "0.001", ...more }, key);

async function funded(owner: SignedInOwner, body: Record<string, unknown> = {}) {
  const agent = await createAgent(made, owner, { allowlist: [PAYEE], ...body });
  await chain.mint(agent.walletAddress, 1_000_000n);
  const fetch = async (request: Record<string, unknown>) => {
    const answer = await callApi(app, agent, "POST", "/api/agents/x402-fetch", {
      detail: "full",
      ...request,
    });
    return { status: answer.statusCode, body: answer.json<Record<string, unknown>>() };
  };
  return { agent, fetch };
}

t.test("no agent of the owner pays it, until the owner signs", async (t) => {
  const owner = await signIn(made);
  const [first, second] = [await funded(owner), await funded(owner)];
  const stranger = await funded(await signIn(made));
  t.equal((await spend(first.agent)).statusCode, 200, "before");

  // One spelling is stored, and every spelling of a payment is compared with it.
  const added = await deny(owner, { payee: `0x${PAYEE.slice(2).toUpperCase()}`, note: "Fraud" });
  t.match(added.json(), {
    success: true,
    denied: { payee: PAYEE, site: null, note: "Fraud", addedBy: owner.account.address },
  });
  t.equal((await deny(owner, { payee: PAYEE, note: "Other" })).body, added.body, "added once");
  t.match(await denied(owner), [{ payee: PAYEE, note: "Fraud" }]);
  for (const { agent } of [first, second])
    for (const recipient of [PAYEE, PAYEE.toLowerCase()]) {
      const refused = await spend(agent, recipient, { requestApproval: true });
      t.match(
        { status: refused.statusCode, body: refused.json() },
        {
          status: 403,
          body: {
            code: "payee_denied",
            detail: `The owner never pays ${PAYEE}, from any agent.`,
            policy: { rule: "denied_payee", denied: PAYEE },
            availableAt: null,
            retryable: false,
          },
        },
        "an approval cannot be requested",
      );
    }
  const listed = await callApi(app, owner, "GET", `/api/agents/${first.agent.id}/payments`);
  t.match(listed.json(), {
    items: [{ denial: { code: "payee_denied", policy: { denied: PAYEE } } }],
  });
  const self = await callApi(app, first.agent, "GET", "/api/agents/me");
  t.match(self.json(), {
    allowlist: [{ address: PAYEE, denied: true }],
    limits: { available: "0", boundBy: "allowlist" },
  });
  t.equal((await spend(stranger.agent)).statusCode, 200, "another owner's agent pays it");

  t.equal(
    codeOf(await callApi(app, owner, "POST", `${URL_OF_LIST}/remove`, { payee: PAYEE })),
    "owner_signature_required",
  );
  const again = await allowAgain(owner, { payee: PAYEE });
  t.match(again.json(), { success: true, removed: true });
  t.match((await allowAgain(owner, { payee: PAYEE })).json(), { removed: false });
  t.equal((await spend(first.agent)).statusCode, 200, "after");
  const { rows } = await pool.query(
    `SELECT n.data->>'change' AS change FROM notifications n JOIN owners o ON o.id = n.owner_id
      WHERE o.address = $1 AND n.data->>'change' LIKE 'owner.payee%' ORDER BY n.created_at`,
    [owner.account.address.toLowerCase()],
  );
  t.same(rows, [{ change: "owner.payee_denied" }, { change: "owner.payee_allowed" }]);
  await assertAuditsHold(t, app.prisma);
});

t.test("the recovery wallet only adds; an order is for one entry, once", async (t) => {
  const owner = await signIn(made);
  const { agent } = await funded(owner);
  const wallet = newWallet();
  await nameRecoveryWallet(app, owner, wallet);
  const second = await signIn(made, wallet, owner.account.address);
  t.match((await deny(second, { payee: PAYEE })).json(), { denied: { addedBy: wallet.address } });
  await deny(owner, { payee: ANOTHER });
  const remove = (who: Who, body: object) =>
    callApi(app, who, "POST", `${URL_OF_LIST}/remove`, body);
  t.equal(codeOf(await remove(second, { payee: PAYEE })), "second_wallet_only_tightens");
  const asked = (await remove(owner, { payee: PAYEE })).json<object>();
  const byOther = await signOrder(wallet, asked);
  t.equal(
    codeOf(await remove(owner, { payee: PAYEE, authorization: byOther })),
    "invalid_signature",
  );
  const authorization = await signOrder(owner.account, asked);
  t.equal(codeOf(await remove(owner, { payee: ANOTHER, authorization })), "policy_changed");
  t.equal((await remove(owner, { payee: PAYEE, authorization })).statusCode, 200);
  await deny(owner, { payee: PAYEE });
  t.equal(codeOf(await remove(owner, { payee: PAYEE, authorization })), "order_used");
  const unsent = await signOrder(
    owner.account,
    (await remove(owner, { payee: PAYEE })).json<object>(),
  );
  const requestedSeconds = Math.floor((await databaseNow(app.prisma)).getTime() / 1000);
  t.equal((await allowAgain(owner, { payee: PAYEE })).statusCode, 200);
  await until(async () => (await databaseNow(app.prisma)).getTime() / 1000 >= requestedSeconds + 1);
  await deny(owner, { payee: PAYEE });
  const late = await remove(owner, { payee: PAYEE, authorization: unsent });
  t.equal(codeOf(late), "policy_changed", "it was signed for the entry before");
  const anew = await signOrder(owner.account, late.json<object>());
  t.equal((await remove(owner, { payee: PAYEE, authorization: anew })).statusCode, 200);
  await deny(owner, { payee: PAYEE });

  // With its agents, the new owner gets what the former one never pays.
  const moved = await asOwner(
    app,
    owner,
    { method: "POST", url: "/api/recovery/move", body: {} },
    wallet,
  );
  t.equal(moved.statusCode, 200, moved.body);
  const heir = await signIn(made, wallet);
  t.match(await denied(heir), [{ payee: PAYEE }, { payee: ANOTHER }], "newest first");
  const url = `/api/agents/${agent.id}`;
  const resumed = await asOwner(app, heir, { method: "PATCH", url, body: { status: "active" } });
  t.equal(resumed.statusCode, 200, resumed.body);
  t.equal(codeOf(await spend(agent)), "payee_denied");
  await assertAuditsHold(t, app.prisma);
});

t.test("what an entry is, and at most a thousand", async (t) => {
  const owner = await signIn(made);
  const refused: [object, string][] = [
    [{}, "validation_failed"],
    [{ payee: PAYEE, site: "https://shop.example" }, "validation_failed"],
    [{ payee: "0x12" }, "invalid_address"],
    [{ payee: PAYEE.replace("C", "c") }, "invalid_address"],
    [{ site: "https://shop.example/path" }, "validation_failed"],
    [{ site: "https://shop.example." }, "validation_failed"],
    [{ site: "https://user@shop.example" }, "validation_failed"],
    [{ site: "shop.example" }, "validation_failed"],
    [{ payee: PAYEE, note: "x".repeat(201) }, "validation_failed"],
    [{ payee: PAYEE, note: "to\u202eorder" }, "validation_failed"],
  ];
  for (const [body, code] of refused)
    t.equal(codeOf(await deny(owner, body)), code, JSON.stringify(body));
  for (const [site, stored] of [
    ["HTTPS://Shop.Example:443/", "https://shop.example"],
    ["https://münchen.example", "https://xn--mnchen-3ya.example"],
    ["https://port.example:8443", "https://port.example:8443"],
  ])
    t.match((await deny(owner, { site })).json(), { denied: { site: stored, payee: null } });

  const { rows } = await pool.query<{ id: string }>("SELECT id FROM owners WHERE address = $1", [
    owner.account.address.toLowerCase(),
  ]);
  const ownerId = rows[0]?.id;
  const entryAt = async (site: string) =>
    (await pool.query("SELECT entry FROM purser_denied($1, NULL, $2)", [ownerId, site])).rows[0];
  const shop = { entry: "https://shop.example" };
  for (const [url, entry] of [
    ["https://shop.example/", shop],
    ["https://SHOP.example:8443/x", shop],
    ["https://shop.example./", shop],
    ["https://shop.example.:8443/", shop],
    ["https://ｓｈｏｐ.example/", shop],
    ["https://port.example.:8443/", { entry: "https://port.example:8443" }],
    ["https://MÜNCHEN.example/", { entry: "https://xn--mnchen-3ya.example" }],
    ["https://port.example/", { entry: null }],
    ["https://api.shop.example/", { entry: null }],
    ["https://shop.example.evil/", { entry: null }],
    ["https://[::1]:443/", { entry: null }],
  ] as const)
    t.same(await entryAt(new URL(url).origin), entry, url);

  await pool.query(
    `INSERT INTO denied_payees (id, owner_id, entry, added_by)
     SELECT 'dny_' || n, $1, '0x' || lpad(to_hex(n), 40, '0'), '0x' FROM generate_series(4, 1000) n`,
    [ownerId],
  );
  t.equal(codeOf(await deny(owner, { payee: ANOTHER })), "denied_payee_quota_exceeded");
  t.equal((await deny(owner, { site: "https://shop.example" })).statusCode, 200, "it is there");
});

t.test("nothing is sent to a denied site, and a denied payee's offer is not chosen", async (t) => {
  const owner = await signIn(made);
  const { agent, fetch } = await funded(owner);
  const free = await localServer(t, (_request, response) => void response.end("free"));
  config.fetchPrivateOrigins.push(free.origin);
  t.match(await fetch({ url: free.origin }), { status: 200, body: { paid: false } });
  const connections = free.connections();
  // Without its port, it is every port of the host.
  await deny(owner, { site: free.origin });
  const refusal = {
    status: 403,
    body: {
      code: "payee_denied",
      detail: `The owner never pays anything at ${free.origin}, from any agent.`,
      policy: { denied: free.origin },
    },
  };
  t.match(await fetch({ url: free.origin }), refusal);
  t.match(await fetch({ url: free.origin, dryRun: true }), refusal);
  t.match(await fetch({ url: free.origin.replace("127.0.0.1", "0x7f.1") }), refusal);
  seller.script = {
    onUnpaid: ({ response }) => void response.writeHead(302, { location: free.origin }).end(),
  };
  t.match(await fetch({ url: seller.url }), { status: 502, body: { code: "upstream_redirect" } });
  t.equal(free.connections(), connections, "no request, and no redirect");

  await deny(owner, { payee: ANOTHER });
  const url = `/api/agents/${agent.id}/allowlist`;
  await asOwner(app, owner, { method: "PUT", url, body: { allowlist: [] } });
  t.equal(
    codeOf(await asOwner(app, owner, { method: "PUT", url, body: { allowlist: [ANOTHER] } })),
    "denied_by_owner",
  );
  await allowAgain(owner, { payee: ANOTHER });
  const both = { allowlist: [PAYEE, ANOTHER] };
  t.equal((await asOwner(app, owner, { method: "PUT", url, body: both })).statusCode, 200);
  await deny(owner, { payee: ANOTHER });
  seller.script = {
    terms: () => [seller.entry({ payTo: ANOTHER, amount: "10" }), seller.entry()],
  };
  const paid = await fetch({ url: seller.url });
  t.match(paid, { status: 200, body: { paid: true, payTo: PAYEE } }, JSON.stringify(paid.body));
  const quote = await fetch({ url: seller.url, dryRun: true });
  t.match(quote.body["offers"], [{ refused: { code: "payee_denied" } }, { chosen: true }]);
  const proofs = seller.proofs.length;
  seller.script = { terms: () => seller.entry({ payTo: ANOTHER }) };
  const single = await fetch({ url: seller.url });
  t.match(single, { status: 403, body: { code: "payee_denied", policy: { denied: ANOTHER } } });
  seller.script = {};
  await deny(owner, { site: seller.origin });
  t.match(await fetch({ url: seller.url }), { status: 403, body: { code: "payee_denied" } });
  t.equal(seller.proofs.length, proofs, "no proof was sent");
  const changed = await asOwner(app, owner, {
    method: "PATCH",
    url: `/api/agents/${agent.id}`,
    body: { allowlist: [ANOTHER, { address: PAYEE, dailyLimit: "1" }] },
  });
  t.equal(changed.statusCode, 200, "what was on the list before may stay on it");
});

t.test("an approval that was signed before does not pay it", async (t) => {
  const owner = await signIn(made);
  const { agent } = await funded(owner);
  const ask = async (key: string) =>
    (await spend(agent, ANOTHER, { requestApproval: true }, key)).json<{ approvalId: string }>();
  const approve = (approvalId: string) =>
    asOwner(app, owner, { method: "POST", url: `/api/approvals/${approvalId}/approve`, body: {} });
  const { approvalId } = await ask("signed");
  t.equal((await approve(approvalId)).statusCode, 200);
  const open = await spend(
    agent,
    ANOTHER,
    { amount: "0.002", requestApproval: true },
    "still open",
  );
  await deny(owner, { payee: ANOTHER });
  t.equal(codeOf(await spend(agent, ANOTHER, { requestApproval: true }, "signed")), "payee_denied");
  t.equal(codeOf(await approve(open.json<{ approvalId: string }>().approvalId)), "denied_by_owner");
  await allowAgain(owner, { payee: ANOTHER });
  const paid = await spend(agent, ANOTHER, { requestApproval: true }, "signed");
  t.equal(paid.statusCode, 200, "the refusals did not use it up");
});

t.test("no voucher is signed for a denied receiver, and its channel can be closed", async (t) => {
  const owner = await signIn(made);
  const { agent, fetch } = await funded(owner, { channelHeld: "1", channelDelay: 86_400 });
  const facilitator = ourFacilitator(made.baseUrl);
  const paidThere = await channelSeller(t, { chain, payTo: PAYEE, facilitator });
  config.fetchPrivateOrigins.push(paidThere.origin);
  const url = `${paidThere.origin}/word`;
  const paid = await fetch({ url });
  t.equal(paid.status, 200, JSON.stringify(paid.body));
  await deny(owner, { payee: PAYEE });
  const before = paidThere.paidRequests;
  t.match(await fetch({ url }), { status: 403, body: { code: "payee_denied" } });
  t.equal(paidThere.paidRequests, before);
  const closing = await callApi(app, owner, "POST", `/api/agents/${agent.id}/channels/close`);
  t.equal(closing.statusCode, 200, closing.body);
});

t.test("a payment is reserved before the answer, or refused after it", async (t) => {
  const owner = await signIn(made);
  const { agent } = await funded(owner);
  const waiting = () =>
    until(async () => {
      const { rowCount } = await pool.query(
        "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'",
      );
      return rowCount !== 0;
    });
  const other = await pool.connect();
  t.teardown(() => other.release());

  // A payment is being decided, and has read that nothing is denied.
  await other.query("BEGIN");
  await other.query("SELECT 1 FROM agents WHERE id = $1 FOR UPDATE", [agent.id]);
  let isAnswered = false;
  const adding = deny(owner, { payee: PAYEE }).finally(() => {
    isAnswered = true;
  });
  await waiting();
  t.notOk(isAnswered, "it waits for that payment");
  await other.query("COMMIT");
  t.equal((await adding).statusCode, 200);
  t.equal(codeOf(await spend(agent)), "payee_denied");
  await allowAgain(owner, { payee: PAYEE });

  // It is being added.
  const { rows } = await pool.query<{ id: string }>(
    "SELECT owner_id AS id FROM agents WHERE id = $1",
    [agent.id],
  );
  await other.query("BEGIN");
  await other.query("SELECT purser_deny_payee($1, 'dny_race', $2, '', '0x', 1000)", [
    rows[0]?.id,
    PAYEE.toLowerCase(),
  ]);
  const paying = spend(agent);
  await waiting();
  await other.query("COMMIT");
  t.equal(codeOf(await paying), "payee_denied", "it waited, and saw the entry");
});
