// Goal: the money in a channel comes back at any time: by the seller's refund, or without it after the withdraw delay.
import t from "tap";
import { privateKeyToAddress } from "viem/accounts";
import { CHANNEL_KEY } from "../helpers/app.ts";
import { CHANNELS, CHANNELS_ABI } from "../helpers/batch-settlement.ts";
import { until } from "../helpers/until.ts";
import { channelSeller, loseResponses } from "./channel-sellers.ts";
import { market, PAYEE } from "./market.ts";
import { ourFacilitator } from "./stock-sellers.ts";

t.test("channels are closed", async (t) => {
  const made = await market(t, {
    listen: true,
    timings: { reconcileChannelsMs: 100 },
    env: { SETTLE_WAIT_MS: "10000", CONFIRMATIONS_31337: "1" },
    agent: { dailyLimit: "2", channelHeld: "1", channelDelay: 86_400 },
  });
  const { app, chain, agent, owner } = made;
  const facilitator = ourFacilitator(made.baseUrl);
  const signer = privateKeyToAddress(CHANNEL_KEY);
  await chain.testClient.setBalance({ address: signer, value: 10n ** 18n });

  interface Row {
    id: string;
    status: string;
    reason: string | null;
    balance: string;
    charged: string;
    held: string;
    returned: string;
  }
  const channels = async (): Promise<Row[]> => {
    const answer = await app.inject({
      url: `/api/agents/${agent.id}/channels`,
      headers: owner.headers,
    });
    return answer.json<{ items: Row[] }>().items;
  };
  const close = async (id: string): Promise<void> => {
    const answer = await app.inject({
      method: "POST",
      url: `/api/agents/${agent.id}/channels/${id}/close`,
      headers: owner.headers,
    });
    t.match(answer.json(), { closing: 1 }, answer.body);
  };
  /** As the background work does, without waiting for its time. */
  const closed = async (id: string): Promise<Row> => {
    let row: Row | undefined;
    await until(async () => {
      await made.database.pool.query("UPDATE channels SET look_at = '-infinity'");
      await app.closeDueChannels();
      await chain.testClient.mine({ blocks: 1 });
      row = (await channels()).find((one) => one.id === id);
      return row?.status === "closed";
    }, 30_000);
    return row as Row;
  };
  const sell = async () => {
    const seller = await channelSeller(t, { chain, payTo: PAYEE, facilitator });
    made.config.fetchPrivateOrigins.push(seller.origin);
    const url = `${seller.origin}/word`;
    for (const _ of [1, 2, 3]) await made.fetch({ url: `${url}?charge=700` });
    const [row] = await channels();
    return { seller, row: row as Row };
  };

  await t.test("by the seller's refund, which pays the seller what it charged", async (t) => {
    const before = {
      wallet: await made.balanceOf(agent.walletAddress),
      payee: await made.balanceOf(PAYEE),
    };
    const { seller, row } = await sell();
    t.match(row, { status: "open", balance: "0.1", charged: "0.0021", held: "0.0976" });
    await close(row.id);
    t.match(await closed(row.id), {
      status: "closed",
      reason: "owner",
      balance: "0",
      charged: "0.0021",
      held: "0",
      returned: "0.0979",
    });
    t.equal(before.wallet - (await made.balanceOf(agent.walletAddress)), 2_100n);
    await seller.collect();
    t.equal((await made.balanceOf(PAYEE)) - before.payee, 2_100n);
  });

  await t.test("when the operator's key is another one", async (t) => {
    const { row } = await sell();
    const { pool } = made.database;
    const keyIs = (address: string) =>
      pool.query("UPDATE channels SET signer = $1 WHERE id = $2", [address.toLowerCase(), row.id]);
    await keyIs(agent.walletAddress);
    await app.closeDueChannels();
    const [left] = await channels();
    t.match(left, { id: row.id, status: "closing", reason: "key_changed" });
    await keyIs(signer);
    t.match(await closed(row.id), { reason: "key_changed", charged: "0.0021", returned: "0.0979" });
  });

  await t.test("by itself, when nobody used it for 30 days", async (t) => {
    const before = await made.balanceOf(agent.walletAddress);
    const { row } = await sell();
    const unusedFor = async (days: number, busySeconds = 0) => {
      await made.database.pool.query(
        `UPDATE channels SET used_at = clock_timestamp() - $2 * interval '1 day',
                busy_until = clock_timestamp() + $3 * interval '1 second' WHERE id = $1`,
        [row.id, days, busySeconds],
      );
      await app.closeDueChannels();
      return (await channels()).find(({ id }) => id === row.id)?.status;
    };
    t.equal(await unusedFor(29.9), "open");
    t.equal(await unusedFor(31, 60), "open", "a request uses it now");
    t.equal(await unusedFor(30.1), "closing");
    t.match(await closed(row.id), { status: "closed", reason: "unused", returned: "0.0979" });
    t.equal(before - (await made.balanceOf(agent.walletAddress)), 2_100n, "the rest came back");
    const answer = await app.inject({
      url: "/api/notifications?type=channel.closed&limit=1",
      headers: owner.headers,
    });
    t.match(answer.json(), {
      items: [{ subjectId: row.id, title: /was not used for 30 days/, data: { reason: "unused" } }],
    });
  });

  await t.test("without the seller, after the delay", async (t) => {
    const before = await made.balanceOf(agent.walletAddress);
    const { seller, row } = await sell();
    // Not known whether it was charged: the end of the channel tells.
    seller.handler = (_request, response) => void response.status(500).end();
    const failed = await made.fetch({ url: `${seller.origin}/word` });
    t.match(failed.body, { code: "payment_status_unknown" }, failed.text);
    // Another seller charged one of two requests whose responses were lost.
    const other = await sell();
    const keys = ["lost 1", "lost 2"];
    const ask = (key: string) => {
      const body = { url: `${other.seller.origin}/word`, method: "POST", body: {} };
      return made.fetch(body, { "idempotency-key": key });
    };
    other.seller.before = loseResponses;
    for (const key of keys) t.match((await ask(key)).body, { code: "payment_status_unknown" });
    for (const one of [seller, other.seller])
      one.before = (_request, response) => void response.status(503).end();
    for (const { id } of [row, other.row]) await close(id);
    const hasBegun = async ({ id }: Row): Promise<boolean> => {
      const [, begunAt] = await chain.publicClient.readContract({
        address: CHANNELS,
        abi: CHANNELS_ABI,
        functionName: "pendingWithdrawals",
        args: [id as `0x${string}`],
      });
      return begunAt !== 0;
    };
    await until(async () => {
      await made.database.pool.query("UPDATE channels SET look_at = '-infinity'");
      await app.closeDueChannels();
      return (await hasBegun(row)) && (await hasBegun(other.row));
    }, 60_000);
    t.equal(before - (await made.balanceOf(agent.walletAddress)), 200_000n, "not yet");
    const waiting = await ask("lost 1");
    t.match(waiting, { status: 409, body: { detail: /is being closed/ } }, waiting.text);
    t.ok(Number(waiting.headers["retry-after"]) >= 60, "when to come back");
    await other.seller.collect();
    await chain.testClient.increaseTime({ seconds: 901 });
    await chain.testClient.mine({ blocks: 1 });
    t.match(await closed(row.id), { status: "closed", returned: "0.1", charged: "0.0021" });
    t.match(await closed(other.row.id), {
      status: "closed",
      returned: "0.0969",
      charged: "0.0031",
    });
    t.equal(before - (await made.balanceOf(agent.walletAddress)), 3_100n, "what was claimed");
    for (const key of keys)
      t.match(await ask(key), { status: 502, body: { code: "charge_not_known" } });
    const ended = await app.inject({
      url: `/api/agents/me/payments/${String(failed.body["paymentId"])}`,
      headers: agent.headers,
    });
    t.match(ended.json(), { status: "settled", channel: { charged: "0" } }, ended.body);
  });

  await t.test("and the ledger agrees with the chain", async (t) => {
    const head = await chain.publicClient.getBlockNumber();
    await made.database.pool.query("UPDATE channels SET prove_at = '-infinity'");
    await until(async () => {
      const { rows: due } = await made.database.pool.query(
        "SELECT 1 FROM channels WHERE prove_at < clock_timestamp()",
      );
      if (due.length > 0) await chain.testClient.mine({ blocks: 1 });
      return due.length === 0;
    }, 30_000);
    await until(async () => {
      await chain.testClient.mine({ blocks: 1 });
      const answer = await app.inject({ url: "/api/overview", headers: owner.headers });
      const [state] = answer.json<{ ledger: { equalsChain: boolean; asOfBlock: string }[] }>()
        .ledger;
      return state?.equalsChain === true && BigInt(state.asOfBlock) >= head;
    }, 30_000);
    const { rows } = await made.database.pool.query("SELECT * FROM ledger_differences");
    t.same(rows, []);
  });
});
