// A door in front of a TCP server that a test can shut: connections are cut and new ones refused.
import { once } from "node:events";
import { connect, createServer, type Server, type Socket } from "node:net";
import type { Test } from "tap";

export interface TcpGate {
  port: number;
  shut(): Promise<void>;
  open(): Promise<void>;
}

export async function tcpGate(
  t: Pick<Test, "teardown">,
  target: { host: string; port: number },
): Promise<TcpGate> {
  const sockets = new Set<Socket>();
  let server: Server | undefined;
  let port = 0;

  const open = async (): Promise<void> => {
    server = createServer((inbound) => {
      const outbound = connect(target.port, target.host);
      for (const socket of [inbound, outbound]) {
        sockets.add(socket);
        socket.on("error", () => undefined);
        socket.on("close", () => {
          sockets.delete(socket);
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

  await open();
  t.teardown(shut);
  return { port, shut, open };
}
