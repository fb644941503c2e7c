import { Type } from "typebox";
import {
  AddressInput,
  AddressOutput,
  Amount,
  Described,
  Digits,
  Hex32,
  Strict,
  TxHash,
} from "./common.ts";

export const FaucetRequest = Strict({ address: AddressInput, amount: Type.Optional(Amount) });
export const FaucetAnswer = Type.Object({
  success: Type.Literal(true),
  txHash: TxHash,
  address: AddressOutput,
  amount: Amount,
});

/** A transfer of the local chain's USDC from the demo wallet (EIP-3009), integers as strings. */
export const DemoTransfer = Strict({
  to: AddressInput,
  value: Digits,
  validAfter: Digits,
  validBefore: Digits,
  nonce: Hex32,
});
export const DemoSignature = Type.Object({ signature: Type.String() });

/** Data for the web app's demo wallet. The key works on the local chain only. */
export const LocalInfo = Type.Object({
  demoOwnerAddress: AddressOutput,
  demoOwnerPrivateKey: Hex32,
  faucet: Type.Literal(true),
  faucetAmount: Described(Amount, "The amount for a request without `amount`"),
  faucetMaxAmount: Amount,
});
