import { once } from "node:events";
import { randomInt } from "node:crypto";
import { readFileSync } from "node:fs";
import { createServer } from "node:net";
import { StartError } from "./start-error.ts";

/** Above well-known ports, and above the last port that `fetch` blocks. */
const LOWEST = 11_000;
const MOST_TRIES = 50;

/**
 * Returns a loopback port that is free and outside the system's ephemeral range. An ephemeral port could be given to
 * any other connection or server of this machine before the caller listens on it.
 */
export async function freePort(): Promise<number> {
  const places = givenFrom() - LOWEST;
  for (let left = places > 0 ? MOST_TRIES : 0; left > 0; left -= 1) {
    const port = await listenOnce(LOWEST + randomInt(places)).catch(() => undefined);
    if (port !== undefined) return port;
  }
  return listenOnce(0);
}

/** The first port of the ephemeral range. */
function givenFrom(): number {
  try {
    return Number.parseInt(readFileSync("/proc/sys/net/ipv4/ip_local_port_range", "utf8"), 10);
  } catch {
    // Not Linux: other systems have fewer and higher ephemeral ports.
    return 32_768;
  }
}

async function listenOnce(port: number): Promise<number> {
  const server = createServer().listen(port, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  server.close();
  await once(server, "close");
  if (address === null || typeof address === "string") throw new Error("no port was given");
  return address.port;
}

/** Checked before anything else is started, so that a busy port is reported at once. */
export async function assertPortFree(host: string, port: number): Promise<void> {
  await tryListen(host, port);
  if (host !== "127.0.0.1") return;
  // Browsers try ::1 first for `localhost`: another program there would respond instead of us.
  await tryListen("::1", port).catch((error: StartError) => {
    if ((error.cause as NodeJS.ErrnoException).code === "EADDRINUSE") throw error;
  });
}

async function tryListen(host: string, port: number): Promise<void> {
  const server = createServer();
  try {
    server.listen(port, host);
    await once(server, "listening");
  } catch (error) {
    throw new StartError(whyNot(host, port, error as NodeJS.ErrnoException), { cause: error });
  }
  server.close();
  await once(server, "close");
}

function whyNot(host: string, port: number, error: NodeJS.ErrnoException): string {
  if (error.code === "EADDRINUSE")
    return `port ${port} is in use. Stop what uses it, or choose another: PORT=${port + 1} npm start`;
  if (error.code === "EACCES")
    return `this user may not listen on port ${port}. Choose one above 1023: PORT=3000 npm start`;
  if (error.code === "EADDRNOTAVAIL" || error.code === "ENOTFOUND")
    return `HOST=${host} is not an address of this machine.`;
  return `cannot listen on ${host}:${port} (${error.code ?? error.message}).`;
}
