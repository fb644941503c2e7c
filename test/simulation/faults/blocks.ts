// What happens to blocks, pools and fees.
import type { Hex } from "viem";
import type { Random } from "../../helpers/random.ts";
import type { Kind } from "../kind.ts";
import { pause, RELAYERS, type World } from "../world.ts";
import { lie } from "./endpoints.ts";
import { watchSteps } from "./steps.ts";

const BLOCK_MS = 2_000;
const BASE_FEE_WEI = 1_000_000_000n;
/** More than the operator pays: 500 gwei. */
const TOO_DEAR_WEI = 600_000_000_000n;

export const poolEmptied: Kind = {
  weight: 2,
  async play(world, { random }) {
    for (let count = random.int(1, 4); count > 0; count -= 1) {
      world.chain.evictMempool();
      await pause(random.int(200, 3_000));
    }
  },
};

export const blocksStop: Kind = {
  weight: 2,
  async play(world, { random }) {
    world.isMining = false;
    await world.lasting(random.int(3_000, random.pick([15_000, 90_000])), () => {
      world.isMining = true;
    });
  },
};

/** Blocks without anything, or without our transactions. */
export const blocksPassUsOver: Kind = {
  weight: 2,
  async play(world, { random }) {
    world.mining = { only: [] };
    await world.lasting(random.int(3_000, random.pick([15_000, 60_000])), () => {
      world.mining = {};
    });
  },
};

export const gasDear: Kind = {
  weight: 3,
  async play(world, { random }) {
    world.chain.setBaseFee(random.pick([BASE_FEE_WEI * 10n, BASE_FEE_WEI * 60n, TOO_DEAR_WEI]));
    await world.lasting(random.int(4_000, random.pick([20_000, 90_000])), () =>
      world.chain.setBaseFee(BASE_FEE_WEI),
    );
  },
};

/** The relayers' transactions of the newest blocks. */
export function oursIn(world: World, depth: number): Hex[] {
  const { blocks } = world.chain.ledger;
  return blocks
    .slice(-depth)
    .flatMap(({ mined }) => mined.map(({ transaction }) => transaction))
    .filter(({ from }) => RELAYERS.has(from))
    .map(({ hash }) => hash);
}

async function reorganise(world: World, random: Random, depth: number): Promise<void> {
  const all = oursIn(world, depth);
  const drop = random.pick<readonly Hex[]>([[], all, all.filter(() => random.next() < 0.5)]);
  world.timeline.note(`${all.length} transactions of ours, ${drop.length} are dropped`);
  if (random.next() < 0.4) void keepShowing(world, random);
  world.reorganise(depth, { drop });
  // In another order than before: some have to wait.
  if (random.next() < 0.4) {
    world.mining = { without: all.filter(() => random.next() < 0.5) };
    await world.lasting(random.int(1, 3) * BLOCK_MS, () => {
      world.mining = {};
    });
  }
}

/** One endpoint is still on the branch that nobody else follows. */
async function keepShowing(world: World, random: Random): Promise<void> {
  if (world.liar !== undefined) return;
  await world.lasting(
    random.int(4_000, 40_000),
    lie(world, random, { ignoresReorganisations: true }),
  );
}

/** Waits for a block with one of ours, so that there is something to remove. */
export async function afterOurs(world: World, depth: number): Promise<void> {
  for (let waited = 0; waited < 10 && oursIn(world, depth).length === 0; waited += 1)
    await pause(BLOCK_MS / 2);
}

/** Within what counts as final. */
export const reorganisation: Kind = {
  weight: 4,
  async play(world, { random }) {
    for (let count = random.int(1, 2); count > 0; count -= 1) {
      const depth = random.int(1, 2);
      await afterOurs(world, depth);
      await reorganise(world, random, depth);
      await pause(random.int(0, 6_000));
    }
  },
};

/** The block of a deposit into a channel is replaced, and the deposit is mostly gone: the seller has served for it. */
export const depositRemoved: Kind = {
  weight: 2,
  with: ["channeler"],
  async play(world, { random }) {
    const deposits = (): Hex[] => {
      const from = world.chain.head.number - 1;
      const effects = [...world.chain.channelEffects()];
      return effects.flatMap(({ what, block, txHash }) =>
        what === "deposited" && block >= from ? [txHash] : [],
      );
    };
    for (let waited = 0; waited < 40 && deposits().length === 0; waited += 1)
      await pause(BLOCK_MS / 4);
    world.reorganise(2, { drop: random.next() < 0.7 ? deposits() : [] });
  },
};

/** The ledger records incoming money as a row, and nothing else in this way. */
const RECORDED = /^INSERT INTO "public"\."payments"/;

/** Money arrives in every block. When the ledger has recorded some of it, the newest blocks are gone, and their money with them. */
export const incomingRemoved: Kind = {
  weight: 2,
  async play(world, { random }) {
    const { chain } = world;
    const { wallet } = random.pick(world.agents);
    const sent = new Set<Hex>();
    const recorded = watchSteps(world, RECORDED_WITHIN_MS, ({ text, moment }) =>
      moment === "after" && RECORDED.test(text) ? "done" : "go on",
    );
    let isRecorded: boolean | undefined;
    while (isRecorded === undefined) {
      sent.add(chain.deposit(wallet, world.newAmount(100_000n)));
      isRecorded = await Promise.race([recorded, pause(BLOCK_MS).then(() => undefined)]);
    }
    if (isRecorded) world.reorganise(random.int(1, 2), { drop: [...sent] });
  },
};
/** The ledger is compared with the chain this often, and a block later. */
const RECORDED_WITHIN_MS = 24_000;

/** Beyond it nothing is promised but that it is noticed and corrected. */
export const deepReorganisation: Kind = {
  weight: 1,
  async play(world, { random }) {
    await afterOurs(world, 3);
    await pause(random.int(0, 8_000));
    await reorganise(world, random, random.int(3, 7));
    // The service finds it when it compares the ledger with the chain.
    await pause(240_000);
  },
};
