/** Wire types of withdrawals. Addresses are judged by the domain, which compares them with the agent. */
import { Type, type Static } from "typebox";
import { AddressInput, NetworkId, Strict, TxHash } from "./common.ts";

export const PrepareWithdrawal = Strict({
  amount: Type.String({ maxLength: 120, description: 'USDC such as "1.5", or "max"' }),
  to: Type.Optional(AddressInput),
  network: Type.Optional(
    Type.Unsafe<string>({
      ...NetworkId,
      description: "Where the money lies; the agent's network unless told otherwise",
    }),
  ),
});
export type PrepareWithdrawal = Static<typeof PrepareWithdrawal>;

const Address = Type.String({ pattern: "^0x[0-9a-fA-F]{40}$" });
const Integer = Type.String({ pattern: "^(0|[1-9][0-9]{0,77})$" });

/** The typed message, integers as strings. */
export const WithdrawalOrder = Strict({
  wallet: Address,
  to: Address,
  asset: Address,
  amount: Integer,
  nonce: Type.String({ pattern: "^0x[0-9a-fA-F]{64}$" }),
  deadline: Integer,
});
export type WithdrawalOrder = Static<typeof WithdrawalOrder>;

const TypeFields = Type.Array(Type.Object({ name: Type.String(), type: Type.String() }));
export const PreparedWithdrawal = Type.Object({
  order: WithdrawalOrder,
  typedData: Type.Object({
    types: Type.Record(Type.String(), TypeFields),
    primaryType: Type.Literal("Withdraw"),
    domain: Type.Object({
      name: Type.Literal("Purser"),
      version: Type.Literal("2"),
      chainId: Type.Integer(),
    }),
    message: WithdrawalOrder,
  }),
});

export const ExecuteWithdrawal = Strict({
  order: WithdrawalOrder,
  /** ERC-1271 and ERC-6492 signatures are longer than 65 bytes. */
  signature: Type.String({ pattern: "^0x([0-9a-fA-F]{2}){1,8192}$" }),
});
export type ExecuteWithdrawal = Static<typeof ExecuteWithdrawal>;

export const WithdrawalAnswer = Type.Object({
  success: Type.Literal(true),
  txHash: TxHash,
  paymentId: Type.String(),
  recipient: Type.String(),
  amount: Type.String(),
  network: Type.String(),
  settledAt: Type.String(),
});
