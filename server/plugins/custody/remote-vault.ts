/** The client of the custody process (process.ts) over its socket. If a call fails, no signature was received. */
import type { SIWxPayload } from "@x402/extensions/sign-in-with-x";
import type { Address, Hex } from "viem";
import type { Authorization, SignedAuthorization } from "../../core/authorization.ts";
import type { NetworkFacts } from "../../core/networks.ts";
import { parseEcdsa, recoverSigner } from "../../core/signatures.ts";
import type { Timings } from "../../core/timings.ts";
import type { ApiError } from "../../errors.ts";
import { keysUnavailable } from "../../infra/kms.ts";
import type { SocketClient } from "../../infra/private-socket.ts";
import { ownVoucher, type ChannelSignatures } from "../../schemes/batch-settlement/paying.ts";
import { paymentSchemeOf } from "../../schemes/index.ts";
import type { Cover } from "./covers.ts";
import type { KeyNames, KeyVault, SiteSignInRequest } from "./key-vault.ts";
import { decode, encode, errorOf, isAnswer, isResult, sentRules } from "./vault-calls.ts";
import type { RulesInForce } from "../../core/rules.ts";

interface RemoteVaultOptions {
  client: Pick<SocketClient, "call" | "close">;
  networks: readonly NetworkFacts[];
  timings: Pick<Timings, "custodyAnswerMs">;
  onTrouble(reason: string): void;
}

type VaultArguments<Name extends keyof KeyVault> = Parameters<KeyVault[Name]>;
type Answered<Name extends keyof KeyVault> = Awaited<ReturnType<KeyVault[Name]>>;

const REPORT_AGAIN_MS = 10_000;

const sentChange = <C extends { current: RulesInForce; wanted: RulesInForce }>(change: C): C => ({
  ...change,
  current: sentRules(change.current),
  wanted: sentRules(change.wanted),
});

export class RemoteVault implements KeyVault {
  readonly #options: RemoteVaultOptions;
  #reportedAtMs = Number.NEGATIVE_INFINITY;

  constructor(options: RemoteVaultOptions) {
    this.#options = options;
  }

  close(): Promise<void> {
    return this.#options.client.close();
  }

  keyNames(): Promise<KeyNames> {
    return this.#call("keyNames");
  }

  seal(...args: VaultArguments<"seal">): Promise<Uint8Array> {
    return this.#call("seal", ...args);
  }

  open(...args: VaultArguments<"open">): Promise<Uint8Array> {
    return this.#call("open", ...args);
  }

  createWallet(...args: VaultArguments<"createWallet">): Promise<Answered<"createWallet">> {
    return this.#call("createWallet", ...args);
  }

  adopt(...[wallet, first]: VaultArguments<"adopt">): Promise<Answered<"adopt">> {
    return this.#call("adopt", wallet, { ...first, rules: sentRules(first.rules) });
  }

  reseal(...[wallet, rules]: VaultArguments<"reseal">): Promise<Answered<"reseal">> {
    return this.#call("reseal", wallet, sentChange(rules));
  }

  reown(...[wallet, to, rules]: VaultArguments<"reown">): Promise<Answered<"reown">> {
    return this.#call("reown", wallet, to, sentChange(rules));
  }

  async signAuthorization(
    agentId: string,
    authorization: Authorization,
    cover: Cover,
  ): Promise<Hex> {
    const signature = await this.#call("signAuthorization", agentId, authorization, cover);
    const network = this.#options.networks.find((one) => one.chainId === authorization.chainId);
    const read = parseEcdsa(signature);
    const scheme = paymentSchemeOf(authorization);
    // A mixed-up response would be stored, and only the chain would detect it.
    const isOurs =
      network !== undefined &&
      read !== undefined &&
      recoverSigner(scheme.transferDigest(network, authorization), read) ===
        authorization.from.toLowerCase();
    if (!isOurs) throw this.#away("signAuthorization was answered with another signature");
    return signature;
  }

  signAllowance(...args: VaultArguments<"signAllowance">): Promise<SignedAuthorization> {
    return this.#call("signAllowance", ...args);
  }

  signRevocation(...args: VaultArguments<"signRevocation">): Promise<SignedAuthorization> {
    return this.#call("signRevocation", ...args);
  }

  signCancel(...args: VaultArguments<"signCancel">): Promise<Hex> {
    return this.#call("signCancel", ...args);
  }

  channelSigners(): Promise<Address[]> {
    return this.#call("channelSigners");
  }

  signWithdrawal(...args: VaultArguments<"signWithdrawal">): Promise<Hex> {
    return this.#call("signWithdrawal", ...args);
  }

  async signVoucher(...args: VaultArguments<"signVoucher">): Promise<ChannelSignatures> {
    const signed = await this.#call("signVoucher", ...args);
    const [, order] = args;
    if (!ownVoucher(order, { ceiling: order.ceiling, voucher: signed.voucher }))
      throw this.#away("signVoucher was answered with another signature");
    return signed;
  }

  async signIn(args: SiteSignInRequest): Promise<SIWxPayload | undefined> {
    // Third-party JSON is sent as text, because the JSON of calls has special types of its own.
    const challenge = JSON.stringify(args.challenge ?? null);
    return (await this.#call("signIn", { ...args, challenge })) ?? undefined;
  }

  async #call<Name extends keyof KeyVault>(
    name: Name,
    ...args: VaultArguments<Name>
  ): Promise<Answered<Name>> {
    const { client, timings } = this.#options;
    const body = encode(args);
    let answer: unknown;
    try {
      answer = decode(await client.call(name, body, timings.custodyAnswerMs));
    } catch (error) {
      throw this.#away(`${name}: ${(error as Error).message}`, error);
    }
    if (!isAnswer(answer)) throw this.#away(`${name} was answered with garbage`);
    if (!answer.ok) throw errorOf(answer);
    if (!isResult(name, answer.result)) throw this.#away(`${name} was answered with garbage`);
    return answer.result as Answered<Name>;
  }

  #away(reason: string, cause: unknown = new Error(reason)): ApiError {
    const now = performance.now();
    if (now - this.#reportedAtMs > REPORT_AGAIN_MS) {
      this.#reportedAtMs = now;
      this.#options.onTrouble(reason);
    }
    return keysUnavailable(cause);
  }
}
