import { Type } from "typebox";
import {
  AddressInput,
  AddressOutput,
  Amount,
  NetworkId,
  Nullable,
  OneOf,
  Page,
  Strict,
  Timestamp,
  Id,
} from "./common.ts";

export const Nonce = Type.Object({
  nonce: Type.String({
    examples: ["mYx0Jr3ZbqT9cWvE"],
    description: "For the sign-in message; works once, within 10 minutes",
  }),
});

export const SignInBody = Strict({
  message: Type.String({
    minLength: 1,
    maxLength: 8_192,
    description: "The EIP-4361 (SIWE) message, exactly as it was signed",
  }),
  signature: Type.String({
    minLength: 2,
    maxLength: 65_536,
    description: "personal_sign signature; ERC-1271 and ERC-6492 wallets work too",
  }),
  owner: Type.Optional({
    ...AddressInput,
    description:
      "The owner whose recovery wallet signed this; without it the wallet signs in for itself",
  }),
});

export const SignedIn = Type.Object({ address: AddressOutput });

export const SignsWith = OneOf(
  ["wallet", "contract", "passkeys"],
  "What the owner's account is: a wallet's key, a contract, or only passkeys",
);

export const SessionInfo = Type.Object({
  address: {
    ...AddressOutput,
    description: "The owner. With only passkeys it is just a name: nobody can use money there",
  },
  signsWith: SignsWith,
  signedInWith: OneOf(["wallet", "passkey"]),
  second: Nullable(AddressOutput),
  sessionId: Id,
  createdAt: Timestamp,
  expiresAt: Timestamp,
});

export const OpenSession = Type.Object({
  id: Id,
  createdAt: Timestamp,
  lastSeenAt: Timestamp,
  expiresAt: Timestamp,
  userAgent: Type.String(),
  ip: Type.String(),
  current: Type.Boolean({ description: "The current session" }),
});
export const SessionPage = Page(OpenSession);

export const Done = Type.Object({ success: Type.Literal(true) });

export const OwnerBalanceQuery = Strict({ network: Type.Optional(NetworkId) });
export const OwnerBalance = Type.Object({
  network: NetworkId,
  address: AddressOutput,
  balance: Amount,
});
