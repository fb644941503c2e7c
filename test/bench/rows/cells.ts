// What a payment costs that was posted to another cell than its payer's, and how late its payee's cell learns of it.
import { randomBytes } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { generatePrivateKey, privateKeyToAddress } from "viem/accounts";
import { cellOfPayer, readCells } from "../../../server/core/cells.ts";
import { migrate } from "../../../server/infra/db/migrate.ts";
import { freePort } from "../../../server/local/free-port.ts";
import { testDatabase } from "../../helpers/postgres.ts";
import type { BenchContext, BenchRow } from "../context.ts";
import { cpuMsOf, databaseCpuMs, familyOf } from "../cpu.ts";
import { load, settleOutcome, verifyOutcome } from "../load.ts";
import { alone, figure } from "../rounds.ts";
import { makePayers, signedBodies } from "../signed.ts";
import { launch, START } from "../world.ts";

const PAYERS = 64;
const VERIFY = { warmUpMs: 8_000, durationMs: 4_000, inFlight: 64 };
const SETTLE = { warmUp: 1_000, count: 4_000, inFlight: 500 };
const NATIVE_WEI = 10n ** 24n;

const IDS = ["c1", "c2"] as const;
type CellId = (typeof IDS)[number];

/** CPU time of both services and of Postgres, for each payment. */
interface Cost {
  perSecond: number;
  cpuMs: number;
}
type Measured = Record<"verify" | "settle", Record<CellId, Cost>>;

/** Two cells with a database each, in one Postgres, on one chain. Everything is posted to the first. */
async function startCells(context: BenchContext) {
  const ports = { c1: await freePort(), c2: await freePort() };
  const list = IDS.map((id) => `${id}=http://127.0.0.1:${ports[id]}`).join(",");
  const cellEnv = { CELLS: list, CELL_SECRET: randomBytes(48).toString("base64") };
  const world = await context.world({
    oursAlone: true,
    blockTimeSeconds: 1,
    blockGasLimit: 200_000_000,
    port: ports.c1,
    env: { ...cellEnv, CELL: "c1", CONNECTIONS_PER_ADDRESS: "4000" },
  });
  const closers: (() => unknown)[] = [];
  const stop = async (): Promise<void> => {
    for (const close of closers.splice(0).reverse()) await close();
  };
  const teardown = { teardown: (close: () => unknown) => void closers.push(close) } as never;
  const database = await testDatabase(teardown);
  await migrate({ connectionString: database.url });
  const key = generatePrivateKey();
  await world.chain.testClient.setBalance({
    address: privateKeyToAddress(key),
    value: NATIVE_WEI,
  });
  const second = {
    command: [...START, "--built"],
    port: ports.c2,
    env: (port: number) => ({
      ...world.launches.ours.env(port),
      DATABASE_URL: database.url,
      RELAYER_PRIVATE_KEYS: key,
      CELL: "c2",
    }),
    readyPath: "/api/x402/supported",
  };
  const { pid } = await launch(second, closers);
  const pids = [...world.pids, pid].flatMap((each) => familyOf(each));
  const cells = readCells(list);
  const payersOf = async (id: CellId): Promise<ReturnType<typeof makePayers>> => {
    const payers: ReturnType<typeof makePayers> = [];
    while (payers.length < PAYERS)
      payers.push(
        ...makePayers(PAYERS).filter(({ address }) => cellOfPayer(cells, address, 1n)?.id === id),
      );
    await world.chain.mint(
      payers.map(({ address }) => address),
      10n ** 12n,
    );
    return payers;
  };
  return { world, pids, payersOf, second: database.pool, stop };
}

async function measure(context: BenchContext): Promise<Measured[]> {
  const { world, pids, payersOf, stop } = await startCells(context);
  try {
    const payers = { c1: await payersOf("c1"), c2: await payersOf("c2") };
    const bodiesOf = (id: CellId, count: number): string[] =>
      signedBodies({
        chain: world.chain,
        payers: payers[id],
        payTo: world.chain.admin.address,
        count,
      });
    const cpuMs = async (): Promise<number> =>
      cpuMsOf(pids) + (await databaseCpuMs(world.database));
    const counted = async (send: () => ReturnType<typeof load>, good: string): Promise<Cost> => {
      const before = await cpuMs();
      const { perSecond, count, outcomes } = await send();
      if (outcomes[good] !== count) throw new Error(JSON.stringify(outcomes));
      return { perSecond, cpuMs: ((await cpuMs()) - before) / count };
    };
    const verify = async (id: CellId): Promise<Cost> => {
      const { warmUpMs, durationMs, inFlight } = VERIFY;
      const bodies = bodiesOf(id, 12_000);
      const url = `${world.ours}/api/x402/verify`;
      const options = { url, bodies, inFlight, outcomeOf: verifyOutcome };
      await load({ ...options, durationMs: warmUpMs });
      return counted(() => load({ ...options, durationMs }), "valid");
    };
    const settle = async (id: CellId): Promise<Cost> => {
      const send = (count: number) =>
        load({
          url: `${world.ours}/api/x402/settle`,
          bodies: bodiesOf(id, count),
          inFlight: SETTLE.inFlight,
          outcomeOf: settleOutcome,
        });
      await send(SETTLE.warmUp);
      return counted(() => send(SETTLE.count), "success");
    };
    const { ours } = await alone(async (): Promise<Measured> => {
      const one: Measured = {
        verify: { c1: await verify("c1"), c2: await verify("c2") },
        settle: { c1: await settle("c1"), c2: await settle("c2") },
      };
      context.print(JSON.stringify(one));
      return one;
    });
    return ours;
  } finally {
    await stop();
    await world.stop();
  }
}

const NAMES = { c1: "of its own", c2: "of the other cell" } as const;

const NEWS = { durationMs: 40_000, bodies: 40_000, inFlight: 500, waiting: 10_000, lastMs: 60_000 };

interface News {
  perSecond: number;
  /** From a settlement in the first cell to its notification in the second one, in seconds. */
  delays: number[];
  /** What `purser_cells_news_seconds` says in the second cell meanwhile. */
  ages: number[];
  /** From the end of the load to the last notification. */
  restSeconds: number;
  /** Notifications a second when many wait, as after the second cell was down. */
  waitingPerSecond: number;
}

/** The first cell settles as fast as it can for a payee whose account is in the second one. */
async function measureNews(context: BenchContext): Promise<News[]> {
  const { world, payersOf, second, stop } = await startCells(context);
  try {
    const payers = await payersOf("c1");
    const { ours } = await alone(async (round): Promise<News> => {
      const [payee] = makePayers(1);
      if (!payee) throw new Error("unreachable");
      const payTo = payee.address;
      const owner = `own_bench${round}`;
      await second.query("INSERT INTO owners (id, address) VALUES ($1, $2)", [
        owner,
        payTo.toLowerCase(),
      ]);
      const ages: number[] = [];
      const seconds = async (text: string, pool: typeof second, value: string) => {
        const { rows } = await pool.query<{ id: string; at: number }>(text, [value]);
        return new Map(rows.map(({ id, at }) => [id, at]));
      };
      const sample = async (): Promise<void> => {
        const text =
          "SELECT cell AS id, extract(epoch FROM clock_timestamp() - read_at)::float8 AS at FROM cell_news WHERE cell = $1";
        ages.push((await seconds(text, second, "c1")).get("c1") ?? Number.NaN);
      };
      const timer = setInterval(() => void sample(), 250);
      const { perSecond, outcomes } = await load({
        url: `${world.ours}/api/x402/settle`,
        bodies: signedBodies({ chain: world.chain, payers, payTo, count: NEWS.bodies }),
        inFlight: NEWS.inFlight,
        durationMs: NEWS.durationMs,
        outcomeOf: settleOutcome,
      });
      const endedMs = performance.now();
      const settled = await seconds(
        "SELECT id, extract(epoch FROM settled_at)::float8 AS at FROM settlements WHERE to_address = $1 AND status = 'settled'",
        world.database,
        payTo.toLowerCase(),
      );
      const notified = (): Promise<Map<string, number>> =>
        seconds(
          "SELECT subject_id AS id, extract(epoch FROM created_at)::float8 AS at FROM notifications WHERE owner_id = $1",
          second,
          owner,
        );
      const untilNotified = async (count: number, fromMs: number) => {
        for (;;) {
          const known = await notified();
          if (known.size >= count || performance.now() - fromMs > NEWS.lastMs) return known;
          await sleep(100);
        }
      };
      const known = await untilNotified(settled.size, endedMs);
      clearInterval(timer);
      if (known.size < settled.size || outcomes["success"] !== settled.size)
        throw new Error(`${known.size} of ${settled.size}: ${JSON.stringify(outcomes)}`);
      const restSeconds = (performance.now() - endedMs) / 1000;
      const delays = [...settled].map(([id, at]) => (known.get(id) ?? Infinity) - at);
      delays.sort((left, right) => left - right);
      const waitingMs = performance.now();
      await world.database.query(
        `INSERT INTO cell_notices (address, chain_id, type, subject_id, data)
         SELECT n.address, n.chain_id, n.type, n.subject_id || number, n.data
           FROM (SELECT * FROM cell_notices WHERE address = $1 LIMIT 1) AS n, generate_series(1, $2) AS number`,
        [payTo.toLowerCase(), NEWS.waiting],
      );
      const all = settled.size + NEWS.waiting;
      if ((await untilNotified(all, waitingMs)).size < all) throw new Error("some still wait");
      const waitingPerSecond = (NEWS.waiting * 1000) / (performance.now() - waitingMs);
      const one = { perSecond, delays, ages, restSeconds, waitingPerSecond };
      context.print(JSON.stringify({ ...one, delays: delays.length }));
      return one;
    });
    return ours;
  } finally {
    await stop();
    await world.stop();
  }
}

const newsRow: BenchRow = {
  name: "cells: news while the other cell's payees are paid",
  async run(context) {
    const measured = { ours: await measureNews(context) };
    const at = (share: number, { delays }: News): number =>
      delays[Math.floor((delays.length - 1) * share)] ?? Number.NaN;
    const less = (what: string, of: (one: News) => number) =>
      figure<News>(measured, { what, unit: "s", better: "less", of });
    return [
      figure<News>(measured, {
        what: "settled",
        unit: "/s",
        better: "more",
        of: ({ perSecond }) => perSecond,
      }),
      less("settled to notified, median", (one) => at(0.5, one)),
      less("settled to notified, 99 of 100", (one) => at(0.99, one)),
      less("age of the news, highest", ({ ages }) => Math.max(...ages)),
      figure<News>(measured, {
        what: "notified when 10,000 wait",
        unit: "/s",
        better: "more",
        of: ({ waitingPerSecond }) => waitingPerSecond,
      }),
      less("last notification after the load", ({ restSeconds }) => restSeconds),
    ];
  },
};

const costRow: BenchRow = {
  name: "cells: verify and settle of own payers, and of the other cell's",
  async run(context) {
    const measured = { ours: await measure(context) };
    return (["verify", "settle"] as const).flatMap((what) => [
      ...IDS.map((id) =>
        figure<Measured>(measured, {
          what: `${what}, processor each, ${NAMES[id]}`,
          unit: "ms",
          better: "less",
          of: (one) => one[what][id].cpuMs,
        }),
      ),
      figure<Measured>(measured, {
        what: `${what}, the other cell's over its own`,
        unit: "x",
        better: "less",
        of: (one) => one[what].c2.cpuMs / one[what].c1.cpuMs,
      }),
    ]);
  },
};

export const rows = [costRow, newsRow];
