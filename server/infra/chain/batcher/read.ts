import { keccak256, type Hex } from "viem";
import { BATCHER_CODE_HASH, NO_ANSWERS, NO_TRANSFERS } from "../../../core/batcher.ts";
import { ChainRefusal } from "../errors.ts";
import type { Caller } from "../rpc.ts";

/**
 * Returns whether our batcher is deployed and working at an address. Its code alone does not prove that: a chain may
 * lack an instruction that it uses (PUSH0), and then every call fails.
 */
export async function readBatcher(
  rpc: Caller,
  address: string,
): Promise<"ours" | "absent" | "other" | "mute"> {
  const code = await rpc.call<Hex | null>("eth_getCode", [address, "latest"]);
  if (code === null || code === "0x") return "absent";
  if (keccak256(code) !== BATCHER_CODE_HASH) return "other";
  try {
    const call = { to: address, data: NO_TRANSFERS };
    return (await rpc.call<Hex>("eth_call", [call, "latest"])) === NO_ANSWERS ? "ours" : "mute";
  } catch (error) {
    if (error instanceof ChainRefusal) return "mute";
    throw error;
  }
}
