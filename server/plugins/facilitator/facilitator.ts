/** The facilitator's interface for the rest of the server: supported, verify, settle. */
import type { FacilitatorClient } from "@x402/core/server";
import { getAddress, type Address } from "viem";
import { ApiError } from "../../errors.ts";
import type {
  FacilitatorService,
  SettleAnswer,
  SettlementState,
  Supported,
  VerifyAnswer,
} from "../../schemas/facilitator.ts";
import { USDC_DECIMALS } from "../../core/money.ts";
import type { NetworkFacts } from "../../core/networks.ts";
import type { SettlementRow } from "../settlement/types.ts";
import type { CheckResult, PaymentChecker } from "./check.ts";
import { ANNOUNCED_SCHEMES, SCHEMES } from "../../schemes/index.ts";
import { networkNameOf, refuse } from "../../schemes/scheme.ts";
import { notSettled } from "./answers.ts";
import type { Settler, SettleOptions } from "./settle.ts";

/** Receives the outcome of each request, for counters, histograms and statistics. */
export type Observer = (what: "verify" | "settle", outcome: string, seconds: number) => void;

/** The results of a payment's extensions, by name. */
export type ExtensionResponses = Record<string, unknown>;
export type ExtensionListener = (
  body: unknown,
  payer: string,
) => Promise<ExtensionResponses | undefined>;

/** Receives each payment that was refused before it became a settlement. */
export type RefusalListener = (what: "verify" | "settle", body: unknown, reason: string) => void;

export interface FacilitatorDeps {
  networks: readonly NetworkFacts[];
  publicUrl: string;
  relayers: readonly Address[];
  checker: PaymentChecker;
  settler: Settler;
  find: (id: string) => Promise<SettlementRow | undefined>;
  listeners: readonly ExtensionListener[];
  refusalListeners: readonly RefusalListener[];
  observe: Observer;
  onFault: (error: unknown, what: "verify" | "settle" | "an extension") => void;
}

/** A seller waits for its payment, not for extensions. */
const EXTENSIONS_WAIT_MS = 1_000;

export class Facilitator {
  readonly #deps: FacilitatorDeps;
  constructor(deps: FacilitatorDeps) {
    this.#deps = deps;
  }

  service(): FacilitatorService {
    const { networks, publicUrl } = this.#deps;
    const assets = networks.map(({ id, usdc }) => ({
      network: id,
      asset: getAddress(usdc.address),
      symbol: "USDC",
      decimals: USDC_DECIMALS,
      name: usdc.name,
      version: usdc.version,
    }));
    return {
      facilitator: `${publicUrl}/api/x402`,
      supportedNetworks: networks.map(({ id }) => id),
      // Two networks may have their token at the same address, as both of Arc's networks do.
      supportedAssets: [...new Set(assets.map(({ asset }) => asset))],
      assets,
      version: "1.0",
    };
  }

  supported(): Supported {
    const { networks, relayers } = this.#deps;
    const kinds = (x402Version: 1 | 2, network: string) =>
      ANNOUNCED_SCHEMES.filter(({ versions }) => versions.includes(x402Version)).map((scheme) => {
        const extra = scheme.supportedExtra?.(relayers);
        return { x402Version, scheme: scheme.name, network, ...(extra && { extra }) };
      });
    return {
      kinds: networks.flatMap(({ id, v1Name }) => [
        ...kinds(2, id),
        ...(v1Name === undefined ? [] : kinds(1, v1Name)),
      ]),
      extensions: ["bazaar", ...extensionsOn(networks)],
      signers: { "eip155:*": [...relayers] },
    };
  }

  async verify(body: unknown): Promise<VerifyAnswer> {
    const startedMs = performance.now();
    let answer: VerifyAnswer;
    try {
      answer = verifyAnswer(await this.#deps.checker.check(body));
    } catch (error) {
      this.#deps.onFault(error, "verify");
      answer = verifyAnswer(refuse("unexpected_verify_error"));
    }
    this.#observe("verify", answer.isValid ? "valid" : answer.invalidReason, startedMs);
    if (!answer.isValid) this.#reportRefusal("verify", body, answer.invalidReason);
    return answer;
  }

  /** The full check result for callers in this process, with the signature as it would be relayed. */
  check(body: unknown): Promise<CheckResult> {
    return this.#deps.checker.check(body);
  }

  async settle(body: unknown, options: SettleOptions = {}): Promise<SettleAnswer> {
    const startedMs = performance.now();
    let answer: SettleAnswer;
    try {
      answer = await this.#deps.settler.settle(body, options);
    } catch (error) {
      // A rate limit concerns the caller, not the payment: it is the only outcome that is an HTTP error.
      if (error instanceof ApiError && error.code === "rate_limited") throw error;
      this.#deps.onFault(error, "settle");
      // The text of our own errors is safe for third parties; other messages may not be.
      const message = error instanceof ApiError ? error.message : undefined;
      answer = notSettled({ network: networkNameOf(body) }, "unexpected_settle_error", { message });
    }
    this.#observe("settle", answer.success ? "settled" : answer.errorReason, startedMs);
    if (!answer.success && answer.paymentId === undefined)
      this.#reportRefusal("settle", body, answer.errorReason);
    return answer;
  }

  /** The same with the results of the payment's extensions: the value of EXTENSION-RESPONSES, if any. */
  async settleWithExtensions(
    body: unknown,
    options: SettleOptions = {},
  ): Promise<{ answer: SettleAnswer; extensions: string | undefined }> {
    const answer = await this.settle(body, options);
    if (!answer.success || answer.payer === undefined) return { answer, extensions: undefined };
    const { listeners, onFault } = this.#deps;
    const { payer } = answer;
    const pending = listeners.map((listen) =>
      listen(body, payer).catch((error: unknown) => onFault(error, "an extension")),
    );
    // A cleared timer instead of an AbortSignal, which would create two unused errors for each payment.
    let late: NodeJS.Timeout | undefined;
    const answers = await Promise.race([
      Promise.all(pending),
      new Promise<[]>((resolve) => {
        late = setTimeout(resolve, EXTENSIONS_WAIT_MS, []).unref();
      }),
    ]);
    clearTimeout(late);
    const responses: ExtensionResponses = Object.assign({}, ...answers);
    const hasResponses = Object.keys(responses).length > 0;
    return {
      answer,
      extensions: hasResponses
        ? Buffer.from(JSON.stringify(responses)).toString("base64")
        : undefined,
    };
  }

  /** State and hash only: the chain shows who paid whom, and an agent's private data is not returned. */
  async payment(id: string): Promise<SettlementState | undefined> {
    const row = await this.#deps.find(id);
    if (!row || (row.kind !== "facilitated" && !(row.kind === "x402" && row.relay)))
      return undefined;
    return {
      id: row.id,
      status: row.status,
      network: `eip155:${row.authorization.chainId}`,
      txHash: row.txHash,
      final: row.isFinal,
      errorReason: row.errorReason,
      createdAt: row.createdAt.toISOString(),
      settledAt: row.settledAt?.toISOString() ?? null,
    };
  }

  #reportRefusal(what: "verify" | "settle", body: unknown, reason = "unknown"): void {
    for (const listen of this.#deps.refusalListeners) listen(what, body, reason);
  }

  #observe(what: "verify" | "settle", outcome: string | undefined, startedMs: number): void {
    this.#deps.observe(what, outcome ?? "unknown", (performance.now() - startedMs) / 1000);
  }

  /** For our own paywall: the same checks and engine without HTTP. */
  inProcessClient(): FacilitatorClient {
    const body = (paymentPayload: { x402Version: number }, paymentRequirements: unknown) => ({
      x402Version: paymentPayload.x402Version,
      paymentPayload,
      paymentRequirements,
    });
    return {
      verify: (payload, requirements) => this.verify(body(payload, requirements)),
      settle: async (payload, requirements) => {
        const { answer } = await this.settleWithExtensions(body(payload, requirements));
        return { ...answer, network: answer.network as `${string}:${string}` };
      },
      getSupported: async () => {
        const { kinds, ...rest } = this.supported();
        return {
          ...rest,
          kinds: kinds.map((kind) => ({ ...kind, network: kind.network as `${string}:${string}` })),
        };
      },
    };
  }
}

/** The extension keys that our schemes support on any of these networks. */
const extensionsOn = (networks: readonly NetworkFacts[]): Set<string> =>
  new Set(
    networks.flatMap((network) =>
      SCHEMES.flatMap((scheme) => scheme.supportedExtensions?.(network) ?? []),
    ),
  );

/** Converts the check result to the protocol's response. */
function verifyAnswer(result: CheckResult): VerifyAnswer {
  if (result.isValid) {
    const { payer, amountAtomic } = result.payment;
    return { isValid: true, payer, amount: amountAtomic.toString() };
  }
  const { reason, message, payer } = result;
  return {
    isValid: false,
    error: message,
    invalidReason: reason,
    invalidMessage: message,
    ...(payer !== undefined && { payer }),
  };
}
