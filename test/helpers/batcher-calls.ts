// Decodes our batcher's calldata into its calls, so that tests can compare them with the packed ones.
import type { Hex } from "viem";
import { selectorDigits, uintWord, type ContractCall } from "../../server/core/abi.ts";

const TRANSFER = selectorDigits(
  "transferWithAuthorization(address,address,uint256,uint256,uint256,bytes32,uint8,bytes32,bytes32)",
);
const RELAY = selectorDigits("relay(bytes)");
const WORD = 64;
const HEAD_BYTES = 156;
/** Payer, nonce and signature. */
const FIXED_BYTES = 116;
const HALF = 1n << 255n;
/** Payee, value, validAfter, validBefore: a common base for all calls, plus a difference for each call. */
const SHARED = 4;

/** The calls that the batcher makes for this calldata; undefined if it would revert, or is not in our format. */
export function unpackTransfers(data: Hex): ContractCall[] | undefined {
  const packed = packedIn(data.toLowerCase());
  if (packed === undefined) return undefined;
  let at = 0;
  const take = (bytes: number): string => packed.slice(at, (at += 2 * bytes));
  const target = `0x${take(20)}`;
  take(4);
  const widths = Array.from({ length: SHARED }, () => Number.parseInt(take(1), 16));
  const bases = widths.map(() => BigInt(`0x${take(32)}`));
  const size = widths.reduce((sum, bytes) => sum + bytes, FIXED_BYTES);
  const rest = packed.length / 2 - HEAD_BYTES;
  if (widths.some((bytes) => bytes > 32) || rest % size !== 0) return undefined;
  return Array.from({ length: rest / size }, () => {
    const from = take(20).padStart(WORD, "0");
    const [nonce, r, packedS] = [take(32), take(32), BigInt(`0x${take(32)}`)];
    const shared = widths.map((bytes, index) => {
      const extra = bytes === 0 ? 0n : BigInt(`0x${take(bytes)}`);
      return uintWord(BigInt.asUintN(256, (bases[index] ?? 0n) + extra));
    });
    const signature = uintWord(packedS < HALF ? 27 : 28) + r + uintWord(packedS % HALF);
    return { target, data: `0x${TRANSFER}${from}${shared.join("")}${nonce}${signature}` as const };
  });
}

/** The hex digits of the single bytes argument. */
function packedIn(digits: string): string | undefined {
  if (!digits.startsWith(RELAY + uintWord(32), 2)) return undefined;
  const length = Number.parseInt(digits.slice(10 + WORD, 10 + 2 * WORD), 16);
  const packed = digits.slice(10 + 2 * WORD, 10 + 2 * WORD + 2 * length);
  return length >= HEAD_BYTES && packed.length === 2 * length ? packed : undefined;
}
