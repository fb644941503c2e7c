// Plays the worlds that the command asks for, one after the other, in a Node process and a database of its own.
import { createHash } from "node:crypto";
import { Pool } from "pg";
import { createPrisma } from "../../server/infra/db/prisma.ts";
import { agentsOf } from "./agents.ts";
import { Backends } from "./database.ts";
import { found } from "./found.ts";
import { planOf, smaller, type Plan } from "./plan.ts";
import { play, type Place } from "./play.ts";
import { loadClients } from "./prisma-client.ts";
import { keepRows } from "./rows.ts";
import { installTime, real } from "./time.ts";

export interface Order {
  seed: number;
  /** Instead of the plan of the seed. */
  plan?: Plan;
  /** Only these kinds of actors and faults, if there are any. */
  only?: string[];
  /** Leaves out of the plan what the failure does not need. */
  isShrunk?: boolean;
  /** Sends every event back. */
  isTraced?: boolean;
}
export interface Report {
  seed: number;
  plan: Plan;
  broken: string[];
  trace: string[];
  /** The same seed must give the same. */
  print: string;
  events: number;
  statements: number;
  virtualMs: number;
  tookMs: number;
  cpuMs: number;
  logs: string[];
}

/** More than start in one world. */
const MOST_PROCESSES = 16;

const [url = "", what] = process.argv.slice(2);
installTime();
await loadClients(MOST_PROCESSES, () => createPrisma(new Pool()));
const backends = await Backends.open(url);
if (what === "found") {
  const agents = await found(backends, url);
  await keepRows(url, agents);
  await backends.close();
  process.exit(0);
}
const { rows } = await backends.monitor.query<{ agents: never }>("SELECT agents FROM sim.agents");
const place: Place = { backends, url, agents: agentsOf(rows[0]?.agents as never) };
process.on("message", (order: Order) => void report(order));
process.on("disconnect", () => process.exit(0));
process.send?.("ready");

async function report({
  seed,
  only,
  isTraced = false,
  isShrunk = false,
  ...order
}: Order): Promise<void> {
  const from = real.now();
  const cpu = process.cpuUsage();
  const given = order.plan ?? planOf(seed, only);
  const plan = isShrunk ? await shrunk(given) : given;
  const { world, broken } = await play(plan, place, isTraced);
  const used = process.cpuUsage(cpu);
  const { timeline, database } = world;
  const { trace } = timeline;
  const logs = [...world.dead].flatMap(({ name, logs }) =>
    logs
      .filter(({ level }) => level === "warn" || level === "error" || level === "fatal")
      .map(({ level, text, fields }) => `${name} ${level} ${text} ${describe(fields)}`),
  );
  process.send?.({
    seed,
    plan,
    broken,
    trace: isTraced || broken.length > 0 ? trace : [],
    print: createHash("sha256").update(trace.join("\n")).digest("hex"),
    events: timeline.events,
    statements: database.statements,
    virtualMs: timeline.nowMs - timeline.startMs,
    tookMs: real.now() - from,
    cpuMs: (used.user + used.system) / 1_000,
    logs: isTraced || broken.length > 0 ? logs : [],
  } satisfies Report);
}

/** The smallest plan that breaks one of the same rules. */
async function shrunk(plan: Plan): Promise<Plan> {
  const rulesOf = ({ broken }: { broken: string[] }): string[] =>
    broken.map((text) => text.split(":")[0] ?? "");
  const wanted = new Set(rulesOf(await play(plan, place)));
  for (const less of smaller(plan))
    if (rulesOf(await play(less, place)).some((rule) => wanted.has(rule))) return shrunk(less);
  return plan;
}

function describe(fields: unknown): string {
  const { err } = fields as { err?: unknown };
  return err instanceof Error
    ? `${err.message} ${err.cause instanceof Error ? err.cause.message : ""}`
    : "";
}
