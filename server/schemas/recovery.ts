/** Wire types of the second wallet, and of moving to it. */
import { Type, type TProperties } from "typebox";
import { AddressInput, AddressOutput, Nullable, Problem, Strict, Timestamp } from "./common.ts";
import { OrderSignature, problemWith } from "./orders.ts";

const Address = Type.String({ pattern: "^0x[0-9a-fA-F]{40}$" });
const Integer = Type.String({ pattern: "^(0|[1-9][0-9]{0,77})$" });
const singleUse = {
  nonce: Type.String({ pattern: "^0x[0-9a-fA-F]{64}$" }),
  deadline: Integer,
};
const SecondWalletOrder = Strict({
  owner: Address,
  second: Address,
  secondChain: Integer,
  ...singleUse,
});
const MoveOwnerOrder = Strict({ from: Address, to: Address, ...singleUse });

export const SecondBody = Strict({
  address: Nullable({
    ...AddressInput,
    description: "The wallet that may tighten, and withdraw to the owner; null: none any more",
  }),
  chainId: Type.Optional(
    Type.Integer({
      minimum: 0,
      default: 0,
      description: "The chain whose contract it is; 0 for a key",
    }),
  ),
  authorization: Type.Optional(Strict({ order: SecondWalletOrder, signature: OrderSignature })),
});

export const MoveBody = Strict({
  authorization: Type.Optional(
    Strict({
      order: MoveOwnerOrder,
      signature: OrderSignature,
      secondSignature: Type.String({
        pattern: "^0x([0-9a-fA-F]{2}){1,8192}$",
        description: "The same order, signed by the second wallet",
      }),
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
  agents: Type.Integer({ description: "How many are the new owner's now, each of them paused" }),
  note: Type.String(),
});

const refusals = <T extends TProperties>(order: ReturnType<typeof Strict<T>>) => {
  const problem = problemWith(order);
  return { 403: problem, 409: problem, "4xx": Problem };
};
export const secondRefusals = refusals(SecondWalletOrder);
export const moveRefusals = refusals(MoveOwnerOrder);
