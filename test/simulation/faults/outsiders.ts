// What others do on the chain: the token's issuer, and everybody who sees the pool.
import type { Address, Hex } from "viem";
import { tokenKeys } from "../chain/token.ts";
import type { Transaction } from "../chain/chain.ts";
import type { Kind } from "../kind.ts";
import { pause, RELAYERS, type World } from "../world.ts";

const COPYIST: Address = "0x00000000000000000000000000000000000c0b1e";

const COPY_TIP_WEI = 100_000_000_000n;

/** Asks for it until the chain says so: a reorganisation or an emptied pool may remove the transaction. */
async function until(world: World, isSo: () => boolean, ask: () => void): Promise<void> {
  for (let tries = 0; tries < 60 && !isSo(); tries += 1) {
    ask();
    for (let waited = 0; waited < 8 && !isSo(); waited += 1) await pause(1_000);
  }
}

export const tokenPaused: Kind = {
  weight: 2,
  async play(world, { random }) {
    const { chain } = world;
    const isPaused = (): boolean => chain.ledger.number(tokenKeys.paused) !== 0n;
    // Also where no block comes for a while: otherwise it would be paused after its end, for good.
    await until(world, isPaused, () => chain.pauseToken());
    await pause(random.int(4_000, random.pick([15_000, 60_000])));
    await until(
      world,
      () => !isPaused(),
      () => chain.pauseToken(false),
    );
  },
};

/** A payer or a payee is blocked by the issuer, for a while or for good. */
export const accountBlocked: Kind = {
  weight: 2,
  async play(world, { random }) {
    const { chain } = world;
    const agent = random.pick(world.agents);
    const account = random.next() < 0.5 ? agent.wallet : random.pick(agent.payees);
    chain.blacklist(account);
    const isBlocked = (): boolean => chain.ledger.number(tokenKeys.blacklisted(account)) !== 0n;
    await pause(random.int(4_000, 40_000));
    if (random.next() < 0.5)
      await until(
        world,
        () => !isBlocked(),
        () => chain.blacklist(account, false),
      );
  },
};

/** Native balance leaves all relayers, and comes back. */
export const relayersUnfunded: Kind = {
  weight: 2,
  async play(world, { random }) {
    const { chain } = world;
    const taken = new Map<Hex, bigint>();
    for (const relayer of random.next() < 0.5 ? [...RELAYERS] : [random.pick([...RELAYERS])]) {
      const balance = chain.nativeBalanceOf(relayer);
      taken.set(relayer, balance);
      chain.fund(relayer, -balance);
    }
    await world.lasting(random.int(4_000, random.pick([15_000, 60_000])), () => {
      for (const [relayer, balance] of taken) chain.fund(relayer, balance);
    });
  },
};

/** Somebody else has a relayer's key. */
export const nonceTaken: Kind = {
  weight: 1,
  async play(world, { random }) {
    const { chain } = world;
    for (let count = random.int(1, 2); count > 0; count -= 1) {
      const relayer = random.pick([...RELAYERS]);
      const isInPlace = random.next() < 0.5;
      const nonce = isInPlace ? { nonce: chain.ledger.nonceOf(relayer) } : {};
      chain.sendAs(relayer, {
        to: COPYIST,
        gas: 21_000,
        ...nonce,
        maxFeeWei: 400_000_000_000n,
        priorityFeeWei: 40_000_000_000n,
      });
      await pause(random.int(0, 10_000));
    }
  },
};

/**
 * The payer is blocked just before our block, so its payment has no effect in it. The signature is public by then:
 * when the payer is free again, somebody relays it.
 */
export const relayedAfterRefusal: Kind = {
  weight: 3,
  with: ["spender", "buyer", "burst"],
  async play(world, { random }) {
    const { chain } = world;
    const isAgents = ({ from, input }: Transaction): boolean =>
      RELAYERS.has(from) && world.agents.some(({ wallet }) => input.includes(wallet.slice(2)));
    let seen: Transaction | undefined;
    for (let waited = 0; waited < 60 && !seen; waited += 1) {
      await pause(200);
      seen = [...chain.pool.all].find(isAgents);
    }
    if (!seen) return;
    const { to, input } = seen;
    const payer = world.agents.find(({ wallet }) => input.includes(wallet.slice(2)))?.wallet;
    if (!payer || to === null) return;
    const isBlocked = (): boolean => chain.ledger.number(tokenKeys.blacklisted(payer)) !== 0n;
    chain.blacklist(payer, true, COPY_TIP_WEI);
    await pause(random.int(6_000, 20_000));
    await until(
      world,
      () => !isBlocked(),
      () => chain.blacklist(payer, false, COPY_TIP_WEI),
    );
    world.sales.isRelayedLater = true;
    chain.sendAs(COPYIST, {
      to,
      data: input,
      maxFeeWei: 1_000_000_000_000n,
      priorityFeeWei: COPY_TIP_WEI,
    });
  },
};

/** Whoever sees a signed payment may relay it: before us with a higher tip, or after ours had no effect. */
export const copied: Kind = {
  weight: 3,
  async play(world, { random }) {
    const { chain } = world;
    const isFirst = random.next() < 0.6;
    const seen = new Set<Hex>();
    const copy = ({ hash, from, to, input }: Transaction): void => {
      if (!RELAYERS.has(from) || to === null || seen.has(hash) || input === "0x") return;
      seen.add(hash);
      if (random.next() >= 0.7) return;
      const send = (): void =>
        void chain.sendAs(COPYIST, {
          to,
          data: input,
          maxFeeWei: 1_000_000_000_000n,
          priorityFeeWei: COPY_TIP_WEI,
        });
      send();
      // What had no effect then may have one later.
      if (!isFirst)
        world.timeline.after(random.int(5_000, 40_000), undefined, "copied again", send);
    };
    const untilMs = world.timeline.nowMs + random.int(5_000, 40_000);
    while (world.timeline.nowMs < untilMs) {
      if (isFirst) for (const transaction of chain.pool.all) copy(transaction);
      else
        for (const { mined } of chain.ledger.blocks.slice(-2))
          for (const { transaction } of mined) copy(transaction);
      await pause(400);
    }
  },
};

/** Sellers serve for a signed deposit, and send it later: the channel may be closing by then, or the deposit expired. */
export const depositsKept: Kind = {
  weight: 2,
  with: ["channeler"],
  async play(world, { random }) {
    const { sales } = world;
    if (sales.keptDeposits) return;
    const kept: (() => void)[] = [];
    sales.keptDeposits = kept;
    await world.lasting(random.int(4_000, random.pick([20_000, 90_000])), () => {
      sales.keptDeposits = undefined;
      for (const send of kept) send();
    });
  },
};
