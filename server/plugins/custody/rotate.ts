import type { PrismaClient } from "../../infra/db/prisma.ts";
import { countWalletsByKid, lockWalletsNotUnder, updateWrappings } from "./store.ts";
import { rewrapWallet, type KeyRing } from "./envelope.ts";

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
