// Goal: no URL, however spelled or resolved, makes the service open a socket to a private address (SSRF), and its answer reveals nothing about that address.
import t from "tap";
import {
  isForbiddenAddress,
  OutboundError,
  type ResolvedAddress,
} from "../../server/infra/outbound/guard.ts";
import { Outbound, type OutboundOptions } from "../../server/infra/outbound/outbound.ts";
import { freePort } from "../../server/local/free-port.ts";
import { localServer } from "./sellers.ts";

function outbound(t: Pick<Tap, "teardown">, options: Partial<OutboundOptions> = {}): Outbound {
  const made = new Outbound({
    isHttpAllowed: true,
    privateOrigins: [],
    userAgent: "test",
    ...options,
  });
  t.teardown(() => made.close());
  return made;
}
type Tap = typeof t;

const split = (text: string): string[] => text.trim().split(/\s+/);

async function failureOf(promise: Promise<unknown>): Promise<{ failure: string; message: string }> {
  try {
    await promise;
  } catch (error) {
    if (error instanceof OutboundError) return { failure: error.failure, message: error.message };
    throw error;
  }
  return { failure: "none", message: "" };
}

const v4 = (address: string): ResolvedAddress => ({ address, family: 4 });
const v6 = (address: string): ResolvedAddress => ({ address, family: 6 });

t.test("every special range is forbidden, including its edges", async (t) => {
  const forbidden = split(`
    0.0.0.0 0.255.255.255 10.0.0.0 10.255.255.255 100.64.0.0 100.127.255.255 100.100.100.200
    127.0.0.1 127.255.255.255 168.63.129.16 169.254.0.0 169.254.169.254 169.254.255.255
    172.16.0.0 172.31.255.255 192.0.0.192 192.0.2.1 192.88.99.1 192.168.0.0 192.168.255.255
    198.18.0.0 198.19.255.255 198.51.100.1 203.0.113.255 224.0.0.1 239.255.255.255 240.0.0.0
    255.255.255.255 :: ::1 ::127.0.0.1 ::8.8.8.8 ::ffff:127.0.0.1 ::ffff:7f00:1 ::ffff:8.8.8.8
    ::ffff:0:127.0.0.1 64:ff9b::127.0.0.1 64:ff9b::10.0.0.1 64:ff9b::169.254.169.254
    64:ff9b:1::1 100::1 2001::1 2001:0:7f00:1:: 2001:2::1 2001:10::1 2001:20::1 2001:db8::1
    2002:7f00:1:: 2002:0808:0808:: 3fff::1 5f00::1 fc00::1 fd00:ec2::254 fdff::1 fe80::1
    fe80::1%eth0 fec0::1 ff02::1 ffff::1 4000::1 1.2.3.4.5 8.8.8.8:80`).concat(
    "not an address",
    "",
  );
  for (const address of forbidden) t.ok(isForbiddenAddress(address), `${address} is forbidden`);
  const allowed = split(`
    1.1.1.1 8.8.8.8 9.255.255.255 11.0.0.0 100.63.255.255 100.128.0.0 126.255.255.255 128.0.0.0
    169.253.255.255 169.255.0.0 172.15.255.255 172.32.0.0 192.167.255.255 192.169.0.0
    198.17.255.255 198.20.0.0 223.255.255.255 2606:4700::1111 2a00:1450::1 2620:fe::fe
    64:ff9b::8.8.8.8`);
  for (const address of allowed) t.notOk(isForbiddenAddress(address), `${address} is public`);
});

t.test("odd spellings of a private address open no socket, at any port", async (t) => {
  const server = await localServer(t, (_request, response) => response.end("secret"));
  const client = outbound(t);
  const closedPort = await freePort();
  const hosts = split(`
    127.0.0.1 127.1 127.0.1 2130706433 0x7f000001 0x7f.1 0177.0.0.1 017700000001 0x7f.0.0.0x1
    127.0.0.1. 0 0.0.0.0 0x0 127.255.255.254 １２７.0.0.1 127。0。0。1 ①②⑦.0.0.1 %31%32%37.0.0.1 [::1]
    [::] [0:0:0:0:0:0:0:1] [::ffff:127.0.0.1] [::ffff:7f00:1] [::127.0.0.1] [64:ff9b::127.0.0.1]
    [2002:7f00:1::] [fe80::1] localhost LOCALHOST localhost.`);
  for (const host of hosts) {
    const open = await failureOf(client.request({ url: `http://${host}:${server.port}/` }));
    const closed = await failureOf(client.request({ url: `http://${host}:${closedPort}/` }));
    t.equal(open.failure, "blocked", `${host} is refused`);
    t.same(closed, open, `${host}: an open and a closed port give the same answer`);
  }
  for (const host of ["10.0.0.1", "192.168.1.1", "169.254.169.254", "172.16.0.1", "[fd00::1]"]) {
    const other = await failureOf(client.request({ url: `http://${host}/` }));
    const loopback = await failureOf(client.request({ url: `http://127.0.0.1:${server.port}/` }));
    t.same(other, loopback, `${host} is refused with the same message`);
  }
  t.equal(server.connections(), 0, "nothing reached the forbidden server");
});

t.test("names with a private address are refused, also beside public ones", async (t) => {
  const server = await localServer(t, (_request, response) => response.end("secret"));
  const closedPort = await freePort();
  const answers: ResolvedAddress[][] = [
    [v4("127.0.0.1")],
    [v4("10.1.2.3")],
    [v4("169.254.169.254")],
    [v6("::1")],
    [v6("::ffff:127.0.0.1")],
    [v6("fd00:ec2::254")],
    [v6("fe80::1")],
    [v4("8.8.8.8"), v4("127.0.0.1")],
    [v6("2606:4700::1111"), v4("127.0.0.1")],
    [v4("127.0.0.1"), v4("8.8.8.8")],
  ];
  for (const answer of answers) {
    const client = outbound(t, { resolver: async () => answer });
    const label = answer.map(({ address }) => address).join(" + ");
    for (const scheme of ["http", "https"]) {
      const open = await failureOf(
        client.request({ url: `${scheme}://seller.example:${server.port}/` }),
      );
      const closed = await failureOf(
        client.request({ url: `${scheme}://seller.example:${closedPort}/` }),
      );
      t.equal(open.failure, "blocked", `${label} over ${scheme} is refused`);
      t.same(closed, open, "whatever listens there");
    }
  }
  t.equal(server.connections(), 0, "nothing reached the forbidden server");
});

t.test("DNS rebinding has no effect: each socket's one lookup is checked", async (t) => {
  const server = await localServer(t, (_request, response) => response.end("ok"));
  let lookups = 0;
  const client = outbound(t, {
    // Public at first, private afterwards: a second lookup for the same socket would connect to the private address.
    resolver: async () => [lookups++ === 0 ? v4("8.8.8.8") : v4("127.0.0.1")],
  });
  const url = `http://rebind.example:${server.port}/`;
  const first = await failureOf(client.request({ url, timeoutMs: 400 }));
  t.not(first.failure, "none", "the public address has no server of ours");
  t.equal(lookups, 1, "one lookup for the first socket");
  t.same((await failureOf(client.request({ url }))).failure, "blocked");
  t.equal(server.connections(), 0, "the private address was never connected to");

  let trusted = 0;
  const named = `http://named.example:${server.port}`;
  const exempt = outbound(t, {
    privateOrigins: [named],
    resolver: async () => [v4(trusted++ === 0 ? "127.0.0.1" : "127.0.0.2")],
  });
  t.equal((await exempt.request({ url: `${named}/a` })).status, 200);
  t.equal(trusted, 1, "connected to the one address that was looked up");
  t.equal(server.connections(), 1);
});

t.test("a private origin is exempt exactly: scheme, host and port", async (t) => {
  const allowed = await localServer(t, (_request, response) => response.end("own"));
  const other = await localServer(t, (_request, response) => response.end("secret"));
  const client = outbound(t, { isHttpAllowed: false, privateOrigins: [allowed.origin] });
  t.equal((await client.request({ url: `${allowed.origin}/x` })).body.toString(), "own");
  for (const url of [
    `http://127.0.0.1:${other.port}/`,
    `http://localhost:${allowed.port}/`,
    `http://[::ffff:127.0.0.1]:${allowed.port}/`,
    `https://127.0.0.1:${allowed.port}/`,
    `https://127.0.0.1:${other.port}/`,
  ])
    t.equal((await failureOf(client.request({ url }))).failure, "blocked", url);
  t.equal(other.connections(), 0);
  t.equal(allowed.connections(), 1, "only the allowed request connected");
});

t.test("a redirect is returned, never followed", async (t) => {
  const secret = await localServer(t, (_request, response) => response.end("secret"));
  const seller = await localServer(t, (_request, response) =>
    response.writeHead(302, { location: `${secret.origin}/` }).end("moved"),
  );
  const client = outbound(t, { privateOrigins: [seller.origin] });
  const response = await client.request({ url: seller.origin });
  t.equal(response.status, 302);
  t.equal(secret.connections(), 0);
});

t.test("only http and https, without credentials, on usual HTTP ports", async (t) => {
  const client = outbound(t);
  const urls = split(`
    file:///etc/passwd ftp://example.com/ gopher://example.com/ data:text/plain,x
    javascript:alert(1) ws://example.com/ unix:/var/run/x.sock //example.com http://
    http://user@example.com/ http://user:pass@example.com/ http://:x@e.com/
    http://example.com:25/ http://example.com:22/ http://example.com:6667/ http://[::1%25lo]/`).concat(
    "",
    "http://exa mple.com/",
    `http://example.com/${"a".repeat(5000)}`,
  );
  for (const url of urls)
    t.equal((await failureOf(client.request({ url }))).failure, "blocked", url.slice(0, 60));
  const production = outbound(t, { isHttpAllowed: false });
  t.equal((await failureOf(production.request({ url: "http://example.com/" }))).failure, "blocked");
  t.equal(production.assertAllowed("https://example.com/a#b").href, "https://example.com/a");
});

t.test("no address, a closed port and a port without HTTP give one answer", async (t) => {
  const babble = await localServer(t, () => undefined);
  babble.server.on("connection", (socket) => socket.end("220 mail ready\r\n"));
  const closedPort = await freePort();
  const closedOrigin = `http://127.0.0.1:${closedPort}`;
  const client = outbound(t, {
    privateOrigins: [babble.origin, closedOrigin],
    resolver: async () => [],
  });
  const answers = await Promise.all(
    [babble.origin, closedOrigin, "http://nowhere.example/"].map((url) =>
      failureOf(client.request({ url })),
    ),
  );
  for (const answer of answers) t.same(answer, answers[0]);
  t.equal(answers[0]?.failure, "unreachable");
});
