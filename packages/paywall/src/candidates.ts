/** Which facilitators of a list can verify and settle a payment. */
import type { PaymentPayload, PaymentRequirements, SupportedResponse } from "@x402/core/types";

/** Facts of the token and the route: facilitators may or may not repeat them. */
const NOT_THE_FACILITATORS = new Set(["name", "version", "assetTransferMethod", "paymentFlow"]);

/** Extensions with which a facilitator pays gas for the payer. */
const SPONSORING = /GasSponsoring$/;

type Kind = SupportedResponse["kinds"][number];

/**
 * Those that support its kind. Where the payer signed something that a facilitator announced (an account that may charge,
 * a fee payer), only those that announce the same.
 */
export function candidatesFor<
  Facilitator extends { readonly supported: SupportedResponse | undefined },
>(
  facilitators: readonly Facilitator[],
  payload: PaymentPayload,
  { scheme, network, extra }: PaymentRequirements,
): Facilitator[] {
  const version = payload.x402Version;
  const serving = facilitators.flatMap((facilitator) => {
    const kind = facilitator.supported?.kinds.find(
      (one) => one.x402Version === version && one.scheme === scheme && one.network === network,
    );
    return kind && facilitator.supported
      ? [{ facilitator, kind, supported: facilitator.supported }]
      : [];
  });
  // The terms may name another account by now; the payer signed what it accepted.
  const signed: Record<string, unknown> = payload.accepted?.extra ?? extra ?? {};
  const bound = Object.keys(signed).filter(
    (name) =>
      !NOT_THE_FACILITATORS.has(name) && serving.some(({ kind }) => name in (kind.extra ?? {})),
  );
  const sponsored = Object.keys(payload.extensions ?? {}).filter((name) => SPONSORING.test(name));
  const alike = serving.filter(
    ({ kind, supported }) =>
      bound.every((name) => announces(kind, supported, name, signed[name])) &&
      sponsored.every((name) => supported.extensions?.includes(name)),
  );
  return (alike.length > 0 ? alike : serving).map(({ facilitator }) => facilitator);
}

/** A facilitator with several accounts announces one of them at a time, and lists all as its signers. */
function announces(
  kind: Kind,
  { signers }: SupportedResponse,
  name: string,
  value: unknown,
): boolean {
  const own = [kind.extra?.[name], ...Object.values(signers ?? {}).flat()];
  return own.some((one) => textOf(one) === textOf(value));
}

const textOf = (value: unknown): string => JSON.stringify(value ?? null).toLowerCase();
