/** Reads a payment of this scheme out of a protocol body. */
import { getAddress, type Hex } from "viem";
import { parseAddress } from "../../core/address.ts";
import type { Authorization } from "../../core/authorization.ts";
import { isRecord } from "../../core/json.ts";
import { parseAtomic } from "../../core/money.ts";
import type { NetworkFacts } from "../../core/networks.ts";
import { checksummed, contradiction, findServed, invalid, readAsked } from "../protocol-body.ts";
import { refuse, type Refusal } from "../reasons.ts";
import type { Fields, Payment, PresentedParts, Scheme } from "../scheme.ts";

export interface ExactPayment extends Payment {
  readonly domainName: string;
  readonly domainVersion: string;
  /** What the payer accepted, where that is not what the seller asks. */
  readonly acceptedMismatch: "payTo" | "amount" | "asset" | undefined;
}

/** In the order of the reference implementation, so that its codes and ours agree. */
export function readExactPayment(
  scheme: Scheme<ExactPayment>,
  parts: PresentedParts,
  networks: readonly NetworkFacts[],
): { readonly isValid: true; readonly payment: ExactPayment } | Refusal {
  const { version, accepted, payload, requirements } = parts;
  if ("permit2Authorization" in payload) return refuse("unsupported_payload_type");
  const { authorization, signature } = payload;
  if (!isRecord(authorization)) return invalid("payload.authorization must be an object.");
  const payer = checksummed(authorization["from"]);
  if (accepted["scheme"] !== scheme.name || requirements["scheme"] !== scheme.name)
    return refuse("invalid_exact_evm_scheme", payer);
  const extra = isRecord(requirements["extra"]) ? requirements["extra"] : {};
  const { name: domainName, version: domainVersion } = extra;
  if (!isText(domainName) || !isText(domainVersion))
    return refuse("invalid_exact_evm_missing_eip712_domain", payer);
  const networkName = requirements["network"];
  if (typeof networkName !== "string" || accepted["network"] !== networkName)
    return refuse("invalid_exact_evm_network_mismatch", payer);
  const network = findServed(version, networkName, networks);
  if (!network) return refuse("invalid_network", payer);

  const asked = readAsked(parts);
  if ("reason" in asked) return { ...asked, ...(payer && { payer }) };
  const { asset, payTo, amountAtomic } = asked;
  const signed = readAuthorization(authorization);
  if ("reason" in signed) return { ...signed, ...(payer && { payer }) };
  if (typeof signature !== "string") return invalid("payload.signature must be a string.", payer);
  return {
    isValid: true,
    payment: {
      scheme,
      version,
      network,
      networkName,
      domainName,
      domainVersion,
      signature,
      payTo,
      amountAtomic,
      acceptedMismatch: contradiction(parts, asked),
      authorization: { chainId: network.chainId, asset, ...signed },
      payer: getAddress(signed.from),
    },
  };
}

type Signed = Omit<Authorization, "chainId" | "asset">;

function readAuthorization(fields: Fields): Signed | Refusal {
  const from = parseAddress(fields["from"]);
  if (!from.ok) return invalid(`authorization.from ${from.reason}.`);
  const to = parseAddress(fields["to"]);
  if (!to.ok) return invalid(`authorization.to ${to.reason}.`);
  const value = parseAtomic(fields["value"]);
  const validAfter = parseAtomic(fields["validAfter"]);
  const validBefore = parseAtomic(fields["validBefore"]);
  if (value === undefined || validAfter === undefined || validBefore === undefined) {
    return invalid(
      "authorization.value, validAfter and validBefore must be decimal strings of a uint256.",
    );
  }
  const { nonce } = fields;
  if (typeof nonce !== "string" || !/^0x[0-9a-fA-F]{64}$/.test(nonce))
    return invalid("authorization.nonce must be 0x and 64 hexadecimal digits.");
  return {
    from: from.address,
    to: to.address,
    value,
    validAfter,
    validBefore,
    nonce: nonce.toLowerCase() as Hex,
  };
}

const isText = (value: unknown): value is string => typeof value === "string" && value !== "";
