/** The passkeys of an owner: a device makes one, and an order that the owner signs lists all that may sign. */
import { getAddress } from "viem";
import type { Static } from "typebox";
import { PASSKEYS_CHAIN } from "../../core/passkeys.ts";
import type { PasskeysOrder } from "../../core/orders.ts";
import { ApiError } from "../../errors.ts";
import type { NewPasskeyBody, SignPasskeysBody } from "../../schemas/passkeys.ts";
import { refuseField } from "../../core/refuse-field.ts";
import { revokePasskeySessions } from "../auth/sessions.ts";
import { SignatureNeeded, type Draft } from "../orders/orders.ts";
import { freshNonce } from "../owners/sign-in.ts";
import { lockOwner } from "../owners/store.ts";
import type { OwnerCall } from "./call.ts";
import type { SignInDeps } from "./sign-in.ts";
import { readName } from "./name.ts";
import {
  deleteOldOffers,
  insertPasskey,
  lastVersion,
  MAX_PASSKEYS,
  passkeysOf,
  setStatus,
  type PasskeyRow,
} from "./store.ts";
import { challengeText, readNewPasskey } from "./webauthn.ts";

/** Stores a new passkey. It signs nothing until an order lists it. */
export async function offerPasskey(
  { owner }: Pick<OwnerCall, "owner">,
  body: Static<typeof NewPasskeyBody>,
  { prisma, places, host }: SignInDeps,
): Promise<void> {
  const name = readName(body.name);
  await freshNonce(prisma, body.nonce);
  const text = challengeText("create", host, body.nonce);
  const made = await readNewPasskey(places, text, body.credential);
  await prisma.$transaction(async (tx) => {
    if (!(await lockOwner(tx, owner.id))) throw new ApiError("not_found");
    await deleteOldOffers(tx, owner.id);
    const kept = (await passkeysOf(tx, owner.id)).filter(({ status }) => status !== "removed");
    if (kept.length >= MAX_PASSKEYS)
      throw new ApiError("conflict", {
        detail: `An owner has at most ${MAX_PASSKEYS} passkeys. Remove one first.`,
      });
    await insertPasskey(tx, made, { ownerId: owner.id, name, status: "offered" });
  });
}

/** Sets which passkeys may sign: always with the owner's own signature. Sessions of removed ones end. */
export async function signPasskeys(
  call: OwnerCall,
  { ids, authorization }: Static<typeof SignPasskeysBody>,
): Promise<void> {
  const { owner, orders, chainId } = call;
  if (ids.length === 0 && owner.chainId === PASSKEYS_CHAIN)
    throw refuseField(
      "validation_failed",
      "body.ids",
      "is empty: without a wallet you keep at least one passkey",
    );
  const signed = authorization && (await orders.verify(owner, "Passkeys", authorization, chainId));
  await orders.requestingSignature(owner, () =>
    call.prisma.$transaction(async (tx) => {
      if (!(await lockOwner(tx, owner.id))) throw new ApiError("not_found");
      const all = await passkeysOf(tx, owner.id);
      const listed = ids.map((id) => usable(all, id));
      const version = (await lastVersion(tx, owner.id, "Passkeys")) + 1;
      const draft = passkeysDraft(call, version, listed);
      if (!signed) throw new SignatureNeeded(draft, "owner_signature_required");
      await orders.use(tx, owner, signed, draft);
      const removed = all
        .filter(({ id, status }) => status === "active" && !ids.includes(id))
        .map(({ id }) => id);
      await setStatus(tx, ids, "active");
      await setStatus(tx, removed, "removed");
      await revokePasskeySessions(tx, owner.id, removed);
    }),
  );
}

function usable(all: readonly PasskeyRow[], id: string): PasskeyRow {
  const row = all.find((one) => one.id === id);
  if (row && row.status !== "removed") return row;
  throw refuseField(
    "validation_failed",
    "body.ids",
    row
      ? `has the passkey ${row.name}, which was removed: make a new one`
      : "has a passkey that you do not have",
  );
}

const passkeysDraft = (
  { owner, chainId }: OwnerCall,
  version: number,
  listed: readonly PasskeyRow[],
): Draft<"Passkeys"> => ({
  kind: "Passkeys",
  // Not about an agent.
  agentId: "",
  chainId,
  // The column is of policies: the number of an owner's orders gives this version.
  version: null,
  build: ({ nonce, deadlineSeconds }): PasskeysOrder => ({
    owner: getAddress(owner.address),
    version: String(version),
    passkeys: listed.map(({ name, x, y }) => ({ name, x, y })),
    nonce,
    deadline: String(deadlineSeconds),
  }),
});
