// What happens to processes of the service: killed at any moment, suspended, deployed, gone, and with wrong clocks.
import type { Random } from "../../helpers/random.ts";
import type { Kind } from "../kind.ts";
import type { Service } from "../service.ts";
import type { Step } from "../time.ts";
import { pause, type World } from "../world.ts";
import { afterOurs, oursIn } from "./blocks.ts";
import { HIDES_ALL, lie } from "./endpoints.ts";
import { moneyStep, watchSteps } from "./steps.ts";

const oneOf = (world: World, random: Random): Service | undefined =>
  world.services.length === 0 ? undefined : random.pick(world.services);

/** Just before or after the effect of a statement or of a request that matters for money. */
export const crashAtStep: Kind = {
  weight: 6,
  with: ["spender", "seller", "burst", "channeler"],
  async play(world, { random }) {
    const isWanted = moneyStep(random);
    let left = random.int(1, 3);
    const limitMs = random.int(5_000, 25_000);
    await watchSteps(world, limitMs, (step) => {
      const service = world.services.find((each) => each === step.actor);
      if (!service || !isWanted(step)) return "go on";
      left -= 1;
      if (left > 0) return "go on";
      world.timeline.note(`${step.moment} ${step.text.slice(0, 60)}`);
      world.crash(service);
      return "done";
    });
    await pause(random.int(100, 10_000));
    if (world.services.length < 2) world.startService();
  },
};

function suspend(world: World, service: Service, ms: number): void {
  service.frozenUntilMs = world.timeline.nowMs + ms;
  world.timeline.note(`SUSPENDED ${service.name} for ${ms} ms`);
}

/** Longer than its leases: another process takes its work, and this one goes on as if it still had it. */
export const suspended: Kind = {
  weight: 3,
  async play(world, { random }) {
    const service = oneOf(world, random);
    if (!service) return;
    const ms = random.int(3_000, random.pick([9_000, 20_000, 60_000]));
    if (random.next() < 0.5) suspend(world, service, ms);
    else {
      const isWanted = moneyStep(random);
      await watchSteps(world, 15_000, (step: Step) => {
        if (step.actor !== service || !isWanted(step)) return "go on";
        suspend(world, service, ms);
        return "done";
      });
    }
    await pause(ms);
  },
};

/**
 * Right after a reservation, until others have released it, or while they reserve as well: this one goes on to sign it.
 */
export const suspendedWithReservation: Kind = {
  weight: 2,
  with: ["spender", "buyer", "burst", "channeler"],
  services: 2,
  async play(world, { random }) {
    const untilReleasedMs = random.int(50_000, 110_000);
    const ms = random.next() < 0.5 ? random.int(500, 5_000) : untilReleasedMs;
    await watchSteps(world, 15_000, ({ actor, moment, text }) => {
      const service = world.services.find((each) => each === actor);
      if (!service || moment !== "after" || text !== "purser-reserve") return "go on";
      suspend(world, service, ms);
      return "done";
    });
    // And a little longer: what it does then must be seen.
    await pause(ms + 5_000);
  },
};

/** Clocks of processes are apart by up to minutes, and may jump. */
export const clocks: Kind = {
  weight: 2,
  async play(world, { random }) {
    for (const service of world.services) service.skewMs = random.int(-150_000, 150_000);
    await world.lasting(random.int(10_000, 60_000), () => {
      for (const service of world.services) service.skewMs = 0;
    });
  },
};

/** Each process is stopped after a new one has started, or before. */
export const deployment: Kind = {
  weight: 3,
  async play(world, { random }) {
    const isOverlapping = random.next() < 0.7;
    // Those that start now are not stopped.
    const old = world.services.slice();
    for (const service of old) {
      if (isOverlapping) world.startService();
      await pause(random.int(500, 5_000));
      if (world.services.includes(service)) await world.stop(service);
      if (!isOverlapping) world.startService();
    }
  },
};

/** All processes end just after a transaction was sent. False if none was, or an endpoint lies already. */
async function endAfterSend(world: World): Promise<boolean> {
  let isSent = false;
  await watchSteps(world, 20_000, ({ text, moment }) => {
    if (!text.startsWith("eth_sendRaw") || moment !== "after") return "go on";
    isSent = world.liar === undefined;
    if (isSent) for (const service of world.services) world.crash(service);
    return "done";
  });
  return isSent;
}

/** They come back when its payments have expired: used, while one endpoint denies it. */
export const blindReturn: Kind = {
  weight: 2,
  with: ["spender", "seller"],
  async play(world, { random }) {
    if (!(await endAfterSend(world))) return;
    const end = lie(world, random, HIDES_ALL);
    await pause(random.int(100_000, 200_000));
    world.startService();
    await world.lasting(random.int(10_000, 60_000), end);
  },
};

const STALE_RECEIPTS = { keepsReceipts: true, hasWaitingSend: false };

/** They come back when its block was removed, and one endpoint still shows its receipt. */
export const staleReturn: Kind = {
  weight: 4,
  with: ["spender", "seller"],
  async play(world, { random }) {
    if (!(await endAfterSend(world))) return;
    await afterOurs(world, 1);
    await pause(random.int(0, 1_500));
    const depth = random.int(1, 2);
    const isWhole = random.next() < 0.3;
    const end = lie(world, random, isWhole ? { ignoresReorganisations: true } : STALE_RECEIPTS);
    world.reorganise(depth, { drop: oursIn(world, depth) });
    // Soon, or when its payments have expired.
    await pause(random.next() < 0.4 ? random.int(4_000, 20_000) : random.int(100_000, 200_000));
    world.startService();
    await world.lasting(random.int(10_000, 60_000), end);
  },
};

/** All processes at once, for seconds or for longer than an authorization is valid. */
export const outage: Kind = {
  weight: 2,
  async play(world, { random }) {
    for (const service of world.services) world.crash(service);
    await pause(random.int(500, random.pick([5_000, 30_000, 240_000])));
    for (let count = random.int(1, 2); count > 0; count -= 1) world.startService();
  },
};
