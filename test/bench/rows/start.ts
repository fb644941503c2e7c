// How long a start takes when everything is there already, and what a server that rests holds of memory.
import { mkdtempSync, rmSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { freePort } from "../../../server/local/free-port.ts";
import type { BenchRow } from "../context.ts";
import { databaseProcesses, memoryMiBOf } from "../cpu.ts";
import { alone, figure, inRounds } from "../rounds.ts";
import { start } from "../world.ts";

const START = fileURLToPath(new URL("../../../server/start.mjs", import.meta.url));
const RESTED_MS = 20_000;

/** To the first answer. */
async function timed(env: Record<string, string>): Promise<number> {
  const closers: (() => unknown)[] = [];
  const port = await freePort();
  const startMs = performance.now();
  try {
    await start([process.execPath, START], {
      env: { HOME: tmpdir(), ...env, PORT: String(port), PUBLIC_URL: `http://localhost:${port}` },
      ready: `http://127.0.0.1:${port}/api/x402/supported`,
      closers,
    });
    return performance.now() - startMs;
  } finally {
    for (const close of closers) await close();
  }
}

const seconds = { unit: "s", better: "less", of: (ms: number) => ms / 1_000 } as const;

const cold: BenchRow = {
  name: "start to the first answer, data kept",
  async run(context) {
    const dataDir = mkdtempSync(join(tmpdir(), "purser-start-"));
    try {
      const local = { DATA_DIR: dataDir };
      context.say(`the first one of all: ${(await timed(local)).toFixed(0)} ms`);
      const embedded = await alone(() => timed(local));
      const { env } = await context.world({ oursAlone: true });
      const given = await alone(() => timed(env));
      return [
        figure(embedded, {
          ...seconds,
          what: "with Postgres and a chain of its own",
          target: { says: "<= 1.2 s", reached: ({ ours }) => ours <= 1.2 },
        }),
        figure(given, {
          ...seconds,
          what: "with given ones",
          target: { says: "<= 0.6 s", reached: ({ ours }) => ours <= 0.6 },
        }),
      ];
    } finally {
      rmSync(dataDir, { recursive: true, force: true });
    }
  },
};

const memory: BenchRow = {
  name: "memory at rest",
  async run(context) {
    const world = await context.world();
    await sleep(RESTED_MS);
    const measured = await inRounds(
      world,
      async (name) => world.servers[name]?.memoryMiB() ?? Number.NaN,
    );
    const databaseMiB = memoryMiBOf(await databaseProcesses(world.database));
    context.say(`Postgres beside it: ${databaseMiB.toFixed(0)} MiB`);
    return [
      figure(measured, {
        what: "server",
        unit: "MiB",
        better: "less",
        of: (mib) => mib,
        target: { says: "<= 130 MB", reached: ({ ours }) => ours * 1.048_576 <= 130 },
      }),
    ];
  },
};

export const rows: BenchRow[] = [cold, memory];
