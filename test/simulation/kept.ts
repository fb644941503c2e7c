// Plans of worlds that were broken once, made as small as possible: they are played again with every change.
import { readdirSync, readFileSync } from "node:fs";
import type { Plan } from "./plan.ts";

export interface KeptPlan {
  /** What was wrong. */
  story: string;
  plan: Plan;
}

const FOLDER = new URL("kept/", import.meta.url);

export const keptNames = (): string[] =>
  readdirSync(FOLDER).flatMap((file) =>
    file.endsWith(".json") ? [file.slice(0, -".json".length)] : [],
  );

export const keptPlan = (name: string): KeptPlan =>
  JSON.parse(readFileSync(new URL(`${name}.json`, FOLDER), "utf8")) as KeptPlan;
