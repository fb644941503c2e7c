/** Wire types of the recovery wallet, and of moving to it. */
import { Type } from "typebox";
import {
  AddressInput,
  AddressOutput,
  Nullable,
  Strict,
  Timestamp,
  Digits,
  Hex32,
} from "./common.ts";
import { OrderSignature, problemWith } from "./orders.ts";

const singleUse = {
  nonce: Hex32,
  deadline: Digits,
};
export const SecondWalletOrder = Strict({
  owner: AddressOutput,
  second: AddressOutput,
  secondChain: Digits,
  ...singleUse,
});
export const MoveOwnerOrder = Strict({ from: AddressOutput, to: AddressOutput, ...singleUse });

const SecondSignature = Type.String({
  pattern: "^0x([0-9a-fA-F]{2}){1,8192}$",
  description: "The same order, signed by the recovery wallet",
});

export const SecondBody = Strict({
  address: Nullable({
    ...AddressInput,
    description:
      "The recovery wallet, which may tighten rules and withdraw to the owner; null removes it",
  }),
  chainId: Type.Optional(
    Type.Integer({
      minimum: 0,
      default: 0,
      description: "The chain whose contract it is; 0 for a key",
    }),
  ),
  authorization: Type.Optional(
    Strict({
      order: SecondWalletOrder,
      signature: OrderSignature,
      secondSignature: Type.Optional({
        ...SecondSignature,
        description:
          "The same order, signed by the wallet that it names; required unless it removes the recovery wallet",
      }),
    }),
  ),
});

export const MoveBody = Strict({
  authorization: Type.Optional(
    Strict({
      order: MoveOwnerOrder,
      signature: OrderSignature,
      secondSignature: SecondSignature,
    }),
  ),
});

export const Recovery = Type.Object({
  owner: AddressOutput,
  second: Nullable(
    Type.Object({
      address: AddressOutput,
      chainId: Type.Integer(),
      since: Timestamp,
    }),
  ),
});

export const Moved = Type.Object({
  success: Type.Literal(true),
  owner: AddressOutput,
  agents: Type.Integer({
    description: "The number of agents that moved to the new owner, all paused",
  }),
  note: Type.String(),
});

export const SecondWalletProblem = problemWith(SecondWalletOrder);
export const MoveOwnerProblem = problemWith(MoveOwnerOrder);
export const secondRefusals = { 403: SecondWalletProblem, 409: SecondWalletProblem };
export const moveRefusals = { 403: MoveOwnerProblem, 409: MoveOwnerProblem };
