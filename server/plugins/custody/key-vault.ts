import type { SIWxPayload } from "@x402/extensions/sign-in-with-x";
import type { Address, Hex } from "viem";
import type {
  Authorization,
  SettlementKey,
  SignedAuthorization,
} from "../../core/authorization.ts";
import type { RulesInForce } from "../../core/rules.ts";
import type { PlainTransaction } from "../../infra/relayer-signer.ts";
import type { ChannelOrder, ChannelSignatures } from "../../schemes/batch-settlement/paying.ts";
import type { AllowanceWanted } from "../../schemes/index.ts";
import type { Cover } from "./covers.ts";
import type { Seal, SealedWallet, WalletName } from "./envelope.ts";
import type { SecretBox } from "./secret-box.ts";
import type { SignInRequest } from "./sign-in.ts";
import type { SignedMove, Owner, SignedOrderDocument } from "./seal-changes.ts";

export interface Resealed {
  seal: Seal;
  sealed: SealedWallet;
}

/** A wallet with the members of its row. */
export type HeldWallet = WalletName & SealedWallet;

export interface NewRules {
  current: RulesInForce;
  wanted: RulesInForce;
  signed: SignedOrderDocument<"AgentPolicy"> | undefined;
}

export interface KeyNames {
  /** The key for new wrappings. */
  active: string;
  kids: string[];
}

export type SiteSignInRequest = Omit<SignInRequest, "networks" | "url"> & { url: string };

/**
 * The complete interface to the agents' keys, in this process or in the custody process (remote-vault.ts). A refusal is
 * an ApiError, a NotSignedFor (an alarm) or another CustodyError; then nothing was signed.
 */
export interface KeyVault extends SecretBox {
  createWallet(agentId: string, owner: Owner): Promise<{ address: Address; sealed: SealedWallet }>;
  adopt(
    wallet: { agentId: string; address: Address; sealed: SealedWallet; owner: Owner },
    first: { signed: SignedOrderDocument<"AgentPolicy">; rules: RulesInForce },
  ): Promise<Resealed>;
  reseal(wallet: HeldWallet, rules: NewRules): Promise<Resealed>;
  reown(
    wallet: HeldWallet,
    to: Owner,
    rules: { current: RulesInForce; wanted: RulesInForce; signed: SignedMove },
  ): Promise<Resealed>;
  signAuthorization(agentId: string, authorization: Authorization, cover: Cover): Promise<Hex>;
  signAllowance(
    agentId: string,
    payment: { authorization: Authorization; cover: Cover },
    wanted: Pick<AllowanceWanted, "value" | "count" | "deadline">,
  ): Promise<SignedAuthorization>;
  signRevocation(
    agentId: string,
    key: Pick<SettlementKey, "chainId" | "asset">,
    wanted: Pick<AllowanceWanted, "spender" | "count" | "deadline">,
  ): Promise<SignedAuthorization>;
  signCancel(
    agentId: string,
    key: Omit<SettlementKey, "from"> & Pick<Authorization, "terms">,
  ): Promise<Hex>;
  /** The accounts that sign vouchers; the first for new channels. None: this service has no channels. */
  channelSigners(): Promise<Address[]>;
  /** The signature of a transaction that withdraws from channels, of an account of `channelSigners`. */
  signWithdrawal(signer: Address, transaction: PlainTransaction): Promise<Hex>;
  signVoucher(agentId: string, order: ChannelOrder, site: string): Promise<ChannelSignatures>;
  signIn(request: SiteSignInRequest): Promise<SIWxPayload | undefined>;
  /** The names of the configured master keys; throws if the active one cannot be used now. */
  keyNames(): Promise<KeyNames>;
}
