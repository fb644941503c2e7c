import { Type } from "typebox";
import {
  AddressInput,
  AddressOutput,
  Amount,
  Described,
  Digits,
  Hex32,
  NetworkId,
  Nullable,
  OneOf,
  Page,
  Strict,
  Timestamp,
  Id,
} from "./common.ts";
import { OrderSignature, problemWith } from "./orders.ts";

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
  ["wallet", "contract", "passkeys", "team"],
  "What the owner's account is: a wallet's key, a contract, only passkeys, or a team of several people",
);

export const TeamRole = OneOf(["viewer", "approver", "admin"], "What a member of a team may do");

export const Stopped = Type.Object(
  {
    at: Timestamp,
    by: Described(AddressOutput, "The wallet that stopped it: the owner's or the recovery wallet"),
    agents: Type.Integer({
      description: "How many agents it paused; resuming returns exactly these",
    }),
  },
  { description: "The owner stopped everything" },
);

export const StopAnswer = Type.Object({ success: Type.Literal(true), stopped: Stopped });
export const ResumeAnswer = Type.Object({
  success: Type.Literal(true),
  stopped: Type.Null(),
  agents: Type.Integer({ description: "How many agents are active again" }),
});

export const ResumeOrder = Strict({
  owner: AddressOutput,
  stoppedAt: Described(Digits, "In seconds: which stop it ends"),
  nonce: Hex32,
  deadline: Digits,
});
export const ResumeBody = Strict({
  authorization: Type.Optional(Strict({ order: ResumeOrder, signature: OrderSignature })),
});
export const ResumeProblem = problemWith(ResumeOrder);
export const resumeRefusals = { 403: ResumeProblem, 409: ResumeProblem };

export const SessionInfo = Type.Object({
  address: {
    ...AddressOutput,
    description: "The owner. With only passkeys it is just a name: nobody can use money there",
  },
  signsWith: SignsWith,
  signedInWith: OneOf(["wallet", "passkey"]),
  second: Nullable(AddressOutput),
  member: Nullable(
    Type.Object({ address: AddressOutput, role: TeamRole }),
    "You, if you act for a team: then the owner is the team",
  ),
  teams: Type.Array(Type.Object({ owner: AddressOutput, name: Type.String(), role: TeamRole }), {
    description: "The teams that you may act for",
  }),
  stopped: Nullable(Stopped),
  operator: Type.Optional(Type.Literal(true, { description: "You may open the operators' page" })),
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
