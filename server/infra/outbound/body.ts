/** Reads a response body within a limit that holds both on the wire and unpacked. */
import type { Readable, Transform } from "node:stream";
import { pipeline } from "node:stream/promises";
import { createBrotliDecompress, createGunzip, createInflate } from "node:zlib";
import { OutboundError } from "./errors.ts";

export interface ReadBodyOptions {
  /** The Content-Encoding header; more than one coding is refused. */
  encoding: string;
  maxBytes: number;
}

export async function readBody(
  source: Readable,
  { encoding, maxBytes }: ReadBodyOptions,
): Promise<Buffer> {
  const unpack = unpacker(encoding);
  if (!unpack) return collect(source, maxBytes);
  let body: Buffer = Buffer.alloc(0);
  try {
    await pipeline(
      source,
      (chunks: AsyncIterable<Buffer>) => limited(chunks, maxBytes),
      unpack,
      async (chunks: AsyncIterable<Buffer>) => {
        body = await collect(chunks, maxBytes);
      },
    );
  } catch (error) {
    // zlib's own errors say the data is broken; everything else keeps its meaning.
    if (isZlibError(error)) throw new OutboundError("undecodable", { cause: error });
    throw error;
  }
  return body;
}

function unpacker(encoding: string): Transform | undefined {
  switch (encoding.trim().toLowerCase()) {
    case "":
    case "identity":
      return undefined;
    case "gzip":
    case "x-gzip":
      return createGunzip();
    case "deflate":
      return createInflate();
    case "br":
      return createBrotliDecompress();
    default:
      throw new OutboundError("undecodable");
  }
}

/** Chunks are counted as they come, so a bomb is left after one chunk too many, not unpacked. */
async function* limited(
  chunks: AsyncIterable<Buffer>,
  maxBytes: number,
): AsyncGenerator<Buffer, void> {
  let size = 0;
  for await (const chunk of chunks) {
    size += chunk.length;
    if (size > maxBytes) throw new OutboundError("too_large");
    yield chunk;
  }
}

async function collect(chunks: AsyncIterable<Buffer>, maxBytes: number): Promise<Buffer> {
  const parts: Buffer[] = [];
  for await (const chunk of limited(chunks, maxBytes)) parts.push(chunk);
  return Buffer.concat(parts);
}

function isZlibError(error: unknown): boolean {
  if (!(error instanceof Error) || !("code" in error)) return false;
  return /^(Z_|ERR_BROTLI|ERR_.*BROTLI|ERR__ERROR)/.test(String(error.code));
}
