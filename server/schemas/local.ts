import { Type } from "typebox";
import { AddressInput, AddressOutput, Amount, Strict, TxHash, Hex32, Described } from "./common.ts";

export const FaucetRequest = Strict({ address: AddressInput, amount: Type.Optional(Amount) });
export const FaucetAnswer = Type.Object({
  success: Type.Literal(true),
  txHash: TxHash,
  address: AddressOutput,
  amount: Amount,
});

/** Data for the web app's demo wallet. The key works on the local chain only. */
export const LocalInfo = Type.Object({
  demoOwnerAddress: AddressOutput,
  demoOwnerPrivateKey: Hex32,
  faucet: Type.Literal(true),
  faucetAmount: Described(Amount, "The amount for a request without `amount`"),
  faucetMaxAmount: Amount,
});
