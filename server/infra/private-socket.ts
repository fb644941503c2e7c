/**
 * HTTP between two processes of one user, over a Unix socket of mode 0600 in a directory of mode 0700: nobody else can
 * connect.
 */
import { chmod, lstat, mkdir, rm } from "node:fs/promises";
import { connect, type Socket } from "node:net";
import { dirname } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { callbackify, promisify } from "node:util";
import type { FastifyInstance } from "fastify";
import { buildConnector, Pool } from "undici";
import type { Timings } from "../core/timings.ts";
import { MAX_WORKERS } from "../core/worker-settings.ts";
import { post } from "./post.ts";

/** Of a request and of a response: two lists of payees and a signed policy are some hundred kilobytes. */
export const MAX_BODY_BYTES = 2 * 1024 * 1024;

const PRIVATE_DIRECTORY = 0o700;
const PRIVATE_SOCKET = 0o600;
/** Permission bits of group and others. */
const OTHERS = 0o077;
const CONNECT_MS = 1_000;
const RETRY_MS = 100;
/** Each carries one call at a time. More calls wait, up to so many open ones. */
const CONNECTIONS = 64;
const MAX_OPEN = 1_024;
/** From all processes of the service on this machine. */
const MAX_CONNECTIONS = MAX_WORKERS * CONNECTIONS;

type ReachTimeout = Pick<Timings, "custodyReachMs">;

export async function listenPrivately(app: FastifyInstance, path: string): Promise<void> {
  await makePrivateDirectory(dirname(path));
  await removeStale(path);
  app.server.maxConnections = MAX_CONNECTIONS;
  await app.listen({ path });
  await chmod(path, PRIVATE_SOCKET);
}

export class SocketClient {
  readonly #pool: Pool;
  #open = 0;

  constructor(path: string, timings: ReachTimeout) {
    this.#pool = new Pool(ORIGIN, {
      connect: patientConnector(path, timings),
      connections: CONNECTIONS,
      maxResponseSize: MAX_BODY_BYTES,
    });
  }

  /** Rejects if there is no response in time: whether the call was carried out is unknown. */
  async call(name: string, body: string, timeoutMs: number): Promise<string> {
    if (this.#open >= MAX_OPEN) throw new Error(`${MAX_OPEN} calls are open`);
    this.#open += 1;
    // A call that has timed out is in the pool's queue until its turn comes.
    const onEnd = (): void => void (this.#open -= 1);
    try {
      return await post(this.#pool, `${ORIGIN}/${name}`, body, { budgetMs: timeoutMs, onEnd });
    } catch (error) {
      if (CLOSED.has(String((error as NodeJS.ErrnoException).code)))
        throw new Error(
          "the other process closed the connection without a response: it was stopped, or it is of another release and must be upgraded together with this one",
          { cause: error },
        );
      throw error;
    }
  }

  async close(): Promise<void> {
    await this.#pool.destroy(new Error("the service is stopping"));
  }
}

/** No host: the connector opens the socket. */
const ORIGIN = "http://socket";
const CLOSED = new Set(["UND_ERR_SOCKET", "ECONNRESET", "EPIPE"]);

/** Waits for a process that restarts. A request that fails here was not sent. */
function patientConnector(path: string, timings: ReachTimeout): buildConnector.connector {
  const open = promisify(buildConnector({ socketPath: path, timeout: CONNECT_MS }));
  const reach = async (options: buildConnector.Options): Promise<Socket | null> => {
    const untilMs = performance.now() + timings.custodyReachMs;
    for (;;) {
      try {
        await assertPrivate(path);
        return await open(options);
      } catch (error) {
        if (performance.now() > untilMs)
          throw new Error(`no process responds on ${path}: ${String(error)}`, { cause: error });
      }
      await sleep(RETRY_MS);
    }
  };
  return callbackify(reach) as buildConnector.connector;
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

async function makePrivateDirectory(path: string): Promise<void> {
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
    socket.once("connect", () => socket.destroy());
  });
  if (isAlive) throw new Error(`another process listens on ${path}`);
  await rm(path, { force: true });
}
