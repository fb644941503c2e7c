/**
 * `npm run keys:rotate`: puts every wallet's data key under MASTER_KEY_ACTIVE, while the service runs.
 *
 * 1. Add the new key to MASTER_KEYS everywhere (keep the old one) and restart the replicas.
 * 2. Point MASTER_KEY_ACTIVE at it, and run this with the same environment. Stop and repeat at will.
 * 3. When it says that none are left under the old key, take the old key out of MASTER_KEYS.
 */
import { realpathSync } from "node:fs";
import { pathToFileURL } from "node:url";
import { createPool } from "../../infra/db/pool.ts";
import { createPrisma, type PrismaClient } from "../../infra/db/prisma.ts";
import { actAsOperator } from "../audit/operators.ts";
import { ConfigError, loadConfig } from "../../config.ts";
import { CustodyError, KeyRing, rewrapWallet } from "./envelope.ts";
import { countWalletsByKid, lockWalletsNotUnder, updateWrappings } from "./store.ts";

async function main(): Promise<void> {
  const config = loadConfig(process.env);
  if (config.databaseUrl === undefined || config.masterKeys.length === 0)
    throw new ConfigError([
      "keys:rotate needs DATABASE_URL and MASTER_KEYS, as the replicas have them",
    ]);
  const pool = createPool(config.databaseUrl, {
    maxConnections: 2,
    applicationName: "purser-keys-rotate",
  });
  try {
    const ring = new KeyRing(config.masterKeys, config.masterKeyActive);
    const prisma = createPrisma(pool);
    const kid = config.masterKeyActive;
    await actAsOperator(prisma, config, "keys.rotation_began", { kid });
    console.log(`Re-wrapping wallets to master key "${config.masterKeyActive}".`);
    const { rewrapped, remaining } = await rotateMasterKey(prisma, ring, (progress) =>
      console.log(`  ${progress.rewrapped} re-wrapped, ${progress.remaining} left`),
    );
    await actAsOperator(prisma, config, "keys.rotation_ended", { kid, rewrapped, remaining });
    if (remaining > 0) {
      console.error(
        `${remaining} wallets are held by another run; run this again when it is done.`,
      );
      process.exitCode = 1;
      return;
    }
    console.log(
      `Done: ${rewrapped} re-wrapped. No wallet needs another master key than "${config.masterKeyActive}".`,
    );
  } finally {
    await pool.end();
  }
}

export interface RotationProgress {
  rewrapped: number;
  remaining: number;
}

export const ROTATION_BATCH = 200;

/**
 * Re-wraps every data key to the active master key, batch by batch, each in a transaction of its own:
 * a killed run leaves whole batches, and the next run goes on with the rest. Replicas sign meanwhile,
 * as long as their MASTER_KEYS hold both keys; a second run skips the rows this one holds.
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
    const done = await prisma.$transaction(async (tx) => {
      const wallets = await lockWalletsNotUnder(tx, kid, batchSize);
      const changes = wallets.map((wallet) => ({
        agentId: wallet.agentId,
        fromKid: wallet.kid,
        sealed: rewrapWallet(ring, wallet, wallet),
      }));
      if (changes.length > 0) await updateWrappings(tx, changes);
      return wallets.length;
    });
    rewrapped += done;
    const counts = await countWalletsByKid(prisma);
    counts.delete(kid);
    const remaining = [...counts.values()].reduce((sum, count) => sum + count, 0);
    report({ rewrapped, remaining });
    // Nothing left to lock: either all is done, or another run holds the rest.
    if (done === 0) return { rewrapped, remaining };
  }
}

// Imported by a test it only lends its functions. A link in the path must not make it do nothing.
if (import.meta.url === pathToFileURL(realpathSync(process.argv[1] ?? ".")).href) {
  try {
    await main();
  } catch (error) {
    const isOurs = error instanceof ConfigError || error instanceof CustodyError;
    console.error(isOurs ? error.message : error);
    process.exitCode = 1;
  }
}
