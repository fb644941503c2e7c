import fp from "fastify-plugin";
import { pendingMigrations } from "./db/migrate.ts";
import { memoFor } from "../core/shared-answers.ts";
import { readDurability, describeDurability, readWritability } from "./db/settings.ts";
import type { ReadyPart } from "../schemas/meta.ts";

/** Readiness (health) of the service, part by part. A probe checks one part of the service and returns a detail text; throws if the part does not work. */
type ReadinessProbe = () => Promise<string>;

declare module "fastify" {
  interface FastifyInstance {
    /** Each plugin adds the probe of the parts it registers. */
    readiness: Readiness;
  }
}

const PROBE_TIMEOUT_MS = 3_000;
/** However often readiness is read, each process writes to the database at most this often. */
const WRITE_EVERY_MS = 5_000;

class Readiness {
  readonly #probes = new Map<string, ReadinessProbe>();
  #isLeaving = false;

  /** Reports not ready from now on, so that load balancers send no new clients; everything else continues. */
  leave(): void {
    this.#isLeaving = true;
  }

  add(part: string, probe: ReadinessProbe): void {
    this.#probes.set(part, probe);
  }

  async check(): Promise<Record<string, ReadyPart>> {
    // At once: a load balancer has a few seconds to notice, and a probe may take as long.
    if (this.#isLeaving) return { process: { ok: false, detail: "it is being stopped" } };
    const entries = [...this.#probes].map(
      async ([part, probe]) => [part, await runProbe(probe)] as const,
    );
    return Object.fromEntries(await Promise.all(entries));
  }
}

async function runProbe(probe: ReadinessProbe): Promise<ReadyPart> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<ReadyPart>((resolve) => {
    timer = setTimeout(
      () => resolve({ ok: false, detail: "did not respond in time" }),
      PROBE_TIMEOUT_MS,
    );
  });
  const answer = probe().then(
    (detail) => ({ ok: true, detail }),
    // The reason may contain host names: clients get a generic text, the log gets everything.
    (error: unknown) => ({
      ok: false,
      detail: error instanceof NotReady ? error.message : "not reachable",
    }),
  );
  return Promise.race([answer, late]).finally(() => clearTimeout(timer));
}

/** Thrown by a probe whose message may be public. */
export class NotReady extends Error {
  override name = "NotReady";
}

export default fp(
  async (app) => {
    const readiness = new Readiness();
    app.decorate("readiness", readiness);
    const writability = memoFor(WRITE_EVERY_MS, () => readWritability(app.pool));
    readiness.add("database", async () => {
      const durability = await readDurability(app.pool);
      const found = await writability();
      if (found !== "writable") throw new NotReady(`cannot write: ${found}`);
      return describeDurability(durability);
    });
    readiness.add("migrations", async () => {
      // SQL: the table of migrations is not a Prisma model.
      const pending = await pendingMigrations((sql) => app.pool.query(sql));
      if (pending.length > 0) throw new NotReady(`${pending.length} pending`);
      return "all applied";
    });
    for (const chain of app.chains.all) {
      readiness.add(`chain:${chain.network.id}`, async () => {
        const height = await chain.client.getBlockNumber();
        // A fresh local node answers calls on block 0 with a block time of 1.
        if (height === 0n) throw new NotReady("it has no block yet");
        if (!app.chains.verified.has(chain.network.chainId))
          throw new NotReady("its USDC has not been verified yet");
        return `at block ${height}`;
      });
    }
  },
  { name: "readiness" },
);
