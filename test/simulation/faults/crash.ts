// A process is killed at any moment, and another one takes its place a little later.
import type { Kind } from "../plan.ts";
import { pause } from "../world.ts";

export const crash: Kind = {
  weight: 4,
  async play(world, { random }) {
    if (world.services.length === 0) return;
    world.crash(random.pick(world.services));
    await pause(random.int(100, 6_000));
    world.startService();
  },
};
