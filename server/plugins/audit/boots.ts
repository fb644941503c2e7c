/**
 * Records which configuration keys changed since the last start, by name only. Values are stored as slow hashes with a
 * salt of this database, which show that a value changed but do not reveal it.
 */
import { randomBytes } from "node:crypto";
import { setImmediate as others } from "node:timers/promises";
import { scrypt } from "hash-wasm";
import { readTexts, type Config, type Environment } from "../../config.ts";
import type { PrismaClient } from "../../infra/db/prisma.ts";
import { BUILD, VERSION } from "../../infra/version.ts";
import { actAsOperator, lastOperatorActs, lockOperators } from "./operators.ts";

/** These differ between replicas. */
const OF_ONE_REPLICA = new Set(["HOST", "PORT", "OPERATOR", "WORKERS"]);
/** 8 MB each, in WebAssembly: once glibc has freed that much memory, each of its arenas would keep twice as much. */
const COST = { costFactor: 2 ** 13, blockSize: 8, parallelism: 1, hashLength: 16 };

/** A secret's file is found by its name; its content is hashed. */
const keysSet = (environment: Environment): Record<string, string> =>
  Object.fromEntries(
    [...readTexts(environment, "service", [])].filter(([key]) => !OF_ONE_REPLICA.has(key)),
  );

interface Noted {
  version: string;
  /** Not in the entries of earlier builds. */
  commit?: string;
  salt: string;
  /** The hash of all values together. */
  whole?: string;
  values: Record<string, string>;
}

/** Writes an entry if this start's configuration or build differs from the last one; returns the changed keys. */
export async function noteBoot(
  prisma: PrismaClient,
  config: Pick<Config, "operator">,
  environment: Environment,
): Promise<string[]> {
  const read = () => lastOperatorActs(prisma, { take: 1, action: "service.configured" });
  const [last] = await read();
  const before = last?.what as Noted | undefined;
  const salt = before?.salt ?? randomBytes(16).toString("hex");
  const slowHash = async (password: string): Promise<string> => {
    // A hash blocks this thread for 25 ms, so requests are handled in between.
    await others();
    return scrypt({ ...COST, password, salt: Buffer.from(salt, "hex"), outputType: "hex" });
  };
  const set = keysSet(environment);
  // The usual case: one hash shows that nothing changed.
  const whole = await slowHash(JSON.stringify(sorted(set)));
  if (before?.whole === whole && isThisBuild(before)) return [];
  const values: Record<string, string> = {};
  for (const [key, value] of Object.entries(set)) values[key] = await slowHash(`${key}=${value}`);
  const known = before?.values ?? {};
  const names = [...new Set([...Object.keys(known), ...Object.keys(values)])].sort();
  const changed = names.filter((key) => known[key] !== values[key]);
  if (before && changed.length === 0 && isThisBuild(before)) return [];
  await prisma.$transaction(async (tx) => {
    // Replicas that start together record it once.
    await lockOperators(tx);
    const [newest] = await lastOperatorActs(tx, { take: 1, action: "service.configured" });
    if (newest?.seq !== last?.seq && isSame(newest?.what as unknown as Noted, values)) return;
    const what = {
      version: VERSION,
      ...BUILD,
      changed: before ? changed : [],
      salt,
      whole,
      values,
    };
    await actAsOperator(tx, config, "service.configured", what);
  });
  return before ? changed : [];
}

const isThisBuild = ({ version, commit }: Noted): boolean =>
  version === VERSION && commit === BUILD.commit;

const isSame = (noted: Noted, values: Record<string, string>): boolean =>
  isThisBuild(noted) && JSON.stringify(sorted(noted.values)) === JSON.stringify(sorted(values));

const sorted = (values: Record<string, string>) =>
  Object.entries(values).toSorted(([one], [other]) => (one < other ? -1 : 1));
