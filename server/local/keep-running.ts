// Restarts a child that ended without being asked to, so that one crash of the database or the chain does
// not end the whole local world.
import { setTimeout as delay } from "node:timers/promises";
import type { WardedChild } from "./warded-child.ts";

export interface KeepRunningOptions {
  name: string;
  first: WardedChild;
  /** Starts it again where it was: same port, same data. */
  restart: () => Promise<WardedChild>;
  onProgress: (line: string) => void;
}

export interface KeptRunning {
  /** Stops it and starts it again, on purpose. */
  recycle(): Promise<void>;
  stop(): Promise<void>;
}

const MAX_RESTARTS_PER_MINUTE = 3;
const RETRY_DELAY_MS = 1_000;

export function keepRunning(options: KeepRunningOptions): KeptRunning {
  let child = options.first;
  const state = { stopping: false };
  let recycling: (() => void) | undefined;
  let restarts: number[] = [];

  const watching = (async () => {
    for (;;) {
      const end = await child.ended;
      if (state.stopping) return;
      if (recycling === undefined && !mayRestart(end)) return;
      const next = await startAgain();
      if (next === undefined) return;
      child = next;
      recycling?.();
      recycling = undefined;
      if (state.stopping) await child.stop();
    }
  })();

  function mayRestart(end: { code: number | null; signal: string | null }): boolean {
    const how = end.signal ?? `code ${end.code}`;
    restarts = [...restarts.filter((at) => at > Date.now() - 60_000), Date.now()];
    if (restarts.length > MAX_RESTARTS_PER_MINUTE) {
      options.onProgress(`${options.name} keeps ending (${how}); it is not started again.`);
      return false;
    }
    options.onProgress(`${options.name} ended unexpectedly (${how}); starting it again.`);
    return true;
  }

  async function startAgain(): Promise<WardedChild | undefined> {
    for (let attempt = 0; attempt < MAX_RESTARTS_PER_MINUTE && !state.stopping; attempt += 1) {
      try {
        return await options.restart();
      } catch (error) {
        options.onProgress(`${options.name} did not start again: ${(error as Error).message}`);
        await delay(RETRY_DELAY_MS);
      }
    }
    return undefined;
  }

  return {
    async recycle() {
      if (state.stopping || recycling !== undefined) return;
      const done = new Promise<void>((resolve) => {
        recycling = resolve;
      });
      await child.stop();
      await Promise.race([done, watching]);
    },
    async stop() {
      state.stopping = true;
      await child.stop();
      await watching;
    },
  };
}
