// The moments that matter for money: statements that change it, and sends.
import type { Random } from "../../helpers/random.ts";
import type { Step } from "../time.ts";
import { pause, type World } from "../world.ts";

const STEPS = [
  /^eth_sendRaw/,
  /^(purser-reserve|settlement-accept|withdrawal)/,
  // Most of what went wrong once went wrong around these two.
  /^settlement-accept/,
  /^settlement-accept/,
  /^lane-persist/,
  /^lane-persist/,
  /^(transaction-final|settlements-finalize)/,
  /^settlements-claim/,
  /^COMMIT$/,
  /^(UPDATE|INSERT|DELETE)/,
  /^SELECT \S*purser_/,
  /./,
];

/** One kind of step, at one of its two moments. */
export function moneyStep(random: Random): (step: Step) => boolean {
  const text = random.pick(STEPS);
  const moment = random.next() < 0.5 ? "before" : "after";
  return (step) => step.moment === moment && text.test(step.text);
}

/** Looks at each step until it is done, or the time is over. */
export async function watchSteps(
  world: World,
  limitMs: number,
  look: (step: Step) => "go on" | "done",
): Promise<void> {
  const { stepWatchers } = world.timeline;
  const watch = (step: Step): void => {
    if (look(step) === "done") stepWatchers.delete(watch);
  };
  stepWatchers.add(watch);
  for (let waitedMs = 0; waitedMs < limitMs && stepWatchers.has(watch); waitedMs += LOOK_MS)
    await pause(LOOK_MS);
  stepWatchers.delete(watch);
}
const LOOK_MS = 500;
