// Goal: what a paywall has charged to channels is kept by each store in the same way: a write never overwrites another
// one, and of several processes one claims at a time.
import { Pool } from "pg";
import t from "tap";
import type { Hex } from "viem";
import {
  OneProcessChannelStore,
  PostgresChannelStore,
  type Channel,
  type ChannelStore,
} from "../../packages/paywall/src/paywall.ts";
import { testDatabase } from "../helpers/postgres.ts";

const { url, pool } = await testDatabase(t);
// Another process has connections of its own.
const other = new Pool({ connectionString: url });
t.teardown(() => other.end());

let made = 0;
function channel(change: Partial<Channel> = {}): Channel {
  made += 1;
  const id: Hex = `0x${made.toString(16).padStart(64, "0")}`;
  const address: Hex = `0x${"11".repeat(20)}`;
  return {
    id,
    network: "eip155:5042002",
    config: {
      payer: address,
      payerAuthorizer: address,
      receiver: address,
      receiverAuthorizer: address,
      token: address,
      withdrawDelay: 900,
      salt: `0x${"00".repeat(32)}`,
    },
    charged: "0",
    state: { balance: "10000", totalClaimed: "0", withdrawRequestedAt: 0, refundNonce: "0" },
    stateReadMs: 5,
    usedMs: Date.now(),
    ...change,
  };
}
const signed = (ceiling: bigint): Pick<Channel, "voucher"> => ({
  voucher: { ceiling: ceiling.toString(), signature: "0x12" },
});

/** `one` and `two` are the same store, as two processes have it. */
const STORES: Record<string, () => Promise<{ one: ChannelStore; two: ChannelStore }>> = {
  "in memory": async () => {
    const one = new OneProcessChannelStore();
    return { one, two: one };
  },
  "in Postgres": async () => {
    const [one, two] = [pool, other].map(
      (connections) => new PostgresChannelStore((text, values) => connections.query(text, values)),
    );
    if (!one || !two) throw new Error("no store");
    await Promise.all([one.createTables(), two.createTables(), one.createTables()]);
    return { one, two };
  },
};

for (const [name, open] of Object.entries(STORES))
  t.test(name, async (t) => {
    const { one, two } = await open();

    await t.test("a channel is found as it was saved", async (t) => {
      const saved = channel({
        charged: "700",
        ...signed(1_000n),
        unclaimedSinceMs: 6,
        request: { id: "r", untilMs: 7 },
      });
      t.equal(await two.find(saved.id), undefined);
      t.ok(await one.save(saved, 0));
      t.same(await two.find(saved.id), { channel: saved, version: 1 });
    });

    await t.test("a write on an older version changes nothing", async (t) => {
      const saved = channel();
      t.ok(await one.save(saved, 0));
      t.notOk(await two.save({ ...saved, charged: "0", usedMs: 1 }, 0), "it exists already");
      t.ok(await two.save({ ...saved, usedMs: 2 }, 1));
      t.notOk(await one.save({ ...saved, usedMs: 3 }, 1));
      t.notOk(await one.save({ ...saved, usedMs: 3 }, 3), "nor on one that is to come");
      t.match(await one.find(saved.id), { channel: { usedMs: 2 }, version: 2 });
      const writes = await Promise.all(
        Array.from({ length: 20 }, (_, nth) =>
          (nth % 2 === 0 ? one : two).save({ ...saved, usedMs: nth }, 2),
        ),
      );
      t.equal(writes.filter(Boolean).length, 1, "of twenty at once");
    });

    await t.test("what is found is a copy", async (t) => {
      const saved = channel();
      await one.save(saved, 0);
      const found = await one.find(saved.id);
      if (found) found.channel.charged = "9";
      saved.charged = "8";
      t.match(await one.find(saved.id), { channel: { charged: "0" } });
    });

    await t.test("no more is charged than was signed", async (t) => {
      const saved = channel({ charged: "1000", ...signed(1_000n) });
      t.ok(await one.save(saved, 0));
      await t.rejects(one.save({ ...saved, charged: "1001" }, 1), /more than|check constraint/);
      t.match(await one.find(saved.id), { channel: { charged: "1000" }, version: 1 });
    });

    await t.test("what is not claimed is listed, the largest first", async (t) => {
      const amounts = ["5", "340282366920938463463374607431768211455", "70"];
      const added: Hex[] = [];
      for (const charged of amounts) {
        const next = channel({ charged, ...signed(BigInt(charged)) });
        await one.save(next, 0);
        added.push(next.id);
      }
      const claimed = channel({
        charged: "9",
        ...signed(9n),
        state: { balance: "9", totalClaimed: "9", withdrawRequestedAt: 0, refundNonce: "0" },
      });
      await one.save(claimed, 0);
      const listed = (await two.unclaimed()).map((stored) => stored.channel.id);
      t.same(
        listed.filter((id) => added.includes(id)),
        [added[1], added[2], added[0]],
      );
      t.notOk(listed.includes(claimed.id));
    });

    await t.test("unused channels are forgotten, if all is claimed", async (t) => {
      const old = channel({ usedMs: 1_000 });
      const unclaimed = channel({ usedMs: 1_000, charged: "5", ...signed(5n) });
      const recent = channel();
      for (const each of [old, unclaimed, recent]) await one.save(each, 0);
      await two.forget(new Date(2_000));
      t.equal(await one.find(old.id), undefined);
      t.ok(await one.find(unclaimed.id));
      t.ok(await one.find(recent.id));
    });

    await t.test("one has the turn at a time", async (t) => {
      t.ok(await one.takeTurn("a", 60_000));
      t.notOk(await two.takeTurn("b", 60_000));
      t.ok(await one.takeTurn("a", 60_000), "and may have it longer");
      t.ok(await one.takeTurn("a", 0), "and gives it back");
      const taken = await Promise.all([one.takeTurn("b", 60_000), two.takeTurn("c", 60_000)]);
      t.equal(taken.filter(Boolean).length, 1, "of two at once");
    });
  });

t.test("a table may have another name, and only a plain one", async (t) => {
  const query = (text: string, values?: unknown[]) => pool.query(text, values);
  const store = new PostgresChannelStore(query, { table: "shop_channels" });
  await store.createTables();
  t.ok(await store.save(channel(), 0));
  t.throws(() => new PostgresChannelStore(query, { table: "a; drop table b" }), /plain/);
});
