// Plays the worlds that the command asks for, one after the other, in a Node process and a database of its own.
import { createHash } from "node:crypto";
import { agentsOf } from "./agents.ts";
import { Backends } from "./database.ts";
import { found } from "./found.ts";
import { planOf } from "./plan.ts";
import { play, type Place } from "./play.ts";
import { keepRows } from "./rows.ts";
import { installTime, real } from "./time.ts";

export interface Order {
  seed: number;
  without?: number[];
  /** Only these kinds of actors and faults, if there are any. */
  only?: string[];
  /** Sends every event back. */
  isTraced?: boolean;
}
export interface Report {
  seed: number;
  broken: string[];
  trace: string[];
  /** The same seed must give the same. */
  print: string;
  events: number;
  statements: number;
  virtualMs: number;
  tookMs: number;
  cpuMs: number;
  actors: string[];
  faults: string[];
  logs: string[];
}

const [url = "", what] = process.argv.slice(2);
installTime();
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

async function report({ seed, without, only, isTraced = false }: Order): Promise<void> {
  const from = real.now();
  const cpu = process.cpuUsage();
  const plan = planOf(seed, without, only);
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
    broken,
    trace: isTraced || broken.length > 0 ? trace : [],
    print: createHash("sha256").update(trace.join("\n")).digest("hex"),
    events: timeline.events,
    statements: database.statements,
    virtualMs: timeline.nowMs - timeline.startMs,
    tookMs: real.now() - from,
    cpuMs: (used.user + used.system) / 1_000,
    actors: plan.actors.map(({ kind }) => kind),
    faults: plan.faults.map(({ kind }) => kind),
    logs: isTraced || broken.length > 0 ? logs : [],
  } satisfies Report);
}

function describe(fields: unknown): string {
  const { err } = fields as { err?: unknown };
  return err instanceof Error
    ? `${err.message} ${err.cause instanceof Error ? err.cause.message : ""}`
    : "";
}
