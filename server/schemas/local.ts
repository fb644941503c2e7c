import { Type } from "typebox";
import { AddressInput, AddressOutput, Amount, Strict, TxHash, Hex32, Described } from "./common.ts";

export const FaucetRequest = Strict({ address: AddressInput, amount: Type.Optional(Amount) });
export const FaucetAnswer = Type.Object({
  success: Type.Literal(true),
  txHash: TxHash,
  address: AddressOutput,
  amount: Amount,
});

/** What the web app needs for its demo wallet; the key is a local chain's toy. */
export const LocalInfo = Type.Object({
  demoOwnerAddress: AddressOutput,
  demoOwnerPrivateKey: Hex32,
  faucet: Type.Literal(true),
  faucetAmount: Described(Amount, "The amount for a request without `amount`"),
  faucetMaxAmount: Amount,
});
