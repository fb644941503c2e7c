/** Validates the fields of a payment to an address, from an agent or an owner. */
import type { Address } from "viem";
import { parseAddress } from "../../core/foreign-text.ts";
import { parsePayable } from "../../core/money.ts";
import type { NetworkFacts } from "../../core/networks.ts";
import type { SpendRequest } from "../../schemas/payments.ts";
import { refuseField } from "../agents/rules.ts";
import type { PayRequest } from "./agent-payments.ts";

export { MAX_VALID_SECONDS, type WalletBalance } from "./agent-payments.ts";

/** Reads an agent's spend request, or throws an error that names the invalid field. */
export function readSpend(
  body: SpendRequest,
  wallet: { walletAddress: Address; network: NetworkFacts },
): Pick<PayRequest, "chainId" | "asset" | "to" | "amountAtomic" | "memo"> {
  const amount = parsePayable(body.amount);
  if (!amount.ok) throw refuseField("invalid_amount", "body.amount", amount.reason);
  const { network } = wallet;
  const to = readPayee(body.recipient, "body.recipient", {
    walletAddress: wallet.walletAddress,
    asset: network.usdc.address,
  });
  return {
    chainId: network.chainId,
    asset: network.usdc.address.toLowerCase() as Address,
    to,
    amountAtomic: amount.atomic,
    memo: body.memo,
  };
}

/** Reads a payee address: not the zero address, not the token contract, not the paying wallet. */
export function readPayee(
  text: string,
  path: string,
  wallet: { walletAddress: Address; asset: Address },
): Address {
  const parsed = parseAddress(text);
  if (!parsed.ok) throw refuseField("invalid_address", path, parsed.reason);
  if (parsed.address === wallet.walletAddress.toLowerCase())
    throw refuseField("invalid_address", path, "is the paying wallet itself");
  if (parsed.address === wallet.asset.toLowerCase())
    throw refuseField(
      "invalid_address",
      path,
      "is the token's contract, which cannot receive payments",
    );
  return parsed.address;
}
