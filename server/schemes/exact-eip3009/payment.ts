/** Reads the protocol's `{x402Version, paymentPayload, paymentRequirements}`: strict on what moves money, blind to extra fields. */
import { getAddress, type Address, type Hex } from "viem";
import { parseAddress } from "../../core/address.ts";
import { parseAtomic } from "../../core/money.ts";
import type { NetworkFacts } from "../../core/networks.ts";
import { refuse, type Refusal } from "./reasons.ts";

export interface ExactPayment {
  readonly version: 1 | 2;
  readonly network: NetworkFacts;
  /** As the caller wrote it: the answer repeats it. */
  readonly networkName: string;
  /** Addresses in lower case from here on. */
  readonly asset: Address;
  readonly payTo: Address;
  readonly amountAtomic: bigint;
  readonly domainName: string;
  readonly domainVersion: string;
  readonly from: Address;
  readonly to: Address;
  readonly value: bigint;
  readonly validAfter: bigint;
  readonly validBefore: bigint;
  readonly nonce: Hex;
  readonly signature: string;
  /** Checksummed, for the answer. */
  readonly payer: Address;
  /** Version 2: a core field of `accepted` that contradicts the requirements. */
  readonly acceptedMismatch: "payTo" | "amount" | "asset" | undefined;
}

export type ReadPayment = { readonly isValid: true; readonly payment: ExactPayment } | Refusal;
type Fields = Record<string, unknown>;

const isFields = (value: unknown): value is Fields =>
  typeof value === "object" && value !== null && !Array.isArray(value);
const invalid = (message: string, payer?: string): Refusal =>
  refuse("invalid_payload", payer, message);

export function readPayment(body: unknown, networks: readonly NetworkFacts[]): ReadPayment {
  if (!isFields(body)) return invalid("The body must be a JSON object.");
  const { paymentPayload, paymentRequirements } = body;
  if (!isFields(paymentPayload)) return invalid("paymentPayload must be an object.");
  const version = body["x402Version"] ?? paymentPayload["x402Version"];
  if ((version !== 1 && version !== 2) || (paymentPayload["x402Version"] ?? version) !== version)
    return refuse("invalid_x402_version", payerOf(paymentPayload));
  if (!isFields(paymentRequirements)) return invalid("paymentRequirements must be an object.");
  const accepted = version === 2 ? paymentPayload["accepted"] : paymentPayload;
  if (!isFields(accepted)) return invalid("paymentPayload.accepted must be an object.");
  const exact = paymentPayload["payload"];
  if (!isFields(exact)) return invalid("paymentPayload.payload must be an object.");
  return readExact(version, accepted, exact, paymentRequirements, networks);
}

/** In the order of the reference implementation, so that its codes and ours agree. */
function readExact(
  version: 1 | 2,
  accepted: Fields,
  exact: Fields,
  requirements: Fields,
  networks: readonly NetworkFacts[],
): ReadPayment {
  if ("permit2Authorization" in exact) return refuse("unsupported_payload_type");
  const { authorization, signature } = exact;
  if (!isFields(authorization)) return invalid("payload.authorization must be an object.");
  const payer = checksummed(authorization["from"]);
  if (accepted["scheme"] !== "exact" || requirements["scheme"] !== "exact")
    return refuse("invalid_exact_evm_scheme", payer);
  const extra = isFields(requirements["extra"]) ? requirements["extra"] : {};
  const { name: domainName, version: domainVersion } = extra;
  if (!isText(domainName) || !isText(domainVersion))
    return refuse("invalid_exact_evm_missing_eip712_domain", payer);
  const networkName = requirements["network"];
  if (typeof networkName !== "string" || accepted["network"] !== networkName)
    return refuse("invalid_exact_evm_network_mismatch", payer);
  const network = findServed(version, networkName, networks);
  if (!network) return refuse("invalid_network", payer);

  const terms = readTerms(version, requirements, accepted);
  if ("reason" in terms) return { ...terms, ...(payer && { payer }) };
  const signed = readAuthorization(authorization);
  if ("reason" in signed) return { ...signed, ...(payer && { payer }) };
  if (typeof signature !== "string") return invalid("payload.signature must be a string.", payer);
  return {
    isValid: true,
    payment: {
      version,
      network,
      networkName,
      domainName,
      domainVersion,
      signature,
      ...terms,
      ...signed,
      payer: getAddress(signed.from),
    },
  };
}

type Terms = Pick<ExactPayment, "asset" | "payTo" | "amountAtomic" | "acceptedMismatch">;

function readTerms(version: 1 | 2, requirements: Fields, accepted: Fields): Terms | Refusal {
  const asset = parseAddress(requirements["asset"]);
  if (!asset.ok) return invalid(`paymentRequirements.asset ${asset.reason}.`);
  const payTo = parseAddress(requirements["payTo"]);
  if (!payTo.ok) return invalid(`paymentRequirements.payTo ${payTo.reason}.`);
  const amountField = version === 2 ? "amount" : "maxAmountRequired";
  const amountAtomic = parseAtomic(requirements[amountField]);
  if (amountAtomic === undefined || amountAtomic === 0n)
    return invalid(`paymentRequirements.${amountField} must be atomic units above zero.`);
  const terms = { asset: asset.address, payTo: payTo.address, amountAtomic };
  return {
    ...terms,
    acceptedMismatch: version === 2 ? contradiction(accepted, terms) : undefined,
  };
}

/** `accepted` may leave out a field, never contradict one. */
function contradiction(
  accepted: Fields,
  terms: Omit<Terms, "acceptedMismatch">,
): ExactPayment["acceptedMismatch"] {
  const { asset, payTo, amount } = accepted;
  if (payTo !== undefined && lower(payTo) !== terms.payTo) return "payTo";
  if (amount !== undefined && parseAtomic(amount) !== terms.amountAtomic) return "amount";
  if (asset !== undefined && lower(asset) !== terms.asset) return "asset";
  return undefined;
}

type Signed = Pick<ExactPayment, "from" | "to" | "value" | "validAfter" | "validBefore" | "nonce">;

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

/** Version 2 names networks by CAIP-2 id, version 1 by its own names: never the other way round. */
function findServed(
  version: 1 | 2,
  name: string,
  networks: readonly NetworkFacts[],
): NetworkFacts | undefined {
  return networks.find((network) =>
    version === 2 ? network.id === name : network.v1Name === name,
  );
}

const isText = (value: unknown): value is string => typeof value === "string" && value !== "";
const lower = (value: unknown): unknown =>
  typeof value === "string" ? value.toLowerCase() : value;

function checksummed(value: unknown): Address | undefined {
  const parsed = parseAddress(value);
  return parsed.ok ? getAddress(parsed.address) : undefined;
}

function payerOf(paymentPayload: Fields): Address | undefined {
  const { payload } = paymentPayload;
  const authorization = isFields(payload) ? payload["authorization"] : undefined;
  return isFields(authorization) ? checksummed(authorization["from"]) : undefined;
}

/** What the caller called the network, also where nothing else was readable. */
export function networkNameOf(body: unknown): string {
  if (!isFields(body)) return "";
  const { paymentPayload, paymentRequirements } = body;
  for (const holder of [paymentRequirements, paymentPayload]) {
    if (isFields(holder) && typeof holder["network"] === "string") return holder["network"];
  }
  return "";
}
