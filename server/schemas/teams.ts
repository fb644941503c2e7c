/** Wire types of teams: their members, and the orders that wait for more of their signatures. */
import { Type, type Static } from "typebox";
import {
  AddressInput,
  AddressOutput,
  Amount,
  Described,
  Digits,
  Hex32,
  Id,
  Nullable,
  Page,
  Strict,
  Timestamp,
  TypedDataDomain,
  TypedDataMessage,
  TypedDataTypes,
} from "./common.ts";
import { authorizationOf, OrderSignature, problemWith } from "./orders.ts";
import { SignsWith, TeamRole } from "./owners.ts";

const Name = Type.String({ minLength: 1, maxLength: 60, examples: ["Acme Ltd"] });
const Threshold = Type.Integer({
  minimum: 1,
  maximum: 50,
  description: "How many admins must sign what loosens rules, withdraws, or changes the members",
});

const ApprovalAbove = Described(
  Amount,
  "One approver may allow one payment of at most this amount; above it as many members as `threshold`",
);

export const MembersOrder = Strict({
  owner: Described(AddressOutput, "The team; the zero address in its first list"),
  version: Digits,
  name: Type.String({ maxLength: 60 }),
  threshold: Digits,
  approvalAbove: Digits,
  members: Type.Array(
    Strict({
      name: Type.String({ maxLength: 60 }),
      account: AddressOutput,
      chain: Digits,
      role: Type.String({ maxLength: 20 }),
    }),
    { maxItems: 100 },
  ),
  nonce: Hex32,
  deadline: Digits,
});
const MembersAuthorization = authorizationOf(MembersOrder);
export const MembersProblem = problemWith(MembersOrder);
export const membersRefusals = { 403: MembersProblem, 409: MembersProblem };

export const NewTeamBody = Strict({
  name: Name,
  memberName: Described(Name, "Your own name in the team"),
  authorization: MembersAuthorization,
});
export const NewTeam = Type.Object({
  success: Type.Literal(true),
  owner: Described(AddressOutput, "The team: act for it with POST /api/auth/act-for"),
});

const MemberInput = Strict({
  name: Name,
  address: { ...AddressInput, description: "The person's own account" },
  role: TeamRole,
});
export const MembersBody = Strict({
  name: Name,
  threshold: Threshold,
  approvalAbove: ApprovalAbove,
  members: Type.Array(MemberInput, { minItems: 1, maxItems: 100 }),
  authorization: MembersAuthorization,
});
export type MembersBody = Static<typeof MembersBody>;

export const Team = Type.Object({
  owner: AddressOutput,
  name: Type.String(),
  version: Type.Integer({ description: "Of the list of members in force" }),
  threshold: Threshold,
  approvalAbove: ApprovalAbove,
  members: Type.Array(
    Type.Object({
      name: Type.String(),
      address: AddressOutput,
      signsWith: SignsWith,
      role: TeamRole,
    }),
  ),
  warning: Nullable(Type.String(), "What to know about this list"),
});

export const ActForBody = Strict({
  owner: Nullable(
    { ...AddressInput, description: "A team of yours" },
    "null: your own account again",
  ),
});

export const WaitingOrder = Type.Object({
  id: Id,
  team: Type.Object({ owner: AddressOutput, name: Type.String() }),
  kind: Type.String({ description: "Of the order", examples: ["AgentPolicy"] }),
  by: Described(AddressOutput, "The member who sent the request"),
  order: Type.Unknown({ description: "What is signed" }),
  typedData: Type.Object(
    {
      types: TypedDataTypes,
      primaryType: Type.String(),
      domain: TypedDataDomain,
      message: TypedDataMessage,
    },
    { description: "Ready for `eth_signTypedData_v4`" },
  ),
  collected: Type.Array(AddressOutput, { description: "Who has signed" }),
  needed: Type.Integer({ description: "How many signatures it needs" }),
  missing: Type.Array(AddressOutput, { description: "Without these it is never enough" }),
  isComplete: Type.Boolean({ description: "Send the request now: any member may" }),
  canSign: Type.Boolean({ description: "Your signature counts, and is missing" }),
  request: Type.Object(
    {
      method: Type.String(),
      path: Type.String(),
      body: Type.Unknown(),
    },
    { description: "The request to send once it is complete; it has all signatures" },
  ),
  createdAt: Timestamp,
  expiresAt: Timestamp,
});
export const WaitingOrders = Page(WaitingOrder);
export const SignWaitingBody = Strict({
  signature: Described(OrderSignature, "Your own signature of the typed data"),
});
