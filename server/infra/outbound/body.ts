/**
 * Reads a response body within a limit, on the wire and decompressed. A response that was paid for is useful even in
 * part: if it is over the limit, cut off, timed out or badly compressed, the part that arrived is returned with the
 * reason.
 */
import type { Readable } from "node:stream";
import {
  brotliDecompressSync,
  constants,
  createBrotliDecompress,
  createGunzip,
  createInflate,
  gunzipSync,
  inflateSync,
  type ZlibOptions,
} from "node:zlib";
import { OutboundError, toOutboundError } from "./guard.ts";

/** size: over our limit. connection, timeout: the target's failure. encoding: the rest could not be decompressed. */
export type Truncation = "size" | "connection" | "timeout" | "encoding";

interface ReadBodyOptions {
  /** The Content-Encoding header; a body that cannot be decompressed here is returned compressed. */
  encoding: string;
  maxBytes: number;
  mayRead: (bytes: number) => boolean;
  /** False: return all of it or throw. */
  isPartialWanted: boolean;
}

interface BodyRead {
  body: Buffer;
  truncated?: Truncation;
  contentEncoding?: string;
}

interface Packing {
  stream: () => ReturnType<typeof createGunzip> | ReturnType<typeof createBrotliDecompress>;
  /** Decompresses as much as a truncated input contains. */
  begin: (packed: Buffer, maxOutputLength: number) => Buffer;
}

const begins = (finishFlush: number, maxOutputLength: number): ZlibOptions => ({
  finishFlush,
  maxOutputLength,
});
const GZIP: Packing = {
  stream: () => createGunzip(),
  begin: (packed, most) => gunzipSync(packed, begins(constants.Z_SYNC_FLUSH, most)),
};
const PACKINGS = new Map<string, Packing>([
  ["gzip", GZIP],
  ["x-gzip", GZIP],
  [
    "deflate",
    {
      stream: () => createInflate(),
      begin: (packed, most) => inflateSync(packed, begins(constants.Z_SYNC_FLUSH, most)),
    },
  ],
  [
    "br",
    {
      stream: () => createBrotliDecompress(),
      begin: (packed, most) =>
        brotliDecompressSync(packed, begins(constants.BROTLI_OPERATION_FLUSH, most)),
    },
  ],
]);

/** Up to this size the compressed bytes are kept, to recover the last of them if the compression breaks off. */
const SMALL_BYTES = 64 * 1024;
const SALVAGED_BYTES = 1024 * 1024;

export async function readBody(source: Readable, options: ReadBodyOptions): Promise<BodyRead> {
  const encoding = options.encoding.trim().toLowerCase();
  const packing = PACKINGS.get(encoding);
  const isPlain = encoding === "" || encoding === "identity";
  if (!packing && !isPlain && !options.isPartialWanted) throw new OutboundError("undecodable");
  const read = packing
    ? await readPacked(source, options, packing)
    : await readPlain(source, options);
  const { body, truncated, isPacked = !isPlain && !packing } = read;
  if (!options.isPartialWanted) assertWhole(read);
  return {
    body,
    ...(truncated && { truncated }),
    ...(isPacked && body.length > 0 && { contentEncoding: encoding }),
  };
}

interface Read {
  body: Buffer;
  truncated: Truncation | undefined;
  isPacked?: boolean;
  /** Why the body is incomplete. */
  error?: unknown;
}

function assertWhole({ truncated, isPacked, error }: Read): void {
  if (truncated === "size") throw new OutboundError("too_large");
  if (truncated === "encoding" || isPacked === true)
    throw new OutboundError("undecodable", { cause: error });
  if (truncated !== undefined) throw toOutboundError(error);
}

/** Collects bytes up to the limit. */
class Held {
  readonly #parts: Buffer[] = [];
  readonly #options: ReadBodyOptions;
  size = 0;
  /** More arrived than the limit allows. */
  isOver = false;
  /** This process has no room for it. */
  isRefused = false;

  constructor(options: ReadBodyOptions) {
    this.#options = options;
  }

  /** Returns whether more is wanted. */
  take(chunk: Buffer): boolean {
    const { maxBytes, mayRead } = this.#options;
    const part = chunk.subarray(0, maxBytes - this.size);
    this.isOver ||= part.length < chunk.length;
    if (part.length > 0 && !mayRead(part.length)) this.isRefused = true;
    if (!this.isRefused && part.length > 0) {
      this.#parts.push(part);
      this.size += part.length;
    }
    return !this.isOver && !this.isRefused;
  }

  all(): Buffer {
    if (this.isRefused) throw new OutboundError("too_large");
    return Buffer.concat(this.#parts);
  }
}

async function readPlain(source: Readable, options: ReadBodyOptions): Promise<Read> {
  const held = new Held(options);
  const cut = await pour(source, async (chunk) => held.take(chunk));
  return { body: held.all(), ...cut, ...(held.isOver && { truncated: "size" }) };
}

async function readPacked(
  source: Readable,
  options: ReadBodyOptions,
  packing: Packing,
): Promise<Read> {
  const unpacked = new Held(options);
  /** The body as it came, kept while it is short, or while nothing could be decompressed. */
  const packed = new Held({
    ...options,
    mayRead: (bytes) => packed.size < SMALL_BYTES || options.mayRead(bytes),
  });
  let isPackedWhole = true;
  const decoder = new Decoder(packing.stream(), (chunk) => unpacked.take(chunk));
  let wireBytes = 0;
  const cut = await pour(source, async (chunk) => {
    const piece = chunk.subarray(0, options.maxBytes - wireBytes);
    wireBytes += piece.length;
    isPackedWhole &&= unpacked.size === 0 || packed.size < SMALL_BYTES;
    if (isPackedWhole) packed.take(piece);
    await decoder.write(piece);
    if (piece.length < chunk.length) packed.isOver = true;
    const isLost = decoder.error !== undefined && unpacked.size > 0;
    return (
      !packed.isOver && !packed.isRefused && !unpacked.isOver && !unpacked.isRefused && !isLost
    );
  });
  const isWhole = cut.truncated === undefined && !packed.isOver && !unpacked.isOver;
  if (isWhole && wireBytes > 0) await decoder.end();
  decoder.stop();
  const isOver = packed.isOver || unpacked.isOver;
  if (packed.isRefused) throw new OutboundError("too_large");
  const body = unpacked.all();
  if (decoder.error === undefined) return { body, ...cut, ...(isOver && { truncated: "size" }) };
  const salvaged =
    isPackedWhole && packed.size <= SMALL_BYTES ? salvage(packing, packed.all()) : EMPTY;
  const best = salvaged.length > body.length ? salvaged.subarray(0, options.maxBytes) : body;
  if (best.length > 0)
    return { body: best, truncated: unpacked.isOver ? "size" : "encoding", error: decoder.error };
  const raw = { body: packed.all(), isPacked: true, error: decoder.error };
  return { ...raw, truncated: packed.isOver ? "size" : cut.truncated };
}

const EMPTY = Buffer.alloc(0);

/**
 * Reads until the source ends or no more is wanted; returns why it ended too early. Never more than one chunk ahead.
 */
async function pour(
  source: Readable,
  take: (chunk: Buffer) => Promise<boolean>,
): Promise<Pick<Read, "truncated" | "error">> {
  try {
    for await (const chunk of source as AsyncIterable<Buffer>) if (!(await take(chunk))) break;
    return { truncated: undefined };
  } catch (error) {
    const isTimeout = toOutboundError(error).failure === "timeout";
    return { truncated: isTimeout ? "timeout" : "connection", error };
  } finally {
    // The rest is not wanted, so the socket is closed with it.
    source.on("error", () => undefined).destroy();
  }
}

/** A decompressor that is fed chunk by chunk; its output before a failure is kept. */
class Decoder {
  readonly #stream: ReturnType<Packing["stream"]>;
  error: Error | undefined;
  #isOver = false;

  constructor(stream: ReturnType<Packing["stream"]>, take: (chunk: Buffer) => boolean) {
    this.#stream = stream;
    stream.on("data", (chunk: Buffer) => {
      if (!this.#isOver && !take(chunk)) this.stop();
    });
    stream.on("error", (error) => {
      if (!this.#isOver) this.error ??= error;
    });
    // Bytes after the end of the compressed data are ignored.
    stream.on("end", () => (this.#isOver = true));
  }

  /** Resolves when the chunk is decompressed, or cannot be. */
  async write(piece: Buffer): Promise<void> {
    if (this.#isOver || this.error !== undefined) return;
    await this.#done((done) => void this.#stream.write(piece, () => done()));
  }

  async end(): Promise<void> {
    if (this.#isOver || this.error !== undefined) return;
    await this.#done((done) => void this.#stream.once("end", done).end());
  }

  /** A stream that fails does not call back, it closes. */
  async #done(act: (done: () => void) => void): Promise<void> {
    await new Promise<void>((resolve) => {
      const done = (): void => {
        this.#stream.off("close", done);
        resolve();
      };
      this.#stream.once("close", done);
      act(done);
    });
  }

  stop(): void {
    this.#isOver = true;
    this.#stream.destroy();
  }
}

/**
 * Finds the longest prefix that can be decompressed: a stream returns nothing of the chunk in which it finds an error.
 */
function salvage({ begin }: Packing, packed: Buffer): Buffer {
  let best: Buffer = EMPTY;
  let good = 0;
  let bad = packed.length + 1;
  while (bad - good > 1) {
    const middle = (good + bad) >> 1;
    try {
      best = begin(packed.subarray(0, middle), SALVAGED_BYTES);
      good = middle;
    } catch {
      bad = middle;
    }
  }
  return best;
}
