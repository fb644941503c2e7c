// Goal: an owner learns once for each deposit that a payment channel has little left, and what to sign where a limit prevents the next.
import t from "tap";
import { callApi } from "../helpers/call.ts";
import { until } from "../helpers/until.ts";
import { channelSeller } from "../x402-client/channel-sellers.ts";
import { expectWholeLedger } from "../x402-client/channel-facts.ts";
import { market, PAYEE } from "../x402-client/market.ts";
import { ourFacilitator } from "../x402-client/stock-sellers.ts";
import { api, startTarget, type Json } from "./world.ts";

t.test("little is left in a channel", async (t) => {
  const made = await market(t, {
    listen: true,
    env: { SETTLE_WAIT_MS: "10000" },
    // One deposit is enough for ten requests.
    agent: { dailyLimit: "2", channelHeld: "0.01", channelDelay: 86_400 },
  });
  const { app, owner, agent, config } = made;
  const facilitator = ourFacilitator(made.baseUrl);
  const seller = await channelSeller(t, { chain: made.chain, payTo: PAYEE, facilitator });
  const target = await startTarget(t);
  config.fetchPrivateOrigins.push(seller.origin, target.origin);
  const me = api(app, owner);
  await me.webhook(`${target.origin}/owner`);
  const low = () => me.notifications("?type=channel.low&limit=100");
  const buy = (n = 0) => made.fetch({ url: `${seller.origin}/word?n=${n}` });
  const buyAll = async (many: number): Promise<void> => {
    for (let n = 0; n < many; n += 1) {
      const { body, text } = await buy(n);
      t.match(body, { paid: true }, text);
      if (n === 0)
        await until(async () => {
          const { rows } = await made.database.pool.query(
            "SELECT 1 FROM payments WHERE kind = 'deposit' AND outstanding",
          );
          return rows.length === 0;
        });
    }
  };

  await buyAll(8);
  t.same(await low(), [], "exactly a fifth is left");
  await buyAll(1);
  const [{ rows: channels }, events] = await Promise.all([
    made.database.pool.query<{ id: string }>("SELECT id FROM channels"),
    low(),
  ]);
  const id = channels[0]?.id;
  const about = {
    agentId: agent.id,
    subjectId: id,
    data: { channelId: id, payee: PAYEE.toLowerCase(), deposit: "0.01" },
  };
  t.match(events, [
    {
      ...about,
      title: /has only 0.001?0? USDC left$/,
      readAt: String,
      data: { ...about.data, left: "0.001", balance: "0.01" },
    },
  ]);
  t.same(
    events.map(({ data }) => (data as Json)["needs"]),
    [undefined],
    "the agent deposits again by itself",
  );
  await buyAll(1);
  t.equal((await low()).length, 1, "once for a deposit");
  await buyAll(9);
  t.equal((await low()).length, 2, "and once for the next");
  await buyAll(1);

  const lowered = await callApi(app, owner, "PATCH", `/api/agents/${agent.id}`, {
    channelHeld: "0.0004",
  });
  t.equal(lowered.statusCode, 200, lowered.body);
  for (const n of [1, 2])
    t.match((await buy(n)).body, {
      code: "channel_limit_exceeded",
      needs: { channelHeld: "0.01" },
    });
  t.match(await low(), [
    {
      ...about,
      title: /has only 0.00 USDC left, and your limits allow no other deposit/,
      detail: /Held in channels, at least: 0.01/,
      readAt: null,
      data: { ...about.data, left: "0", balance: "0.02", needs: { channelHeld: "0.01" } },
    },
    {},
    {},
  ]);
  t.equal((await low()).length, 3, "once");
  await until(
    () => target.received.filter(({ body }) => body.includes('"channel.low"')).length === 3,
  );
  await expectWholeLedger(t, made);
});
