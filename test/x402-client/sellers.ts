// Local HTTP servers in the role of a remote target, which count their connections.
import { createServer, type RequestListener, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import type { Test } from "tap";

export interface LocalServer {
  origin: string;
  port: number;
  /** Connections accepted so far: a forbidden server must get none. */
  connections(): number;
  server: Server;
}

export async function localServer(
  t: Pick<Test, "teardown">,
  listener: RequestListener,
): Promise<LocalServer> {
  let connections = 0;
  const server = createServer({ maxHeaderSize: 128 * 1024 }, listener);
  server.on("connection", () => (connections += 1));
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.teardown(
    () =>
      new Promise<void>((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  );
  const { port } = server.address() as AddressInfo;
  return { origin: `http://127.0.0.1:${port}`, port, connections: () => connections, server };
}
