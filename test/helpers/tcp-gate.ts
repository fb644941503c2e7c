// A door in front of a TCP server that a test can shut (connections are cut and new ones refused), or behind which
// what is connected falls silent while new connections work, as after a failover.
import { once } from "node:events";
import { connect, createServer, type Server, type Socket } from "node:net";
import type { Test } from "tap";

export interface TcpGate {
  port: number;
  shut(): Promise<void>;
  open(): Promise<void>;
  /** Established connections stay open, and nothing passes through them any more. */
  silence(): void;
}

export async function tcpGate(
  t: Pick<Test, "teardown">,
  target: { host: string; port: number },
): Promise<TcpGate> {
  const sockets = new Set<Socket>();
  const pairs = new Set<[Socket, Socket]>();
  const silenced = new Set<Socket>();
  let server: Server | undefined;
  let port = 0;

  const open = async (): Promise<void> => {
    server = createServer((inbound) => {
      const outbound = connect(target.port, target.host);
      const pair: [Socket, Socket] = [inbound, outbound];
      pairs.add(pair);
      for (const socket of pair) {
        sockets.add(socket);
        socket.on("error", () => undefined);
        socket.on("close", () => {
          sockets.delete(socket);
          if (silenced.has(socket)) return;
          pairs.delete(pair);
          inbound.destroy();
          outbound.destroy();
        });
      }
      inbound.pipe(outbound);
      outbound.pipe(inbound);
    }).listen(port, "127.0.0.1");
    await once(server, "listening");
    const address = server.address();
    if (address !== null && typeof address === "object") port = address.port;
  };

  const shut = async (): Promise<void> => {
    const closing = server;
    if (!closing) return;
    server = undefined;
    const closed = once(closing, "close");
    closing.close();
    for (const socket of sockets) socket.destroy();
    await closed;
  };

  const silence = (): void => {
    for (const pair of pairs)
      for (const socket of pair) {
        silenced.add(socket);
        socket.unpipe();
        // Read and thrown away: the other side's data is acknowledged, and answered by nobody.
        socket
          .removeAllListeners("end")
          .on("data", () => undefined)
          .resume();
      }
    pairs.clear();
  };

  await open();
  t.teardown(shut);
  return { port, shut, open, silence };
}
