import { lineOf } from "../infra/db/pool.ts";

/** The doctor's findings: for each check whether it is well, and what to do if it is not. */
type Level = "ok" | "warning" | "wrong";

export interface Finding {
  /** For programs. The name of the check, or of one cause where a check finds several. */
  code: string;
  /** The subject of the check: `database`, `rpc eip155:8453 #2`. */
  check: string;
  level: Level;
  says: string;
  /** What to do, unless the level is ok. */
  todo?: string;
}

/** `rpc eip155:8453 #2 (host) token` is `rpc_token`: without what differs between deployments. */
export const codeOf = (check: string): string =>
  check
    .split(" ")
    .filter((word) => /^[A-Za-z_]+['’]?s?$/.test(word))
    .join("_")
    .replaceAll(/['’]/g, "")
    .toLowerCase();

export const ok = (check: string, says: string): Finding => ({
  code: codeOf(check),
  check,
  level: "ok",
  says,
});
export const warning = (
  check: string,
  says: string,
  todo: string,
  code = codeOf(check),
): Finding => ({ code, check, level: "warning", says, todo });
export const wrong = (
  check: string,
  says: string,
  todo: string,
  code = codeOf(check),
): Finding => ({ code, check, level: "wrong", says, todo });

const EXIT: Record<Level, number> = { ok: 0, warning: 1, wrong: 2 };

export const exitCodeOf = (findings: readonly Finding[]): number =>
  Math.max(0, ...findings.map(({ level }) => EXIT[level]));

const WIDTH = 8;

export const linesOf = ({ check, level, says, todo }: Finding): string[] => [
  `${level.padEnd(WIDTH)}${check}: ${says}`,
  ...(todo === undefined ? [] : [`${" ".repeat(WIDTH)}-> ${todo}`]),
];

/** A check that fails to run becomes a finding as well, and does not stop the others. */
export async function found(
  check: string,
  look: () => Promise<Finding | Finding[]>,
  options: { todo: string; level?: "warning" | "wrong"; code?: string },
): Promise<Finding[]> {
  try {
    return [await look()].flat();
  } catch (error) {
    const says = error instanceof Error ? lineOf(error) : "no response";
    const { level = "wrong", todo, code = codeOf(check) } = options;
    return [{ code, check, level, says, todo }];
  }
}

export function durationOf(seconds: number): string {
  if (seconds < 120) return `${Math.round(seconds * 10) / 10} s`;
  if (seconds < 7_200) return `${Math.round(seconds / 60)} minutes`;
  return seconds < 172_800
    ? `${Math.round(seconds / 3_600)} hours`
    : `${Math.round(seconds / 86_400)} days`;
}
