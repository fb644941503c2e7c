// Takes the place of the generated Prisma client. Making one takes longer than the rest of a process' start, so the
// clients are kept from world to world, each with the pool of the process that uses it now.
import type { PrismaPg } from "@prisma/adapter-pg";
import type { Pool } from "pg";
import { PrismaClient as Generated } from "../../server/generated/prisma/client.ts";
import { Random } from "../helpers/random.ts";
import { currentActor, inside, Timeline } from "./time.ts";

export * from "../../server/generated/prisma/client.ts";

interface Kept {
  client: object;
  use: (pool: Pool) => void;
}

const idle: Kept[] = [];
const taken = new WeakMap<Timeline, Kept[]>();

/**
 * Makes clients as the service does, and loads them: that takes real time, in which the first world of a Node process
 * would go on without its answers.
 */
export async function loadClients(count: number, make: () => object): Promise<void> {
  const world = new Timeline(new Random(0), 0);
  const actor = { name: "first", world, isGone: false, frozenUntilMs: 0, skewMs: 0 };
  for (let made = 0; made < count; made += 1) inside(actor, make);
  for (const { client } of taken.get(world) ?? [])
    await (client as { $connect(): Promise<void> }).$connect();
  giveBackClients(world);
}

/** At the end of a world. */
export function giveBackClients(world: Timeline): void {
  idle.push(...(taken.get(world) ?? []));
  taken.delete(world);
}

/** Private in the adapter. */
const poolOf = ({ adapter }: { adapter: PrismaPg }): Pool =>
  (adapter as unknown as { externalPool: Pool }).externalPool;

function make(options: { adapter: PrismaPg }): Kept {
  let current = poolOf(options);
  const use = (pool: Pool): void => void (current = pool);
  const adapter = options.adapter as unknown as { externalPool: Pool };
  adapter.externalPool = new Proxy(current, {
    get: (_first, name) => {
      const value: unknown = Reflect.get(current, name, current);
      return typeof value === "function" ? (value.bind(current) as unknown) : value;
    },
  });
  // Its end is the end of its pool, which the service closes itself.
  const client = Object.assign(new Generated(options as never), {
    $disconnect: () => Promise.resolve(),
  });
  return { client, use };
}

export const PrismaClient = function PrismaClient(options: { adapter: PrismaPg }): object {
  const world = currentActor()?.world;
  if (!world) throw new Error("a Prisma client outside of a world");
  const pool = poolOf(options);
  const kept = idle.pop() ?? make(options);
  kept.use(pool);
  taken.set(world, [...(taken.get(world) ?? []), kept]);
  return kept.client;
};
