import { getAddress } from "viem/utils";

/** A lazy chunk: viem's keccak is not needed to show a page. */
export const checksum = (address: string): `0x${string}` => getAddress(address.toLowerCase());
