// What a payment costs that was posted to another cell than its payer's.
import { randomBytes } from "node:crypto";
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
  return { world, pids, cells: readCells(list), stop };
}

async function measure(context: BenchContext): Promise<Measured[]> {
  const { world, pids, cells, stop } = await startCells(context);
  try {
    const payersOf = async (id: CellId) => {
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

export const row: BenchRow = {
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
