// Goal: an owner sees payments through channels as what they are: a deposit is never spending, a voucher counts once, and money in
// channels is neither forgotten by a withdrawal nor left behind in an archived agent.
import t from "tap";
import { privateKeyToAddress } from "viem/accounts";
import { CHANNEL_KEY } from "../helpers/app.ts";
import { callApi } from "../helpers/call.ts";
import { asOwner } from "../helpers/owner.ts";
import { until } from "../helpers/until.ts";
import { api, startTarget, type Json } from "../notifications/world.ts";
import { channelSeller } from "./channel-sellers.ts";
import { market, PAYEE } from "./market.ts";
import { ourFacilitator } from "./stock-sellers.ts";

t.test("an owner's view of payment channels", async (t) => {
  const made = await market(t, {
    listen: true,
    env: { SETTLE_WAIT_MS: "10000", CONFIRMATIONS_31337: "1" },
    agent: { dailyLimit: "2", channelHeld: "1", channelDelay: 86_400 },
  });
  const { app, chain, agent, owner, config, baseUrl } = made;
  const facilitator = ourFacilitator(baseUrl);
  await chain.testClient.setBalance({
    address: privateKeyToAddress(CHANNEL_KEY),
    value: 10n ** 18n,
  });
  const target = await startTarget(t);
  config.fetchPrivateOrigins.push(target.origin);
  const me = api(app, owner);
  await me.webhook(`${target.origin}/owner`);
  const sell = async () => {
    const seller = await channelSeller(t, { chain, payTo: PAYEE, facilitator });
    config.fetchPrivateOrigins.push(seller.origin);
    return { seller, url: `${seller.origin}/word` };
  };
  const get = async <T = Json>(path: string): Promise<T> => {
    const answer = await app.inject({ url: `/api/${path}`, headers: owner.headers });
    return answer.json();
  };
  const asAgent = async <T = Json>(path: string): Promise<T> => {
    const answer = await app.inject({ url: `/api/agents/${path}`, headers: agent.headers });
    return answer.json();
  };
  const payments = async (filter = ""): Promise<Json[]> =>
    (await get<{ items: Json[] }>(`agents/${agent.id}/payments?limit=50${filter}`)).items;
  const channels = () => get<{ items: Json[]; total: Json }>(`agents/${agent.id}/channels`);
  const notified = (type: string): Promise<Json[]> => me.notifications(`?type=${type}&limit=100`);
  const noneOpen = () =>
    until(async () => (await payments("&status=reserved,submitted,unknown")).length === 0);

  const events: string[] = [];
  const gone = new AbortController();
  t.teardown(() => gone.abort());
  const stream = await fetch(`${baseUrl}/api/events`, {
    headers: { cookie: owner.cookie },
    signal: gone.signal,
  });
  void (async () => {
    const decoder = new TextDecoder();
    for await (const part of stream.body ?? []) events.push(decoder.decode(part));
  })().catch(() => undefined);

  const { url } = await sell();
  // 700 of the first ceiling is charged; the next payment signs 300 less, and the last one is not charged at all.
  for (const charge of [700, 1_000, 0]) await made.fetch({ url: `${url}?charge=${charge}` });
  await noneOpen();
  const [channel] = (await channels()).items;
  const id = channel?.["id"];

  await t.test("payments carry their channel, and deposits their transaction", async (t) => {
    const [last, second, first, ...rest] = await payments("&kind=x402");
    t.same(rest, []);
    const through = { kind: "x402", status: "settled", txHash: null, final: true };
    t.match(
      [first, second, last],
      [
        { ...through, amount: "0.001", channel: { id, ceiling: "0.001", charged: "0.0007" } },
        { ...through, amount: "0.0007", channel: { id, ceiling: "0.0017", charged: "0.001" } },
        { ...through, amount: "0.001", channel: { id, ceiling: "0.0027", charged: "0" } },
      ],
    );
    t.notOk(JSON.stringify([first, second, last]).includes("voucher"), "not in the list");
    const one = await get(`agents/${agent.id}/payments/${String(first?.["id"])}`);
    t.match(one, { channel: { id, charged: "0.0007", voucher: /^0x[0-9a-f]{130}$/ } });
    t.match(await payments("&kind=deposit"), [
      { kind: "deposit", status: "settled", amount: "0.1", txHash: /^0x/, channel: { id } },
    ]);
    const own = await asAgent<{ items: Json[] }>("me/payments?kind=x402&limit=1");
    t.match(own.items, [{ txHash: null, channel: { id, charged: "0" } }]);
    t.match(await asAgent(`me/payments/${String(first?.["id"])}`), { channel: { voucher: /^0x/ } });
    const spent = await payments("&kind=spend,withdrawal,incoming");
    t.same(
      spent.filter((payment) => payment["channel"] !== null),
      [],
    );
    const csv = await app.inject({
      url: `/api/agents/${agent.id}/payments`,
      headers: { ...owner.headers, accept: "text/csv" },
    });
    const lines = csv.body.trim().split("\r\n");
    t.match(lines[0], /,channel,ceiling,charged,task$/);
    t.match(
      lines.find((line) => line.includes(String(first?.["id"]))),
      `,${String(id)},0.001,0.0007`,
    );
    await until(async () => events.join("").includes(`"channel":{"id":"${String(id)}"`));
    t.notOk(events.join("").includes("voucher"));
  });

  await t.test("a deposit is not spending, and every voucher is, once", async (t) => {
    const spent = "0.0027";
    const { totals, hourly, daily } = await get<{
      totals: Json;
      hourly: { spent: string; count: number }[];
      daily: { spent: string; count: number }[];
    }>(`overview?agentId=${agent.id}`);
    t.match(totals, { spent24h: spent, reserved: "0", balance: "4.9" });
    for (const buckets of [hourly, daily]) {
      const some = buckets.filter(({ count }) => count > 0);
      // Payments may fall on both sides of the hour.
      t.equal(
        some.reduce((sum, one) => sum + one.count, 0),
        3,
      );
      t.equal(
        some.reduce((sum, one) => sum + Math.round(Number(one.spent) * 1e6), 0),
        2_700,
      );
    }
    t.match(await asAgent("me"), { limits: { spent, reserved: "0" }, balance: "4.9" });
    t.match(await get(`agents/${agent.id}`), { limits: { spent } });
    const { items } = await get<{ items: Json[] }>("agents");
    t.match(
      items.find((one) => one["id"] === agent.id),
      { limits: { spent } },
    );
  });

  await t.test(
    "the first deposit opens a channel; what was not charged was not paid",
    async (t) => {
      await until(async () => (await notified("channel.opened")).length > 0);
      t.match(await notified("channel.opened"), [
        {
          agentId: agent.id,
          subjectId: id,
          title: /opened a payment channel with 0.10? USDC/,
          readAt: String,
          data: { channelId: id, amount: "0.1", payee: PAYEE.toLowerCase(), txHash: /^0x/ },
        },
      ]);
      const paid = await notified("payment.settled");
      t.same(
        paid.map(({ data }) => (data as Json)["charged"]),
        ["0.001", "0.0007"],
      );
      t.match(paid[1], { title: /paid 0.0007 USDC/, data: { channelId: id, amount: "0.001" } });
      t.same(await notified("payment.undelivered"), []);
    },
  );

  await t.test("a withdrawal names what is in channels", async (t) => {
    const prepare = async (amount: string): Promise<Json> =>
      (
        await callApi(app, owner, "POST", `/api/agents/${agent.id}/withdrawals/prepare`, { amount })
      ).json();
    t.match(await prepare("max"), {
      order: { amount: "4900000" },
      inChannels: { held: "0.0973", channels: 1 },
    });
    t.notOk("inChannels" in (await prepare("1")));
    t.match((await channels()).total, {
      channels: 1,
      open: 1,
      balance: "0.1",
      held: "0.0973",
      longestDelaySeconds: 900,
    });
  });

  await t.test("an agent with money in channels is not archived", async (t) => {
    const { order, typedData } = (
      await callApi(app, owner, "POST", `/api/agents/${agent.id}/withdrawals/prepare`, {
        amount: "max",
      })
    ).json<{ order: Json; typedData: never }>();
    const signature = await owner.account.signTypedData(typedData);
    const out = await callApi(app, owner, "POST", `/api/agents/${agent.id}/withdrawals`, {
      order,
      signature,
    });
    t.equal(out.statusCode, 200, out.body);
    t.equal(await made.balanceOf(agent.walletAddress), 0n);
    const archived = await callApi(app, owner, "POST", `/api/agents/${agent.id}/archive`);
    t.equal(archived.statusCode, 409, archived.body);
    t.match(archived.json(), {
      code: "agent_has_funds",
      inChannels: "0.1",
      channels: 1,
      detail: /0.1 USDC in payment channels/,
    });
    t.match(await get(`agents/${agent.id}`), { status: "active" });
  });

  await t.test("a paused agent's channels are closed", async (t) => {
    const paused = await callApi(app, owner, "PATCH", `/api/agents/${agent.id}`, {
      status: "paused",
    });
    t.equal(paused.statusCode, 200, paused.body);
    const closing = await callApi(app, owner, "POST", `/api/agents/${agent.id}/channels/close`);
    t.match(closing.json(), { closing: 1 });
    await until(async () => {
      await made.database.pool.query("UPDATE channels SET look_at = '-infinity'");
      await app.closeDueChannels();
      await chain.testClient.mine({ blocks: 1 });
      return (await channels()).items[0]?.["status"] === "closed";
    }, 30_000);
    t.match(await channels(), {
      items: [{ reason: "owner", charged: "0.0017", returned: "0.0983", returnsAt: null }],
      total: { channels: 0, open: 0, held: "0" },
    });
    t.equal(await made.balanceOf(agent.walletAddress), 98_300n);
    t.match(await notified("channel.closed"), [
      {
        subjectId: id,
        readAt: String,
        title: /0.0983 USDC came back/,
        data: { channelId: id, charged: "0.0017", returned: "0.0983", reason: "owner" },
      },
    ]);
    t.same(await notified("channel.refused"), []);
    t.match((await get<{ totals: Json }>("overview")).totals, { spent24h: "0.0027" });
  });

  await t.test("a seller that breaks the rules is reported at once", async (t) => {
    const resumed = await asOwner(app, owner, {
      method: "PATCH",
      url: `/api/agents/${agent.id}`,
      body: { status: "active" },
    });
    t.equal(resumed.statusCode, 200, resumed.body);
    await chain.mint(agent.walletAddress, 1_000_000n);
    const { seller, url: badUrl } = await sell();
    await made.fetch({ url: badUrl });
    seller.report = (report) => ({
      ...report,
      extra: { ...report.extra, chargedAmount: "5000" },
    });
    await made.fetch({ url: badUrl });
    t.match(await notified("channel.refused"), [
      {
        agentId: agent.id,
        readAt: null,
        data: {
          reason: "seller_broke_rules",
          payee: PAYEE.toLowerCase(),
          thirdParty: { url: badUrl },
        },
      },
    ]);
    // Its withdrawal begins without asking the seller, and the owner sees until when.
    await noneOpen();
    await until(async () => {
      await made.database.pool.query("UPDATE channels SET look_at = '-infinity'");
      await app.closeDueChannels();
      await chain.testClient.mine({ blocks: 1 });
      return typeof (await channels()).items[0]?.["returnsAt"] === "string";
    }, 30_000);
    await until(() => target.received.some(({ body }) => body.includes('"channel.refused"')));
    const types = new Set(
      target.received.map(({ body }) => (JSON.parse(body) as { type: string }).type),
    );
    for (const type of ["channel.opened", "channel.closed", "channel.refused"])
      t.ok(types.has(type), type);
  });
});
