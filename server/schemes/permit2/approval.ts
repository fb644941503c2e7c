/**
 * The payer's own `approve(Permit2, ...)`, signed as a transaction and not sent (`erc20ApprovalGasSponsoring`).
 * It must be for this payer, this token and Permit2, checked in the reference implementation's order. The payer
 * pays its gas.
 */
import {
  hexToBytes,
  keccak256,
  parseTransaction,
  serializeTransaction,
  type Address,
  type Hex,
  type TransactionSerializable,
  type TransactionSerialized,
} from "viem";
import { addressWord, selectorDigits } from "../../core/abi.ts";
import { isRecord } from "../../core/foreign-text.ts";
import type { NetworkFacts } from "../../core/networks.ts";
import { parseEcdsa, recoverSigner } from "../../core/signatures.ts";
import { refuse, type PayerApproval, type PresentedParts, type Refusal } from "../scheme.ts";
import { PERMIT2 } from "./onchain.ts";

export const APPROVAL_EXTENSION = "erc20ApprovalGasSponsoring";

/** As the payload contains it, not verified yet. */
export interface Approval {
  readonly isWellFormed: boolean;
  readonly from: string;
  readonly asset: string;
  readonly spender: string;
  readonly raw: Hex;
}

interface Bound {
  readonly payer: Address;
  readonly from: string;
  readonly asset: string;
  readonly chainId: number;
  /** The minimum allowance. */
  readonly amount: bigint;
}

type Form = (text: string) => boolean;
export const isAddressText: Form = (text) => /^0x[a-f0-9]{40}$/.test(text);
export const isVersionText: Form = (text) => /^[0-9]+(\.[0-9]+)*$/.test(text);

/**
 * The fields that a client adds to an extension when it signs, in lower case. Undefined if one is missing: the server's
 * announcement has none of them, and a client that did not sign does not add them.
 */
export function readSigned<Name extends string>(
  extension: unknown,
  forms: Readonly<Record<Name, Form>>,
): { isWellFormed: boolean; texts: Record<Name, string> } | undefined {
  const info = isRecord(extension) ? extension["info"] : undefined;
  const names = Object.keys(forms) as Name[];
  if (!isRecord(info) || names.some((name) => !info[name])) return undefined;
  const texts = {} as Record<Name, string>;
  for (const name of names) {
    const value = info[name];
    texts[name] = typeof value === "string" ? value.toLowerCase() : "";
  }
  return { isWellFormed: names.every((name) => forms[name](texts[name])), texts };
}

const APPROVAL_FORMS = {
  from: isAddressText,
  asset: isAddressText,
  spender: isAddressText,
  amount: (text: string) => /^[0-9]+$/.test(text),
  signedTransaction: (text: string) => /^0x[a-f0-9]+$/.test(text),
  version: isVersionText,
};

/** Whether the client signed one: clients repeat what the server announced, too. */
export const hasApproval = (extension: unknown): boolean =>
  readSigned(extension, APPROVAL_FORMS) !== undefined;

/** Undefined on networks where we do not send approvals, or if the client did not sign one. */
export function readApproval(
  { extensions }: PresentedParts,
  network: NetworkFacts,
): Approval | undefined {
  const signed = readSigned(
    network.sendsApprovals && extensions[APPROVAL_EXTENSION],
    APPROVAL_FORMS,
  );
  if (!signed) return undefined;
  const { from, asset, spender, signedTransaction } = signed.texts;
  return { isWellFormed: signed.isWellFormed, from, asset, spender, raw: signedTransaction as Hex };
}

/** Far more than an approval needs; longer ones are not parsed. */
const MAX_RAW_CHARS = 2_000;
/** Stock clients use 70,000. A larger limit could fill blocks, at the payer's cost and sent by us. */
const MAX_GAS = 200_000n;
const APPROVE = `0x${selectorDigits("approve(address,uint256)")}`;
const ARGUMENT = 64;

/** Pure. What needs the chain (nonce, price, funds) is checked by the simulation. */
export function checkApproval(approval: Approval, bound: Bound): Refusal | PayerApproval {
  const { payer } = bound;
  if (!approval.isWellFormed) return refuse("invalid_erc20_approval_extension_format", payer);
  if (approval.from !== bound.from) return refuse("erc20_approval_from_mismatch", payer);
  if (approval.asset !== bound.asset) return refuse("erc20_approval_asset_mismatch", payer);
  if (approval.spender !== PERMIT2.toLowerCase())
    return refuse("erc20_approval_spender_not_permit2", payer);
  const parsed = parse(approval.raw);
  if (!parsed) return refuse("erc20_approval_tx_parse_failed", payer);
  const { tx, signer } = parsed;
  if (tx.to?.toLowerCase() !== bound.asset) return refuse("erc20_approval_tx_wrong_target", payer);
  const data = (tx.data ?? "0x").toLowerCase();
  if (!data.startsWith(APPROVE)) return refuse("erc20_approval_tx_wrong_selector", payer);
  const words = data.slice(APPROVE.length);
  if (words.length < 2 * ARGUMENT) return refuse("erc20_approval_tx_invalid_calldata", payer);
  if (words.slice(0, ARGUMENT) !== addressWord(PERMIT2))
    return refuse("erc20_approval_tx_wrong_spender", payer);
  if (signer === undefined) return refuse("erc20_approval_tx_invalid_signature", payer);
  if (signer !== bound.from) return refuse("erc20_approval_tx_signer_mismatch", payer);
  const why = whyUseless(tx, words, bound);
  if (why !== undefined) return refuse("erc20_approval_tx_failed", payer, why);
  return {
    raw: approval.raw,
    from: signer,
    call: { target: bound.asset, data: data as Hex },
    nonce: BigInt(tx.nonce ?? 0),
    gas: tx.gas ?? 0n,
    maxFeeWei: tx.maxFeePerGas ?? tx.gasPrice ?? 0n,
  };
}

type Parsed = ReturnType<typeof parseTransaction>;

function parse(raw: Hex): { tx: Parsed; signer: Address | undefined } | undefined {
  if (raw.length > MAX_RAW_CHARS) return undefined;
  try {
    const tx = parseTransaction(raw as TransactionSerialized);
    return { tx, signer: signerOf(tx) };
  } catch {
    return undefined;
  }
}

/** Lower case; undefined without a valid signature. */
function signerOf({ r, s, v: _v, yParity, ...unsigned }: Parsed): Address | undefined {
  const digits = (word: Hex = "0x"): string => word.slice(2).padStart(ARGUMENT, "0");
  const signature = parseEcdsa(`0x${digits(r)}${digits(s)}${yParity === 1 ? "1c" : "1b"}`);
  const digest = keccak256(serializeTransaction(unsigned as TransactionSerializable));
  return signature && recoverSigner(hexToBytes(digest), signature);
}

/** What the reference's checks leave to the chain: an approval that would not allow the payment. */
function whyUseless(tx: Parsed, words: string, { chainId, amount }: Bound): string | undefined {
  if (tx.type !== "eip1559" && tx.type !== "legacy" && tx.type !== "eip2930")
    return "The approval is not an ordinary transaction.";
  if (tx.chainId !== chainId) return "The approval is signed for a different chain.";
  if ((tx.value ?? 0n) !== 0n) return "The approval sends value, which the token does not accept.";
  if ((tx.accessList ?? []).length > 0 || words.length !== 2 * ARGUMENT)
    return "The approval contains additional data.";
  if (BigInt(`0x${words.slice(ARGUMENT)}`) < amount)
    return "The approved amount is below the payment.";
  if ((tx.gas ?? 0n) > MAX_GAS) return `The approval needs more than ${MAX_GAS} gas.`;
  return undefined;
}
