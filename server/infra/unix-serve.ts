/**
 * The server side of calls over a Unix socket. It bounds what it keeps in memory; a frame that is too long or not a
 * call ends the connection.
 */
import { chmod, lstat, mkdir, rm } from "node:fs/promises";
import { connect, createServer, type Server, type Socket } from "node:net";
import { dirname } from "node:path";
import { encode, Frames, isCall, OTHERS, type Call } from "./unix-frames.ts";

const PRIVATE_DIRECTORY = 0o700;
const PRIVATE_SOCKET = 0o600;

export interface ServeOptions {
  path: string;
  /** Never throws: a refusal is a response as well. */
  answer(call: Call): Promise<unknown>;
  /** The response to a call that got no place in time. */
  tooBusy: unknown;
  atOnce: number;
  waiting: number;
  onBroken(reason: string): void;
}

/** Listens on a socket of mode 0600 in a directory of mode 0700, so that only this user can connect. */
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
      // The caller no longer waits for it.
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
        if (!isCall(frame)) throw new TypeError("the frame is not a call");
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

/** A semaphore: so many calls at once, so many that wait, and no more. */
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
    throw new Error(
      `${path} must be accessible only to this user (mode 0700), because any process that can open it can request signatures`,
    );
}

/** Removes a socket without a listener, left over from a process that was killed. */
async function removeStale(path: string): Promise<void> {
  const found = await lstat(path).catch(() => undefined);
  if (!found) return;
  if (!found.isSocket()) throw new Error(`${path} exists and is not a socket`);
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
