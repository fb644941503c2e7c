/** `npm run keys:rotate`: puts every wallet's data key under MASTER_KEY_ACTIVE, while the service runs. */
import { setTimeout as sleep } from "node:timers/promises";
import { readArguments, runAsProgram } from "../../infra/command-line.ts";
import { createPool, explainOutage, TIMEOUTS } from "../../infra/db/pool.ts";
import { createPrisma, type PrismaClient } from "../../infra/db/prisma.ts";
import { actAsOperator } from "../audit/operators.ts";
import { ConfigError, loadConfig } from "../../config.ts";
import { isKeysUnavailable } from "../../infra/kms.ts";
import { CustodyError, KeyRing, rewrapWallet } from "./envelope.ts";
import { createSecretBox, kidOfSealed } from "./secret-box.ts";
import { nameOf } from "./shared-secret.ts";
import {
  countWalletsByKid,
  keepServiceSecret,
  listServiceSecrets,
  lockWalletsNotUnder,
  updateWrappings,
} from "./store.ts";

const USAGE = `npm run keys:rotate

Puts every wallet's data key under MASTER_KEY_ACTIVE, while the service runs.

1. Add the new key to MASTER_KEYS everywhere, keep the old one, and restart the replicas.
2. Point MASTER_KEY_ACTIVE at it, and run this with the same environment. You may stop and repeat it.
3. When it reports that no wallet needs another key, remove the old key from MASTER_KEYS.

The same from the environment to a KMS and back. Where custody is a process of its own: with that process' environment,
and a DATABASE_URL that may write.`;

async function main(): Promise<void> {
  readArguments(process.argv.slice(2), USAGE, {});
  const config = loadConfig(process.env, process.env["CUSTODY_SOCKET"] ? "custody" : "service");
  if (config.databaseUrl === undefined || config.masterKeys.length === 0)
    throw new ConfigError([
      "keys:rotate needs DATABASE_URL and MASTER_KEYS, as the replicas have them",
    ]);
  const pool = createPool(config.databaseUrl, {
    // A batch waits for the KMS, which may throttle.
    timeouts: TIMEOUTS.jobs,
    maxConnections: 2,
    applicationName: "purser-keys-rotate",
  });
  const ring = new KeyRing(config.masterKeys, config.masterKeyActive);
  try {
    const prisma = createPrisma(pool);
    const kid = config.masterKeyActive;
    await actAsOperator(prisma, config, "keys.rotation_began", { kid });
    console.log(`Re-wrapping wallets to master key "${config.masterKeyActive}".`);
    const { rewrapped, remaining } = await rotateMasterKey(prisma, ring, (progress) =>
      console.log(`  ${progress.rewrapped} re-wrapped, ${progress.remaining} left`),
    );
    const secrets = await rotateSecrets(prisma, ring);
    if (secrets > 0) console.log(`  ${secrets} sealed secrets as well`);
    const webhooks = await prisma.webhook.count({ where: { NOT: { secretKid: kid } } });
    if (webhooks > 0)
      console.log(
        `  A running service re-encrypts the secrets of ${webhooks} webhooks within a minute. Keep the old key until then.`,
      );
    await actAsOperator(prisma, config, "keys.rotation_ended", {
      kid,
      rewrapped,
      remaining,
      secrets,
    });
    if (remaining > 0) {
      console.error(
        `Another run is working on ${remaining} wallets. Run this command again when it is done.`,
      );
      process.exitCode = 1;
      return;
    }
    console.log(
      `Done: ${rewrapped} re-wrapped. No wallet needs another master key than "${config.masterKeyActive}".`,
    );
  } finally {
    await ring.close();
    await pool.end();
  }
}

interface RotationProgress {
  rewrapped: number;
  remaining: number;
}

export const ROTATION_BATCH = 200;
/** Two hundred calls to a KMS take a while. */
const BATCH_TIME = { timeout: 30_000 };

/**
 * Re-wraps every data key to the active master key in batches, each in its own transaction: a killed run leaves whole
 * batches, and the next run continues. Replicas continue to sign, as long as their MASTER_KEYS contain both keys; a
 * concurrent run skips the rows that this one has locked.
 */
export async function rotateMasterKey(
  prisma: PrismaClient,
  ring: KeyRing,
  report: (progress: RotationProgress) => void,
  batchSize = ROTATION_BATCH,
): Promise<RotationProgress> {
  const { kid } = ring.active;
  let rewrapped = 0;
  for (;;) {
    const done = await patiently(() =>
      prisma.$transaction(async (tx) => {
        const wallets = await lockWalletsNotUnder(tx, kid, batchSize);
        const changes = await inGroups(wallets, async (wallet) => ({
          agentId: wallet.agentId,
          fromKid: wallet.kid,
          sealed: await rewrapWallet(ring, wallet, wallet),
        }));
        if (changes.length > 0) await updateWrappings(tx, changes);
        return wallets.length;
      }, BATCH_TIME),
    );
    rewrapped += done;
    const counts = await countWalletsByKid(prisma);
    counts.delete(kid);
    const remaining = [...counts.values()].reduce((sum, count) => sum + count, 0);
    report({ rewrapped, remaining });
    // Nothing left to lock: either all is done, or another run holds the rest.
    if (done === 0) return { rewrapped, remaining };
  }
}

/** Limits concurrent calls: a KMS has a quota, which the running service needs too. */
const AT_ONCE = 16;

async function inGroups<T, R>(items: readonly T[], work: (item: T) => Promise<R>): Promise<R[]> {
  const done: R[] = [];
  for (let index = 0; index < items.length; index += AT_ONCE)
    done.push(...(await Promise.all(items.slice(index, index + AT_ONCE).map(work))));
  return done;
}

/** Re-wraps the secrets that the service keeps besides wallets. */
async function rotateSecrets(prisma: PrismaClient, ring: KeyRing): Promise<number> {
  const box = createSecretBox(ring);
  let count = 0;
  for (const { purpose, sealed } of await listServiceSecrets(prisma)) {
    if (kidOfSealed(sealed) === ring.active.kid) continue;
    const name = nameOf(purpose);
    const anew = await patiently(async () => box.seal(name, await box.open(name, sealed)));
    if (await keepServiceSecret(prisma, purpose, anew, sealed)) count += 1;
  }
  return count;
}

const whyAway = (error: unknown): string => {
  const { cause } = error as Error;
  return `The KMS does not respond: ${cause instanceof Error ? cause.message : String(cause)}`;
};

const TRIES = 5;

/** Retries, so that a KMS that is busy for a moment does not end a long run. */
async function patiently<T>(work: () => Promise<T>): Promise<T> {
  for (let tried = 1; ; tried += 1) {
    try {
      return await work();
    } catch (error) {
      if (!isKeysUnavailable(error) || tried === TRIES) throw error;
      await sleep(tried * 1_000);
    }
  }
}

await runAsProgram(
  import.meta.url,
  () =>
    main().catch((error: unknown) => {
      if (!isKeysUnavailable(error)) throw error;
      console.error(whyAway(error), "Run this command again to continue.");
      process.exitCode = 1;
    }),
  {
    ours: (error) => error instanceof ConfigError || error instanceof CustodyError,
    explain: explainOutage,
  },
);
