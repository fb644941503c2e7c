// A Postgres that says it is another version: what refuses an old server is tested without one.
import { once } from "node:events";
import { type AddressInfo, connect, createServer } from "node:net";
import { Client } from "pg";
import type { Test } from "tap";

/** A proxy that replaces the version number in what the server sends. */
export async function claiming(t: Test, url: string, version: string): Promise<string> {
  const client = new Client({ connectionString: url });
  await client.connect();
  const { rows } = await client.query<{ server_version_num: string }>("SHOW server_version_num");
  await client.end();
  const own = Buffer.from(rows[0]?.server_version_num ?? "");
  const address = new URL(url);
  const { hostname, port } = address;
  const proxy = createServer((inbound) => {
    const outbound = connect(Number(port), hostname);
    for (const socket of [inbound, outbound]) socket.on("error", () => undefined);
    inbound.pipe(outbound);
    outbound.on("data", (data: Buffer) => {
      for (let at = data.indexOf(own); at !== -1; at = data.indexOf(own, at + 1))
        data.write(version, at);
      inbound.write(data);
    });
    outbound.on("close", () => inbound.destroy());
    inbound.on("close", () => outbound.destroy());
  }).listen(0, "127.0.0.1");
  await once(proxy, "listening");
  t.teardown(() => proxy.close());
  address.hostname = "127.0.0.1";
  address.port = String((proxy.address() as AddressInfo).port);
  return address.href;
}
