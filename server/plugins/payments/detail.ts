/** What an agent needs of itself and of its payments. `detail=full`, and one payment by its id, return everything. */
import type { AgentSelf, PaymentSummary, Payment } from "../../schemas/payments.ts";

export function shortSelf(self: AgentSelf): AgentSelf {
  const { walletAddress: _wallet, expired: _expired, balances = [], ...rest } = self;
  const { id: _keyId, createdAt: _keyCreatedAt, ...key } = self.key;
  return {
    ...rest,
    ...(balances.length > 1 && { balances }),
    allowlist: self.allowlist.map(({ createdAt: _createdAt, ...payee }) => ({
      ...whatIsSet(payee),
      address: payee.address,
      label: payee.label,
    })),
    key,
  };
}

export function shortPayment(payment: Payment): PaymentSummary {
  const { id, kind, status, network, asset, recipient, amount } = payment;
  const { createdAt, settledAt, txHash, x402, sender, repeats } = payment;
  const { memo, task, maximum, denial, failure, channel } = payment;
  return {
    id,
    kind,
    status,
    amount,
    recipient,
    network,
    asset,
    createdAt,
    settledAt,
    txHash,
    ...whatIsSet({ memo, task, maximum, denial, failure, channel }),
    ...(kind === "incoming" && { sender }),
    ...(repeats > 0 && { repeats }),
    ...(x402 && {
      x402: { url: x402.url, delivered: x402.delivered, upstreamStatus: x402.upstreamStatus },
    }),
  };
}

/** Without members that are null or empty. */
const whatIsSet = <T extends object>(members: T) =>
  Object.fromEntries(
    Object.entries(members).filter(
      ([, value]) => value !== undefined && value !== null && value !== "",
    ),
  ) as { [K in keyof T]?: NonNullable<T[K]> };
