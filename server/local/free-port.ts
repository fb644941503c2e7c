import { once } from "node:events";
import { randomInt } from "node:crypto";
import { readFileSync } from "node:fs";
import { createServer } from "node:net";
import { StartError } from "./start-error.ts";

/** Above the ports that programs are known by, and the last one that `fetch` does not go to. */
const LOWEST = 11_000;
const MOST_TRIES = 50;

/**
 * A loopback port nobody listens on now, and that the system gives to nobody: between our look and the start of whoever
 * is to listen there, each connection and each server on "any port" of this machine could be given it otherwise.
 */
export async function freePort(): Promise<number> {
  const places = givenFrom() - LOWEST;
  for (let left = places > 0 ? MOST_TRIES : 0; left > 0; left -= 1) {
    const port = await listenOnce(LOWEST + randomInt(places)).catch(() => undefined);
    if (port !== undefined) return port;
  }
  return listenOnce(0);
}

/** The first of the ports that are given to whoever names none. */
function givenFrom(): number {
  try {
    return Number.parseInt(readFileSync("/proc/sys/net/ipv4/ip_local_port_range", "utf8"), 10);
  } catch {
    // Not Linux: there they are fewer and higher.
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

/** Asked before anything else is started, so that a busy port costs nobody a wait. */
export async function assertPortFree(host: string, port: number): Promise<void> {
  await tryListen(host, port);
  if (host !== "127.0.0.1") return;
  // Browsers try ::1 first for `localhost`: another program there would answer in our place.
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
