/** Creates the vault that has the keys: for the service, or for the custody process. */
import type { FastifyInstance } from "fastify";
import { addressOf, isPrivateKey, sign } from "../../core/signatures.ts";
import { OwnerSignatures } from "../orders/signatures.ts";
import { memberLists, passkeyLists, payoutOrders } from "../orders/store.ts";
import {
  findApproval,
  findPolicy,
  findSecond,
  findWithdrawal,
  readEvidence,
  walletsOf,
} from "./store.ts";
import { hasPaidAt } from "./paid-sites.ts";
import { Covers } from "./covers.ts";
import { KeyRing } from "./envelope.ts";
import { Vault } from "./vault.ts";
import { SealChanges } from "./seal-changes.ts";

type Parts = Pick<FastifyInstance, "config" | "pool" | "prisma" | "chains" | "kms">;

/** `trustsCaller`: the caller is in this process, which has verified the owner's signature of the change of a seal. */
export function vaultHere(app: Parts, { trustsCaller }: { trustsCaller: boolean }): Vault {
  const { config, pool, prisma, chains, kms } = app;
  const signatures = new OwnerSignatures({
    chains,
    places: config.passkeys,
    listsOf: passkeyLists(prisma),
    membersOf: memberLists(prisma),
  });
  const orders = {
    isSigned: signatures.isSigned.bind(signatures),
    findSecond: (agentId: string) => findSecond(prisma, agentId),
  };
  return new Vault({
    ring: new KeyRing(config.masterKeys, config.masterKeyActive, {
      kms,
      cacheMs: config.timings.kmsCacheMs,
    }),
    curve: { addressOf, isPrivateKey, sign },
    cells: config.cells,
    networks: config.networks,
    channelKeys: config.channelKeys,
    covers: new Covers({
      ...orders,
      findPayouts: (owner) => payoutOrders(prisma, owner),
      load: walletsOf(pool),
      loadEvidence: (args) => readEvidence(pool, args),
      findWithdrawal: (agentId, nonce) => findWithdrawal(pool, agentId, nonce),
      findApproval: (agentId, approvalId) => findApproval(prisma, agentId, approvalId),
    }),
    hasPaid: (paidAt) => hasPaidAt(prisma, paidAt),
    sealChanges: trustsCaller
      ? undefined
      : new SealChanges({
          ...orders,
          findPolicy: (agentId, digest) => findPolicy(prisma, agentId, digest),
          nowSeconds: () => BigInt(Math.floor(Date.now() / 1_000)),
        }),
  });
}
