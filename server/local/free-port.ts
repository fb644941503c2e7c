import { once } from "node:events";
import { createServer } from "node:net";
import { StartError } from "./start-error.ts";

/** A loopback port nobody listens on now. */
export async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
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
    return `HOST=${host} is no address of this machine.`;
  return `cannot listen on ${host}:${port} (${error.code ?? error.message}).`;
}
