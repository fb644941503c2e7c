// Connections that fail in ways that plain servers do not show: in the middle of TLS, and ports that accept
// two protocols.
import { execFileSync } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { createServer, type ServerResponse } from "node:http";
import { connect, createServer as createTcpServer, type AddressInfo, type Server } from "node:net";
import { join } from "node:path";
import { createServer as createTlsServer } from "node:tls";
import type { Test } from "tap";

export interface Tls {
  key: Buffer;
  cert: Buffer;
  certFile: string;
}

/** A certificate for 127.0.0.1 and these names; undefined where openssl is not installed. */
export function selfSigned(folder: string, names: readonly string[] = []): Tls | undefined {
  const [keyFile, certFile] = [join(folder, "key.pem"), join(folder, "cert.pem")];
  const what = "req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=x".split(" ");
  const all = ["IP:127.0.0.1", ...names.map((name) => `DNS:${name}`)];
  const forNames = ["-addext", `subjectAltName=${all.join(",")}`];
  try {
    execFileSync("openssl", [...what, ...forNames, "-keyout", keyFile, "-out", certFile], {
      stdio: "ignore",
    });
  } catch {
    return undefined;
  }
  return { key: readFileSync(keyFile), cert: readFileSync(certFile), certFile };
}

async function listening(t: Test, server: Server): Promise<number> {
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  t.teardown(() => server.close());
  return (server.address() as AddressInfo).port;
}

/** An unreadable TLS record; with an invalid version, if one is given. */
const record = (version: number) =>
  Buffer.concat([Buffer.from([0x17, 3, version, 0, 32]), Buffer.alloc(32, 7)]);

/** Regular TLS until the request has arrived, then bytes that are not TLS. */
export async function garbledTls(
  t: Test,
  { key, cert }: Tls,
  version: number,
): Promise<{ url: string; requests: string[] }> {
  const requests: string[] = [];
  const inner = await listening(
    t,
    createTlsServer({ key, cert }, (socket) => {
      socket.on("error", () => {});
      socket.on("data", (data) => {
        requests.push(String(data));
        socket.write("HTTP/1.1 200 OK\r\n\r\n");
      });
    }),
  );
  const port = await listening(
    t,
    createTcpServer((client) => {
      const before = requests.length;
      const server = connect(inner, "127.0.0.1");
      client.pipe(server);
      server.on("data", (data) => {
        if (requests.length === before) client.write(data);
        else client.end(record(version));
      });
      server.on("end", () => client.end());
      for (const socket of [client, server])
        socket.on("error", () => void (client.destroy(), server.destroy()));
    }),
  );
  return { url: `https://127.0.0.1:${port}`, requests };
}

/** A port that accepts HTTP and TLS, told apart by the first byte. */
export async function bothProtocols(
  t: Test,
  { key, cert }: Tls,
  answer: (method: string, response: ServerResponse) => void,
): Promise<{ url: string; posts: () => number }> {
  let posts = 0;
  const plain = createServer((request, response) => {
    request.resume();
    request.on("end", () => {
      if (request.method === "POST") posts += 1;
      answer(request.method ?? "", response);
    });
  });
  const secure = createTlsServer({ key, cert }, (socket) => socket.on("error", () => {}).end());
  secure.on("tlsClientError", () => {});
  const port = await listening(
    t,
    createTcpServer((socket) => {
      socket.on("error", () => {});
      socket.once("data", (first: Buffer) => {
        socket.pause();
        socket.unshift(first);
        (first[0] === 0x16 ? secure : plain).emit("connection", socket);
        process.nextTick(() => socket.resume());
      });
    }),
  );
  return { url: `http://127.0.0.1:${port}`, posts: () => posts };
}
