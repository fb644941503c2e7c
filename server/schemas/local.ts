import { Type } from "typebox";
import { AddressInput, AddressOutput, Amount, Strict, TxHash } from "./common.ts";

export const FaucetRequest = Strict({ address: AddressInput, amount: Type.Optional(Amount) });
export const FaucetAnswer = Type.Object({
  success: Type.Literal(true),
  txHash: TxHash,
  address: AddressOutput,
  amount: Type.String({ description: "USDC, decimal" }),
});

/** What the web app needs for its demo wallet; the key is a local chain's toy. */
export const LocalInfo = Type.Object({
  demoOwnerAddress: AddressOutput,
  demoOwnerPrivateKey: Type.String(),
  faucet: Type.Literal(true),
  faucetAmount: Type.String({ description: "What an asking without `amount` gets" }),
  faucetMaxAmount: Type.String(),
});
