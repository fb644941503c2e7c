// Compiles the simulation, starts its Postgres, and gives worlds to some Node processes.
import { fork, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { cpSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { Client } from "pg";
import { FUNCTIONS_DIRECTORY } from "../../server/infra/db/functions.ts";
import { ROOT } from "../../server/infra/root.ts";
import { startPostgres } from "../../server/local/postgres.ts";
import { compileSimulation } from "./compile.mjs";
import { plantedFunction, plantedIn } from "./planted/index.ts";
import { prepareDatabase } from "./setup.ts";
import type { Order, Report } from "./worker.ts";

export interface Simulation {
  play(order: Order): Promise<Report>;
  /** In any order; stops early when `next` returns false. */
  playAll(orders: readonly Order[], next: (report: Report) => boolean): Promise<void>;
}

export const PASSWORD = "simulation-only-on-this-machine";
/** A world that takes longer does not end by itself. */
const WORLD_LIMIT_MS = 400_000;
export const SETTINGS = [
  "jit=off",
  "autovacuum=off",
  "wal_level=minimal",
  "max_wal_senders=0",
  "track_activities=off",
  "track_counts=off",
];

export async function withSimulation<T>(
  { plant, workers }: { plant?: string; workers: number },
  use: (simulation: Simulation) => Promise<T>,
): Promise<T> {
  const root = fileURLToPath(ROOT);
  const dir = mkdtempSync(join(tmpdir(), "purser-simulation-"));
  // Inside the repository, so that the compiled program finds the packages.
  mkdirSync(join(root, ".tmp"), { recursive: true });
  const compiled = mkdtempSync(join(root, ".tmp", "simulation-"));
  const socketDir = join(dir, "postgres");
  const started: ChildProcess[] = [];
  const postgres = await startPostgres({
    dir,
    password: PASSWORD,
    durable: false,
    maxConnections: 60 * workers,
    removeOnExit: dir,
    settings: [`unix_socket_directories=${socketDir}`, ...SETTINGS],
  });
  /** Over a Unix socket, which costs half of what TCP costs. */
  const urlOf = (database: string): string =>
    `postgresql://purser:${PASSWORD}@localhost:${postgres.port}/${database}?host=${encodeURIComponent(socketDir)}`;
  try {
    const program = await compileSimulation(
      compiled,
      plant === undefined ? [] : [plantedIn(plant)],
    );
    const withAdmin = async (...statements: string[]): Promise<void> => {
      const admin = new Client({ connectionString: urlOf("postgres") });
      await admin.connect();
      for (const statement of statements) await admin.query(statement);
      await admin.end();
    };
    await withAdmin("CREATE DATABASE worlds_0");
    await prepareDatabase(urlOf("worlds_0"), await functionsWith(plant, dir));
    const [code] = (await once(fork(program, [urlOf("worlds_0"), "found"]), "exit")) as [number];
    if (code !== 0) throw new Error("the first owners and agents could not be made");
    for (let number = 1; number < workers; number += 1)
      await withAdmin(
        `CREATE DATABASE worlds_${number} TEMPLATE worlds_0`,
        `ALTER DATABASE worlds_${number} SET search_path = public, sim, pg_catalog`,
      );
    const hands = Array.from(
      { length: workers },
      (_, number) => new Hand(program, urlOf(`worlds_${number}`), started),
    );
    const [first] = hands;
    return await use({
      play: (order) => (first as Hand).play(order),
      async playAll(orders, next) {
        const waiting = [...orders];
        let isWanted = true;
        await Promise.all(
          hands.map(async (hand) => {
            for (let order = waiting.shift(); order && isWanted; order = waiting.shift())
              if (!next(await hand.play(order))) isWanted = false;
          }),
        );
      },
    });
  } finally {
    const alive = started.filter(
      ({ exitCode, signalCode }) => exitCode === null && signalCode === null,
    );
    for (const child of alive) child.disconnect();
    for (const child of alive) if (child.exitCode === null) await once(child, "exit");
    await postgres.stop();
    rmSync(compiled, { recursive: true, force: true });
    rmSync(dir, { recursive: true, force: true });
  }
}

/** The SQL functions to install: those of the project, or a copy with the defect. */
export async function functionsWith(plant: string | undefined, dir: string): Promise<URL> {
  const planted = plant === undefined ? undefined : await plantedFunction(plant);
  if (!planted) return FUNCTIONS_DIRECTORY;
  const copy = join(dir, "functions");
  cpSync(FUNCTIONS_DIRECTORY, copy, { recursive: true });
  writeFileSync(join(copy, `${planted.name}.sql`), planted.sql);
  return pathToFileURL(`${copy}/`);
}

/** One Node process with its database. */
export class Hand {
  readonly #program: string;
  readonly #url: string;
  readonly #started: ChildProcess[];
  #child: ChildProcess | undefined;

  constructor(program: string, url: string, started: ChildProcess[]) {
    this.#program = program;
    this.#url = url;
    this.#started = started;
  }

  async play(order: Order): Promise<Report> {
    const child = (this.#child ??= await this.#start());
    const ended = new AbortController();
    const late = setTimeout(() => child.kill("SIGKILL"), WORLD_LIMIT_MS);
    try {
      const { signal } = ended;
      const answer = once(child, "message", { signal }) as Promise<[Report]>;
      const gone = once(child, "exit", { signal });
      for (const each of [answer, gone]) each.catch(() => undefined);
      child.send(order);
      const first = await Promise.race([answer, gone]);
      if (child.exitCode === null && child.signalCode === null) return first[0] as Report;
      this.#child = undefined;
      return nothing(order.seed, "the world did not end, or its process did");
    } finally {
      clearTimeout(late);
      ended.abort();
    }
  }

  async #start(): Promise<ChildProcess> {
    const child = fork(this.#program, [this.#url], {
      execArgv: [
        
        ...(process.env["SIM_PROF"] ? ["--cpu-prof", "--cpu-prof-dir=/tmp/simprof"] : []),
      ],
    });
    this.#started.push(child);
    await once(child, "message");
    return child;
  }
}

const nothing = (seed: number, why: string): Report => ({
  seed,
  broken: [why],
  trace: [],
  print: "",
  events: 0,
  statements: 0,
  virtualMs: 0,
  tookMs: 0,
  cpuMs: 0,
  plan: { seed, services: 0, agents: 0, actors: [], faults: [] },
  logs: [],
});
