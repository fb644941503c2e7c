/** Frames of JSON with their length before them, between two processes that do not believe one another. */

/** Two lists of payees and a signed policy are some hundred kilobytes. */
const MAX_FRAME_BYTES = 2 * 1024 * 1024;
const LENGTH_BYTES = 4;

export const isPlain = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && Object.getPrototypeOf(value) === Object.prototype;

/** JSON with whole numbers of any size, and bytes. What has such a member already is refused, not mistaken. */
export function encode(value: unknown): Buffer {
  const text = JSON.stringify(value, function (this: Record<string, unknown>, name, seen: unknown) {
    const raw = this[name];
    if (typeof raw === "bigint") return { $n: String(raw) };
    if (raw instanceof Uint8Array) return { $b: Buffer.from(raw).toString("base64") };
    if (isPlain(raw) && ("$n" in raw || "$b" in raw))
      throw new TypeError("a member is named $n or $b");
    return seen;
  });
  const body = Buffer.from(text);
  if (body.length > MAX_FRAME_BYTES) throw new RangeError(`a frame of ${body.length} bytes`);
  const length = Buffer.alloc(LENGTH_BYTES);
  length.writeUInt32BE(body.length);
  return Buffer.concat([length, body]);
}

const decode = (text: string): unknown =>
  JSON.parse(text, (_name, value: unknown) => {
    if (!isPlain(value)) return value;
    if (typeof value["$n"] === "string") return BigInt(value["$n"]);
    if (typeof value["$b"] === "string") return new Uint8Array(Buffer.from(value["$b"], "base64"));
    return value;
  });

/** Hands out whole frames; throws at the first that is none. */
export class Frames {
  #held: Buffer[] = [];
  #bytes = 0;

  *take(chunk: Buffer): Generator {
    this.#held.push(chunk);
    this.#bytes += chunk.length;
    for (;;) {
      if (this.#bytes < LENGTH_BYTES) return;
      const all = this.#held.length === 1 ? (this.#held[0] as Buffer) : Buffer.concat(this.#held);
      this.#held = [all];
      const length = all.readUInt32BE(0);
      if (length > MAX_FRAME_BYTES) throw new RangeError(`a frame of ${length} bytes`);
      const end = LENGTH_BYTES + length;
      if (all.length < end) return;
      const frame = all.toString("utf8", LENGTH_BYTES, end);
      this.#held = [all.subarray(end)];
      this.#bytes = all.length - end;
      yield decode(frame);
    }
  }
}

export interface Call {
  id: number;
  method: string;
  args: unknown;
  /** Whoever asked waits no longer than this. */
  timeoutMs: number;
}

export const isCall = (frame: unknown): frame is Call =>
  isPlain(frame) &&
  typeof frame["id"] === "number" &&
  typeof frame["method"] === "string" &&
  typeof frame["timeoutMs"] === "number";

/** What others than the user may do with a file. */
export const OTHERS = 0o077;
