// What payers of channels sign, as a seller reads and sends it. Without promises: nothing in a world waits for real work.
import { encodeAbiParameters, encodeFunctionData, parseAbiParameters, type Hex } from "viem";
import { computeChannelId } from "@x402/evm/batch-settlement/client";
import { CHANNELS_ABI, type ChannelConfig } from "../helpers/batch-settlement.ts";
import { word } from "./chain/abi.ts";
import { COLLECTOR, voucherHash } from "./chain/channels.ts";
import { recover } from "./chain/signatures.ts";

export const idOf = (chainId: number, config: ChannelConfig): Hex =>
  computeChannelId(config, chainId).toLowerCase() as Hex;

/** Who signed a voucher. */
export function signerOf(
  chainId: number,
  id: Hex,
  ceiling: bigint,
  signature: Hex,
): Hex | undefined {
  const digest = voucherHash(chainId, id.slice(2), word(ceiling));
  const [r, s] = [signature.slice(2, 66), signature.slice(66, 130)];
  return recover(digest, r, s, Number.parseInt(signature.slice(130), 16));
}

export const depositData = (
  config: ChannelConfig,
  amount: bigint,
  signed: { validAfter: string; validBefore: string; salt: Hex; signature: Hex },
): Hex =>
  encodeFunctionData({
    abi: CHANNELS_ABI,
    functionName: "deposit",
    args: [
      config,
      amount,
      COLLECTOR,
      encodeAbiParameters(parseAbiParameters("uint256, uint256, uint256, bytes"), [
        BigInt(signed.validAfter),
        BigInt(signed.validBefore),
        BigInt(signed.salt),
        signed.signature,
      ]),
    ],
  });
