/**
 * Calls from one process to another of this machine, over a Unix socket: frames of JSON with their length before them.
 * Both sides bound what they hold, and neither believes the other: a frame that is too long or not JSON ends the
 * connection.
 */
import { chmod, lstat, mkdir, rm } from "node:fs/promises";
import { connect, createServer, type Server, type Socket } from "node:net";
import { dirname } from "node:path";

/** Two lists of payees and a signed policy are some hundred kilobytes. */
const MAX_FRAME_BYTES = 2 * 1024 * 1024;
const LENGTH_BYTES = 4;
const PRIVATE_DIRECTORY = 0o700;
const PRIVATE_SOCKET = 0o600;
const OTHERS = 0o077;

const isPlain = (value: unknown): value is Record<string, unknown> =>
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
class Frames {
  #held: Buffer[] = [];
  #bytes = 0;

  *take(chunk: Buffer): Generator<unknown> {
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

const isCall = (frame: unknown): frame is Call =>
  isPlain(frame) &&
  typeof frame["id"] === "number" &&
  typeof frame["method"] === "string" &&
  typeof frame["timeoutMs"] === "number";

export interface ServeOptions {
  path: string;
  /** Never throws: a refusal is an answer. */
  answer(call: Call): Promise<unknown>;
  /** The answer to a call that found no place in time. */
  tooBusy: unknown;
  atOnce: number;
  waiting: number;
  onBroken(reason: string): void;
}

/** Listens where only this user can come: a socket of mode 0600 in a directory of mode 0700. */
export async function serveCalls(options: ServeOptions): Promise<{ close(): Promise<void> }> {
  const { path } = options;
  await privateDirectory(dirname(path));
  await removeStale(path);
  const places = new Places(options.atOnce, options.waiting);
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket);
    socket.on("close", () => sockets.delete(socket));
    serveOne(socket, places, options);
  });
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject);
    server.listen(path, resolve);
  });
  await chmod(path, PRIVATE_SOCKET);
  return { close: () => closeServer(server, sockets) };
}

function serveOne(socket: Socket, places: Places, options: ServeOptions): void {
  const frames = new Frames();
  const send = (id: number, answer: unknown): void => {
    if (!socket.destroyed) socket.write(encode({ id, answer }));
  };
  const take = async (call: Call): Promise<void> => {
    const untilMs = performance.now() + call.timeoutMs;
    const leave = await places.enter();
    if (!leave) return send(call.id, options.tooBusy);
    try {
      // Nobody waits for it any more.
      if (socket.destroyed || performance.now() > untilMs) return;
      send(call.id, await options.answer(call));
    } finally {
      leave();
    }
  };
  socket.on("error", () => socket.destroy());
  socket.on("data", (chunk: Buffer) => {
    try {
      for (const frame of frames.take(chunk)) {
        if (!isCall(frame)) throw new TypeError("a frame is no call");
        take(frame).catch((error: unknown) => {
          options.onBroken(String(error));
          socket.destroy();
        });
      }
    } catch (error) {
      options.onBroken(String(error));
      socket.destroy();
    }
  });
}

/** So many at once, so many that wait, and no more. */
class Places {
  readonly #waiting: (() => void)[] = [];
  readonly #most: number;
  #free: number;

  constructor(atOnce: number, waiting: number) {
    this.#free = atOnce;
    this.#most = waiting;
  }

  async enter(): Promise<(() => void) | undefined> {
    if (this.#free > 0) this.#free -= 1;
    else {
      if (this.#waiting.length >= this.#most) return undefined;
      await new Promise<void>((resolve) => this.#waiting.push(resolve));
    }
    return () => {
      const next = this.#waiting.shift();
      if (next) next();
      else this.#free += 1;
    };
  }
}

async function privateDirectory(path: string): Promise<void> {
  await mkdir(path, { recursive: true, mode: PRIVATE_DIRECTORY });
  const { mode, uid } = await lstat(path);
  if ((mode & OTHERS) !== 0 || uid !== process.getuid?.())
    throw new Error(`${path} must be this user's alone (mode 0700): who comes in may ask`);
}

/** A socket that nobody listens on is left over from a process that was killed. */
async function removeStale(path: string): Promise<void> {
  const found = await lstat(path).catch(() => undefined);
  if (!found) return;
  if (!found.isSocket()) throw new Error(`${path} is there and is no socket`);
  const isAlive = await new Promise<boolean>((resolve) => {
    const socket = connect(path);
    socket.once("connect", () => resolve(true));
    socket.once("error", () => resolve(false));
    socket.once("close", () => socket.destroy());
    socket.once("connect", () => socket.destroy());
  });
  if (isAlive) throw new Error(`another process listens on ${path}`);
  await rm(path, { force: true });
}

async function closeServer(server: Server, sockets: Set<Socket>): Promise<void> {
  await new Promise<void>((resolve) => {
    server.close(() => resolve());
    for (const socket of sockets) socket.destroy();
  });
}

/** No answer came, or none that can be used: whether the call was carried out is unknown. */
export class NoAnswer extends Error {
  override name = "NoAnswer";
}

const CONNECT_MS = 1_000;
const RETRY_MS = 100;
/** A process that restarts is waited for, this long. */
const PATIENCE_MS = 2_000;
const MAX_OPEN = 1_024;

interface Open {
  resolve(answer: unknown): void;
  reject(error: Error): void;
  timer: NodeJS.Timeout;
}

/** The calling side: one connection, opened when it is needed and anew when it is lost. */
export class UnixCalls {
  readonly #path: string;
  readonly #open = new Map<number, Open>();
  #socket: Socket | undefined;
  #connecting: Promise<Socket> | undefined;
  #nextId = 1;
  #isClosed = false;

  constructor(path: string) {
    this.#path = path;
  }

  async call(method: string, args: unknown, timeoutMs: number): Promise<unknown> {
    if (this.#open.size >= MAX_OPEN) throw new NoAnswer(`${MAX_OPEN} calls are open`);
    const socket = this.#socket ?? (await this.#connect());
    const id = this.#nextId++;
    const frame = encode({ id, method, args, timeoutMs } satisfies Call);
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        this.#open.delete(id);
        reject(new NoAnswer(`no answer to ${method} within ${timeoutMs} ms`));
      }, timeoutMs);
      this.#open.set(id, { resolve, reject, timer });
      socket.write(frame);
    });
  }

  close(): void {
    this.#isClosed = true;
    this.#lose("the service is stopping");
  }

  async #connect(): Promise<Socket> {
    this.#connecting ??= this.#reach().finally(() => (this.#connecting = undefined));
    return this.#connecting;
  }

  async #reach(): Promise<Socket> {
    const untilMs = performance.now() + PATIENCE_MS;
    for (;;) {
      if (this.#isClosed) throw new NoAnswer("the service is stopping");
      try {
        await assertPrivate(this.#path);
        return this.#use(await openSocket(this.#path));
      } catch (error) {
        if (performance.now() > untilMs)
          throw new NoAnswer(`nobody answers on ${this.#path}: ${String(error)}`, { cause: error });
        await new Promise((resolve) => setTimeout(resolve, RETRY_MS));
      }
    }
  }

  #use(socket: Socket): Socket {
    const frames = new Frames();
    this.#socket = socket;
    socket.on("error", () => undefined);
    socket.on("close", () => {
      if (this.#socket === socket) this.#lose("the connection was lost");
    });
    socket.on("data", (chunk: Buffer) => {
      try {
        for (const frame of frames.take(chunk)) this.#hear(frame);
      } catch (error) {
        this.#lose(`what came was no answer: ${String(error)}`);
      }
    });
    return socket;
  }

  #hear(frame: unknown): void {
    if (!isPlain(frame) || typeof frame["id"] !== "number")
      throw new TypeError("no answer's frame");
    const open = this.#open.get(frame["id"]);
    // One that came too late: whoever waited was told.
    if (!open) return;
    this.#open.delete(frame["id"]);
    clearTimeout(open.timer);
    open.resolve(frame["answer"]);
  }

  #lose(why: string): void {
    const socket = this.#socket;
    this.#socket = undefined;
    socket?.destroy();
    for (const { reject, timer } of this.#open.values()) {
      clearTimeout(timer);
      reject(new NoAnswer(why));
    }
    this.#open.clear();
  }
}

/** Somebody else's socket is not asked: it would be told what is to be signed, and could answer anything. */
async function assertPrivate(path: string): Promise<void> {
  for (const each of [dirname(path), path]) {
    const { mode, uid } = await lstat(each);
    const own = process.getuid?.();
    if ((mode & OTHERS) !== 0 || (uid !== own && uid !== 0))
      throw new Error(`${each} is not this user's alone`);
  }
}

function openSocket(path: string): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const socket = connect(path);
    const timer = setTimeout(() => socket.destroy(new Error("not connected in time")), CONNECT_MS);
    socket.once("connect", () => {
      clearTimeout(timer);
      socket.removeListener("error", reject);
      resolve(socket);
    });
    socket.once("error", reject);
  });
}
