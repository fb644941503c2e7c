/**
 * Repeat access without a second payment: the `sign-in-with-x` extension (SIWX) of x402, for wallets that
 * have paid.
 */
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
import type { AgainOptions, PaidRequest, PaidResource } from "./resource.ts";
import type { PaywallStore } from "./store.ts";

/** Verifies a message signed by a contract account (ERC-1271), with your own node for the given chain. */
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

type SignInResult =
  | { isAllowed: true; payer: string; network: string }
  | { isAllowed: false; reason: string };

const UNITS = { s: 1_000, m: 60_000, h: 3_600_000, d: 86_400_000 };
/** The longest lifetime of a challenge; the protocol's own limit is five minutes. */
const CHALLENGE_MS = 240_000;
/**
 * Challenges are dated back by this much, so that a replica whose clock is a little behind does not see them
 * in the future.
 */
const CLOCK_SKEW_MS = 10_000;

/** Throws where the text is not a duration. */
export function durationMs(text: string, name: string): number {
  const [, count, unit] = /^([1-9][0-9]{0,5})([smhd])$/.exec(text) ?? [];
  if (count === undefined || unit === undefined)
    throw new Error(`the paywall's "${name}" must be such as "30m", not ${JSON.stringify(text)}`);
  return Number(count) * UNITS[unit as keyof typeof UNITS];
}

export const againMs = (options: AgainOptions): number => durationMs(options.for, "again.for");

export class RepeatAccess {
  readonly #store: PaywallStore;
  readonly #verifyMessage: VerifyMessage | undefined;

  constructor(store: PaywallStore, verifyMessage: VerifyMessage | undefined) {
    this.#store = store;
    this.#verifyMessage = verifyMessage;
  }

  /** The challenge that an unpaid response contains beside the terms: a wallet that has paid signs it. */
  challenge({ resource, accepts }: PaymentRequired): Record<string, unknown> {
    const { host } = new URL(resource.url);
    const nowMs = Date.now();
    const info = {
      domain: host,
      uri: resource.url,
      version: "1",
      statement: "Fetch again a resource that this wallet has paid for.",
      nonce: randomBytes(16).toString("hex"),
      issuedAt: new Date(nowMs - CLOCK_SKEW_MS).toISOString(),
      expirationTime: new Date(nowMs + CHALLENGE_MS).toISOString(),
      resources: [resource.url],
    };
    const networks = new Set(accepts.map(({ network }) => network));
    const supportedChains = [...networks].map((chainId) => ({ chainId, type: "eip191" }));
    return { [SIGN_IN_WITH_X]: { info, supportedChains, schema: buildSIWxSchema() } };
  }

  /** Undefined where the request has no `sign-in-with-x` header. */
  async signIn(
    request: SignedRequest,
    resourceKey: string,
    networks: readonly string[],
  ): Promise<SignInResult | undefined> {
    const header = request.headers[SIGN_IN_WITH_X];
    if (header === undefined) return undefined;
    const payload = typeof header === "string" ? parsed(header) : undefined;
    if (!payload) return refuse("invalid_siwx_payload");
    const { origin } = new URL(request.url);
    const validation = await validateSIWxMessage(payload, new URL(origin));
    if (!validation.isValid) return refuse(validation.invalidReason);
    if (payload.uri !== request.url) return refuse("invalid_siwx_uri_mismatch");
    const signedMs = Date.parse(payload.issuedAt);
    const untilMs = Date.parse(payload.expirationTime ?? "");
    if (!(untilMs - signedMs <= CHALLENGE_MS + CLOCK_SKEW_MS))
      return refuse("invalid_siwx_expiration_time");
    if (!networks.includes(payload.chainId)) return refuse("invalid_siwx_unsupported_chain");
    const evmVerifier = this.#verifierOn(payload.chainId);
    const verified = await verifySIWxSignature(payload, evmVerifier && { evmVerifier });
    if (!verified.isValid) return refuse(verified.invalidReason);
    const payer = verified.payer.toLowerCase();
    if (!(await this.#store.hasPaid(resourceKey, payer))) return refuse("siwx_not_paid");
    // The nonce is used last, so that a rejected sign-in does not consume it.
    if (!(await this.#store.useNonce(`${payer} ${payload.nonce}`, new Date(untilMs))))
      return refuse("invalid_siwx_nonce");
    return { isAllowed: true, payer: verified.payer, network: payload.chainId };
  }

  async recordPayment(
    resourceKey: string,
    payer: string,
    { for: time }: AgainOptions,
  ): Promise<void> {
    const until = new Date(Date.now() + againMs({ for: time }));
    await this.#store.paid(resourceKey, payer.toLowerCase(), until);
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
 * The key of what a payment buys: this request to this route, on these terms. It is JSON, so that no text
 * from a caller can pass for two of the parts. Price and payee are part of the key, so that of several shops
 * with one store none opens what another resourceKey for less.
 */
export const resourceKeyOf = (
  { price, payTo }: Required<Pick<PaidResource, "price" | "payTo">>,
  { method, route, path, url }: PaidRequest,
  networks: readonly string[],
): string => JSON.stringify({ method, route, path, url, price, payTo, networks });

const refuse = (reason: string): SignInResult => ({ isAllowed: false, reason });

function parsed(header: string): SIWxPayload | undefined {
  try {
    return parseSIWxHeader(header);
  } catch {
    return undefined;
  }
}
