// The moments that matter for money: statements that change it, and sends.
import type { Random } from "../../helpers/random.ts";
import type { Step } from "../time.ts";
import { pause, type World } from "../world.ts";

/** With their weights. */
const STEPS: readonly (readonly [RegExp, number])[] = [
  [/^eth_sendRaw/, 1],
  [/^(purser-reserve|settlement-accept|withdrawal)/, 1],
  // Most of what went wrong once went wrong around these two.
  [/^settlement-accept/, 2],
  [/^lane-persist/, 2],
  [/^(transaction-final|settlements-finalize)/, 1],
  [/^settlements-claim/, 1],
  [/^voucher-/, 1],
  [/^COMMIT$/, 1],
  [/^(UPDATE|INSERT|DELETE)/, 1],
  [/^SELECT \S*purser_/, 1],
  [/./, 1],
];

/** One kind of step, at one of its two moments. */
export function moneyStep(random: Random): (step: Step) => boolean {
  const text = random.weighted(STEPS);
  const moment = random.next() < 0.5 ? "before" : "after";
  return (step) => step.moment === moment && text.test(step.text);
}

/** Looks at each step until it is done, or the time is over. Returns whether it is done. */
export async function watchSteps(
  world: World,
  limitMs: number,
  look: (step: Step) => "go on" | "done",
): Promise<boolean> {
  const { stepWatchers } = world.timeline;
  const watch = (step: Step): void => {
    if (look(step) === "done") stepWatchers.delete(watch);
  };
  stepWatchers.add(watch);
  for (let waitedMs = 0; waitedMs < limitMs && stepWatchers.has(watch); waitedMs += LOOK_MS)
    await pause(LOOK_MS);
  return !stepWatchers.delete(watch);
}
const LOOK_MS = 500;
