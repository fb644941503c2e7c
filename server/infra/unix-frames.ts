/** Length-prefixed JSON frames between two processes that do not trust each other. */

/** Two lists of payees and a signed policy are some hundred kilobytes. */
const MAX_FRAME_BYTES = 2 * 1024 * 1024;
const LENGTH_BYTES = 4;

export const isPlain = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && Object.getPrototypeOf(value) === Object.prototype;

/** JSON with bigints and bytes. A value that already uses one of their marker members is refused. */
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

/** Returns whole frames; throws at the first invalid one. */
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
  /** The caller waits no longer than this. */
  timeoutMs: number;
}

export const isCall = (frame: unknown): frame is Call =>
  isPlain(frame) &&
  typeof frame["id"] === "number" &&
  typeof frame["method"] === "string" &&
  typeof frame["timeoutMs"] === "number";

/** Permission bits of group and others. */
export const OTHERS = 0o077;
