import { PASSKEYS_CHAIN } from "../../core/passkeys.ts";
import { databaseNow, type Db } from "../../infra/db/prisma.ts";
import type { FirstSteps } from "../../schemas/first-steps.ts";
import { secondWalletOf } from "../owners/store.ts";

interface Found {
  isHidden: boolean;
  agentId: string | null;
  funded: boolean;
  key: boolean;
  paid: boolean;
  notified: boolean;
  hasSpare: boolean;
}

export async function readFirstSteps(db: Db, ownerId: string): Promise<FirstSteps> {
  // SQL: each question ends at the first row that answers it, and the clock is the database's.
  const rows = await db.$queryRaw<Found[]>`
    SELECT o.first_steps_hidden_at IS NOT NULL AS "isHidden",
           (SELECT a.id FROM agents a WHERE a.owner_id = o.id AND a.archived_at IS NULL
             ORDER BY a.created_at DESC, a.id DESC LIMIT 1) AS "agentId",
           EXISTS (SELECT 1 FROM agents a JOIN payments p ON p.agent_id = a.id
                    WHERE a.owner_id = o.id AND p.kind = 'incoming') AS funded,
           EXISTS (SELECT 1 FROM agents a JOIN api_keys k ON k.agent_id = a.id
                    WHERE a.owner_id = o.id AND a.archived_at IS NULL AND k.revoked_at IS NULL
                      AND (k.expires_at IS NULL OR k.expires_at > now())) AS key,
           EXISTS (SELECT 1 FROM agents a JOIN payments p ON p.agent_id = a.id
                    WHERE a.owner_id = o.id AND p.counted AND p.status = 'settled') AS paid,
           EXISTS (SELECT 1 FROM push_devices d WHERE d.owner_id = o.id)
             OR EXISTS (SELECT 1 FROM email_addresses e
                         WHERE e.owner_id = o.id AND e.confirmed_at IS NOT NULL AND e.stopped_at IS NULL) AS notified,
           (SELECT count(*) FROM passkeys k WHERE k.owner_id = o.id AND k.status = 'active')
             >= CASE WHEN o.chain_id = ${PASSKEYS_CHAIN} THEN 2 ELSE 1 END AS "hasSpare"
      FROM owners o WHERE o.id = ${ownerId}`;
  const [found] = rows;
  if (!found) throw new Error("a session without an owner");
  const { isHidden, agentId, hasSpare, ...steps } = found;
  const recovery = hasSpare || (await secondWalletOf(db, ownerId)) !== undefined;
  return { isOpen: !isHidden && !steps.paid, agentId, steps: { ...steps, recovery } };
}

export async function hideFirstSteps(db: Db, ownerId: string): Promise<void> {
  await db.owner.updateMany({
    where: { id: ownerId, firstStepsHiddenAt: null },
    data: { firstStepsHiddenAt: await databaseNow(db) },
  });
}
