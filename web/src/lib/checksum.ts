import { getAddress } from "viem/utils";

/** Lazy chunk: viem's keccak is not needed to look at a page. */
export const checksum = (address: string): `0x${string}` => getAddress(address.toLowerCase());
