// A TCP proxy that a test can shut, or whose established connections it can silence.
import { once } from "node:events";
import { connect, createServer, type Server, type Socket } from "node:net";
import type { Test } from "tap";

export interface TcpGate {
  port: number;
  /** Connections are cut and new ones refused. */
  shut(): Promise<void>;
  open(): Promise<void>;
  /**
   * Established connections carry no more data, while new ones work. `isEnded`: the server's side of them is closed,
   * as after a failover to another machine; else the server considers them open for a minute.
   */
  silence(isEnded?: boolean): void;
}

/** After this time the server's TCP keepalive would notice the dead connection, too. */
const KEEPALIVE_MS = 60_000;

interface Pair {
  inbound: Socket;
  outbound: Socket;
  isSilent: boolean;
}

export async function tcpGate(
  t: Pick<Test, "teardown">,
  target: { host: string; port: number },
): Promise<TcpGate> {
  const pairs = new Set<Pair>();
  let server: Server | undefined;
  let port = 0;

  const join = (inbound: Socket): void => {
    const pair = { inbound, outbound: connect(target.port, target.host), isSilent: false };
    const { outbound } = pair;
    pairs.add(pair);
    for (const [socket, other] of [
      [inbound, outbound],
      [outbound, inbound],
    ] as const) {
      socket.on("error", () => undefined);
      socket.on("close", () => {
        if (pair.isSilent && socket === outbound) return;
        pairs.delete(pair);
        other.destroy();
      });
    }
    inbound.pipe(outbound);
    outbound.pipe(inbound);
  };

  const open = async (): Promise<void> => {
    if (server) return;
    server = createServer(join).listen(port, "127.0.0.1");
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
    for (const { inbound, outbound } of pairs) {
      inbound.destroy();
      outbound.destroy();
    }
    await closed;
  };

  const silence = (isEnded = true): void => {
    for (const pair of pairs) {
      const { inbound, outbound } = pair;
      pair.isSilent = true;
      inbound.unpipe(outbound);
      outbound.unpipe(inbound);
      // Further data is discarded. It must still be read, so that each side sees its own close.
      inbound.resume();
      outbound.resume();
      if (isEnded) outbound.destroy();
      else setTimeout(() => outbound.destroy(), KEEPALIVE_MS).unref();
    }
  };

  await open();
  t.teardown(shut);
  return { port, shut, open, silence };
}
