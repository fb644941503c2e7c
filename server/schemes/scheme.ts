/**
 * What differs between payment schemes, in the words of those who ask: the facilitator, the settlement engine,
 * the wallet, the paywall. `schemes/index.ts` lists the schemes; nobody else knows them by name.
 */
import type { Address, Hex } from "viem";
import type { CallResult, ContractCall, RpcLog } from "../core/abi.ts";
import type {
  Authorization,
  AuthorizationRef,
  SettlementKey,
  SignedAuthorization,
} from "../core/authorization.ts";
import type { NetworkFacts } from "../core/networks.ts";
import type { Reason, Refusal } from "./reasons.ts";
import type { Deployment } from "./wallet-signature.ts";

/** A payment as somebody presents it: read, and not believed yet. Addresses in lower case. */
export interface Payment {
  readonly scheme: Scheme;
  readonly version: 1 | 2;
  readonly network: NetworkFacts;
  /** As the caller wrote it: the answer repeats it. */
  readonly networkName: string;
  readonly payTo: Address;
  readonly amountAtomic: bigint;
  /** What the payer says it signed. */
  readonly authorization: Authorization;
  readonly signature: string;
  /** Checksummed, for the answer. */
  readonly payer: Address;
}

export type ReadPayment<Read extends Payment = Payment> =
  | { readonly isValid: true; readonly payment: Read }
  | Refusal;

export type Fields = Record<string, unknown>;

/** The parts of a protocol body, taken apart alike for every scheme. */
export interface PresentedParts {
  readonly version: 1 | 2;
  /** Version 2: `paymentPayload.accepted`; version 1: the payload itself. */
  readonly accepted: Fields;
  /** `paymentPayload.payload`: the scheme's own. */
  readonly payload: Fields;
  readonly requirements: Fields;
}

/** What the chain said when the transfer would not go through. */
export interface Diagnosis {
  /** Undefined when the token does not know the question. */
  readonly used: boolean | undefined;
  readonly balanceAtomic: bigint | undefined;
}

/** Asked by the facilitator's checker. */
interface Checking<Read extends Payment> {
  read(parts: PresentedParts, networks: readonly NetworkFacts[]): ReadPayment<Read>;
  /** The digest, and the canonical signature if the payer itself made it as an ordinary account. */
  examine(payment: Read): { digest: Hex; ecdsa: Hex | undefined };
  /** What needs no chain. Without a time, a payment that was accepted in time keeps its answer afterwards. */
  checkTerms(payment: Read, nowSeconds: bigint | undefined): Refusal | undefined;
  explainFailure(payment: Read, found: Diagnosis): Refusal;
}

/** The calls that move the money, in order; where there are several, the last fails the others. */
export interface TransferPlan {
  readonly calls: readonly [...ContractCall[], ContractCall];
  /** What a plain key signed: no code of strangers runs in it. */
  readonly isPlainKey: boolean;
  readonly deployment: Deployment | undefined;
}

/** What must have moved for this authorization to count as paid. */
export interface ExpectedTransfer extends AuthorizationRef {
  to: string;
  value: bigint;
}

export type AuthorizationFate = "paid" | "canceled" | "used_otherwise" | "untouched";

/** Why the contract refuses a call, from its revert text. */
export interface RevertMeaning {
  readonly reason: Reason;
  readonly message: string;
  /** Used, past its time, or too early: the state at a block decides that, not a revert. */
  readonly isOfState: boolean;
}

/** Asked by the checker's rehearsal and by the settlement engine, so that both speak of the same bytes. */
interface Relaying {
  planTransfer(authorization: SignedAuthorization): TransferPlan;
  cancelCall(key: Pick<SettlementKey, "asset" | "from" | "nonce">, signature: Hex): ContractCall;
  stateCall(ref: AuthorizationRef): ContractCall;
  /** Whether that call's answer says used or canceled; undefined where it says neither yes nor no. */
  isEnded(ref: AuthorizationRef, answer: CallResult): boolean | undefined;
  /** What the logs of one transaction prove. */
  fateIn(logs: readonly RpcLog[], expected: ExpectedTransfer): AuthorizationFate;
  /** Which events end this authorization, for `eth_getLogs`. */
  endFilter(ref: AuthorizationRef): { address: string; topics: (Hex | Hex[])[] };
  /** Of the logs of this filter: a use, in contrast to a cancellation. */
  isUse(log: RpcLog): boolean;
  explainRevert(text: string | undefined): RevertMeaning;
  readonly reasonUsed: Reason;
  readonly reasonExpired: Reason;
}

/** Asked by the wallet: custody, and the client that pays for requests. */
interface Paying {
  transferDigest(network: NetworkFacts, authorization: Authorization): Uint8Array;
  cancelDigest(network: NetworkFacts, authorizer: Address, nonce: Hex): Uint8Array;
  /** A seller's `extra` may describe what we do not sign: then the sentence that says so. */
  whyNotPayable(extra: Fields, network: NetworkFacts): string | undefined;
  /** `payload` of the proof a seller is shown. */
  proofPayload(authorization: SignedAuthorization): object;
}

export interface Scheme<Read extends Payment = Payment> extends Checking<Read>, Relaying, Paying {
  /** As the protocol names it in `scheme`. */
  readonly name: string;
  /** As the protocol names the way the asset moves. */
  readonly transferMethod: string;
  /** `extra` of a payment requirement. Asked by the paywall. */
  requirementExtra(network: NetworkFacts): Fields;
}
