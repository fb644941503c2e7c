/** Wire types of web push: the devices of an owner. */
import { Type, type Static } from "typebox";
import { Id, Nullable, OneOf, Page, Strict, Timestamp } from "./common.ts";
import { URGENT_TYPES } from "./email.ts";

const PushTypes = Type.Array(OneOf(URGENT_TYPES), {
  minItems: 1,
  maxItems: 40,
  uniqueItems: true,
  description:
    "The events that are pushed. A device added without it gets those that need a decision, or that a thief would cause. `agent.limit_reached` and `budget.limit_reached` at 100 %, and `session.created` from a new device",
  examples: [["approval.requested", "key.created"]],
});
const DeviceLabel = Type.String({
  minLength: 1,
  maxLength: 80,
  description: "How the owner recognizes the device",
  examples: ["Chrome on Android"],
});

export const PushDevice = Type.Object({
  id: Id,
  label: DeviceLabel,
  service: Type.String({
    description: "The host of the browser's push service",
    examples: ["fcm.googleapis.com"],
  }),
  endpointHash: Type.String({
    pattern: "^[0-9a-f]{64}$",
    description: "SHA-256 of the subscription's endpoint: a browser recognizes itself by it",
    examples: ["9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"],
  }),
  types: PushTypes,
  deliveredAt: Nullable(Timestamp, "The last message that the push service took; null: none yet"),
  failingSince: Nullable(Timestamp, "Since when messages fail; null: they work"),
  lastError: Nullable(Type.String()),
  createdAt: Timestamp,
});
export type PushDevice = Static<typeof PushDevice>;

export const PushDevicePage = Type.Object({
  ...Page(PushDevice).properties,
  publicKey: Nullable(
    Type.String({
      pattern: "^[A-Za-z0-9_-]{87}$",
      examples: [
        "BBPpuu79TFkKDuVZQvPE-HM1gTmiShSPXGkSoOL5Xh0ycrMEdnoAjQbdjbIgUMgQpLRFQ46MJxdfPmQP4Nq7yHA",
      ],
    }),
    "The `applicationServerKey` of subscriptions; null: this service sends no push messages",
  ),
});
export type PushDevicePage = Static<typeof PushDevicePage>;

export const NewPushDeviceBody = Strict({
  endpoint: Type.String({
    minLength: 1,
    maxLength: 2_000,
    description: "Of the browser's subscription. https, and public",
    examples: ["https://fcm.googleapis.com/fcm/send/c1KrmpTuRm0"],
  }),
  keys: Strict({
    p256dh: Type.String({
      pattern: "^[A-Za-z0-9_-]{87}$",
      description: "The browser's public key, in base64url",
      examples: [
        "BBPpuu79TFkKDuVZQvPE-HM1gTmiShSPXGkSoOL5Xh0ycrMEdnoAjQbdjbIgUMgQpLRFQ46MJxdfPmQP4Nq7yHA",
      ],
    }),
    auth: Type.String({
      pattern: "^[A-Za-z0-9_-]{22}$",
      description: "The shared secret, in base64url",
      examples: ["BTBZMqHH6r4Tts7J_aSIgg"],
    }),
  }),
  label: Type.Optional(DeviceLabel),
  types: Type.Optional(PushTypes),
});
export const PushDeviceChanges = Strict({ types: PushTypes });
export const OnePushDevice = Type.Object({ device: PushDevice });
export const PushTest = Type.Object({
  delivered: Type.Boolean({ description: "Whether the push service took the message" }),
  error: Nullable(Type.String()),
});
