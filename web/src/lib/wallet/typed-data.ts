import type { Address, NetworkInfo, TypedData } from "../wire.ts";
import type { Connection } from "./connection.ts";

export async function signTypedData(
  { provider, address }: Connection,
  typedData: TypedData,
): Promise<string> {
  const payload = JSON.stringify({ ...typedData, types: withDomainType(typedData) });
  return String(
    await provider.request({ method: "eth_signTypedData_v4", params: [address, payload] }),
  );
}

const DOMAIN_FIELDS = [
  ["name", "string"],
  ["version", "string"],
  ["chainId", "uint256"],
  ["verifyingContract", "address"],
] as const;

/** `eth_signTypedData_v4` requires the type of the domain. */
function withDomainType({ types, domain }: TypedData): TypedData["types"] {
  if (types.EIP712Domain) return types;
  const fields = DOMAIN_FIELDS.filter(([name]) => name in domain).map(([name, type]) => ({
    name,
    type,
  }));
  return { EIP712Domain: fields, ...types };
}

export interface Authorization {
  from: Address;
  to: Address;
  value: string;
  validAfter: string;
  validBefore: string;
  nonce: string;
}

const FIELDS: [name: keyof Authorization, type: string][] = [
  ["from", "address"],
  ["to", "address"],
  ["value", "uint256"],
  ["validAfter", "uint256"],
  ["validBefore", "uint256"],
  ["nonce", "bytes32"],
];

export const VALID_FOR_SECONDS = 300;

/** The x402 scheme of the transfers that an owner signs here. */
export const TRANSFER_SCHEME = "exact";

/** An EIP-3009 transfer that the owner signs and the facilitator sends: funding an agent needs no gas. */
export function transferAuthorization(
  network: NetworkInfo,
  from: Address,
  to: Address,
  amountAtomic: bigint,
  nowMs: number,
): { authorization: Authorization; typedData: TypedData } {
  const random = crypto.getRandomValues(new Uint8Array(32));
  const authorization: Authorization = {
    from,
    to,
    value: amountAtomic.toString(),
    validAfter: "0",
    validBefore: String(Math.floor(nowMs / 1000) + VALID_FOR_SECONDS),
    nonce: `0x${Array.from(random, (byte) => byte.toString(16).padStart(2, "0")).join("")}`,
  };
  return { authorization, typedData: transferTypedData(network, authorization) };
}

/** The typed data of a transfer, with the domain of the network's token. */
export const transferTypedData = (
  network: NetworkInfo,
  authorization: Authorization,
): TypedData => ({
  domain: {
    name: network.usdc.name,
    version: network.usdc.version,
    chainId: network.chainId,
    verifyingContract: network.usdc.address,
  },
  types: { TransferWithAuthorization: FIELDS.map(([name, type]) => ({ name, type })) },
  primaryType: "TransferWithAuthorization",
  // Only the members of the struct are signed.
  message: Object.fromEntries(FIELDS.map(([name]) => [name, authorization[name]])),
});

/** An ERC-20 transfer that the owner's wallet sends itself, for services whose facilitator is not public. */
export async function sendTransfer(
  { provider, address }: Connection,
  asset: Address,
  to: Address,
  amountAtomic: bigint,
): Promise<string> {
  const word = (hex: string): string => hex.padStart(64, "0");
  const data = `0xa9059cbb${word(to.slice(2).toLowerCase())}${word(amountAtomic.toString(16))}`;
  return String(
    await provider.request({
      method: "eth_sendTransaction",
      params: [{ from: address, to: asset, data }],
    }),
  );
}
