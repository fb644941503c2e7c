// A process is killed: at once, or before one of its next steps. Another one takes its place a little later.
import type { Kind } from "../kind.ts";
import { pause, type World } from "../world.ts";
import type { Service } from "../service.ts";

/** About as many steps as a busy process does in a few seconds. */
const STEPS = 400;

export const crash: Kind = {
  weight: 4,
  async play(world, { random }) {
    const [victim] = random.shuffled(world.services);
    if (!victim) return;
    if (random.next() < 0.8) await afterSteps(world, victim, random.int(1, STEPS));
    else world.crash(victim);
    await pause(random.int(100, 6_000));
    world.startService();
  },
};

/**
 * Kills the process instead of its next step, after `count` of them. Timers are no steps: they are most events, and do
 * nothing at the boundary.
 */
function afterSteps(world: World, service: Service, count: number): Promise<void> {
  const { timeline } = world;
  let left = count;
  return new Promise((resolve) => {
    const watch = ({ actor, label }: { actor: unknown; label: string }): void => {
      const isStep = actor === service ? label !== "timer" : label.startsWith(`${service.name} `);
      if (!isStep && !service.isGone) return;
      left -= 1;
      if (left > 0 && !service.isGone) return;
      timeline.watchers.delete(watch);
      if (!service.isGone) world.crash(service);
      resolve();
    };
    timeline.watchers.add(watch);
  });
}
