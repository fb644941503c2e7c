import { decodeAbiParameters, parseAbiParameters } from "viem";

/** A JSON-RPC error. The texts are geth's. */
export class RpcError extends Error {
  override name = "RpcError";
  readonly code: number;
  readonly data: unknown;
  constructor(code: number, message: string, data?: unknown) {
    super(message);
    this.code = code;
    this.data = data;
  }
}

/** The endpoint gives no response: the connection is refused or lost. */
export class EndpointDown extends Error {
  override name = "EndpointDown";
}

/** The endpoint keeps the connection and never responds. */
export class EndpointSilent extends Error {
  override name = "EndpointSilent";
}

const TEXT = parseAbiParameters("string");

export function revertError(output: string): RpcError {
  if (!output.startsWith("08c379a0")) return new RpcError(3, "execution reverted", `0x${output}`);
  const [text] = decodeAbiParameters(TEXT, `0x${output.slice(8)}`);
  return new RpcError(3, `execution reverted: ${text}`, `0x${output}`);
}
