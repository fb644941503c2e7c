// Compiles the simulation, starts its Postgres, and gives worlds to some Node processes.
import { fork, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { cpSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { Client } from "pg";
import { FUNCTIONS_DIRECTORY } from "../../server/infra/db/functions.ts";
import { migrate } from "../../server/infra/db/migrate.ts";
import { ROOT } from "../../server/infra/root.ts";
import { startPostgres } from "../../server/local/postgres.ts";
import { compileSimulation } from "./compile.mjs";
import { plantedFunctions, plantedIn } from "./planted/index.ts";
import { prepareDatabase } from "./setup.ts";
import type { Order, Report } from "./worker.ts";

export interface Simulation {
  play(order: Order): Promise<Report>;
  /** In any order; stops early when `next` returns false. */
  playAll(
    orders: readonly Order[],
    next: (report: Report) => boolean | Promise<boolean>,
  ): Promise<void>;
  /** Ends its Node processes. */
  close(): Promise<void>;
}

/** The service as it is, or with a planted defect. */
export type MakeSimulation = (plant?: string) => Promise<Simulation>;

const PASSWORD = "simulation-only-on-this-machine";
/** Under tsx, code of a library that loads a module waits for a real thread, at no time of the world. */
const WITHOUT_TSX = { execArgv: ["--max-semi-space-size=64"] };
/** A world that takes longer does not end by itself. */
const WORLD_LIMIT_MS = 400_000;
const CONNECTIONS = 200;
const SETTINGS = [
  "jit=off",
  "autovacuum=off",
  "wal_level=minimal",
  "max_wal_senders=0",
  "track_activities=off",
  "track_counts=off",
];

/** One Postgres for all simulations that `use` makes, each with `workers` Node processes. */
export async function withSimulations<T>(
  workers: number,
  use: (make: MakeSimulation) => Promise<T>,
): Promise<T> {
  const root = fileURLToPath(ROOT);
  const dir = mkdtempSync(join(tmpdir(), "purser-simulation-"));
  // Inside the repository, so that the compiled programs find the packages.
  mkdirSync(join(root, ".tmp"), { recursive: true });
  const compiled = mkdtempSync(join(root, ".tmp", "simulation-"));
  const socketDir = join(dir, "postgres");
  const postgres = await startPostgres({
    dir,
    password: PASSWORD,
    durable: false,
    maxConnections: CONNECTIONS,
    removeOnExit: dir,
    settings: [`unix_socket_directories=${socketDir}`, ...SETTINGS],
  });
  /** Over a Unix socket, which costs half of what TCP costs. */
  const urlOf = (database: string): string =>
    `postgresql://purser:${PASSWORD}@localhost:${postgres.port}/${database}?host=${encodeURIComponent(socketDir)}`;
  const made: Simulation[] = [];
  let databases = 0;

  async function administer(...statements: string[]): Promise<void> {
    const admin = new Client({ connectionString: urlOf("postgres") });
    await admin.connect();
    for (const statement of statements) await admin.query(statement);
    await admin.end();
  }

  /** With the first owners and agents in it. */
  async function makeTemplate(program: string): Promise<void> {
    await administer("CREATE DATABASE first");
    await prepareDatabase(urlOf("first"));
    const [code] = (await once(fork(program, [urlOf("first"), "found"], WITHOUT_TSX), "exit")) as [
      number,
    ];
    if (code !== 0) throw new Error("the first owners and agents could not be made");
  }

  async function copyDatabase(functions: URL | undefined): Promise<string> {
    const name = `worlds_${(databases += 1)}`;
    await administer(
      `CREATE DATABASE ${name} TEMPLATE first`,
      `ALTER DATABASE ${name} SET search_path = public, sim, pg_catalog`,
    );
    const url = urlOf(name);
    if (functions) await migrate({ connectionString: url, functionsDirectory: functions });
    return url;
  }

  try {
    const present = await compileSimulation(join(compiled, "present"));
    await makeTemplate(present);
    return await use(async (plant) => {
      const functions = plant === undefined ? undefined : await functionsWith(plant, dir);
      const isSource = plant !== undefined && !functions;
      const program = isSource
        ? await compileSimulation(join(compiled, plant), [plantedIn(plant)])
        : present;
      const hands: Hand[] = [];
      for (let count = 0; count < workers; count += 1)
        hands.push(new Hand(program, await copyDatabase(functions)));
      const simulation = simulationOf(hands);
      made.push(simulation);
      return simulation;
    });
  } finally {
    for (const simulation of made) await simulation.close();
    await postgres.stop();
    rmSync(compiled, { recursive: true, force: true });
    rmSync(dir, { recursive: true, force: true });
  }
}

/** The folder of SQL functions with the defect in it; undefined if the defect is in a source of the service. */
async function functionsWith(plant: string, dir: string): Promise<URL | undefined> {
  const planted = await plantedFunctions(plant);
  if (planted.size === 0) return undefined;
  const copy = join(dir, `functions-${plant}`);
  cpSync(FUNCTIONS_DIRECTORY, copy, { recursive: true });
  for (const [name, sql] of planted) writeFileSync(join(copy, `${name}.sql`), sql);
  return pathToFileURL(`${copy}/`);
}

function simulationOf(hands: readonly Hand[]): Simulation {
  return {
    play: (order) => (hands[0] as Hand).play(order),
    async playAll(orders, next) {
      const waiting = [...orders];
      let isWanted = true;
      await Promise.all(
        hands.map(async (hand) => {
          for (let order = waiting.shift(); order && isWanted; order = waiting.shift())
            if (!(await next(await hand.play(order)))) isWanted = false;
        }),
      );
    },
    async close() {
      for (const hand of hands) await hand.close();
    },
  };
}

/** One Node process with its database. */
class Hand {
  readonly #program: string;
  readonly #url: string;
  #child: ChildProcess | undefined;
  #last: Promise<unknown> = Promise.resolve();

  constructor(program: string, url: string) {
    this.#program = program;
    this.#url = url;
  }

  /** One world at a time: it has the whole database. */
  play(order: Order): Promise<Report> {
    const report = this.#last.then(() => this.#play(order));
    this.#last = report.catch(() => undefined);
    return report;
  }

  async #play(order: Order): Promise<Report> {
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
    const child = fork(this.#program, [this.#url], WITHOUT_TSX);
    await once(child, "message");
    return child;
  }

  async close(): Promise<void> {
    const child = this.#child;
    if (!child || child.exitCode !== null || child.signalCode !== null) return;
    const ended = once(child, "exit");
    child.disconnect();
    await ended;
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
