/** EIP-712 domain separators. They are kept, because each digest needs one and few are different. */
import { domainSeparator, type Address, type Hex } from "viem";
import { LastKnown } from "./shared-answers.ts";

export interface Domain {
  readonly name: string;
  readonly version?: string;
  readonly chainId: number;
  readonly verifyingContract: Address;
}

/** Bounded in number and length, because third parties choose a token's name and version. */
const separators = new LastKnown<Hex>(256);
const MAX_KEY_CHARS = 200;

export function separatorOf(domain: Domain): Hex {
  const { name, version, chainId, verifyingContract } = domain;
  // The length of the name makes the key unambiguous, whatever the name contains.
  const key = `${chainId} ${verifyingContract} ${name.length} ${name} ${version ?? ""}`;
  const known = separators.get(key);
  if (known) return known;
  const separator = domainSeparator({ domain });
  return key.length > MAX_KEY_CHARS ? separator : separators.keep(key, separator);
}
