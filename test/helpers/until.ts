// Polls a condition with a deadline, so that no test sleeps for a guessed time.
import { setTimeout as sleep } from "node:timers/promises";

export async function until(
  condition: () => Promise<boolean> | boolean,
  timeoutMs = 10_000,
): Promise<void> {
  const deadlineMs = performance.now() + timeoutMs;
  while (!(await condition())) {
    if (performance.now() > deadlineMs)
      throw new Error(`not true within ${timeoutMs} ms: ${condition.toString()}`);
    await sleep(25);
  }
}
