// Goal: sellers in several processes share a channel, and one that is killed at any point loses no charge, makes none
// twice, and holds no channel for long.
import { spawn } from "node:child_process";
import { once } from "node:events";
import t, { type Test } from "tap";
import type { Hex } from "viem";
import { generatePrivateKey } from "viem/accounts";
import { PostgresChannelStore } from "../../packages/paywall/src/paywall.ts";
import { freePort } from "../../server/local/free-port.ts";
import { testApp } from "../helpers/app.ts";
import { childScript } from "../helpers/child-script.ts";
import { isFullTier } from "../helpers/tier.ts";
import { until } from "../helpers/until.ts";
import { channelPayer, DEPOSIT, get, onChain, receiptOf, requiredOf } from "./channel-shop.ts";
import { newAccount } from "./shop.ts";

const { chain, baseUrl, database } = await testApp(t, { listen: true });
const store = new PostgresChannelStore((text, values) => database.pool.query(text, values));

const payTo = newAccount().address;
const AUTHORIZER_KEY = generatePrivateKey();

/** The next process of the shop; where an earlier one was killed, its successor at the same address. */
async function start(port: number) {
  const child = spawn(
    process.execPath,
    ["--enable-source-maps", childScript("test/paywall/doomed-channel-shop.child.ts")],
    {
      stdio: ["ignore", "pipe", "inherit"],
      env: {
        ...process.env,
        FACILITATOR: `${baseUrl}/api/x402`,
        DATABASE_URL: database.url,
        NETWORK: `eip155:${chain.chainId}`,
        PAY_TO: payTo,
        AUTHORIZER_KEY,
        PORT: String(port),
      },
    },
  );
  t.teardown(() => child.kill("SIGKILL"));
  if (!child.stdout) throw new Error("no output");
  await once(child.stdout, "data");
  return child;
}
const port = await freePort();
const origin = `http://127.0.0.1:${port}`;
const url = `${origin}/words`;
let shop = await start(port);

const post = async (target: string) => {
  const answer = await get(target, { method: "POST" });
  if (answer.status !== 200) throw new Error(await answer.text());
};
/** The process kills itself at this point of the request. Then the next one begins. */
async function killedAt(point: string, t: Test, request: () => Promise<unknown>) {
  await post(`${origin}/die?at=${encodeURIComponent(point)}`);
  const { pid } = shop;
  const died = once(shop, "exit");
  await t.rejects(request(), "the connection is lost");
  t.equal((await died)[1], "SIGKILL");
  shop = await start(port);
  return pid;
}

const idOf = (proof: { payload: { payload: Record<string, unknown> } }) =>
  (proof.payload.payload["voucher"] as { channelId: Hex }).channelId.toLowerCase() as Hex;
const chargedIn = async (id: Hex) => (await store.find(id))?.channel.charged;
/** Ends the reservation of a dead process, and returns when it would have ended. */
const twoMinutesLater = async (id: Hex): Promise<number> => {
  const { channel, version } = (await store.find(id)) ?? {};
  const { request } = channel ?? {};
  if (!channel || !request) throw new Error("the channel is not held");
  await store.save({ ...channel, request: { ...request, untilMs: 0 } }, version ?? 0);
  return request.untilMs;
};

t.test("killed after the charge was stored: the same voucher gets the response", async (t) => {
  const payer = await channelPayer(chain);
  t.equal((await payer.pay(url)).status, 200);
  const proof = await payer.proof(url);
  const pid = await killedAt("ended", t, () => get(url, { headers: proof.headers }));
  t.equal(await chargedIn(idOf(proof)), "2000");

  const again = await get(url, { headers: proof.headers });
  t.equal(again.status, 200);
  t.match(await again.json(), { words: 3, by: pid }, "the work is not done again");
  t.match(receiptOf(again), {
    success: true,
    extra: { chargedAmount: "1000", channelState: { chargedCumulativeAmount: "2000" } },
  });
  t.equal(await chargedIn(idOf(proof)), "2000", "charged once");
  await payer.learn(proof, again);
  t.equal((await payer.pay(url)).status, 200);
  await post(`${origin}/claim`);
  t.equal(await chain.usdcOf(payTo), 3_000n, "nothing is lost, nothing is paid twice");
});

const inFullTier = { skip: !isFullTier };
t.test(
  "killed while it works: the channel is free after the time of the route",
  inFullTier,
  async (t) => {
    const payer = await channelPayer(chain);
    await payer.pay(url);
    const proof = await payer.proof(url);
    await killedAt("working", t, () => get(url, { headers: proof.headers }));

    const busy = await get(url, { headers: proof.headers });
    t.equal(requiredOf(busy).error, "invalid_batch_settlement_evm_channel_busy");
    const heldMs = (await twoMinutesLater(idOf(proof))) - Date.now();
    t.ok(heldMs > 0 && heldMs <= 120_000);
    t.equal((await get(url, { headers: proof.headers })).status, 200);
    t.equal(await chargedIn(idOf(proof)), "2000");
  },
);

t.test("killed after the deposit: it is not made twice", inFullTier, async (t) => {
  const payer = await channelPayer(chain);
  const proof = await payer.proof(url);
  await killedAt("deposit sent", t, () => get(url, { headers: proof.headers }));
  t.same(await onChain(chain, idOf(proof)), { balance: DEPOSIT, claimed: 0n });
  await twoMinutesLater(idOf(proof));
  const answer = await get(url, { headers: proof.headers });
  t.equal(answer.status, 200);
  t.match(receiptOf(answer), { extra: { chargedAmount: "1000" } });
  t.same(await onChain(chain, idOf(proof)), { balance: DEPOSIT, claimed: 0n });
  await post(`${origin}/claim`);
});

t.test("killed after a claim was sent: the next process goes on, and pays out", async (t) => {
  const before = await chain.usdcOf(payTo);
  const payer = await channelPayer(chain);
  for (let nth = 0; nth < 3; nth += 1) await payer.pay(url);
  const proof = await payer.proof(url);
  await killedAt("claim sent", t, () => post(`${origin}/claim`));
  t.equal((await onChain(chain, idOf(proof))).claimed, 3_000n);
  t.equal(await chain.usdcOf(payTo), before);
  t.match((await store.find(idOf(proof)))?.channel.state, { totalClaimed: "0" });
  // The turn of the dead process ends two minutes later.
  await database.pool.query("UPDATE paywall_channels_turn SET until = now()");
  t.equal((await payer.pay(url)).status, 200);
  await post(`${origin}/claim`);
  t.equal((await chain.usdcOf(payTo)) - before, 4_000n);
  t.match((await store.find(idOf(proof)))?.channel, {
    charged: "4000",
    state: { totalClaimed: "4000" },
  });
});

t.test("two processes share a channel, also at the same time", async (t) => {
  const before = await chain.usdcOf(payTo);
  const otherPort = await freePort();
  await start(otherPort);
  const other = `http://127.0.0.1:${otherPort}`;
  const payer = await channelPayer(chain);
  for (let nth = 0; nth < 6; nth += 1)
    t.equal((await payer.pay(nth % 2 === 0 ? url : `${other}/words`)).status, 200);
  const proof = await payer.proof(url);
  t.equal(await chargedIn(idOf(proof)), "6000");
  // The same voucher at both: one of them does the work for it.
  const answers = await Promise.all(
    Array.from({ length: 10 }, (_, nth) =>
      get(nth % 2 === 0 ? url : `${other}/words`, { headers: proof.headers }),
    ),
  );
  const served = answers.filter(({ status }) => status === 200);
  const works = await Promise.all(served.map((answer) => answer.text()));
  t.ok(served.length > 0);
  t.equal(new Set(works).size, 1, "one work, whoever sends its response");
  t.equal(await chargedIn(idOf(proof)), "7000");
  await Promise.all([post(`${origin}/claim`), post(`${other}/claim`)]);
  await until(async () => {
    await post(`${origin}/claim`);
    return (await chain.usdcOf(payTo)) - before === 7_000n;
  });
  t.same(await onChain(chain, idOf(proof)), { balance: DEPOSIT, claimed: 7_000n });
});
