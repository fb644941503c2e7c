/**
 * The relayer accounts that pay gas. Their keys are in this process, or in a KMS that signs digests and exports
 * only public keys.
 */
import { createPublicKey } from "node:crypto";
import {
  getAddress,
  hashMessage,
  hashTypedData,
  hexToBytes,
  serializeTransaction,
  toRlp,
  type Address,
  type Hex,
  type LocalAccount,
  type Signature,
  type TransactionSerializable,
} from "viem";
import { toAccount } from "viem/accounts";
import { keccakOfHex } from "../core/keccak.ts";
import { addressOf, addressOfPublicKey, fromDer, parseEcdsa, sign } from "../core/signatures.ts";
import { keysUnavailable, type Kms } from "./kms.ts";

export type Relayer = LocalAccount;

/**
 * In the order of the configuration. Reads each public key from the KMS, which must therefore be available at
 * start.
 */
export async function readRelayers(
  { relayerPrivateKeys, relayerKmsKeys }: { relayerPrivateKeys: Hex[]; relayerKmsKeys: string[] },
  kms: Pick<Kms, "publicKey" | "sign">,
): Promise<Relayer[]> {
  const relayers: Relayer[] = [
    ...relayerPrivateKeys.map((key) => keyAccount(key)),
    ...(await Promise.all(relayerKmsKeys.map((keyId) => kmsAccount(kms, keyId)))),
  ];
  const addresses = new Set(relayers.map(({ address }) => address.toLowerCase()));
  if (addresses.size !== relayers.length)
    throw new Error("RELAYER_PRIVATE_KEYS and RELAYER_KMS_KEYS name one account twice");
  return relayers;
}

export async function kmsAccount(
  kms: Pick<Kms, "publicKey" | "sign">,
  keyId: string,
): Promise<Relayer> {
  const address = getAddress(addressOfPublicKey(pointOf(await kms.publicKey(keyId), keyId)));
  return accountOf(address, async (digest) => {
    const signature = fromDer(await kms.sign(keyId, digest), digest, address);
    // Every signature is checked against the account, whatever the KMS returns.
    if (signature === undefined)
      throw keysUnavailable(new Error(`KMS key ${keyId} gave no signature of ${address}`));
    return signature;
  });
}

function keyAccount(key: Hex): Relayer {
  const privateKey = hexToBytes(key);
  return accountOf(getAddress(addressOf(privateKey)), async (digest) => sign(digest, privateKey));
}

/**
 * A viem account with native hashing and signing: a batch transaction has tens of kilobytes, which is slow in
 * JavaScript.
 */
function accountOf(address: Address, signDigest: (digest: Uint8Array) => Promise<Hex>): Relayer {
  const signHash = (hash: Hex): Promise<Hex> => signDigest(hexToBytes(hash));
  return toAccount({
    address,
    sign: ({ hash }) => signHash(hash),
    signMessage: ({ message }) => signHash(hashMessage(message)),
    signTypedData: (typedData) => signHash(hashTypedData(typedData)),
    signTransaction: async (transaction, { serializer = serialize } = {}) =>
      serializer(transaction, partsOf(await signHash(keccakOfHex(await serializer(transaction))))),
  });
}

function partsOf(signed: Hex): Signature {
  const signature = parseEcdsa(signed);
  if (!signature) throw new Error("a checked signature is none");
  const [r, s] = [signature.hex.slice(2, 66), signature.hex.slice(66, 130)];
  return { r: `0x${r}`, s: `0x${s}`, yParity: signature.yParity };
}

/** Its signer sees the transaction and not only its hash, and signs nothing else. */
export function transactionAccount(
  address: Address,
  signTransaction: (transaction: PlainTransaction) => Promise<Hex>,
): LocalAccount {
  const refuse = async (): Promise<Hex> => {
    throw new Error(`${address} signs only transactions`);
  };
  return toAccount({
    address: getAddress(address),
    signMessage: refuse,
    signTypedData: refuse,
    signTransaction: async (transaction) => {
      const { chainId, nonce, gas, maxFeePerGas, maxPriorityFeePerGas, to } = transaction;
      const fees = { maxFeePerGas, maxPriorityFeePerGas };
      if (!chainId || nonce === undefined || !gas || !to || !isPriced(fees))
        throw new Error("a transaction of this account is not complete");
      const plain = {
        ...fees,
        chainId,
        nonce,
        gas,
        to,
        value: transaction.value ?? 0n,
        data: transaction.data ?? "0x",
      };
      return serialize({ ...plain, type: "eip1559" }, partsOf(await signTransaction(plain)));
    },
  });
}

/** A transaction with all that is signed. */
export interface PlainTransaction {
  chainId: number;
  nonce: number;
  gas: bigint;
  maxFeePerGas: bigint;
  maxPriorityFeePerGas: bigint;
  to: Address;
  value: bigint;
  data: Hex;
}

const isPriced = (fees: {
  maxFeePerGas: bigint | undefined;
  maxPriorityFeePerGas: bigint | undefined;
}): fees is { maxFeePerGas: bigint; maxPriorityFeePerGas: bigint } =>
  fees.maxFeePerGas !== undefined && fees.maxPriorityFeePerGas !== undefined;

/**
 * Serializes like viem, which converts each byte of the calldata to hex digits and back. A plain EIP-1559
 * transaction is passed to viem's RLP encoder as bytes instead.
 */
export function serialize(transaction: TransactionSerializable, signature?: Signature): Hex {
  const isPlain =
    transaction.type === "eip1559" &&
    transaction.accessList === undefined &&
    (signature === undefined || signature.yParity !== undefined);
  if (!isPlain) return serializeTransaction(transaction, signature);
  const { chainId, nonce, maxPriorityFeePerGas, maxFeePerGas, gas, to, value, data } = transaction;
  const numbers = [chainId, nonce, maxPriorityFeePerGas, maxFeePerGas, gas].map(bytesOfNumber);
  const fields = [...numbers, bytesOf(to), bytesOfNumber(value), bytesOf(data), []];
  const signed = signature
    ? [signature.yParity, BigInt(signature.r), BigInt(signature.s)].map(bytesOfNumber)
    : [];
  return `0x02${Buffer.from(toRlp([...fields, ...signed], "bytes")).toString("hex")}`;
}

const bytesOf = (digits: Hex | null | undefined): Uint8Array =>
  Buffer.from(digits?.slice(2) ?? "", "hex");

/** Big-endian without leading zeros; zero is an empty byte string. */
function bytesOfNumber(value: bigint | number | undefined): Uint8Array {
  const digits = value ? value.toString(16) : "";
  return Buffer.from(digits.padStart(digits.length + (digits.length % 2), "0"), "hex");
}

/** Returns the coordinates x and y of a secp256k1 public key. */
function pointOf(der: Uint8Array, keyId: string): Uint8Array {
  const { crv, x, y } = createPublicKey({
    key: Buffer.from(der),
    format: "der",
    type: "spki",
  }).export({ format: "jwk" });
  if (crv !== "secp256k1" || x === undefined || y === undefined)
    throw new Error(`KMS key ${keyId} is not of ECC_SECG_P256K1, which Ethereum signs with`);
  return Buffer.concat([Buffer.from(x, "base64url"), Buffer.from(y, "base64url")]);
}
