/** Wire types of withdrawals. The route checks addresses, because it compares them with the agent's. */
import { Type, type Static } from "typebox";
import { OrderSignature } from "./orders.ts";
import {
  AddressInput,
  AmountOrMax,
  Described,
  NetworkId,
  Strict,
  TxHash,
  Id,
  Digits,
  Hex32,
  Amount,
  AddressOutput,
  TypedDataTypes,
  TypedDataDomain,
  TypedDataMessage,
  Timestamp,
} from "./common.ts";

export const PrepareWithdrawal = Strict({
  amount: AmountOrMax,
  to: Type.Optional(AddressInput),
  network: Type.Optional(
    Type.Unsafe<string>({
      ...NetworkId,
      description: "The network to withdraw from; by default the agent's network",
    }),
  ),
});
export type PrepareWithdrawal = Static<typeof PrepareWithdrawal>;

/** The typed message, integers as strings. */
export const WithdrawalOrder = Strict({
  wallet: AddressOutput,
  to: AddressOutput,
  asset: AddressOutput,
  amount: Digits,
  nonce: Hex32,
  deadline: Digits,
});
export type WithdrawalOrder = Static<typeof WithdrawalOrder>;

export const PreparedWithdrawal = Type.Object({
  order: WithdrawalOrder,
  typedData: Type.Object({
    types: TypedDataTypes,
    primaryType: Type.Literal("Withdraw"),
    domain: TypedDataDomain,
    message: TypedDataMessage,
  }),
  inChannels: Type.Optional(
    Type.Object(
      {
        held: Described(Amount, "Beyond what is signed for"),
        channels: Type.Integer({ description: "How many hold it" }),
      },
      {
        description:
          'For `"max"`: what payment channels on this network hold, which comes back after they are closed',
      },
    ),
  ),
});

export const ExecuteWithdrawal = Strict({
  order: WithdrawalOrder,
  signature: OrderSignature,
});
export type ExecuteWithdrawal = Static<typeof ExecuteWithdrawal>;

export const WithdrawalAnswer = Type.Object({
  success: Type.Literal(true),
  txHash: TxHash,
  paymentId: Id,
  recipient: AddressOutput,
  amount: Amount,
  network: NetworkId,
  settledAt: Timestamp,
});
