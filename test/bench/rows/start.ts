// The time of a start with existing data, and the memory of an idle server.
import { mkdtempSync, rmSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { BenchRow, Launch } from "../context.ts";
import { databaseProcesses, memoryMiBOf } from "../cpu.ts";
import { alone, figure, inRounds } from "../rounds.ts";
import { launch, START } from "../world.ts";

const RESTED_MS = 20_000;

/** The time to the first response. */
async function timed(its: Launch): Promise<number> {
  const closers: (() => unknown)[] = [];
  const startMs = performance.now();
  try {
    await launch(its, closers);
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
      const local: Launch = {
        command: START,
        readyPath: "/api/x402/supported",
        env: (port) => ({
          HOME: tmpdir(),
          DATA_DIR: dataDir,
          PORT: String(port),
          PUBLIC_URL: `http://localhost:${port}`,
        }),
      };
      context.print(`the first one of all: ${(await timed(local)).toFixed(0)} ms`);
      const embedded = await alone(() => timed(local));
      const { launches } = await context.world();
      const given = await inRounds({ servers: launches }, (name) =>
        timed(launches[name] ?? launches.ours),
      );
      return [
        figure(embedded, {
          ...seconds,
          what: "with Postgres and a chain of its own",
          target: { label: "<= 1.2 s", reached: ({ ours }) => ours <= 1.2 },
        }),
        figure(given, {
          ...seconds,
          what: "with given ones",
          target: { label: "<= 1.2 s", reached: ({ ours }) => ours <= 1.2 },
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
    context.print(`Postgres beside it: ${databaseMiB.toFixed(0)} MiB`);
    return [
      figure(measured, {
        what: "server",
        unit: "MiB",
        better: "less",
        of: (mib) => mib,
        target: { label: "<= 160 MB", reached: ({ ours }) => ours * 1.048_576 <= 160 },
      }),
    ];
  },
};

export const rows: BenchRow[] = [cold, memory];
