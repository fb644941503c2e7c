// Goal: a site that asks an agent for far more than before pauses it, once, and only there; the owner's wallet resumes it, and then
// the price that the owner saw passes.
import t, { type Test } from "tap";
import { asOwner, createAgent } from "../helpers/owner.ts";
import { channelSeller } from "./channel-sellers.ts";
import { assertLedgerIsChain, market, PAYEE } from "./market.ts";
import { permit2Seller } from "./permit2-sellers.ts";
import { scriptedSeller, type ScriptedSeller } from "./scripted-seller.ts";
import { ourFacilitator } from "./stock-sellers.ts";

const RULE = { pauseOnPriceJump: 5 };
const made = await market(t, { listen: true, env: { SETTLE_WAIT_MS: "10000" }, agent: RULE });
const { app, chain, database, owner, seller, agent } = made;
const facilitator = ourFacilitator(made.baseUrl);

const asks = (one: ScriptedSeller, amount: string) => {
  one.script = { terms: () => one.entry({ amount }) };
};
const pausedBy = async (id: string): Promise<unknown> =>
  (await app.inject({ url: `/api/agents/${id}`, headers: owner.headers })).json<{
    pausedBy: unknown;
  }>().pausedBy;

t.test("three cheap prices, then a dear one", async (t) => {
  const twin = await scriptedSeller(t, chain, PAYEE);
  made.config.fetchPrivateOrigins.push(twin.origin);
  const { url } = seller;
  for (let count = 0; count < 3; count += 1)
    t.match(await made.fetch({ url }), { status: 200, body: { paid: true } });
  asks(twin, "900000");
  t.match(await made.fetch({ url: twin.url }), { status: 200 }, "another site");

  asks(seller, "5001");
  const pausedFor = {
    pausedBy: "pause_on_price_jump",
    pauseOnPriceJump: "5",
    jumpSite: seller.origin,
    jumpPrice: "0.005001",
    priceBefore: "0.001",
  };
  const quote = await made.fetch({ url, dryRun: true });
  t.match(quote, { status: 200, body: { verdict: { allowed: false, code: "paused_by_rule" } } });
  t.equal(await pausedBy(agent.id), null, "a dry run pauses nothing");

  const proofs = seller.proofs.length;
  const answers = await Promise.all(
    ["a", "b", "c"].map((key) => made.fetch({ url }, { "idempotency-key": key })),
  );
  for (const { status, body } of answers)
    t.match(
      { status, body },
      {
        status: 403,
        body: { code: "paused_by_rule", ...pausedFor, policy: { rule: pausedFor.pausedBy } },
      },
    );
  t.equal(seller.proofs.length, proofs, "nothing was signed");
  t.equal(await pausedBy(agent.id), pausedFor.pausedBy);
  const { pausedBy: rule, ...compared } = pausedFor;
  const { rows } = await database.pool.query(
    "SELECT data FROM notifications WHERE agent_id = $1 AND type = 'agent.paused'",
    [agent.id],
  );
  t.match(rows, [{ data: { rule, ...compared } }], "the owner is notified once");
  t.equal(rows.length, 1);

  const agentUrl = `/api/agents/${agent.id}`;
  const unsigned = await app.inject({
    method: "PATCH",
    url: agentUrl,
    headers: owner.headers,
    payload: JSON.stringify({ status: "active" }),
  });
  t.match(unsigned.json(), { code: "owner_signature_required" });
  const resumed = await asOwner(app, owner, {
    method: "PATCH",
    url: agentUrl,
    body: { status: "active" },
  });
  t.equal(resumed.statusCode, 200, resumed.body);
  t.match(await made.fetch({ url }), { status: 200, body: { amountPaid: "0.005001" } });
  t.equal(await pausedBy(agent.id), null);
  await assertLedgerIsChain(t, made);
});

/** An agent with money, and its requests. */
async function buyer() {
  const one = await createAgent(made, owner, { ...RULE, channelHeld: "1", allowlist: [PAYEE] });
  await chain.mint(one.walletAddress, 1_000_000n);
  const fetch = async (url: string) => {
    const answer = await app.inject({
      method: "POST",
      url: "/api/agents/x402-fetch",
      headers: one.headers,
      payload: JSON.stringify({ url }),
    });
    return { status: answer.statusCode, body: answer.json<Record<string, unknown>>() };
  };
  const pays = async (t: Test, url: string) => {
    const answer = await fetch(url);
    t.match(answer, { status: 200 }, JSON.stringify(answer.body));
  };
  return { fetch, pays };
}

t.test("maxima are compared with maxima, and a price with what was charged", async (t) => {
  const origin = await permit2Seller(t, { chain, payTo: PAYEE, facilitator });
  made.config.fetchPrivateOrigins.push(origin);
  const { fetch, pays } = await buyer();
  for (const charge of [100, 399, 100, 200]) await pays(t, `${origin}/upto/${charge}`);
  t.match(await fetch(`${origin}/exact`), {
    status: 403,
    body: { code: "paused_by_rule", jumpPrice: "0.002", priceBefore: "0.000399" },
  });
});

t.test("a channel's deposit is no price", async (t) => {
  const channels = await channelSeller(t, { chain, payTo: PAYEE, facilitator });
  made.config.fetchPrivateOrigins.push(channels.origin);
  const { pays } = await buyer();
  for (let count = 0; count < 4; count += 1) await pays(t, `${channels.origin}/word`);
  const { rows } = await database.pool.query<{ deposit: string }>(
    "SELECT amount::text AS deposit FROM payments WHERE kind = 'deposit'",
  );
  t.same(rows, [{ deposit: "100000" }], "a hundred prices");
});
