/** Wire types of passkeys, and of the payout address of an owner without a wallet. */
import { Type, type Static } from "typebox";
import {
  AddressInput,
  AddressOutput,
  Digits,
  Hex32,
  Nullable,
  OneOf,
  Strict,
  Timestamp,
} from "./common.ts";
import { authorizationOf, problemWith } from "./orders.ts";
import { Nonce, SignsWith } from "./owners.ts";

export const RelatedOrigins = Type.Object({ origins: Type.Array(Type.String()) });

/** A credential is small; the largest part is the authenticator's statement. */
const Base64Url = (maxLength: number, description: string) =>
  Type.String({ pattern: "^[A-Za-z0-9_-]+$", maxLength, description });

const credential = {
  id: Base64Url(1_400, "The credential's id"),
  rawId: Base64Url(1_400, "The same"),
  type: Type.Literal("public-key"),
  authenticatorAttachment: Type.Optional(Nullable(Type.String({ maxLength: 40 }))),
  clientExtensionResults: Type.Optional(Type.Record(Type.String(), Type.Unknown())),
};

/** `RegistrationResponseJSON` of WebAuthn. */
const NewCredential = Strict(
  {
    ...credential,
    response: Strict({
      clientDataJSON: Base64Url(8_000, "What the browser says"),
      attestationObject: Base64Url(16_000, "The new key"),
      authenticatorData: Type.Optional(Type.String({ maxLength: 16_000 })),
      publicKey: Type.Optional(Type.String({ maxLength: 4_000 })),
      publicKeyAlgorithm: Type.Optional(Type.Integer()),
      transports: Type.Optional(Type.Array(Type.String({ maxLength: 40 }), { maxItems: 10 })),
    }),
  },
  { description: "The browser's `RegistrationResponseJSON`" },
);
export type NewCredential = Static<typeof NewCredential>;

/** `AuthenticationResponseJSON` of WebAuthn. */
const Assertion = Strict(
  {
    ...credential,
    response: Strict({
      clientDataJSON: Base64Url(8_000, "What the browser says"),
      authenticatorData: Base64Url(8_000, "What the device says"),
      signature: Base64Url(400, "Of both"),
      userHandle: Type.Optional(Nullable(Type.String({ maxLength: 200 }))),
    }),
  },
  { description: "The browser's `AuthenticationResponseJSON`" },
);
export type Assertion = Static<typeof Assertion>;

const Options = Type.Record(Type.String(), Type.Unknown(), {
  description: "Options of WebAuthn as JSON, ready for the browser",
});
export const PasskeyOptions = Type.Object({ nonce: Nonce.properties.nonce, options: Options });

const nonce = Type.String({
  minLength: 8,
  maxLength: 128,
  description: "Of the options",
  examples: ["mYx0Jr3ZbqT9cWvE"],
});
const PasskeyName = Type.String({
  minLength: 1,
  maxLength: 60,
  description: "For people: which device has it",
  examples: ["MacBook"],
});
export const NewPasskeyBody = Strict({ nonce, name: PasskeyName, credential: NewCredential });
export const PasskeySignInBody = Strict({ nonce, credential: Assertion });

const PasskeyId = Type.String({ pattern: "^[A-Za-z0-9_-]{1,1400}$" });
const Passkey = Type.Object({
  id: PasskeyId,
  name: Type.String(),
  x: Hex32,
  y: Hex32,
  status: OneOf(
    ["offered", "active", "removed"],
    "offered: in no list that the owner signed, so it signs nothing yet",
  ),
  transports: Type.Array(Type.String()),
  createdAt: Timestamp,
  usedAt: Nullable(Timestamp),
});
export const Passkeys = Type.Object({
  signsWith: SignsWith,
  passkeys: Type.Array(Passkey),
  version: Type.Integer({ description: "Of the list that the owner signed last; 0 before that" }),
});

const singleUse = { nonce: Hex32, deadline: Digits };
export const PasskeysOrder = Strict({
  owner: AddressOutput,
  version: Digits,
  passkeys: Type.Array(Strict({ name: Type.String({ maxLength: 60 }), x: Hex32, y: Hex32 }), {
    maxItems: 100,
  }),
  ...singleUse,
});
export const SignPasskeysBody = Strict({
  ids: Type.Array(PasskeyId, {
    maxItems: 100,
    uniqueItems: true,
    description: "All passkeys that may sign from now on",
  }),
  authorization: authorizationOf(PasskeysOrder),
});
export const PasskeysProblem = problemWith(PasskeysOrder);
export const passkeysRefusals = { 403: PasskeysProblem, 409: PasskeysProblem };

export const PayoutAddressOrder = Strict({
  owner: AddressOutput,
  version: Digits,
  payout: AddressOutput,
  ...singleUse,
});
export const PayoutBody = Strict({
  address: { ...AddressInput, description: "The only address to which the owner withdraws" },
  authorization: authorizationOf(PayoutAddressOrder),
});
export const Payout = Type.Object({
  address: Nullable(AddressOutput, "In force; null before the first one"),
  since: Nullable(Timestamp, "When it came into force"),
  next: Nullable(
    Type.Object({ address: AddressOutput, from: Timestamp }),
    "A change that waits for 24 hours",
  ),
});
export const PayoutAddressProblem = problemWith(PayoutAddressOrder);
export const payoutRefusals = { 403: PayoutAddressProblem, 409: PayoutAddressProblem };
