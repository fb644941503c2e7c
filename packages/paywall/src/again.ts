/** Paid once, fetched again by signature: the protocol's `sign-in-with-x` extension, for wallets that have paid. */
import { randomBytes } from "node:crypto";
import type { PaymentRequired } from "@x402/core/types";
import {
  buildSIWxSchema,
  parseSIWxHeader,
  SIGN_IN_WITH_X,
  type SIWxPayload,
  validateSIWxMessage,
  verifySIWxSignature,
} from "@x402/extensions/sign-in-with-x";
import type { PaidRequest, PaidResource } from "./charge.ts";
import type { PaywallStore } from "./store.ts";

export interface AgainOptions {
  /** How long after it paid a wallet is served again: "30m", "1h", "7d". */
  for: string;
}

/** Of a contract that answers for its signatures (ERC-1271): by your own node, on the chain that is named. */
export type VerifyMessage = (signed: {
  chainId: number;
  address: `0x${string}`;
  message: string;
  signature: `0x${string}`;
}) => Promise<boolean>;

interface SignedRequest {
  url: string;
  headers: Record<string, string | string[] | undefined>;
}

type Entered =
  | { isLetIn: true; payer: string; network: string }
  | { isLetIn: false; reason: string };

const UNITS = { s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 };
/** Signed within this time; the protocol's own limit is five minutes. */
const CHALLENGE_MS = 240_000;
/** A challenge of one replica is not of the future for another, whose clock is a little behind. */
const CLOCKS_APART_MS = 10_000;

/** Throws where it is no such time. */
export function againMs(options: AgainOptions): number {
  const [, count, unit] = /^([1-9][0-9]{0,5})([smhd])$/.exec(options.for) ?? [];
  if (count === undefined || unit === undefined)
    throw new Error(
      `the paywall's "again.for" must be such as "30m", not ${JSON.stringify(options.for)}`,
    );
  return Number(count) * UNITS[unit as keyof typeof UNITS];
}

export class Door {
  readonly #store: PaywallStore;
  readonly #verifyMessage: VerifyMessage | undefined;

  constructor(store: PaywallStore, verifyMessage: VerifyMessage | undefined) {
    this.#store = store;
    this.#verifyMessage = verifyMessage;
  }

  /** What an unpaid request is told beside the terms: sign this, if you have paid. */
  challenge({ resource, accepts }: PaymentRequired): Record<string, unknown> {
    const { host } = new URL(resource.url);
    const nowMs = Date.now();
    const info = {
      domain: host,
      uri: resource.url,
      version: "1",
      statement: "Fetch again a resource that this wallet has paid for.",
      nonce: randomBytes(16).toString("hex"),
      issuedAt: new Date(nowMs - CLOCKS_APART_MS).toISOString(),
      expirationTime: new Date(nowMs + CHALLENGE_MS).toISOString(),
      resources: [resource.url],
    };
    const networks = new Set(accepts.map(({ network }) => network));
    const supportedChains = [...networks].map((chainId) => ({ chainId, type: "eip191" }));
    return { [SIGN_IN_WITH_X]: { info, supportedChains, schema: buildSIWxSchema() } };
  }

  /** Undefined when nobody signs in. */
  async enter(
    asked: SignedRequest,
    sold: string,
    networks: readonly string[],
  ): Promise<Entered | undefined> {
    const header = asked.headers[SIGN_IN_WITH_X];
    if (header === undefined) return undefined;
    const shown = typeof header === "string" ? parsed(header) : undefined;
    if (!shown) return refuse("invalid_siwx_payload");
    const { origin } = new URL(asked.url);
    const validation = await validateSIWxMessage(shown, new URL(origin));
    if (!validation.isValid) return refuse(validation.invalidReason);
    if (shown.uri !== asked.url) return refuse("invalid_siwx_uri_mismatch");
    const signedMs = Date.parse(shown.issuedAt);
    const untilMs = Date.parse(shown.expirationTime ?? "");
    if (!(untilMs - signedMs <= CHALLENGE_MS + CLOCKS_APART_MS))
      return refuse("invalid_siwx_expiration_time");
    if (!networks.includes(shown.chainId)) return refuse("invalid_siwx_unsupported_chain");
    const evmVerifier = this.#verifierOn(shown.chainId);
    const verified = await verifySIWxSignature(shown, evmVerifier && { evmVerifier });
    if (!verified.isValid) return refuse(verified.invalidReason);
    const payer = verified.payer.toLowerCase();
    if (!(await this.#store.hasPaid(sold, payer))) return refuse("siwx_not_paid");
    // Last, so that a signature which opens nothing uses nothing up.
    if (!(await this.#store.useNonce(`${payer} ${shown.nonce}`, new Date(untilMs))))
      return refuse("invalid_siwx_nonce");
    return { isLetIn: true, payer: verified.payer, network: shown.chainId };
  }

  async remember(sold: string, payer: string, { for: time }: AgainOptions): Promise<void> {
    const until = new Date(Date.now() + againMs({ for: time }));
    await this.#store.paid(sold, payer.toLowerCase(), until);
  }

  #verifierOn(chain: string) {
    const verify = this.#verifyMessage;
    const chainId = Number(chain.split(":")[1]);
    return (
      verify &&
      ((signed: { address: `0x${string}`; message: string; signature: `0x${string}` }) =>
        verify({ chainId, ...signed }))
    );
  }
}

/**
 * What a payment is for: this request of this route, on these terms. The parts stay apart, so that no text from a caller
 * stands for two of them. Of shops that share a store, none opens what the other sold for less.
 */
export const soldAs = (
  { price, payTo }: Required<Pick<PaidResource, "price" | "payTo">>,
  { method, route, path, url }: PaidRequest,
  networks: readonly string[],
): string => JSON.stringify({ method, route, path, url, price, payTo, networks });

const refuse = (reason: string): Entered => ({ isLetIn: false, reason });

function parsed(header: string): SIWxPayload | undefined {
  try {
    return parseSIWxHeader(header);
  } catch {
    return undefined;
  }
}
