/**
 * `npm run keys:rotate`: puts every wallet's data key under MASTER_KEY_ACTIVE, while the service runs.
 *
 * 1. Add the new key to MASTER_KEYS everywhere (keep the old one) and restart the replicas.
 * 2. Point MASTER_KEY_ACTIVE at it, and run this with the same environment. Stop and repeat at will.
 * 3. When it says that none are left under the old key, take the old key out of MASTER_KEYS.
 */
import { createPool } from "../../infra/db/pool.ts";
import { createPrisma } from "../../infra/db/prisma.ts";
import { ConfigError, loadConfig } from "../../config.ts";
import { CustodyError, KeyRing } from "./envelope.ts";
import { rotateMasterKey } from "./rotate.ts";

try {
  await main();
} catch (error) {
  const isOurs = error instanceof ConfigError || error instanceof CustodyError;
  console.error(isOurs ? error.message : error);
  process.exitCode = 1;
}

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
    console.log(`Re-wrapping wallets to master key "${config.masterKeyActive}".`);
    const { rewrapped, remaining } = await rotateMasterKey(createPrisma(pool), ring, (progress) =>
      console.log(`  ${progress.rewrapped} re-wrapped, ${progress.remaining} left`),
    );
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
