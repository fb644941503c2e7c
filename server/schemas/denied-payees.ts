/** Wire types of what an owner never pays, from any agent. */
import { Type } from "typebox";
import {
  AddressInput,
  AddressOutput,
  Described,
  Digits,
  Hex32,
  Id,
  Nullable,
  Page,
  Strict,
  Timestamp,
} from "./common.ts";
import { authorizationOf, problemWith } from "./orders.ts";

export const MAX_DENIED_PAYEES = 1_000;

const site = Type.String({
  maxLength: 300,
  examples: ["https://shop.example.com"],
  description:
    "An origin. Without a port it means every port of the host; not other hosts below it",
});
const which = {
  payee: Type.Optional(Described(AddressInput, "An address. Send either this or `site`")),
  site: Type.Optional(site),
};

export const DeniedPayee = Type.Object({
  id: Id,
  payee: Nullable(AddressOutput),
  site: Nullable(site),
  readableSite: Nullable(
    Type.String({
      description: "An international site as people write it; `site` is its punycode",
    }),
  ),
  note: Type.String(),
  addedBy: Described(AddressOutput, "The owner's wallet, or the recovery wallet"),
  createdAt: Timestamp,
});
export const DeniedPayeePage = Page(DeniedPayee);

export const DenyPayeeBody = Strict({
  ...which,
  note: Type.Optional(Type.String({ maxLength: 200, description: "For the owner" })),
});
export const DenyPayeeAnswer = Type.Object({ success: Type.Literal(true), denied: DeniedPayee });

export const AllowPayeeAgainOrder = Strict({
  owner: AddressOutput,
  payee: Type.String({ maxLength: 300, description: "The address or the site" }),
  nonce: Hex32,
  deadline: Digits,
});
export const AllowPayeeAgainBody = Strict({
  ...which,
  authorization: authorizationOf(AllowPayeeAgainOrder),
});
export const AllowPayeeAgainAnswer = Type.Object({
  success: Type.Literal(true),
  removed: Type.Boolean({ description: "False if there was no such entry" }),
});
export const AllowPayeeAgainProblem = problemWith(AllowPayeeAgainOrder);
export const allowPayeeAgainRefusals = {
  403: AllowPayeeAgainProblem,
  409: AllowPayeeAgainProblem,
};
