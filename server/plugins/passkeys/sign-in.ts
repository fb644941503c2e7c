/** Sign-up and sign-in with a passkey: nonce, the browser's answer, session. */
import { hashMessage, type Address, type Hex } from "viem";
import { signatureOfAssertion } from "../../../packages/rules/src/assertions.ts";
import {
  addressOfPasskey,
  isSameKey,
  PASSKEYS_CHAIN,
  passkeyThatSigned,
  type PasskeyPlaces,
} from "../../core/passkeys.ts";
import type { PrismaClient } from "../../infra/db/prisma.ts";
import type { Assertion, NewCredential } from "../../schemas/passkeys.ts";
import { countPasskeyUse } from "../orders/store.ts";
import { freshNonce, noteRefusal, openSession, refused, type Caller } from "../owners/sign-in.ts";
import { ensureOwner } from "../owners/store.ts";
import { readName } from "./name.ts";
import { insertPasskey } from "./store.ts";
import { challengeText, readNewPasskey } from "./webauthn.ts";

export interface SignInDeps {
  prisma: PrismaClient;
  places: PasskeyPlaces;
  /** The host of our pages, as the signed text names it. */
  host: string;
}

interface SignedIn {
  address: Address;
  token: string;
}

/** Creates an owner with its first passkey. The owner is named by that passkey's key, and signs with it at once. */
export async function signUp(
  by: Caller,
  body: { nonce: string; name: string; credential: NewCredential },
  { prisma, places, host }: SignInDeps,
): Promise<SignedIn> {
  const name = readName(body.name);
  await freshNonce(prisma, body.nonce);
  const text = challengeText("create", host, body.nonce);
  const made = await readNewPasskey(places, text, body.credential);
  const address = addressOfPasskey(made.key);
  const token = await prisma.$transaction(async (tx) => {
    const ownerId = await ensureOwner(tx, address, PASSKEYS_CHAIN);
    await insertPasskey(tx, made, { ownerId, name, status: "active" });
    const action = "owner.created";
    return openSession(tx, by, { ownerId, actor: address, action, passkeyId: made.id });
  });
  return { address, token };
}

/** The nonce is deleted before anything is verified, so an answer works at most once in any case. */
export async function signInWithPasskey(
  by: Caller,
  body: { nonce: string; credential: Assertion },
  { prisma, places, host }: SignInDeps,
): Promise<SignedIn> {
  await freshNonce(prisma, body.nonce);
  const message = challengeText("sign-in", host, body.nonce);
  const row = await prisma.passkey.findUnique({
    where: { id: body.credential.id },
    include: { owner: { select: { address: true, chainId: true } } },
  });
  if (!row) throw refused(WHY.unknown);
  if (row.status !== "active") throw refused(row.status === "offered" ? WHY.offered : WHY.removed);
  const key = { x: row.x, y: row.y };
  const signature = signatureOfAssertion(key, body.credential.response) as Hex | undefined;
  const signedBy =
    signature && passkeyThatSigned({ hash: hashMessage(message), signature }, places);
  if (!signature || !signedBy || !isSameKey(signedBy.key, key)) {
    await noteRefusal(prisma, [row.ownerId], by);
    throw refused("this passkey did not sign this request, at this address of the service");
  }
  const address = row.owner.address as Address;
  const token = await prisma.$transaction(async (tx) => {
    if (!(await countPasskeyUse(tx, row.ownerId, signedBy))) return undefined;
    // Read again under the row's lock: it may have been removed meanwhile.
    const now = await tx.passkey.findUnique({ where: { id: row.id }, select: { status: true } });
    if (now?.status !== "active") throw refused(WHY.removed);
    return openSession(tx, by, {
      ownerId: row.ownerId,
      actor: address,
      action: "session.created",
      passkeyId: row.id,
      proof: {
        kind: "message",
        message,
        signer: address,
        chainId: Number(row.owner.chainId),
        signature,
      },
    });
  });
  if (token === undefined) {
    await noteRefusal(prisma, [row.ownerId], by);
    throw refused(WHY.countedBack);
  }
  return { address, token };
}

const WHY = {
  unknown: "this passkey is not known here; create one, or sign in with your wallet",
  offered: "this passkey is not in the list that its owner signed",
  removed: "its owner removed this passkey",
  countedBack:
    "this passkey's device has counted fewer signatures than before, so a copy of it may exist; sign in with another passkey, and remove this one",
};
