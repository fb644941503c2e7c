/**
 * The client side of calls between processes of this machine over a Unix socket (custody). One connection with a
 * bounded number of open calls, reopened when it is lost. An invalid frame ends the connection.
 */
import { lstat } from "node:fs/promises";
import { connect, type Socket } from "node:net";
import { dirname } from "node:path";
import type { Timings } from "../core/timings.ts";
import { encode, Frames, isPlain, OTHERS, type Call } from "./unix-frames.ts";

/** No usable response came: whether the call was carried out is unknown. */
export class NoAnswer extends Error {
  override name = "NoAnswer";
}

const CONNECT_MS = 1_000;
const RETRY_MS = 100;
const MAX_OPEN = 1_024;

interface Open {
  resolve(answer: unknown): void;
  reject(error: Error): void;
  timer: NodeJS.Timeout;
}

export class UnixCalls {
  readonly #path: string;
  readonly #timings: Pick<Timings, "custodyReachMs">;
  readonly #open = new Map<number, Open>();
  #socket: Socket | undefined;
  #connecting: Promise<Socket> | undefined;
  #nextId = 1;
  #isClosed = false;
  /** When anything arrived last. */
  #receivedMs = 0;

  constructor(path: string, timings: Pick<Timings, "custodyReachMs">) {
    this.#path = path;
    this.#timings = timings;
  }

  async call(method: string, args: unknown, timeoutMs: number): Promise<unknown> {
    if (this.#open.size >= MAX_OPEN) throw new NoAnswer(`${MAX_OPEN} calls are open`);
    const socket = this.#socket ?? (await this.#connect());
    const id = this.#nextId++;
    const frame = encode({ id, method, args, timeoutMs } satisfies Call);
    const writtenMs = performance.now();
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        // Otherwise calls would pile up at a process that hangs, and it would carry out all of them when it resumes.
        if (this.#receivedMs < writtenMs && this.#socket === socket)
          return this.#lose(`no response to any call within ${timeoutMs} ms`);
        this.#open.delete(id);
        reject(new NoAnswer(`no response to ${method} within ${timeoutMs} ms`));
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
    const untilMs = performance.now() + this.#timings.custodyReachMs;
    for (;;) {
      if (this.#isClosed) throw new NoAnswer("the service is stopping");
      try {
        await assertPrivate(this.#path);
        return this.#use(await openSocket(this.#path));
      } catch (error) {
        if (performance.now() > untilMs)
          throw new NoAnswer(`no process responds on ${this.#path}: ${String(error)}`, {
            cause: error,
          });
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
      this.#receivedMs = performance.now();
      try {
        for (const frame of frames.take(chunk)) this.#receive(frame);
      } catch (error) {
        this.#lose(`the response is invalid: ${String(error)}`);
      }
    });
    return socket;
  }

  #receive(frame: unknown): void {
    if (!isPlain(frame) || typeof frame["id"] !== "number")
      throw new TypeError("not a response frame");
    const open = this.#open.get(frame["id"]);
    // A late response: its caller has already failed.
    if (!open) return;
    this.#open.delete(frame["id"]);
    clearTimeout(open.timer);
    open.resolve(frame["answer"]);
  }

  #lose(why: string): void {
    const socket = this.#socket;
    this.#socket = undefined;
    socket?.destroy();
    for (const open of this.#open.values()) {
      clearTimeout(open.timer);
      open.reject(new NoAnswer(why));
    }
    this.#open.clear();
  }
}

/** Refuses a socket of another user: it would learn what is to be signed, and could respond with anything. */
async function assertPrivate(path: string): Promise<void> {
  for (const each of [dirname(path), path]) {
    const { mode, uid } = await lstat(each);
    const own = process.getuid?.();
    if ((mode & OTHERS) !== 0 || (uid !== own && uid !== 0))
      throw new Error(`${each} must belong only to this user`);
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
