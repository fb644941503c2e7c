// What RPC endpoints do: they are away, late, behind, or wrong. The product believes what two of them say, so only one
// lies at a time.
import type { Random } from "../../helpers/random.ts";
import { RpcError, type Endpoint } from "../chain/chain.ts";
import type { Item, Kind } from "../kind.ts";
import type { World } from "../world.ts";

type Undo = () => void;
/** Changes an endpoint, and returns how to change it back. */
type Trouble = (endpoint: Endpoint, random: Random, world: World, index: number) => Undo;

const settings =
  (set: (random: Random, endpoint: Endpoint) => Partial<Endpoint>): Trouble =>
  (endpoint, random) => {
    const changed = set(random, endpoint);
    const before = Object.fromEntries(
      Object.keys(changed).map((name) => [name, endpoint[name as keyof Endpoint]]),
    );
    Object.assign(endpoint, changed);
    return () => void Object.assign(endpoint, before);
  };

const REFUSED_TEXTS = [
  "tx fee exceeds the configured cap",
  "txpool is full",
  "internal error",
  "transaction underpriced",
];
const RATE_LIMIT = new RpcError(-32_005, "rate limit exceeded");
const BUSY = new RpcError(-32_603, "internal error");

const AWAY: Trouble[] = [
  settings(() => ({ isDown: true })),
  settings(() => ({ isSilent: true })),
  settings(() => ({ refusesAll: RATE_LIMIT })),
  settings(() => ({ refusesAll: BUSY })),
];
const LATE: Trouble[] = [
  settings((random) => ({ lagBlocks: random.int(1, 6) })),
  settings((_, endpoint) => ({ stuckAt: endpoint.head.number })),
  (_, random, world, index) => {
    world.delaysMs.set(index, random.int(200, 6_000));
    return () => void world.delaysMs.delete(index);
  },
];
const SENDS: Trouble[] = [
  settings(() => ({ dropsSent: true })),
  settings(() => ({ failsAfterSend: "lost" as const })),
  settings((random) => ({
    failsAfterSend: new RpcError(
      -32_000,
      random.pick(["internal error", "already known", "timeout"]),
    ),
  })),
  settings(() => ({ gossips: false })),
  settings((random) => {
    const error = new RpcError(-32_000, random.pick(REFUSED_TEXTS));
    return { refuses: () => error };
  }),
  settings(() => ({ refusesLowFees: true })),
];
const MISSING: Trouble[] = [
  settings(() => ({ hasWaitingSend: false })),
  settings(() => ({ hasSimulate: false })),
  settings(() => ({ hasBlockReceipts: false })),
  settings(() => ({ refusesBatches: true })),
  settings((random) => ({ statesKept: random.int(4, 64) })),
];
/** All that shows a payment. */
export const HIDES_ALL: Partial<Endpoint> = {
  hidesReceipts: true,
  hidesLogs: true,
  deniesUses: true,
  hidesTransactions: true,
};
/** With their weights. */
const LIES: readonly (readonly [Trouble, number])[] = [
  [settings(() => ({ hidesReceipts: true })), 1],
  [settings(() => ({ hidesLogs: true })), 1],
  [settings(() => ({ deniesUses: true })), 1],
  [settings(() => ({ hidesTransactions: true })), 1],
  [settings(() => ({ hidesReceipts: true, hidesLogs: true })), 1],
  [settings(() => HIDES_ALL), 1],
  [settings(() => ({ ignoresReorganisations: true })), 1],
  // It cannot wait for a block, so its receipts are read.
  [settings(() => ({ inventsReceipts: true, hasWaitingSend: false })), 2],
];

const timeOf = (random: Random): number => random.int(1_000, random.pick([8_000, 40_000]));

/** The first one is preferred, so it is in trouble more often than the others. */
const chosen = (world: World, random: Random): number[] =>
  random.next() < 0.2
    ? world.chain.endpoints.map((_, index) => index)
    : [random.next() < 0.6 ? 0 : random.int(0, world.chain.endpoints.length - 1)];

const trouble =
  (troubles: readonly Trouble[]) =>
  async (world: World, { random }: Item): Promise<void> => {
    const undo: Undo[] = [];
    const make = random.pick(troubles);
    for (const index of chosen(world, random)) {
      const endpoint = world.chain.endpoints[index] as Endpoint;
      undo.push(make(endpoint, random, world, index));
    }
    await world.lasting(timeOf(random), () => {
      for (const one of undo) one();
    });
  };

export const endpointsAway: Kind = { weight: 2, play: trouble(AWAY) };
export const endpointsLate: Kind = { weight: 3, play: trouble(LATE) };
export const sendsFail: Kind = { weight: 4, play: trouble(SENDS) };
export const methodsMissing: Kind = { weight: 1, play: trouble(MISSING) };

/** One endpoint says this from now on, until the returned function is called. */
export function lie(world: World, random: Random, said: Partial<Endpoint>): () => void {
  const index = random.next() < 0.7 ? 0 : random.int(0, world.chain.endpoints.length - 1);
  world.liar = index;
  const undo = settings(() => said)(world.chain.endpoints[index] as Endpoint, random, world, index);
  return () => {
    world.liar = undefined;
    undo();
  };
}

export const endpointLies: Kind = {
  weight: 4,
  with: ["spender", "seller", "buyer"],
  async play(world, { random }) {
    if (world.liar !== undefined) return;
    const index = chosen(world, random)[0] ?? 0;
    world.liar = index;
    const undo = random.weighted(LIES)(
      world.chain.endpoints[index] as Endpoint,
      random,
      world,
      index,
    );
    await world.lasting(random.int(3_000, random.pick([15_000, 60_000, 240_000])), () => {
      world.liar = undefined;
      undo();
    });
  },
};

/** Some connections of an endpoint fail, before or after it has taken the request. */
export const connectionsUnsteady: Kind = {
  weight: 3,
  async play(world, { random }) {
    const share = random.pick([0.1, 0.3, 0.6]);
    const watch = ({ text, cut }: { text: string; cut: () => void }): void => {
      if (text.startsWith("eth_") && random.next() < share) cut();
    };
    world.timeline.stepWatchers.add(watch);
    await world.lasting(timeOf(random), () => void world.timeline.stepWatchers.delete(watch));
  },
};
